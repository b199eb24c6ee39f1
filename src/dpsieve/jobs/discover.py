"""Discover keys: which occur, the k most frequent, and k keys that reach most units."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from dpsieve.discovery.key_sets import HittingSet, KeySet, TopK, selected_table, top_table
from dpsieve.discovery.picks import KeyPicker, hitting_keys, top_keys
from dpsieve.discovery.selector import Selection, WeightSelector, choose_by_median, choose_selector
from dpsieve.engines.engine import Engine
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import DiscoverRequest, HittingSetRequest, TopKRequest, document
from dpsieve.jobs.run import Plan, run
from dpsieve.jobs.table import ALL_KEYS, Table, check_columns
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.randomness.source import Source
from dpsieve.values.keys import published

SHARE_FOR_COUNTS = 0.2  # of what the selection leaves, for the counts of a top-k

Progress = Callable[[float], None] | bool | None


@document(DiscoverRequest)
def discover(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    method: str = "auto",
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

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(400)], "query": ["tea"] * 400 + ["milk"] * 399 + ["secret"]})
    >>> discover(log, key="query", privacy_unit="user", epsilon=1.0, delta=1e-8).table.column("query").to_pylist()
    ['milk', 'tea']
    """
    request = DiscoverRequest.of(locals())
    plan = plan_discover(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source)


@document(TopKRequest)
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
    method: str = "auto",
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
    the discovery; the order counts all its keys. Fewer than k rows mean that fewer keys were discovered. A Renyi
    selector ('auto' takes one) shares one budget with the picks; others get half of epsilon and delta.

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"drink": ["tea"] * 4000 + ["milk"] * 3000 + ["mate"] * 2000})
    >>> top_k(log, key="drink", k=2, epsilon=1.0, delta=1e-8).table.column("drink").to_pylist()
    ['tea', 'milk']
    """
    request = TopKRequest.of(locals())
    plan = plan_top_k(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source)


@document(HittingSetRequest)
def hitting_set(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    k: int,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | None = None,
    method: str = "auto",
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
    earlier one. `max_keys_per_unit` bounds what a unit adds to the discovery; the picks see all its keys. Budgets are
    shared as in `dpsieve.top_k`.

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(300), *range(300, 400)],
    ...                 "drink": ["water"] * 400 + ["tea"] * 300 + ["milk"] * 100})
    >>> hitting_set(log, key="drink", privacy_unit="user", k=1, epsilon=1.0, delta=1e-8).table.column(0).to_pylist()
    ['water']
    """
    request = HittingSetRequest.of(locals())
    plan = plan_hitting_set(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source)


def plan_discover(request: DiscoverRequest, table: Table | None) -> Plan[Any, KeySet]:
    """Return the plan of a discovery; without a table it can only be previewed."""
    sums_from = "" if table is None or table.engine.supports_pairs else type(table.engine).__name__
    budget = (request.epsilon, request.delta, request.contribution.keys)
    selection = choose_selector(
        request.method, *budget, typical_keys=request.typical_keys, unit=request.unit, sums_from=sums_from
    )
    promise = Guarantee(request.epsilon, request.delta, unit=request.unit)

    def finish(pairs: Pairs, source: Source) -> KeySet:
        chosen = selection or choose_by_median(*budget, pairs.sizes, source, unit=request.unit)
        return publish(chosen, pairs.keys.filter(chosen.selector.select(pairs, source)), source)

    def publish(chosen: Selection, keys: pa.Table, source: Source) -> KeySet:
        return KeySet.of(chosen.mechanism, selected_table(keys), source=source, reason=chosen.reason)

    def describe() -> Preview:
        name, reason = ("auto", "a private median of keys per unit chooses the selector")
        if selection is not None:
            name, reason = selection.selector.name, selection.reason
        return Preview(promise, name, reason, str(request.contribution))

    if selection is not None and isinstance(selection.selector, WeightSelector):
        selector = selection.selector

        def finish_sums(sums: Counted, source: Source) -> KeySet:
            return publish(selection, sums.draw(selector, source)[0], source)

        def rehearse(_: Counted, source: Source) -> None:
            invented = Pairs.of([["a key"]])
            finish_sums(Counted(invented.keys, invented.weights(selector.weight)), source)

        def read(source: Source) -> Counted:
            assert table is not None
            kept = Contribution(selector.max_keys)
            return table.counts(request.columns, kept, source, measure=selector.weight)

        return Plan(selection.mechanism, read, finish_sums, rehearse, check_columns(request, table), describe)

    def read_pairs(source: Source) -> Pairs:
        assert table is not None
        pairs = table.pairs(request.columns, request.contribution, source)
        if selection is not None:
            selection.selector.check(pairs)
        return pairs

    cost = promise if selection is None else selection.mechanism
    rehearse_pairs = lambda pairs, source: finish(pairs.make_dummy(), source)  # noqa: E731
    return Plan(cost, read_pairs, finish, rehearse_pairs, check_columns(request, table), describe)


