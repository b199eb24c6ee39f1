"""How two processes share the tests, and what stands for the system's randomness in each test.

A run can be repeated: the system source takes the key of its streams from `--seed` and the test's name. Processes that
a test starts draw from the operating system as ever.
"""

import hashlib
import itertools
import os
import threading

import pytest

from dpsieve.randomness import source

# What takes seconds of a processor and is about the whole product, or reproduces papers; `make test-slow` runs it:
# audits of all paths, pages that are run or opened in a browser, stored experiments, files damaged at every byte,
# signals at every step, type checkers.
SLOW = (
    "tests/audit/test_jobs.py", "tests/audit/test_paths.py", "tests/cli/test_notebook.py",
    "tests/compiled/test_code_cache.py", "tests/docs/test_pages.py", "tests/docs/test_site.py", "tests/experiments/",
    "tests/federated/test_service.py", "tests/pages/", "tests/papers/", "tests/publication/test_fuzz.py",
    "tests/publication/test_reserved.py", "tests/typed/",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what is slow, by where it is."""
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


class Backwards(pytest.Dir):
    """A folder that is read from its end."""

    def collect(self):
        """Return what the folder holds, the last first."""
        return reversed(list(super().collect()))


def pytest_collect_directory(path, parent):
    """Let the second process begin at the end: what the first has compiled until they meet is on disk."""
    second = os.environ.get("PYTEST_XDIST_WORKER") == "gw1"
    return Backwards.from_parent(parent, path=path) if second and not (path / "__init__.py").exists() else None


def pytest_addoption(parser):
    """Offer another draw of every test."""
    parser.addoption(
        "--seed", type=int, default=0, help="draw other random numbers in every test (default: %(default)s)"
    )


class Repeatable:
    """The words of every system source in this process, one stream per thread, until the next test begins."""

    def __init__(self, name):
        self.name, self.numbers, self.streams = name, itertools.count(), threading.local()

    def words(self, system, count):
        """Return the next words of this thread; a forked process draws from the operating system."""
        stream = self.streams.__dict__.pop("stream", None) or source.Stream(self.key)
        if not stream.in_own_process():
            return DRAWN(system, count)
        words = stream.words(count)
        self.streams.stream = stream
        return words

    def key(self, size):
        """Return the key of the next stream."""
        return hashlib.shake_256(f"{self.name} {next(self.numbers)}".encode()).digest(size)


DRAWN = source.SystemSource.words


def _seed(config, name):
    repeatable = Repeatable(f"{config.getoption('seed')} {name}")
    source.SystemSource.words = lambda system, count: repeatable.words(system, count)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """Draw what a fixture of several tests needs from its own name, whichever test comes first."""
    if fixturedef.scope != "function":
        _seed(request.config, f"{request.node.nodeid} {fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    """Draw what a test needs from its name, unless it is marked as one of the system's source."""
    if item.get_closest_marker("system_source"):
        source.SystemSource.words = DRAWN
    else:
        _seed(item.config, item.nodeid)
