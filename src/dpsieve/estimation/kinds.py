"""Choose an estimator by name; and the unbiased ones, which are seldom of use."""

from collections.abc import Callable

import numpy as np

from dpsieve import validate
from dpsieve.channels.channel import Channel, Target
from dpsieve.channels.lag.baselines import LaplaceCut
from dpsieve.channels.makers import Stability
from dpsieve.channels.rows import LARGEST_FREQUENCY
from dpsieve.errors import InvalidValue
from dpsieve.estimation.biased_down import BiasedDown
from dpsieve.estimation.estimators import Estimator, MaximumLikelihood, a_channel, unit_edges
from dpsieve.estimation.minimax import WIDEST, Minimax
from dpsieve.sampling.schemes import everything
from dpsieve.types import Floats, Ints

_BLOCK = 64
_POINTS = 12  # of a Gauss rule on a part of at most one unit
_LARGEST = 1e150  # squares must stay finite
_FIX = "Use kind='mle', or kind='minimax' with a range of frequencies."


def estimator(
    channel: Channel,
    g: Callable[[Floats], Floats] | None = None,
    kind: str = "mle",
    *,
    low: int | None = None,
    high: int | None = None,
) -> Estimator:
    """Return an estimator of g(w), w a key's true frequency, from the token the channel gave out.

    Add up its values over the reported keys to estimate the sum of g(w) over all keys; unreported ones count 0.

    Args:
        channel: what the tokens were drawn from.
        g: a non-decreasing function of an array of frequencies with g(0) = 0; without it, g(w) = w.
        kind: 'mle' (right for the likeliest frequency), 'biased_down' (never too large on average, for any frequency),
            'unbiased' (right on average, huge variance), 'noisy_count' (for stability histograms, what the papers do
            there; see `NoisyCount`), or 'minimax' (the smallest worst error, relative to g, over the frequencies from
            `low` to `high`; see `Minimax`).
        low, high: the range of frequencies, for 'minimax' only; at most 100,000 apart.

    For sampled counts the kinds are 'mle', and 'scaled', which is token / rate and for g(w) = w only. No estimator is
    unbiased there when the threshold is above one, as keys below it are never reported; so 'unbiased' is refused, and
    is 'scaled' with a threshold of one. 'biased_down' and 'minimax' are not offered.

    >>> from dpsieve.channels import optimal
    >>> mle = estimator(optimal(1.0, 1e-8))
    >>> mle.value([0, 0.5, 100]).round(2).tolist()
    [0.0, 24.59, 118.0]
    >>> mle.bias([5, 20, 100]).round(2).tolist()
    [-5.0, 0.92, 0.0]
    """
    if a_channel(channel).rows.rate < 1:
        return _sampled_estimator(channel, g, kind, low=low, high=high)
    target = Target(g)
    if kind == "minimax":
        hint = "Pass the range of true frequencies to do well on, such as low=20, high=500."
        first = validate.whole("low", low, low=1, high=LARGEST_FREQUENCY, hint=hint)
        last = validate.whole("high", high, low=first, high=LARGEST_FREQUENCY, hint=hint)
        if last - first > WIDEST:
            raise InvalidValue(f"low and high are more than {WIDEST:,} apart. Pass a smaller high.")
        return Minimax(channel, target, first, last)
    makers: list[Callable[[Channel, Target], Estimator]] = [MaximumLikelihood, BiasedDown, Unbiased, NoisyCount]
    plain = dict(zip(("mle", "biased_down", "unbiased", "noisy_count"), makers, strict=True))
    if not isinstance(kind, str) or kind not in plain:
        raise InvalidValue("kind is not known. Choose 'mle', 'biased_down', 'unbiased', 'noisy_count' or 'minimax'.")
    if low is not None or high is not None:
        raise InvalidValue("low and high belong to kind='minimax'. Leave them out for other kinds.")
    return plain[kind](channel, target)


def _sampled_estimator(
    channel: Channel, g: Callable[[Floats], Floats] | None, kind: str, *, low: int | None, high: int | None
) -> Estimator:
    """Return an estimator for sampled counts."""
    if low is not None or high is not None:
        raise InvalidValue("low and high belong to kind='minimax', which is not offered here. Leave them out.")
    if kind == "mle":
        return MaximumLikelihood(channel, Target(g))
    if kind == "unbiased" and not channel.possible(np.ones(1)):
        why = "no estimator is unbiased for keys that are never reported, below the threshold"
        raise InvalidValue(f"kind='unbiased' is not possible: {why}. Use kind='scaled', token / rate.")
    if kind not in ("scaled", "unbiased"):
        raise InvalidValue("kind is not offered for sampled counts. Choose 'mle' or 'scaled'.")
    if g is not None:
        raise InvalidValue("g must be left out for kind='scaled', which estimates the frequency. Use kind='mle'.")
    return Scaled(channel, Target(None))


class Scaled(Estimator):
    """The value token / rate, and 0 for 'nothing' (Horvitz and Thompson 1952, were it not for the threshold).

    With X ~ Binomial(i, p): E_i = i - E[X; X < threshold] / p. So it leans low for keys that are often missed, and is
    unbiased, with variance i (1-p) / p, for those that are not.
    """

    kind = "scaled"

    def values(self, parts: Ints) -> Floats:
        """Return token / rate."""
        return parts / self.channel.rows.rate


