"""Plant faults that change what is published, one at a time, and report which audits catch them: the power table.

    power.py                     # the faults of the files named in GROUPS, with the short audits of their group
    power.py --only threshold    # those whose name contains 'threshold'
    power.py --paths 10          # all paths without a fault, with ten times the runs of the tests: the long audit

The table is written to docs/background/audit_power.csv. An outcome is `contradicted` if an audit fails, with its lower
bound on epsilon as `ratio`, in units of the claim; `refused` if the library itself raises where it works without the
fault, which is no merit of the audit; `missed`, or `out of time`.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "faults")]

from fault import FOLDER, ROOT, check, plant, read_faults  # noqa: E402
from page import PAGE, TABLE, page  # noqa: E402

COLUMNS = ("fault", "function", "group", "outcome", "audit", "ratio", "seconds")
GROUPS = {
    "channels": ("release", "channel"),
    "discovery": ("discover", "top_k", "hitting_set"),
    "several_keys": ("release, goal", "release, bound", "channel, report"),
    "sketches": ("MisraGries", "UserMisraGries"),
    "vectors": ("SparseVector", "mean", "sum", "quantile"),
    "set_union": ("discover",),
}
TIMEOUT = 200.0
CHILD = """
import json, sys, warnings
sys.path[:0] = sys.argv[2:4]
import dpsieve
assert dpsieve.__file__.startswith(sys.argv[1]), dpsieve.__file__
warnings.simplefilter("ignore")
import power
power.report(json.loads(sys.argv[4]))
"""


def report(prefixes):
    """Run the short audits of a group in this process and print the first that fails as JSON."""
    from paths import AUDITS

    for name, path in AUDITS.items():
        if not name.startswith(tuple(prefixes)):
            continue
        try:
            found = path.audit()
        except Exception as error:  # an output like any other: it works without the fault
            print(json.dumps({"audit": name, "ratio": type(error).__name__}))
            return
        if not found.passed:
            print(json.dumps({"audit": name, "ratio": round(found.lower / found.epsilon, 3)}))
            return
    print(json.dumps({}))


def run_child(project, prefixes):
    """Return what the audits of a group found in a copy of the project."""
    places = [str(project / "tests/audit"), str(project / "tests")]
    command = [sys.executable, "-c", CHILD, str(project / "src"), *places, json.dumps(prefixes)]
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "DPSIEVE_COMPILED": "wait"}
    try:
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"audit": "", "ratio": "out of time"}
    if done.returncode:
        return {"audit": "import", "ratio": done.stderr.strip().splitlines()[-1][:60]}
    return json.loads(done.stdout.splitlines()[-1])


def outcome(found):
    """Return in a word what the audits of a group made of a fault."""
    if not found:
        return "missed"
    if found["ratio"] == "out of time":
        return "out of time"
    return "refused" if isinstance(found["ratio"], str) else "contradicted"


def copy_project(folder):
    for part in ("src", "tests/audit", "tests/faults"):
        shutil.copytree(ROOT / part, folder / part)  # with the times of change
    return folder


def audit_fault(fault, group, projects):
    """Plant one fault in a copy, run the audits of its group, take the fault out again, and return a row."""
    start, project = time.monotonic(), projects.get()
    path, text = plant(fault)
    original, times = (project / path).read_bytes(), (project / path).stat()
    try:
        (project / path).write_bytes(text)
        found = run_child(project, GROUPS[group])
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
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--groups", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--paths", type=int, default=0, metavar="TIMES", help="audit all paths with more runs instead")
    options = parser.parse_args()
    if options.paths:
        return audit_paths(options.paths)
    faults = [
        (fault, group)
        for group in options.groups
        for fault in read_faults((FOLDER / f"{group}.toml").read_text(encoding="utf-8"))
        if options.only in fault.name and not check(fault)
    ]
    with tempfile.TemporaryDirectory(prefix="audit-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        projects = Queue()
        for number in range(options.jobs):
            projects.put(copy_project(Path(folder).resolve() / f"project{number}"))
        clean = {group: run_child(projects.queue[0], GROUPS[group]) for group in options.groups}
        if any(clean.values()):
            print("without a fault all audits must pass:", clean)
            return 1
        rows = []
        for row in pool.map(lambda pair: audit_fault(*pair, projects), faults):
            rows.append(row)
            write_table(rows)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{sum(row[3] == 'contradicted' for row in rows)} of {len(rows)} faults were contradicted")
    return 0


def write_table(rows):
    """Store the rows; those of other faults stay."""
    old = list(csv.reader(TABLE.open(encoding="utf-8")))[1:] if TABLE.exists() else []
    new = {row[0] for row in rows}
    kept = [row for row in old if row[0] not in new]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(sorted([*kept, *rows], key=lambda row: (row[2], row[0])))


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
