"""Spark: its suite runs in a process of its own, as it takes three Java processes; what needs no Java is here.

To run the suite by itself: `pytest tests/engines/on_spark.py`.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from dpsieve.engines import Spark
from dpsieve.engines.spark.engine import _check_session
from dpsieve.errors import InvalidType, InvalidValue


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
@pytest.mark.skipif("JAVA_HOME" not in os.environ and shutil.which("java") is None, reason="there is no Java")
def test_the_suite_on_spark():
    suite = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "on_spark.py"]
    done = subprocess.run(suite, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]


class Session:
    """What is asked of a session before anything runs on it."""

    def __init__(self, master="local[2]", encrypted="true"):
        self.conf = {"spark.master": master, "spark.io.encryption.enabled": encrypted}


def test_files_that_spark_would_not_encrypt_are_warned_of():
    with pytest.warns(UserWarning, match=r"spark\.io\.encryption\.enabled is not set"):
        _check_session(Session(encrypted="false"), None)
    _check_session(Session(), None)


def test_machines_that_share_no_temporary_folder_need_one():
    with pytest.raises(InvalidValue, match=r"Pass engine=dpsieve.engines.Spark\(folder=...\)"):
        _check_session(Session("spark://far:7077"), None)
    _check_session(Session("spark://far:7077"), "s3a://bucket/folder")


def test_what_spark_does_not_read():
    with pytest.raises(InvalidType, match="folder must be a path, not int"):
        Spark(folder=3)
    with pytest.raises(InvalidType, match=r"data is not read by Spark\. Pass a Spark DataFrame or files"):
        Spark().columns(pa.table({"a": [1]}))
    assert repr(Spark(folder="/shared/")) == "Spark(folder='/shared')"
