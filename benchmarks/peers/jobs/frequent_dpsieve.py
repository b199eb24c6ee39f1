"""dpsieve: frequent items of a stream by a sketch of fixed size, published privately or (private=False) not at all."""

import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer

import dpsieve as ds


def job(rows: str, counters: int, private: bool) -> dict[str, float]:
    sketch = ds.MisraGries(counters)
    for batch in pq.ParquetFile(rows).iter_batches(columns=["key"]):
        sketch.update(batch.column(0))
    if private:
        return {row["key"]: row["count"] for row in sketch.release(epsilon=EPSILON, delta=DELTA)}
    return {key: sketch.upper(key) for key in sketch.keys_and_counts()[0].to_pylist()}


answer(job, "dpsieve")
