"""A Spark cluster for tests: two executors in processes of their own, for classic Spark and for Spark Connect."""

import contextlib
import importlib.util
import os
import shutil
import socket
import sys
from pathlib import Path

# To compile less costs less than to run slowly, for the few rows of tests.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def missing():
    """Return what is not installed here; None where all is."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: make test-engines installs it"
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "Java is not installed: .ci/run installs it"
    return None


@contextlib.contextmanager
def running_spark(events, files):
    """Start a cluster with folders for its event log and its files; yield a session of classic Spark and of Connect."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "spark.driver.extraJavaOptions": JAVA,
        "spark.executor.extraJavaOptions": JAVA,
        "spark.io.encryption.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.local.dir": str(files),
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        **INTERPRETED,
    }
    work = Path(pyspark.__file__).parent / "work"  # where executors of this mode write their logs
    classic = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
    try:
        classic.sparkContext.setLogLevel("OFF")
        connect = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").create()
        yield classic, connect
        connect.stop()
    finally:
        classic.stop()
        shutil.rmtree(work, ignore_errors=True)
