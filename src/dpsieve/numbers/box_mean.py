"""Means of rows in a box, with the noise of their sums: for bounds that are tight, few rows, or a pure epsilon.

Where one row is replaced, the number of rows is public and divides the noisy sum (`box_mean_noise`). Where one row is
added or removed it is private, and is counted in the same draw (`UnitMeans`): a row x adds x - middle to the sums and 1
to the count, so that it moves a sum by half of the width of its bounds. Sums and count are one vector of whole numbers,
with the noise of `scaled_noise`, so that its proof of privacy is the proof here; the rest is post-processing.

The mean is middle + S/N for the noisy sum S and the noisy count N. Its error is (e - t f)/N, up to a factor that goes
to 1, for the noises e of S and f of N, and t the distance of the true mean from the middle. The split makes
E|e|^2 + t^2 E|f|^2 least at t = half of the half-width (Lemmas 4.8 and 4.11 of the thesis, with the count as one more
coordinate of that range). The interval is Fieller's: S - t N = e - t f at the true t, so that

    {t : |S - t N| <= z sqrt(Var e + t^2 Var f)}

holds it with 95 %, whatever N is: exactly for Gaussian noise with z = 1.96. The sum of two independent Laplace
variables exceeds ln(20)/sqrt(2) of its deviations with at most 5 %, where one of them is 0, and less otherwise. Values
are limited to the bounds, which moves S towards every t that is possible. The set is an interval where N^2 > z^2 Var f;
elsewhere none is stated.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.numbers.box_grid import BoxGrid
from dpsieve.numbers.norm_noise import NORMAL_95, as_tuple, reals
from dpsieve.numbers.scaled_noise import ScaledNoise
from dpsieve.numbers.sums import best_noise
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

_LAPLACE_95 = math.log(20) / math.sqrt(2)
_OFF_MIDDLE = 0.5  # of the half-width: how far from the middle of its bounds a mean is taken to be, for the split


def box_mean_noise(rows: int, lows: Floats, highs: Floats, **budget: Any) -> tuple[ScaledNoise, BoxGrid]:
    """Return the noise for the mean of a public number of rows in a box, and the grid on which they are summed.

    Neighbours replace one row. It is the noise of `private_sum`, divided by the number of rows afterwards; it moves no
    mean by clipping beyond the bounds. `budget` has what `best_noise` takes.

    >>> import numpy as np
    >>> made, _ = box_mean_noise(100, np.zeros(1), np.ones(1), rho=0.5)
    >>> made.deviations.round(6).tolist()
    [0.01]
    """
    if rows < 1:
        raise InvalidValue("data has no row with a number in each column, so that there is no mean.")
    made, grid = best_noise(lows, highs, "replace", **{**_USUAL, **budget})
    steps, offsets = (tuple(numbers.tolist()) for numbers in (grid.steps / rows, grid.origins))
    return replace(made, steps=steps, offsets=offsets if any(offsets) else ()), grid


_USUAL: dict[str, Any] = {
    "p": 2.0, "rho": None, "epsilon": None, "delta": None, "noise": "auto", "shape": "best", "unit": "one row"
}  # fmt: skip


@register("unit_means")
@dataclass(frozen=True, repr=False)
class UnitMeans(ScaledNoise):
    """Noise on sums of centred rows and on their number, from which means are made; see the head of this module.

    Attributes:
        lows, highs: the bounds of each coordinate.
        units: the noisy number of rows, once it is drawn.
        epsilon, delta, changes, scale, steps, offsets, noise, neighbours, unit: see `ScaledNoise`; the last of the
            changes and of the steps is that of the count.
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = dict.fromkeys(
        ("changes", "steps", "offsets", "lows", "highs"), as_tuple
    )

    _: KW_ONLY
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    units: float = 0.0

    def __post_init__(self) -> None:
        lows, highs = reals("lows", self.lows), reals("highs", self.highs)
        validate.store(self, lows=lows, highs=highs)
        super().__post_init__()
        if not lows or len(lows) != len(highs) or not all(low < high for low, high in zip(lows, highs, strict=True)):
            raise InvalidValue("lows and highs must be as many, each low below its high.")
        if len(self.steps) != len(lows) + 1 or min(self.steps) <= 0 or min(self.changes) < 1 or self.offsets:
            raise InvalidValue(
                "steps and changes must be above 0, one for each mean and one for the count; no offsets."
            )
        hint = "Pass the noisy number of rows."
        validate.store(self, units=validate.between("units", self.units, -1e300, 1e300, hint=hint))

    def __repr__(self) -> str:
        return f"<unit means, {self.size:,} means, {self.noise} noise of {self.scale:.4g} steps, {self.guarantee}>"

    @property
    def size(self) -> int:
        """How many means there are."""
        return len(self.lows)

    @property
    def _middles(self) -> Floats:
        return np.asarray((np.array(self.lows) + np.array(self.highs)) / 2)

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the means, within the bounds, and last the noisy number of rows."""
        noisy = super().draw(sums, source)
        means = self._middles + noisy[:-1] / max(1.0, noisy[-1])
        return np.append(np.clip(means, self.lows, self.highs), noisy[-1])

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the standard deviation of the error, and the 95 % interval of each mean; none where N is too small."""
        reach = NORMAL_95 if self.noise == "gaussian" else _LAPLACE_95
        each, of_count = self.deviations[:-1], self.deviations[-1]
        count, off = max(1.0, self.units), values - self._middles
        deviations = np.sqrt(each**2 + (off * of_count) ** 2) / count
        rest = count**2 - (reach * of_count) ** 2
        if self.units < 1 or rest <= 0:
            unknown = np.full(self.size, math.nan)
            return {"deviation": deviations, "low": unknown, "high": unknown}
        half = reach * np.sqrt((of_count * off * count) ** 2 + rest * each**2) / rest
        centre = self._middles + off * (count**2 / rest)
        return {
            "deviation": deviations,
            "low": np.maximum(centre - half, self.lows),
            "high": np.minimum(centre + half, self.highs),
        }

    def possible(self, values: Floats) -> bool:
        """Return whether values are within the bounds."""
        return bool(((values >= self.lows) & (values <= self.highs)).all())


