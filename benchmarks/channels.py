"""What does privacy cost per key? A release of a million counted keys, beside the unsafe job and the peers, in one run.

    make bench-channels        or        .venv/bin/python benchmarks/channels.py

The unsafe job is what a hurried engineer writes: numpy's floating-point Laplace noise, a threshold, a filter. Its noise
leaks through its last bits, and its threshold is the usual one. Peers are measured where they are installed
(`pip install --group bench`), on fewer keys where they are slow, as keys per second.
"""

import importlib.util
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.channels.channel import ReportedCounts

KEYS, EPSILON, DELTA, ROUNDS, PEER_KEYS = 1_000_000, 1.0, 1e-8, 7, 50_000


def timed(job: Callable[[], Any], rounds: int = ROUNDS) -> tuple[float, Any]:
    """Return the fastest of several runs, and the last result."""
    best, result = float("inf"), None
    for _ in range(rounds):
        start = time.perf_counter()
        result = job()
        best = min(best, time.perf_counter() - start)
    return best, result


def unsafe(keys: pa.Array, frequencies: np.ndarray[Any, Any]) -> pa.Array:
    """Float Laplace, threshold, filter: fast, and not private."""
    noisy = frequencies + np.random.default_rng().laplace(0, 1 / EPSILON, len(frequencies))
    return keys.filter(pa.array(noisy >= 1 + math.log(1 / (2 * DELTA)) / EPSILON))


def opendp(keys: list[str], frequencies: list[int]) -> Callable[[], int]:
    """Return OpenDP's job: integer Laplace noise with the lowest threshold that its own map allows for delta."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
    metric = dp.l01inf_distance(dp.absolute_distance(T=int))
    mechanisms: Any = (dp.m.make_laplace_threshold(domain, metric, 1 / EPSILON, t) for t in range(10, 60))
    mechanism = next(m for m in mechanisms if m.map((1, 1, 1))[1] <= DELTA)
    counts = dict(zip(keys, frequencies, strict=True))
    return lambda: len(mechanism(counts))


def pydp(frequencies: list[int]) -> Callable[[], int]:
    """Return PyDP's job: a loop that noises a count if its key should be kept."""
    from pydp.algorithms.partition_selection import create_laplace_partition_strategy

    strategy = create_laplace_partition_strategy(EPSILON, DELTA, 1)
    keep = strategy.noised_value_if_should_keep
    return lambda: sum(keep(frequency) is not None for frequency in frequencies)


def zipf() -> np.ndarray[Any, Any]:
    """Return frequencies that follow Zipf's law with exponent 1.1; the largest is two million."""
    return np.asarray(np.maximum(1, 2e6 * np.arange(1, KEYS + 1) ** -1.1), np.int64)


def compare() -> Table:
    """Time all jobs on the same keys."""
    ranks, frequencies = np.arange(1, KEYS + 1), zipf()
    keys = pa.array([f"query number {rank}" for rank in ranks])
    table = Table(title=f"{KEYS:,} counted keys, Zipf 1.1, epsilon {EPSILON:g}, delta {DELTA:g}")
    for name in ("job", "seconds", "keys / s", "time / unsafe", "keys reported"):
        table.add_column(name, justify="left" if name == "job" else "right")
    floor, kept = timed(lambda: unsafe(keys, frequencies))
    rows = [("numpy float Laplace (unsafe)", floor, KEYS, f"{len(kept):,}")]
    channel = ds.channels.optimal(EPSILON, DELTA)
    seconds, release = timed(lambda: channel.release(keys, frequencies))
    rows.append(("dpsieve release", seconds, KEYS, f"{len(release):,}"))
    seconds, release = timed(lambda: ds.channels.optimal(EPSILON, DELTA).release(keys, frequencies))
    rows.append(("dpsieve release, channel made and certified anew", seconds, KEYS, f"{len(release):,}"))
    # The peers get every 20th key, which keeps the law of the frequencies; what they report is scaled up.
    every = KEYS // PEER_KEYS
    some, few = keys.take(pa.array(ranks[::every] - 1)).to_pylist(), frequencies[::every].tolist()
    if importlib.util.find_spec("opendp"):
        seconds, count = timed(opendp(some, few), rounds=3)
        rows.append(("OpenDP make_laplace_threshold", seconds, PEER_KEYS, f"about {count * every:,}"))
    if importlib.util.find_spec("pydp"):
        seconds, count = timed(pydp(few), rounds=3)
        rows.append(("PyDP noised_value_if_should_keep", seconds, PEER_KEYS, f"about {count * every:,}"))
    for name, seconds, size, reported in rows:
        ratio = seconds / size * KEYS / floor
        table.add_row(name, f"{seconds:.3f}", f"{size / seconds:,.0f}", f"{ratio:.2f}", reported)
    return table


