"""OpenDP on Polars: the mean of a column per key; keys are not known in advance.

Sums are of centred values, as their sensitivity is half the width of the bounds then; the mean is the centre plus the
noisy sum over the noisy count.
"""

import math
from typing import Any

import opendp.prelude as dp
import polars as pl
from measure import DELTA, EPSILON, answer
from opendp.extras.polars import Margin, dp_len

dp.enable_features("contrib")
STEPS = 1000  # values become whole numbers: sums of floats have other, larger bounds


def loss(noise: str) -> Any:
    """Return the loss of a release; for Gaussian noise, half of delta turns rho into epsilon, the rest is for keys."""
    if noise == "laplace":
        return dp.loss_of(epsilon=EPSILON, delta=DELTA)
    root = math.sqrt(math.log(2 / DELTA) + EPSILON) - math.sqrt(math.log(2 / DELTA))
    return dp.loss_of(rho=root**2, delta=DELTA / 2)


def job(rows: str, keys: int, noise: str, low: float, high: float) -> dict[str, float]:
    centre, half = (low + high) / 2, (high - low) / 2
    centred = ((pl.col("value") - centre) * STEPS).round().cast(pl.Int64)
    context = dp.Context.compositor(
        data=pl.scan_parquet(rows).select("user", "key", centred=centred),
        privacy_unit=dp.unit_of(contributions=1, identifier="user"),
        privacy_loss=loss(noise),
        split_evenly_over=1,
        margins=[Margin(max_length=20_000_000)],
    )
    bounded = context.query().truncate_per_group(keys).truncate_per_group(1, by=["key"])
    limit, column = round(half * STEPS), pl.col("centred").fill_null(0)
    summed: Any = column  # OpenDP adds the namespace `dp`
    aggregates = (dp_len(signed=True).alias("count"), summed.dp.sum((-limit, limit)).alias("sum"))
    released = bounded.group_by("key").agg(*aggregates).release().collect()
    return {
        row["key"]: centre + max(-half, min(half, row["sum"] / STEPS / max(1, row["count"])))
        for row in released.iter_rows(named=True)
    }


answer(job, "opendp")
