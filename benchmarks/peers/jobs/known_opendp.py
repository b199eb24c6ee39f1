"""OpenDP on Polars: counts of known keys."""

import math
from typing import Any

import opendp.prelude as dp
import polars as pl
from measure import DELTA, EPSILON, answer
from opendp.extras.polars import Margin, dp_len

dp.enable_features("contrib")


def loss(noise: str) -> Any:
    """Return the loss of a release; for Gaussian noise, delta turns rho into epsilon."""
    if noise == "laplace":
        return dp.loss_of(epsilon=EPSILON)
    root = math.sqrt(math.log(1 / DELTA) + EPSILON) - math.sqrt(math.log(1 / DELTA))
    return dp.loss_of(rho=root**2)


def job(rows: str, keys: int, noise: str, known: str) -> dict[str, float]:
    context = dp.Context.compositor(
        data=pl.scan_parquet(rows).select("user", "key"),
        privacy_unit=dp.unit_of(contributions=1, identifier="user"),
        privacy_loss=loss(noise),
        split_evenly_over=1,
        margins=[Margin(max_length=20_000_000)],
    )
    bounded = context.query().truncate_per_group(keys).truncate_per_group(1, by=["key"])
    counts = bounded.group_by("key").agg(dp_len(signed=True).alias("count"))
    released = counts.with_keys(pl.scan_parquet(known)).release().collect()
    return dict(released.select("key", "count").iter_rows())


answer(job, "opendp")
