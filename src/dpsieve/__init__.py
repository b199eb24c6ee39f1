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
    from dpsieve import channels, engines, errors, federated, papers, privacy, testing
    from dpsieve.auditing.audit import Audit, audit
    from dpsieve.discovery.key_sets import HittingSet, KeySet, TopK
    from dpsieve.engines.inputs.files import files
    from dpsieve.estimation.estimated_sums import EstimatedSum
    from dpsieve.jobs.choose_epsilon import choose_epsilon
    from dpsieve.jobs.collect import collect_heavy_hitters, collect_histogram, collect_quantiles
    from dpsieve.jobs.discover import discover, hitting_set, top_k
    from dpsieve.jobs.numbers import mean, quantile, sum  # noqa: A004
    from dpsieve.jobs.preview import preview
    from dpsieve.jobs.release import release
    from dpsieve.jobs.release_counts import release_counts
    from dpsieve.numbers.estimate import Estimate
    from dpsieve.privacy.certificate import Certificate
    from dpsieve.privacy.guarantee import Guarantee
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.publication import Release
    from dpsieve.sampling import Sample, everything, ppswor, priority
    from dpsieve.sketches import MisraGries, UserMisraGries
    from dpsieve.sparse.vector import SparseVector

__all__ = [
    "Audit", "Certificate", "Estimate", "EstimatedSum", "Guarantee", "HittingSet", "KeySet", "Ledger", "MisraGries",
    "Release", "Sample", "SparseVector", "TopK", "UserMisraGries", "audit", "channels", "choose_epsilon",
    "collect_heavy_hitters", "collect_histogram", "collect_quantiles", "discover", "engines", "errors",
    "everything", "federated", "files", "hitting_set", "mean", "papers", "ppswor", "preview", "priority", "privacy",
    "quantile", "release", "release_counts", "sum", "testing", "top_k",
]  # fmt: skip

# What is named here is loaded on first use, so that `import dpsieve` and `dpsieve --help` answer at once.
_NAMES = {
    "auditing.audit": "Audit audit",
    "discovery.key_sets": "HittingSet KeySet TopK",
    "engines.inputs.files": "files",
    "jobs.choose_epsilon": "choose_epsilon",
    "jobs.collect": "collect_heavy_hitters collect_histogram collect_quantiles",
    "jobs.discover": "discover hitting_set top_k",
    "jobs.numbers": "mean quantile sum",
    "jobs.preview": "preview",
    "jobs.release": "release",
    "jobs.release_counts": "release_counts",
    "privacy.certificate": "Certificate",
    "privacy.guarantee": "Guarantee",
    "privacy.ledger": "Ledger",
    "publication": "Release",
    "sampling": "Sample everything ppswor priority",
    "sketches": "MisraGries UserMisraGries",
    "estimation.estimated_sums": "EstimatedSum",
    "numbers.estimate": "Estimate",
    "sparse.vector": "SparseVector",
}
_PACKAGES = ("estimation", "randomness", "sampling", "sketches")  # for those who look inside
_HOME = {name: f"dpsieve.{home}" for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _PACKAGES:
        raise AttributeError(f"module 'dpsieve' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name) if name in _HOME else import_module(f"dpsieve.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
