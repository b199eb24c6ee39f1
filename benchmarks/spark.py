"""What a release on Spark costs beside Spark's own counts, in one session: ratios of the best of several runs.

`python benchmarks/spark.py [rows]`; it needs the extra `spark` and Java 17.
"""

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.sql.dialects import query_for
from dpsieve.privacy.contribution import Contribution

ROWS, RUNS = 10_000_000, 3
BUDGET: dict[str, Any] = {"key": "query", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}


def write_rows(path: Path, rows: int) -> None:
    """Write searches: about ten rows a user, a tenth as many queries as rows, most of them rare."""
    random = np.random.default_rng(1)
    users = random.integers(0, rows // 10, rows)
    queries = (rows / 10 * random.random(rows) ** 4).astype(np.int64)
    names = pa.array([f"query number {i}" for i in range(rows // 10)])
    pq.write_table(pa.table({"user": users, "query": names.take(pa.array(queries))}), path, row_group_size=1 << 20)


def session() -> Any:
    """Start Spark on two cores of this machine."""
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings: dict[str, Any] = {
        "spark.driver.memory": "4g",
        "spark.io.encryption.enabled": "true",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    made = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def seconds(act: Callable[[], object]) -> float:
    """Return how long it takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.parquet")
        write_rows(path, rows)
        spark = session()
        frame = spark.read.parquet(str(path))
        frame.createTempView("rows")

        def bounded(keys: int) -> Callable[[], object]:
            task = Aggregation(Columns(("query",), ("user",)), Contribution(keys), salt=7)
            text = query_for("spark", ("rows",), dict(frame.dtypes), task)
            return lambda: spark.sql(text).write.format("noop").mode("overwrite").save()

        plain = frame.groupBy("query").count()
        jobs: dict[str, Callable[[], object]] = {
            "unbounded count": lambda: plain.write.format("noop").mode("overwrite").save(),
            "bounded count, one key": bounded(1),
            "release, one key": lambda: ds.release(frame, max_keys_per_unit=1, **BUDGET),
            "bounded count, ten keys": bounded(10),
            "release, ten keys": lambda: ds.release(frame, max_keys_per_unit=10, **BUDGET),
            "release, bound chosen": lambda: ds.release(frame, max_keys_per_unit="auto", **BUDGET),
        }
        times: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(RUNS):
            for name, job in jobs.items():
                times[name].append(seconds(job))
        spark.stop()
    shown = Table(title=f"{rows:,} rows on Spark, two cores: best of {RUNS} runs")
    for name in ("job", "seconds", "of the unbounded", "of the bounded"):
        shown.add_column(name, justify="left" if name == "job" else "right")
    best = {name: min(each) for name, each in times.items()}
    for name, one in best.items():
        own = best["bounded count, one key" if "one" in name else "bounded count, ten keys"]
        shown.add_row(name, f"{one:.1f}", f"{one / best['unbounded count']:.2f}", f"{one / own:.2f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
