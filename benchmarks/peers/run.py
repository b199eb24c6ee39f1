"""dpsieve beside its peers: the same jobs on the same data, in one run.

    make peers        or        DPSIEVE_DATA=folder .venv/bin/python benchmarks/peers/run.py [job or tool ...]

Each job is one script per tool, `jobs/<job>_<tool>.py`, which reads Parquet and writes JSON, in the environment of the
tool. A tool has several settings to try; all of them are stored, in experiments/results/peers.csv, and its best one is
shown in docs/background/peers.md. With words, only these jobs or tools run, and the other rows of the file stay. A tool
that is not installed, fails or takes longer than five minutes has a row with its error. Without DPSIEVE_DATA, made-up
data of a similar shape stands in, and the file says so.
"""

import ast
import csv
import gzip
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PEERS = Path(__file__).resolve().parent
ROOT = PEERS.parents[1]
RESULTS = ROOT / "experiments" / "results" / "peers.csv"
TOP, LEAST, SECONDS = 100, 100, 300
FIELDS = (
    "job", "tool", "settings", "data", "keys", "error", "seconds", "cpu_seconds", "memory_mib", "lines", "runs",
    "version", "machine", "failure",
)  # fmt: skip
TOOLS = {  # the environment of each tool, of requirements in <environment>.txt
    "dpsieve": "", "opendp": "opendp", "pipelinedp": "pipelinedp", "pydp": "pipelinedp", "tumult": "tumult",
    "smartnoise": "smartnoise", "diffprivlib": "diffprivlib", "datasketches": "datasketches",
}  # fmt: skip
Answers = list[dict[str, float]]
Settings = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What to do with which data: the script, the settings to try per tool, and the error of what comes out."""

    data: str
    tools: dict[str, list[Settings]]
    error: Callable[[Answers, pa.Table], float | None]
    common: Settings
    script: str = ""


def grid(**choices: Iterable[Any]) -> list[Settings]:
    """Return all combinations of choices."""
    settings: list[Settings] = [{}]
    for name, values in choices.items():
        values = list(values)
        settings = [{**one, name: value} for one in settings for value in values]
    return settings


def count_error(answers: Answers, rows: pa.Table) -> float:
    """Return the mean absolute error of the counts of the most frequent keys; a key that is not published counts 0."""
    counts = (
        rows.group_by("key").aggregate([([], "count_all")]).sort_by([("count_all", "descending"), ("key", "ascending")])
    )
    true = dict(zip(*(column.to_pylist() for column in counts.select(["key", "count_all"])[:TOP].columns), strict=True))
    return float(np.mean([abs(answer.get(key, 0.0) - n) for answer in answers for key, n in true.items()]))


def mean_error(answers: Answers, rows: pa.Table) -> float | None:
    """Return the mean absolute error of the published means of keys with many rows; None if none is published."""
    means = rows.group_by("key").aggregate([("value", "mean"), ("value", "count")]).to_pylist()
    true = {row["key"]: row["value_mean"] for row in means if row["value_count"] >= LEAST}
    errors = [abs(answer[key] - true[key]) for answer in answers for key in answer.keys() & true.keys()]
    return float(np.mean(errors)) if errors else None


def column_error(answers: Answers, rows: pa.Table) -> float:
    """Return the mean absolute error of a sum or a mean."""
    x = rows["value"].to_numpy()
    true = {"sum": x.sum(), "mean": x.mean()}
    return float(np.mean([abs(value - true[what]) for answer in answers for what, value in answer.items()]))


NOISES = ("laplace", "gaussian")
NOISY = [{"keys": 3, "noise": "laplace"}, {"keys": 10, "noise": "gaussian"}, {"keys": 30, "noise": "gaussian"}]
BOUNDS = {"low": 1.0, "high": 5.0}  # of ratings
SIZES = {"low": 0.0, "high": 80.0}  # of baskets: the largest has 76 items
COLUMN: dict[str, list[Settings]] = {
    "opendp": [{}], "pipelinedp": grid(noise=NOISES), "pydp": [{}], "tumult": [{}], "smartnoise": [{}],
    "diffprivlib": [{}],
}  # fmt: skip
NEIGHBOURS = grid(neighbours=("add_remove", "replace"))
JOBS = {
    "counts": Job(
        "baskets",
        {
            "dpsieve": [{}, {"max_keys_per_unit": 10, "goal": "counts"}, {"max_keys_per_unit": 30, "goal": "counts"}],
            "opendp": NOISY,
            "pipelinedp": NOISY,
            "pydp": NOISY,
            "tumult": grid(keys=(3, 10, 30), choice=(0.5,)),
            "smartnoise": NOISY,
        },
        count_error,
        {},
    ),
    "known": Job(
        "baskets",
        {
            "dpsieve": grid(keys=(30,), delta=(0.0, 1e-8)),
            "opendp": grid(keys=(30,), noise=NOISES),
            "pipelinedp": grid(keys=(30,), noise=NOISES),
            "pydp": grid(keys=(30,), noise=NOISES),
            "tumult": [{"keys": 30}],
            "diffprivlib": [{"keys": 30}],
        },
        count_error,
        {"known": "known.parquet"},
    ),
    "means": Job(
        "ratings",
        {
            "dpsieve": [{}, *grid(max_keys_per_unit=(1, 2))],
            "opendp": [*grid(keys=(1,), noise=NOISES), {"keys": 2, "noise": "laplace"}],
            "pipelinedp": [*grid(keys=(1,), noise=NOISES), {"keys": 2, "noise": "laplace"}],
            "tumult": grid(keys=(1, 2), choice=(0.5,)),
            "smartnoise": grid(keys=(1, 2)),
        },
        mean_error,
        BOUNDS,
    ),
    "keys": Job(
        "places",
        {
            "dpsieve": [{}, {"max_keys_per_unit": 30}, {"max_keys_per_unit": 100}],
            "opendp": NOISY[1:],
            "pipelinedp": grid(strategy=("gaussian_thresholding", "weighted_gaussian_thresholding"), keys=(30, 100)),
            "pydp": [*grid(keys=(30, 100), strategy=("gaussian",)), {"keys": 3, "strategy": "truncated_geometric"}],
            "tumult": [{"keys": 3}],
            "smartnoise": NOISY[:2],
        },
        lambda answers, rows: None,
        {},
    ),
    "sum": Job(
        "sizes", {"dpsieve": NEIGHBOURS[:1], **COLUMN}, column_error, {"what": "sum", **SIZES}, "column"
    ),
    "mean": Job("sizes", {"dpsieve": NEIGHBOURS, **COLUMN}, column_error, {"what": "mean", **SIZES}, "column"),
    "frequent": Job(
        "words",
        {"dpsieve": grid(counters=(1024,), private=(False, True)), "datasketches": grid(log2_counters=(11,))},
        count_error,
        {},
    ),
}  # fmt: skip
SCRIPTS = {("keys", "opendp"): "counts", ("keys", "smartnoise"): "counts"}  # where one query does both


def load_data(folder: Path | None) -> dict[str, tuple[str, pa.Table]]:
    """Return name and rows of each data set; without a folder, of made-up data."""
    if folder is None:
        return _made_up()
    baskets = [sorted(set(line.split())) for line in (folder / "retail.dat").read_text().splitlines() if line.strip()]
    with gzip.open(folder / "gowalla_all.txt.gz", "rt") as lines:
        places = [sorted(set(line.split())) for line in lines if line.strip()]
    ratings: dict[tuple[str, str], list[float]] = {}
    for line in (folder / "amazon_Magazine_Subscriptions.csv").read_text().splitlines():
        key, user, value, _ = line.split(",")
        ratings.setdefault((user, key), []).append(float(value))
    texts = (file.read_text().lower() for file in sorted((folder / "shakespeare").glob("*.txt")))
    words = pa.table({"key": [word for text in texts for word in re.findall(r"[a-z]+(?:'[a-z]+)?", text)]})
    return {
        "baskets": ("retail baskets", _pairs(baskets)),
        "ratings": ("Amazon magazine ratings", _ratings(ratings)),
        "places": ("Gowalla places", _pairs(places)),
        "sizes": ("sizes of retail baskets", pa.table({"value": [float(len(basket)) for basket in baskets]})),
        "words": ("words of Shakespeare", words),
    }


def _made_up(units: int = 20_000, keys: int = 5_000) -> dict[str, tuple[str, pa.Table]]:
    """Return small made-up data: log-normal numbers of keys per unit, Zipf keys, ratings from 1 to 5."""
    rng = np.random.default_rng(1)
    weights = np.cumsum(1 / np.arange(1.0, keys + 1))
    sizes = np.clip(rng.lognormal(2, 0.9, units).astype(int), 1, 76)
    drawn = np.searchsorted(weights, rng.random(sizes.sum()) * weights[-1]).astype(str)
    held = [sorted(set(own.tolist())) for own in np.split(drawn, np.cumsum(sizes)[:-1])]
    rated = {(str(user), own[0]): [float(rng.integers(1, 6))] for user, own in enumerate(held)}
    tables = {
        "baskets": _pairs(held), "ratings": _ratings(rated), "places": _pairs(held),
        "sizes": pa.table({"value": [float(len(own)) for own in held]}), "words": pa.table({"key": drawn.tolist()}),
    }  # fmt: skip
    return {name: (f"made up: {name}", table) for name, table in tables.items()}


def _pairs(held: list[list[str]]) -> pa.Table:
    users = np.repeat(np.arange(len(held)), [len(own) for own in held])
    return pa.table({"user": users, "key": [key for own in held for key in own]})


def _ratings(ratings: dict[tuple[str, str], list[float]]) -> pa.Table:
    users, keys = zip(*ratings, strict=True)
    return pa.table({"user": users, "key": keys, "value": [float(np.mean(own)) for own in ratings.values()]})


def run_script(python: Path, script: Path, rows: Path, settings: Settings, seconds: float = SECONDS) -> dict[str, Any]:
    """Return what a script wrote, or its failure as one line without paths and addresses."""
    with tempfile.TemporaryDirectory() as folder:
        options, written = Path(folder, "settings.json"), Path(folder, "answers.json")
        options.write_text(json.dumps(settings))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PEERS), str(ROOT / "src")])}
        command = [str(python), str(script), str(rows), str(options), str(written)]
        try:
            subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=seconds, cwd=folder, env=environment
            )
            result: dict[str, Any] = json.loads(written.read_text())
        except subprocess.CalledProcessError as error:
            return {"failure": one_line(error.stderr) or f"exit status {error.returncode}"}
        except subprocess.TimeoutExpired:
            return {"failure": f"no result within {seconds:g} s"}
        except FileNotFoundError:
            return {"failure": "the script wrote no answers" if python.exists() else "not installed"}
    return result


def one_line(text: str) -> str:
    """Return the line of an output that has the error, shortened, without paths and addresses."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b|ERROR:", line)]
    line = (errors or lines or [""])[-1]
    if line.endswith(":") and line != lines[-1]:
        line = f"{line} {lines[lines.index(line) + 1]}"
    line = re.sub(r"\S*://\S*[^\s,.;]|(?<![\w.])(/[\w.+-]+){2,}/?", "...", line)
    return line if len(line) <= 160 else line[:157] + "..."


