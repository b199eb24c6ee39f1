"""How fast is the Misra-Gries sketch? Items a second on one thread, beside exact counts and Apache DataSketches.

    make bench-streams        or        .venv/bin/python benchmarks/streams.py [items]

The items are drawn from a Zipf law (exponent 1.1) over ten million names. Everybody gets them in the form that suits
best, made beforehand: Arrow or NumPy arrays for dpsieve and DuckDB, Python lists for `Counter` and for DataSketches,
whose sketch takes one item at a time. A DataSketches map of size 2^m has places for 3/4 of that: the next power of two
above is taken.

Jobs take turns, and the fastest round of each counts. Rates are items a second of processor time, which other programs
on the machine disturb less than the time on the clock; only for DuckDB with all threads, and for lines from a pipe, it
is the clock.
"""

import importlib.util
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from dpsieve.sketches import MisraGries

ITEMS, NAMES, ROUNDS = 10_000_000, 10_000_000, 5
SIZES = [2**i for i in range(8, 21, 2)]
ALL_THREADS = "DuckDB GROUP BY, all threads, exact"

Jobs = dict[str, Callable[[], int]]


def zipf(items: int) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Return the same stream as texts and as integers."""
    weights = np.cumsum(np.arange(1, NAMES + 1) ** -1.1)
    ranks = np.searchsorted(weights, np.random.default_rng(1).random(items) * weights[-1])
    names = pa.array([f"name number {i}" for i in range(NAMES)])
    return names.take(pa.array(ranks)), ranks.astype(np.int64)


def sketch(stream: Any, counters: int) -> int:
    """Count a stream in one batch."""
    misra_gries = MisraGries(counters)
    misra_gries.update(stream)
    return len(misra_gries)


def frequent_strings(stream: list[str], counters: int) -> int:
    """Count a stream with the peer."""
    from datasketches import frequent_strings_sketch

    peer = frequent_strings_sketch(math.ceil(math.log2(counters / 0.75)))
    update = peer.update
    for item in stream:
        update(item)
    return int(peer.num_active_items)


def group_by(stream: Any, threads: int | None) -> int:
    """Count a stream exactly with DuckDB."""
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    if threads is not None:
        connection.execute(f"SET threads = {threads}")
    connection.register("stream", pa.table({"item": stream}))
    return int(connection.sql("SELECT item, count(*) FROM stream GROUP BY item").to_arrow_table().num_rows)


def exactly(stream: list[Any]) -> int:
    """Count a stream exactly with the standard library."""
    return len(Counter(stream))


def seconds(jobs: Jobs, rounds: int) -> dict[str, float]:
    """Return the time of the fastest round of each job."""
    best = dict.fromkeys(jobs, math.inf)
    for _ in range(rounds):
        for name, job in jobs.items():
            clock = time.perf_counter if name == ALL_THREADS else time.process_time
            start = clock()
            job()
            best[name] = min(best[name], clock() - start)
    return best


def compared(stream: Any, listed: list[Any]) -> dict[str, float]:
    """Return the times of all who can count this stream."""
    ours: Jobs = {f"MisraGries, {k:,} counters": partial(sketch, stream, k) for k in (1024, 65536)}
    others: Jobs = {}
    if isinstance(stream, pa.Array) and importlib.util.find_spec("datasketches"):
        for k in (1024, 65536):
            others[f"DataSketches frequent_strings, {k:,} counters"] = partial(frequent_strings, listed, k)
    others["collections.Counter, exact"] = partial(exactly, listed)
    others["DuckDB GROUP BY, one thread, exact"] = partial(group_by, stream, 1)
    others[ALL_THREADS] = partial(group_by, stream, None)
    return seconds(ours, 4 * ROUNDS) | seconds(others, 2)


def piped(stream: pa.Array) -> float:
    """Return the seconds on the clock that the whole command takes with lines from a pipe, release included."""
    command = [str(Path(sys.executable).with_name("dpsieve")), "stream"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.txt"
        with path.open("w") as file:
            for start in range(0, len(stream), 1 << 20):
                file.write("\n".join(stream[start : start + (1 << 20)].to_pylist()) + "\n")
        best = math.inf
        for _ in range(3):
            begun = time.perf_counter()
            with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
                options = ["--epsilon", "1", "--delta", "1e-8", "--json", "-"]
                subprocess.run([*command, *options], stdin=cat.stdout, stdout=subprocess.DEVNULL, check=True)
            best = min(best, time.perf_counter() - begun)
    return best


def main() -> None:
    """Print rates on texts and on integers, and how they change with the number of counters."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ITEMS
    texts, numbers = zipf(count)
    sketch(texts[:1], 1), sketch(numbers[:1], 1)  # compiled now, or read from the cache
    console = Console(width=110)
    for name, stream, listed in (("texts", texts, texts.to_pylist()), ("integers", numbers, numbers.tolist())):
        table = Table(title=f"{count:,} {name}, Zipf 1.1 over {NAMES:,}")
        for column in ("job", "seconds", "million items a second"):
            table.add_column(column, justify="left" if column == "job" else "right")
        for job, best in compared(stream, listed).items():
            table.add_row(job, f"{best:.2f}", f"{count / best / 1e6:.1f}")
        console.print(table)
    table = Table(title="million items a second, by the number of counters")
    table.add_column("items")
    for k in SIZES:
        table.add_column(f"{k:,}", justify="right")
    for name, stream in (("texts", texts), ("integers", numbers)):
        best_of = seconds({f"{k}": partial(sketch, stream, k) for k in SIZES}, ROUNDS)
        table.add_row(name, *(f"{count / best / 1e6:.1f}" for best in best_of.values()))
    console.print(table)
    whole, start_up = piped(texts), piped(texts[:1])
    rate = count / (whole - start_up) / 1e6
    console.print(
        f"dpsieve stream, lines from a pipe: {rate:.1f} million a second, after {start_up:.2f} s of start-up."
    )


if __name__ == "__main__":
    main()
