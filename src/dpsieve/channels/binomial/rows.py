"""Sample-and-threshold: each unit is sampled with one rate, and keys sampled fewer times than a threshold are dropped.

Nothing is added to what is released: the randomness of the sample alone makes it private (Bharadwaj and Cormode,
"Sample-and-threshold differential privacy", AISTATS 2022). The guarantee is not that of the paper's theorems but the
exact one: see `channels.binomial.divergence` for a unit more or less, and `channels.binomial.replacement` for one that
changes.
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, Context
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.binomial.divergence import add_remove
from dpsieve.channels.binomial.intervals import sampled_interval
from dpsieve.channels.binomial.replacement import replace
from dpsieve.channels.channel import LARGEST_FREQUENCY, Channel, Tokens, checked_frequencies
from dpsieve.channels.row import Row
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.exact.binomial import at_least, below, masses, window
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import by_formula
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.source import Source
from dpsieve.validate import Neighbours

if TYPE_CHECKING:
    from dpsieve.estimation import Estimator

SMALLEST_RATE, LARGEST_RATE, LARGEST_THRESHOLD = 1e-9, 1 - 1e-9, 10**9
WIDEST = 1 << 22  # tokens of one table or row
_NEVER = 2.0**60  # above all frequencies
_UP = Context(prec=10, rounding=ROUND_CEILING)


class SampleThreshold(Channel):
    """Row i is X ~ Binomial(i, rate), announced as 'nothing' when X is below the threshold; the token is X itself.

    Unlike in other channels a token is not near the frequency but near rate times the frequency.

    Attributes:
        rate: the probability with which each unit is sampled.
        threshold: the least sampled count that is reported.
    """

    resolution = 1
    name = "sample and threshold"

    def __init__(self, rate: float, threshold: int, guarantee: Guarantee) -> None:
        self.rate, self.threshold, self.guarantee = rate, threshold, guarantee
        self.parameters = {"channel": "sample_threshold", "rate": rate, "threshold": threshold, **guarantee.to_json()}

    def __repr__(self) -> str:
        promise = f"epsilon={self.guarantee.epsilon:g}, delta={self.guarantee.delta:g}"
        return f"<{self.name} channel, rate={self.rate:g}, threshold={self.threshold}, {promise}>"

    def row(self, frequency: int) -> Row:
        """Return the row of one true frequency; tokens that share less than 1e-34 are left out.

        Rows of more than four million tokens are refused: those of frequencies above some 10^10 / rate.
        """
        i = validate.whole(
            "frequency", frequency, high=LARGEST_FREQUENCY, hint="Pass a true frequency, such as row(200)."
        )
        first, last = window(i, self.rate)
        first, last = max(first, self.threshold), min(i, max(last, self.threshold + 400))
        if last - first > WIDEST:
            hint = "Use reporting_probability, read or draw, which take any frequency."
            raise InvalidValue(f"frequency has a row of more than {WIDEST:,} tokens. {hint}")
        tokens = np.arange(first, last + 1, dtype=np.float64)
        silent = float(below(i, self.threshold, self.rate))
        return Row(silent, tokens, tokens.copy(), masses(i, tokens, self.rate))

    def reporting_probability(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return, for each true frequency, the probability that its key is reported: P[X >= threshold]."""
        return at_least(checked_frequencies(frequencies), self.threshold, self.rate)

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return the least delta for which this channel is (epsilon, delta)-private, rounded up to ten digits.

        Under 'replace' one key loses a unit while another one gains it, and both may show: the worst case over both
        frequencies.

        >>> sample_threshold(0.3, 24).delta(1.0), sample_threshold(0.3, 24).delta(1.0, "replace")
        (9.656612843e-09, 1.256832537e-08)
        """
        return exact_delta(validate.epsilon(epsilon), self.rate, self.threshold, validate.neighbours(neighbours))

    def certify(self) -> Certificate:
        """Return the certificate: the divergence of the rows, evaluated with proven bounds."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        promise = self.guarantee
        pair = "adjacent" if promise.neighbours == "add_remove" else "two replaced"
        worst = self.delta(promise.epsilon, promise.neighbours)
        return by_formula(promise, worst, f"the divergence of {pair} binomial rows with a threshold, rounded up")

    def estimator(
        self,
        g: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
        kind: str = "mle",
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> "Estimator":
        """Return an estimator of g(true frequency): 'mle', or 'scaled', which is token / rate and for g(w) = w only.

        'scaled' is unbiased but for the threshold: Bias_i = -E[X; X < threshold] / rate. No estimator is unbiased when
        the threshold is above one, as keys below it are never reported; so kind='unbiased' is refused there, and is
        'scaled' with a threshold of one. 'biased_down' and 'minimax' are not offered.
        """
        from dpsieve.estimation.sampled import sampled_estimator

        return sampled_estimator(self, g, kind, low=low, high=high)

    @property
    def reach(self) -> int:
        """Units: a row i has all its reported tokens in (i - reach, i + reach]. Here, that says only that i > 0."""
        return LARGEST_FREQUENCY

    def breaks(self, low: int, high: int) -> Tokens:
        """Return token edges for the rows up to high - reach; see `Channel.breaks`.

        Every token is a cell, but for those below the threshold and for those that none of these rows comes near to.
        """
        top = high - self.reach
        if top < 1:
            raise InvalidValue(
                "kind='biased_down' is not offered for sampled counts. Use channel.estimator(kind='mle')."
            )
        last = max(window(top, self.rate)[1], self.threshold + 400)
        if last - self.threshold > WIDEST:
            raise InvalidValue(f"frequencies above {WIDEST / self.rate:.2g} are too many tokens. Leave out huge ones.")
        edges = np.arange(self.threshold - 1, last + 1)
        return np.unique(np.concatenate([[low], edges[edges > low], [high]]))

    def masses(self, frequencies: ArrayLike, edges: Tokens) -> NDArray[np.float64]:
        """Return the probability of each cell between edges under each frequency; see `Channel.masses`."""
        rows, tokens = checked_frequencies(frequencies), edges[1:]
        found = np.zeros((len(rows), len(tokens)))
        some = (np.diff(edges) == 1) & (tokens >= self.threshold)
        found[:, some] = masses(rows[:, None], tokens[some], self.rate)
        return found

    def _draw(self, frequencies: Tokens, source: Source, already_sampled: bool) -> Tokens:
        """Return the sampled counts that reach the threshold; frequencies already sampled are such counts."""
        sampled = frequencies if already_sampled else binomial(frequencies, self.rate, source=source)
        return np.where(sampled >= self.threshold, sampled, 0)

    def _likeliest(self, tokens: Tokens) -> Tokens:
        """Return floor(j / rate): P_i(j) / P_(i-1)(j) = i (1-p) / (i-j) is at least one up to i = j / p."""
        return np.floor(np.minimum(self._possible(tokens) / self.rate, _NEVER)).astype(np.int64)

    def _interval(self, tokens: Tokens, level: float) -> tuple[Tokens, Tokens]:
        """Return the frequencies i for which neither P_i[X >= j] nor P_i[X <= j], given a report, is too small.

        (Clopper and Pearson 1934, given that X reaches the threshold.) See `channels.binomial.intervals`.
        """
        if level >= 1:
            return self._possible(tokens), np.full(len(tokens), LARGEST_FREQUENCY)
        distinct, place = np.unique(self._possible(tokens), return_inverse=True)
        low, high = sampled_interval(distinct, (1 - level) / 2, self.rate, self.threshold)
        return low[place], high[place]

    def _possible(self, tokens: Tokens) -> Tokens:
        hint = "Pass tokens drawn from this channel."
        if (tokens < self.threshold).any():
            raise InvalidValue(f"tokens holds one below the threshold, which is never reported. {hint}")
        if len(tokens) and not at_least(LARGEST_FREQUENCY, self.threshold, self.rate):
            raise InvalidValue(f"tokens holds one that 10^12 clients or fewer never lead to. {hint}")
        return tokens


def sample_threshold(
    rate: float,
    threshold: int,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    neighbours: Neighbours = "add_remove",
    unit: str = "one client",
) -> SampleThreshold:
    """Return the channel that samples every unit with probability `rate` and reports keys sampled `threshold` times.

    A rate and a threshold have a whole curve delta(epsilon), `channel.delta`; `epsilon` picks the point of it that is
    promised. `dpsieve.federated.plan` finds a rate and a threshold for a given promise.

    Args:
        rate: the probability with which each unit is sampled, above 0 and below 1.
        threshold: the least sampled count that is reported, from 1.
        epsilon: the budget of the promise.
        delta: what is promised; without it, the least that holds. A smaller one is refused.
        neighbours: 'add_remove' (one unit more or less) or 'replace' (one unit changes its key).
        unit: who is protected, in words, for the guarantee.

    >>> channel = sample_threshold(0.1, 11)
    >>> print(channel.guarantee)
    (1, 1.8791603e-09)-differential privacy when one client is added or removed.
    >>> channel.reporting_probability([20, 110, 200]).round(3).tolist()
    [0.0, 0.546, 0.992]
    """
    rate, threshold = checked_rate(rate), checked_threshold(threshold)
    epsilon, relation = validate.epsilon(epsilon), validate.neighbours(neighbours)
    exact = exact_delta(epsilon, rate, threshold, relation)
    if exact >= 1:
        raise InvalidValue(f"epsilon={epsilon:g} has no delta below one here. Pass a larger threshold or a lower rate.")
    promised = exact if delta is None else validate.delta(delta)
    if exact > promised:
        why = f"delta={promised:g} does not hold: rate={rate:g} and threshold={threshold} give {exact:.4g}"
        raise NotCertified(f"{why}. Pass a larger threshold, or let dpsieve.federated.plan find one.")
    return SampleThreshold(rate, threshold, Guarantee(epsilon, promised, relation, unit))


@lru_cache(maxsize=1024)
def exact_delta(epsilon: float, rate: float, threshold: int, neighbours: Neighbours) -> float:
    """Return the least delta at epsilon, rounded up to ten digits, so that it is the same on every machine."""
    found = add_remove(epsilon, rate, threshold)[0] if neighbours == "add_remove" else replace(epsilon, rate, threshold)
    return min(1.0, float(_UP.create_decimal(max(found, 1e-300))))


def checked_rate(rate: float) -> float:
    """Return a rate at which something can be private and something can be seen."""
    hint = "Pass the share of units that are sampled, such as rate=0.1."
    return validate.between("rate", rate, SMALLEST_RATE, LARGEST_RATE, hint=hint)


def checked_threshold(threshold: int) -> int:
    """Return a threshold from 1 to 10^9."""
    hint = "Pass the least sampled count that is reported, such as threshold=20."
    return validate.whole("threshold", threshold, low=1, high=LARGEST_THRESHOLD, hint=hint)
