"""Measure the power of the audits: faults that are planted in the code, and faults of a known size.

    power.py                     # each fault of tests/faults, against the audits that reach the function it changes
    power.py --missing --jobs 16 # those that are not in the table yet; what was measured is stored at once
    power.py --only threshold    # those whose name contains 'threshold'
    power.py --grades            # each path with 0.9, 0.7, 0.5 and 0.3 times the noise, and with delta divided by them
    power.py --grades --missing  # those paths that the table does not have yet
    power.py --paths 10          # all paths without a fault, with ten times the runs of the tests: the long audit
    power.py --paths 10 --missing

Faults are stored in docs/background/audit_power.csv; grades in audit_grades.csv and long audits in audit_paths.csv
beside it, with the share of the claim that the runs refute. The outcome of a fault is

- `contradicted` if an audit fails, with its lower bound on epsilon as `ratio`, in units of the claim;
- `refused` if the library itself raises where it works without the fault, which is no merit of the audit;
- `unchanged` if every output of every run is, bit for bit, what it is without the fault, on the same random words;
- `missed` if outputs differ, by less than these runs show;
- `not reached` if no audit calls the function, or `out of time`.
"""

import argparse
import ast
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests/audit"), str(ROOT / "tests"), str(ROOT / "tests/faults")]
os.environ.setdefault("DPSIEVE_COMPILED", "wait")

from fault import FOLDER, all_faults, check, find, plant, read_faults, scopes_by_name  # noqa: E402
from page import GRADES, LONG, PAGE, TABLE, grades, long_audits, page, rows  # noqa: E402
from paths import AUDITS, EVERY  # noqa: E402

COLUMNS = ("fault", "function", "group", "outcome", "audit", "ratio", "seconds")
GRADE_COLUMNS = ("path", "refuted", "noise", "threshold")
LONG_COLUMNS = ("path", "times", "passed", "refuted")
FACTORS = (0.9, 0.7, 0.5, 0.3)
AUDITS_PER_FAULT = 8
TIMEOUT, PARTS = 300.0, 16
# The faults that matter most to outputs first.
GROUPS = (
    "discovery", "divided_units", "several_keys", "set_union", "sketches", "vectors", "channels", "randomness",
    "federated", "privacy", "engines",
)  # fmt: skip


@dataclass(frozen=True)
class Processes:
    """Processes that trace or audit, with a limit on how many run at a time.

    Attributes:
        pool: how many at a time.
        folder: for machine code, which must not be taken for that of the library where it has a fault.
        expected: the digest of all outputs of a path without a fault, by its name.
    """

    pool: ThreadPoolExecutor
    folder: Path
    expected: dict = field(default_factory=dict)

    def run(self, names, *, fault=None, trace=False, cache=None):
        """Return what a process found about paths, with the file and the text of a fault."""
        cache = cache or os.environ.get("NUMBA_CACHE_DIR", self.folder / "compiled")
        environment = {**os.environ, "DPSIEVE_COMPILED": "wait", "NUMBA_CACHE_DIR": str(cache)}
        try:
            done = subprocess.run(
                [sys.executable, str(Path(__file__).with_name("planted.py"))],
                env=environment, input=json.dumps({"names": names, "fault": fault, "trace": trace}),
                capture_output=True, text=True, timeout=TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"ratio": "out of time"}
        if done.returncode:
            return {"audit": "import", "ratio": done.stderr.strip().splitlines()[-1][:60]}
        return json.loads(done.stdout.splitlines()[-1])

    def reach(self, names):
        """Return the functions that one call of each path enters, as pairs of a file and a name."""
        parts = self.pool.map(lambda part: self.run(part, trace=True), [names[i::PARTS] for i in range(PARTS)])
        return {name: {tuple(each) for each in functions} for part in parts for name, functions in part.items()}

    def audit(self, fault, names):
        """Plant a fault, run audits, and return the outcome in a word, the audit that shows it, and its ratio."""
        if not names:
            return "not reached", "", ""
        path, text = plant(fault)
        with tempfile.TemporaryDirectory(dir=self.folder) as cache:
            file = str(path.relative_to("src/dpsieve"))
            found = self.run(names, fault=(file, text.decode()), cache=cache if may_be_compiled(fault) else None)
        used = names[: names.index(found["audit"]) + 1] if found.get("audit") in names else names
        self.expect(used)
        return outcome(found, self.expected), found.get("audit", ""), found.get("ratio", "")

    def expect(self, names):
        """Run audits without a fault, unless they were: they must pass."""
        names = [name for name in names if name not in self.expected]
        if names:
            found = self.run(names)
            if "digests" not in found:
                raise RuntimeError(f"without a fault all audits must pass: {found}")
            self.expected.update(found["digests"])


