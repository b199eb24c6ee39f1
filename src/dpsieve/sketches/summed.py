"""Sums of Misra-Gries sketches with low sensitivity: for known universes, and for sketches of many streams.

From a sketch of k counters c, lowered gamma times over n items, take v = max(0, c + gamma - n/(k+1)): at most n/(k+1)
below the true frequency and never above it (Section 3.6 of the thesis). One item more or less changes all v together
by at most 1 + k/(k+1) in l1 norm, and so it does for the sum of such sketches over any number of streams (Section
3.7). Here everything is counted in units of 1/(k+1), where v is a whole number; with the number of items N beside it,
which changes by 1, the sensitivity is 2k + 2. Discrete Laplace noise of scale (2k + 2)/epsilon on all of it is
epsilon-private, and the noisy N bounds from above what the sketches have lost.

With a known universe, every element gets its noise, also those with v = 0, and those that reach a public threshold
come out. How many of the zeros do is a binomial draw, which ones a uniform choice, and by how much a geometric
draw, so no other element of a large universe is touched. Pure privacy, delta = 0.

Without one, keys with v > 0 get noise and come out if they reach the threshold L. At most k keys may be held by the one
sum and not by the other, of values a_1, ..., a_j with sum at most 2k + 1. With tau(a) = P[a + X >= L], which is convex
up to L, the probability that any of them comes out is at most

    delta = max { tau(2k + 1), tau(k + 2) + (k - 1) tau(1) },

and the other way round, the silence of a key of value b costs a factor 1 / (1 - tau(b)) <= e^(b epsilon / (2k + 2)),
its own part of the sensitivity. (This is checked at b = 1 and b = 2k + 1: tau is convex, the other side concave.)

A unit of m items is m steps of (epsilon/m, delta_1), as for one sketch.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.makers import unknown_domain
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.mechanism import Reading
from dpsieve.privacy.registry import register
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.noise import discrete_laplace
from dpsieve.randomness.order import distinct
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import ExactTable

from dpsieve.sketches.noisy import (  # isort: skip
    MISSED, LaplaceSketch, any_above, are_parts, drawn_number, group_delta, least_threshold,
)  # fmt: skip
from dpsieve.types import Floats, Ints

MOST_KEYS = 10**12  # of a universe
MOST_SOURCES = 10**9


@register("misra_gries_sum")
@dataclass(frozen=True, repr=False)
class SummedSketch(LaplaceSketch):
    """Noise for a sum of post-processed sketches, from public numbers alone; delta is 0 with a known universe.

    Attributes:
        sources: how many sketches were added up.
        universe: how many elements the known universe has; None where it is not known.
        false_keys: how many elements that do not occur are expected to come out, with a known universe.
        items: N with noise; None before it is drawn.

    >>> round(SummedSketch(1.0, 1e-8, 1024).threshold, 1)
    49.3
    >>> round(SummedSketch(1.0, 0.0, 1024, universe=10**9).threshold, 1)
    40.1
    """

    epsilon: float
    delta: float
    counters: int
    sources: int = 1
    universe: int | None = None
    false_keys: float = 1.0
    items_per_unit: int = 1
    items: int | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.universe is None:
            unknown_domain(self.epsilon, self.delta)
        epsilon, delta, universe = validate.positive_epsilon(self.epsilon), validate.delta(self.delta), self.universe
        if universe is not None and delta > 0:
            raise InvalidValue("delta and universe exclude each other. Pass a delta above zero, or a known universe.")
        if universe is not None:
            universe = validate.whole("universe", universe, low=1, high=MOST_KEYS, hint="Pass how many keys can occur.")
        hint = "Pass how many sketches are added up."
        sources = validate.whole("sources", self.sources, low=1, high=MOST_SOURCES, hint=hint)
        hint = "Pass how many false keys to expect, such as 1.0."
        false_keys = validate.positive("false_keys", self.false_keys, hint=hint)
        self._store(
            epsilon=epsilon, delta=delta, sources=sources, universe=universe, false_keys=false_keys,
            items=drawn_number("items", self.items),
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<sum of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @property
    def parts(self) -> int:
        """Values are sums of counters plus parts of what was lost, in units of 1/(k+1)."""
        return self.counters + 1

    @property
    def sensitivity(self) -> int:
        """In units of 1/(k+1)."""
        return 2 * self.counters + 2

    @property
    def most_keys(self) -> int:
        """The most keys that a release may have."""
        return min(self.counters * self.sources, self.universe or MOST_KEYS)

    @cached_property
    def least(self) -> int:
        """What a noisy value must reach, in units of 1/(k+1)."""
        if self.universe is None:
            return least_threshold(self._delta, self.delta)
        universe = self.universe
        return least_threshold(lambda t: universe * self._tail(t), self.false_keys)

    @property
    def threshold(self) -> float:
        """What a noisy value must reach, in units of frequency."""
        return self.least / (self.counters + 1)

    def certify(self) -> Certificate:
        """Return the certificate: the formulas at the head of this module, evaluated at the threshold.

        With a known universe that is one comparison of exact fractions.
        """
        sums = f"sums of Misra-Gries sketches with discrete Laplace noise of scale {self.scale:.4g}/(k+1)"
        if self.universe is not None:
            return formula(self.guarantee, 0.0 if self._is_wide else 1.0, "balls", sums)
        worst = self._delta(self.least) if self._is_wide else 1.0
        return formula(self.guarantee, worst, "formula", f"{sums} and a threshold of {self.threshold:.4g}")

    def draw(self, values: Ints, items: int, source: Source) -> tuple["SummedSketch", Floats]:
        """Return this mechanism with the noisy N, and a token for each value above zero, 0 for 'nothing'."""
        noisy = values + discrete_laplace(self.scale, len(values), source=source)
        counted = items + int(discrete_laplace(self.scale, 1, source=source)[0])
        return self._with_drawn(items=counted), np.where(noisy >= self.least, noisy, 0) / (self.counters + 1)

    def draw_zeros(self, held: Ints, source: Source) -> tuple[Ints, Floats]:
        """Return which places of the universe without a value come out, and their tokens; `held` have a value."""
        assert self.universe is not None
        zeros = self.universe - len(held)
        rate = min(1.0, self._tail(self.least) * (1 + 1e-12))  # a little more often, then thinned to the exact rate
        candidates = int(binomial(np.array([zeros]), rate, source=source)[0])
        chosen = distinct(candidates, self.universe, held, source)
        chosen = chosen[_coin(self.least, self.scale, rate).draw(candidates, source) == 1]
        noise = discrete_laplace(self.scale, len(chosen), source=source)
        beyond = np.where(noise >= 0, noise, -1 - noise)  # geometric: P[g] is proportional to p^g + p^(g+1)
        return chosen, (self.least + beyond) / (self.counters + 1)

    def read(self, tokens: ArrayLike) -> Reading:
        """Return noisy values, and intervals for the true frequencies that all hold at once with probability 0.95.

        A true frequency is at least v = token - X, and at most v + N/(k+1).
        """
        noisy, unit = np.asarray(tokens, dtype=np.float64), self.counters + 1
        below, above = self._margins
        lost = 0 if self.items is None else self.items
        count = np.maximum(np.rint(noisy), 0).astype(np.int64)
        low = np.maximum(np.ceil(noisy - below / unit), 0).astype(np.int64)
        high = np.floor(noisy + (lost + above) / unit).astype(np.int64)
        return Reading(count, low, np.maximum(high, low), noisy)

    def possible(self, tokens: Floats) -> bool:
        """Return whether all tokens are whole numbers of 1/(k+1), from the threshold on."""
        return are_parts(tokens, self.counters + 1, self.least)

    @cached_property
    def _margins(self) -> tuple[int, int]:
        """Bounds on all X_i, and on all -X_i plus the noise of N, that fail with half of what is allowed each."""
        keys, half = self.universe or self.counters * self.sources, MISSED / 2
        below = least_threshold(lambda t: keys * self._tail(t), half) - 1
        return below, least_threshold(lambda t: any_above(t, {0: keys}, self.scale), half) - 1

    def _delta(self, least: int) -> float:
        k = self.counters
        shown = max(self._tail(least - 2 * k - 1), self._tail(least - k - 2) + (k - 1) * self._tail(least - 1))
        silent = all(self._tail(least - b) <= -math.expm1(-b / self.scale) for b in (1, 2 * k + 1))
        whole = group_delta(shown, self.epsilon, self.items_per_unit)
        return min(1.0, whole * (1 + 1e-9)) if silent and least > 2 * k + 1 else 1.0


def _coin(least: int, scale: float, rate: float) -> ExactTable:
    """Return a table that gives 1 with probability P[X >= least] / rate, for least >= 1."""

    def tails() -> arb:
        return 1 - (-arb(least) / arb(scale)).exp() / (1 + (-1 / arb(scale)).exp()) / arb(rate)

    return ExactTable(lambda k: arb(0) if k < 0 else tails() if k == 0 else arb(1))
