"""Release the keys of a table with their counts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from dpsieve.accounting.products import steepest
from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.channels.optimal_channels import optimal
from dpsieve.discovery.find_then_count import FindThenCount, find_then_count
from dpsieve.discovery.selector import TypicalSize
from dpsieve.engines.engine import Engine
from dpsieve.engines.true_data import Counted, CountedByBound, FromPairs, Pairs
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.jobs.bounds import FOUND_FIRST, SHARE_TO_FIND, Way, choose_way, describe_choice, typical_keys
from dpsieve.jobs.mechanisms import (
    SHARE_FOR_COVERAGE,
    UNSTATED,
    Choice,
    choose_mechanism,
    hint_for,
    histogram_for,
    rarer_keys,
)
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import KEYS_PER_UNIT, Goal, Method, ReleaseRequest, document
from dpsieve.jobs.run import Plan, run
from dpsieve.jobs.table import ALL_KEYS, Table, check_columns
from dpsieve.logs import timed
from dpsieve.noise.keys_per_unit import MOST, KeysPerUnit, Sizes
from dpsieve.noise.known_keys import FoundKeys
from dpsieve.noise.private_total import PrivateTotal, private_scheme
from dpsieve.privacy.composed import Composed, Use, remaining
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Mechanism, Outcome
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source
from dpsieve.sampling.schemes import Scheme, everything
from dpsieve.validate import check_budget

_SHARE_FOR_SIZE = 0.05  # of epsilon, for the total that sets the sampling rate
_TWO_STEPS = "keys are found first, and the rest of the budget counts them without a threshold"
_FOUND_FIRST = "most units hold one key: keys are found by that, and the rest of the budget counts them"
_AFTER_CHOICE = "chosen with the bound, from a private histogram of keys per unit"


@document(ReleaseRequest)
def release(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | Literal["auto"] = "auto",
    max_rows_per_key: int = 1,
    goal: Goal = "auto",
    scheme: Scheme | None = None,
    sample_size: int | None = None,
    method: Method = "auto",
    known_keys: Any = None,
    report_coverage: bool | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Callable[[float], None] | bool | None = None,
    source: Source | None = None,
) -> Release:
    """Release which keys occur in a table, and how often, with (epsilon, delta)-differential privacy.

    Neighbours are add/remove of one privacy unit with all its rows. Each unit keeps at most `max_keys_per_unit` of its
    distinct keys, chosen by a hash with a fresh secret salt, and counts once in each (or for up to `max_rows_per_key`
    of its rows). See `dpsieve.jobs.mechanisms` for the choice of the mechanism, `dpsieve.jobs.bounds` for that of the
    bound.

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(400)], "query": ["tea"] * 400 + ["milk"] * 399 + ["secret"]})
    >>> release(log, key="query", privacy_unit="user", epsilon=1.0, delta=1e-8).table.column("query").to_pylist()
    ['milk', 'tea']
    """
    request = ReleaseRequest.of(locals())
    plan = plan_release(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source)


def plan_release(request: ReleaseRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan of a release; without a table it can only be previewed."""
    if request.two_steps:
        _check_pairs(table)
    if request.two_steps and not request.chooses_bound:
        return _plan_two_steps(request, table)
    histogram = histogram_for(request)
    if histogram is not None:
        return _plan_with_histogram(request, histogram, table)
    if request.sample_size is not None:
        return _plan_sample(request, table)
    choice = choose_mechanism(request, request.contribution, scheme=request.scheme)

    def finish(counted: Counted, source: Source) -> Release:
        return _publish(request, choice, request.contribution, counted, source)

    return Plan(
        choice.mechanism,
        _counts(request, table),
        finish,
        lambda _, source: finish(_invented(), source),
        check_columns(request, table),
        lambda: _preview(request, choice),
    )


