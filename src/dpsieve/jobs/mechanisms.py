"""Choose the mechanism of a release from public numbers."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from dpsieve.accounting.composition import Share, repeated_share
from dpsieve.channels.channel import ReportedCounts
from dpsieve.channels.floored import floored
from dpsieve.channels.unknown_keys import optimal, rows_of_units, simple, stability, truncated_geometric
from dpsieve.discovery.divided_units import DividedUnits
from dpsieve.discovery.find_then_count import FindThenCount, find_then_count
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.balls import minimise
from dpsieve.jobs.request import KEYS_PER_UNIT, ReleaseRequest
from dpsieve.noise.gaussian_threshold import gaussian
from dpsieve.noise.keys_per_unit import Coverage, KeysPerUnit
from dpsieve.noise.known_keys import NOISES, known_keys
from dpsieve.noise.report_tables import rough_half
from dpsieve.noise.report_then_count import report_then_count
from dpsieve.privacy.guarantee import Contribution
from dpsieve.privacy.mechanism import Composed, Counting, Mechanism, Use, remaining
from dpsieve.sampling.schemes import Scheme
from dpsieve.validate import SMALLEST_DELTA, SMALLEST_EPSILON, check_budget

CHOSEN = ", a bound chosen with differential privacy"
UNSTATED = "; coverage is too uncertain to state"
SHARE_FOR_BOUND, SHARE_FOR_COVERAGE = 0.03, 0.01  # of epsilon
USUAL_SHARE = 0.6  # of a unit's weight, to find keys in two steps: the one that is nearly always chosen
_FEW_KEYS, _LOW_COVERAGE = 10, 0.5
_REQUESTED = "requested by the caller"
_LONG = 10_000  # a table for keys that are reported half of the time only at this frequency takes many seconds
_FAR = 4  # times the best frequency: no closer look is needed
_PER_UNIT = ("report_then_count", "gaussian")  # these have one guarantee for all keys of a unit


@dataclass(frozen=True)
class Choice:
    """A mechanism for units, and why it was chosen.

    Attributes:
        mechanism: what one unit goes through.
        name: the name of the mechanism that reports keys.
        reason: why it was chosen.
    """

    mechanism: Counting
    name: str
    reason: str

    def after(self, first: Mechanism, epsilon: float, delta: float) -> "Choice":
        """Return the choice where another, pure mechanism comes first, and both together promise (epsilon, delta)."""
        return replace(self, mechanism=Composed(epsilon, delta, (Use(first), *self.mechanism.uses)))


def choose_mechanism(
    request: ReleaseRequest,
    contribution: Contribution,
    *,
    first: Mechanism | None = None,
    scheme: Scheme | None = None,
    keys_only: bool = False,
) -> Choice:
    """Return the mechanism for a request whose units add at most this contribution.

    Neighbours are add/remove of one unit. A channel for one key, used for several keys of a unit, gets the largest
    share of the budget that their optimal composition allows (Kairouz, Oh and Viswanath 2015); Gaussian noise with a
    threshold (Wilkins et al. 2024) and `report_then_count` have one guarantee for all keys of a unit. 'auto' takes what
    reports a key of the lowest frequency with probability one half. A pure mechanism that comes `first` leaves the rest
    of epsilon.

    >>> choose_mechanism(ReleaseRequest(key="query", privacy_unit="row", epsilon=1.0, delta=1e-8), Contribution()).name
    'optimal'
    """
    if request.known_keys is not None:
        return _choose_known(request, contribution)
    check_budget(request.epsilon, request.delta)
    if request.method == "laplace":
        why = "a public list of keys, as it withholds none"
        raise InvalidValue(f"method='laplace' needs known_keys: {why}. Pass known_keys, or leave method out.")
    if first is None:
        return _choose_unknown(request, contribution, request.epsilon, scheme, keys_only)
    left = remaining(request.epsilon, first.guarantee.epsilon)
    choice = _choose_unknown(request, contribution, left, scheme, keys_only)
    return choice.after(first, request.epsilon, request.delta)


def _choose_unknown(
    request: ReleaseRequest, contribution: Contribution, epsilon: float, scheme: Scheme | None, keys_only: bool
) -> Choice:
    """Return the mechanism for keys that are not listed in advance."""
    method, delta, unit, keys, rows = request.method, request.delta, request.unit, contribution.keys, contribution.rows
    if method in _PER_UNIT and scheme is not None:
        raise InvalidValue(f"method='{method}' cannot sample. Leave the scheme out, or use method='optimal'.")
    if rows > 1 and (scheme is not None or method in ("optimal", "truncated_geometric", "stability")):
        raise InvalidValue(
            f"max_rows_per_key above 1 works with method 'auto', 'simple', {_listed(_PER_UNIT)}, without a scheme. "
            "Count units instead of rows, or leave the method to 'auto'."
        )

    def per_unit(name: str) -> ReportedCounts:
        """Return a mechanism with one guarantee for all keys of a unit."""
        if name == "gaussian":
            return floored(gaussian(epsilon, delta, keys, rows, unit=unit), request.min_units)
        made = report_then_count(epsilon, delta, keys, rows, goal="keys" if keys_only else "counts", unit=unit)
        return floored(made, request.min_units)

    if method in _PER_UNIT:
        return Choice(per_unit(method), method, _REQUESTED)
    share = share_of_keys(keys, epsilon, delta)
    small = share.epsilon < SMALLEST_EPSILON or share.delta < SMALLEST_DELTA
    if small and (method != "auto" or scheme is not None):
        raise InvalidValue(
            f"max_keys_per_unit={keys} leaves each key epsilon={share.epsilon:.3g} and delta={share.delta:.3g}, too "
            f"little for this method. Use method={_listed(_PER_UNIT)}, or a smaller max_keys_per_unit."
        )
    name = ("optimal" if rows == 1 else "simple") if method == "auto" else method
    candidates: dict[str, Counting] = {}
    halves: dict[str, int] = {}
    if not small:
        each = floored(_per_key(method, share, rows, scheme, unit), request.min_units)
        candidates[name] = each if keys == 1 else Composed(epsilon, delta, (Use(each, keys),))
        if method != "auto":
            return Choice(candidates[name], name, _REQUESTED)
        if scheme is not None:
            return Choice(candidates[name], name, "it is the best channel that samples")
        if keys == rows == 1:
            return Choice(candidates[name], name, "no private mechanism reports keys more often")
    for other in _PER_UNIT:  # Gaussian noise is the fallback: it never wins where the first is possible
        if other == _PER_UNIT[0] and keys > 1 and rough_half(epsilon, delta, keys) > _LONG:
            continue
        try:
            candidates[other] = channel = per_unit(other)
        except InvalidValue:  # this budget has no room for it, which depends on public numbers only
            continue
        halves[other] = channel.half or 10**9
        break
    if not small:
        near = math.ceil(
            (_half(share) + request.min_units - 1) * rows
        )  # within about one unit; far behind, its rows need not be computed
        far = near > _FAR * min(halves.values(), default=near)
        halves = {name: near if far else each.half or 10**9, **halves}
    # A slightly rarer key does not justify counts with more noise than those of the others.
    best = min(halves, key=lambda kind: halves[kind] * (1.05 if kind == _PER_UNIT[0] else 1))
    others = sorted(halves.keys() - {best}, key=lambda kind: halves[kind])
    words = [f"a key of frequency {halves[best]:,} is reported half of the time"]
    for kind in others:
        words += [f"{kind}{'' if kind in _PER_UNIT else ', which splits the budget over keys,'} needs {halves[kind]:,}"]
    return Choice(candidates[best], best, "; ".join(words))


def _choose_known(request: ReleaseRequest, contribution: Contribution) -> Choice:
    """Return the noise for keys that are known in advance; see `dpsieve.noise.known_keys`."""
    if request.method not in NOISES:
        raise InvalidValue(f"with known_keys, method is one of {', '.join(NOISES)}.")
    budget = (request.epsilon, request.delta, contribution.keys, contribution.rows)
    mechanism = known_keys(*budget, noise=request.method, unit=request.unit)
    if request.method != "auto":
        reason = _REQUESTED
    elif request.delta == 0:
        reason = "delta = 0 allows no other"
    else:
        other = known_keys(*budget, noise="gaussian" if mechanism.noise == "laplace" else "laplace")
        deviations = f"{mechanism.deviation:.4g}, that of {other.noise} noise {other.deviation:.4g}"
        reason = f"its standard deviation is {deviations}"
    return Choice(mechanism, mechanism.noise, reason)


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def _per_key(method: str, share: Share, rows: int, scheme: Scheme | None, unit: str) -> ReportedCounts:
    """Return the channel for one key at its share of the budget."""
    if rows > 1:
        return rows_of_units(share.epsilon, share.delta, rows, unit=unit)
    if method == "truncated_geometric":
        if scheme is not None:
            raise InvalidValue("method='truncated_geometric' cannot sample. Leave the scheme out.")
        return truncated_geometric(share.epsilon, share.delta, unit=unit)
    if method == "stability":
        if scheme is not None:
            fix = "Use dpsieve.papers.weighted_sampling.sampled_stability."
            raise InvalidValue(f"method='stability' cannot sample. {fix}")
        return stability(share.epsilon, share.delta, unit=unit)
    make = simple if method == "simple" else optimal
    return make(share.epsilon, share.delta, scheme, unit=unit)


@lru_cache(maxsize=64)
def share_of_keys(keys: int, epsilon: float, delta: float) -> Share:
    """Return the (epsilon, delta) of each key, with delta split such that keys of the lowest frequency are reported."""
    if keys == 1:
        return Share(epsilon, delta)

    def share(part: float, tolerance: float = 0.0) -> Share:
        return repeated_share(keys, epsilon, delta, delta_for_keys=part, tolerance=tolerance)

    return share(minimise(lambda part: _half(share(part, 1e-9)), 0.01, 0.99, rounds=12))


def _half(share: Share) -> float:
    """Return about the frequency that the optimal channel reports half of the time."""
    return math.log1p(math.expm1(share.epsilon) / (2 * share.delta)) / share.epsilon


def half_reported(epsilon: float, delta: float, keys: int) -> float:
    """Return about the frequency that the best mechanism reports half of the time, for units of this many keys."""
    return _half(Share(epsilon, delta)) if keys == 1 else rough_half(epsilon, delta, keys)


def dividing(request: ReleaseRequest, epsilon: float, delta: float, keys: int, *first: Mechanism) -> Composed:
    """Return what finds keys with what units do not need to be counted in this many, after another mechanism."""
    last = DividedUnits(epsilon, delta, keys, request.min_units, unit=request.unit)
    return Composed(request.epsilon, request.delta, tuple(map(Use, (*first, last))))


def keys_seen(request: ReleaseRequest) -> int:
    """Return the number of keys per unit that the selection in two steps sees."""
    return KEYS_PER_UNIT if request.chooses_bound or request.way == "two_steps" else request.contribution.keys


def counting(request: ReleaseRequest, epsilon: float, delta: float, typical: int, share: float) -> FindThenCount:
    """Return the mechanism for this typical number of keys; it may be paid for, so take 1 where there is none."""
    seen = keys_seen(request)
    try:
        mechanism = find_then_count(
            epsilon,
            delta,
            seen,
            keys=None if request.chooses_bound else request.contribution.keys,
            kept_epsilon=request.epsilon * SHARE_FOR_COVERAGE if request.report_coverage else 0.0,
            typical_keys=min(typical, seen),
            share=share,
            min_units=request.min_units,
            unit=request.unit,
        )
        mechanism.certify()
    except (InvalidValue, NotCertified):
        if (typical, share) == (1, USUAL_SHARE):
            raise
        return counting(request, epsilon, delta, 1, USUAL_SHARE)  # rehearsed before the charge
    return mechanism


def half_reported_by(request: ReleaseRequest) -> Callable[[float, float, int], float]:
    """Return `half_reported` for the method and the floor of a request; requests that are alike share one function."""
    return _half_above(half_reported if request.method in ("auto", *_PER_UNIT) else _half_divided, request.min_units)


@lru_cache(maxsize=16)
def _half_above(half: Callable[[float, float, int], float], min_units: int) -> Callable[[float, float, int], float]:
    return half if min_units == 1 else lambda *budget: half(*budget) + min_units - 1


def _half_divided(epsilon: float, delta: float, keys: int) -> float:
    return _half(share_of_keys(keys, epsilon, delta))


def histogram_for(request: ReleaseRequest) -> KeysPerUnit | None:
    """Return the histogram of keys per unit that a request pays for; None if it needs none."""
    if request.chooses_bound:
        return KeysPerUnit(request.epsilon * SHARE_FOR_BOUND, unit=request.unit)
    if request.report_coverage:
        return KeysPerUnit(request.epsilon * SHARE_FOR_COVERAGE, request.contribution.keys, unit=request.unit)
    return None


def rarer_keys(request: ReleaseRequest, keys: int, half: float | None = None) -> str:
    """Return how rare a reported key may be, and what would report rarer ones, from public numbers.

    `half` is the frequency that is reported half of the time, where that is known exactly.
    """
    if request.two_steps:
        return "pass goal='keys'"
    other = request.known_keys is not None or request.scheme is not None or request.sample_size is not None
    if other or request.method != "auto":
        return ""
    epsilon, delta, rows = request.epsilon, request.delta, request.max_rows_per_key
    changes = {f"max_keys_per_unit={keys // 2}": (epsilon, delta, keys // 2)} if keys > 1 else {}
    changes |= {f"epsilon={2 * epsilon:g}": (2 * epsilon, delta, keys)} if epsilon <= 5 else {}
    changes |= {f"delta={10 * delta:g}": (epsilon, 10 * delta, keys)} if delta <= 1e-6 else {}
    halves = half_reported_by(request)
    options = [f"of {halves(*numbers) * rows:,.0f} with {name}" for name, numbers in changes.items()]
    now = f"half of the keys of frequency {half or halves(epsilon, delta, keys) * rows:,.0f} are reported now"
    return f"change the bound or the budget: {', '.join([now, *options])}"


def hint_for(
    reported: int,
    coverage: Coverage | None,
    request: ReleaseRequest,
    keys: int,
    half: Callable[[], float | None] = lambda: None,
) -> str:
    """Return, where few keys are reported, what would report rarer ones; empty otherwise. `half` as in `rarer_keys`."""
    if reported >= _FEW_KEYS:
        return ""
    try:
        hint = rarer_keys(request, keys, half())
    except InvalidValue:  # never fail a paid release because of a hint
        return ""
    if hint and coverage is not None and coverage.high < _LOW_COVERAGE:
        hint += f"; a larger max_keys_per_unit than {keys} would keep more pairs"
    return hint
