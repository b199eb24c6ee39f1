"""Release totals and means of columns beside the counts of keys, and a row for everything that is not published.

The budget, in this order: a private histogram where it chooses the bound on keys per unit or gives its coverage; a
private histogram per column whose bounds are 'auto'; the mechanism that publishes keys, counts and totals, with all of
delta; a row for the rest. All but the third are pure, so epsilons add up, whatever earlier outputs decide.

Keys, counts and totals come from one of two mechanisms:

- at once: one noise on the count and the sums together, and a threshold (`noise.key_totals`), once per key of a unit;
- two steps: keys are selected, then measured with Gaussian noise (`discovery.find_then_count`).

Their expected errors follow from public numbers, and from the private choice of the bound. Let h be the frequency that
is published half of the time, and s the deviation of a centred sum in half widths. The number of keys falls about with
h, and the error of a mean rises with s: so the lower product h s wins. With goal='keys' it is the lower h, and with
goal='counts' the lower s.

Privacy of 'auto' bounds. What a unit adds to one of its keys is a function of its own rows and the salt; the histogram
of these is an output, and so are the bounds. Given these, the proofs of both mechanisms hold as for public bounds.
"""

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dpsieve.channels.channel import ReportedCounts
from dpsieve.channels.floored import Floored
from dpsieve.discovery.find_then_count import FindThenMeasure, find_then_measure
from dpsieve.engines.true_data import Counted, CountedByBound, FromPairs, Pairs
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.balls import ball, lower
from dpsieve.jobs.bounds import AT_ONCE, TWO_STEPS, allowed_kinds, choose_way, read_pairs_again, typical_keys
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.run import Plan
from dpsieve.jobs.table import ALL_KEYS, Table, check_columns
from dpsieve.jobs.table_request import SHARE_FOR_BOUNDS, SHARE_FOR_REST, TableRequest
from dpsieve.noise.key_totals import KeyTotals, half_published, key_totals
from dpsieve.noise.keys_per_unit import Sizes
from dpsieve.noise.rest_and_bounds import AmountBounds, Rest
from dpsieve.noise.totals import RawTotal, Total
from dpsieve.privacy.guarantee import Contribution, Guarantee
from dpsieve.privacy.mechanism import Composed, Mechanism, Outcome, Use, remaining
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source
from dpsieve.validate import check_budget

from dpsieve.jobs.mechanisms import (  # isort: skip
    CHOSEN, UNSTATED, USUAL_SHARE, Choice, choose_mechanism, histogram_for, keys_seen, share_of_keys,
)  # fmt: skip

_MOST_TO_FIND = 0.5  # of a unit's weight, where the bound is chosen: the product h s is least at 0.4 to 0.5
_COUNTED_IN = "at most {keys:,} of the published keys, the most common first, once each"

Totals = tuple[Total, ...]


class _Way(NamedTuple):
    """How keys are counted: the mechanisms, the number of keys per unit, and why."""

    uses: tuple[Use, ...]
    keys: int
    reason: str

    @property
    def mechanism(self) -> Mechanism:
        return self.uses[-1].mechanism


