"""Tumult Analytics on Spark: counts of keys that are not known in advance. A part of epsilon chooses the keys."""

import os
import sys

from measure import DELTA, EPSILON, answer
from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, ApproxDPBudget, KeySet, MaxRowsPerID, QueryBuilder, Session

os.environ["PYSPARK_PYTHON"] = sys.executable
settings = {"spark.driver.memory": "4g", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": os.cpu_count()}
spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()


def job(rows: str, keys: int, choice: float) -> dict[str, float]:
    spark.catalog.clearCache()  # every run starts from the file
    session = Session.from_dataframe(
        ApproxDPBudget(EPSILON, DELTA), "rows", spark.read.parquet(rows).select("user", "key"), AddRowsWithID("user")
    )
    session.create_view(QueryBuilder("rows").enforce(MaxRowsPerID(keys)), "bounded", cache=True)
    selected = session.evaluate(QueryBuilder("bounded").get_groups(["key"]), ApproxDPBudget(choice * EPSILON, DELTA))
    counts = QueryBuilder("bounded").groupby(KeySet.from_dataframe(selected)).count()
    released = session.evaluate(counts, ApproxDPBudget((1 - choice) * EPSILON, 0.0))
    return {row["key"]: row["count"] for row in released.collect()}


answer(job, "tmlt.analytics")
