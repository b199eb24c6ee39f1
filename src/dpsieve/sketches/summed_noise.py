"""Noise for sums of Misra-Gries sketches over a known universe.

From a sketch of k counters c, lowered gamma times over n items, take v = max(0, c + gamma - n/(k+1)): at most n/(k+1)
below the true frequency and never above it (Section 3.6 of the thesis). Everything is counted in units of 1/(k+1),
where V = max(0, (k+1)(c + gamma) - n) is a whole number. One item more leaves two sketches in one of the relations
A and B at the head of `sketches.laplace_noise`, so that

    A: c + gamma stays everywhere and n grows by 1. At most k values fall, by 1 each.
    B: c + gamma grows by 1 for one key, n grows by 1. One value grows by at most k, at most k - 1 others fall by 1.

(Keys that one sketch holds alone have counters of 1 at most. A counter of 0 has V = 0, as (k+1) gamma <= n. A counter
of 1 that is new goes from V = 0 to k + 1 - (n - (k+1) gamma) <= k, since n - (k+1) gamma is the sum of the counters, at
least 1.) So all values change by at most 2k - 1 together, and with the number of items beside them by at most 2k; this
holds for the sum of such sketches over any number of streams too (Section 3.7). The thesis has 1 + k/(k+1) counts, 2k +
1 of our units, without n. Discrete Laplace noise of scale 2k/epsilon on all of it is epsilon-private, and the noisy
number of items bounds from above what the sketches have lost.

Every element of the universe gets noise, also those with a value of 0, and those that reach a public threshold are
published. The number of published zeros is a binomial draw, their places a uniform choice, and their excess a geometric
draw, so no other element of a large universe is touched. Pure privacy, delta = 0. A unit of m items is m steps of
epsilon/m.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flint import arb

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.mechanism import Outcome
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.noise import discrete_laplace
from dpsieve.randomness.picks import distinct
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import ExactTable
from dpsieve.sketches.laplace_noise import MISSED, LaplaceSketch, any_above, are_parts, find_threshold
from dpsieve.types import Floats, Ints

MOST_KEYS = 10**12  # of a universe
MOST_SOURCES = 10**9


class SketchSum(LaplaceSketch):
    """Noise for the values of merged sketches, and for a bound on how much they are too low.

    What is drawn as `lost` is that bound in units of 1/parts: the noisy number of items.

    Attributes:
        sources: the number of merged sketches.
    """

    sources: int

    def _store(self, **checked: Any) -> None:
        hint = "Pass how many sketches are added up."
        sources = validate.whole("sources", self.sources, low=1, high=MOST_SOURCES, hint=hint)
        super()._store(sources=sources, **checked)

    @property
    def parts(self) -> int:
        """Values are sums of counters plus parts of what was lost, in units of 1/(k+1)."""
        return self.counters + 1

    @property
    def sensitivity(self) -> int:
        """Of all values and the number of items together, in units of 1/(k+1)."""
        return 2 * self.counters

    def shares_noise(self, lost: int | None) -> bool:
        """Return whether all estimates contain the noise of that bound."""
        return lost is not None and lost > 0

    @property
    def most_keys(self) -> int:
        """The most keys that a release may have."""
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
        return Outcome(np.where(noisy >= self.least, noisy, 0) / self.parts, {"lost": counted})

    def bounds(self, noisy: Floats, lost: int | None) -> tuple[Ints, Ints]:
        """Return intervals that all contain the true frequencies with probability 0.95.

        A true frequency is at least v = token - X, and at most v plus what may be lost. A key that is held from its
        first item on has exactly v plus what was lost, and common keys nearly that. So that is the count.
        """
        below, above = self._margins
        low = np.maximum(np.ceil(noisy - below / self.parts), 0).astype(np.int64)
        return low, np.maximum(np.floor(noisy + ((lost or 0) + above) / self.parts).astype(np.int64), low)

    def possible(self, tokens: Floats) -> bool:
        """Return whether all tokens are whole numbers of 1/parts, from the threshold on."""
        return are_parts(tokens, self.parts, self.least)

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
        delta: 0, as the release is purely private.
        universe: the size of the known universe.
        false_keys: the expected number of published elements that do not occur.

    >>> round(SummedSketch(1.0, 0.0, 1024, universe=10**9).threshold, 1)
    40.0
    """

    _values: ClassVar[str] = "sum"

    epsilon: float
    delta: float
    counters: int
    sources: int = 1
    universe: int | None = None
    false_keys: float = 1.0
    items_per_unit: int = 1
    unit: str | None = None

    def __post_init__(self) -> None:
        if validate.delta(self.delta) or self.universe is None:
            raise InvalidValue("delta must be 0, and universe how many keys can occur. Without one, use RoundedSketch.")
        epsilon, hint = validate.positive_epsilon(self.epsilon), "Pass how many keys can occur."
        universe = validate.whole("universe", self.universe, low=1, high=MOST_KEYS, hint=hint)
        hint = "Pass how many false keys to expect, such as 1.0."
        false_keys = validate.positive("false_keys", self.false_keys, hint=hint)
        self._store(epsilon=epsilon, delta=0.0, universe=universe, false_keys=false_keys)

    def __repr__(self) -> str:
        return f"<{self._values} of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @property
    def most_keys(self) -> int:
        """The most keys that a release may have."""
        return min(super().most_keys, self.noisy_keys)

    @property
    def noisy_keys(self) -> int:
        """All elements of the universe get noise."""
        assert self.universe is not None
        return self.universe

    @cached_property
    def least(self) -> int:
        """What a noisy value must reach, in units of 1/parts."""
        return find_threshold(lambda t: self.noisy_keys * self._tail(t), self.false_keys)

    def certify(self) -> Certificate:
        """Return the certificate: one comparison of exact fractions."""
        covers = f"{self._values} of sketches with discrete Laplace noise of scale {self.scale / self.parts:.4g}"
        return formula(self.guarantee, 0.0 if self._is_wide else 1.0, "balls", covers)

    def draw_zeros(self, held: Ints, source: Source) -> tuple[Ints, Floats]:
        """Return the published places of the universe without a value, and their tokens; places `held` have a value."""
        zeros = self.noisy_keys - len(held)
        rate = min(1.0, self._tail(self.least) * (1 + 1e-12))  # slightly higher, then thinned to the exact rate
        candidates = int(binomial(np.array([zeros]), rate, source=source)[0])
        chosen = distinct(candidates, self.noisy_keys, held, source)
        chosen = chosen[_coin(self.least, self.scale, rate).draw(candidates, source) == 1]
        noise = discrete_laplace(self.scale, len(chosen), source=source)
        beyond = np.where(noise >= 0, noise, -1 - noise)  # geometric: P[g] is proportional to p^g + p^(g+1)
        return chosen, (self.least + beyond) / self.parts


def _coin(least: int, scale: float, rate: float) -> ExactTable:
    """Return a table that draws 1 with probability P[X >= least] / rate, for least >= 1."""

    def tails() -> arb:
        return 1 - (-arb(least) / arb(scale)).exp() / (1 + (-1 / arb(scale)).exp()) / arb(rate)

    return ExactTable(lambda k: arb(0) if k < 0 else tails() if k == 0 else arb(1))