def _plan_with_histogram(request: ReleaseRequest, histogram: KeysPerUnit, table: Table | None) -> Plan[Any, Release]:
    """Return the plan where a private histogram of keys per unit chooses the bound, or gives the coverage."""
    left = remaining(request.epsilon, histogram.guarantee.epsilon)
    check_budget(left, request.delta)
    finds_first = table is None or table.engine.supports_pairs

    def choose(keys: int) -> Choice:
        return choose_mechanism(request, replace(request.contribution, keys=keys), first=histogram)

    fixed = None if request.chooses_bound else choose(request.contribution.keys)

    def chosen(keys: int) -> tuple[int, Choice]:
        """Return the bound and its mechanism; one key where public numbers allow no mechanism for the bound."""
        if fixed is not None:
            return keys, fixed
        try:
            choice = choose(keys)
            choice.mechanism.certify()
        except DpsieveError:
            return 1, choose(1)  # rehearsed before the charge
        return keys, choice

    def publish(way: Way, sizes: Sizes, counts: CountedByBound, source: Source) -> Release:
        if way.kind == "two_steps":
            assert isinstance(counts, FromPairs)
            return _find_and_count(request, histogram, left, typical_keys(sizes), counts.pairs, source)
        if way.kind == "find_first":
            return _find_first(request, histogram, left, way.keys, sizes, counts, source)
        keys, choice = chosen(way.keys)
        notes = _notes(request, str(Contribution(keys)), choice.reason, sizes, keys)
        return _publish(request, choice, Contribution(keys), counts.under(keys), source, notes)

    def finish(counts: CountedByBound, source: Source) -> Release:
        sizes = histogram.draw(counts.units, source)
        if fixed is not None:
            return publish(Way("at_once", request.contribution.keys), sizes, counts, source)
        return publish(choose_way(sizes, left, request.delta, request.goal, finds_first), sizes, counts, source)

    def rehearse(counts: CountedByBound, source: Source) -> None:
        pairs = counts.pairs.make_dummy() if isinstance(counts, FromPairs) else Pairs.of([["a key"]])
        dummy = FromPairs(pairs)
        sizes = histogram.draw(dummy.units, source)
        ways = [Way("at_once", 1), Way("at_once", 10)] if fixed is None else [Way("at_once", request.contribution.keys)]
        ways += [Way("find_first", keys) for keys in FOUND_FIRST] if fixed is None and request.goal == "auto" else []
        ways += [Way("two_steps", MOST)] if request.goal == "counts" else []
        for way in ways:
            publish(way, sizes, dummy, source)

    def read(source: Source) -> CountedByBound:
        assert table is not None
        if request.goal == "counts":
            return FromPairs(table.pairs(request.columns, ALL_KEYS, source))
        return table.counts_by_bound(request.columns, source)

    promise = Guarantee(request.epsilon, request.delta, unit=request.unit)
    if fixed is None:
        words = describe_choice(left, request.delta)
        describe = lambda: Preview(promise, "auto", _AFTER_CHOICE, words, (left, request.delta))  # noqa: E731
    else:
        describe = lambda: _preview(request, fixed)  # noqa: E731
    cost = promise if fixed is None else fixed.mechanism
    return Plan(cost, read, finish, rehearse, check_columns(request, table), describe)


def _notes(request: ReleaseRequest, contribution: str, reason: str, sizes: Sizes, keys: int) -> Notes:
    coverage = sizes.kept(keys) if request.report_coverage else None
    words = f"{contribution}{', chosen privately' if request.chooses_bound else ''}"
    words += UNSTATED if request.report_coverage and coverage is None else ""
    return Notes(words, reason, coverage=coverage)


def _find_first(
    request: ReleaseRequest,
    histogram: KeysPerUnit,
    epsilon: float,
    keys: int,
    sizes: Sizes,
    counts: CountedByBound,
    source: Source,
) -> Release:
    """Find keys with one key per unit, and count these with several.

    Privacy. The keys that are found are an output of the first step. Given them, a unit adds one to at most `keys` of
    their counts, chosen by its own keys and the salt: the second step is `FoundKeys`, and the steps compose by sums.
    """
    finder = optimal(epsilon * SHARE_TO_FIND, request.delta, unit=request.unit)
    counter = FoundKeys(remaining(epsilon, finder.epsilon), max_keys=keys, unit=request.unit)
    mechanism = Composed(request.epsilon, request.delta, (Use(histogram), Use(finder), Use(counter)))
    with timed("certify"):
        mechanism.certify()
    counted = counts.under(keys, with_first=True)
    assert counted.first is not None
    some = np.flatnonzero(counted.first)
    with timed("draw"):
        found = some[np.flatnonzero(finder.draw(counted.first[some], source=source))]
        tokens = counter.draw(counted.frequencies[found], source=source)
    notes = _notes(request, str(Contribution(keys)), _FOUND_FIRST, sizes, keys)
    hint = hint_for(len(found), notes.coverage, request, 1, lambda: frequency_at(finder, 0.5))
    notes = replace(notes, rarer=hint) if hint else notes
    return release_of(mechanism, counted.keys.take(pa.array(found)), Outcome(tokens), notes=notes, source=source)


def _find_and_count(
    request: ReleaseRequest, first: Mechanism, epsilon: float, typical: int, pairs: Pairs, source: Source
) -> Release:
    """Find keys and count them in one Renyi account, after another pure mechanism; see `discovery.find_then_count`."""
    mechanism = _counting(request, epsilon, request.delta, typical)
    return _publish_counted(
        request, Composed(request.epsilon, request.delta, (Use(first), Use(mechanism))), pairs, source
    )


