"""Plant each of `faults.FAULTS` in a copy of the project, one at a time, and name the test that notices it.

The named tests first run on a copy without a fault: they must pass, and they fill the caches of compiled code, which
all further copies take over. Exits with 1 if a fault survives, breaks the code so that no test runs, or no longer
fits its file. A hang is not a catch: after five minutes a fault counts as survived.
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

from fault import Fault
from faults import FAULTS

ROOT = Path(__file__).parents[2]
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
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if options.only in fault.name]
    if not faults:
        parser.error(f"no fault has a name with {options.only!r}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        clean = Path(folder, "clean").resolve()
        for part in ("pyproject.toml", "src", "tests"):
            copy(ROOT / part, clean / part)
        tests = sorted({test for fault in faults for test in fault.tests.split()})
        code, output = run(clean, [*tests, "-n", str(options.jobs)], timeout=4 * TIMEOUT)
        if code != 0:
            print(end_of(output), "Without a fault these tests must pass.", sep="\n")
            return 1
        print(f"{len(tests)} tests pass without a fault ({time.monotonic() - start:.0f} s)", flush=True)
        with ThreadPoolExecutor(options.jobs) as pool:
            caught = sum(pool.map(lambda fault: planted(fault, clean), faults))
    print(f"{caught} of {len(faults)} faults were caught, in {time.monotonic() - start:.0f} s")
    return int(caught < len(faults))


def planted(fault: Fault, clean: Path) -> bool:
    """Plant one fault, print what came of it, and return whether a test noticed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=clean.parent) as folder:
        project = Path(folder, "project")
        copy(clean, project)
        code, output = plant(fault, project)
    found = _CAUGHT.search(output)
    if code == 1 and found:
        what = found[1]
    else:
        what = {0: "SURVIVED", -1: "STALE: its text is not there exactly once", -2: "SURVIVED: out of time"}.get(
            code, f"BROKEN: no test ran\n{end_of(output)}"
        )
    print(f"{fault.name:<46}  {fault.file:<32}  {what}  ({time.monotonic() - start:.0f} s)", flush=True)
    return code == 1 and found is not None


def plant(fault: Fault, project: Path) -> tuple[int, str]:
    file = project / fault.path
    text = file.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        return -1, ""
    file.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    return run(project, [*fault.tests.split(), "-x"])


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
    arguments = [f"tests/{part}" if ".py" in part else part for part in arguments]
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
