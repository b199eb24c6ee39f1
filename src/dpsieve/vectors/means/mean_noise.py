"""The last step of a private mean: noise on sums of clipped rows, divided by the public number of rows."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.vectors.means.norm_noise import NormNoise, as_tuple


@register("mean_noise")
@dataclass(frozen=True, repr=False)
class MeanNoise(NormNoise):
    """`NormNoise` whose values are limited to public bounds at the end, which is post-processing.

    Attributes:
        low, high: the bounds of every coordinate.
        radius: the private norm to which rows were clipped, in the scaled space; 0 where they were clipped to a box.
        epsilon, delta, sensitivity, scale, steps, offsets, neighbours, unit: see `NormNoise`.
    """

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"steps": as_tuple, "offsets": as_tuple}

    _: KW_ONLY
    low: float = -1e300
    high: float = 1e300
    radius: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the bounds of a coordinate, such as low=-1.0 and high=1.0."
        low, high = (validate.between(name, getattr(self, name), -1e300, 1e300, hint=hint) for name in ("low", "high"))
        if not low < high:
            raise InvalidValue(f"low is not below high. {hint}")
        radius = validate.between("radius", self.radius, 0.0, 1e300, hint="Pass the norm to which rows are clipped.")
        validate.store(self, low=low, high=high, radius=radius)

    def __repr__(self) -> str:
        return f"<mean noise, {self.size:,} means, radius {self.radius:.4g}, {self.guarantee}>"

    def draw(self, sums: Ints, source: Source) -> Floats:
        """Return the means with noise, within the bounds."""
        return np.clip(super().draw(sums, source), self.low, self.high)

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the standard deviation of the noise, and a 95 % interval for the mean of the clipped rows."""
        more = super().columns(values)
        return {**more, "low": np.maximum(more["low"], self.low), "high": np.minimum(more["high"], self.high)}

    def possible(self, values: Floats) -> bool:
        """Return whether values are within the bounds, and on the grid where they are not at a bound."""
        inside = (values > self.low) & (values < self.high)
        if not ((values >= self.low) & (values <= self.high)).all():
            return False
        # Any point of the grid stands in where the value is a bound.
        return super().possible(np.where(inside, values, np.array(self.offsets) if self.offsets else 0.0))
