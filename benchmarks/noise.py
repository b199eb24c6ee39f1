"""How fast is exact noise? Ratios in one run, against numpy's floating-point noise and OpenDP's integer mechanisms.

    make bench-noise        or        .venv/bin/python benchmarks/noise.py

numpy's Laplace and normal are not safe for privacy (floating-point noise leaks); they are the floor of what a draw
costs. OpenDP is measured where it is installed (`pip install --group bench`), on fewer draws, as rate.
"""

import importlib.util
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from dpsieve.randomness import discrete_gaussian, discrete_laplace

DRAWS, ROUNDS, PEER_DRAWS = 1_000_000, 9, 20_000


def seconds(job: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the fastest of several runs."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - start)
    return best


def opendp_rate(kind: str, scale: float) -> float | None:
    """Return OpenDP's draws per second of integer noise, or None where it is not installed."""
    if importlib.util.find_spec("opendp") is None:
        return None
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if kind == "laplace":
        mechanism = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale)
    else:
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale)
    zeros = [0] * PEER_DRAWS
    return PEER_DRAWS / seconds(lambda: mechanism(zeros), rounds=3)


def main() -> None:
    """Print the table of ratios."""
    floats = np.random.default_rng()
    table = Table(title=f"{DRAWS:,} draws of integer noise, best of {ROUNDS} runs")
    for name in ("noise", "scale", "dpsieve", "numpy float", "time / numpy", "rate / OpenDP"):
        table.add_column(name, justify="right")
    for kind in ("laplace", "gaussian"):
        for scale in (1.0, 10.0, 1000.0):
            exact = discrete_laplace if kind == "laplace" else discrete_gaussian
            plain = floats.laplace if kind == "laplace" else floats.normal
            exact(scale, 1)  # the table of a scale is built once
            ours = seconds(lambda: exact(scale, DRAWS))  # noqa: B023
            numpys = seconds(lambda: plain(0.0, scale, DRAWS))  # noqa: B023
            peer = opendp_rate(kind, scale)
            beside = "not installed" if peer is None else f"{DRAWS / ours / peer:,.0f}"
            row = (f"{ours * 1e3:.1f} ms", f"{numpys * 1e3:.1f} ms", f"{ours / numpys:.2f}", beside)
            table.add_row(kind, f"{scale:g}", *row)
    Console().print(table)


if __name__ == "__main__":
    main()
