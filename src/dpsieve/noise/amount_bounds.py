"""Bounds of what units add to a key, from a private histogram on a logarithmic scale.

Each unit adds 1 to one of 119 bins: that of what it adds to one of its keys, which the salt chooses. The bins are zero,
and from 2^j to 2^(j+1) steps of 2^-20 for j = 0, ..., 58, on both sides of zero: a public list. Discrete Laplace noise
of scale 1/epsilon on every bin makes the histogram epsilon-private when one unit is added or removed (Ghosh,
Roughgarden and Sundararajan 2012).

The bounds are post-processing: they enclose zero, if the column is added up, and every bin that more units are in than
noise explains, ln(119/0.02)/epsilon; of those at the upper end, all but one unit in 500 stay below. So a bound is never
one that noise alone suggests, and too few units to be noticed are clipped. Where no bin is filled, the fullest one
counts.
"""

import math
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated

import numpy as np

from dpsieve.codec import register
from dpsieve.noise.totals import RawTotal, Statistic, Total
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee, Unit
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import is_choice, positive_epsilon

_SIDE = 59  # bins on each side of zero
_BINS = 2 * _SIDE + 1
_FALSE_ALARM = 0.02
_CLIPPED = 0.002


def _text(value: object, name: str) -> str:
    from dpsieve.validate import text

    return text(name, value, hint="Pass the name of a column.")


@register("amount_bounds")
@dataclass(frozen=True)
class AmountBounds(Mechanism):
    """A private histogram of what units add to one key; see the head of this module.

    Attributes:
        epsilon: its part of the budget.
        column, statistic: what is added up.
    """

    epsilon: Annotated[float, positive_epsilon]
    column: Annotated[str, _text]
    statistic: Annotated[Statistic, is_choice("sum", "mean")]
    _: KW_ONLY
    unit: Unit = "one row"

    @cached_property
    def guarantee(self) -> Guarantee:
        """The promise to one privacy unit."""
        return Guarantee(self.epsilon, unit=self.unit)

    @property
    def scale(self) -> float:
        """The scale of the noise."""
        return laplace_scale(self.epsilon, 1)

    def certify(self) -> Certificate:
        """Return the certificate, by exact fractions."""
        is_private = Fraction(self.scale) * Fraction(self.epsilon) >= 1
        covers = f"discrete Laplace noise on {_BINS} numbers of units, to which a unit adds 1 in all"
        return formula(self.guarantee, 0.0 if is_private else 1.0, "balls", covers)

    def draw(self, amounts: Floats, source: Source) -> Total:
        """Return the total with its bounds, from what each unit adds to one key, in steps; NaN adds to no bin."""
        return self._choose(bins_of(amounts) + discrete_laplace(self.scale, _BINS, source=source))

    def _choose(self, noisy: Ints) -> Total:
        filled = np.flatnonzero(noisy > math.log(_BINS / _FALSE_ALARM) * self.scale)
        filled = filled if len(filled) else np.array([int(noisy.argmax())])
        first, last = int(filled[0]), int(filled[-1])
        units = np.maximum(noisy[first : last + 1], 0)
        while last > first and units[last - first] < _CLIPPED * units.sum():
            last -= 1
        low, high = self._end(first, lower=True), self._end(last, lower=False)
        if self.statistic == "sum":
            low, high = min(low, 0.0), max(high, 0.0)
        if not low < high:
            high = low + 1.0
        outside = np.delete(noisy, np.arange(first, last + 1))
        most = float(outside.sum()) + 2 * self.scale * math.sqrt(2 * len(outside))
        clipped = min(1.0, max(0.0, most) / max(1.0, float(noisy.sum())))
        return Total(self.column, self.statistic, low, high, float(f"{clipped:.2g}"))

    def _end(self, place: int, *, lower: bool) -> float:
        """Return an end of a bin."""
        bin_ = place - _SIDE
        step = RawTotal.steps_per_unit
        if bin_ == 0:
            return 0.0
        small, large = 2.0 ** (abs(bin_) - 1) / step, 2.0 ** abs(bin_) / step
        return (small if lower else large) if bin_ > 0 else (-large if lower else -small)


def bins_of(amounts: Floats) -> Ints:
    """Return the number of units in each bin, from the most negative to the largest."""
    some = amounts[~np.isnan(amounts)]
    size = np.frexp(np.abs(some))[1]  # 2^(size - 1) <= |x| < 2^size
    place = np.where(np.abs(some) < 1, 0, np.clip(size, 1, _SIDE)) * np.sign(some).astype(np.int64)
    return np.bincount(place.astype(np.int64) + _SIDE, minlength=_BINS).astype(np.int64)
