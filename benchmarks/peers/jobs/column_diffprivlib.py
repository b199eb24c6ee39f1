"""diffprivlib: the sum or the mean of a column; each row is a unit, and the number of rows is public."""

import pyarrow.parquet as pq
from diffprivlib import tools
from measure import EPSILON, answer


def job(rows: str, low: float, high: float, what: str) -> dict[str, float]:
    x = pq.read_table(rows, columns=["value"])["value"].to_numpy()
    method = {"sum": tools.sum, "mean": tools.mean}[what]
    return {what: float(method(x, epsilon=EPSILON, bounds=(low, high)))}


answer(job, "diffprivlib")
