"""Discovery on a table, in one call: which keys occur.

The order is that of `jobs.release`: check the arguments and the columns, bound and read, write the spend down, draw.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dpsieve.discovery.choice import best_for, make_selector
from dpsieve.discovery.key_sets import KeySet, key_set
from dpsieve.discovery.selector import Selector, WeightSelector
from dpsieve.discovery.typical_size import TypicalSize
from dpsieve.engines import Engine, choose
from dpsieve.jobs.request import DiscoverRequest
from dpsieve.privacy.composed import Composed, Use, remaining
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import Ledger, charge, opened
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.types import Ints

SHARE_FOR_SIZE = 0.02  # of epsilon, for the median number of keys that decides how keys are selected


class Selection(NamedTuple):
    """A selector, what a unit goes through in all, and why it was chosen."""

    selector: Selector
    mechanism: Mechanism
    reason: str


def discover(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    privacy_unit: str | None = None,
    max_keys_per_unit: int | None = None,
    mechanism: str = "auto",
    typical_keys: int | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    note: str = "",
    progress: Callable[[float], None] | None = None,
    source: Source | None = None,
) -> KeySet:
    """Find which keys occur in a table (set union), with (epsilon, delta)-differential privacy.

    Neighbours are add/remove of one privacy unit with all its rows. Each unit keeps at most `max_keys_per_unit` of its
    distinct keys, chosen by a hash with a fresh secret salt. Only keys are published; `dpsieve.release` adds counts.

    Args:
        data, key, privacy_unit, allow_null_units, engine, ledger, note, progress, source: see `dpsieve.release`.
        epsilon, delta: the budget of this discovery.
        max_keys_per_unit: how many keys a unit may add; default 100.
        mechanism: 'auto', or the name of a selector: 'renyi', 'renyi_two_rounds', 'greedy', 'one_key',
            'weighted_gaussian', 'policy_gaussian', 'policy_greedy', 'repeated_rounds'; see the page on discovery.
        typical_keys: how many distinct keys a unit typically holds, if that is public knowledge. 'auto' chooses by it;
            without it, 2 % of epsilon buy a private median.

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(400)], "query": ["tea"] * 400 + ["milk"] * 399 + ["secret"]})
    >>> discover(log, key="query", privacy_unit="user", epsilon=1.0, delta=1e-8).table.column("query").to_pylist()
    ['milk', 'tea']
    """
    request = DiscoverRequest.of(locals())
    found, book, source = known_selection(request), opened(ledger, note), resolve(source)
    cost = whole(request) if found is None else found.mechanism
    if book is not None:
        book.check(cost, note)
    chosen, options = choose(data, engine), options_of(request, source, progress)
    if found is not None and isinstance(found.selector, WeightSelector):
        counted = chosen.aggregate(data, request.columns, request.contribution, found.selector.weight, **options)
        charge(book, cost, note)
        keys, selected = counted.keys, found.selector.select_by_weights(counted.frequencies, source)
    else:
        held = chosen.incidence(data, request.columns, request.contribution, **options)
        charge(book, cost, note)
        found = found or bought_selection(request, held.sizes, source)
        keys, selected = held.keys, found.selector.select(held, source)
    return key_set(
        found.mechanism,
        keys.filter(selected),
        source=source,
        contribution=str(request.contribution),
        reason=found.reason,
    )


def whole(request: DiscoverRequest) -> Guarantee:
    """Return what a discovery promises, whatever selector a private median leads to."""
    return Guarantee(request.epsilon, request.delta, unit=request.unit)


def options_of(request: DiscoverRequest, source: Source, progress: Callable[[float], None] | None) -> dict[str, Any]:
    """Return how an engine reads the data of a request, with a fresh salt."""
    salt = uniform_bits(source, 63)
    return {"salt": salt, "allow_null_units": request.allow_null_units, "progress": progress}


def known_selection(request: DiscoverRequest) -> Selection | None:
    """Return the selector of a request; None where a private median decides."""
    keys, typical = request.contribution.keys, request.typical_keys
    if request.mechanism != "auto":
        name, reason = request.mechanism, "requested by the caller"
    elif keys == 1:
        name, reason = "one_key", "no private mechanism reports keys of units with one key more often"
    elif typical is not None:
        name, reason = best_for(typical)
    else:
        return None
    selector = make_selector(name, request.epsilon, request.delta, keys, typical_keys=typical, unit=request.unit)
    return Selection(selector, selector, reason)


def bought_selection(request: DiscoverRequest, sizes: Ints, source: Source) -> Selection:
    """Spend a part of epsilon on the typical number of keys, and return the selector for it."""
    size = TypicalSize(request.epsilon * SHARE_FOR_SIZE, request.contribution.keys, unit=request.unit)
    typical, rest = size.draw(sizes, source), remaining(request.epsilon, size.epsilon)
    name, reason = best_for(typical)
    keys = request.contribution.keys
    selector = make_selector(name, rest, request.delta, keys, typical_keys=typical, unit=request.unit)
    mechanism = Composed(request.epsilon, request.delta, (Use(size), Use(selector)))
    return Selection(selector, mechanism, f"{reason}, by a private median")
