"""dpsieve: counts of known keys."""

import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer

import dpsieve as ds


def job(rows: str, keys: int, known: str, delta: float = DELTA) -> dict[str, float]:
    names = pq.read_table(known)["key"].to_pylist()
    release = ds.release(
        rows, key="key", privacy_unit="user", epsilon=EPSILON, delta=delta, max_keys_per_unit=keys, known_keys=names
    )
    return {row["key"]: row["count"] for row in release}


answer(job, "dpsieve")
