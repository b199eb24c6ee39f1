"""PipelineDP on its local backend: counts of keys that are not known in advance."""

from operator import itemgetter

import pipeline_dp as dp
import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer


def job(rows: str, keys: int, noise: str) -> dict[str, float]:
    table = pq.read_table(rows, columns=["user", "key"])
    pairs = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    budget = dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
    params = dp.AggregateParams(
        metrics=[dp.Metrics.PRIVACY_ID_COUNT],
        noise_kind=dp.NoiseKind[noise.upper()],
        max_partitions_contributed=keys,
        max_contributions_per_partition=1,
        post_aggregation_thresholding=True,  # one noise for choice and count: the budget is not split
    )
    user, key = itemgetter(0), itemgetter(1)
    columns = dp.DataExtractors(privacy_id_extractor=user, partition_extractor=key, value_extractor=key)
    released = dp.DPEngine(budget, dp.LocalBackend()).aggregate(pairs, params, columns)
    budget.compute_budgets()
    return {name: float(values.privacy_id_count) for name, values in released}


answer(job, "pipeline-dp")
