"""OpenDP: the sum or the mean of a column; each row is a unit. The number of rows is public for the mean."""

from typing import Any

import opendp.prelude as dp
import pyarrow.parquet as pq
from measure import EPSILON, answer

dp.enable_features("contrib")


def job(rows: str, low: float, high: float, what: str) -> dict[str, float]:
    x = pq.read_table(rows, columns=["value"])["value"].to_numpy().copy()  # OpenDP takes no read-only arrays
    steps: Any = dp.t
    if what == "sum":
        whole = x.astype("int64")
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()
        query, change = space >> steps.then_clamp((int(low), int(high))) >> steps.then_sum(), 1
        made = dp.binary_search_chain(lambda scale: query >> dp.m.then_laplace(scale), d_in=change, d_out=EPSILON)
        return {what: float(made(whole))}
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=len(x)), dp.symmetric_distance()
    query, change = space >> steps.then_clamp((low, high)) >> steps.then_mean(), 2  # one row is replaced
    made = dp.binary_search_chain(lambda scale: query >> dp.m.then_laplace(scale), d_in=change, d_out=EPSILON, T=float)
    return {what: float(made(x))}


answer(job, "opendp")
