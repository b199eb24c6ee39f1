"""What comes before and after totals per key: private bounds of amounts, and one row about all that is withheld.

**Bounds**, from a private histogram on a logarithmic scale. Each unit adds 1 to one of 119 bins: that of what it adds
to one of its keys, which the salt chooses. The bins are zero, and from 2^j to 2^(j+1) steps of 2^-20 for j = 0, ...,
58, on both sides of zero. The bounds are post-processing of the noisy histogram: they enclose zero, if the column is
added up, and every bin that more units are in than noise explains; of those at the upper end, all but one unit in 500
stay below. Where no bin is filled, the fullest one counts.

**The rest**: pairs of units and keys that are not published, and their totals, as noisy numbers, with noise of
`randomness.noise` of scale m/epsilon for units of m pairs. It is one row, which is always there. Proofs:
docs/background/totals.md#bounds-chosen-privately and #the-rest.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.noise.totals import GRID, MOST_TOTALS, Column, RawTotal, Statistic, Total, centred, name_sums, table_names
from dpsieve.privacy.certificate import Certificate, laplace
from dpsieve.privacy.guarantee import Unit
from dpsieve.privacy.mechanism import Drawn, Mechanism
from dpsieve.randomness.noise import cube_half_width, cube_radii, discrete_laplace, laplace_scale, within_cubes
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import are, check_max_keys, is_a, is_choice, positive_epsilon

_SIDE = 59  # bins on each side of zero
_BINS = 2 * _SIDE + 1
_FALSE_ALARM = 0.02
_CLIPPED = 0.002
_SAVED = "Pass the saved value."
_COUNT, _LARGEST = "rest_count", 1 << 62


@register("amount_bounds")
@dataclass(frozen=True)
class AmountBounds(Mechanism):
    """A private histogram of what units add to one key; see the head of this module.

    Attributes:
        epsilon: its part of the budget.
        column, statistic: what is added up.
    """

    epsilon: Annotated[float, positive_epsilon]
    column: Column
    statistic: Annotated[Statistic, is_choice("sum", "mean")]
    _: KW_ONLY
    unit: Unit = "one row"

    @property
    def scale(self) -> float:
        """The scale of the noise."""
        return laplace_scale(self.epsilon, 1)

    def certify(self) -> Certificate:
        covers = f"discrete Laplace noise on {_BINS} numbers of units, to which a unit adds 1 in all"
        return laplace(self.guarantee, self.scale, 1, covers)

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
    numbers = amounts[~np.isnan(amounts)]
    size = np.frexp(np.abs(numbers))[1]  # 2^(size - 1) <= |x| < 2^size
    place = np.where(np.abs(numbers) < 1, 0, np.clip(size, 1, _SIDE)) * np.sign(numbers).astype(np.int64)
    return np.bincount(place.astype(np.int64) + _SIDE, minlength=_BINS).astype(np.int64)


class _Read(NamedTuple):
    """The drawn numbers of other mechanisms, and those of the rest."""

    other: Mapping[str, int | float]
    own: Mapping[str, int]


@register("rest")
@dataclass(frozen=True, repr=False)
class Rest(Mechanism):
    """The number of pairs of units with keys that are not published, and their totals; see the head of this module.

    Attributes:
        epsilon: its part of the budget.
        max_keys: the number of pairs of a unit that count.
        totals: what is added up.
    """

    adds_rest = True

    epsilon: Annotated[float, positive_epsilon]
    max_keys: Annotated[int, check_max_keys] = 1
    totals: Annotated[tuple[Total, ...], are(is_a(Total, _SAVED), 0, MOST_TOTALS, _SAVED)] = ()
    _: KW_ONLY
    unit: Unit = "one row"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scale  # noqa: B018  # raises if the noise would be too large

    def __repr__(self) -> str:
        return f"<rest of {len(self.totals)} totals, {self.guarantee}>"

    @property
    def _coarser(self) -> int:
        """By how much steps are coarser than those of the grid, so that the scale of the noise stays in reach."""
        return GRID if not self.totals else 1 << max(0, (self.max_keys - 1).bit_length())

    @property
    def _change(self) -> int:
        """The largest change of a coordinate by one unit, in steps: sums are rounded down to coarser steps."""
        return self.max_keys * (GRID // self._coarser)

    @property
    def scale(self) -> float:
        """The scale of the noise, in steps."""
        return laplace_scale(self.epsilon, self._change)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is drawn."""
        return (_COUNT, *(f"rest_{i}" for i in range(len(self.totals))))

    def certify(self) -> Certificate:
        covers = f"noise on the number of pairs that are not published and {name_sums(self.totals)}"
        return laplace(self.guarantee, self.scale, self._change, covers)

    def draw(self, pairs: int, sums: Ints | None, source: Source) -> dict[str, int]:
        """Return the noisy numbers, from the number of pairs and the sums of what they add, on the grid."""
        true = [np.array([pairs * GRID])]
        if self.totals:
            assert sums is not None
            true.append(centred(np.array([pairs]), np.asarray(sums, np.int64)))
        steps = np.concatenate(true) // self._coarser
        radius = cube_radii(self.scale, len(steps), 1, source=source)
        noise = within_cubes(np.repeat(radius, len(steps)), source)
        return dict(zip(self.names, (steps + noise).tolist(), strict=True))

    def reader(self, drawn: Drawn) -> _Read:
        """Return the drawn numbers, apart from those of others; raise unless they are possible."""
        own = {name: drawn[name] for name in self.names if name in drawn} if isinstance(drawn, Mapping) else {}
        if len(own) < len(self.names) or not all(type(one) is int and abs(one) < _LARGEST for one in own.values()):
            raise InvalidValue(f"drawn must have {', '.join(self.names)}. Pass what was drawn.", argument="drawn")
        other = {name: number for name, number in drawn.items() if name not in own}
        return _Read(other, own)  # type: ignore[arg-type]

    def row(self, drawn: Drawn, keys: tuple[str, ...]) -> dict[str, Any]:
        """Return the number of pairs and the totals, with their 95 % intervals."""
        steps, d = self.reader(drawn).own, len(self.totals) + 1
        step = self._coarser / GRID
        count, half = steps[_COUNT] * step, cube_half_width(d, 0.0, 0.95) * self.scale * step
        row: dict[str, Any] = {"count": max(0, round(count)), "low": max(0, round(count - half))}
        row["high"] = max(0, round(count + half))
        for i, (total, names) in enumerate(zip(self.totals, table_names(self.totals, keys), strict=True)):
            w, c = total.half_width, total.centre
            sum_ = steps[f"rest_{i}"] * step
            if total.statistic == "sum":
                value, half_of_sum = w * sum_ + c * count, self._half(w, c) * step
                row |= dict(zip(names, (value, value - half_of_sum, value + half_of_sum), strict=True))
        return row

    def _half(self, of_sum: float, of_count: float) -> float:
        largest = max(abs(of_sum), abs(of_count))
        smaller = min(abs(of_sum), abs(of_count))
        return largest * self.scale * cube_half_width(len(self.totals) + 1, smaller / largest, 0.95)
