"""Noise for sums of Misra-Gries sketches over a known universe.

From a sketch of k counters c, lowered gamma times over n items, take v = max(0, c + gamma - n/(k+1)): at most n/(k+1)
below the true frequency and never above it (Section 3.6 of the thesis). Everything is counted in units of 1/(k+1),
where V = max(0, (k+1)(c + gamma) - n) is a whole number. One item more leaves two sketches in one of the relations
A and B at the head of `sketches.laplace_noise`, so that

    A: c + gamma stays everywhere and n grows by 1. At most k values fall, by 1 each.
    B: c + gamma grows by 1 for one key, n grows by 1. One value grows by at most k, at most k - 1 others fall by 1.

So all values change by at most 2k - 1 together, and with the number of items by at most 2k, also in sums over streams
(docs/background/streams.md#proof-sums-over-a-universe). Discrete Laplace noise of scale 2k/epsilon on all of it is
epsilon-private, and the noisy number of items bounds from above what the sketches have lost.

Every element of the universe gets noise, also those with a value of 0, and those that reach a public threshold are
published. The number of published zeros is a binomial draw, their places a uniform choice, and their excess a geometric
draw, so no other element of a large universe is touched. A unit of m items is m steps of epsilon/m.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import numpy as np
from flint import arb

from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.mechanism import Outcome
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.noise import discrete_laplace
from dpsieve.randomness.picks import distinct
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import ExactTable
from dpsieve.sketches.laplace_noise import MISSED, LaplaceSketch, any_above, find_threshold
from dpsieve.types import Floats, Ints
from dpsieve.validate import is_positive, is_whole

MOST_KEYS = 10**12  # of a universe
MOST_SOURCES = 10**9


@dataclass(frozen=True, repr=False)
class SketchSum(LaplaceSketch):
    """Noise for the values of merged sketches, and for a bound on how much they are too low.

    What is drawn as `lost` is that bound in units of 1/parts: the noisy number of items.

    Attributes:
        sources: the number of merged sketches.
    """

    sources: Annotated[int, is_whole(1, MOST_SOURCES, "Pass how many sketches are added up.")] = 1

    @property
    def parts(self) -> int:
        return self.counters + 1

    @property
    def resolution(self) -> int:
        return self.parts

    @property
    def sensitivity(self) -> int:
        return 2 * self.counters  # of all values and the number of items together

    def shares_noise(self, lost: int) -> bool:
        return lost > 0

    @property
    def most_keys(self) -> int:
        return self.counters * self.sources

    @property
    def noisy_keys(self) -> int:
        """The most keys that may get noise."""
        return self.most_keys

    @property
    @abstractmethod
    def least(self) -> int:
        """What a noisy value must reach, in units of 1/parts."""

    @property
    def threshold(self) -> float:
        """What a noisy value must reach, in units of frequency."""
        return self.least / self.parts

    def draw(self, values: Ints, items: int, source: Source) -> Outcome:
        """Return a token for each value above zero, 0 for 'nothing', and the noisy bound as `lost`."""
        noisy = values + discrete_laplace(self.scale, len(values), source=source)
        counted = items + int(discrete_laplace(self.scale, 1, source=source)[0])
        return Outcome(np.where(noisy >= self.least, noisy, 0), {"lost": counted})

    def bounds(self, noisy: Floats, lost: int) -> tuple[Ints, Ints]:
        """Return intervals that all contain the true frequencies with probability 0.95.

        A true frequency is at least v = token - X, and at most v plus what may be lost. A key that is held from its
        first item on has exactly v plus what was lost, and common keys nearly that. So that is the count.
        """
        below, above = self._margins
        low = np.maximum(np.ceil(noisy - below / self.parts), 0).astype(np.int64)
        return low, np.maximum(np.floor(noisy + (lost + above) / self.parts).astype(np.int64), low)

    @cached_property
    def _margins(self) -> tuple[int, int]:
        """Upper bounds on all X_i, and on all -X_i plus the noise of N, that each fail with half of the probability."""
        keys, half = self.noisy_keys, MISSED / 2
        below = find_threshold(lambda t: keys * self._tail(t), half) - 1
        return below, find_threshold(lambda t: any_above(t, {0: keys}, self.scale), half) - 1


@register("misra_gries_sum")
@dataclass(frozen=True, repr=False)
class SummedSketch(SketchSum):
    """Noise for merged sketches over a known universe.

    Attributes:
        delta: 0.
        universe: the size of the known universe.
        false_keys: the expected number of published elements that do not occur.

    >>> round(SummedSketch(1.0, 0.0, 1024, universe=10**9).threshold, 1)
    40.0
    """

    universe: Annotated[int, is_whole(1, MOST_KEYS, "Pass how many keys can occur.")] = field(kw_only=True)
    false_keys: Annotated[float, is_positive("Pass how many false keys to expect, such as 1.0.")] = field(
        default=1.0, kw_only=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta:
            hint = "Without a known universe, use RoundedSketch."
            raise InvalidValue(f"delta must be 0 over a known universe. {hint}", argument="delta")

    def __repr__(self) -> str:
        return f"<sum of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @property
    def most_keys(self) -> int:
        return min(super().most_keys, self.universe)

    @property
    def noisy_keys(self) -> int:
        return self.universe

    @cached_property
    def least(self) -> int:
        return find_threshold(lambda t: self.universe * self._tail(t), self.false_keys)

    def certify(self) -> Certificate:
        """Return the certificate: one comparison of exact fractions."""
        covers = f"sum of sketches with discrete Laplace noise of scale {self.scale / self.parts:.4g}"
        return formula(self.guarantee, 0.0 if self._is_wide else 1.0, "balls", covers)

    def draw_zeros(self, held: Ints, source: Source) -> tuple[Ints, Ints]:
        """Return the published places of the universe without a value, and their tokens; places `held` have a value."""
        zeros = self.universe - len(held)
        rate = min(1.0, self._tail(self.least) * (1 + 1e-12))  # slightly higher, then thinned to the exact rate
        candidates = int(binomial(np.array([zeros]), rate, source=source)[0])
        chosen = distinct(candidates, self.universe, held, source)
        chosen = chosen[_coin(self.least, self.scale, rate).draw(candidates, source) == 1]
        noise = discrete_laplace(self.scale, len(chosen), source=source)
        beyond = np.where(noise >= 0, noise, -1 - noise)  # geometric: P[g] is proportional to p^g + p^(g+1)
        return chosen, self.least + beyond


def _coin(least: int, scale: float, rate: float) -> ExactTable:
    """Return a table that draws 1 with probability P[X >= least] / rate, for least >= 1."""

    def tails() -> arb:
        return 1 - (-arb(least) / arb(scale)).exp() / (1 + (-1 / arb(scale)).exp()) / arb(rate)

    return ExactTable(lambda k: arb(0) if k < 0 else tails() if k == 0 else arb(1))
