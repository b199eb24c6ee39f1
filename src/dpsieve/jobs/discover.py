"""Discover keys: which occur, the k most frequent, and k keys that reach most units."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa

from dpsieve.channels.channel import ReportedCounts
from dpsieve.discovery.choice import Picks, Selection, SelectorChoice
from dpsieve.discovery.divided_units import DividedUnits
from dpsieve.discovery.greedy import Greedy, OneKey
from dpsieve.discovery.key_sets import HittingSet, KeySet, TopK, selected_table, top_table
from dpsieve.discovery.picks import HittingKeys, KeyPicker, TopKeys, hitting_keys, hitting_lower, top_keys
from dpsieve.discovery.renyi import RenyiSelector
from dpsieve.discovery.selector import Selector, WeightSelector
from dpsieve.engines.engine import Engine
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.jobs.key_columns import describe_rows
from dpsieve.jobs.key_set_request import DiscoverRequest, HittingSetRequest, TopKRequest
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.release import plan_release
from dpsieve.jobs.request import document
from dpsieve.jobs.run import Plan, run
from dpsieve.jobs.table import ALL_KEYS, Table, check_columns
from dpsieve.privacy.guarantee import Contribution, Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Counting, Mechanism
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source
from dpsieve.validate import SelectorName
from dpsieve.values.columns import as_arrow
from dpsieve.values.keys import published

SHARE_FOR_COUNTS = 0.2  # of what the selection leaves, for the counts of a top-k
SHARE_OF_TOP_K, SHARE_OF_HITTING_SET = 0.6, 0.5  # of a unit's weight, for selection

_Picked = TypeVar("_Picked", TopK, HittingSet)
Progress = Callable[[float], None] | bool | None


@document(DiscoverRequest)
def discover(
    data: Any,
    *,
    key: str | Sequence[str] | Mapping[str, str],
    epsilon: float,
    delta: float,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    method: SelectorName = "auto",
    typical_keys: int | None = None,
    min_units: int = 1,
    where: str | None = None,
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

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(400)], "query": ["tea"] * 400 + ["milk"] * 399 + ["secret"]})
    >>> discover(log, key="query", privacy_unit="user", epsilon=1.0, delta=1e-8).table.column("query").to_pylist()
    ['milk', 'tea']
    """
    request = DiscoverRequest.of(locals())
    plan = plan_discover(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source, notes=describe_rows(request.rows))


