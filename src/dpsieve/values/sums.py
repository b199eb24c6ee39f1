"""Estimated sums over keys: a number that knows its error, and which keys count how much in it."""

import math
from collections.abc import Callable
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.types import Floats

_WHERE = "Pass one boolean for each row of the table, or a function of the keys that returns them."
_WEIGHTS = "Pass one finite number for each row of the table, or a function of the keys that returns them."


Interval = Callable[[float], tuple[float, float] | None]


class EstimatedSum(float):
    """An estimate: a float, with its estimated bias and variance, which are computed when they are first read.

    `errors` is the pair of these, or a function that returns it. `interval` returns the exact or conservative interval
    at a level, or None where only the normal approximation is offered.

    >>> total = EstimatedSum(1200.0, (10.0, 400.0))
    >>> total + 1, total.bias, total.standard_error
    (1201.0, 10.0, 20.0)
    >>> [round(end, 1) for end in total.interval(0.95)]
    [1150.8, 1229.2]
    """

    _errors: tuple[float, float] | Callable[[], tuple[float, float]]
    _interval: Interval | None

    def __new__(
        cls,
        value: float,
        errors: tuple[float, float] | Callable[[], tuple[float, float]],
        interval: Interval | None = None,
    ) -> "EstimatedSum":
        """Make an estimate of this value."""
        made = super().__new__(cls, value)
        made._errors, made._interval = errors, interval
        return made

    @cached_property
    def _found(self) -> tuple[float, float]:
        bias, variance = self._errors() if callable(self._errors) else self._errors
        return float(bias), float(variance)

    @property
    def bias(self) -> float:
        """By how much the estimate is expected to be too large."""
        return self._found[0]

    @property
    def variance(self) -> float:
        """The variance of the estimate."""
        return self._found[1]

    @property
    def standard_error(self) -> float:
        """The root of the variance."""
        return math.sqrt(self.variance)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval that covers the true sum with at least this probability, given which keys were reported.

        Few keys have the laws of their noise convolved, see `Release.estimate`. For many keys it is (estimate - bias)
        less and plus z standard errors, z from the normal distribution: about right where no key stands out.
        """
        level = validate.between("level", level, 0.0, 1 - 1e-12, hint="Pass a confidence level such as level=0.95.")
        exact = None if self._interval is None else self._interval(level)
        if exact is not None:
            return exact
        half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        middle = float(self) - self.bias
        return middle - half, middle + half

    def __reduce__(self) -> tuple[Any, ...]:
        return EstimatedSum, (float(self), self._found, self._interval)


def row_weights(
    keys: Any,
    rows: int,
    where: ArrayLike | Callable[[Any], ArrayLike] | None,
    weights: ArrayLike | Callable[[Any], ArrayLike] | None,
) -> Floats:
    """Return what each row counts in a sum: its weight, 1 without any, and 0 where `where` is false."""
    found = np.ones(rows)
    if where is not None and rows:
        chosen = np.asarray(where(keys) if callable(where) else where)
        if chosen.dtype != np.bool_ or chosen.shape != found.shape:
            raise InvalidValue(f"where does not select rows of the table. {_WHERE}")
        found *= chosen
    if weights is not None and rows:
        given = validate.finite("weights", weights(keys) if callable(weights) else weights, hint=_WEIGHTS)
        if given.shape != found.shape:
            raise InvalidValue(f"weights does not hold one number for each row. {_WEIGHTS}")
        found *= given
    return found
