"""Which mechanism, at which parameters: decided from public numbers alone, before any data is read."""

import math
from dataclasses import dataclass, field

from dpsieve import validate
from dpsieve.channels import (
    Channel,
    KnownKeys,
    gaussian,
    known_keys,
    optimal,
    rows_of_units,
    simple,
    stability,
    truncated_geometric,
)
from dpsieve.channels.contributions import most_keys, most_rows
from dpsieve.channels.known_keys import NOISES
from dpsieve.channels.makers import SMALLEST_DELTA, SMALLEST_EPSILON, unknown_domain
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import minimise
from dpsieve.privacy import Guarantee, Share, repeated_share
from dpsieve.sampling.schemes import Scheme

MECHANISMS = ("auto", "optimal", "simple", "truncated_geometric", "stability", "gaussian")


@dataclass(frozen=True)
class Plan:
    """A channel, or the noise for known keys, the guarantee of a release made with it, and why it was chosen."""

    channel: Channel | KnownKeys
    guarantee: Guarantee
    mechanism: str
    reason: str
    max_keys: int
    max_rows: int
    considered: dict[str, int] = field(default_factory=dict)


def make_plan(
    epsilon: float,
    delta: float,
    *,
    max_keys: int = 1,
    max_rows: int = 1,
    mechanism: str = "auto",
    scheme: Scheme | None = None,
    unit: str = "one row",
) -> Plan:
    """Return the plan for units that add at most `max_rows` rows to each of at most `max_keys` keys.

    Neighbours are add/remove of one unit. A channel for one key, used for `max_keys` of them, gets the largest share of
    the budget that their optimal composition allows (Kairouz, Oh and Viswanath 2015); Gaussian noise with a threshold
    has one guarantee for all keys of a unit (Wilkins et al. 2024). 'auto' takes what reports a key of the lowest
    frequency with probability one half.
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    keys, rows = most_keys(max_keys, "max_keys_per_unit"), most_rows(max_rows, "max_rows_per_key")
    if mechanism not in MECHANISMS:
        more = " 'laplace' needs known_keys." if mechanism == "laplace" else ""
        raise InvalidValue(f"mechanism is not known. Choose one of {', '.join(MECHANISMS)}.{more}")
    guarantee = Guarantee(epsilon, delta, unit=unit)
    if mechanism == "gaussian" and scheme is not None:
        raise InvalidValue("mechanism='gaussian' cannot sample. Leave the scheme out, or use mechanism='optimal'.")
    if rows > 1 and (scheme is not None or mechanism in ("optimal", "truncated_geometric", "stability")):
        raise InvalidValue(
            "max_rows_per_key above 1 works with mechanism 'auto', 'simple' or 'gaussian', without a scheme. "
            "Count units instead of rows, or leave the mechanism to 'auto'."
        )
    if mechanism == "gaussian":
        channel = gaussian(epsilon, delta, keys, rows, unit=unit)
        return Plan(channel, guarantee, mechanism, "it was asked for", keys, rows)
    share = _share(keys, epsilon, delta)
    if share.epsilon < SMALLEST_EPSILON or share.delta < SMALLEST_DELTA:
        if mechanism == "auto" and scheme is None:
            channel = gaussian(epsilon, delta, keys, rows, unit=unit)
            return Plan(
                channel, guarantee, "gaussian", "the budget is too small to be divided among the keys", keys, rows
            )
        raise InvalidValue(
            f"max_keys_per_unit={keys} leaves each key epsilon={share.epsilon:.3g} and delta={share.delta:.3g}, too "
            "little for this mechanism. Use mechanism='gaussian', or a smaller max_keys_per_unit."
        )
    single = _single(mechanism, share, rows, scheme, unit)
    name = "optimal" if mechanism == "auto" else mechanism
    if mechanism != "auto":
        return Plan(single, guarantee, name, "it was asked for", keys, rows)
    if scheme is not None:
        return Plan(single, guarantee, name, "it is the best channel that samples", keys, rows)
    if keys == rows == 1:
        return Plan(single, guarantee, name, "no private mechanism reports keys more often", keys, rows)
    other = gaussian(epsilon, delta, keys, rows, unit=unit)
    choices = {"optimal" if rows == 1 else "simple": single, "gaussian": other}
    considered = {name: frequency_at(channel, 0.5) or 10**9 for name, channel in choices.items()}
    name, worse = sorted(considered, key=lambda mechanism: considered[mechanism])
    why = f"it reports a key of frequency {considered[name]:,} half of the time, {worse} needs {considered[worse]:,}"
    return Plan(choices[name], guarantee, name, why, keys, rows, considered)


def make_known_plan(
    epsilon: float,
    delta: float,
    *,
    max_keys: int = 1,
    max_rows: int = 1,
    mechanism: str = "auto",
    unit: str = "one row",
) -> Plan:
    """Return the plan for keys that are known in advance; see `dpsieve.channels.known_keys`."""
    if mechanism not in NOISES:
        raise InvalidValue(f"with known_keys, mechanism is one of {', '.join(NOISES)}.")
    keys, rows = most_keys(max_keys, "max_keys_per_unit"), most_rows(max_rows, "max_rows_per_key")
    made = known_keys(epsilon, delta, keys, rows, noise=mechanism, unit=unit)
    if mechanism != "auto":
        why = "it was asked for"
    elif delta == 0:
        why = "with delta = 0 there is no other"
    else:
        other = known_keys(epsilon, delta, keys, rows, noise="gaussian" if made.noise == "laplace" else "laplace")
        why = f"its standard deviation is {made.deviation:.4g}, that of {other.noise} noise {other.deviation:.4g}"
    return Plan(made, made.guarantee, made.noise, why, keys, rows)


def _single(mechanism: str, share: Share, rows: int, scheme: Scheme | None, unit: str) -> Channel:
    """Return the channel for one key at its share of the budget."""
    if rows > 1:
        return rows_of_units(share.epsilon, share.delta, rows, unit=unit)
    if mechanism == "truncated_geometric":
        if scheme is not None:
            raise InvalidValue("mechanism='truncated_geometric' cannot sample. Leave the scheme out.")
        return truncated_geometric(share.epsilon, share.delta, unit=unit)
    make = {"simple": simple, "stability": stability}.get(mechanism, optimal)
    return make(share.epsilon, share.delta, scheme, unit=unit)


def _share(keys: int, epsilon: float, delta: float) -> Share:
    """Return the (epsilon, delta) of each key, with delta split such that keys of the lowest frequency come out."""
    if keys == 1:
        return Share(epsilon, delta)

    def middle(part: float) -> float:
        share = repeated_share(keys, epsilon, delta, delta_for_keys=part)
        return math.log1p(math.expm1(share.epsilon) / (2 * share.delta)) / share.epsilon

    return repeated_share(keys, epsilon, delta, delta_for_keys=minimise(middle, 0.01, 0.99, rounds=12))


def frequency_at(channel: Channel, probability: float) -> int | None:
    """Return the lowest frequency that is reported with at least this probability; None if there is none to 10^9."""
    probability = validate.between("probability", probability, 0.0, 1.0, hint="Pass a probability such as 0.5.")
    low, high = 0, 1
    while channel.reporting_probability([high])[0] < probability:
        low, high = high, 2 * high
        if high > 10**9:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if channel.reporting_probability([middle])[0] >= probability else (middle, high)
    return high
