"""Quantiles of many columns by the exponential mechanism, one pick each, as in the experiments of the thesis.

A pick is that of `numbers.quantiles` for one quantile: position k has probability proportional to e^(-e u(k) / 2), for
its rank error u(k). When one row is replaced, u moves by at most 1 (not 1/2, as for a median when one is added), so the
loss of a pick has a range of e, and the pick is e^2/8-zCDP (Cesar and Rogers 2021). A pick may depend on earlier
answers; m picks are (m e^2/8)-zCDP.

Positions are whole multiples of a power of two, 2^60 of them from 0 to the larger bound, and each number is rounded to
the nearest: so fine that the squares of differences, which may be as large as 2 bound^2, need no logarithm.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta, zcdp_delta, zcdp_epsilon
from dpsieve.accounting.spends import BoundedRange, Spend, ZeroConcentrated
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, lower, upper
from dpsieve.numbers.quantiles import pick_point
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.picks import weighted_pick
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

FINE_BITS = 60
_MOST_PICKS = 10**6
_BLOCK = 1 << 18  # numbers per sort


@register("rank_picks")
@dataclass(frozen=True, repr=False)
class RankPicks(Mechanism):
    """Picks by the exponential mechanism on ranks, under replacement of one row; see the head of this module.

    Attributes:
        epsilon, delta: the guarantee.
        picks: m, their number.
        pick_epsilon: e, the range of the loss of each.
        purpose: the quantity that is searched for.
        unit: the privacy unit.

    >>> mechanism = RankPicks.within(Fraction(1, 100), 2, "centre", delta=1e-6, unit="one row")
    >>> round(mechanism.pick_epsilon, 9), round(mechanism.rho, 9)
    (0.2, 0.01)
    """

    neighbours: ClassVar[str] = "replace"

    epsilon: float
    delta: float
    picks: int
    pick_epsilon: float
    purpose: str = "ranks"
    unit: str = "one row"

    def __post_init__(self) -> None:
        promise = Guarantee(self.epsilon, positive_delta(self.delta), "replace", self.unit)
        hint = "Pass the number of picked quantiles, such as 20."
        picks = validate.whole("picks", self.picks, low=1, high=_MOST_PICKS, hint=hint)
        hint = "Pass the range of the loss of a pick, such as 0.1."
        each = validate.between("pick_epsilon", self.pick_epsilon, 1e-9, 1e3, hint=hint)
        purpose = validate.text("purpose", self.purpose, hint="Pass text such as 'centre'.")
        validate.store(self, epsilon=promise.epsilon, delta=promise.delta, unit=promise.unit)
        validate.store(self, picks=picks, pick_epsilon=each, purpose=purpose)

    @classmethod
    def within(cls, rho: Fraction, picks: int, purpose: str, *, delta: float, unit: str) -> "RankPicks":
        """Return picks that are rho-zCDP together."""
        each = lower(lambda: (ball(8 * rho.numerator) / rho.denominator / picks).sqrt())
        epsilon = zcdp_epsilon(_rho(picks, each), delta) if each > 0 else math.inf
        if not math.isfinite(epsilon):
            raise InvalidValue(f"the budget for the {purpose} is too small or too large. Pass another rho or epsilon.")
        return cls(epsilon, delta, picks, each, purpose, unit)

    def __repr__(self) -> str:
        return f"<rank picks: {self.purpose}, {self.picks:,} of epsilon {self.pick_epsilon:.3g} each, {self.guarantee}>"

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for one privacy unit."""
        return Guarantee(self.epsilon, self.delta, "replace", self.unit)

    @property
    def rho(self) -> float:
        """The rho of zero-concentrated privacy, rounded up."""
        return _rho(self.picks, self.pick_epsilon)

    def certify(self) -> Certificate:
        """Return the certificate, from the number of picks and their range alone."""
        worst = zcdp_delta(self.rho, self.epsilon)
        return formula(self.guarantee, worst, "balls", f"{self.picks:,} picks by the exponential mechanism")

    def spends(self) -> tuple[Spend, ...]:
        """Return the picks, by the range of their loss."""
        if self.pick_epsilon > 500:  # the largest range that a spend states
            return (ZeroConcentrated(_rho(1, self.pick_epsilon), self.picks),)
        return (BoundedRange(self.pick_epsilon, self.picks),)

    def quantiles(self, values: Floats, share: Fraction, low: float, high: float, source: Source) -> Floats:
        """Return the private quantile `share` of each column of finite numbers, clipped to the bounds.

        `picks` must be at least the number of columns: the caller accounts for that.
        """
        shift = FINE_BITS - math.frexp(max(abs(low), abs(high)))[1]
        ends = (math.ceil(math.ldexp(low, shift)), math.floor(math.ldexp(high, shift)))
        quantiles, width = [], max(1, _BLOCK // max(1, len(values)))
        for start in range(0, values.shape[1], width):
            part = np.clip(values[:, start : start + width].T.astype(np.float64), low, high)
            rows = np.rint(np.ldexp(part, shift, out=part), out=part).astype(np.int64)
            np.clip(rows, *ends, out=rows)
            rows.sort(axis=1)
            quantiles += [pick_point(column, ends, share, self.pick_epsilon, share.denominator, source)
                          for column in rows]  # fmt: skip
        return np.ldexp(np.array(quantiles, np.float64), -shift)

    def majorities(self, ones: Ints, rows: int, source: Source) -> Floats:
        """Return the private median, 0 or 1, of columns of zeros and ones, from the number of ones in each.

        A replaced row moves the excess of ones over zeros by 2 at most, and the log odds of both answers are e/2 times
        the excess: a range of e, as for other picks.
        """
        excess = [2 * count - rows for count in ones.tolist()]  # twice the rank error of 0, or minus that of 1
        unit = np.ones(2, np.int64)
        falls = [np.array([max(0, off), max(0, -off)]) for off in excess]
        return np.array([float(weighted_pick(unit, fall, self.pick_epsilon, 2, source)) for fall in falls])


def _rho(picks: int, each: float) -> float:
    return upper(lambda: ball(each) ** 2 * picks / 8)
