"""OpenDP on Polars: the mean of a column per key, keys not listed in advance; print JSON: per run, {key: mean}.

    job.py rows.parquet keys_per_unit noise runs low high

The rows have the columns user, key and value, one row for each user and key. Sums are of centred values, as their
sensitivity is half the width of the bounds then; the mean is the centre plus the noisy sum over the noisy count. With
'gaussian' the loss is zero-concentrated, with rho such that (epsilon, delta) = (1, 1e-8) is kept.
"""

import json
import math
import sys
from typing import Any

import opendp.prelude as dp
import polars as pl
from opendp.extras.polars import Margin, dp_len

dp.enable_features("contrib")
EPSILON, DELTA, STEPS = 1.0, 1e-8, 1000  # values become whole numbers: sums of floats have other, larger bounds


def loss(noise: str) -> Any:
    """Return the loss of a release; half of delta turns rho into epsilon, the rest is for keys."""
    if noise == "laplace":
        return dp.loss_of(epsilon=EPSILON, delta=DELTA)
    root = math.sqrt(math.log(2 / DELTA) + EPSILON) - math.sqrt(math.log(2 / DELTA))
    return dp.loss_of(rho=root**2, delta=DELTA / 2)


def job(path: str, keys: int, noise: str, low: float, high: float) -> dict[str, float]:
    """Return the published means."""
    centre, half = (low + high) / 2, (high - low) / 2
    context = dp.Context.compositor(
        data=pl.scan_parquet(path).select(
            "user", "key", centred=((pl.col("value") - centre) * STEPS).round().cast(pl.Int64)
        ),
        privacy_unit=dp.unit_of(contributions=1, identifier="user"),
        privacy_loss=loss(noise),
        split_evenly_over=1,
        margins=[Margin(max_length=20_000_000)],
    )
    query = context.query().truncate_per_group(keys).truncate_per_group(1, by=["key"]).group_by("key")
    limit = round(half * STEPS)
    centred: Any = pl.col("centred").fill_null(0)  # OpenDP adds the namespace `dp`
    sums = centred.dp.sum((-limit, limit))
    released = query.agg(dp_len(signed=True).alias("count"), sums.alias("sum")).release().collect()
    return {
        row["key"]: centre + max(-half, min(half, row["sum"] / STEPS / max(1, row["count"])))
        for row in released.iter_rows(named=True)
    }


def main() -> None:
    path, keys, noise, runs = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    low, high = map(float, sys.argv[5:7])
    print(json.dumps([job(path, keys, noise, low, high) for _ in range(runs)]))


main()