def find_python(tool: str) -> tuple[Path, str]:
    """Return the interpreter of a tool, and why there is none."""
    if not TOOLS[tool]:
        return Path(sys.executable), ""
    home = ROOT / f".venv-peer-{TOOLS[tool]}"
    log = home / "install.log"
    failure = f"not installed: {one_line(log.read_text())}" if log.exists() else "not installed"
    return home / "bin" / "python", "" if (home / ".done").exists() else failure


def count_lines(script: Path) -> int:
    """Return the number of lines of a script, without blank lines, comments and docstrings."""
    text = script.read_text()
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in skipped and bool(line.split("#")[0].strip()) for number, line in lines)


def machine() -> str:
    """Return processor, cores, memory, system and Python of this machine."""
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) or [platform.processor()]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores of {names[0]}, {memory:.0f} GiB, {system}"


def rows_of(wanted: list[tuple[str, str]], folder: Path) -> Iterator[dict[str, Any]]:
    """Run jobs and yield a row of results per setting."""
    data = os.environ.get("DPSIEVE_DATA")
    sets = load_data(Path(data) if data else None)
    for name, (_, table) in sets.items():
        pq.write_table(table, folder / f"{name}.parquet")
    pq.write_table(sets["baskets"][1].select(["key"]).group_by("key").aggregate([]), folder / "known.parquet")
    place = machine()
    for name, tool in wanted:
        job = JOBS[name]
        title, table = sets[job.data]
        script = PEERS / "jobs" / f"{SCRIPTS.get((name, tool), job.script or name)}_{tool}.py"
        python, missing = find_python(tool)
        common = {key: str(folder / value) if key == "known" else value for key, value in job.common.items()}
        for settings in job.tools[tool]:
            row: dict[str, Any] = {"job": name, "tool": tool, "data": title, "machine": place}
            row["lines"] = count_lines(script)
            row["settings"] = ", ".join(f"{key} {value}" for key, value in settings.items()) or "default"
            rows = folder / f"{job.data}.parquet"
            found: dict[str, Any] = (
                {"failure": missing} if missing else run_script(python, script, rows, {**common, **settings})
            )
            answers = found.pop("answers", None)
            if answers is not None:
                row |= {"runs": len(answers), "keys": float(np.mean([len(answer) for answer in answers]))}
                row["error"] = job.error(answers, table)
            row |= found
            yield {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in row.items()}
            if missing or "no result" in row.get("failure", ""):
                break  # the other settings would fail in the same way


