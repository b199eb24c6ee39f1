"""Collection from clients by sample-and-threshold.

`client` is what a device needs, `server` counts and releases, `plans` finds rates and thresholds. Names are loaded on
first use: a device that imports `dpsieve.federated.client` loads nothing else. `dpsieve.collect_histogram`,
`collect_heavy_hitters` and `collect_quantiles` run a collection on a table.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsieve.federated import client
    from dpsieve.federated.plans.histogram import plan
    from dpsieve.federated.plans.levels import compare, level_plan
    from dpsieve.federated.server.distribution import Distribution, Quantiles
    from dpsieve.federated.server.histogram import Histogram, Reports
    from dpsieve.federated.server.trie import TrieHeavyHitters, TrieRelease

__all__ = [
    "Distribution", "Histogram", "Quantiles", "Reports", "TrieHeavyHitters", "TrieRelease", "client", "compare",
    "level_plan", "plan",
]  # fmt: skip

_NAMES = {
    "plans.histogram": "plan",
    "plans.levels": "compare level_plan",
    "server.distribution": "Distribution Quantiles",
    "server.histogram": "Histogram Reports",
    "server.trie": "TrieHeavyHitters TrieRelease",
}
_HOME = {name: f"dpsieve.federated.{home}" for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpsieve.federated' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name) if name in _HOME else import_module(f"dpsieve.federated.{name}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
