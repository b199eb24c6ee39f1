"""PyDP: which keys occur. Bounding and counting are done by the script."""

from collections import Counter, defaultdict
from random import SystemRandom

import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer
from pydp.algorithms import partition_selection as selection

SAMPLE = SystemRandom().sample


def job(rows: str, keys: int, strategy: str) -> dict[str, float]:
    held = defaultdict(set)
    table = pq.read_table(rows, columns=["user", "key"])
    for user, key in zip(*(column.to_pylist() for column in table.columns), strict=True):
        held[user].add(key)
    counts = Counter(key for own in held.values() for key in SAMPLE(sorted(own), min(keys, len(own))))
    make = getattr(selection, f"create_{strategy}_partition_strategy")
    made = make(EPSILON, DELTA, keys)
    return {key: 0.0 for key, number in counts.items() if made.should_keep(number)}


answer(job, "python-dp")
