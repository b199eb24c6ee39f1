"""Discovery on a table, in one call: which keys occur, the k most frequent, and k keys that reach most units.

The order is that of `jobs.release`: check the arguments and the columns, bound and read, write the spend down, draw.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from dpsieve.accounting.stages import steepest
from dpsieve.channels.budget import SMALLEST_EPSILON
from dpsieve.discovery.after_selection import KeyPicker
from dpsieve.discovery.choice import best_for, make_selector, shared_selector
from dpsieve.discovery.hitting_set import hitting_keys
from dpsieve.discovery.key_sets import HittingSet, KeySet, TopK, selected_table, top_table
from dpsieve.discovery.median_keys import SHARE_FOR_SIZE, median_first
from dpsieve.discovery.selector import Selector, WeightSelector
from dpsieve.discovery.top_k import top_keys
from dpsieve.engines import Engine, choose, locate_data
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.errors import InvalidValue
from dpsieve.jobs.request import DiscoverRequest, HitRequest, TopRequest
from dpsieve.privacy.composed import Composed, Use, remaining
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger, charge, opened
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.types import Ints
from dpsieve.values.keys import published

SHARE_FOR_COUNTS = 0.2  # of what the selection leaves, for the counts of a top-k
ALL_KEYS = Contribution(10**12)

Progress = Callable[[float], None] | bool | None
_Picked = TypeVar("_Picked", TopK, HittingSet)


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
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    mechanism: str = "auto",
    typical_keys: int | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> KeySet:
    """Find which keys occur in a table (set union), with (epsilon, delta)-differential privacy.

    Neighbours are add/remove of one privacy unit with all its rows. Each unit keeps at most `max_keys_per_unit` of its
    distinct keys, chosen by a hash with a fresh secret salt. Only keys are published; `dpsieve.release` adds counts.

    Args:
        data, key, privacy_unit, allow_null_units, engine, table, ledger, note, progress, source: see `dpsieve.release`.
        epsilon, delta: the budget of this discovery.
        max_keys_per_unit: how many keys a unit may add; default 100.
        mechanism: 'auto', or the name of a selector: 'renyi', 'renyi_two_rounds', 'greedy', 'one_key',
            'weighted_gaussian', 'policy_gaussian', 'policy_greedy', 'repeated_rounds'; see the page on discovery.
        typical_keys: how many distinct keys a unit typically holds, if that is public knowledge. 'auto' chooses by it;
            without it, 1 % of epsilon buys a private median.

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(400)], "query": ["tea"] * 400 + ["milk"] * 399 + ["secret"]})
    >>> discover(log, key="query", privacy_unit="user", epsilon=1.0, delta=1e-8).table.column("query").to_pylist()
    ['milk', 'tea']
    """
    request = DiscoverRequest.of(locals())
    data, engine = locate_data(data, table, engine)
    chosen, book, source = choose(data, engine), opened(ledger, note), resolve(source)
    found = _known_selection(request, chosen)
    cost = Guarantee(request.epsilon, request.delta, unit=request.unit) if found is None else found.mechanism
    if book is not None:
        book.check(cost, note)
    options = _options(request, source, progress)
    if found is not None and isinstance(found.selector, WeightSelector):
        kept = Contribution(found.selector.max_keys)
        counted = chosen.aggregate(data, request.columns, kept, found.selector.weight, **options)
        selection, invented = found, Pairs.of([["a key"]])
        sums = Counted(invented.keys, invented.weights(found.selector.weight))
        with charge(book, cost, note, lambda: sums.draw(selection.selector, resolve(None))) as entry:
            keys, _ = counted.draw(found.selector, source)
    else:
        held = chosen.read_pairs(data, request.columns, request.contribution, **options)
        if found is not None:
            found.selector.check(held)
        with charge(book, cost, note, lambda: _selected(request, found, held.make_dummy(), resolve(None))) as entry:
            selection, keys = _selected(request, found, held, source)
    made = KeySet.of(selection.mechanism, selected_table(keys), source=source, reason=selection.reason)
    return replace(made, notes=replace(made.notes, entry=entry))


def _selected(
    request: DiscoverRequest, known: Selection | None, held: Pairs, source: Source
) -> tuple[Selection, pa.Table]:
    """Return the selector, and the keys that it selects from what is paid for."""
    selection = known or _bought_selection(request, held.sizes, source)
    return selection, held.keys.filter(selection.selector.select(held, source))


def top_k(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    k: int,
    counts: bool = False,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    mechanism: str = "auto",
    typical_keys: int | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> TopK:
    """Find the k keys that most units hold, the most common first, with (epsilon, delta)-differential privacy.

    First keys are discovered, then k of them are picked by noisy order. `max_keys_per_unit` bounds what a unit adds to
    the discovery; the order counts all its keys. Fewer than k rows mean that fewer keys were discovered.

    Args:
        k: how many keys to find.
        counts: publish noisy counts of the found keys too, for a fifth of the budget that discovery leaves.
        mechanism: the selector that discovers keys; 'auto' and the Renyi ones share one budget with the picks, others
            get half of epsilon and delta.
        data, key, epsilon, delta, privacy_unit, max_keys_per_unit, typical_keys, allow_null_units, engine, table,
            ledger, note, progress, source: see `dpsieve.discover`.

    >>> import pyarrow as pa
    >>> log = pa.table({"drink": ["tea"] * 4000 + ["milk"] * 3000 + ["mate"] * 2000})
    >>> top_k(log, key="drink", k=2, epsilon=1.0, delta=1e-8).table.column("drink").to_pylist()
    ['tea', 'milk']
    """
    request = TopRequest.of(locals())
    data, engine = locate_data(data, table, engine)
    share = SHARE_FOR_COUNTS if request.counts else 0.0
    made = top_keys(**_budget(request, 0.15), count_share=share)

    def pick(held: Pairs, source: Source) -> TopK:
        found = made.selector.select(held.bound(made.max_keys), source)
        numbers, keys = held.counts()[found], held.keys.filter(found)
        order = made.pick(numbers, source)
        noisy = made.noisy_counts(numbers[order], source) if request.counts else None
        return TopK.of(made, top_table(made, keys.take(pa.array(order)), noisy), source=source, reason=_by(made))

    return _picked(pick, data, request, made, engine, ledger, note, progress, source)


def hitting_set(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    k: int,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    mechanism: str = "auto",
    typical_keys: int | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> HittingSet:
    """Find k keys such that most units hold at least one of them, with (epsilon, delta)-differential privacy.

    First keys are discovered, then picked one after the other, each by the noisy number of units that hold it and no
    earlier one. `max_keys_per_unit` bounds what a unit adds to the discovery; the picks see all its keys.

    Args:
        k: how many keys to find.
        mechanism: the selector that discovers keys, as for `dpsieve.top_k`.
        data, key, epsilon, delta, privacy_unit, max_keys_per_unit, typical_keys, allow_null_units, engine, table,
            ledger, note, progress, source: see `dpsieve.discover`.

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(300), *range(300, 400)],
    ...                 "drink": ["water"] * 400 + ["tea"] * 300 + ["milk"] * 100})
    >>> hitting_set(log, key="drink", privacy_unit="user", k=1, epsilon=1.0, delta=1e-8).table.column(0).to_pylist()
    ['water']
    """
    request = HitRequest.of(locals())
    data, engine = locate_data(data, table, engine)
    made = hitting_keys(**_budget(request, 0.5))

    def pick(held: Pairs, source: Source) -> HittingSet:
        among = held.restrict(made.selector.select(held.bound(made.max_keys), source))
        table = published(among.keys.take(pa.array(made.pick(among, source))))
        return HittingSet.of(made, table, source=source, reason=_by(made))

    return _picked(pick, data, request, made, engine, ledger, note, progress, source)


def _options(request: DiscoverRequest, source: Source, progress: Progress) -> dict[str, Any]:
    """Return how an engine reads the data of a request, with a fresh salt."""
    salt = uniform_bits(source, 63)
    return {"salt": salt, "allow_null_units": request.allow_null_units, "progress": progress}


def _known_selection(request: DiscoverRequest, engine: Engine) -> Selection | None:
    """Return the selector of a request; None where a private median decides.

    Where the engine does not tell which units hold which keys, it is one that looks at sums of weights alone.
    """
    keys, typical = request.contribution.keys, request.typical_keys
    if request.mechanism != "auto":
        name, reason = request.mechanism, "requested by the caller"
    elif keys == 1:
        name, reason = "one_key", "no private mechanism reports keys of units with one key more often"
    elif not engine.supports_pairs:
        name, reason = "renyi", f"{type(engine).__name__} gives sums of weights"
    elif typical is not None:
        name, reason = best_for(typical)
    elif request.epsilon * (1 - SHARE_FOR_SIZE) < SMALLEST_EPSILON * 1.001:
        name, reason = "renyi", "epsilon is too small to buy the typical number of keys"
    else:
        return None
    selector = make_selector(name, request.epsilon, request.delta, keys, typical_keys=typical, unit=request.unit)
    if not engine.supports_pairs and not isinstance(selector, WeightSelector):
        why = f"needs to know which units hold which keys, which {type(engine).__name__} does not tell"
        fix = "Choose 'auto', 'renyi' or 'weighted_gaussian', or 'one_key' for one key a unit."
        raise InvalidValue(f"mechanism={name!r} {why}. {fix}")
    return Selection(selector, selector, reason)


def _bought_selection(request: DiscoverRequest, sizes: Ints, source: Source) -> Selection:
    """Spend a part of epsilon on the typical number of keys, and return the selector for it.

    The median is an output, by which an adversary could choose among selectors. Each of them is for a smaller delta,
    and either for all of epsilon and not steeper than `privacy.stages.steepest`, or for what the median leaves of it.
    """
    keys, most = request.contribution.keys, steepest(request.epsilon, request.delta)
    size = median_first(request.epsilon, keys, unit=request.unit)
    typical, delta = size.draw(sizes, source), size.delta_left(request.epsilon, request.delta)
    left = remaining(request.epsilon, size.epsilon)

    def made(name: str, epsilon: float) -> Selector:
        return make_selector(name, epsilon, delta, keys, typical_keys=typical, unit=request.unit)

    name, reason = best_for(typical)
    try:
        selector = made(name, left if name == "greedy" else request.epsilon)
        if selector.steepness > most:
            selector = made(name, left)
    except InvalidValue:  # it is paid for: take what serves every budget
        selector = made("greedy", left)
        reason = f"no {name} table fits this budget, chosen"
    mechanism = Composed(request.epsilon, request.delta, (Use(size), Use(selector)))
    return Selection(selector, mechanism, f"{reason}, by a private median")


def _budget(request: HitRequest, share: float) -> dict[str, Any]:
    """Return what makers of pickers take; the selector gets a share of their Renyi budget, or half of epsilon."""
    epsilon, delta, keys, unit = request.epsilon, request.delta, request.contribution.keys, request.unit
    selector = shared_selector(request.mechanism, epsilon, delta, keys, share, request.typical_keys, unit)
    return {"epsilon": epsilon, "delta": delta, "max_keys": selector.max_keys, "k": request.k, "selector": selector}


def _picked(
    pick: Callable[[Pairs, Source], _Picked],
    data: Any,
    request: HitRequest,
    made: KeyPicker,
    engine: Engine | None,
    ledger: AnyLedger,
    note: str,
    progress: Progress,
    source: Source | None,
) -> _Picked:
    """Read all keys of all units, charge the mechanism, and pick."""
    book, source = opened(ledger, note), resolve(source)
    if book is not None:
        book.check(made, note)
    held = choose(data, engine).read_pairs(data, request.columns, ALL_KEYS, **_options(request, source, progress))
    made.selector.check(held)
    with charge(book, made, note, lambda: pick(held.make_dummy(), resolve(None))) as entry:
        found = pick(held, source)
    return replace(found, notes=replace(found.notes, entry=entry))


def _by(made: KeyPicker) -> str:
    return f"{made.k:,} picks among the keys of {made.selector.name} selection"
