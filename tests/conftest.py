"""What tests rely on, however they were started."""

import functools
import gc
import importlib.util
import os
import signal
from pathlib import Path

import pytest
from helpers.postgres_server import binaries, running_postgres
from helpers.spark_cluster import missing, running_spark
from hypothesis import HealthCheck, settings

from dpsieve.engines.duckdb import engine as engine_module

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, which processes of tests would inherit


os.environ.setdefault("DPSIEVE_COMPILED", "wait")  # tests are about what is compiled, and start nothing beside them
WITHOUT_JIT = os.environ.get("NUMBA_DISABLE_JIT") == "1"
if WITHOUT_JIT:
    from helpers import without_jit

    without_jit.install()

collect_ignore = ["helpers/wobbly_channels.py"]  # it registers a mechanism, and may be imported under one name only

# The same examples in every run, however slow the machine: `pytest --hypothesis-profile=default` looks for others.
settings.register_profile("dpsieve", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dpsieve")

# These need the same compiled code, which takes long to make: together they go to one of two processes, and the other
# finds it on disk when it comes to steal.
TOGETHER = (
    "accounting", "channels", "common", "estimation", "experiments", "golden", "noise", "numbers", "papers",
    "publication", "randomness", "sampling", "sketches", "sparse",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what needs a server; put rooms that share compiled code first, files in order."""
    for item in items:
        if {"postgres", "spark"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)
    if WITHOUT_JIT:
        items[:] = [item for item in items if not any(name in item.name for name in without_jit.SLOW)]
    items.sort(key=lambda item: (not {*Path(item.nodeid).parts[1:2]} & {*TOGETHER}, item.path))


# What is made while tests are collected stays until the end: to look for garbage in it again and again takes a third of
# the time of collecting, and some of the time of each test.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_unconfigure():
    gc.unfreeze()


def needed(lack):
    """Skip a test that needs what is not installed here; where CI is set, that is a failure."""
    if lack is not None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(lack)


@pytest.fixture(scope="session")
def postgres():
    """Yield the URL of a PostgreSQL server of our own."""
    driver = importlib.util.find_spec("adbc_driver_postgresql")
    needed("adbc-driver-postgresql is not installed" if driver is None else None)
    needed("PostgreSQL is not installed: .ci/run installs it" if binaries() is None else None)
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def spark_events(tmp_path_factory):
    """The folder of the event log of our Spark cluster."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def spark_files(tmp_path_factory):
    """The folder of the temporary files of our Spark cluster."""
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="session")
def spark(spark_events, spark_files):
    """Yield two sessions on a Spark cluster of our own: classic Spark, and Spark Connect."""
    needed(missing())
    with running_spark(spark_events, spark_files) as sessions:
        yield sessions


@pytest.fixture(scope="module")
def one_database():
    """Count on new connections to one database for each setting: to open one takes longer than most counts here."""

    @functools.cache
    def database(**settings):
        return real(settings)

    def connected(settings):
        return database(**{name: value for name, value in settings.items() if name != "temp_directory"}).cursor()

    real = engine_module._connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "_connect", connected)
        yield