def unit_means_noise(
    lows: Floats, highs: Floats, *, shape: str, p: float, **budget: Any
) -> tuple[UnitMeans, Callable[[Floats], Ints]]:
    """Return the noise for means of rows in a box, of which one is added or removed, and a function that sums rows.

    With shape='proportional' each mean has noise in proportion to its width; with 'best' the p-th moment of the total
    error is least. `budget` has what `best_noise` takes.

    >>> made, sums = unit_means_noise(np.zeros(1), np.full(1, 100.0), shape="best", p=2.0, rho=0.5)
    >>> made.deviations.round(1).tolist(), made.units
    ([61.2, 1.7], 0.0)
    """
    middles, reach = (lows + highs) / 2, (highs - lows) / 2
    scales = reach if shape == "proportional" else np.ones_like(reach)
    wide = reach / scales
    largest = float(wide.max())
    row = _OFF_MIDDLE * largest * float(np.linalg.norm(wide / largest, p))  # what a row counts
    ends = np.append(wide, row)
    made, grid = best_noise(np.append(-wide, 0.0), ends, "add_remove", **{**_USUAL, **budget, "p": p})

    def sums(rows: Floats) -> Ints:
        """Return the sums of centred rows, and their number, in steps."""
        counted = np.column_stack([(rows - middles) / scales, np.full(len(rows), row)])
        return grid.sums(counted)

    steps = tuple((grid.steps * np.append(scales, 1 / row)).tolist())
    numbers = (made.epsilon, made.delta, made.changes, made.scale, steps)
    words: Any = {"noise": made.noise, "neighbours": "add_remove", "unit": made.unit}
    return UnitMeans(*numbers, **words, lows=tuple(lows.tolist()), highs=tuple(highs.tolist())), sums
