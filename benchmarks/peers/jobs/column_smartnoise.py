"""SmartNoise SQL on pandas: the sum or the mean of a column; each row is a unit."""

import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer
from snsql import Privacy, from_df


def job(rows: str, low: float, high: float, what: str) -> dict[str, float]:
    frame = pq.read_table(rows, columns=["value"]).to_pandas()
    columns = {"value": {"type": "float", "lower": low, "upper": high}}
    metadata = {"": {"data": {"rows": {"row_privacy": True, **columns}}}}
    query = f"SELECT {'SUM' if what == 'sum' else 'AVG'}(value) AS found FROM data.rows"
    cost, _ = from_df(frame, privacy=Privacy(1.0, DELTA), metadata=metadata).get_privacy_cost(query)
    reader = from_df(frame, privacy=Privacy(EPSILON / cost, DELTA), metadata=metadata)  # epsilon is per column there
    return {what: float(reader.execute(query)[1][0])}


answer(job, "smartnoise-sql")
