"""The unbiased estimator: right on average for every frequency, and seldom of use."""

import numpy as np
from scipy.linalg import solve_triangular

from dpsieve.channels.channel import Channel
from dpsieve.errors import InvalidValue
from dpsieve.estimation.base import Estimator
from dpsieve.estimation.checks import Floats, Ints
from dpsieve.estimation.target import Target
from dpsieve.estimation.windows import unit_breaks

_BLOCK = 64
_LARGEST = 1e150  # squares must stay finite
_FIX = "Use kind='mle', or kind='minimax' with a range of frequencies."


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
        self._reach = channel.reach
        self._found: Floats = np.empty(0)  # the value of each unit

    def _values(self, parts: Ints) -> Floats:
        units = -(-parts // self.channel.resolution)
        while len(self._found) < units.max(initial=0):
            self._found = np.append(self._found, self._solve(len(self._found)))
        values = self._found[units - 1]
        if not (np.abs(values) <= _LARGEST).all():
            raise InvalidValue(f"kind='unbiased' exceeds {_LARGEST:g} for the tokens or frequencies asked for. {_FIX}")
        return values

    def _solve(self, start: int) -> Floats:
        """Return the values of the units after `start`; once one is too large, all are."""
        if start and not abs(self._found[-1]) <= _LARGEST:
            raise InvalidValue(f"kind='unbiased' exceeds {_LARGEST:g} for the tokens or frequencies asked for. {_FIX}")
        rows = np.arange(start + 1, start + _BLOCK + 1)
        low = max(start + 1 - self._reach, 0)
        edges = unit_breaks(self.channel, low, start + _BLOCK + self._reach)
        starts = np.searchsorted(edges, np.arange(low, start + _BLOCK + self._reach) * self.channel.resolution)
        mass = np.add.reduceat(self.channel.masses(rows, edges), starts, axis=1)
        own = mass[:, start - low : start - low + _BLOCK]
        above = np.triu(own, 1).any() or mass[:, start - low + _BLOCK :].any()
        if above or not own.diagonal().all():
            why = "a channel that reports every frequency, and no token above it"
            raise InvalidValue(f"kind='unbiased' needs {why}. {_FIX}")
        with np.errstate(over="ignore", invalid="ignore"):
            rest = self.target(rows) - mass[:, : start - low] @ self._found[low:start]
            return np.asarray(solve_triangular(own, rest, lower=True, check_finite=False), dtype=np.float64)
