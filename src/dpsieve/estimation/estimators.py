"""Estimators: a value of g(w) per token, with exact errors per true frequency w.

Messages never contain a frequency, a count or a token. `dpsieve.papers.weighted_sampling` has further estimators.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import ReportedCounts, Target, checked_frequencies, reported_tokens
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.types import Floats, Ints


def estimator(channel: ReportedCounts, g: Callable[[Floats], Floats] | None = None) -> "Estimator":
    """Return the estimator of g(w), for the true frequency w of a key, from the token that the channel reported.

    It is unbiased for the likeliest frequency. The sum of its values over the reported keys estimates the sum of g(w)
    over all keys; unreported keys count 0.

    Args:
        channel: the channel of the tokens.
        g: a non-decreasing function of an array of frequencies with g(0) = 0; by default g(w) = w.

    >>> from dpsieve.channels.optimal_channels import optimal
    >>> channel = optimal(1.0, 1e-8)
    >>> mle = estimator(channel)
    >>> mle.value([0, channel.resolution // 2, 100 * channel.resolution]).round(2).tolist()
    [0.0, 24.59, 118.0]
    >>> mle.bias([5, 20, 100]).round(2).tolist()
    [-5.0, 0.92, 0.0]
    """
    return MaximumLikelihood(check_channel(channel), Target(g))


@dataclass(frozen=True, eq=False)
class Moments:
    """The first two moments of an estimate, each an array with one entry per true frequency."""

    expectation: Floats
    bias: Floats
    variance: Floats
    mse: Floats


class Estimator(ABC):
    """An estimate of g(w) per key from its token: a(token), and 0 for a key that is not reported.

    With p_i(t) the probability of token t for true frequency i, s_i that of 'nothing', and pi_i = 1 - s_i:

        E_i    = sum_t p_i(t) a(t)
        Bias_i = E_i - g(i)                  = sum_t p_i(t) (a(t) - g(i)) - s_i g(i)
        Var_i  = s_i E_i^2 + sum_t p_i(t) (a(t) - E_i)^2
        MSE_i  = s_i g(i)^2 + sum_t p_i(t) (a(t) - g(i))^2 = Var_i + Bias_i^2

    (Cohen, Geri, Sarlos, Stemmer 2021, section 7.1.) They are summed over the row, not sampled, in the forms on the
    right, which are accurate for keys that are reported almost never or almost always.
    """

    kind: ClassVar[str]

    def __init__(self, channel: ReportedCounts, target: Target) -> None:
        self.channel, self.target = channel, target

    def __repr__(self) -> str:
        return f"<{self.kind} estimator for {self.channel!r}>"

    def value(self, tokens: ArrayLike) -> Floats:
        """Return the estimate of g(w) for each token; a token of 0 is 'nothing' and counts 0."""
        parts = reported_tokens(self.channel, tokens, nothing=True)
        values, reported = np.zeros(len(parts)), parts > 0
        if reported.any():
            values[reported] = self.values(parts[reported])
        return values

    def moments(self, i: ArrayLike) -> Moments:
        """Return expectation, bias, variance and MSE for a true frequency i, or an array of them, in one pass.

        Each has the shape of i. Time and memory grow with the number of different frequencies, not with their size.
        """
        shaped = check_frequencies("i", i)
        rows, place = np.unique(shaped.ravel(), return_inverse=True)
        moments = np.empty((4, len(rows)))
        for part, edges in self.channel.rows.bands(rows):
            moments[:, part] = self._sums(rows[part], edges)
        return Moments(*moments[:, place].reshape(4, *shaped.shape))

    def expectation(self, i: ArrayLike) -> Floats:
        """Return E_i, the expected estimate of a key of true frequency i."""
        return self.moments(i).expectation

    def bias(self, i: ArrayLike) -> Floats:
        """Return E_i - g(i)."""
        return self.moments(i).bias

    def variance(self, i: ArrayLike) -> Floats:
        """Return the variance of the estimate of a key of true frequency i."""
        return self.moments(i).variance

    def mse(self, i: ArrayLike) -> Floats:
        """Return the expected squared error of the estimate of a key of true frequency i."""
        return self.moments(i).mse

    @abstractmethod
    def values(self, parts: Ints) -> Floats:
        """Return the estimates of tokens in their integer form, all above zero."""

    def _sums(self, rows: Ints, edges: Ints) -> Floats:
        """Return the four moments of some rows whose tokens lie between edges."""
        mass = self.channel.rows.cell_probabilities(rows, edges)
        possible = mass.any(axis=0)
        mass, values = mass[:, possible], self.values(middles(edges)[possible])
        truth, silent = self.target(rows), self.channel.rows.withheld(rows)
        expectation = (mass * values).sum(axis=1)
        away = values - truth[:, None]
        bias = (mass * away).sum(axis=1) - silent * truth
        mse = (mass * away**2).sum(axis=1) + silent * truth**2
        away -= bias[:, None]
        variance = (mass * away**2).sum(axis=1) + silent * expectation**2
        return np.array([expectation, bias, variance, mse])


class MaximumLikelihood(Estimator):
    """The value g(i) / pi_i, for the frequency i under which the token is likeliest.

    (Cohen, Geri, Sarlos, Stemmer 2021, (9).) It is unbiased for that frequency, and biased in either direction for
    others. Its values fall at first, where the reporting probability of the likeliest frequency grows fast.
    """

    kind = "mle"

    def values(self, parts: Ints) -> Floats:
        """Return g(i) / pi_i for each token."""
        likeliest, _ = self.channel.rows.likeliest(parts)
        reported = self.channel.rows.reported(np.minimum(likeliest, LARGEST_FREQUENCY))
        if not reported.all():
            raise InvalidValue("tokens holds one that no frequency leads to. Pass tokens drawn from this channel.")
        return self.target(likeliest) / reported


def check_channel(channel: object) -> ReportedCounts:
    """Return the channel, or raise unless it is one."""
    if not isinstance(channel, ReportedCounts):
        hint = "Pass one such as dpsieve.channels.optimal(epsilon=1.0, delta=1e-8)."
        raise InvalidType(f"channel must be a Channel, not {type(channel).__name__}. {hint}")
    return channel


def check_frequencies(name: str, values: ArrayLike) -> Ints:
    """Return true frequencies, 1 to 10^12, in their shape."""
    hint = f"Pass whole numbers from 1 to 10^12, such as {name}=20."
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}", argument=name) from None
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}", argument=name)
    return checked_frequencies(array.ravel(), name, hint).reshape(array.shape)


def middles(edges: Ints) -> Ints:
    """Return a token inside each cell; all tokens of a cell are equivalent."""
    return (edges[:-1] + edges[1:] + 1) // 2
