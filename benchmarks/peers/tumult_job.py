"""Tumult Analytics on Spark: one row for each user; half of epsilon chooses the keys, half counts them.

    tumult_job.py FILE            as its guide writes it, on Spark's settings
    tumult_job.py FILE tuned      with as many partitions as cores, and the bounded rows kept for the second query

Spark is started before the clock.
"""

import os
import sys

from measure import measure
from pyspark.sql import SparkSession
from tmlt.analytics import AddRowsWithID, ApproxDPBudget, KeySet, MaxRowsPerID, QueryBuilder, Session

os.environ["PYSPARK_PYTHON"] = sys.executable
tuned = "tuned" in sys.argv[2:]
settings: dict[str, bool | float | int | str | None] = {"spark.driver.memory": "4g", "spark.ui.enabled": False}
if tuned:
    settings["spark.sql.shuffle.partitions"] = os.cpu_count()
spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()


def job() -> int:
    spark.catalog.clearCache()  # every round starts from the file
    events = spark.read.parquet(sys.argv[1])
    session = Session.from_dataframe(ApproxDPBudget(1.0, 1e-8), "events", events, AddRowsWithID("user"))
    bounded = QueryBuilder("events").enforce(MaxRowsPerID(1))
    if tuned:
        session.create_view(bounded, "bounded", cache=True)
        bounded = QueryBuilder("bounded")
    keys = KeySet.from_dataframe(session.evaluate(bounded.get_groups(["key"]), ApproxDPBudget(0.5, 1e-8)))
    return len(session.evaluate(bounded.groupby(keys).count(), ApproxDPBudget(0.5, 0.0)).collect())


measure(job)
