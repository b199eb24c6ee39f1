"""PipelineDP on its local backend: counts of known keys."""

from operator import itemgetter

import pipeline_dp as dp
import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer


def job(rows: str, keys: int, noise: str, known: str) -> dict[str, float]:
    table, names = pq.read_table(rows, columns=["user", "key"]), pq.read_table(known)["key"].to_pylist()
    pairs = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    budget = dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA if noise == "gaussian" else 0.0)
    params = dp.AggregateParams(
        metrics=[dp.Metrics.PRIVACY_ID_COUNT],
        noise_kind=dp.NoiseKind[noise.upper()],
        max_partitions_contributed=keys,
        max_contributions_per_partition=1,
    )
    user, key = itemgetter(0), itemgetter(1)
    columns = dp.DataExtractors(privacy_id_extractor=user, partition_extractor=key, value_extractor=key)
    released = dp.DPEngine(budget, dp.LocalBackend()).aggregate(pairs, params, columns, public_partitions=names)
    budget.compute_budgets()
    return {name: float(values.privacy_id_count) for name, values in released}


answer(job, "pipeline-dp")
