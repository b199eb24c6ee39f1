"""PipelineDP on its local backend: the mean of a column per key; keys are not known in advance."""

from operator import itemgetter

import pipeline_dp as dp
import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer


def job(rows: str, keys: int, noise: str, low: float, high: float) -> dict[str, float]:
    table = pq.read_table(rows, columns=["user", "key", "value"])
    triples = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    budget = dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
    params = dp.AggregateParams(
        metrics=[dp.Metrics.MEAN],
        noise_kind=dp.NoiseKind[noise.upper()],
        max_partitions_contributed=keys,
        max_contributions_per_partition=1,
        min_value=low,
        max_value=high,
    )
    columns = dp.DataExtractors(
        privacy_id_extractor=itemgetter(0), partition_extractor=itemgetter(1), value_extractor=itemgetter(2)
    )
    released = dp.DPEngine(budget, dp.LocalBackend()).aggregate(triples, params, columns)
    budget.compute_budgets()
    return {name: float(values.mean) for name, values in released}


answer(job, "pipeline-dp")
