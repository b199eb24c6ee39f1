"""PipelineDP on its local backend: which keys occur, with at most 100 keys of each user."""

import sys
from operator import itemgetter

import pipeline_dp as dp
import pyarrow.parquet as pq
from measure import measure


def job() -> int:
    """Select keys; rows are read in batches, as the backend takes any iterable."""
    batches = pq.ParquetFile(sys.argv[1]).iter_batches(columns=["user", "item"])
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    budget = dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-5)
    strategy = dp.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING  # the best that ends within a minute
    params = dp.SelectPartitionsParams(int(sys.argv[2]), partition_selection_strategy=strategy)
    columns = dp.DataExtractors(privacy_id_extractor=itemgetter(0), partition_extractor=itemgetter(1))
    selected = dp.DPEngine(budget, dp.LocalBackend()).select_partitions(rows, params, columns)
    budget.compute_budgets()
    return len(list(selected))


measure(job)
