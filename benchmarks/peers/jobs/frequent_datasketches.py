"""DataSketches, not private: frequent items of a stream by a sketch of fixed size."""

import pyarrow.parquet as pq
from datasketches import frequent_items_error_type, frequent_strings_sketch
from measure import answer


def job(rows: str, log2_counters: int) -> dict[str, float]:
    sketch = frequent_strings_sketch(log2_counters)
    for batch in pq.ParquetFile(rows).iter_batches(columns=["key"]):
        for item in batch.column(0).to_pylist():
            sketch.update(item)
    found = sketch.get_frequent_items(frequent_items_error_type.NO_FALSE_NEGATIVES)
    return {item: estimate for item, estimate, _, _ in found}


answer(job, "datasketches")
