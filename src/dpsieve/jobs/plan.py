"""Which mechanism, at which parameters: decided from public numbers alone, before any data is read."""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

from dpsieve.channels.baselines import stability, truncated_geometric
from dpsieve.channels.budget import SMALLEST_DELTA, SMALLEST_EPSILON, check_budget
from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.channels.optimal_channels import optimal, rows_of_units, simple
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import minimise
from dpsieve.jobs.bounds import histogram_for
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.jobs.two_steps import TWO_STEPS, in_two_steps
from dpsieve.noise.gaussian_threshold import gaussian
from dpsieve.noise.known_keys import NOISES, known_keys
from dpsieve.noise.private_total import PrivateTotal
from dpsieve.noise.report_tables import rough_half
from dpsieve.noise.report_then_count import report_then_count
from dpsieve.privacy import Guarantee, Share, repeated_share
from dpsieve.privacy.composed import Composed, Use, remaining
from dpsieve.privacy.mechanism import Counting, Mechanism
from dpsieve.sampling.schemes import Scheme, everything

MECHANISMS = ("auto", "optimal", "simple", "truncated_geometric", "stability", "gaussian", "report_then_count")
SHARE_FOR_SIZE = 0.05  # of epsilon, for the total that sets the sampling rate
_CHOSEN = "requested by the caller"
_LONG = 10_000  # a table for keys that are reported half of the time only at this frequency takes many seconds
_FAR = 4  # times the best frequency: no closer look is needed
_WHOLE = ("gaussian", "report_then_count")  # these have one guarantee for all keys of a unit


@dataclass(frozen=True)
class Plan:
    """A mechanism for whole units, and why it was chosen.

    Attributes:
        mechanism: what one unit goes through.
        name: of the mechanism that reports keys.
        reason: in words.
        considered: for each mechanism that was compared, the frequency that it reports half of the time.
    """

    mechanism: Counting
    name: str
    reason: str
    considered: dict[str, int] = field(default_factory=dict)

    @property
    def guarantee(self) -> Guarantee:
        """What a release made by this plan promises."""
        return self.mechanism.guarantee

    @property
    def each(self) -> Counting:
        """What one key goes through."""
        return self.mechanism.last if isinstance(self.mechanism, Composed) else self.mechanism


def make_plan(request: ReleaseRequest) -> Plan:
    """Return the plan for a request.

    Neighbours are add/remove of one unit. A channel for one key, used for several keys of a unit, gets the largest
    share of the budget that their optimal composition allows (Kairouz, Oh and Viswanath 2015); Gaussian noise with a
    threshold (Wilkins et al. 2024) and `report_then_count` have one guarantee for all keys of a unit. 'auto' takes what
    reports a key of the lowest frequency with probability one half. With a sample size, part of epsilon buys the total
    that sets the sampling rate (see `sampled`). With the goal 'counts' and several keys a unit, keys are found first
    and then counted (see `jobs.two_steps`).

    >>> make_plan(ReleaseRequest(key="query", epsilon=1.0, delta=1e-8)).name
    'optimal'
    """
    if request.known_keys is not None:
        return _known(request)
    check_budget(request.epsilon, request.delta)
    if request.mechanism not in MECHANISMS:
        if request.mechanism == "laplace":
            why = "a public list of keys, each of which is answered, as it withholds none"
            raise InvalidValue(f"mechanism='laplace' needs known_keys: {why}. Pass known_keys, or leave mechanism out.")
        raise InvalidValue(f"mechanism is not known. Choose one of {', '.join(MECHANISMS)}.")
    if request.sample_size is not None:
        return sampled(request, everything())
    if request.two_steps:
        return Plan(in_two_steps(request), "find_then_count", TWO_STEPS)
    if (histogram := histogram_for(request)) is not None:
        return behind(histogram, request)
    return _unknown(request, request.epsilon, request.scheme)


def sampled(request: ReleaseRequest, scheme: Scheme) -> Plan:
    """Return the plan for a request with a sample size, whose scheme came from a private total."""
    total = PrivateTotal(request.epsilon * SHARE_FOR_SIZE, request.contribution.keys, unit=request.unit)
    return behind(total, request, scheme)


def behind(first: Mechanism, request: ReleaseRequest, scheme: Scheme | None = None) -> Plan:
    """Return the plan with what is left of epsilon after a first, pure mechanism.

    Where that chooses the bound on keys, this is the plan for one key a unit: what it spends, (epsilon, delta) of one
    channel, covers every other choice too.
    """
    rest = _unknown(request, remaining(request.epsilon, first.guarantee.epsilon), scheme)
    uses = rest.mechanism.uses if isinstance(rest.mechanism, Composed) else (Use(rest.mechanism),)
    return replace(rest, mechanism=Composed(request.epsilon, request.delta, (Use(first), *uses)))


