"""Tumult Analytics on Spark: the sum or the mean of a column; each row is a unit."""

import os
import sys

from measure import EPSILON, answer
from pyspark.sql import SparkSession
from tmlt.analytics import AddOneRow, PureDPBudget, QueryBuilder, Session

os.environ["PYSPARK_PYTHON"] = sys.executable
settings = {"spark.driver.memory": "4g", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": os.cpu_count()}
spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()


def job(rows: str, low: float, high: float, what: str) -> dict[str, float]:
    spark.catalog.clearCache()  # every run starts from the file
    budget, data = PureDPBudget(EPSILON), spark.read.parquet(rows).select("value")
    session = Session.from_dataframe(budget, "rows", data, AddOneRow())
    query = getattr(QueryBuilder("rows"), {"sum": "sum", "mean": "average"}[what])("value", low, high, "found")
    return {what: session.evaluate(query, budget).first()["found"]}


answer(job, "tmlt.analytics")
