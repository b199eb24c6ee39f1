"""Time and memory of one job, in the process that runs it. This file stands alone: peers have other environments."""

import json
import math
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

ROUNDS, SECONDS = 3, 10.0
RUNS, LEAST_RUNS, PATIENCE, LONG = 20, 3, 5.0, 8.0
EPSILON, DELTA = 1.0, 1e-8  # of every job of run.py
Result = TypeVar("Result")


def measure(job: Callable[[], int], rounds: int = ROUNDS) -> None:
    """Print JSON: the seconds of the best round, the peak memory in MiB, and what the job returned last."""
    best, result = fastest(job, rounds)
    print(json.dumps([best, peak("self") / 1024 or math.nan, result]))


def answer(job: Callable[..., dict[str, float]], package: str) -> None:
    """Run a job of run.py several times and write its answers, with the seconds and CPU seconds of the best run.

        job.py rows.parquet settings.json answers.json

    The job takes the path and the settings, and returns {key: number}. There are twenty runs, or as many as begin
    within five seconds, and at least three, of which the first may compile; one that takes over eight seconds is the
    last. Imports are not counted, nor is what a script does before its job is called, such as to start Spark.
    """
    rows, settings, answers = sys.argv[1:4]
    options, begin = json.loads(Path(settings).read_text()), time.perf_counter()
    runs: list[dict[str, float]] = []
    times: list[tuple[float, float]] = []
    while len(runs) < LEAST_RUNS or (len(runs) < RUNS and time.perf_counter() - begin < PATIENCE):
        start, used = time.perf_counter(), cpu_seconds("self")
        runs.append(job(rows, **options))
        times.append((time.perf_counter() - start, cpu_seconds("self") - used))
        if times[-1][0] > LONG:
            break
    seconds, cpu = map(min, zip(*times, strict=True))
    result: dict[str, Any] = {"version": version(package), "seconds": seconds, "cpu_seconds": cpu}
    result |= {"memory_mib": peak("self") / 1024, "answers": runs}
    Path(answers).write_text(json.dumps(result))


def fastest(job: Callable[[], Result], rounds: int = ROUNDS, seconds: float = SECONDS) -> tuple[float, Result]:
    """Return the seconds of the best round, and what the job returned last.

    There are three rounds, or as many as ten seconds hold, so that a pause of the machine decides nothing.
    """
    best, done, begin = math.inf, 0, time.perf_counter()
    while True:
        start = time.perf_counter()
        result = job()
        best = min(best, time.perf_counter() - start)
        done += 1
        if done >= rounds and time.perf_counter() - begin >= seconds:
            return best, result


def peak(process: str) -> int:
    """Return the peak memory of a process in KiB, together with those of its children: Spark works in those.

    It is read from /proc, as ru_maxrss of a new process starts at the peak of its parent.
    """
    lines = (_read(process, "status") or "").splitlines()
    own = sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return own + sum(map(peak, _children(process)))


def cpu_seconds(process: str) -> float:
    """Return the processor time of a process, together with those of its children, which other load hardly changes."""
    fields = (_read(process, "stat") or "").rpartition(")")[2].split()
    own = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if fields else 0.0
    return own + sum(map(cpu_seconds, _children(process)))


def _children(process: str) -> list[str]:
    return [child for file in Path("/proc", process).glob("task/*/children") for child in file.read_text().split()]


def _read(process: str, name: str) -> str | None:
    try:
        return Path("/proc", process, name).read_text()
    except OSError:  # it has ended, or there is no /proc
        return None
