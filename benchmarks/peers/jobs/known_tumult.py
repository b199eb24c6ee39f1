"""Tumult Analytics on Spark: counts of known keys."""

import os
import sys

from measure import EPSILON, answer
from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, KeySet, MaxRowsPerID, PureDPBudget, QueryBuilder, Session

os.environ["PYSPARK_PYTHON"] = sys.executable
settings = {"spark.driver.memory": "4g", "spark.ui.enabled": False, "spark.sql.shuffle.partitions": os.cpu_count()}
spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()


def job(rows: str, keys: int, known: str) -> dict[str, float]:
    spark.catalog.clearCache()  # every run starts from the file
    session = Session.from_dataframe(
        PureDPBudget(EPSILON), "rows", spark.read.parquet(rows).select("user", "key"), AddRowsWithID("user")
    )
    names = KeySet.from_dataframe(spark.read.parquet(known))
    counts = QueryBuilder("rows").enforce(MaxRowsPerID(keys)).groupby(names).count()
    return {row["key"]: row["count"] for row in session.evaluate(counts, PureDPBudget(EPSILON)).collect()}


answer(job, "tmlt.analytics")
