"""Plant each fault of `*.toml` in a copy of the project, one at a time, and name the test that notices it.

The named tests first run on a copy without a fault: they must pass, and they fill the caches of compiled code, which
all further copies take over. Exits with 1 if a fault survives, breaks the code so that no test runs, or does not fit
the source. A hang is not a catch: after five minutes a fault counts as survived. `fault.py` describes the format.

    run.py --only ledger                            # faults whose name contains 'ledger'
    run.py --check                                  # does every fault fit the source, and does every test exist?
    run.py --rename told=reported Bag.add=Bag.put   # after the code was renamed: adapt the faults that no longer fit
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fault import FOLDER, ROOT, Fault, all_faults, check, find_tests, plant, read_faults

TIMEOUT = 300.0
# The first line makes sure that no installed dpsieve is tested in place of the copy.
PYTEST = """
import sys, dpsieve, pytest
assert dpsieve.__file__.startswith(sys.argv[1]), dpsieve.__file__
sys.exit(pytest.main(sys.argv[2:]))
"""
_CAUGHT = re.compile(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description="Plant faults, one at a time, and name the test that notices each.")
    parser.add_argument("--only", default="", metavar="NAME", help="faults whose name contains this")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="how many at a time; default: one for each core"
    )
    parser.add_argument("--check", action="store_true", help="only report which faults do not fit the source")
    parser.add_argument(
        "--rename", nargs="+", metavar="OLD=NEW", help="rename identifiers in the faults that do not fit the source"
    )
    options = parser.parse_args()
    faults = [fault for fault in all_faults() if options.only in fault.name]
    if not faults:
        parser.error(f"no fault has a name with {options.only!r}")
    if options.rename:
        names = dict(pair.partition("=")[::2] for pair in options.rename)
        if not all(re.fullmatch(r"[\w.]+", name) for pair in names.items() for name in pair):
            parser.error("--rename takes pairs such as told=reported or Bag.add=Bag.put")
        return rename(names, options.only)
    problems = {fault: problem for fault in faults if (problem := check(fault))}
    for fault, problem in problems.items():
        print(f"{fault.name}: STALE: {problem}", flush=True)
    fitting = [fault for fault in faults if fault not in problems]
    if options.check:
        print(f"{len(fitting)} of {len(faults)} faults fit the source")
    all_caught = options.check or not fitting or run_all(fitting, options.jobs)
    return int(bool(problems) or not all_caught)


def rename(names: dict[str, str], only: str) -> int:
    """Rename whole identifiers in the faults that do not fit the source; leave those that fit as they are."""
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, names))})(?!\w)")
    changed = stale = 0
    for file in sorted(FOLDER.glob("*.toml")):
        head, *entries = re.split(r"^(?=\[\[fault\]\]$)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for i, entry in enumerate(entries):
            [fault] = read_faults(entry)
            if only not in fault.name or not check(fault):
                continue
            title, body = re.fullmatch(r"(.*?^name = [^\n]*\n)(.*)", entry, re.DOTALL | re.MULTILINE).groups()
            entries[i] = title + pattern.sub(lambda match: names[match[0]], body)
            changed += entries[i] != entry
            stale += bool(check(*read_faults(entries[i])))
        file.write_text("".join([head, *entries]), encoding="utf-8")
    print(f"{changed} faults were changed; {stale} do not fit the source")
    return int(stale > 0)


def run_all(faults: list[Fault], jobs: int) -> bool:
    """Plant faults one at a time and return whether a test noticed each of them."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        clean = Path(folder, "clean").resolve()
        for part in ("pyproject.toml", "src", "tests"):
            copy(ROOT / part, clean / part)
        tests = sorted({test for fault in faults for test in find_tests(fault)})
        code, output = run(clean, [*tests, "-n", str(jobs)], timeout=4 * TIMEOUT)
        if code != 0:
            print(end_of(output), "Without a fault these tests must pass.", sep="\n")
            return False
        print(f"{len(tests)} tests pass without a fault ({time.monotonic() - start:.0f} s)", flush=True)
        with ThreadPoolExecutor(jobs) as pool:
            caught = sum(pool.map(lambda fault: is_caught(fault, clean), faults))
    print(f"{caught} of {len(faults)} faults were caught, in {time.monotonic() - start:.0f} s")
    return caught == len(faults)


def is_caught(fault: Fault, clean: Path) -> bool:
    """Plant one fault, print the outcome, and return whether a test noticed."""
    start = time.monotonic()
    path, text = plant(fault)
    with tempfile.TemporaryDirectory(dir=clean.parent) as folder:
        project = Path(folder, "project")
        copy(clean, project)
        (project / path).write_bytes(text)
        code, output = run(project, [*find_tests(fault), "-x"])
    found = _CAUGHT.search(output)
    if code == 1 and found:
        what = found[1]
    else:
        what = {0: "SURVIVED", -2: "SURVIVED: out of time"}.get(code, f"BROKEN: no test ran\n{end_of(output)}")
    print(f"{fault.name:<46}  {fault.function:<32}  {what}  ({time.monotonic() - start:.0f} s)", flush=True)
    return code == 1 and found is not None


def copy(source: Path, target: Path) -> None:
    """Copy with the times of change, by which Python recognizes its bytecode."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    else:
        unwanted = () if source.name == "clean" else ("__pycache__",)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(*unwanted))


def run(project: Path, arguments: list[str], timeout: float = TIMEOUT) -> tuple[int, str]:
    """Run pytest in a project and return its exit code, -2 if it takes too long, and what it printed."""
    settings = ["-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", "not server"]
    process = subprocess.Popen(
        [sys.executable, "-c", PYTEST, str(project / "src"), *settings, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src"), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return -2, ""
    return process.returncode, output


def end_of(output: str) -> str:
    return "\n".join(output.splitlines()[-20:])


if __name__ == "__main__":
    sys.exit(main())
