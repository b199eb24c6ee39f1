"""What is estimated: g(w) of a key's true frequency w, checked wherever it is evaluated."""

from collections.abc import Callable

import numpy as np

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.checks import Floats, Ints

_HINT = "Pass a non-decreasing function of a float array with g(0) = 0, such as numpy.sqrt."


class Target:
    """A non-decreasing function g of the frequency with g(0) = 0; without one, g(w) = w.

    >>> Target(np.sqrt)(np.array([4, 9])).tolist()
    [2.0, 3.0]
    """

    def __init__(self, g: Callable[[Floats], Floats] | None) -> None:
        if g is not None and not callable(g):
            raise InvalidType(f"g must be a function, not {type(g).__name__}. {_HINT}")
        self._g = g
        if g is not None and self._evaluate(np.zeros(1))[0] != 0:
            raise InvalidValue(f"g(0) is not zero: a key that does not occur must add nothing. {_HINT}")

    def __call__(self, frequencies: Ints) -> Floats:
        """Return g of each frequency."""
        if self._g is None:
            return frequencies.astype(np.float64)
        points, place = np.unique(frequencies, return_inverse=True)
        values = self._evaluate(points.astype(np.float64))
        if len(values) and (values[0] < 0 or (np.diff(values) < 0).any()):
            raise InvalidValue(f"g decreases somewhere. {_HINT}")
        return values[place]

    def _evaluate(self, points: Floats) -> Floats:
        if self._g is None:
            return points
        try:
            values = np.asarray(self._g(points.copy()))
        except Exception as error:
            raise InvalidType(f"g failed on an array of floats with {type(error).__name__}. {_HINT}") from None
        if values.dtype.kind not in "fiub":
            raise InvalidType(f"g does not return real numbers. {_HINT}")
        values = values.astype(np.float64)
        if values.shape != points.shape:
            raise InvalidType(f"g does not return one number for each frequency. {_HINT}")
        if not np.isfinite(values).all():
            raise InvalidValue(f"g is not finite somewhere. {_HINT}")
        return values