def _unknown(request: ReleaseRequest, epsilon: float, scheme: Scheme | None) -> Plan:
    """Return the plan for keys that nobody listed in advance."""
    mechanism, delta, unit = request.mechanism, request.delta, request.unit
    keys, rows = request.contribution.keys, request.contribution.rows
    if mechanism in _WHOLE and scheme is not None:
        raise InvalidValue(f"mechanism='{mechanism}' cannot sample. Leave the scheme out, or use mechanism='optimal'.")
    if rows > 1 and (scheme is not None or mechanism in ("optimal", "truncated_geometric", "stability")):
        raise InvalidValue(
            f"max_rows_per_key above 1 works with mechanism 'auto', 'simple', {_listed(_WHOLE)}, without a scheme. "
            "Count units instead of rows, or leave the mechanism to 'auto'."
        )

    def whole(name: str) -> ReportedCounts:
        """Return a channel with one guarantee for all keys of a unit."""
        if name == "gaussian":
            return gaussian(epsilon, delta, keys, rows, unit=unit)
        goal = "keys" if request.keys_only else "counts"
        return report_then_count(epsilon, delta, keys, rows, goal=goal, unit=unit)

    if mechanism in _WHOLE:
        return Plan(whole(mechanism), mechanism, _CHOSEN)
    share = _share(keys, epsilon, delta)
    small = share.epsilon < SMALLEST_EPSILON or share.delta < SMALLEST_DELTA
    if small and (mechanism != "auto" or scheme is not None):
        raise InvalidValue(
            f"max_keys_per_unit={keys} leaves each key epsilon={share.epsilon:.3g} and delta={share.delta:.3g}, too "
            f"little for this mechanism. Use mechanism={_listed(_WHOLE)}, or a smaller max_keys_per_unit."
        )
    name = ("optimal" if rows == 1 else "simple") if mechanism == "auto" else mechanism
    made: dict[str, Counting] = {}
    considered: dict[str, int] = {}
    if not small:
        each = _each(mechanism, share, rows, scheme, unit)
        made[name] = each if keys == 1 else Composed(epsilon, delta, (Use(each, keys),))
        if mechanism != "auto":
            return Plan(made[name], name, _CHOSEN)
        if scheme is not None:
            return Plan(made[name], name, "it is the best channel that samples")
        if keys == rows == 1:
            return Plan(made[name], name, "no private mechanism reports keys more often")
    for other in _WHOLE:
        if other == _WHOLE[1] and keys > 1 and rough_half(epsilon, delta, keys) > _LONG:
            continue
        try:
            made[other] = channel = whole(other)
        except InvalidValue:  # no room for it in this budget, which public numbers tell
            continue
        considered[other] = frequency_at(channel, 0.5) or 10**9
    if not small:
        near = math.ceil(_middle(share) * rows)  # to a unit or so; far behind, its rows need not be made
        far = near > _FAR * min(considered.values(), default=near)
        considered = {name: near if far else frequency_at(each, 0.5) or 10**9, **considered}
    # A key a little rarer is not worth the noise of counts that the others do not have.
    best = min(considered, key=lambda kind: considered[kind] * (1.05 if kind == _WHOLE[1] else 1))
    others = sorted(considered.keys() - {best}, key=lambda kind: considered[kind])
    halves = [f"it reports a key of frequency {considered[best]:,} half of the time"]
    why = ", ".join(halves + [f"{kind} needs {considered[kind]:,}" for kind in others])
    return Plan(made[best], best, why, considered)


def _known(request: ReleaseRequest) -> Plan:
    """Return the plan for keys that are known in advance; see `dpsieve.noise.known_keys`."""
    if request.mechanism not in NOISES:
        raise InvalidValue(f"with known_keys, mechanism is one of {', '.join(NOISES)}.")
    epsilon, delta, unit = request.epsilon, request.delta, request.unit
    keys, rows = request.contribution.keys, request.contribution.rows
    made = known_keys(epsilon, delta, keys, rows, noise=request.mechanism, unit=unit)
    if request.mechanism != "auto":
        why = _CHOSEN
    elif delta == 0:
        why = "with delta = 0 there is no other"
    else:
        noise = "gaussian" if made.noise == "laplace" else "laplace"
        other = known_keys(epsilon, delta, keys, rows, noise=noise)
        why = f"its standard deviation is {made.deviation:.4g}, that of {other.noise} noise {other.deviation:.4g}"
    return Plan(made, made.noise, why)


def _listed(names: tuple[str, ...]) -> str:
    return " or ".join(f"'{name}'" for name in names)


def _each(mechanism: str, share: Share, rows: int, scheme: Scheme | None, unit: str) -> ReportedCounts:
    """Return the channel for one key at its share of the budget."""
    if rows > 1:
        return rows_of_units(share.epsilon, share.delta, rows, unit=unit)
    if mechanism == "truncated_geometric":
        if scheme is not None:
            raise InvalidValue("mechanism='truncated_geometric' cannot sample. Leave the scheme out.")
        return truncated_geometric(share.epsilon, share.delta, unit=unit)
    if mechanism == "stability":
        return stability(share.epsilon, share.delta, scheme, unit=unit)
    make = simple if mechanism == "simple" else optimal
    return make(share.epsilon, share.delta, scheme, unit=unit)


@lru_cache(maxsize=64)
def _share(keys: int, epsilon: float, delta: float) -> Share:
    """Return the (epsilon, delta) of each key, with delta split such that keys of the lowest frequency come out."""
    if keys == 1:
        return Share(epsilon, delta)

    def share(part: float) -> Share:
        return repeated_share(keys, epsilon, delta, delta_for_keys=part)

    return share(minimise(lambda part: _middle(share(part)), 0.01, 0.99, rounds=12))


def _middle(share: Share) -> float:
    """Return the frequency that the optimal channel reports half of the time, nearly."""
    return math.log1p(math.expm1(share.epsilon) / (2 * share.delta)) / share.epsilon