def one_rate(epsilon: float, rate: float) -> dict[str, Any]:
    """Make, certify and draw once from a table, in this process: processor time, and the peak of memory."""
    started = time.process_time()
    ds.channels.optimal(1.0, 1e-6, ds.ppswor(1e-4)).draw([50])  # loads the compiled code
    ds.channels.optimal(1.0, 1e-6, ds.ppswor(1e-4)).certify()
    loaded = time.process_time()
    channel = ds.channels.optimal(epsilon, DELTA, ds.ppswor(rate))
    certificate = channel.certify()
    channel.draw([10**11])
    seconds, peak = time.process_time() - loaded, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    channel.draw(np.random.default_rng(1).integers(1, round(10 / rate), 100_000))
    draws = time.process_time() - start
    rows = certificate.parts[-1].covers.split()[0]
    return {
        "rows": rows, "loading": loaded - started, "seconds": seconds, "peak": peak, "loss": channel.loss,
        "draws": draws, "missed": float(channel.rows.withheld(np.array([10**11]))[0]),
    }  # fmt: skip


def rates() -> Table:
    """Time tables by rate and epsilon, each in a process of its own, and how they grow."""
    table = Table(title=f"optimal with ppswor(rate), delta {DELTA:g}: made, certified, ready to draw (processor time)")
    columns = ("epsilon", "rate", "rows", "seconds", "growth", "with loading", "100,000 draws", "MiB", "loss")
    for name in (*columns, "10^11 missed"):
        table.add_column(name, justify="right")
    for epsilon, some in (
        (0.1, (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)),
        (1.0, (1e-4, 1e-6)),
        (0.01, (1e-4, 1e-6)),
    ):
        before = None
        for rate in some:
            command = [sys.executable, __file__, "--one", str(epsilon), str(rate)]
            runs = [json.loads(subprocess.check_output(command)) for _ in range(3)]
            best = min(runs, key=lambda run: run["seconds"])
            growth = "" if before is None else f"{best['seconds'] / before:.2f}"
            before = best["seconds"]
            times = (f"{seconds:.2f}" for seconds in (best["loading"] + best["seconds"], best["draws"]))
            table.add_row(
                f"{epsilon:g}", f"{rate:g}", best["rows"], f"{best['seconds']:.2f}", growth, *times,
                f"{best['peak']:.0f}", f"{best['loss']:.2g}", f"{best['missed']:.2g}",
            )  # fmt: skip
    return table


def samples() -> Table:
    """Time private samples of 1,000 of 20,000 keys, by power."""
    table = Table(title="release_sample, 1,000 of 20,000 keys (Zipf 1), epsilon 1, delta 1e-8")
    for name in ("power", "method", "seconds", "keys reported"):
        table.add_column(name, justify="right")
    frequencies = (2e5 / np.arange(1, 20_001)).astype(np.int64)
    keys = [f"query number {rank}" for rank in range(20_000)]
    for power in (1.0, 0.5, 0.2, 0.05):
        for method in ("ppswor", "priority"):
            job = partial(
                ds.channels.release_sample,
                keys,
                frequencies,
                1000,
                epsilon=EPSILON,
                delta=DELTA,
                power=power,
                method=method,
            )
            job()
            seconds, release = timed(job, rounds=3)
            table.add_row(f"{power:g}", method, f"{seconds:.2f}", f"{len(release):,}")
    return table


def several_keys() -> Table:
    """Time units with ten keys: each channel made and certified anew, and drawn from, in turns; the fastest of each."""
    laws = {"Zipf 1.1": zipf(), "all common": np.arange(1000, 1000 + KEYS)}
    rows: dict[str, dict[str, Any]] = {"gaussian": {}, "report_then_count": {}, "the same, goal keys": {"goal": "keys"}}
    best = {(label, law): float("inf") for label in rows for law in laws}
    for turn in range(ROUNDS):
        epsilon = EPSILON * (1 + turn * 1e-6)  # which no cache knows
        for label, more in rows.items():
            make = ds.channels.gaussian if label == "gaussian" else ds.channels.report_then_count
            made, channel = timed(partial(_certified, make, epsilon, **more), rounds=1)
            for law, frequencies in laws.items():
                drawn, _ = timed(partial(channel.draw, frequencies), rounds=1)
                best[label, law] = min(best[label, law], made + drawn)
    table = Table(title=f"Ten keys a unit: channel made, certified, {KEYS:,} draws; seconds (time / gaussian)")
    for name in ("channel", *laws, "less than a second more"):
        table.add_column(name, justify="left" if name == "channel" else "right")
    for label in rows:
        times = [(best[label, law], best["gaussian", law]) for law in laws]
        verdict = "yes" if all(seconds < base + 1 for seconds, base in times) else "NO"
        table.add_row(label, *(f"{seconds:.3f} ({seconds / base:.2f})" for seconds, base in times), verdict)
    return table


def _certified(make: Callable[..., ReportedCounts], epsilon: float, **more: Any) -> ReportedCounts:
    channel = make(epsilon, DELTA, 10, **more)
    channel.certify()
    return channel


def main() -> None:
    """Print all, or one part."""
    if "--one" in sys.argv:
        print(json.dumps(one_rate(*map(float, sys.argv[2:4]))))
        return
    console = Console()
    parts = {"--release": compare, "--rates": rates, "--samples": samples, "--several": several_keys}
    for part in set(parts) & set(sys.argv) or parts:
        console.print(parts[part]())


if __name__ == "__main__":
    main()