class _Budget:
    """The parts of the budget of a request."""

    def __init__(self, request: TableRequest) -> None:
        self.request = request
        self.histogram = histogram_for(request)
        epsilon = request.epsilon * SHARE_FOR_BOUNDS
        self.picks = {
            i: AmountBounds(epsilon, total.column, total.statistic, unit=request.unit)
            for i, total in enumerate(request.totals)
            if isinstance(total, RawTotal)
        }
        self.for_rest = request.epsilon * SHARE_FOR_REST if request.rest else 0.0
        spent = [one.guarantee.epsilon for one in self.before] + [self.for_rest]
        self.left = request.epsilon
        for part in spent:
            self.left = remaining(self.left, part)

    @property
    def before(self) -> tuple[Mechanism, ...]:
        """What comes before the keys."""
        return (*((self.histogram,) if self.histogram else ()), *self.picks.values())

    def compose(self, way: _Way, totals: Totals) -> Composed:
        """Return all that is spent."""
        uses = [*map(Use, self.before), *way.uses]
        if self.for_rest:
            added = tuple(total for total in totals if total.statistic == "sum")
            uses.append(Use(Rest(self.for_rest, way.keys, added, unit=self.request.unit)))
        return Composed(self.request.epsilon, self.request.delta, tuple(uses))

    def at_once(self, keys: int, totals: Totals) -> _Way:
        """Return one noise on counts and sums, for units of this number of keys."""
        request, each = self.request, self.left
        if not totals:
            choice = choose_mechanism(_with_epsilon(request, self.left), Contribution(keys))
            return _Way(choice.mechanism.uses, keys, choice.reason)
        if request.known_keys is not None:
            if keys > 1:
                each = lower(lambda: ball(self.left) / keys)
            return _Way((Use(key_totals(each, 0.0, totals, unit=request.unit), keys),), keys, "all keys are listed")
        share = share_of_keys(keys, self.left, request.delta)
        one = key_totals(share.epsilon, share.delta, totals, min_units=request.min_units, unit=request.unit)
        return _Way((Use(one, keys),), keys, f"counts and totals share one noise; it reports {_described(one, keys)}")

    def two_steps(self, keys: int | None, totals: Totals, typical: int, share: float = USUAL_SHARE) -> _Way:
        """Return selection, then Gaussian noise; the number of keys is chosen privately where it is None."""
        request = self.request
        mechanism = find_then_measure(
            self.left, request.delta, keys_seen(request), totals, keys=keys, typical_keys=typical, share=share,
            min_units=request.min_units, unit=request.unit,
        )  # fmt: skip
        mechanism.certify()
        words = "keys are found first, and the rest of the budget measures them without a threshold"
        return _Way((Use(mechanism),), mechanism.contribution.keys, words)

    def better(self, keys: int, totals: Totals, *, supports_pairs: bool) -> _Way:
        """Return the way with the lower expected error for a fixed number of keys."""
        now = self.at_once(keys, totals)
        request = self.request
        if keys == 1 or not totals or request.known_keys is not None or not supports_pairs or request.report_coverage:
            return now
        try:
            later = self.two_steps(keys, totals, keys)
        except (InvalidValue, NotCertified):  # this budget has no room for it, which depends on public numbers only
            return now
        first, second = _cost(now, request.goal), _cost(later, request.goal)
        if first <= second:
            return now._replace(reason=f"{now.reason}; two steps would report {_described(later.mechanism, keys)}")
        words = f"reports {_described(later.mechanism, keys)}; one step would report {_described(now.mechanism, keys)}"
        return later._replace(reason=f"{later.reason}; it {words}")


def _errors(mechanism: Mechanism, keys: int) -> tuple[float, float]:
    """Return the frequency that is published half of the time, and the deviation of a centred sum in half widths."""
    if isinstance(mechanism, FindThenMeasure):
        half = mechanism.selector.users_needed(min(keys, mechanism.max_keys))  # type: ignore[attr-defined]
        return half, mechanism.scale(keys)
    assert isinstance(mechanism, KeyTotals)
    return mechanism.frequency_at(0.5), mechanism.deviation


def _cost(way: _Way, goal: str) -> float:
    """Return what the better way for a goal has less of; see the head."""
    half, deviation = _errors(way.mechanism, way.keys)
    return {"keys": half, "counts": deviation}.get(goal, half * deviation)


def _described(mechanism: Mechanism, keys: int) -> str:
    half, deviation = _errors(mechanism, keys)
    return f"half of the keys of frequency {half:,.0f}, with noise of {deviation:,.3g} half-widths on each total"


def _with_epsilon(request: TableRequest, epsilon: float) -> TableRequest:
    """Return the request for counts alone with another epsilon; it was checked before."""
    changed = object.__new__(TableRequest)
    vars(changed).update(vars(request) | {"epsilon": epsilon, "report_coverage": False})
    return changed


