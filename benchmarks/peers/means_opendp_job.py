"""OpenDP: the median or the mean of a column at epsilon 1; print JSON: seconds, error and peak MiB.

The median is chosen among 1,001 public candidates between 0 and 1,000; its error is in rows. The mean is of numbers
limited to [0, 1,000], whose number is public.
"""

import json
import sys
from typing import Any

import numpy as np
import opendp.prelude as dp
from measure import fastest, peak

dp.enable_features("contrib")


def main() -> None:
    folder, task = sys.argv[1:3]
    x = np.load(f"{folder}/column.npy")
    metric = dp.symmetric_distance()
    if task == "median":
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False))
        points = np.linspace(0, 1000, 1001).tolist()
        made = dp.binary_search_chain(
            lambda scale: dp.m.make_private_quantile(space, metric, dp.max_divergence(), points, 0.5, scale),
            d_in=1, d_out=1.0, T=float,
        )  # fmt: skip
    else:
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(x))
        steps: Any = dp.t
        mean = (space, metric) >> steps.then_clamp((0.0, 1000.0)) >> steps.then_mean()
        made = dp.binary_search_chain(lambda scale: mean >> dp.m.then_laplace(scale), d_in=2, d_out=1.0, T=float)
    made(x)
    best, found = fastest(lambda: made(x), 3, 2.0)
    error = (
        abs(np.count_nonzero(x < found) - len(x) / 2) if task == "median" else abs(found - np.minimum(x, 1e3).mean())
    )
    print(json.dumps([best, float(error), peak("self") / 1024]))


main()
