"""What every estimator offers: a value for each token, and its exact error for each true frequency.

Also the checks that the functions of this room share. Messages never hold a frequency, a count or a token.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import Channel, Target, checked_frequencies, whole_tokens
from dpsieve.channels.rows import LARGEST_FREQUENCY, Rows
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.types import Floats, Ints


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
        parts = whole_tokens(self.channel, tokens, nothing=True)
        values, reported = np.zeros(len(parts)), parts > 0
        if reported.any():
            values[reported] = self.values(parts[reported])
        return values

    def moments(self, i: ArrayLike) -> Moments:
        """Return expectation, bias, variance and MSE for true frequencies i (one, or an array) in one pass.

        Each has the shape of i. Time and memory grow with the number of different frequencies, not with their size.
        """
        shaped = true_frequencies("i", i)
        rows, place = np.unique(shaped.ravel(), return_inverse=True)
        found = np.empty((4, len(rows)))
        for part, edges in self.channel.rows.bands(rows):
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
    def values(self, parts: Ints) -> Floats:
        """Return the estimates of tokens given as the whole numbers they were drawn as, all above zero."""

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

    (Cohen, Geri, Sarlos, Stemmer 2021, (9).) It is right for that one frequency and biased, either way, for others.
    Its values fall at first, where the reporting probability of the likeliest frequency still grows fast.
    """

    kind = "mle"

    def values(self, parts: Ints) -> Floats:
        """Return g(i) / pi_i for each token."""
        likeliest, _ = self.channel.rows.likeliest(parts)
        reported = self.channel.rows.reported(np.minimum(likeliest, LARGEST_FREQUENCY))
        if not reported.all():
            raise InvalidValue("tokens holds one that no frequency leads to. Pass tokens drawn from this channel.")
        return self.target(likeliest) / reported


def a_channel(channel: object) -> Channel:
    """Return the channel, or say how to make one."""
    if not isinstance(channel, Channel):
        hint = "Pass one such as dpsieve.channels.optimal(epsilon=1.0, delta=1e-8)."
        raise InvalidType(f"channel must be a Channel, not {type(channel).__name__}. {hint}")
    return channel


def an_estimator(value: object) -> Estimator:
    """Return the estimator, or say how to make one."""
    if not isinstance(value, Estimator):
        hint = "Make one with dpsieve.estimation.estimator(channel)."
        raise InvalidType(f"estimator must be an Estimator, not {type(value).__name__}. {hint}")
    return value


def true_frequencies(name: str, values: ArrayLike) -> Ints:
    """Return true frequencies, 1 to 10^12, in the shape in which they came."""
    hint = f"Pass whole numbers from 1 to 10^12, such as {name}=20."
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}") from None
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}")
    return checked_frequencies(array.ravel(), name, hint).reshape(array.shape)


def histogram(frequencies: ArrayLike, counts: ArrayLike | None) -> tuple[Ints, Floats]:
    """Return increasing distinct frequencies and how many keys have each; without counts, one key for each entry.

    Counts may be fractions, as in an expected histogram. Frequencies that no key has are dropped.
    """
    rows = checked_frequencies(frequencies)
    hint = "Pass the number of keys for each frequency: zero or more, and some above zero."
    try:
        keys = np.ones(len(rows)) if counts is None else np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidType(f"counts must be numbers. {hint}") from None
    if keys.shape != rows.shape:
        raise InvalidValue(f"counts and frequencies differ in length. {hint}")
    if not (np.isfinite(keys) & (keys >= 0)).all() or not keys.any():
        raise InvalidValue(f"counts holds a number that is negative or not finite, or no key at all. {hint}")
    distinct, place = np.unique(rows[keys > 0], return_inverse=True)
    return distinct, np.bincount(place, weights=keys[keys > 0]).astype(np.float64)


def unit_edges(rows: Rows, low: int, high: int) -> Ints:
    """Return the cell edges of the rows and every whole unit."""
    return np.union1d(rows.cell_edges(low, high), np.arange(low, high + 1) * rows.resolution)


def middles(edges: Ints) -> Ints:
    """Return a token inside each cell; all tokens of a cell are alike.

    A middle one stays in its cell when it is rounded to a float, also where a float no longer tells every part.
    """
    return (edges[:-1] + edges[1:] + 1) // 2
