"""SmartNoise SQL on pandas: the mean of a column per key; keys are not known in advance."""

import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer
from snsql import Privacy, from_df

QUERY = "SELECT item, AVG(rating) AS mean FROM data.rows GROUP BY item"


def job(rows: str, keys: int, low: float, high: float) -> dict[str, float]:
    frame = pq.read_table(rows, columns=["user", "key", "value"]).to_pandas()
    frame.columns = ["person", "item", "rating"]
    number = {"type": "float", "lower": low, "upper": high}
    columns = {"person": {"type": "string", "private_id": True}, "item": {"type": "string"}, "rating": number}
    table = {"max_ids": keys, "censor_dims": True, "clamp_counts": False, **columns}
    metadata = {"": {"data": {"rows": table}}}
    cost, _ = from_df(frame, privacy=Privacy(1.0, DELTA), metadata=metadata).get_privacy_cost(QUERY)
    reader = from_df(frame, privacy=Privacy(EPSILON / cost, DELTA), metadata=metadata)  # epsilon is per column there
    return {item: float(mean) for item, mean in reader.execute(QUERY)[1:]}


answer(job, "smartnoise-sql")
