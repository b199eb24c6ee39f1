"""What works without the large dependencies, as docs/guides/containers.md says."""

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "containers.md"
HEAD = """
import sys
allowed = sys.argv[1].split()
class OnlyThese:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in ("numba", "llvmlite", "duckdb", "sqlglot", "typer", "rich", "numpy", "pyarrow", "scipy", "flint",
                   "cryptography") and top not in allowed:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, OnlyThese())
"""
SERVER = """
import tempfile, dpsieve as ds
histogram = ds.federated.Histogram(ds.federated.plan(epsilon=1.0, delta=1e-8))
tally = histogram.tally()
reports = [histogram.client_report(order) for order in ["tea"] * 2000 + ["a secret recipe"]]
tally.add([None if report is None else report.to_bytes() for report in reports])
release = tally.release()
assert release.table["key"].to_pylist() == ["tea"]
place = tempfile.mkdtemp() + "/published"
release.save(place)
assert ds.Release.load(place).table.equals(release.table)
counts = ds.channels.optimal(epsilon=1.0, delta=1e-8).release(["tea", "mate"], [900, 1])
assert counts.table["key"].to_pylist() == ["tea"]
"""


def run(code, allowed=""):
    done = subprocess.run([sys.executable, "-c", HEAD + code, allowed], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_counts_with_the_packages_of_the_guide():
    """Those that the recipe installs before the wheel itself."""
    packages = re.search(r"pip install (cryptography [^`]*)`", GUIDE.read_text())[1]
    run(SERVER, packages.replace("python-flint", "flint"))


def test_a_device_needs_the_standard_library_alone():
    run("import dpsieve.federated.client, dpsieve.errors")
