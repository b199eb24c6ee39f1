"""One row of a channel, for people: what a key of one frequency may come out as."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Row:
    """The distribution of the output for one true frequency.

    `silent` is the probability of 'nothing'. Token cell t lies in (left[t], right[t]], in units of frequency, and has
    probability mass[t], spread evenly; a point token has left == right. Cells are in increasing order.
    """

    silent: float
    left: Floats
    right: Floats
    mass: Floats

    @property
    def reported(self) -> float:
        """The probability that the key is reported at all."""
        return float(self.mass.sum())
