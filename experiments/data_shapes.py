"""Table 1 and figures 4 to 7 of the paper on missing mass: sizes of the data, frequencies by rank, sizes of user sets.

    DPSIEVE_DATA=folder .venv/bin/python experiments/data_shapes.py [word of a name ...]

See discovery_data.py for which sets are real and which are made up in the shape of the paper's.
"""

import altair as alt
import numpy as np
import pyarrow as pa
from discovery_data import COLOURS, LARGE, MORE, SMALL, chosen, load, save
from rich.console import Console
from rich.table import Table

from dpsieve.papers.missing_mass.measures import zipf_fit


def main() -> None:
    """Print table 1 with a Zipf law that each set meets, and plot ranks and sizes."""
    table = Table(title="Table 1: users, items and entries; (C, s) of Definition 3.1")
    for column in ("data", "users", "items", "entries", "median set", "largest set", "C", "s"):
        table.add_column(column, justify="left" if column == "data" else "right")
    ranks, sizes = [], []
    for name in chosen([*LARGE, *SMALL, *MORE]):
        held = load(name)
        counts = -np.sort(-held.counts())
        c, s = zipf_fit(counts)
        numbers = (len(held.sizes), len(counts), int(counts.sum()), int(np.median(held.sizes)), int(held.sizes.max()))
        table.add_row(name, *(f"{number:,}" for number in numbers), f"{c:.3g}", f"{s:.2f}")
        at = np.unique(np.geomspace(1, len(counts), 100).astype(int))
        ranks.append(pa.table({"rank": at, "frequency": counts[at - 1], "data": [name] * len(at)}))
        size, number = np.unique(held.sizes, return_counts=True)
        share = np.cumsum(number) / number.sum()
        sizes.append(pa.table({"size": size, "share": share, "data": [name] * len(size)}))
    Console(width=140).print(table)
    log = alt.Scale(type="log")
    colour = alt.Color("data:N", scale=alt.Scale(range=COLOURS), title=None)
    by_rank = alt.Chart(pa.concat_tables(ranks), title="Figures 4, 5: frequency by rank", width=380, height=260)
    by_size = alt.Chart(
        pa.concat_tables(sizes), title="Figures 6, 7: share of sets up to a size", width=380, height=260
    )
    left = by_rank.mark_line().encode(alt.X("rank:Q", scale=log), alt.Y("frequency:Q", scale=log), colour)
    right = by_size.mark_line(interpolate="step-after").encode(alt.X("size:Q", scale=log), alt.Y("share:Q"), colour)
    save("data_shapes", left | right)


if __name__ == "__main__":
    main()
