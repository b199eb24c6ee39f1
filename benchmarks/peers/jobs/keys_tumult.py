"""Tumult Analytics on Spark: which keys occur."""

import os
import sys

from measure import DELTA, EPSILON, answer
from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, ApproxDPBudget, MaxRowsPerID, QueryBuilder, Session

os.environ["PYSPARK_PYTHON"] = sys.executable
settings = {"spark.driver.memory": "4g", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": os.cpu_count()}
spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()


def job(rows: str, keys: int) -> dict[str, float]:
    spark.catalog.clearCache()  # every run starts from the file
    budget = ApproxDPBudget(EPSILON, DELTA)
    data = spark.read.parquet(rows).select("user", "key")
    session = Session.from_dataframe(budget, "rows", data, AddRowsWithID("user"))
    groups = QueryBuilder("rows").enforce(MaxRowsPerID(keys)).get_groups(["key"])
    return {row["key"]: 0.0 for row in session.evaluate(groups, budget).collect()}


answer(job, "tmlt.analytics")