class NoisyCount(Estimator):
    """The noisy count of a stability histogram taken for the true one: g(x) / q(x), and g(x) without sampling.

    (Cohen, Geri, Sarlos, Stemmer 2020, appendix E.) With x = i + Lap(1/epsilon), reported from T on:

        E_i = integral over x >= T of g(x) epsilon/2 e^(-epsilon |x - i|)                     (38)
        g(x) = x:  E_i = i - e^(-epsilon (i - T)) (T - 1/epsilon) / 2  for i > T,
                         e^(-epsilon (T - i)) (T + 1/epsilon) / 2      for i <= T.            (39)

    The token tells a part of the axis around x, at most one unit long, so the value is the mean of g(x) / q(x) over the
    part: that for noise that rises through it and that for noise that falls, averaged. So moments are summed over the
    rows as they are drawn. For epsilon up to 2, E_i is within 0.1 of (39), and without sampling the MSE within 0.11 of
    that of (42).
    """

    kind = "noisy_count"

    def __init__(self, channel: Channel, target: Target) -> None:
        super().__init__(channel, target)
        if not isinstance(channel, Stability):
            raise InvalidValue(f"kind='noisy_count' is for channels.stability. {_FIX}")
        split, paper = channel.scheme is not None, channel.threshold == "paper"
        self._cut = LaplaceCut.of(channel.epsilon, channel.delta_, paper=paper, split=split)
        self._nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
        self._nodes, self._weights = (self._nodes + 1) / 2, weights / 2

    def values(self, parts: Ints) -> Floats:
        """Return the mean of g(x) / q(x) over the part of each token."""
        found, place = np.unique(parts, return_inverse=True)
        start, end = self._edge(found - 1)[:, None], self._edge(found)[:, None]
        x = start + (end - start) * self._nodes
        shapes = [self._weights * np.exp(-self._cut.rate * far) for far in (x - start, end - x)]
        scheme = everything() if self.channel.scheme is None else self.channel.scheme
        g, q = self.target(x.ravel()).reshape(x.shape), scheme.inclusion(x)  # type: ignore[arg-type]
        means = [(shape * g).sum(axis=1) / (shape * q).sum(axis=1) for shape in shapes]
        return np.asarray(((means[0] + means[1]) / 2)[place])

    def _edge(self, k: Ints) -> Floats:
        """Return the upper end of part k: T + k, or with two parts a unit a whole number where k is odd."""
        if self.channel.resolution == 1:
            return np.asarray(self._cut.threshold + k, dtype=np.float64)
        return np.asarray(np.where(k % 2, self._cut.whole, self._cut.threshold) + k // 2, dtype=np.float64)


class Unbiased(Estimator):
    """The one estimator that is constant on each unit of tokens (j - 1, j] and has E_i = g(i) for every i.

    With p_ij the probability that frequency i comes out in unit j <= i (Cohen, Geri, Sarlos, Stemmer 2021, 7.1):

        a_i = (g(i) - sum_{j<i} p_ij a_j) / p_ii.

    As p_ii is at most delta, values start at g(1)/delta, take both signs, and grow by a factor of about 1/delta every L
    units (L is the frequency reported half of the time); no unbiased estimator avoids negative values (2020, appendix
    D). Standard deviations are as large. It is here to be studied, and for large delta.

    Digits: substitution leaves |E_i - g(i)| <= n 1e-16 sum_j p_ij |a_j|, with n the number of units in a row, which is
    at most n 1e-16 root mean squares of the estimate. So E_i keeps few digits from i = 2L on, while the error that this
    adds is always far below the noise. Values above 1e150 are refused.
    """

    kind = "unbiased"

    def __init__(self, channel: Channel, target: Target) -> None:
        super().__init__(channel, target)
        self._spread = channel.rows.spread
        self._found: Floats = np.empty(0)  # the value of each unit

    def values(self, parts: Ints) -> Floats:
        """Return the value of the unit of each token."""
        units = -(-parts // self.channel.resolution)
        while len(self._found) < units.max(initial=0):
            self._found = np.append(self._found, self._solve(len(self._found)))
        values = self._found[units - 1]
        if not (np.abs(values) <= _LARGEST).all():
            raise InvalidValue(f"kind='unbiased' exceeds {_LARGEST:g} for these tokens or frequencies. {_FIX}")
        return values

    def _solve(self, start: int) -> Floats:
        """Return the values of the units after `start`; once one is too large, all are."""
        if start and not abs(self._found[-1]) <= _LARGEST:
            raise InvalidValue(f"kind='unbiased' exceeds {_LARGEST:g} for these tokens or frequencies. {_FIX}")
        from scipy.linalg import solve_triangular

        rows = np.arange(start + 1, start + _BLOCK + 1)
        low = max(start + 1 - self._spread, 0)
        edges = unit_edges(self.channel.rows, low, start + _BLOCK + self._spread)
        starts = np.searchsorted(edges, np.arange(low, start + _BLOCK + self._spread) * self.channel.resolution)
        mass = np.add.reduceat(self.channel.rows.cell_probabilities(rows, edges), starts, axis=1)
        own = mass[:, start - low : start - low + _BLOCK]
        above = np.triu(own, 1).any() or mass[:, start - low + _BLOCK :].any()
        if above or not own.diagonal().all():
            why = "a channel that reports every frequency, and no token above it"
            raise InvalidValue(f"kind='unbiased' needs {why}. {_FIX}")
        with np.errstate(over="ignore", invalid="ignore"):
            rest = self.target(rows) - mass[:, : start - low] @ self._found[low:start]
            return np.asarray(solve_triangular(own, rest, lower=True, check_finite=False), dtype=np.float64)
