"""How fast are private sparse vectors? To build one, to look entries up, how large and how wrong they are.

    make bench-vectors        or        .venv/bin/python benchmarks/vectors.py [entries [of the large one, or 0]]

The entries are counts with a heavy tail, P[count >= x] = 1/x, up to 60, at random indices below 2^40; epsilon is 1. The
number of entries and the largest count are public. Half of all look-ups are of entries that are there. Each variant
runs in a process of its own, so that peak memory is its own; the fastest round counts, and compiled code is loaded from
its cache before. 'first' is the first round, which also chooses the parameters; later ones remember them.

'size' is the length of `to_bytes` over the bits that the variant needs: those of all cells, or, for 'retrieval', of the
contents of all entries.

Where `make bench-peers` has built its environment, OpenDP's ALP runs beside it on the same entries, with several
alpha and size_factor; with its defaults, 4 and 50, it has 84 bits an entry. Ratios are to the fastest of them to build,
and to the fastest to look up. Its errors are those of 20,000 look-ups.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from release import JOBS, ROOT, run
from rich.console import Console
from rich.table import Table

ENTRIES, LARGE, LOOK_UPS, MOST = 100_000, 10_000_000, 1_000_000, 60
EPSILON, DELTA, DIMENSION = 1.0, 1e-8, 2**40
VARIANTS: dict[str, dict[str, object]] = {
    "retrieval, 1e-8": {"variant": "retrieval", "delta": DELTA},
    "max_projection": {"variant": "max_projection"},
    "max_projection, 84": {"variant": "max_projection", "bits": 84},
    "histogram": {"variant": "histogram"},
    "histogram, 84": {"variant": "histogram", "bits": 84},
    "alp": {"variant": "alp"},
    "auto": {},
}
PEER = [(alpha, factor) for alpha in (2, 3, 4) for factor in (50, 100)]
COLUMNS = ("job|build s|first s|entries/s|/ OpenDP|1M gets s|gets/s|/ OpenDP|bits|size|present|absent|peak MiB").split(
    "|"
)
ASKED = ["asked", "0.5", "", "", "50", "2", "", "50", "", "1.2", "", "", ""]
ASKED_LARGE = ["asked", *[""] * 11, "4,096"]

GENERATE = """
import sys
import numpy as np
folder, entries, look_ups, dimension, most = sys.argv[1], *map(int, sys.argv[2:6])
rng = np.random.default_rng(1)
indices = np.unique(rng.integers(0, dimension, entries + entries // 100 + 100))
indices = rng.permutation(indices)[:entries]
np.save(f"{folder}/indices.npy", indices)
np.save(f"{folder}/values.npy", np.minimum(1 / (1 - rng.random(entries)), most).astype(np.int64))
absent = rng.integers(0, dimension, look_ups)
np.save(f"{folder}/absent.npy", absent[~np.isin(absent, indices)])
"""

OURS = """
import json, sys, time
import numpy as np
import dpsieve as ds
from dpsieve.sparse.noisy_tables import MaxProjection
from dpsieve.sparse.retrieval import Retrieval
from measure import fastest, peak
folder, how, look_ups, rounds, seconds = sys.argv[1], eval(sys.argv[2]), *map(int, sys.argv[3:5]), float(sys.argv[5])
indices, values, absent = (np.load(f"{folder}/{name}.npy") for name in ("indices", "values", "absent"))
def build():
    return ds.SparseVector.private(indices, values, neighbours="one_entry", sparsity=len(indices), **how)
ds.SparseVector.private(indices[:9], values[:9], neighbours="one_entry", sparsity=9, **how).get(indices[:99])
begin = time.perf_counter()
vector = build()
first = time.perf_counter() - begin
some = np.random.default_rng(2).integers(0, len(indices), look_ups // 2)
asked = np.concatenate([indices[some], absent[: look_ups - look_ups // 2]])
looked, _ = fastest(lambda: vector.get(asked), rounds + 1, seconds)
present = float(np.abs(vector.get(indices) - values).mean())
missing = float(np.abs(vector.get(absent)).mean())
part, bits, size = vector.mechanism, vector.bits, len(vector.to_bytes()) * 8
if isinstance(part, Retrieval):
    needed = part.bits * len(indices)
elif isinstance(part, MaxProjection):
    needed = part.places * part.cell_bits
else:
    needed = part.places * part.columns
del vector
built = fastest(build, rounds, seconds)[0] if rounds else first
print(json.dumps([built, first, looked, bits, size / needed, peak("self") / 1024, present, missing]))
"""


def ours(folder: Path, entries: int, rounds: int, seconds: float) -> dict[str, list[float] | None]:
    """Return what was measured of each variant."""
    numbers = [str(number) for number in (folder, entries, LOOK_UPS, DIMENSION, MOST)]
    subprocess.run([sys.executable, "-c", GENERATE, *numbers], check=True)
    found = {}
    for name, how in VARIANTS.items():
        every = {"epsilon": EPSILON, "dimension": DIMENSION, "max_value": MOST, **how}
        more = [str(folder), repr(every), str(LOOK_UPS), str(rounds), str(seconds)]
        found[name] = run([sys.executable, "-c", OURS, *more], folder)
    return found


def peers(folder: Path) -> dict[str, list[float] | None]:
    """Return what was measured of OpenDP, if it is there."""
    home = ROOT / ".venv-peer-opendp"
    if not (home / ".done").exists():
        return {}
    found = {}
    for alpha, factor in PEER:
        settings = [str(number) for number in (EPSILON, alpha, factor, 2, 5.0)]
        command = [f"{home}/bin/python", f"{JOBS}/vectors_opendp_job.py", str(folder), *settings]
        found[f"OpenDP, {alpha}, {factor}"] = run(command, folder)
    return found


def show(title: str, entries: int, found: dict[str, list[float] | None], peer: dict[str, list[float] | None]) -> Table:
    """Return the table of what was measured."""
    table = Table(title=title)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "job" else "right", no_wrap=True)
    done = [result for result in peer.values() if result is not None]
    build, look = (min((result[i] for result in done), default=None) for i in range(2))

    def ratio(theirs: float | None, mine: float) -> str:
        return "" if theirs is None else f"{theirs / mine:,.0f}"

    for name, result in found.items():
        if result is None:
            table.add_row(name, "failed")
            continue
        built, first, looked, bits, size, peak, present, missing = result
        table.add_row(
            name, f"{built:.3f}", f"{first:.2f}", f"{entries / built:,.0f}", ratio(build, built), f"{looked:.2f}",
            f"{LOOK_UPS / looked:,.0f}", ratio(look, looked / LOOK_UPS), f"{bits / entries:.1f}", f"{size:.3f}",
            f"{present:.2f}", f"{missing:.2f}", f"{peak:,.0f}",
        )  # fmt: skip
    for name, result in peer.items():
        if result is None:
            table.add_row(name, "failed")
            continue
        built, each, bits, peak, present, missing = result
        table.add_row(
            name, f"{built:.1f}", "", f"{entries / built:,.0f}", "", f"{LOOK_UPS * each:.0f}", f"{1 / each:,.0f}", "",
            f"{bits / entries:.1f}", "", f"{present:.2f}", f"{missing:.2f}", f"{peak:,.0f}",
        )  # fmt: skip
    return table


def main() -> None:
    """Print a table for many entries beside the peer, and one for very many."""
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else ENTRIES
    large = int(sys.argv[2]) if len(sys.argv) > 2 else LARGE * entries // ENTRIES
    console = Console(width=160)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found, peer = ours(folder, entries, 3, 3.0), peers(folder)
        table = show(f"{entries:,} entries below 2^40, epsilon {EPSILON:g}", entries, found, peer)
        table.add_section()
        table.add_row(*ASKED)
        console.print(table)
        if not large:
            return
        table = show(f"{large:,} entries, built once", large, ours(folder, large, 0, 0.0), {})
        table.add_section()
        table.add_row(*ASKED_LARGE)
        console.print(table)


if __name__ == "__main__":
    main()