def plan_top_k(request: TopKRequest, table: Table | None) -> Plan[Any, TopK]:
    """Return the plan of a top-k; without a table it can only be previewed."""
    picker = top_keys(**_budget(request, 0.15), count_share=SHARE_FOR_COUNTS if request.counts else 0.0)

    def finish(pairs: Pairs, source: Source) -> TopK:
        found = picker.selector.select(pairs.bound(picker.max_keys), source)
        numbers, keys = pairs.counts()[found], pairs.keys.filter(found)
        order = picker.pick(numbers, source)
        noisy = picker.noisy_counts(numbers[order], source) if request.counts else None
        rows = top_table(picker, keys.take(pa.array(order)), noisy)
        return TopK.of(picker, rows, source=source, reason=_reason(picker))

    return _plan_picks(request, table, picker, finish)


def plan_hitting_set(request: HittingSetRequest, table: Table | None) -> Plan[Any, HittingSet]:
    """Return the plan of a hitting set; without a table it can only be previewed."""
    picker = hitting_keys(**_budget(request, 0.5))

    def finish(pairs: Pairs, source: Source) -> HittingSet:
        found = pairs.restrict(picker.selector.select(pairs.bound(picker.max_keys), source))
        rows = published(found.keys.take(pa.array(picker.pick(found, source))))
        return HittingSet.of(picker, rows, source=source, reason=_reason(picker))

    return _plan_picks(request, table, picker, finish)


def _plan_picks(
    request: HittingSetRequest, table: Table | None, picker: KeyPicker, finish: Callable[[Pairs, Source], Any]
) -> Plan[Any, Any]:
    """Return the plan that reads all keys of all units and picks among those that are discovered."""

    def read(source: Source) -> Pairs:
        assert table is not None
        pairs = table.pairs(request.columns, ALL_KEYS, source)
        picker.selector.check(pairs)
        return pairs

    def describe() -> Preview:
        return Preview(picker.guarantee, picker.name, _reason(picker), str(request.contribution))

    rehearse = lambda pairs, source: finish(pairs.make_dummy(), source)  # noqa: E731
    return Plan(picker, read, finish, rehearse, check_columns(request, table), describe)


def _budget(request: HittingSetRequest, share: float) -> dict[str, Any]:
    """Return the arguments of a picker; the selector gets a share of its Renyi budget, or half of epsilon and delta."""
    epsilon, delta, keys = request.epsilon, request.delta, request.contribution.keys
    options: Any = {"typical_keys": request.typical_keys, "unit": request.unit, "share": share}
    selection = choose_selector(request.method, epsilon, delta, keys, **options)
    assert selection is not None  # no median is drawn where picks share the budget
    selector = selection.selector
    return {"epsilon": epsilon, "delta": delta, "max_keys": selector.max_keys, "k": request.k, "selector": selector}


def _reason(picker: KeyPicker) -> str:
    return f"{picker.k:,} picks among the keys of {picker.selector.name} selection"
