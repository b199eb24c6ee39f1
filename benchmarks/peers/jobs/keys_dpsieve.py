"""dpsieve: which keys occur."""

from typing import Any

from measure import DELTA, EPSILON, answer

import dpsieve as ds


def job(rows: str, **options: Any) -> dict[str, float]:
    found = ds.discover(rows, key="key", privacy_unit="user", epsilon=EPSILON, delta=DELTA, **options)
    return dict.fromkeys(found.table["key"].to_pylist(), 0.0)


answer(job, "dpsieve")
