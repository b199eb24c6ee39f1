"""Two processes that run the tests read their files from either end."""

import os

import pytest


class Backwards(pytest.Dir):
    """A folder that is read from its end."""

    def collect(self):
        """Return what the folder holds, the last first."""
        return reversed(list(super().collect()))


def pytest_collect_directory(path, parent):
    """Let the second process begin at the end: what the first has compiled until they meet is on disk."""
    second = os.environ.get("PYTEST_XDIST_WORKER") == "gw1"
    return Backwards.from_parent(parent, path=path) if second and not (path / "__init__.py").exists() else None
