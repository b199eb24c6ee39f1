"""dpsieve: the sum or the mean of a column; each row is a unit."""

from typing import Any

from measure import EPSILON, answer

import dpsieve as ds


def job(rows: str, low: float, high: float, what: str, **options: Any) -> dict[str, float]:
    method = {"sum": ds.sum, "mean": ds.mean}[what]
    found = method(rows, column="value", bounds=(low, high), privacy_unit="row", epsilon=EPSILON, **options)
    return {what: float(found.value)}


answer(job, "dpsieve")
