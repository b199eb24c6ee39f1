"""Measure the power of the audits: faults that are planted in the code, and faults of a known size.

    power.py                     # each fault of tests/faults, against the audits that reach the function it changes
    power.py --only threshold    # those whose name contains 'threshold'
    power.py --grades            # each path with 0.9, 0.7, 0.5 and 0.3 times the noise, and with delta divided by them
    power.py --paths 10          # all paths without a fault, with ten times the runs of the tests: the long audit

Faults are stored in docs/background/audit_power.csv, grades in audit_grades.csv beside it. The outcome of a fault is

- `contradicted` if an audit fails, with its lower bound on epsilon as `ratio`, in units of the claim;
- `refused` if the library itself raises where it works without the fault, which is no merit of the audit;
- `unchanged` if every output of every run is, bit for bit, what it is without the fault, on the same random words;
- `missed` if outputs differ, by less than these runs show;
- `not reached` if no audit calls the function, or `out of time`.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import Queue
from shutil import copytree

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "faults")]

from fault import FOLDER, ROOT, check, place, plant, read_faults  # noqa: E402
from page import GRADES, PAGE, TABLE, page  # noqa: E402

COLUMNS = ("fault", "function", "group", "outcome", "audit", "ratio", "seconds")
GRADE_COLUMNS = ("path", "noise", "threshold")
FACTORS = (0.9, 0.7, 0.5, 0.3)
AUDITS_PER_FAULT = 8
TIMEOUT = 240.0
CHILD = """
import json, sys, warnings
sys.path[:0] = sys.argv[2:4]
import dpsieve
assert dpsieve.__file__.startswith(sys.argv[1]), dpsieve.__file__
warnings.simplefilter("ignore")
import power
power.report(json.load(sys.stdin))
"""


def report(names):
    """Run short audits in this process; print the first that fails, or the digests of all outputs, as JSON."""
    from paths import AUDITS

    digests = {}
    for name in names:
        path = AUDITS[name]
        try:
            found, digests[name] = audit_and_digest(path)
        except Exception as error:  # it works without the fault
            print(json.dumps({"audit": name, "ratio": type(error).__name__}))
            return
        if not found.passed:
            ratio = round(found.lower / found.epsilon, 3) if found.lower else "rows differ"
            print(json.dumps({"audit": name, "ratio": ratio, "contradicted": True}))
            return
    print(json.dumps({"digests": digests}))


def audit_and_digest(path):
    """Return the short audit of a path, and a digest of all outputs in their order."""
    from paths import Path as AuditedPath

    outputs, inputs = hashlib.sha256(), path.inputs()

    def run(data, source):
        output = inputs.run(data, source)
        outputs.update(repr(getattr(output, "table", output)).encode())
        return output

    made = type(inputs)(inputs.name, inputs.kind, run, inputs.data, inputs.neighbour, inputs.options)
    same = AuditedPath(lambda **_: made, path.epsilon, path.delta, path.runs, level=path.level)
    return same.audit(), outputs.hexdigest()


def run_child(project, names):
    """Return what audits found in a copy of the project."""
    places = [str(project / "tests/audit"), str(project / "tests")]
    command = [sys.executable, "-c", CHILD, str(project / "src"), *places]
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "DPSIEVE_COMPILED": "wait"}
    try:
        done = subprocess.run(
            command, cwd=project, env=environment, input=json.dumps(names), capture_output=True, text=True,
            timeout=TIMEOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"audit": "", "ratio": "out of time"}
    if done.returncode:
        return {"audit": "import", "ratio": done.stderr.strip().splitlines()[-1][:60]}
    return json.loads(done.stdout.splitlines()[-1])


def outcome(found):
    """Return in a word what audits made of a fault."""
    if not found:
        return "not reached"
    if found.get("contradicted"):
        return "contradicted"
    if found.get("ratio") == "out of time":
        return "out of time"
    if "digests" not in found:
        return "refused"
    same = all(digest_without_fault(name) == digest for name, digest in found["digests"].items())
    return "unchanged" if same else "missed"


@cache
def digest_without_fault(name):
    """Return the digest of all outputs of the short audit of a path, which has to pass."""
    from paths import AUDITS

    found, digest = audit_and_digest(AUDITS[name])
    assert found.passed, f"without a fault all audits must pass: {name}: {found}"
    return digest


def reach(among):
    """Return the functions that one call of each path of such a name enters, as pairs of a file and a name."""
    from paths import AUDITS
    from reached import run_once

    return {name: run_once(path).functions for name, path in AUDITS.items() if among in name}


def choose_audits(fault, reached):
    """Return the names of audits that reach what a fault changes: half of them reach least besides it.

    For a constant, a class, or a loop that is compiled, they are those that reach the file.
    """
    file, name = place(fault)
    direct = [path for path, functions in reached.items() if (file, name) in functions]
    if not direct:
        direct = [path for path, functions in reached.items() if any(file == other for other, _ in functions)]
    every, few = sorted(direct, key=lambda path: len(reached[path])), AUDITS_PER_FAULT // 2
    return [*every[:few], *every[few :: max(1, (len(every) - few) // few)][:few]]


def copy_project(folder):
    for part in ("src", "tests/audit", "tests/faults"):
        copytree(ROOT / part, folder / part)  # with the times of change
    return folder


def audit_fault(fault, group, names, projects):
    """Plant one fault in a copy, run audits, take the fault out again, and return a row."""
    start = time.monotonic()
    found = {}
    if names:
        project = projects.get()
        path, text = plant(fault)
        original, times = (project / path).read_bytes(), (project / path).stat()
        try:
            (project / path).write_bytes(text)
            found = run_child(project, names)
        finally:
            (project / path).write_bytes(original)
            os.utime(project / path, ns=(times.st_atime_ns, times.st_mtime_ns))
            projects.put(project)
    row = (fault.name, fault.function, group, outcome(found), found.get("audit", ""), found.get("ratio", ""))
    row = (*row, round(time.monotonic() - start))
    print(*row, sep=" | ", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="faults or paths whose name contains one of these")
    parser.add_argument("--among", default="", help="use only the audits whose name contains this")
    parser.add_argument("--groups", nargs="+", default=sorted(path.stem for path in FOLDER.glob("*.toml")))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--paths", type=int, default=0, metavar="TIMES", help="audit all paths with more runs instead")
    parser.add_argument("--grades", action="store_true", help="plant faults of a known size instead")
    options = parser.parse_args()
    if options.paths:
        return audit_paths(options.paths)
    if options.grades:
        return audit_grades(options.only)
    warnings.simplefilter("ignore")
    return audit_faults(options)


def audit_faults(options):
    faults = [
        (fault, group)
        for group in options.groups
        for fault in read_faults((FOLDER / f"{group}.toml").read_text(encoding="utf-8"))
        if any(part in fault.name for part in options.only) and not check(fault)
    ]
    reached = reach(options.among)
    work = [(fault, group, choose_audits(fault, reached)) for fault, group in faults]
    with tempfile.TemporaryDirectory(prefix="audit-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        projects = Queue()
        for number in range(options.jobs):
            projects.put(copy_project(Path(folder).resolve() / f"project{number}"))
        rows = []
        for row in pool.map(lambda each: audit_fault(*each, projects), work):
            rows.append(row)
            write_table(TABLE, COLUMNS, rows, order=lambda row: (row[2], row[0]))
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{sum(row[3] == 'contradicted' for row in rows)} of {len(rows)} faults were contradicted")
    return 0


def write_table(table, columns, rows, order=None):
    """Store rows; those of others stay."""
    old = list(csv.reader(table.open(encoding="utf-8")))[1:] if table.exists() else []
    new = {row[0] for row in rows}
    kept = [row for row in old if row[0] not in new]
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(sorted([*kept, *rows], key=order))


def audit_grades(only):
    """Store, for each path, the largest factor of the noise and of delta's inverse at which the audit fails."""
    from paths import AUDITS

    for name, path in AUDITS.items():
        if not any(part in name for part in only) or path.inputs().kind == "dependence":
            continue
        largest = []
        for kind in ("noise", "threshold"):
            tried = FACTORS if kind == "noise" or path.delta > 1e-3 else ()
            largest.append(next((factor for factor in tried if fails(path, **{kind: factor})), "" if tried else "-"))
        print(name, *largest, flush=True)
        write_table(GRADES, GRADE_COLUMNS, [(name, *largest)], order=lambda row: list(AUDITS).index(row[0]))
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def fails(path, **factor):
    """Return whether the audit finds a fault of this size."""
    try:
        return not path.audit(**factor).passed
    except Exception:  # a job refuses a budget that large, for these inputs
        return False


def audit_paths(times):
    """Audit every public path with more runs, and return 1 if a guarantee is contradicted."""
    from paths import AUDITS, LONG

    failed = 0
    for name, path in {**AUDITS, **LONG}.items():
        found = path.audit(seed=time.time_ns(), runs=times * path.runs)
        failed += not found.passed
        print(f"{name:<40} {found!r}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
