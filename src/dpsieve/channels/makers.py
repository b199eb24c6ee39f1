"""The channels by name. All protect one unit more or less (add/remove neighbours) that counts once, in one key."""

import math
from typing import Any

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.channels.grid import Steps
from dpsieve.channels.lag.noise import LaplaceCut, geometric_lag
from dpsieve.channels.lag.optimal import optimal_lag
from dpsieve.channels.lag.rows import AdditiveChannel
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy import Guarantee
from dpsieve.sampling.schemes import DataDependent, Scheme, everything

SMALLEST_EPSILON, LARGEST_EPSILON, SMALLEST_DELTA = 1e-3, 50.0, 1e-20


def optimal(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> Channel:
    """Return the channel that reports every key as often as any private channel may, and orders keys best.

    Algorithm 5 of Cohen, Geri, Sarlos and Stemmer (2021), corrected. With a scheme that samples a key of frequency i
    with probability q_i (none: q = 1), it is reported with probability
    pi_i = min(q_i, e^epsilon pi_(i-1) + delta, 1 - e^-epsilon (1 - pi_(i-1) - delta)), pi_0 = 0: the largest that any
    (epsilon, delta)-private mechanism allows. Any two keys come out in their true order with the largest probability:
    without a scheme among all private channels, with one among those with the same reporting probabilities (another may
    order one pair better by reporting the lower key less).

    Args:
        epsilon: the budget, from 0.001 to 50.
        delta: the probability with which a key of one unit may show, from 1e-20.
        scheme: a sampling scheme such as `dpsieve.ppswor(0.01)`.
        unit: who is protected, in words, for the guarantee.

    >>> channel = optimal(1.0, 1e-8)
    >>> channel.reporting_probability([1, 10, 20, 40]).round(8).tolist()
    [1e-08, 0.00012818, 0.91637981, 1.0]
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    return _weighted("optimal", epsilon, delta, scheme, _resolution(epsilon, delta), unit)


def simple(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> Channel:
    """Return the channel with the same reporting probabilities as `optimal` and whole tokens from 1 to the frequency.

    Algorithm 4 of Cohen, Geri, Sarlos and Stemmer (2021): easier to read, slightly worse at telling keys apart.

    >>> simple(0.5, 0.01).row(3).right.tolist()
    [1.0, 2.0, 3.0]
    """
    return _weighted("simple", *unknown_domain(epsilon, delta), scheme, 1, unit)


def stability(
    epsilon: float, delta: float, scheme: Scheme | None = None, *, threshold: str = "fair", unit: str = "one row"
) -> Channel:
    """Return the stability histogram, the usual baseline: Laplace noise, and nothing below a threshold T.

    A key is reported when frequency + Lap(1/epsilon) >= T (Korolova et al. 2009; Bun, Nissim and Stemmer 2019), with
    T = 1 + ln(1/(2 delta))/epsilon for threshold='fair', which uses all of delta, and T = 1 + ln(1/delta)/epsilon for
    threshold='paper', which leaves half of it unused. The token counts whole units above T. With a scheme, a reported
    key of noisy count x is kept with probability q(x) (sampled SbH): a key of frequency i is reported with probability

        phi_i = integral over x >= T of q(x) epsilon/2 e^(-epsilon |x - i|)

    (Cohen, Geri, Sarlos and Stemmer 2020, appendix E), to 1e-9 for smooth schemes and tables, and the token tells x to
    half a unit or so (see `channels.lag.sampled_stability`). For delta above 1/2 use another channel.
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    if threshold not in ("fair", "paper"):
        raise InvalidValue("threshold is neither 'fair' nor 'paper'. Pass threshold='fair' unless you check a figure.")
    if delta > 0.5:
        raise InvalidValue(f"delta={delta:g} is above 1/2, where a stability histogram has no threshold. Use optimal.")
    split = scheme is not None and scheme != everything()
    cut = LaplaceCut.of(epsilon, delta, paper=threshold == "paper", split=split)
    channel = AdditiveChannel("stability", Guarantee(epsilon, delta, unit=unit), 1 + split, cut.lag)
    if scheme is None or not split:
        return _remember(channel, "stability", None, threshold=threshold)
    from dpsieve.channels.lag.sampled_stability import ThinnedChannel

    return _remember(ThinnedChannel(channel, _checked(scheme), cut), "stability", scheme, threshold=threshold)


def truncated_geometric(epsilon: float, delta: float, *, unit: str = "one row") -> Channel:
    """Return the selection used by Google's libraries: geometric noise cut to [-k, k], reported when above k.

    Near optimal; exactly so only when the ceiling in k is tight (Desfontaines, Voss, Gipson and Mandayam, PoPETs 2022).
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    guarantee = Guarantee(epsilon, delta, unit=unit)
    channel = AdditiveChannel("truncated geometric", guarantee, 1, geometric_lag(epsilon, delta))
    return _remember(channel, "truncated_geometric", None)


def unknown_domain(epsilon: float, delta: float) -> tuple[float, float]:
    """Return checked parameters for reporting keys that nobody listed in advance."""
    hint = "Pass a budget such as epsilon=1.0."
    epsilon = validate.between("epsilon", epsilon, SMALLEST_EPSILON, LARGEST_EPSILON, hint=hint)
    delta = validate.delta(delta)
    if delta < SMALLEST_DELTA:
        why = "a key of one unit may be reported with probability delta at most, so with none no key could ever be"
        fix = "Pass one such as delta=1e-8; when all keys are known in advance, noise without a threshold needs none"
        raise InvalidValue(f"delta={delta:g} is below {SMALLEST_DELTA:g}: {why}. {fix}.")
    return epsilon, delta


def _weighted(name: str, epsilon: float, delta: float, scheme: Scheme | None, resolution: int, unit: str) -> Channel:
    guarantee = Guarantee(epsilon, delta, unit=unit)
    if scheme is None or scheme == everything():
        lag = optimal_lag(Steps(epsilon, delta), resolution)
        return _remember(AdditiveChannel(name, guarantee, resolution, lag), name, None)
    from dpsieve.channels.stepwise.rows import SteppedChannel

    hint = "Pass a smaller one; with a sampling scheme it may be 40 at most."
    validate.between("epsilon", epsilon, SMALLEST_EPSILON, 40.0, hint=hint)
    units = _units(epsilon, delta)
    return _remember(SteppedChannel(name, guarantee, resolution, units, _checked(scheme)), name, scheme)


def _remember(channel: Channel, name: str, scheme: Scheme | None, **more: str) -> Channel:
    """Store how the channel was made."""
    promise = channel.guarantee
    numbers = {"epsilon": promise.epsilon, "delta": promise.delta, "unit": promise.unit}
    saved = None if scheme is None else _saved(scheme)
    channel.parameters = {"channel": name, **numbers, "scheme": saved, **more}
    return channel


def _saved(scheme: Scheme) -> dict[str, Any] | str:
    try:
        return scheme.to_json()
    except InvalidType:
        return "a function, which cannot be saved"


def _checked(scheme: object) -> Scheme:
    if not isinstance(scheme, Scheme):
        hint = "Pass one such as dpsieve.ppswor(0.01), or leave it out."
        raise InvalidType(f"scheme must be a sampling scheme, not {type(scheme).__name__}. {hint}")
    if isinstance(scheme, DataDependent):
        raise InvalidValue(
            "scheme has a rate that was read off the data, which is not private. Use one with a fixed tau."
        )
    return scheme


def _units(epsilon: float, delta: float) -> int:
    """Return more units than any row spreads over.

    That is 2 L + 1 (L as in Lemma 4.2 of the paper) while delta may vanish at each step. It may not while 'nothing'
    itself shrinks by e^-epsilon, which can happen ln(1/delta)/epsilon times in all.
    """
    return math.ceil(3 / epsilon * math.log1p(math.expm1(epsilon) / delta)) + 4


def _resolution(epsilon: float, delta: float) -> int:
    """Return how many parts a unit is cut into: the masses keep 46 bits, and a row stays below 2^30 parts."""
    room = 30 - math.log2(_units(epsilon, delta))
    return 1 << max(0, min(20, math.floor(math.log2(delta) + 128 - 46), math.floor(room)))
