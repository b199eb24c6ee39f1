"""Counts and totals in two steps: a part of the budget selects the keys, the rest measures what was found.

It is `discovery.find_then_count` with k centred sums beside each count (`noise.totals`).

Proof of privacy. The keys that are selected, and their ranks, are outputs of step one. Given those, one more unit is
measured in at most m of them. In each it adds 1 to the count and a number from -1 to 1, in half widths of the bounds,
to each centred sum: the vector of all counts and sums moves by at most sqrt(m (1 + k)) in l2 norm. Each gets Gaussian
noise of variance m sigma^2, so step two is a Gaussian of distance sqrt(1 + k)/sigma, whatever m is and whatever step
one showed; rounding to the grid is post-processing, as the sums are whole numbers on it. Both steps are stages of one
account, as without sums.

All noises are alike: in half widths each coordinate has sensitivity 1, where Lemma 4.8 of chapter 4 of the thesis
splits evenly. In the units of the columns they form an ellipse.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr

from dpsieve.codec import register
from dpsieve.discovery.find_then_count import FindThenCount, find_then_count
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.noise.known_keys import GaussianReader
from dpsieve.noise.totals import GRID, MOST_TOTALS, Total, centred
from dpsieve.numbers.noise import NORMAL_95
from dpsieve.privacy.mechanism import Drawn, Outcome
from dpsieve.randomness import rounded_gaussian
from dpsieve.randomness.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpsieve.randomness.source import Source
from dpsieve.types import Floats
from dpsieve.validate import store


def find_then_measure(
    epsilon: float, delta: float, max_keys: int, totals: tuple[Total, ...], **options: Any
) -> "FindThenMeasure":
    """Return the mechanism that selects keys, and measures their counts and totals.

    Args:
        epsilon, delta, max_keys: as in `find_then_count`.
        totals: what is added up.
        options: further arguments of `find_then_count`.
    """
    counting = find_then_count(epsilon, delta, max_keys, **options)
    sigma = math.sqrt(1 + len(totals)) * counting.sigma * (1 + 1e-12)
    return FindThenMeasure(
        epsilon, delta, sigma, counting.choice_epsilon, counting.kept_epsilon, counting.keys, totals,
        selector=counting.selector,
    )  # fmt: skip


@dataclass(frozen=True)
class MeasuredReader(GaussianReader):
    """Reads counts, and centred sums with Gaussian noise of the same scale per unit."""

    def half_width_of(self, of_sum: Floats, of_count: Floats) -> Floats:
        """Return the 95 % half-width of the noise of a Y + b N, in steps; that of the rounded count is a bit wider."""
        return np.asarray(NORMAL_95 * self._deviation(of_sum, of_count))

    def noise_beyond(self, of_sum: float, of_count: float, distance: float) -> float:
        """Return P[|noise of a Y + b N| > distance], for a distance in steps."""
        return float(2 * ndtr(-distance / self._deviation(np.float64(of_sum), np.float64(of_count))))

    def _deviation(self, of_sum: Any, of_count: Any) -> Any:
        count = math.hypot(self.scale, 12**-0.5)
        return GRID * np.hypot(self.scale * of_sum, count * of_count)


@register("find_then_measure")
@dataclass(frozen=True, repr=False)
class FindThenMeasure(FindThenCount):
    """See `find_then_measure`, and the head of this module for the proof.

    Attributes:
        totals: what is added up beside the counts.
    """

    totals: tuple[Total, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.totals
        if not isinstance(given, tuple | list) or not all(isinstance(total, Total) for total in given):
            raise InvalidType("totals must be a tuple of totals. Pass the saved one.")
        if not 1 <= len(given) <= MOST_TOTALS:
            raise InvalidValue(f"totals must be from 1 to {MOST_TOTALS}. Pass the saved one.")
        store(self, totals=tuple(given))
        super().__post_init__()
        if not SMALLEST_SCALE <= self.scale(self.keys or self.contribution.keys) * GRID <= LARGEST_SCALE:
            raise InvalidValue(
                f"epsilon={self.epsilon:g} is too small to measure totals in two steps. Pass a larger one."
            )

    @property
    def measured(self) -> int:
        return 1 + len(self.totals)

    def reader(self, drawn: Drawn) -> MeasuredReader:
        return MeasuredReader(super().reader(drawn).scale, least=1)

    def _measure(self, bounded: Pairs, keys: int, source: Source) -> Outcome:
        counts, sums = bounded.counts(), bounded.sums()
        assert sums is not None
        moved = centred(counts, sums)
        scale = upper(lambda: ball(self.scale(keys)) * GRID)
        noise = rounded_gaussian(scale, moved.size, source=source).reshape(moved.shape)
        return replace(super()._measure(bounded, keys, source), sums=moved + noise)

    @cached_property
    def _description(self) -> str:
        return f"{super()._description}, on a count and {len(self.totals)} centred sums"
