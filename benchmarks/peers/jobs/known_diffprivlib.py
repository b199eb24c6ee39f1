"""diffprivlib: counts of known keys by its histogram. Bounding is done by the script.

Its guarantee is for one row: for units with several keys, epsilon is divided by their number.
"""

from collections import defaultdict
from random import SystemRandom

import numpy as np
import pyarrow.parquet as pq
from diffprivlib import tools
from measure import EPSILON, answer

SAMPLE = SystemRandom().sample


def job(rows: str, keys: int, known: str) -> dict[str, float]:
    names = pq.read_table(known)["key"].to_pylist()
    numbers = {key: number for number, key in enumerate(names)}
    held = defaultdict(set)
    table = pq.read_table(rows, columns=["user", "key"])
    for user, key in zip(*(column.to_pylist() for column in table.columns), strict=True):
        held[user].add(key)
    kept = np.array([numbers[key] for own in held.values() for key in SAMPLE(sorted(own), min(keys, len(own)))])
    counts, _ = tools.histogram(kept, epsilon=EPSILON / keys, bins=len(names), range=(0, len(names)))
    return dict(zip(names, counts.tolist(), strict=True))


answer(job, "diffprivlib")
