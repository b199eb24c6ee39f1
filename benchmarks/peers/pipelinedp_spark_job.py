"""PipelineDP on Spark: one random key for each user, then noisy counts over a threshold; Spark starts first."""

import os
import sys
from operator import itemgetter

import pipeline_dp as dp
from measure import measure
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
settings = {"spark.driver.memory": "4g", "spark.ui.enabled": False, "spark.default.parallelism": os.cpu_count()}
spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()


def job() -> int:
    rows = spark.read.parquet(sys.argv[1]).select("user", "key").rdd.map(tuple)
    budget = dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-8)
    params = dp.AggregateParams(
        metrics=[dp.Metrics.PRIVACY_ID_COUNT],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        post_aggregation_thresholding=True,  # one noise for choice and count: the budget is not split
    )
    user, key = itemgetter(0), itemgetter(1)
    columns = dp.DataExtractors(privacy_id_extractor=user, partition_extractor=key, value_extractor=key)
    released = dp.DPEngine(budget, dp.SparkRDDBackend(spark.sparkContext)).aggregate(rows, params, columns)
    budget.compute_budgets()
    return len(released.collect())


measure(job, rounds=1)  # it takes minutes
