"""The last step of a private mean: noise on sums of clipped rows, divided by the public number of rows.

The interval is for the mean of the rows themselves, each limited to the bounds, at 95 % for each coordinate. With noise
of deviation s in steps, clipping that moves a sum by at most `bias` in the mean, and varies by `bias_deviation` around
that, its half-width is bias + 1.96 sqrt(s^2 + bias_deviation^2) steps; `clipping_bias` has the argument.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.vectors.means.norm_noise import NORMAL_95, NormNoise, as_tuple, reals


@register("mean_noise")
@dataclass(frozen=True, repr=False)
class MeanNoise(NormNoise):
    """`NormNoise` whose values are limited to public bounds at the end, which is post-processing.

    Attributes:
        low, high: the bounds of every coordinate.
        radius: the private norm to which rows were clipped, in the scaled space; 0 where they were clipped to a box.
        bias: how far clipping and rounding move a sum, in steps.
        bias_deviation: by how much that varies, in steps.
        stated: whether there is an interval; without one, `low` and `high` of the table are null.
        centres: the private centre of each coordinate, around which rows were clipped: a median of real rows, 0 or 1
            for binary ones. Empty where none was found.
        spreads: a private standard deviation for each coordinate, as Gaussian rows with these quantiles would have it;
            sqrt(q (1 - q)) of the rough mean q for binary rows. Empty where none was found.
        epsilon, delta, sensitivity, scale, steps, offsets, neighbours, unit: see `NormNoise`.
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = dict.fromkeys(
        ("steps", "offsets", "centres", "spreads"), as_tuple
    )

    _: KW_ONLY
    low: float = -1e300
    high: float = 1e300
    radius: float = 0.0
    bias: float = 0.0
    bias_deviation: float = 0.0
    stated: bool = True
    centres: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the bounds of a coordinate, such as low=-1.0 and high=1.0."
        low, high = (validate.between(name, getattr(self, name), -1e300, 1e300, hint=hint) for name in ("low", "high"))
        if not low < high:
            raise InvalidValue(f"low is not below high. {hint}")
        radius = validate.between("radius", self.radius, 0.0, 1e300, hint="Pass the norm to which rows are clipped.")
        hint = "Pass how far clipping moves a sum, in steps."
        bias, deviation = (
            validate.between(name, getattr(self, name), 0.0, 1e300, hint=hint) for name in ("bias", "bias_deviation")
        )
        if not isinstance(self.stated, bool):
            raise InvalidType("stated must be True or False.")
        centres, spreads = (reals(name, getattr(self, name)) for name in ("centres", "spreads"))
        if {len(centres), len(spreads)} - {0, self.size} or min(spreads, default=0.0) < 0:
            raise InvalidValue("centres and spreads must have one number for each coordinate, and no negative spread.")
        validate.store(self, low=low, high=high, radius=radius, bias=bias, bias_deviation=deviation)
        validate.store(self, centres=centres, spreads=spreads)

    def __repr__(self) -> str:
        return f"<mean noise, {self.size:,} means, radius {self.radius:.4g}, {self.guarantee}>"

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the means with noise, within the bounds."""
        return np.clip(super().draw(sums, source), self.low, self.high)

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the deviation of the noise, a 95 % interval for the mean of the rows, and centres and spreads."""
        half = np.array(self.steps) * self._half_width if self.stated else math.nan
        low, high = np.maximum(values - half, self.low), np.minimum(values + half, self.high)
        more = {"centre": self.centres, "spread": self.spreads}
        found = {name: np.array(numbers) for name, numbers in more.items() if numbers}
        return {"deviation": self.deviations, "low": low, "high": high, **found}

    @property
    def _half_width(self) -> float:
        return self.bias + math.ceil(NORMAL_95 * math.hypot(self.scale, self.bias_deviation))

    def possible(self, values: Floats) -> bool:
        """Return whether values are within the bounds, and on the grid where they are not at a bound."""
        inside = (values > self.low) & (values < self.high)
        if not ((values >= self.low) & (values <= self.high)).all():
            return False
        # Any point of the grid stands in where the value is a bound.
        return super().possible(np.where(inside, values, np.array(self.offsets) if self.offsets else 0.0))
