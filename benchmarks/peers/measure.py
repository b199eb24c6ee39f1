"""Time and memory of one job, in the process that runs it. This file stands alone: peers have other environments."""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROUNDS, SECONDS = 3, 10.0
Result = TypeVar("Result")


def measure(job: Callable[[], int], rounds: int = ROUNDS) -> None:
    """Print JSON: the seconds of the best round, the peak memory in MiB, and what the job returned last."""
    best, result = fastest(job, rounds)
    print(json.dumps([best, peak("self") / 1024 or math.nan, result]))


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
    folder = Path("/proc", process)
    try:
        lines = (folder / "status").read_text().splitlines()
        children = [child for file in folder.glob("task/*/children") for child in file.read_text().split()]
    except OSError:  # it has ended, or there is no /proc
        return 0
    own = sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return own + sum(map(peak, children))
