"""SmartNoise SQL on pandas: counts of keys that are not known in advance, by one query."""

import pyarrow.parquet as pq
from measure import DELTA, EPSILON, answer
from snsql import Mechanism, Privacy, Stat, from_df


def job(rows: str, keys: int, noise: str, censor: bool = True) -> dict[str, float]:
    frame = pq.read_table(rows, columns=["user", "key"]).rename_columns(["person", "item"]).to_pandas()
    columns = {"person": {"type": "int", "private_id": True}, "item": {"type": "string"}}
    table = {"max_ids": keys, "censor_dims": censor, "clamp_counts": False, **columns}
    privacy = Privacy(epsilon=EPSILON, delta=DELTA)
    privacy.mechanisms.map[Stat.count] = Mechanism[noise]
    privacy.mechanisms.map[Stat.threshold] = Mechanism[noise]
    reader = from_df(frame, privacy=privacy, metadata={"": {"data": {"rows": table}}})
    query = "SELECT item, COUNT(DISTINCT person) AS number FROM data.rows GROUP BY item"
    return {item: float(number) for item, number in reader.execute(query)[1:]}


answer(job, "smartnoise-sql")
