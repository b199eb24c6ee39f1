"""Release the keys of a table with their counts."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

from dpsieve.accounting.products import steepest
from dpsieve.channels.channel import ReportedCounts
from dpsieve.discovery.divided_units import DividedUnits
from dpsieve.discovery.find_then_count import SHARE_FOR_KEYS, FindThenCount
from dpsieve.discovery.selector import TypicalSize
from dpsieve.display import timed
from dpsieve.engines.engine import Engine
from dpsieve.engines.true_data import Counted, CountedByBound, FromPairs, Pairs
from dpsieve.errors import DpsieveError, InvalidValue, NotCertified
from dpsieve.jobs.key_columns import describe_rows
from dpsieve.jobs.preview import Preview, noise_by_bound
from dpsieve.jobs.request import Goal, Method, ReleaseRequest, document
from dpsieve.jobs.run import Plan, run
from dpsieve.jobs.table import ALL_KEYS, Table, check_columns
from dpsieve.jobs.table_request import TableRequest
from dpsieve.jobs.totals import plan_totals
from dpsieve.noise.keys_per_unit import KeysPerUnit, Sizes, units_by_size
from dpsieve.noise.private_total import PrivateTotal, private_scheme
from dpsieve.privacy.guarantee import Contribution, Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Composed, Use, remaining
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source
from dpsieve.sampling.schemes import Scheme, everything
from dpsieve.validate import check_budget

from dpsieve.jobs.bounds import (  # isort: skip
    AT_ONCE, FIND_FIRST, FOUND_FIRST, TWO_STEPS, Way, allowed_kinds, can_divide, choose_way, describe_choice,
    read_pairs_again, typical_keys,
)  # fmt: skip
from dpsieve.jobs.mechanisms import (  # isort: skip
    CHOSEN, UNSTATED, USUAL_SHARE, Choice, choose_mechanism, counting, dividing, half_reported_by, hint_for,
    histogram_for, keys_seen, rarer_keys,
)  # fmt: skip

_SHARE_FOR_SIZE = 0.05  # of epsilon, for the total that sets the sampling rate
_TWO_STEPS = "keys are found first, and the rest of the budget counts them without a threshold"
_FOUND_FIRST = "most units hold few keys: what these do not need for counts finds keys"
_AFTER_CHOICE = "chosen with the bound, from a private histogram of keys per unit"


@document(TableRequest)
def release(
    data: Any,
    *,
    key: str | Sequence[str] | Mapping[str, str],
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
    sums: Any = None,
    means: Any = None,
    rest: bool = False,
    report_coverage: bool | None = None,
    min_units: int = 1,
    where: str | None = None,
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
    of its rows). How the mechanism and the bound are chosen: docs/background/many_keys.md, docs/background/tables.md.

    [arguments]

    >>> import pyarrow as pa
    >>> log = pa.table({"user": [*range(400), *range(400)], "query": ["tea"] * 400 + ["milk"] * 399 + ["secret"]})
    >>> release(log, key="query", privacy_unit="user", epsilon=1.0, delta=1e-8).table.column("query").to_pylist()
    ['milk', 'tea']
    """
    request = TableRequest.of(locals())
    plan = plan_release(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source, notes=describe_rows(request.rows))


