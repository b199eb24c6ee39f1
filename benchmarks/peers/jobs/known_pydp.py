"""PyDP: counts of known keys. Bounding and counting are done by the script."""

import math
from collections import Counter, defaultdict
from random import SystemRandom

import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer
from pydp.algorithms.numerical_mechanisms import GaussianMechanism, LaplaceMechanism

SAMPLE = SystemRandom().sample


def job(rows: str, keys: int, noise: str, known: str) -> dict[str, float]:
    held = defaultdict(set)
    table = pq.read_table(rows, columns=["user", "key"])
    for user, key in zip(*(column.to_pylist() for column in table.columns), strict=True):
        held[user].add(key)
    counts = Counter(key for own in held.values() for key in SAMPLE(sorted(own), min(keys, len(own))))
    if noise == "laplace":
        mechanism = LaplaceMechanism(epsilon=EPSILON, sensitivity=keys)
    else:
        mechanism = GaussianMechanism(epsilon=EPSILON, delta=DELTA, sensitivity=math.sqrt(keys))
    return {key: float(mechanism.add_noise(counts[key])) for key in pq.read_table(known)["key"].to_pylist()}


answer(job, "python-dp")
