"""Fill the tables of docs/background/peers.md from experiments/results/peers.csv, which `make peers` writes.

    .venv/bin/python docs/tools/peers_page.py

The text of the page is written by hand; what is between `<!-- name -->` and `<!-- end -->` is written here.
"""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE, RESULTS = ROOT / "docs/background/peers.md", ROOT / "experiments/results/peers.csv"
NAMES = {
    "dpsieve": "dpsieve", "opendp": "OpenDP", "pipelinedp": "PipelineDP", "pydp": "PyDP", "tumult": "Tumult Analytics",
    "smartnoise": "SmartNoise SQL", "diffprivlib": "diffprivlib", "datasketches": "DataSketches (not private)",
}  # fmt: skip
TITLES = {
    "counts": "Counts of unknown keys", "known": "Counts of known keys", "means": "Mean per key", "keys": "Keys only",
    "sum": "Sum of a column", "mean": "Mean of a column", "frequent": "Frequent items of a stream",
}  # fmt: skip
ONE_NUMBER, ALL_RUNS = {"sum", "mean"}, 20  # with fewer runs, the error of one number is mostly chance
BY_KEYS = {"counts", "keys"}  # the best setting publishes the most keys; elsewhere, it has the least error
COLUMNS = {
    "keys": "keys",
    "error": "error",
    "seconds": "seconds",
    "cpu_seconds": "CPU seconds",
    "memory_mib": "MiB",
    "runs": "runs",
}
Row = dict[str, str]


def fill(page: str, rows: list[Row]) -> str:
    """Return the page with its tables."""
    parts = {"machine": _machine(rows), "versions": _versions(rows), "summary": _summary(rows)}
    parts |= {job: _job(job, rows) for job in TITLES}
    for name, text in parts.items():
        block = f"<!-- {name} -->\n{text}\n<!-- end -->"
        page, filled = re.subn(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, b=block: b, page, flags=re.DOTALL)
        if filled != 1:
            raise ValueError(f"{PAGE.name} needs one place <!-- {name} --> ... <!-- end -->, not {filled}")
    return page


def best_first(job: str, rows: list[Row]) -> list[Row]:
    """Return the rows of a job with the best first, and what failed last."""

    def rank(row: Row) -> tuple[bool, float]:
        value = row["keys"] if job in BY_KEYS else row["error"]
        return (not value, (-float(value) if job in BY_KEYS else float(value)) if value else 0.0)

    return sorted((row for row in rows if row["job"] == job), key=rank)


def _machine(rows: list[Row]) -> str:
    return "Measured on " + "; ".join(dict.fromkeys(row["machine"] for row in rows)) + "."


def _versions(rows: list[Row]) -> str:
    versions = {(row["tool"], row["version"]) for row in rows if row["version"]}
    named = [f"{NAMES[tool].removesuffix(' (not private)')} {version}" for tool, version in sorted(versions)]
    return f"Versions: {', '.join(named)}."


def _summary(rows: list[Row]) -> str:
    lines = []
    for job, title in TITLES.items():
        ranked = best_first(job, rows)
        ours = next(row for row in ranked if row["tool"] == "dpsieve" and _is_private(row))
        peers = [row for row in ranked if row["tool"] != "dpsieve" and not row["failure"]]
        if not peers or ours["failure"]:
            lines.append([title, ours["data"], _result(job, ours), "none ran", ""])
            continue
        timed = [row for row in peers if row["cpu_seconds"]]
        fastest = min(timed, key=lambda row: (float(row["cpu_seconds"]), float(row["seconds"])))
        own = next(row for row in ranked if row["tool"] == "dpsieve" and _is_private(row) and row["cpu_seconds"])
        times = f"{_cpu(own)}, {_cpu(fastest)} ({NAMES[fastest['tool']]})"
        if job in ONE_NUMBER:
            peers = [row for row in peers if int(row["runs"]) >= ALL_RUNS] or peers
        best = f"{_result(job, peers[0])} ({NAMES[peers[0]['tool']]})"
        lines.append([title, ours["data"], _result(job, ours), best, times])
    head = ["job", "data", "dpsieve", "best peer", "CPU seconds: dpsieve, fastest peer"]
    return _table(head, lines)


def _is_private(row: Row) -> bool:
    return "private False" not in row["settings"]


def _result(job: str, row: Row) -> str:
    return f"{_number(row['keys'])} keys" if job in BY_KEYS else f"error {_number(row['error'])}"


def _job(job: str, rows: list[Row]) -> str:
    columns = [name for name in COLUMNS if not (job == "keys" and name == "error")]
    columns = [name for name in columns if not (job in ("sum", "mean") and name == "keys")]
    lines = []
    for row in best_first(job, rows):
        name = NAMES[row["tool"]] if _is_private(row) else f"{NAMES[row['tool']]} (not private)"
        values = [_cpu(row) if column == "cpu_seconds" else _number(row[column]) for column in columns]
        if row["failure"]:
            values = [f"failed: `{row['failure'].replace('|', ' ').replace('`', ' ')}`"] + [""] * (len(columns) - 1)
        lines.append([name, row["settings"].replace("_", " "), *values, row["lines"]])
    return _table(["tool", "settings", *(COLUMNS[name] for name in columns), "lines"], lines)


def _cpu(row: Row) -> str:
    """Return the CPU seconds, which are measured in hundredths."""
    return _number(row["cpu_seconds"]) if not row["cpu_seconds"] or float(row["cpu_seconds"]) else "< 0.01"


def _number(text: str) -> str:
    if not text:
        return ""
    value = float(text)
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def read_results() -> list[Row]:
    """Return the stored rows."""
    with RESULTS.open(newline="") as lines:
        return list(csv.DictReader(lines))


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(), read_results()))