def plan_release(request: ReleaseRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan of a release; without a table it can only be previewed."""
    if isinstance(request, TableRequest) and (request.totals or request.rest):
        return plan_totals(request, table)
    if request.two_steps or request.way == FIND_FIRST:
        _check_pairs(table)
    if request.two_steps and not request.chooses_bound:
        return _plan_two_steps(request, table)
    if request.way == FIND_FIRST:
        return _plan_find_first(request, table)
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
    """Return the plan where a private histogram of keys per unit chooses the way to count, or gives the coverage.

    Privacy. The histogram is an output, and so is the way, which depends on it and on public numbers. Each way is
    private with what the histogram leaves of epsilon, and with all of delta, whatever the histogram shows. So both
    together are (epsilon, delta)-private: pure epsilons add up in adaptive sequences.
    """
    left = remaining(request.epsilon, histogram.guarantee.epsilon)
    check_budget(left, request.delta)

    def choose(keys: int) -> Choice:
        return choose_mechanism(request, replace(request.contribution, keys=keys), first=histogram)

    fixed = None if request.chooses_bound else choose(request.contribution.keys)
    fewest = 2 if request.method == "report_then_count" else 1
    if fixed is None and request.method != "auto":
        choose(fewest)  # raises before the data is read where the method has no mechanism

    def chosen(keys: int) -> tuple[int, Choice]:
        """Return the bound and its mechanism; the fewest keys where public numbers allow none for the bound."""
        if fixed is not None:
            return keys, fixed
        try:
            choice = choose(keys)
            choice.mechanism.certify()
        except DpsieveError:
            return fewest, choose(fewest)  # rehearsed before the charge
        return keys, choice

    def publish(way: Way, sizes: Sizes, counts: CountedByBound, source: Source) -> Release:
        if way.kind == FIND_FIRST:
            assert way.keys is not None
            if (pairs := read_pairs_again(counts)) is not None:
                mechanism = dividing(request, left, request.delta, way.keys, histogram)
                return _find_first(request, mechanism, sizes, pairs, source)
            way = Way(AT_ONCE, way.keys)
        assert way.keys is not None
        keys, choice = chosen(max(way.keys, fewest))
        notes = _notes(request, str(Contribution(keys)), choice.reason, sizes, keys)
        return _publish(request, choice, Contribution(keys), counts.under(keys), source, notes)

    def publish_two_steps(mechanism: FindThenCount, pairs: Pairs, source: Source) -> Release:
        composed = Composed(request.epsilon, request.delta, (Use(histogram), Use(mechanism)))
        return _publish_counted(request, composed, pairs, source)

    def finish(counts: CountedByBound, source: Source) -> Release:
        sizes = histogram.draw(counts.units, source)
        if fixed is not None:
            return publish(Way(AT_ONCE, request.contribution.keys), sizes, counts, source)
        kinds = allowed_kinds(request, left, counts, sizes)
        half = half_reported_by(request)
        way = choose_way(sizes, left, request.delta, request.goal, kinds, half)
        if way.kind == TWO_STEPS:
            pairs = read_pairs_again(counts)
            with contextlib.suppress(InvalidValue):  # by public numbers, no mechanism of this kind has the guarantee
                mechanism = counting(request, left, request.delta, typical_keys(sizes), way.share)
                if pairs is not None:
                    return publish_two_steps(mechanism, pairs, source)
            way = choose_way(sizes, left, request.delta, request.goal, kinds - {TWO_STEPS}, half)
        return publish(way, sizes, counts, source)

    def rehearse(counts: CountedByBound, source: Source) -> None:
        pairs = counts.pairs.make_dummy() if isinstance(counts, FromPairs) else Pairs.of([["a key"]])
        dummy = FromPairs(pairs, counts.most_pairs)
        sizes = histogram.draw(dummy.units, source)
        ways = [Way(AT_ONCE, 1), Way(AT_ONCE, 10)] if fixed is None else [Way(AT_ONCE, request.contribution.keys)]
        again = fixed is None and request.goal != "keys" and request.method == "auto" and counts.most_pairs > 0
        if again and can_divide(request, left):
            ways += [Way(FIND_FIRST, keys) for keys in FOUND_FIRST]
        for way in ways:
            publish(way, sizes, dummy, source)
        if again:
            with contextlib.suppress(InvalidValue):  # as in `finish`
                mechanism = counting(request, left, request.delta, 1, USUAL_SHARE)
                publish_two_steps(mechanism, dummy.pairs, source)

    def read(source: Source) -> CountedByBound:
        assert table is not None
        if request.goal == "counts":
            return FromPairs(table.pairs(request.columns, ALL_KEYS, source))
        return table.counts_by_bound(request.columns, source)

    promise = Guarantee(request.epsilon, request.delta, unit=request.unit)
    if fixed is None:
        words, _, _ = describe_choice(left, request.delta).partition(";")
        describe = lambda: Preview(  # noqa: E731
            promise, "auto", _AFTER_CHOICE, words, (left, request.delta), details=noise_by_bound(choose)
        )
    else:
        describe = lambda: _preview(request, fixed)  # noqa: E731
    cost = promise if fixed is None else fixed.mechanism
    return Plan(cost, read, finish, rehearse, check_columns(request, table), describe)


def _notes(request: ReleaseRequest, contribution: str, reason: str, sizes: Sizes, keys: int) -> Notes:
    coverage = sizes.kept(keys) if request.report_coverage else None
    words = contribution + (CHOSEN if request.chooses_bound else "")
    words += UNSTATED if request.report_coverage and coverage is None else ""
    return Notes(words, reason, coverage=coverage)


def _find_first(
    request: ReleaseRequest, mechanism: Composed, sizes: Sizes | None, pairs: Pairs, source: Source,
    why: str = _FOUND_FIRST,
) -> Release:  # fmt: skip
    """Find keys with what units do not need for counts, and count them; see `discovery.divided_units`."""
    last: object = mechanism.last
    assert isinstance(last, DividedUnits)
    with timed("certify"):
        mechanism.certify()
    with timed("draw"):
        keys, outcome = last.find(pairs, source)
    notes = Notes(str(Contribution(last.max_keys)), why)
    if sizes is not None:
        notes = _notes(request, str(Contribution(last.max_keys)), _FOUND_FIRST, sizes, last.max_keys)
    hint = hint_for(keys.num_rows, notes.coverage, request, 1, last.half_reported)
    notes = replace(notes, rarer=hint) if hint else notes
    return release_of(mechanism, keys, outcome, notes=notes, source=source)


def _plan_find_first(request: ReleaseRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan that counts as an earlier release did which found keys with what units did not need."""
    keys = request.contribution.keys
    histogram = histogram_for(request)
    epsilon = request.epsilon if histogram is None else remaining(request.epsilon, histogram.guarantee.epsilon)
    mechanism = dividing(request, epsilon, request.delta, keys, *filter(None, (histogram,)))

    def finish(pairs: Pairs, source: Source) -> Release:
        sizes = None if histogram is None else histogram.draw(units_by_size(pairs.sizes), source)
        return _find_first(request, mechanism, sizes, pairs, source)

    def read(source: Source) -> Pairs:
        assert table is not None
        return table.pairs(request.columns, ALL_KEYS, source)

    def describe() -> Preview:
        last = cast(DividedUnits, mechanism.last)
        noise = f"counts get noise of standard deviation {last.deviation:.3g}"
        return Preview(mechanism.guarantee, last.name, _FOUND_FIRST, f"{Contribution(keys)}; {noise}")

    rehearse = lambda pairs, source: finish(pairs.make_dummy(), source)  # noqa: E731
    return Plan(mechanism, read, finish, rehearse, check_columns(request, table), describe)


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
        try:
            choice = choose_mechanism(request, request.contribution, first=total, scheme=scheme)
            choice.mechanism.certify()
        except (InvalidValue, NotCertified):
            choice = unsampled  # paid for by the same budget, and rehearsed
        return _publish(request, choice, request.contribution, counted, source)

    def rehearse(_: Counted, source: Source) -> None:
        unsampled.mechanism.certify()
        finish(_invented(), source)

    return Plan(
        unsampled.mechanism.guarantee,
        _counts(request, table),
        finish,
        rehearse,
        check_columns(request, table),
        lambda: _preview(request, unsampled),
    )


def _plan_two_steps(request: ReleaseRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan that finds keys with a part of the budget and counts them, each unit in a given number of them.

    The median number of keys per unit is an output by which an adversary could choose among mechanisms, so the cost is
    the guarantee of the whole, and all have the same smaller delta. It chooses between `discovery.find_then_count` and,
    where this has less noise and finds rarer keys, `discovery.divided_units` with the rest of epsilon. For that, half
    of the units hold no more keys than the median t: a key needs at most twice as many units as if all held t.
    """
    keys = request.contribution.keys
    median = TypicalSize.within(request.epsilon, keys_seen(request), unit=request.unit)
    delta, left = median.delta_left(request.epsilon, request.delta), remaining(request.epsilon, median.epsilon)

    share = SHARE_FOR_KEYS if request.goal == "counts" else USUAL_SHARE

    def two_steps(typical: int) -> FindThenCount:
        mechanism = counting(request, request.epsilon, delta, typical, share)
        if mechanism.steepness > steepest(request.epsilon, request.delta):
            mechanism = counting(request, left, delta, 1, share)
        return mechanism

    def compose(mechanism: FindThenCount) -> Composed:
        return Composed(request.epsilon, request.delta, (Use(median), Use(mechanism)))

    divided = None
    if request.goal == "counts" and keys >= FOUND_FIRST[0] and not request.way and not request.report_coverage:
        with contextlib.suppress(InvalidValue):  # this budget has no room for it, which depends on public numbers only
            divided = dividing(request, left, delta, keys, median)

    def lower_noise(typical: int, gaussian: FindThenCount) -> float:
        """Return the deviation of divided units if it is lower, and they find rarer keys; else 0."""
        if divided is None or typical >= keys:
            return 0.0
        last = cast(DividedUnits, divided.last)
        half = 2 * last.half_reported() * typical * (keys - 1) / (keys - typical)
        rarer = half < gaussian.selector.users_needed(typical)  # type: ignore[attr-defined]
        return last.deviation if rarer and last.deviation < gaussian.scale(keys) else 0.0

    def finish(pairs: Pairs, source: Source) -> Release:
        typical = median.draw(pairs.sizes, source)
        gaussian = two_steps(typical)
        if divided is None or not (deviation := lower_noise(typical, gaussian)):
            return _publish_counted(request, compose(gaussian), pairs, source)
        why = f"{_FOUND_FIRST}, with noise of {deviation:.3g} rather than {gaussian.scale(keys):.3g}"
        return _find_first(request, divided, None, pairs, source, why)

    def rehearse(pairs: Pairs, source: Source) -> None:
        finish(pairs.make_dummy(), source)
        if divided is not None:
            _find_first(request, divided, None, pairs.make_dummy(), source)

    def read(source: Source) -> Pairs:
        assert table is not None
        return table.pairs(request.columns, ALL_KEYS, source)

    typical = two_steps(1)
    promise = compose(typical).guarantee

    def describe() -> Preview:
        noise = f"counts get noise of standard deviation {typical.scale(keys):.3g}"
        if deviation := lower_noise(1, typical):
            noise += f", or {deviation:.3g} where most units hold few keys"
        return Preview(promise, "auto", _TWO_STEPS, f"{_counted_in(keys)}; {noise}")

    return Plan(promise, read, finish, rehearse, check_columns(request, table), describe)


def _check_pairs(table: Table | None) -> None:
    if table is not None and not table.engine.supports_pairs:
        why = f"needs to know which units hold which keys, which {type(table.engine).__name__} does not report"
        fix = "Leave goal out, or pass max_keys_per_unit=1 with it; pass a number to reuse the bound of a release."
        raise InvalidValue(f"goal='counts' {why}. {fix}")


def _publish_counted(request: ReleaseRequest, mechanism: Composed, pairs: Pairs, source: Source) -> Release:
    """Find keys, count them, and return the release."""
    last = cast(object, mechanism.last)
    assert isinstance(last, FindThenCount)
    found = last.find(pairs, source)
    words = _counted_in(found.keys_per_unit) + (CHOSEN if request.chooses_bound else "")
    words += UNSTATED if request.report_coverage and found.kept is None else ""
    hint = hint_for(found.keys.num_rows, found.kept, request, found.keys_per_unit)
    notes = Notes(words, _TWO_STEPS, coverage=found.kept, rarer=hint)
    return release_of(mechanism, found.keys, found.outcome, source=source, notes=notes)


def _counted_in(keys: int) -> str:
    return f"at most {keys:,} of the published keys, the most common first, once each"


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
    keys, outcome = counted.draw(choice.mechanism, source)
    hint = hint_for(keys.num_rows, notes.coverage, request, contribution.keys, partial(_half, choice))
    notes = replace(notes, rarer=hint) if hint else notes
    return release_of(choice.mechanism, keys, outcome, notes=notes, source=source)


def _half(choice: Choice) -> int | None:
    each = choice.mechanism.last
    return each.half if isinstance(each, ReportedCounts) else None


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
