"""Sample-and-threshold: units are sampled at a fixed rate, and keys sampled fewer times than a threshold are dropped.

No noise is added: the randomness of the sample alone makes it private (Bharadwaj and Cormode, "Sample-and-threshold
differential privacy", AISTATS 2022). The guarantee is exact (for replacement, a close bound), and better than
the paper's theorems: see `noise.sample_threshold_delta`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context
from functools import cached_property, lru_cache
from typing import Annotated

import numpy as np

from dpsieve import validate
from dpsieve.channels.channel import ReportedCounts
from dpsieve.channels.law import LARGEST_FREQUENCY, TokenLaw
from dpsieve.codec import register
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.binomial import at_least, below, masses, window
from dpsieve.noise.sample_threshold_delta import add_remove, replace
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Unit
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import Neighbours, Relation

SMALLEST_RATE, LARGEST_RATE, LARGEST_THRESHOLD = 1e-9, 1 - 1e-9, 10**9
_WIDEST = 1 << 22  # tokens of a table or row
_NEVER = 2.0**60  # above all frequencies
_RAREST = 1e-300  # replaces positive probabilities below it
_SAFE = 1e-9  # relative reduction of the allowed miss, which covers all rounding
_SURE = 40.0  # a report that fails with probability e^-40 at most counts as certain; _SAFE covers that too
_UP = Context(prec=10, rounding=ROUND_CEILING)


class BinomialLaw(TokenLaw):
    """Row i is X ~ Binomial(i, rate), reported as 'nothing' if X is below the threshold; the token is X itself.

    Tokens are near rate * frequency.
    """

    def __init__(self, rate: float, threshold: int) -> None:
        self.rate, self.threshold = rate, threshold

    def reported(self, frequencies: Ints) -> Floats:
        """Return P[X >= threshold] for each frequency."""
        return at_least(frequencies, self.threshold, self.rate)

    def withheld(self, frequencies: Ints) -> Floats:
        """Return P[X < threshold] for each frequency."""
        return below(frequencies, self.threshold, self.rate)

    def spanning_edges(self, first: int, last: int) -> Ints:
        """Return an edge for every token likelier than 1e-34 in some row; refuse more than four million."""
        low = max(window(first, self.rate)[0], self.threshold)
        high = max(window(last, self.rate)[1], self.threshold + 400)
        if high - low > _WIDEST:
            hint = "Leave out huge ones. Use reporting_probability, read or draw, which take any frequency."
            raise InvalidValue(f"frequencies holds one with too many tokens for a table. {hint}")
        return np.arange(low - 1, high + 1)

    def band_width(self, frequency: int) -> float:
        """Return half the width of a row in frequencies."""
        low, high = window(frequency, self.rate)
        return (high - low) / (2 * self.rate)

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        return np.where(edges[1:] >= self.threshold, masses(frequencies[:, None], edges[1:], self.rate), 0.0)

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        """Return floor(j / rate), as P_i(j) / P_(i-1)(j) = i (1-p) / (i-j) is at least one up to i = j / p."""
        frequencies = np.floor(np.minimum(tokens / self.rate, _NEVER)).astype(np.int64)
        reached = (tokens >= self.threshold) & bool(at_least(LARGEST_FREQUENCY, self.threshold, self.rate))
        return frequencies, np.where(reached, np.maximum(masses(frequencies, tokens, self.rate), _RAREST), 0.0)

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        """Return the frequencies i for which neither P_i[X >= j] nor P_i[X <= j], given a report, is too small.

        (Clopper and Pearson 1934, given that X reaches the threshold.) See `sampled_interval`.
        """
        if (tokens < self.threshold).any():
            hint = "Pass tokens drawn from this channel."
            raise InvalidValue(
                f"tokens holds one below the threshold, which is never reported. {hint}", argument="tokens"
            )
        if level >= 1:
            return tokens, np.full(len(tokens), LARGEST_FREQUENCY)
        distinct, place = np.unique(tokens, return_inverse=True)
        low, high = sampled_interval(distinct, (1 - level) / 2, self.rate, self.threshold)
        return low[place], high[place]

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        counts = frequencies if already_sampled else binomial(frequencies, self.rate, source=source)
        return np.where(counts >= self.threshold, counts, 0)


def check_rate(rate: float, name: str = "rate") -> float:
    """Return a sampling rate in [1e-9, 1 - 1e-9]."""
    hint = "Pass the share of units that are sampled, such as rate=0.1."
    return validate.between(name, rate, SMALLEST_RATE, LARGEST_RATE, hint=hint)


def check_threshold(threshold: int, name: str = "threshold") -> int:
    """Return a threshold from 1 to 10^9."""
    hint = "Pass the least sampled count that is reported, such as threshold=20."
    return validate.whole(name, threshold, low=1, high=LARGEST_THRESHOLD, hint=hint)


@register("sample_threshold")
@dataclass(frozen=True, repr=False)
class SampleThreshold(ReportedCounts):
    """See `sample_threshold` and `BinomialLaw`.

    Its `delta` is rounded up to ten digits. For one unit more or less it is the least there is. Under 'replace' one key
    loses a unit and another gains one, and both may be reported: it bounds the worst case over both frequencies.

    Attributes:
        rate: the probability that a unit is sampled.
        threshold: the least sampled count that is reported.

    >>> sample_threshold(0.3, 24).delta(1.0), sample_threshold(0.3, 24).delta(1.0, "replace")
    (9.656612843e-09, 1.431469889e-08)
    """

    rate: Annotated[float, check_rate]
    threshold: Annotated[int, check_threshold]
    neighbours: Relation = "add_remove"
    unit: Unit = field(default="one client", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        exact = rounded_delta(self.epsilon, self.rate, self.threshold, self.neighbours)
        if exact > self.delta_:
            given = f"rate={self.rate:g} and threshold={self.threshold} give {exact:.4g}"
            fix = "Pass a larger threshold, or let dpsieve.federated.plan find one."
            raise NotCertified(f"delta={self.delta_:g} does not hold: {given}. {fix}")

    @property
    def sampling_rate(self) -> float:
        return self.rate

    @cached_property
    def rows(self) -> BinomialLaw:
        return BinomialLaw(self.rate, self.threshold)

    def delta(self, epsilon: float, neighbours: Neighbours = "add_remove") -> float:
        """Return the delta at epsilon, rounded up to ten digits."""
        return rounded_delta(validate.epsilon(epsilon), self.rate, self.threshold, validate.neighbours(neighbours))

    @cached_property
    def _certificate(self) -> Certificate:
        pairs = "the divergence of adjacent" if self.neighbours == "add_remove" else "a bound on the divergence of two"
        covers = f"{pairs} binomial rows with a threshold, rounded up"
        return formula(self.guarantee, self.delta(self.epsilon, self.neighbours), "balls", covers)

    def __repr__(self) -> str:
        promise = f"epsilon={self.epsilon:g}, delta={self.delta_:g}"
        return f"<sample threshold channel, rate={self.rate:g}, threshold={self.threshold}, {promise}>"


def sample_threshold(
    rate: float,
    threshold: int,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    neighbours: Neighbours = "add_remove",
    unit: str = "one client",
) -> SampleThreshold:
    """Return the mechanism that samples units with probability `rate` and reports keys sampled `threshold` times.

    A rate and a threshold have a curve delta(epsilon), `channel.delta`; `epsilon` selects the promised point on it.
    `dpsieve.federated.plan` finds a rate and a threshold for a given promise.

    Args:
        rate: the probability that a unit is sampled, above 0 and below 1.
        threshold: the least sampled count that is reported, from 1.
        epsilon: the budget of the promise.
        delta: the promise; by default the least that is proven. A smaller value is refused.
        neighbours: 'add_remove' (one unit more or less) or 'replace' (one unit changes its key).
        unit: the privacy unit, as named in the guarantee.

    >>> channel = sample_threshold(0.1, 11)
    >>> print(channel.guarantee)
    (1, 1.87917e-09)-differential privacy when one client is added or removed.
    >>> channel.reporting_probability([20, 110, 200]).round(3).tolist()
    [0.0, 0.546, 0.992]
    """
    rate, threshold = check_rate(rate), check_threshold(threshold)
    epsilon, relation = validate.epsilon(epsilon), validate.neighbours(neighbours)
    exact = rounded_delta(epsilon, rate, threshold, relation)
    if exact >= 1:
        raise InvalidValue(
            f"epsilon={epsilon:g} has no delta below one here. Pass a larger threshold or a lower rate.",
            argument="epsilon",
        )
    promised = exact if delta is None else delta
    return SampleThreshold(epsilon, promised, rate, threshold, relation, unit=unit)


@lru_cache(maxsize=1024)
def rounded_delta(epsilon: float, rate: float, threshold: int, neighbours: Neighbours) -> float:
    """Return the delta at epsilon, rounded up to ten digits, which makes it equal on all machines."""
    delta = add_remove(epsilon, rate, threshold)[0] if neighbours == "add_remove" else replace(epsilon, rate, threshold)
    return min(1.0, float(_UP.create_decimal(max(delta, 1e-300))))


def sampled_interval(tokens: Ints, miss: float, rate: float, threshold: int) -> tuple[Ints, Ints]:
    """Return (low, high) for each token >= threshold; each end misses with probability `miss` at most.

    With X_i ~ Binomial(i, p) and a threshold t, a frequency i is in the interval of a token j when neither

        P[X_i >= j | X_i >= t]    nor    P[X_i <= j | X_i >= t]

    is below the allowed miss (Clopper and Pearson 1934). The search starts near its result, by the quantiles of a
    negative binomial distribution (Cornish and Fisher 1938); a bad start only costs time.

    >>> low, high = sampled_interval(np.array([24, 300]), 0.025, 0.3, 24)
    >>> low.tolist(), high.tolist()
    ([24, 908], [105, 1100])
    """
    least = miss * (1 - _SAFE)
    far = np.ceil(np.minimum((tokens + 40 * np.sqrt(tokens) + 1600) / rate, LARGEST_FREQUENCY)).astype(np.int64)

    def tail_counts(i: Ints, at: Ints) -> Bools:
        return _tail(i, tokens[at], rate, threshold) > least

    def head_is_rare(i: Ints, at: Ints) -> Bools:
        return _head(i, tokens[at], rate, threshold) <= least

    low = _first(tail_counts, tokens, far, _guess(tokens, least, rate))
    high = _first(head_is_rare, low, far, _guess(tokens + 1, 1 - least, rate))
    high, at_end = np.maximum(high - 1, low), np.flatnonzero(high == far)
    high[at_end[~head_is_rare(far[at_end], at_end)]] = LARGEST_FREQUENCY
    return low, high


def _tail(frequencies: Ints, tokens: Ints, rate: float, threshold: int) -> Floats:
    """Return P[X >= token], given a report."""
    tail = at_least(frequencies, tokens, rate)
    uncertain = np.flatnonzero(~_surely_reported(frequencies, rate, threshold))
    tail[uncertain] /= np.maximum(at_least(frequencies[uncertain], threshold, rate), _RAREST)
    return tail


def _head(frequencies: Ints, tokens: Ints, rate: float, threshold: int) -> Floats:
    """Return P[X <= token], given a report, to full relative precision."""
    under = below(frequencies, tokens + 1, rate)
    uncertain = np.flatnonzero(~_surely_reported(frequencies, rate, threshold))
    i, j = frequencies[uncertain], tokens[uncertain]
    reported, over = at_least(i, threshold, rate), at_least(i, j + 1, rate)
    given = np.where(over < 0.5, reported - over, under[uncertain] - below(i, threshold, rate))
    under[uncertain] = np.where(reported < _RAREST, 1.0, given / np.maximum(reported, _RAREST))
    return under


def _surely_reported(frequencies: Ints, rate: float, threshold: int) -> Bools:
    """Return where P[X < threshold] <= e^-40, by Chernoff's bound exp(-(mean - threshold)^2 / (2 mean))."""
    mean = frequencies * rate
    return (mean > threshold) & ((mean - threshold) ** 2 > 2 * _SURE * mean)


