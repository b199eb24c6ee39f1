"""What every estimator offers: a value for each token, and its exact error for each true frequency."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import Channel
from dpsieve.estimation.checks import Floats, Ints, token_parts, true_frequencies
from dpsieve.estimation.target import Target
from dpsieve.estimation.windows import middles, silence, windows


@dataclass(frozen=True, eq=False)
class Moments:
    """The first two moments of an estimate, each an array with one entry for each true frequency."""

    expectation: Floats
    bias: Floats
    variance: Floats
    mse: Floats


class Estimator(ABC):
    """An estimate of g(w) for each key from its token: a(token), and 0 for a key that is not reported.

    With p_i(t) the probability of token t for true frequency i, s_i that of 'nothing', and pi_i = 1 - s_i:

        E_i    = sum_t p_i(t) a(t)
        Bias_i = E_i - g(i)                  = sum_t p_i(t) (a(t) - g(i)) - s_i g(i)
        Var_i  = s_i E_i^2 + sum_t p_i(t) (a(t) - E_i)^2
        MSE_i  = s_i g(i)^2 + sum_t p_i(t) (a(t) - g(i))^2 = Var_i + Bias_i^2

    (Cohen, Geri, Sarlos, Stemmer 2021, section 7.1.) They are summed over the row, not sampled, in the forms on the
    right, which keep their digits when a key is nearly never or nearly always reported.
    """

    kind: ClassVar[str]

    def __init__(self, channel: Channel, target: Target) -> None:
        self.channel, self.target = channel, target

    def __repr__(self) -> str:
        return f"<{self.kind} estimator for {self.channel!r}>"

    def value(self, tokens: ArrayLike) -> Floats:
        """Return the estimate of g(w) for each token; a token of 0 is 'nothing' and counts 0."""
        parts = token_parts(self.channel, tokens)
        values, heard = np.zeros(len(parts)), parts > 0
        if heard.any():
            values[heard] = self._values(parts[heard])
        return values

    def moments(self, i: ArrayLike) -> Moments:
        """Return expectation, bias, variance and MSE for true frequencies i (one, or an array) in one pass.

        Each has the shape of i. Time and memory grow with the number of different frequencies, not with their size.
        """
        shaped = true_frequencies("i", i)
        rows, place = np.unique(shaped.ravel(), return_inverse=True)
        found = np.empty((4, len(rows)))
        for part, edges in windows(self.channel, rows):
            found[:, part] = self._sums(rows[part], edges)
        return Moments(*found[:, place].reshape(4, *shaped.shape))

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
    def _values(self, parts: Ints) -> Floats:
        """Return the estimates of tokens given in whole parts, all above zero."""

    def _sums(self, rows: Ints, edges: Ints) -> Floats:
        """Return the four moments of some rows whose tokens lie between edges."""
        mass = self.channel.masses(rows, edges)
        possible = mass.any(axis=0)
        mass, values = mass[:, possible], self._values(middles(edges)[possible])
        truth, silent = self.target(rows), silence(self.channel, rows)
        expectation = (mass * values).sum(axis=1)
        away = values - truth[:, None]
        bias = (mass * away).sum(axis=1) - silent * truth
        mse = (mass * away**2).sum(axis=1) + silent * truth**2
        away -= bias[:, None]
        variance = (mass * away**2).sum(axis=1) + silent * expectation**2
        return np.array([expectation, bias, variance, mse])
