"""What tests rely on, however they were started."""

import functools
import gc
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from postgres_server import binaries, running_postgres

from dpsieve.engines.duckdb import engine as engine_module

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, which processes of tests would inherit


# The same examples in every run, however slow the machine: `pytest --hypothesis-profile=default` looks for others.
settings.register_profile("dpsieve", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dpsieve")

# These need the same compiled code, which takes long to make: together they go to one of two processes, and the other
# finds it on disk when it comes to steal.
TOGETHER = ("channels", "common", "estimation", "publication", "sampling", "sketches", "randomness", "vectors")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put rooms that share compiled code first, and files in their order, in whichever they were read."""
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


@pytest.fixture(scope="session")
def postgres():
    """Yield the URL of a PostgreSQL server of our own."""
    pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed: .ci/run installs it")
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="module")
def one_database():
    """Count on new connections to one database for each setting: to open one takes longer than most counts here."""

    @functools.cache
    def database(**settings):
        return real(settings)

    def connected(settings):
        return database(**{name: value for name, value in settings.items() if name != "temp_directory"}).cursor()

    real = engine_module._connected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "_connected", connected)
        yield