def _plan_sample(request: ReleaseRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan where a private total sets the sampling rate."""
    size = request.sample_size
    assert size is not None
    total = PrivateTotal(request.epsilon * _SHARE_FOR_SIZE, request.contribution.keys, unit=request.unit)
    unsampled = choose_mechanism(request, request.contribution, first=total, scheme=everything())

    def finish(counted: Counted, source: Source) -> Release:
        scheme = private_scheme(
            counted.summands,
            size,
            epsilon=total.epsilon,
            max_keys=request.contribution.keys,
            source=source,
        )
        choice = choose_mechanism(request, request.contribution, first=total, scheme=scheme)
        return _publish(request, choice, request.contribution, counted, source)

    return Plan(
        unsampled.mechanism.guarantee,
        _counts(request, table),
        finish,
        lambda _, source: finish(_invented(), source),
        check_columns(request, table),
        lambda: _preview(request, unsampled),
    )


def _plan_two_steps(request: ReleaseRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan that finds keys with a part of the budget and counts them, each unit in a given number of them.

    The median number of keys per unit is an output by which an adversary could choose among mechanisms, so the cost is
    the guarantee of the whole. See `discovery.find_then_count`.
    """
    check_budget(request.epsilon, request.delta)
    median = TypicalSize.within(request.epsilon, request.contribution.keys, unit=request.unit)
    delta = median.delta_left(request.epsilon, request.delta)

    def choose(typical: int) -> FindThenCount:
        mechanism = _counting(request, request.epsilon, delta, typical)
        if mechanism.steepness > steepest(request.epsilon, request.delta):
            mechanism = _counting(request, remaining(request.epsilon, median.epsilon), delta, 1)
        return mechanism

    def compose(mechanism: FindThenCount) -> Composed:
        return Composed(request.epsilon, request.delta, (Use(median), Use(mechanism)))

    def finish(pairs: Pairs, source: Source) -> Release:
        return _publish_counted(request, compose(choose(median.draw(pairs.sizes, source))), pairs, source)

    def read(source: Source) -> Pairs:
        assert table is not None
        return table.pairs(request.columns, ALL_KEYS, source)

    typical = choose(1)
    promise = compose(typical).guarantee

    def describe() -> Preview:
        noise = f"counts get noise of standard deviation {typical.scale(request.contribution.keys):.3g}"
        return Preview(promise, "auto", _TWO_STEPS, f"{_counted_in(request.contribution.keys)}; {noise}")

    rehearse = lambda pairs, source: finish(pairs.make_dummy(), source)  # noqa: E731
    return Plan(promise, read, finish, rehearse, check_columns(request, table), describe)


def _check_pairs(table: Table | None) -> None:
    if table is not None and not table.engine.supports_pairs:
        why = f"needs to know which units hold which keys, which {type(table.engine).__name__} does not report"
        raise InvalidValue(f"goal='counts' {why}. Leave goal out, or pass max_keys_per_unit=1 with it.")


def _counting(request: ReleaseRequest, epsilon: float, delta: float, typical: int) -> FindThenCount:
    """Return the mechanism for this typical number of keys; it may be paid for, so take 1 where there is none."""
    seen = KEYS_PER_UNIT if request.chooses_bound else request.contribution.keys
    try:
        return find_then_count(
            epsilon,
            delta,
            seen,
            keys=None if request.chooses_bound else request.contribution.keys,
            kept_epsilon=request.epsilon * SHARE_FOR_COVERAGE if request.report_coverage else 0.0,
            typical_keys=min(typical, seen),
            unit=request.unit,
        )
    except InvalidValue:
        if typical == 1:
            raise
        return _counting(request, epsilon, delta, 1)


def _publish_counted(request: ReleaseRequest, mechanism: Composed, pairs: Pairs, source: Source) -> Release:
    """Find keys, count them, and return the release."""
    last = cast(object, mechanism.last)
    assert isinstance(last, FindThenCount)
    found = last.find(pairs, source)
    words = _counted_in(found.keys_per_unit) + (", chosen privately" if request.chooses_bound else "")
    words += UNSTATED if request.report_coverage and found.kept is None else ""
    hint = hint_for(found.keys.num_rows, found.kept, request, found.keys_per_unit)
    notes = Notes(words, _TWO_STEPS, coverage=found.kept, rarer=hint)
    return release_of(mechanism, found.keys, found.outcome, source=source, notes=notes)


def _counted_in(keys: int) -> str:
    return f"at most {keys:,} of the published keys, those found most common first, once each"


def _publish(
    request: ReleaseRequest,
    choice: Choice,
    contribution: Contribution,
    counted: Counted,
    source: Source,
    notes: Notes | None = None,
) -> Release:
    """Draw from true counts that are paid for, and return the release."""
    if notes is None:
        notes = Notes(str(contribution) if request.privacy_unit else "", choice.reason)
    keys, tokens = counted.draw(choice.mechanism, source)
    hint = hint_for(keys.num_rows, notes.coverage, request, contribution.keys, partial(_half, choice))
    notes = replace(notes, rarer=hint) if hint else notes
    return release_of(choice.mechanism, keys, Outcome(tokens), notes=notes, source=source)


def _half(choice: Choice) -> int | None:
    each = choice.mechanism.last
    return frequency_at(each, 0.5) if isinstance(each, ReportedCounts) else None


def _preview(request: ReleaseRequest, choice: Choice) -> Preview:
    hint = rarer_keys(request, request.contribution.keys, _half(choice))
    return Preview.of(choice, str(request.contribution), hint)


def _counts(request: ReleaseRequest, table: Table | None) -> Callable[[Source], Counted]:
    def read(source: Source) -> Counted:
        assert table is not None
        return table.counts(request.columns, request.contribution, source, known=request.known_keys)

    return read


def _invented() -> Counted:
    return Pairs.of([["a key"]]).count()