def read_results(file: Path = RESULTS) -> list[dict[str, str]]:
    """Return the stored rows."""
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def write_results(rows: list[dict[str, Any]], file: Path = RESULTS) -> None:
    """Store rows in the order of jobs and tools."""
    jobs, tools = list(JOBS), list(TOOLS)
    rows = sorted(rows, key=lambda row: (jobs.index(row["job"]), tools.index(row["tool"])))
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, FIELDS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Run the jobs and tools that the words name, or all, and store their results as they come."""
    words = set(sys.argv[1:])
    if unknown := words - JOBS.keys() - TOOLS.keys():
        sys.exit(f"{', '.join(sorted(unknown))}: choose from {', '.join([*JOBS, *TOOLS])}.")
    jobs, tools = words & JOBS.keys() or JOBS.keys(), words & TOOLS.keys() or TOOLS.keys()
    wanted = [(name, tool) for name in JOBS for tool in JOBS[name].tools if name in jobs and tool in tools]
    stored: list[dict[str, Any]] = [row for row in read_results() if (row["job"], row["tool"]) not in wanted]
    with tempfile.TemporaryDirectory() as folder:
        for row in rows_of(wanted, Path(folder)):
            stored.append(row)
            write_results(stored)
            shown = row.get("failure") or ", ".join(f"{key} {row.get(key)}" for key in ("keys", "error", "seconds"))
            print(f"{row['job']}, {row['tool']}, {row['settings']}: {shown}", flush=True)


if __name__ == "__main__":
    main()
