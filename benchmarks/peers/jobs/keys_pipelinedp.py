"""PipelineDP on its local backend: which keys occur."""

from operator import itemgetter

import pipeline_dp as dp
import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer


def job(rows: str, keys: int, strategy: str) -> dict[str, float]:
    table = pq.read_table(rows, columns=["user", "key"])
    pairs = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    budget = dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=DELTA)
    selection = dp.PartitionSelectionStrategy[strategy.upper()]
    params = dp.SelectPartitionsParams(keys, partition_selection_strategy=selection)
    columns = dp.DataExtractors(privacy_id_extractor=itemgetter(0), partition_extractor=itemgetter(1))
    selected = dp.DPEngine(budget, dp.LocalBackend()).select_partitions(pairs, params, columns)
    budget.compute_budgets()
    return dict.fromkeys(selected, 0.0)


answer(job, "pipeline-dp")
