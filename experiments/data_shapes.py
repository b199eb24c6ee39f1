"""Table 1 and figures 4 to 7 of the paper on missing mass: sizes of the data, frequencies by rank, sizes of user sets.

See discovery_data.py for which sets are real and which are made up in the shape of the paper's.
"""

import numpy as np
from data_sets import pairs
from discovery_data import LARGE, MORE, SMALL
from experiment import Experiment, Plot, Row, Verdict, column, group, judge_claim, pick

from dpsieve.papers.missing_mass.measures import zipf_fit

TABLE = {  # users, items and entries of table 1
    "Reddit": (245_103, 631_855, 18_272_211),
    "Movie Reviews": (162_541, 59_047, 25_000_095),
    "Amazon Games": (1_540_618, 71_982, 2_489_395),
    "Steam Games": (12_393, 5_155, 128_804),
    "Amazon Magazine": (72_098, 2_428, 88_318),
    "Amazon Pantry": (247_659, 10_814, 447_399),
}


def shapes(small: bool) -> list[Row]:
    """Return the sizes of each set with a Zipf law that it meets, its frequencies by rank, and its set sizes."""
    rows: list[Row] = []
    for name in SMALL[:1] if small else [*LARGE, *SMALL, *MORE]:
        data, held = pairs(name, small)
        counts = -np.sort(-held.counts())
        c, s = zipf_fit(counts)
        numbers = {
            "users": len(held.sizes), "items": len(counts), "entries": int(counts.sum()),
            "median set": float(np.median(held.sizes)), "largest set": int(held.sizes.max()), "C": c, "s": s,
        }  # fmt: skip
        rows += [{"data": data, "what": what, "at": 0, "value": float(value)} for what, value in numbers.items()]
        for at in np.unique(np.geomspace(1, len(counts), 40).astype(int)).tolist():
            rows.append({"data": data, "what": "frequency by rank", "at": at, "value": float(counts[at - 1])})
        most = int(held.sizes.max())
        for at in np.unique(np.geomspace(1, most, 30).astype(int)).tolist():
            share = float((held.sizes <= at).mean())
            rows.append({"data": data, "what": "share of sets up to a size", "at": at, "value": share})
    return rows


def judge_shapes(rows: list[Row]) -> list[Verdict]:
    """Judge table 1 on the sets whose real files were read, and the Zipf law on all."""
    verdicts = []
    for (data,), part in group(rows, "data"):
        found = {row["what"]: row["value"] for row in part if row["at"] == 0}
        claimed = TABLE.get(str(data).split(" (")[0])
        if claimed and "made up" not in str(data):
            sizes = tuple(int(found[name]) for name in ("users", "items", "entries"))
            verdicts.append(
                judge_claim(
                    f"Table 1: {data} has {claimed[0]:,} users, {claimed[1]:,} items and {claimed[2]:,} entries",
                    f"{sizes[0]:,}, {sizes[1]:,} and {sizes[2]:,}",
                    all(abs(one / other - 1) < 0.001 for one, other in zip(sizes, claimed, strict=True)),
                    "the file has other sizes",
                )
            )
    exponents = pick(rows, what="s")
    shown = ", ".join(f"{row['data']} {row['value']:.2f}" for row in exponents)
    verdicts.append(
        judge_claim(
            "Appendix E.1: all sets are (C, s)-Zipfian for s > 1 and a large C",
            f"the fitted s: {shown}",
            column(exponents, "value").min() > 1,
            "the fitted s is not above 1 for all sets",
        )
    )
    return verdicts


EXPERIMENTS = (
    Experiment(
        "data_shapes", "missing mass", "Table 1, Figures 4 to 7", "sizes, frequencies by rank and sizes of user sets",
        25, shapes, judge_shapes,
        (
            Plot("Figures 4 and 5: frequency by rank", "at", "value", ("data",), log="xy",
                 where={"what": "frequency by rank"}, name="ranks"),
            Plot("Figures 6 and 7: share of user sets up to a size", "at", "value", ("data",), log="x",
                 where={"what": "share of sets up to a size"}, name="sizes"),
        ),
    ),
)  # fmt: skip
