"""PyDP: the sum or the mean of a column; each row is a unit."""

import pyarrow.parquet as pq
from measure import EPSILON, answer
from pydp.algorithms.laplacian import BoundedMean, BoundedSum


def job(rows: str, low: float, high: float, what: str) -> dict[str, float]:
    x = pq.read_table(rows, columns=["value"])["value"].to_pylist()
    kind = {"sum": BoundedSum, "mean": BoundedMean}[what]
    return {what: kind(epsilon=EPSILON, lower_bound=low, upper_bound=high, dtype="float").quick_result(x)}


answer(job, "python-dp")
