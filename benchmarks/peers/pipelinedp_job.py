"""PipelineDP on its local backend: one random key for each user, then noisy counts over a threshold."""

import sys
from operator import itemgetter

import pipeline_dp as dp
import pyarrow.parquet as pq
from measure import measure


def job() -> int:
    batches = pq.ParquetFile(sys.argv[1]).iter_batches(columns=["user", "key"])
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    budget = dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-8)
    params = dp.AggregateParams(
        metrics=[dp.Metrics.PRIVACY_ID_COUNT],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        post_aggregation_thresholding=True,  # one noise for choice and count: the budget is not split
    )
    user, key = itemgetter(0), itemgetter(1)
    columns = dp.DataExtractors(privacy_id_extractor=user, partition_extractor=key, value_extractor=key)
    released = dp.DPEngine(budget, dp.LocalBackend()).aggregate(rows, params, columns)
    budget.compute_budgets()
    return len(list(released))


measure(job)
