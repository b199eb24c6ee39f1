"""OpenDP on Polars: one random row for each user, then noisy counts over a threshold."""

import sys

import opendp.prelude as dp
import polars as pl
from measure import measure
from opendp.extras.polars import Margin, dp_len

dp.enable_features("contrib")


def job() -> int:
    context = dp.Context.compositor(
        data=pl.scan_parquet(sys.argv[1]),
        privacy_unit=dp.unit_of(contributions=1, identifier="user"),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-8),
        split_evenly_over=1,
        margins=[Margin(max_length=20_000_000)],
    )
    query = context.query().truncate_per_group(1).group_by("key").agg(dp_len(signed=True))
    return len(query.release().collect())


measure(job)