def outcome(found, expected):
    """Return in a word what audits made of a fault."""
    if found.get("contradicted"):
        return "contradicted"
    if found.get("ratio") == "out of time":
        return "out of time"
    if "digests" not in found:
        return "refused"
    return "unchanged" if all(expected[name] == digest for name, digest in found["digests"].items()) else "missed"


def choose_audits(fault, reached):
    """Return the names of audits that reach what a fault changes: half of them reach least besides it.

    Those of the tests come first, and those of `make audit` alone only where none of them does.
    """
    places = entrances(fault)
    direct = [name for name, functions in reached.items() if places & functions]
    direct = [name for name in direct if name in AUDITS] or direct
    every, few = sorted(direct, key=lambda name: len(reached[name])), AUDITS_PER_FAULT // 2
    return [*every[:few], *every[few :: max(1, (len(every) - few) // few)][:few]]


def entrances(fault):
    """Return functions of which one is called where a fault matters, as pairs of a file and a name."""
    found = set()
    for scope in uses(fault):
        file = str(scope.source.path.relative_to(ROOT / "src/dpsieve"))
        if isinstance(scope.node, ast.ClassDef):
            found |= {(file, each.name) for each in scope.source.scopes if each.name.startswith(f"{scope.name}.")}
        elif is_plain(scope):
            found.add((file, scope.name))
    return found


def uses(fault):
    """Return what a fault changes, and what uses it up to the first functions whose calls are seen.

    Calls of compiled functions and uses of constants are not seen.
    """
    pending, found = [find(fault)[0]], []
    while pending:
        scope = pending.pop()
        if all(scope.node is not each.node for each in found):
            found.append(scope)
            if not is_plain(scope) and not isinstance(scope.node, ast.ClassDef):
                pending += users(scope)
    return found


def users(scope):
    """Return the scopes that name a constant or a function, by itself or after its module."""
    module, name = scope.source.path.stem, scope.name.rpartition(".")[2]
    sources = {each.source.path: each.source for scopes in scopes_by_name(ROOT).values() for each in scopes}.values()
    found = []
    for source in sources:
        if source.path != scope.source.path and module not in source.names:
            continue
        nodes = [node for node in ast.walk(source.tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        imported = [each for node in nodes for each in node.names if each.name.rpartition(".")[2] == module]
        before = {"self", "cls", *(each.asname or each.name for each in imported)}
        for each in source.scopes:
            named = any(node.id == name for node in each.by_type[ast.Name])
            after = any(node.attr == name and ast.unparse(node.value) in before for node in each.by_type[ast.Attribute])
            if (named or after) and each.node is not scope.node and not isinstance(each.node, ast.ClassDef):
                found.append(each)
    return found


def is_plain(scope):
    """Return whether calls of a function are seen, and machine code has no part of it."""
    return isinstance(scope.node, ast.FunctionDef) and not any(
        word in ast.unparse(each) for each in scope.node.decorator_list for word in ("jit", "callback")
    )


def may_be_compiled(fault):
    """Return whether machine code may contain a fault."""
    is_function = [isinstance(scope.node, ast.FunctionDef) for scope in uses(fault)]
    is_compiled = [function and not is_plain(scope) for function, scope in zip(is_function, uses(fault), strict=True)]
    return any(is_compiled) or "jit(" in ast.unparse(find(fault)[0].node)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="faults or paths whose name contains one of these")
    parser.add_argument("--among", default="", help="use only the audits whose name contains this")
    parser.add_argument("--groups", nargs="+", default=GROUPS, choices=GROUPS)
    parser.add_argument(
        "--missing", action="store_true", help="only faults, or with --grades paths, that the table does not have yet"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--paths", type=int, default=0, metavar="TIMES", help="audit all paths with more runs instead")
    parser.add_argument("--grades", action="store_true", help="plant faults of a known size instead")
    options = parser.parse_args()
    if options.paths:
        return audit_paths(options.paths, options.only, options.missing)
    if options.grades:
        return audit_grades(options.only, options.missing)
    warnings.simplefilter("ignore")
    return audit_faults(options)


def audit_faults(options):
    chosen = [
        (fault, group)
        for group in options.groups
        for fault in read_faults((FOLDER / f"{group}.toml").read_text(encoding="utf-8"))
        if any(part in fault.name for part in options.only) and not check(fault)
    ]
    measured = {row["fault"] for row in rows()} if options.missing else set()
    chosen = [(fault, group) for fault, group in chosen if fault.name not in measured]
    with (
        tempfile.TemporaryDirectory(prefix="audit-") as folder,
        ThreadPoolExecutor(options.jobs) as pool,
    ):
        processes = Processes(pool, Path(folder))
        reached = processes.reach([name for name in EVERY if options.among in name])
        work = {pool.submit(audit_fault, fault, group, reached, processes): fault for fault, group in chosen}
        for done in as_completed(work):
            if done.exception():
                print(f"{work[done].name}: {done.exception()}", flush=True)
                continue
            print(*done.result(), sep=" | ", flush=True)
            write_table(TABLE, COLUMNS, [done.result()], order=lambda row: (row[2], row[0]))
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def audit_fault(fault, group, reached, processes):
    """Return the row of a fault."""
    start = time.monotonic()
    row = (fault.name, fault.function, group, *processes.audit(fault, choose_audits(fault, reached)))
    return (*row, round(time.monotonic() - start))


def write_table(table, columns, rows, order=None):
    """Store rows; those of others stay, unless their fault or path is no more."""
    old = list(csv.reader(table.open(encoding="utf-8")))[1:] if table.exists() else []
    old = [row for row in old if row[0] in EVERY or row[0] in {fault.name for fault in all_faults()}]
    new = {row[0] for row in rows}
    kept = [row for row in old if row[0] not in new]
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(sorted([*kept, *rows], key=order))


def audit_grades(only, missing=False):
    """Store, for each path, the largest factor of the noise and of delta's inverse at which the audit fails."""
    measured = {row["path"] for row in grades()} if missing else set()
    chosen = {name: path for name, path in EVERY.items() if name not in measured and any(part in name for part in only)}
    for name, path in chosen.items():
        if path.inputs().kind == "dependence":
            continue
        largest = [refuted(path.audit(), path)]
        for kind in ("noise", "threshold"):
            tried = FACTORS if kind == "noise" or path.delta > 1e-3 else ()
            largest.append(next((factor for factor in tried if fails(path, **{kind: factor})), "" if tried else "-"))
        print(name, *largest, flush=True)
        write_table(GRADES, GRADE_COLUMNS, [(name, *largest)], order=lambda row: list(EVERY).index(row[0]))
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def fails(path, **factor):
    """Return whether the audit finds a fault of this size."""
    try:
        return not path.audit(**factor).passed
    except Exception:  # a job refuses a budget that large, for these inputs
        return False


def audit_paths(times, only, missing=False):
    """Audit every public path with more runs, store what they refute, and return 1 if a guarantee is contradicted."""
    measured = {row["path"] for row in long_audits()} if missing else set()
    failed = 0
    for name, path in EVERY.items():
        if name in measured or not any(part in name for part in only):
            continue
        found = path.audit(seed=time.time_ns(), runs=times * path.runs)
        failed += not found.passed
        print(f"{name:<40} {found!r}", flush=True)
        row = (name, times, "yes" if found.passed else "no", refuted(found, path))
        write_table(LONG, LONG_COLUMNS, [row], order=lambda row: list(EVERY).index(row[0]))
    PAGE.write_text(page(), encoding="utf-8")
    return int(failed > 0)


def refuted(found, path):
    """Return the largest share of epsilon and delta that these runs refute, rounded down; - for replayed runs."""
    if found.kind == "dependence":
        return "-"
    low, high = 0.0, 2.0
    for _ in range(12):
        share = (low + high) / 2
        low, high = (
            (share, high) if found.lower_at(min(1.0, share * path.delta)) > share * path.epsilon else (low, share)
        )
    return f"{int(100 * low) / 100:.2f}"


if __name__ == "__main__":
    sys.exit(main())
