"""dpsieve: counts of keys that are not known in advance."""

from typing import Any

from measure import DELTA, EPSILON, answer

import dpsieve as ds


def job(rows: str, **options: Any) -> dict[str, float]:
    release = ds.release(rows, key="key", privacy_unit="user", epsilon=EPSILON, delta=DELTA, **options)
    return {row["key"]: row["count"] for row in release}


answer(job, "dpsieve")
