"""PipelineDP: the mean of a column per key, keys not listed in advance; print JSON: per run, {key: mean}.

    job.py rows.parquet keys_per_unit noise runs low high

The rows have the columns user, key and value, one row for each user and key.
"""

import json
import sys
from operator import itemgetter

import pipeline_dp as dp
import pyarrow.parquet as pq


def job(rows: list[tuple[str, str, float]], keys: int, noise: str, low: float, high: float) -> dict[str, float]:
    """Return the published means."""
    budget = dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-8)
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
    released = dp.DPEngine(budget, dp.LocalBackend()).aggregate(rows, params, columns)
    budget.compute_budgets()
    return {key: float(values.mean) for key, values in released}


def main() -> None:
    table = pq.read_table(sys.argv[1])
    rows = list(zip(*(table.column(name).to_pylist() for name in ("user", "key", "value")), strict=True))
    keys, noise, runs, low, high = int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), *map(float, sys.argv[5:7])
    print(json.dumps([job(rows, keys, noise, low, high) for _ in range(runs)]))


main()
