"""OpenDP on Polars: counts of keys that are not known in advance, and whether they are: one query does both."""

import math
from typing import Any

import opendp.prelude as dp
import polars as pl
from measure import DELTA, EPSILON, answer
from opendp.extras.polars import Margin, dp_len

dp.enable_features("contrib")


def loss(noise: str) -> Any:
    """Return the loss of a release; for Gaussian noise, half of delta turns rho into epsilon, the rest is for keys."""
    if noise == "laplace":
        return dp.loss_of(epsilon=EPSILON, delta=DELTA)
    root = math.sqrt(math.log(2 / DELTA) + EPSILON) - math.sqrt(math.log(2 / DELTA))
    return dp.loss_of(rho=root**2, delta=DELTA / 2)


def job(rows: str, keys: int, noise: str) -> dict[str, float]:
    context = dp.Context.compositor(
        data=pl.scan_parquet(rows).select("user", "key"),
        privacy_unit=dp.unit_of(contributions=1, identifier="user"),
        privacy_loss=loss(noise),
        split_evenly_over=1,
        margins=[Margin(max_length=20_000_000)],
    )
    bounded = context.query().truncate_per_group(keys).truncate_per_group(1, by=["key"])
    released = bounded.group_by("key").agg(dp_len(signed=True).alias("count")).release().collect()
    return dict(released.select("key", "count").iter_rows())


answer(job, "opendp")
