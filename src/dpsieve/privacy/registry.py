"""The registry: a name for each mechanism, under which its saved form is read.

What saved forms promise, from format 1 on: a name keeps its meaning; a field is never removed, and its meaning never
changes; new fields come with a default that means what was meant without them. A name, a field or a format that this
version does not know is refused, never guessed.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.mechanism import Mechanism, restored

_M = TypeVar("_M", bound=type[Mechanism])
_FIX = "Pass what to_json returned."

# The module in which each mechanism registers itself; it is loaded when the name is first read.
_HOMES = {
    "alp": "dpsieve.sparse.alp",
    "composed": "dpsieve.privacy.composed",
    "dense_laplace": "dpsieve.sparse.noisy_tables",
    "entry_list": "dpsieve.sparse.entry_list",
    "find_then_count": "dpsieve.discovery.find_then_count",
    "gap_quantiles": "dpsieve.numbers.gaps",
    "gaussian": "dpsieve.noise.gaussian_threshold",
    "greedy": "dpsieve.discovery.greedy",
    "hitting_set": "dpsieve.discovery.picks",
    "keys_per_unit": "dpsieve.noise.keys_per_unit",
    "known_keys": "dpsieve.noise.known_keys",
    "levels": "dpsieve.federated.plans.levels",
    "max_projection": "dpsieve.sparse.noisy_tables",
    "mean_noise": "dpsieve.numbers.mean_noise",
    "misra_gries": "dpsieve.sketches.laplace_noise",
    "misra_gries_bounded_merge": "dpsieve.papers.thesis.bounded_merge",
    "misra_gries_releases": "dpsieve.papers.thesis.untrusted_aggregator",
    "misra_gries_rounded_sum": "dpsieve.sketches.rounded_noise",
    "misra_gries_sum": "dpsieve.sketches.summed_noise",
    "noisy_ranks": "dpsieve.numbers.search",
    "one_key": "dpsieve.discovery.greedy",
    "one_sided_noise": "dpsieve.sketches.one_sided_noise",
    "optimal": "dpsieve.channels.optimal_channels",
    "policy_gaussian": "dpsieve.papers.missing_mass.policies",
    "policy_greedy": "dpsieve.papers.missing_mass.policies",
    "private_norm": "dpsieve.sparse.private_sizes",
    "private_sparsity": "dpsieve.sparse.private_sizes",
    "private_total": "dpsieve.noise.private_total",
    "quantile_search": "dpsieve.numbers.search",
    "rank_picks": "dpsieve.papers.thesis.rank_picks",
    "renyi": "dpsieve.discovery.renyi",
    "renyi_two_rounds": "dpsieve.discovery.renyi",
    "repeated_rounds": "dpsieve.papers.missing_mass.repeated_rounds",
    "report_then_count": "dpsieve.noise.report_then_count",
    "retrieval": "dpsieve.sparse.retrieval",
    "rows_of_units": "dpsieve.channels.optimal_channels",
    "sample_threshold": "dpsieve.noise.sample_threshold",
    "scaled_noise": "dpsieve.numbers.noise",
    "simple": "dpsieve.channels.optimal_channels",
    "stability": "dpsieve.channels.baselines",
    "top_k": "dpsieve.discovery.picks",
    "truncated_geometric": "dpsieve.channels.baselines",
    "typical_size": "dpsieve.discovery.selector",
    "unit_means": "dpsieve.numbers.box",
    "weighted_gaussian": "dpsieve.discovery.weighted_gaussian",
}
_KNOWN: dict[str, type[Mechanism]] = {}


def register(name: str) -> Callable[[_M], _M]:
    """Return a decorator that gives a dataclass of a mechanism its name; its fields are what is saved.

    The fields must be plain JSON values once `__post_init__` has checked them, or be named in `readers`.
    """

    def named(kind: _M) -> _M:
        known = _KNOWN.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
            raise InvalidValue(f"name={name!r} is taken by another mechanism. Choose another name.")
        kind.name = name
        _KNOWN[name] = kind
        return kind

    return named


def from_json(data: Mapping[str, Any]) -> Mechanism:
    """Make the mechanism again whose `to_json` is given; anything else is refused.

    >>> from_json({"mechanism": "simple", "epsilon": 1.0, "delta": 1e-6})
    <simple channel, epsilon=1, delta=1e-06>
    >>> from_json({"mechanism": "magic"})
    Traceback (most recent call last):
    dpsieve.errors.InvalidValue: data describes no mechanism that this version knows. ...
    """
    if not isinstance(data, Mapping):
        raise InvalidType(f"data must be a mapping, not {type(data).__name__}. {_FIX}")
    name = data.get("mechanism")
    if isinstance(name, str) and name in _HOMES and name not in _KNOWN:
        import_module(_HOMES[name])
    if not isinstance(name, str) or name not in _KNOWN:
        raise InvalidValue(f"data describes no mechanism that this version knows. {_FIX} Or install a newer dpsieve.")
    values = {field: value for field, value in data.items() if field != "mechanism"}
    return restored(_KNOWN[name], values, f"the mechanism {name!r}")