def _guess(successes: Ints, level: float, rate: float) -> Ints:
    """Return the approximate first i with P[N <= i] >= level, where N is the trial of that success."""
    from scipy.special import ndtri

    z, j, q = float(ndtri(level)), successes.astype(np.float64), 1 - rate
    skew, excess = (2 - rate) / np.sqrt(j * q), 6 / j + rate**2 / (j * q)
    bend = (z * z - 1) * skew / 6 + (z**3 - 3 * z) * excess / 24 - (2 * z**3 - 5 * z) * skew**2 / 36
    place = (j + math.sqrt(q) * np.sqrt(j) * (z + bend)) / rate
    return np.ceil(np.clip(place - 0.5, 0, 2.0 * LARGEST_FREQUENCY)).astype(np.int64)


def _first(holds: Callable[[Ints, Ints], Bools], low: Ints, high: Ints, guess: Ints) -> Ints:
    """Return, per entry, the first i in [low, high] at which `holds(i, entry)`, or high; `holds` is monotone.

    Exponential search from the guess, then bisection.
    """
    high = np.maximum(low, high)
    no, yes = low - 1, high.copy()  # false up to `no`; true at `yes`, or `yes` is the end
    middle = np.clip(guess, low, high)
    step, active = np.ones(len(low), np.int64), np.flatnonzero(no + 1 < yes)
    while len(active):
        place = middle[active]
        true = holds(place, active)
        yes[active] = np.where(true, place, yes[active])
        no[active] = np.where(true, no[active], place)
        inside = (no[active] >= low[active]) & (yes[active] < high[active])
        half = no[active] + (yes[active] - no[active] + 1) // 2
        leap = np.where(true, place - step[active], place + step[active])
        middle[active] = np.clip(np.where(inside, half, leap), no[active] + 1, yes[active])
        step[active] *= 2
        active = active[no[active] + 1 < yes[active]]
    return yes
