"""Figures 2.1 and 2.2 of the thesis: one entry of an ALP embedding, before and after noise, and its estimate."""

import numpy as np
from experiment import Experiment, Plot, Row, Verdict, judge_claim

VALUE, PLACES = 5, (2, 3, 5, 3, 4, 4, 1, 2)  # y_i, and the hash values of entry i in Figure 2.1
NOISY = (  # the cells of Figure 2.2
    (0, 0, 0, 1, 0, 0, 0, 0),
    (1, 1, 0, 0, 0, 1, 0, 1),
    (0, 1, 0, 0, 0, 0, 0, 0),
    (0, 1, 0, 0, 1, 0, 0, 1),
    (0, 0, 1, 1, 0, 0, 0, 0),
)


def sums(_: bool) -> list[Row]:
    """Return f(n) of Algorithm 3 for each candidate n, before and after noise."""
    clean = [int(column < VALUE) for column in range(len(PLACES))]
    noisy = [NOISY[place - 1][column] for column, place in enumerate(PLACES)]
    return [
        {"bits": bits, "n": n, "f": height}
        for bits, row in (("before noise", clean), ("after noise", noisy))
        for n, height in enumerate(np.append(0, np.cumsum(2 * np.array(row) - 1)).tolist())
    ]


def judge_sums(rows: list[Row]) -> list[Verdict]:
    """Judge where the sums are largest, and the estimate."""
    verdicts = []
    for bits, peaks, estimate in (("before noise", [5], 5.0), ("after noise", [3, 5], 4.0)):
        part = [row for row in rows if row["bits"] == bits]
        top = max(row["f"] for row in part)
        found = [row["n"] for row in part if row["f"] == top]
        verdicts.append(
            judge_claim(
                f"{bits}: f is largest at {' and '.join(map(str, peaks))}, so the estimate is {estimate:g}",
                f"largest at {' and '.join(map(str, found))}; {np.mean(found):g}",
                found == peaks and np.mean(found) == estimate,
                "the sums are largest elsewhere",
            )
        )
    return verdicts


EXPERIMENTS = (
    Experiment(
        "alp_example", "thesis", "Figures 2.1 and 2.2", "the worked example of Algorithms 2 and 3", 1, sums, judge_sums,
        (Plot("Figure 2.2: f(n), whose highest points are averaged", "n", "f", ("bits",)),),
    ),
)  # fmt: skip
