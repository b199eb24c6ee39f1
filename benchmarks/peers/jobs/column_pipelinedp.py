"""PipelineDP on its local backend: the sum or the mean of a column; each row is a unit."""

from itertools import count

import pipeline_dp as dp
import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer


def job(rows: str, low: float, high: float, what: str, noise: str) -> dict[str, float]:
    values = list(zip(count(), pq.read_table(rows, columns=["value"])["value"].to_pylist(), strict=False))
    budget = dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA if noise == "gaussian" else 0.0)
    params = dp.AggregateParams(
        metrics=[getattr(dp.Metrics, what.upper())],
        noise_kind=dp.NoiseKind[noise.upper()],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=low,
        max_value=high,
    )
    columns = dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda _: "all",
        value_extractor=lambda row: row[1],
    )
    backend = dp.LocalBackend()
    released = dp.DPEngine(budget, backend).aggregate(values, params, columns, public_partitions=["all"])
    budget.compute_budgets()
    ((_, found),) = released
    return {what: float(getattr(found, what))}


answer(job, "pipeline-dp")
