"""The mean of rows in a box, with the noise of their sum: for bounds that are tight, few rows, or a pure epsilon."""

from dataclasses import replace
from typing import Any

from dpsieve.errors import InvalidValue
from dpsieve.types import Floats
from dpsieve.vectors.means.box_grid import BoxGrid
from dpsieve.vectors.means.private_sum import best_noise
from dpsieve.vectors.means.scaled_noise import ScaledNoise


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
    usual = {"p": 2.0, "rho": None, "epsilon": None, "delta": None, "noise": "auto", "shape": "best", "unit": "one row"}
    made, grid = best_noise(lows, highs, "replace", **{**usual, **budget})
    steps, offsets = (tuple(numbers.tolist()) for numbers in (grid.steps / rows, grid.origins))
    return replace(made, steps=steps, offsets=offsets if any(offsets) else ()), grid