@document(TopKRequest)
def top_k(
    data: Any,
    *,
    key: str | Sequence[str] | Mapping[str, str],
    epsilon: float,
    delta: float,
    k: int,
    counts: bool = False,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    method: SelectorName = "auto",
    typical_keys: int | None = None,
    min_units: int = 1,
    where: str | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> TopK:
    """Find the k keys that most units hold, the most common first, with (epsilon, delta)-differential privacy.

    They are the k keys with the largest counts of a release with the same arguments, `dpsieve.release(...).top(k)`:
    bound and mechanism are chosen in the same way. Fewer than k rows mean that fewer keys were reported; `notes.rarer`
    then says how common a key must be.

    A named method, and a public number of `typical_keys` above 2, select keys as `dpsieve.discover` does, then pick k
    of them by noisy order. `max_keys_per_unit` then bounds what a unit adds to the selection; the order counts all its
    keys. A Renyi selector shares one budget with the picks; others get half of epsilon and delta.

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"drink": ["tea"] * 4000 + ["milk"] * 3000 + ["mate"] * 2000})
    >>> top_k(log, key="drink", privacy_unit="row", k=2, epsilon=1.0, delta=1e-8).table.column("drink").to_pylist()
    ['tea', 'milk']
    """
    request = TopKRequest.of(locals())
    plan = plan_top_k(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source, notes=describe_rows(request.rows))


@document(HittingSetRequest)
def hitting_set(
    data: Any,
    *,
    key: str | Sequence[str] | Mapping[str, str],
    epsilon: float,
    delta: float,
    k: int,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    method: SelectorName = "auto",
    typical_keys: int | None = None,
    min_units: int = 1,
    where: str | None = None,
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
    earlier one. `max_keys_per_unit` bounds what a unit adds to the discovery; the picks see all its keys. A Renyi
    selector ('auto' takes one) shares one budget with the picks; others get half of epsilon and delta. Where units
    typically hold one key, the keys with the largest counts of the optimal channel are taken instead.

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(300), *range(300, 400)],
    ...                 "drink": ["water"] * 400 + ["tea"] * 300 + ["milk"] * 100})
    >>> hitting_set(log, key="drink", privacy_unit="user", k=1, epsilon=1.0, delta=1e-8).table.column(0).to_pylist()
    ['water']
    """
    request = HittingSetRequest.of(locals())
    plan = plan_hitting_set(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source, notes=describe_rows(request.rows))


def plan_discover(request: DiscoverRequest, table: Table | None) -> Plan[Any, KeySet]:
    """Return the plan of a discovery; without a table it can only be previewed."""
    choice = _choice(request, table)

    def publish(chosen: Selection, keys: pa.Table, source: Source) -> KeySet:
        return KeySet.of(chosen.mechanism, selected_table(keys), source=source, reason=chosen.reason)

    def finish(pairs: Pairs, source: Source) -> KeySet:
        chosen = choice.public or choice.draw(pairs, source)
        selector: Any = chosen.mechanism.last
        return publish(chosen, pairs.keys.filter(selector.select(pairs, source)), source)

    chosen = choice.public
    if chosen is None or not isinstance(chosen.mechanism, WeightSelector):
        return _plan_pairs(request, table, choice, request.contribution, finish)
    selector = chosen.mechanism

    def finish_sums(sums: Counted, source: Source) -> KeySet:
        return publish(chosen, sums.draw(selector, source)[0], source)

    def rehearse(_: Counted, source: Source) -> None:
        invented = Pairs.of([["a key"]])
        finish_sums(Counted(invented.keys, invented.weights(selector.weight)), source)

    def read(source: Source) -> Counted:
        assert table is not None
        return table.counts(request.columns, Contribution(selector.max_keys), source, measure=selector.weight)

    describe = partial(_preview, request, choice)
    return Plan(selector, read, finish_sums, rehearse, check_columns(request, table), describe)


def plan_top_k(request: TopKRequest, table: Table | None) -> Plan[Any, TopK]:
    """Return the plan of a top-k; without a table it can only be previewed."""
    if request.release is not None:
        return _plan_largest(request, plan_release(request.release, table))
    count_share = SHARE_FOR_COUNTS if request.counts else 0.0

    def make(selector: Selector, epsilon: float, delta: float) -> TopKeys:
        return top_keys(epsilon, delta, selector.max_keys, request.k, selector=selector, count_share=count_share)

    choice = _choice(request, table, Picks(SHARE_OF_TOP_K, make))

    def finish(pairs: Pairs, source: Source) -> TopK:
        chosen = choice.public or choice.draw(pairs, source)
        picker: Any = chosen.mechanism.last
        places = picker.find(pairs, source)
        noisy = picker.noisy_counts(pairs.counts()[places], source) if request.counts else None
        rows = top_table(picker, pairs.keys.take(as_arrow(places)), noisy)
        return _publish_picks(TopK, chosen, rows, source)

    return _plan_pairs(request, table, choice, ALL_KEYS, finish)


def _plan_largest(request: TopKRequest, plan: Plan[Any, Release]) -> Plan[Any, TopK]:
    """Return the plan that publishes the keys with the k largest counts of a release: post-processing."""

    def finish(data: Any, source: Source) -> TopK:
        made = TopK.of_release(plan.finish(data, source), request.k, counts=request.counts)
        return _explain_few(made, request.k, made.last.mechanism.last)

    def describe() -> Preview:
        assert plan.describe is not None
        seen: Preview = plan.describe()
        largest = "published", f"the {request.k:,} keys with the largest counts"
        return replace(seen, details=(*seen.details, largest))

    return Plan(plan.cost, plan.read, finish, plan.rehearse, plan.check, describe)


def plan_hitting_set(request: HittingSetRequest, table: Table | None) -> Plan[Any, HittingSet]:
    """Return the plan of a hitting set; without a table it can only be previewed."""

    def make(selector: Selector, epsilon: float, delta: float) -> HittingKeys:
        return hitting_keys(epsilon, delta, selector.max_keys, request.k, selector=selector)

    choice = _choice(request, table, Picks(SHARE_OF_HITTING_SET, make, hitting_lower(request.k)))

    def finish(pairs: Pairs, source: Source) -> HittingSet:
        chosen = choice.public or choice.draw(pairs, source)
        last: Any = chosen.mechanism.last
        if isinstance(last, ReportedCounts):
            keys, outcome = pairs.count(1).draw(chosen.mechanism, source)
            notes = Notes(str(Contribution()), chosen.reason)
            release = release_of(cast(Counting, chosen.mechanism), keys, outcome, source=source, notes=notes)
            return _explain_few(HittingSet.of_release(release, request.k), request.k, last)
        rows = published(pairs.keys.take(as_arrow(last.find(pairs, source))))
        return _publish_picks(HittingSet, chosen, rows, source)

    return _plan_pairs(request, table, choice, ALL_KEYS, finish)


def _choice(request: DiscoverRequest, table: Table | None, picks: Picks | None = None) -> SelectorChoice:
    """Return how a request gets its selector: the same for keys, the most frequent ones and hitting sets."""
    sums_only = table is not None and not table.engine.supports_pairs and picks is None
    return SelectorChoice(
        request.method,
        request.epsilon,
        request.delta,
        request.contribution.keys,
        typical_keys=request.typical_keys if request.privacy_unit else 1,
        unit=request.unit,
        sums_from=type(table.engine).__name__ if table is not None and sums_only else "",
        picks=picks,
        min_units=request.min_units,
    )


def _plan_pairs(
    request: DiscoverRequest,
    table: Table | None,
    choice: SelectorChoice,
    contribution: Contribution,
    finish: Callable[[Pairs, Source], Any],
) -> Plan[Any, Any]:
    """Return the plan that reads the keys of all units."""

    def read(source: Source) -> Pairs:
        assert table is not None
        pairs = table.pairs(request.columns, contribution, source)
        selector: Any = None if choice.public is None else choice.public.mechanism
        selector = getattr(selector, "selector", selector)
        if isinstance(selector, Selector):
            selector.check(pairs)
        return pairs

    promise = Guarantee(request.epsilon, request.delta, unit=request.unit)
    cost = promise if choice.public is None else choice.public.mechanism
    rehearse = lambda pairs, source: finish(pairs.make_dummy(), source)  # noqa: E731
    describe = partial(_preview, request, choice)
    return Plan(cost, read, finish, rehearse, check_columns(request, table), describe)


def _preview(request: DiscoverRequest, choice: SelectorChoice) -> Preview:
    chosen = choice.public
    name, reason = (request.method, choice.describe()) if chosen is None else (chosen.mechanism.name, chosen.reason)
    promise = Guarantee(request.epsilon, request.delta, unit=request.unit)
    known = [(request.typical_keys or request.contribution.keys, chosen.mechanism)] if chosen else None
    details = [line for keys, each in known or choice.typical_mechanisms() for line in _noise_lines(keys, each)]
    return Preview(promise, name, reason, str(request.contribution), details=tuple(details))


def _noise_lines(keys: int, mechanism: Mechanism) -> Iterator[tuple[str, str]]:
    """Yield how many units a key needs, and the noise of picks, for units that typically hold this many keys."""
    last: Any = mechanism.last
    selector: Any = getattr(last, "selector", last)
    units = _units_needed(selector, min(keys, getattr(selector, "max_keys", 1)))
    label = f"units with {'1 key' if keys == 1 else f'{keys:,} keys'}"
    if units is not None:
        yield label, f"a key is found half of the time if {math.ceil(units):,} units hold it"
    if isinstance(last, KeyPicker):
        noise = f"{math.pi / math.sqrt(6) * last.scale:.3g}"
        yield label, f"keys are ordered by counts with noise of standard deviation {noise}"
    if isinstance(last, TopKeys) and last.count_sigma:
        yield label, f"counts are within {last.half_width():,.0f} of the true ones (95 %)"


def _units_needed(mechanism: Any, keys: int) -> float | None:
    """Return the number of units of this many keys that make a key selected half of the time; None if unknown."""
    if isinstance(mechanism, RenyiSelector):
        return mechanism.users_needed(keys)
    if isinstance(mechanism, DividedUnits):
        return mechanism.half_reported()
    if isinstance(mechanism, OneKey | Greedy):
        mechanism = mechanism.channel
    if isinstance(mechanism, ReportedCounts):
        return mechanism.half
    return cast(float, mechanism.units_needed(keys)) if hasattr(mechanism, "units_needed") else None


def _publish_picks(kind: type[_Picked], chosen: Selection, rows: pa.Table, source: Source) -> _Picked:
    """Return the publication of picked keys; fewer than k are explained."""
    picker: Any = chosen.mechanism.last
    reason = f"{picker.k:,} picks among the keys of {picker.selector.name} selection, {chosen.reason}"
    return _explain_few(kind.of(chosen.mechanism, rows, source=source, reason=reason), picker.k, picker.selector)


def _explain_few(made: _Picked, k: int, mechanism: Any) -> _Picked:
    """Return the publication with the reason why it has fewer than k keys."""
    if len(made) >= k:
        return made
    words = f"raise epsilon or delta, or add data: only {len(made):,} of {k:,} keys were selected"
    selector = getattr(mechanism, "selector", mechanism)
    keys = min(getattr(selector, "max_keys", 1), getattr(selector, "least", 1))
    units = _units_needed(selector, keys)
    if units is not None:
        held = f"of {'one key' if keys == 1 else f'{keys:,} keys'} each hold it"
        held = held if isinstance(selector, Selector) else "are counted in it"
        words += f", and a key is selected half of the time if {math.ceil(units):,} units {held}"
    return made.with_notes(rarer=words)
