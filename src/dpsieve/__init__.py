"""Publish which keys occur in sensitive data, and how often, under differential privacy.

>>> import dpsieve as ds
>>> channel = ds.channels.optimal(epsilon=1.0, delta=1e-8)
>>> channel.release(["tea", "coffee"], [1000, 2000]).table.column("key").to_pylist()
['coffee', 'tea']
"""

from importlib import import_module
from time import time
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
_LOADED_AT = time()  # before any other module: see `dpsieve.compiled.jit`

if TYPE_CHECKING:
    from dpsieve import (
        channels,
        engines,
        errors,
        estimation,
        federated,
        papers,
        privacy,
        randomness,
        sampling,
        sketches,
        testing,
    )  # fmt: skip
    from dpsieve.discovery.key_sets import HittingSet, KeySet, TopK
    from dpsieve.engines.inputs.files import files
    from dpsieve.estimation.estimated_sums import EstimatedSum
    from dpsieve.jobs.collect import collect_numbers, collect_strings, collect_table
    from dpsieve.jobs.discover import discover, hitting_set, top_k
    from dpsieve.jobs.numbers import mean_of, quantile_of, sum_of
    from dpsieve.jobs.release import preview, release
    from dpsieve.jobs.release_counts import release_counts
    from dpsieve.numbers.estimate import Estimate
    from dpsieve.numbers.mean import private_mean
    from dpsieve.numbers.mean_plan import preview_mean
    from dpsieve.numbers.quantiles import private_quantile
    from dpsieve.numbers.sums import private_sum
    from dpsieve.privacy import Certificate, Guarantee
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.publication import Release
    from dpsieve.sampling import Sample, everything, ppswor, priority
    from dpsieve.sketches import MisraGries, UserMisraGries
    from dpsieve.sparse.vector import SparseVector

__all__ = [
    "Certificate", "Estimate", "EstimatedSum", "Guarantee", "HittingSet", "KeySet", "Ledger", "MisraGries", "Release",
    "Sample", "SparseVector", "TopK", "UserMisraGries", "channels", "collect_numbers", "collect_strings",
    "collect_table", "discover", "engines", "errors", "estimation", "everything", "federated", "files", "hitting_set",
    "mean_of", "papers", "ppswor", "preview", "preview_mean", "priority", "privacy", "private_mean", "private_quantile",
    "private_sum", "quantile_of", "randomness", "release", "release_counts", "sampling", "sketches", "sum_of",
    "testing", "top_k",
]  # fmt: skip

# What is named here is loaded on first use, so that `import dpsieve` and `dpsieve --help` answer at once.
_NAMES = {
    "discovery.key_sets": "HittingSet KeySet TopK",
    "engines.inputs.files": "files",
    "jobs.collect": "collect_numbers collect_strings collect_table",
    "jobs.discover": "discover hitting_set top_k",
    "jobs.numbers": "mean_of quantile_of sum_of",
    "jobs.release": "preview release",
    "jobs.release_counts": "release_counts",
    "privacy": "Certificate Guarantee",
    "privacy.ledger": "Ledger",
    "publication": "Release",
    "sampling": "Sample everything ppswor priority",
    "sketches": "MisraGries UserMisraGries",
    "estimation.estimated_sums": "EstimatedSum",
    "numbers.estimate": "Estimate",
    "numbers.mean_plan": "preview_mean",
    "numbers.mean": "private_mean",
    "numbers.quantiles": "private_quantile",
    "numbers.sums": "private_sum",
    "sparse.vector": "SparseVector",
}
_HOME = {name: f"dpsieve.{home}" for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpsieve' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name) if name in _HOME else import_module(f"dpsieve.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
