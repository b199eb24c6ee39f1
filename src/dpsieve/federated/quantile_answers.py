"""Answers about a distribution of values, each with an interval that says all that is not known."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.channel import LARGEST_FREQUENCY
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.binomial import at_least, below
from dpsieve.federated.level_plans import LevelPlan
from dpsieve.federated.quantile_bands import Bands, Tree
from dpsieve.federated.quantile_grid import Grid
from dpsieve.privacy import Certificate, Guarantee

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A value, and an interval for the true one; floats, or arrays where the question was one."""

    value: Floats | float
    low: Floats | float
    high: Floats | float


@dataclass(frozen=True, eq=False)
class Distribution:
    """A private release of how values are distributed: ask it for shares, quantiles and ranges.

    All intervals hold together with probability `confidence`. They cover the sample (Hoeffding's bound for each edge
    of the grid, all of them together), what the threshold hides, and the width of cells: between two edges the true
    function may be anything that grows. Values between are straight lines, and say no more than the interval does.
    Shares are of the clients that have a value that is counted. How many these are is never used; `total` estimates it.

    Attributes:
        grid: which cells there are.
        plan: rates, threshold and guarantee.
        tree: the ranges that survived, with their sampled counts: all that was released.
        confidence: of all intervals together.
        unsafe_to_publish: True when the randomness came from a seeded test source.
    """

    grid: Grid
    plan: LevelPlan
    tree: Tree
    confidence: float = 0.95
    unsafe_to_publish: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """What is promised, and to whom."""
        return self.plan.guarantee

    @property
    def certificate(self) -> Certificate:
        """The check of what was promised."""
        return self.plan.certify()

    def __repr__(self) -> str:
        warning = " UNSAFE TO PUBLISH: drawn from a test source." if self.unsafe_to_publish else ""
        return f"<Distribution on [{self.grid.low:g}, {self.grid.high:g}]: {self.guarantee}{warning}>"

    def save(self, folder: "str | os.PathLike[str]") -> Path:
        """Write release.parquet and release.json to a new folder, whole or not at all."""
        from dpsieve.federated.quantile_files import save

        return save(self, folder)

    @staticmethod
    def load(folder: "str | os.PathLike[str]") -> "Distribution":
        """Read what `save` wrote; a changed or partial folder is refused."""
        from dpsieve.federated.quantile_files import load

        return load(folder)

    def cdf(self, x: ArrayLike) -> Estimate:
        """Return the share of values below x (at the upper end of the grid, of all). It grows with x."""
        at, bands = _numbers("x", x), self._bands
        place = np.searchsorted(self._at, at, side="right")  # of the first edge above x
        before, after = np.clip(place - 1, 0, None), np.minimum(place, len(self._at) - 1)
        on = (place > 0) & (self._at[before] == at)
        low = np.where(place > 0, bands.low[before], 0.0)
        high = np.where(on, bands.high[before], np.where(place > 0, bands.high[after], 0.0))
        return _estimate(np.interp(at, self._at, bands.estimate, left=0.0, right=1.0), low, high)

    def quantile(self, phi: ArrayLike) -> Estimate:
        """Return a value q such that a share of about phi is below it: inf{q : phi of the values are at most q}.

        It grows with phi, from the smallest value at phi = 0. The interval holds the true quantile: at its lower end
        less than phi of the values are below, at its upper end phi or more.
        """
        wanted, bands = _numbers("phi", phi), self._bands
        if not ((wanted >= 0) & (wanted <= 1)).all():
            raise InvalidValue("phi must be between 0 and 1. Pass shares such as phi=0.5.")
        wanted = np.maximum(wanted, 1e-300)
        low = self._at[np.maximum(np.searchsorted(bands.high, wanted, side="left") - 1, 0)]
        high = self._at[np.searchsorted(bands.low, wanted, side="left")]
        value = np.interp(wanted, bands.estimate, self._at)
        return _estimate(value, low, high)

    def range(self, first: float, last: float) -> Estimate:
        """Return the share of values from `first` up to, but not with, `last`; with it at the end of the grid."""
        hint = "Pass two numbers, first <= last."
        first, last = validate.real("first", first, hint=hint), validate.real("last", last, hint=hint)
        if first > last:
            raise InvalidValue(f"first={first:g} is above last={last:g}. {hint}")
        below_first, below_last = self.cdf(first), self.cdf(last)
        low = float(below_last.low) - float(below_first.high)
        high = float(below_last.high) - float(below_first.low)
        starts = np.searchsorted(self._at, [first, last], side="left")  # the first edges at or above
        ends = np.searchsorted(self._at, [first, last], side="right") - 1  # the last edges at or below
        inner, outer = (starts[0], ends[1]), (ends[0], starts[1])
        if 0 < inner[0] < inner[1] < len(self._at) - 1:
            low = max(low, self._between(*inner)[0])
        if 0 < outer[0] < outer[1] < len(self._at) - 1:
            high = min(high, self._between(*outer)[1])
        low, high = max(0.0, min(low, high)), min(1.0, max(high, 0.0))
        return _estimate(np.array(float(below_last.value) - float(below_first.value)), np.array(low), np.array(high))

    @cached_property
    def total(self) -> Estimate:
        """How many clients have a value that is counted: sampled counts of the first level, divided by the rate.

        The interval is exact, by the tails of the binomial distribution, at the same confidence but by itself.
        """
        least, most = self.tree.total()
        miss = (1 - self.confidence) / 2 * (1 - 1e-9)
        far = round((most + 40 * most**0.5 + 1600) / self.plan.rate)
        low = 0 if least == 0 else _first(lambda n: float(at_least(n, least, self.plan.rate)) > miss, least, far)
        high = _first(lambda n: float(below(n, most + 1, self.plan.rate)) <= miss, most, far) - 1
        return Estimate(min(max(least / self.plan.rate, low), high), float(low), float(min(high, LARGEST_FREQUENCY)))

    def _between(self, first: int, last: int) -> tuple[float, float]:
        """Return bounds on the share between two edges, from all ranges between them at once.

        They hold for all pairs of edges, with half of what may be missed.
        """
        levels = int(self._bands.levels[first]), int(self._bands.levels[last])
        pairs = float(np.prod([self.grid.depth * float(self.tree.own_edges(level)) for level in levels]))
        edges = int(self._bands.edges[first]), int(self._bands.edges[last])
        return self.tree.share(*edges, (1 - self.confidence) / (4 * pairs))

    @cached_property
    def _bands(self) -> Bands:
        return self.tree.bands((1 - self.confidence) / 2)

    @cached_property
    def _at(self) -> Floats:
        return self.grid.edge(self._bands.edges)


def checked_confidence(confidence: object) -> float:
    """Return a probability that intervals can hold with."""
    hint = "Pass a probability such as confidence=0.95."
    return validate.between("confidence", confidence, 0.01, 1 - 1e-9, hint=hint)


def _numbers(name: str, values: ArrayLike) -> Floats:
    hint = "Pass a finite number or an array of them."
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"{name} must be a number or an array. {hint}") from None
    if array.dtype.kind not in "fiu":
        raise InvalidType(f"{name} must be a number or an array. {hint}")
    if not np.isfinite(array).all():
        raise InvalidValue(f"{name} is not finite. {hint}")
    return array.astype(np.float64)


def _estimate(value: Floats, low: Floats, high: Floats) -> Estimate:
    """Return an estimate that lies in its interval, with floats for a single number."""
    inside = np.minimum(np.maximum(value, low), high)
    return Estimate(*(float(part) if np.ndim(part) == 0 else np.asarray(part) for part in (inside, low, high)))


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the first number in [low, high] at which `holds`, or high; once true, it stays true."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