def plan_totals(request: TableRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan of a release with totals or a rest."""
    budget = _Budget(request)
    check_budget(budget.left, request.delta or 1e-9)
    supports_pairs = table is None or table.engine.supports_pairs
    _check_support(request, budget, supports_pairs)
    # Where bounds are to be chosen, any will do: only the noise is looked at.
    given = tuple(t if isinstance(t, Total) else Total(t.column, t.statistic, 0.0, 1.0, 0.0) for t in request.totals)
    keys = request.contribution.keys
    way = None if request.chooses_bound else budget.better(keys, given, supports_pairs=supports_pairs)
    needs_pairs = bool(budget.picks) or (way is not None and isinstance(way.mechanism, FindThenMeasure))
    budget.at_once(keys, given)  # raises before the data is read where the budget allows no mechanism

    def read(source: Source) -> CountedByBound:
        assert table is not None
        known = request.known_keys
        if needs_pairs or (request.goal == "counts" and request.chooses_bound):
            return FromPairs(table.pairs(request.columns, ALL_KEYS, source, known=known), listed=known is not None)
        if budget.histogram is not None:
            return table.counts_by_bound(request.columns, source)
        counted = table.counts(request.columns, Contribution(keys), source, known=known)
        return CountedByBound(np.empty(0, np.int64), lambda *_: counted)

    def finish(data: CountedByBound, source: Source) -> Release:
        sizes = None if budget.histogram is None else budget.histogram.draw(data.units, source)
        totals, data = _choose_bounds(budget, given, data, source)
        if way is not None:
            fixed = way if not budget.picks else budget.better(keys, totals, supports_pairs=supports_pairs)
            return _publish(budget, fixed, totals, sizes, data, source)
        assert sizes is not None
        return _choose_and_publish(budget, totals, sizes, data, source)

    def rehearse(data: CountedByBound, source: Source) -> None:
        dummy = FromPairs(_dummy(data, len(given), request), data.most_pairs)
        sizes = None if budget.histogram is None else budget.histogram.draw(dummy.units, source)
        ways = [way] if way is not None else [budget.at_once(1, given), budget.at_once(10, given)]
        for each in ways:
            _publish(budget, each, given, sizes, dummy, source)
        if way is None and given and data.most_pairs and request.goal != "keys":
            with suppress(InvalidValue, NotCertified):  # as when it is chosen
                _publish(budget, budget.two_steps(None, given, 1), given, sizes, dummy, source)

    promise = Guarantee(request.epsilon, request.delta, unit=request.unit)
    cost = promise if way is None or budget.picks else budget.compose(way, given)
    shown = way or budget.at_once(1, given)
    describe = partial(_describe, budget, shown, given, promise)
    return Plan(cost, read, finish, rehearse, check_columns(request, table), describe)


def mechanism_of_totals(request: TableRequest) -> tuple[Mechanism, Preview]:
    """Return the mechanism of a release with totals at a fixed bound, and its preview; reads no data."""
    plan = plan_totals(request, None)
    assert isinstance(plan.cost, Composed) and plan.describe is not None
    return plan.cost.last, plan.describe()


def _check_support(request: TableRequest, budget: _Budget, supports_pairs: bool) -> None:
    """Refuse what the engine or the other arguments rule out."""
    if request.rest and request.known_keys is not None:
        raise InvalidValue("rest=True does not work with known_keys, which are all answered. Leave out one of them.")
    if supports_pairs:
        return
    if budget.picks:
        raise InvalidValue("bounds 'auto' need to know what each unit adds, which this engine does not report. "
                           "Pass bounds such as (0, 200).", argument=request.totals[0].argument)  # fmt: skip
    if request.rest:
        raise InvalidValue("rest=True needs the counts of keys that are not published, which stay in this engine. "
                           "Leave it out, or use another engine.", argument="rest")  # fmt: skip


def _dummy(data: CountedByBound, totals: int, request: TableRequest) -> Pairs:
    """Return one unit with one key for a rehearsal, or with every key of a public list."""
    pairs = data.pairs.make_dummy() if isinstance(data, FromPairs) else Pairs.of([["a key"]])
    known = request.known_keys
    if known is not None:
        everyone = np.arange(known.num_rows, dtype=np.int32)
        pairs = Pairs(known, np.array([0, len(everyone)]), everyone)
    return replace(pairs, amounts=np.zeros((totals, len(pairs.key_numbers))) if totals else None)


def _choose_bounds(
    budget: _Budget, totals: Totals, data: CountedByBound, source: Source
) -> tuple[Totals, CountedByBound]:
    """Return totals with bounds that were drawn, and the data on their grids."""
    if not budget.picks:
        return totals, data
    assert isinstance(data, FromPairs) and data.pairs.amounts is not None
    chosen, first = list(totals), data.pairs.bound(1).amounts
    amounts = data.pairs.amounts.copy()
    assert first is not None
    for i, pick in budget.picks.items():
        chosen[i] = pick.draw(first[i], source)
        # Steps of the data are 2^-20; those of the total are finer or coarser, by a power of two.
        amounts[i] = chosen[i].on_grid(amounts[i] * (chosen[i].steps_per_unit / RawTotal.steps_per_unit))
    return tuple(chosen), FromPairs(replace(data.pairs, amounts=amounts), data.most_pairs, listed=data.listed)


def _choose_and_publish(budget: _Budget, totals: Totals, sizes: Sizes, data: CountedByBound, source: Source) -> Release:
    """Choose the bound by the private histogram, and publish."""
    request = budget.request
    half = partial(_half, len(totals) + 1, request.min_units - 1)
    kinds = allowed_kinds(request, budget.left, data, sizes) & ({AT_ONCE, TWO_STEPS} if totals else {AT_ONCE})
    chosen = choose_way(sizes, budget.left, request.delta, request.goal, kinds, half)
    if chosen.kind == TWO_STEPS:
        pairs = read_pairs_again(data)
        with suppress(InvalidValue, NotCertified):  # by public numbers, no mechanism of this kind has the guarantee
            later = budget.two_steps(None, totals, typical_keys(sizes), min(chosen.share, _MOST_TO_FIND))
            if pairs is not None:
                return _publish(budget, later, totals, sizes, FromPairs(pairs, data.most_pairs), source)
        chosen = choose_way(sizes, budget.left, request.delta, request.goal, kinds - {TWO_STEPS}, half)
    keys = chosen.keys or 1
    try:
        way = budget.at_once(keys, totals)
        budget.compose(way, totals).certify()
    except (InvalidValue, NotCertified):
        way = budget.at_once(1, totals)  # rehearsed before the charge
    return _publish(budget, way, totals, sizes, data, source)


def _half(dimensions: int, shift: int, epsilon: float, delta: float, keys: int) -> float:
    share = share_of_keys(keys, epsilon, delta)
    return half_published(share.epsilon, share.delta, dimensions) + shift


def _publish(
    budget: _Budget, way: _Way, totals: Totals, sizes: Sizes | None, data: CountedByBound, source: Source
) -> Release:
    """Draw from true data that is paid for, and return the release."""
    composed, request = budget.compose(way, totals), budget.request
    words, others, sizes = str(Contribution(way.keys)), None, sizes if request.report_coverage else None
    if isinstance(way.mechanism, FindThenMeasure):
        sizes = None  # of all keys
        pairs = data.read_pairs()
        found = way.mechanism.find(pairs, source)
        keys, outcome, bound = found.keys, found.outcome, found.keys_per_unit
        words = _COUNTED_IN.format(keys=bound)
        if composed.rest is not None:
            # A unit counts in as many of the other keys as the mechanism allows for, whatever bound was drawn.
            others = pairs.restrict(~found.selected).bound(way.keys).count()
    else:
        counted = data.under(way.keys)
        if composed.rest is None:
            keys, outcome = counted.draw(composed, source)
        else:
            keys, outcome, others = counted.draw_with_rest(composed, source)
    if others is not None:
        outcome = _with_rest(composed, others, totals, outcome, source)
    coverage = None if sizes is None else sizes.kept(way.keys)
    words += CHOSEN if request.chooses_bound else ""
    words += UNSTATED if request.report_coverage and coverage is None else ""
    notes = Notes(words if request.privacy_unit else "", way.reason, coverage=coverage)
    return release_of(composed, keys, outcome, notes=notes, source=source)


def _with_rest(composed: Composed, others: Counted, totals: Totals, outcome: Outcome, source: Source) -> Outcome:
    assert isinstance(composed.rest, Rest)
    rows = [i for i, total in enumerate(totals) if total.statistic == "sum"]
    sums = None if others.sums is None else others.sums[rows].sum(axis=1)
    drawn = composed.rest.draw(int(others.frequencies.sum()), sums, source)
    return replace(outcome, drawn={**outcome.drawn, **drawn})


def _describe(budget: _Budget, way: _Way, totals: Totals, promise: Guarantee) -> Preview:
    """Return the preview: the noise of totals and means beside that of counts."""
    request, mechanism, details = budget.request, way.mechanism, list[tuple[str, str]]()
    when = f" with at most {way.keys:,} key{'s' * (way.keys > 1)} per unit" if request.chooses_bound else ""
    deviation = _errors(mechanism, way.keys)[1] if totals else 0.0
    for i, total in enumerate(totals):
        name = f"{total.statistic} of {total.column!r}"
        if i in budget.picks:
            details.append((name, f"bounds from {100 * SHARE_FOR_BOUNDS:g} % of epsilon, with differential privacy"))
            continue
        noise = f"{deviation * math.hypot(total.half_width, total.centre):,.4g} on each total"
        if total.statistic == "mean":
            noise = f"about {deviation * total.half_width:,.3g} / (number of units) on each mean"
        details.append((name, f"bounds {total.low:g} to {total.high:g}: noise of standard deviation {noise}{when}"))
    if request.rest:
        details.append(("the rest", f"one row, for {100 * SHARE_FOR_REST:g} % of epsilon"))
    words = "a bound chosen with differential privacy" if request.chooses_bound else str(Contribution(way.keys))
    seen = Preview(promise, mechanism.name, way.reason, words, details=tuple(details))
    if isinstance(mechanism, ReportedCounts) and not request.chooses_bound:  # a rest without totals
        name = mechanism.mechanism.name if isinstance(mechanism, Floored) else mechanism.name
        counted = Preview.of(Choice(mechanism, name, way.reason), words)
        return replace(counted, guarantee=promise, details=seen.details)
    if not isinstance(mechanism, KeyTotals):
        return seen
    each = (mechanism.guarantee.epsilon, mechanism.guarantee.delta)
    shares = (0, 0, 0) if mechanism.reports_all else tuple(map(mechanism.frequency_at, (0.05, 0.5, 0.95)))
    width = math.ceil(2 * float(mechanism.half_width_of(np.zeros(1), np.ones(1))[0]) / mechanism.resolution)
    return replace(seen, each_key=each, rarely=shares[0], half=shares[1], surely=shares[2], width=width)
