"""A release on a Spark that runs slow tasks twice; `test_spark` starts it, as one process has one Spark.

    speculation.py FOLDER        prints the reported keys and tokens as JSON

Each attempt notes what it drew in FOLDER/noted. The first one of partition 0 stops half-way until another runs beside
it, and then both go on to the end. Spark starts such an attempt on another host only: its workers have two addresses.
"""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from helpers.spark_cluster import INTERPRETED, JAVA

import dpsieve as ds
from dpsieve.engines import Spark
from dpsieve.engines import spark as spark_engine
from dpsieve.engines.spark import draw_batches

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA,
    "spark.io.encryption.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
    **INTERPRETED,
}


def slow_once(noted, mechanism, name, version, batches):
    """Draw as executors do, and note it."""
    from pyspark import TaskContext  # tests without servers look at this file, too, and have no Spark

    context, rows = TaskContext.get(), pa.Table.from_batches(draw_batches(mechanism, name, version, batches))
    part, half = context.partitionId(), len(rows) // 2
    pa.parquet.write_table(rows, f"{noted}/{part}-{context.taskAttemptId()}")
    yield from rows.slice(0, half).combine_chunks().to_batches()
    until = time.monotonic() + 60
    while part == 0 and len(list(Path(noted).glob("0-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    yield from rows.slice(half).combine_chunks().to_batches()


def main(folder: Path) -> None:
    import pyspark
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": JAVA}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    start, address = Path(pyspark.__file__).parent / "bin" / "spark-class", f"spark://127.0.0.1:{port}"
    server = "org.apache.spark.deploy"
    commands = [[f"{server}.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", 0]]
    for host in ("127.0.0.1", "127.0.0.2"):
        how = ["--host", host, "--cores", 1, "--memory", "512m", "--work-dir", folder / host, "--webui-port", 0]
        commands += [[f"{server}.worker.Worker", *how, address]]
    (folder / "noted").mkdir()
    with ExitStack() as stack:
        for command in commands:
            started = stack.enter_context(
                subprocess.Popen([str(part) for part in (start, *command)], stderr=subprocess.DEVNULL)
            )
            stack.callback(started.terminate)
        spark = SparkSession.builder.master(address).config(map=SETTINGS).getOrCreate()
        stack.callback(spark.stop)
        users = np.arange(3_000)
        frame = spark.createDataFrame(pa.table({"user": users, "query": [f"q{u % 40}" for u in users]}))
        spark_engine.draw_batches = partial(slow_once, str(folder / "noted"))
        engine, how = Spark(folder=folder / "written"), {"epsilon": 1.0, "delta": 1e-8, "report_coverage": False}
        made = ds.release(frame, engine=engine, key="query", privacy_unit="user", max_keys_per_unit=1, **how)
        print(json.dumps(dict(zip(made.keys.column("query").to_pylist(), made.tokens.tolist(), strict=True))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
