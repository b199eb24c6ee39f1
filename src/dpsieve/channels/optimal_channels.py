"""The optimal channels: most keys reported, and best ordered. All protect one unit more or less (add/remove)."""

import math
from dataclasses import dataclass
from functools import cached_property

from dpsieve import validate
from dpsieve.channels.budget import SMALLEST_EPSILON, check_max_rows
from dpsieve.channels.channel import UnknownKeysChannel
from dpsieve.channels.lag import Lag, LagRows, optimal_lag
from dpsieve.channels.rows import Rows, Steps
from dpsieve.privacy.registry import register
from dpsieve.sampling.schemes import Scheme


def optimal(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> "Optimal":
    """Return the channel that reports every key as often as any private channel may, and orders keys best.

    Algorithm 5 of Cohen, Geri, Sarlos and Stemmer (2021), corrected. With a scheme that samples a key of frequency i
    with probability q_i (none: q = 1), it is reported with probability
    pi_i = min(q_i, e^epsilon pi_(i-1) + delta, 1 - e^-epsilon (1 - pi_(i-1) - delta)), pi_0 = 0: the largest that any
    (epsilon, delta)-private mechanism allows. Any two keys come out in their true order with the largest probability:
    without a scheme among all private channels, with one among those with the same reporting probabilities (another may
    order one pair better by reporting the lower key less). At small sampling rates the table is made on stairs a little
    below the scheme, and pi_i is up to 0.1 % lower: `loss` says how much.

    Args:
        epsilon: the budget, from 0.001 to 50.
        delta: the probability with which a key of one unit may show, from 1e-20.
        scheme: a sampling scheme such as `dpsieve.ppswor(0.01)`.
        unit: who is protected, in words, for the guarantee.

    >>> channel = optimal(1.0, 1e-8)
    >>> channel.reporting_probability([1, 10, 20, 40]).round(8).tolist()
    [1e-08, 0.00012818, 0.91637981, 1.0]
    """
    return Optimal(epsilon, delta, scheme, unit=unit)


def simple(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> "Simple":
    """Return the channel with the same reporting probabilities as `optimal` and whole tokens from 1 to the frequency.

    Algorithm 4 of Cohen, Geri, Sarlos and Stemmer (2021): easier to read, slightly worse at telling keys apart.

    >>> simple(0.5, 0.01).row(3).right.tolist()
    [1.0, 2.0, 3.0]
    """
    return Simple(epsilon, delta, scheme, unit=unit)


def rows_of_units(epsilon: float, delta: float, max_rows: int, *, unit: str = "one row") -> "RowsOfUnits":
    """Return the channel for frequencies that one unit changes by up to `max_rows`, in one key.

    It is `simple` with units of `max_rows` rows, its lag spread evenly over each unit. So any change by 1 to max_rows
    moves delta at most in and out, and multiplies no probability by more than e^epsilon: the kernel checks every step.

    >>> rows_of_units(1.0, 1e-6, max_rows=10).reporting_probability([10, 300]).round(7).tolist()
    [1e-06, 1.0]
    """
    return RowsOfUnits(epsilon, delta, max_rows, unit=unit)


@dataclass(frozen=True, repr=False)
class _Weighted(UnknownKeysChannel):
    """Algorithms 4 and 5, in closed form without sampling."""

    scheme: Scheme | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheme is not None:
            hint = "Pass a smaller one; with a sampling scheme it may be 40 at most."
            validate.between("epsilon", self.epsilon, SMALLEST_EPSILON, 40.0, hint=hint)

    @property
    def _parts(self) -> int:
        return 1

    @cached_property
    def rows(self) -> Rows:
        """The rows: of a lag, or made step by step with a scheme."""
        if self.scheme is None:
            return LagRows(self._parts, lambda: optimal_lag(Steps(self.epsilon, self.delta_), self._parts))
        return self._sampled(_units(self.epsilon, self.delta_), self.scheme)

    def _sampled(self, spread: int, scheme: Scheme) -> Rows:
        """Return the rows with a scheme."""
        from dpsieve.channels.stepwise import StepRows

        return StepRows(Steps(self.epsilon, self.delta_), self._parts, spread, scheme)


@register("simple")
@dataclass(frozen=True, repr=False)
class Simple(_Weighted):
    """See `simple`."""


@register("optimal")
@dataclass(frozen=True, repr=False)
class Optimal(_Weighted):
    """See `optimal`."""

    @property
    def _parts(self) -> int:
        """How many parts a unit is cut into: the masses keep 46 bits, and a row stays below 2^30 parts."""
        room = 30 - math.log2(_units(self.epsilon, self.delta_))
        return 1 << max(0, min(20, math.floor(math.log2(self.delta_) + 128 - 46), math.floor(room)))

    @property
    def loss(self) -> float:
        """How much less often than it might a key is reported, at most, relatively: 0 without a scheme.

        With one it is 0 for tables of up to 2^19 cells and mostly at most 0.001 beyond, measured on the table, and
        more at epsilons below 0.01 or above 7, and for schemes that jump (see `channels.ladder`). A loss of 0
        stands for less than 1e-9.
        """
        return self.rows.loss

    def _sampled(self, spread: int, scheme: Scheme) -> Rows:
        from dpsieve.channels.ladder import sampled_rows

        return sampled_rows(self.epsilon, self.delta_, self._parts, spread, scheme)


@register("rows_of_units")
@dataclass(frozen=True, repr=False)
class RowsOfUnits(UnknownKeysChannel):
    """See `rows_of_units`."""

    max_rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, max_rows=check_max_rows(self.max_rows))

    @cached_property
    def rows(self) -> Rows:
        """The rows of a lag that is spread over the rows of a unit."""
        return LagRows(1, self._lag, step=self.max_rows)

    def _lag(self) -> Lag:
        whole, rows = optimal_lag(Steps(self.epsilon, self.delta_), 1), self.max_rows
        return Lag([edge * rows for edge in whole.edges], [mass // rows for mass in whole.masses])


def _units(epsilon: float, delta: float) -> int:
    """Return more units than any row spreads over.

    That is 2 L + 1 (L as in Lemma 4.2 of the paper) while delta may vanish at each step. It may not while 'nothing'
    itself shrinks by e^-epsilon, which can happen ln(1/delta)/epsilon times in all.
    """
    return math.ceil(3 / epsilon * math.log1p(math.expm1(epsilon) / delta)) + 4
