"""dpsieve: the mean of a column per key; keys are not known in advance."""

from typing import Any

from measure import DELTA, EPSILON, answer

import dpsieve as ds


def job(rows: str, low: float, high: float, **options: Any) -> dict[str, float]:
    budget: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "means": {"value": (low, high)}}
    release = ds.release(rows, key="key", privacy_unit="user", **budget, **options)
    return {row["key"]: row["value_mean"] for row in release}


answer(job, "dpsieve")
