"""diffprivlib: the median or the mean of a column, or sums of columns, at epsilon 1; print JSON: seconds, error, MiB.

The median lies in [0, 10^6]; its error is in rows. The sums split epsilon evenly over all columns, each with bounds of
its own.
"""

import json
import sys

import numpy as np
from diffprivlib import tools
from measure import fastest, peak


def main() -> None:
    folder, task = sys.argv[1:3]
    x = np.load(f"{folder}/{'dense' if task == 'sums' else 'column'}.npy")
    if task == "median":
        best, found = fastest(lambda: tools.quantile(x, 0.5, epsilon=1.0, bounds=(0.0, 1e6)), 3, 2.0)
        error = abs(np.count_nonzero(x < found) - len(x) / 2)
    elif task == "mean":
        best, found = fastest(lambda: tools.mean(x, epsilon=1.0, bounds=(0.0, 1e3)), 3, 2.0)
        error = abs(found - np.minimum(x, 1e3).mean())
    else:
        high = 10 * 2048 / np.arange(2048, 0, -1) + 10
        best, found = fastest(lambda: tools.sum(x, epsilon=1.0, bounds=(-high, high), axis=0), 1, 2.0)
        error = np.abs(found - np.clip(x, -high, high).sum(axis=0)).sum()
    print(json.dumps([best, float(error), peak("self") / 1024]))


main()
