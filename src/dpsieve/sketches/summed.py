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
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.makers import unknown_domain
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.certificate import by_formula
from dpsieve.privacy.mechanism import Floats, Integers, Mechanism, Reading
from dpsieve.randomness.coins import binomial
from dpsieve.randomness.distinct import distinct
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import ExactTable
from dpsieve.sketches.noisy import MOST_COUNTERS, checked_items, made_again, protected
from dpsieve.sketches.thresholds import any_above, group_delta, least_threshold, tail

MOST_KEYS = 10**12  # of a universe
MOST_SOURCES = 10**9
_MISSED = 0.05  # the probability that any interval of a release misses


class SummedSketch(Mechanism):
    """Noise for a sum of post-processed sketches.

    Attributes:
        counters: k, the size of each sketch.
        sources: how many sketches were added up.
        universe: how many elements the known universe has; None where it is not known.
        false_keys: how many elements that do not occur are expected to come out, with a known universe.
        scale, least: of the noise, and what a noisy value must reach, both in units of 1/(k+1).
        items: N with noise; None before it is drawn.
    """

    name = "misra_gries_sum"

    def __init__(
        self,
        guarantee: Guarantee,
        counters: int,
        sources: int,
        universe: int | None,
        false_keys: float,
        items_per_unit: int,
        items: int | None = None,
    ) -> None:
        self.guarantee, self.counters, self.sources = guarantee, counters, sources
        self.universe, self.false_keys, self.items_per_unit, self.items = universe, false_keys, items_per_unit, items
        self.scale = laplace_scale(guarantee.epsilon, (2 * counters + 2) * items_per_unit)
        if universe is None:
            self.least = least_threshold(self._delta, guarantee.delta)
        else:
            self.least = least_threshold(lambda t: universe * self._tail(t), false_keys)
        self._slack = self._bounds()
        self.parameters = {
            "mechanism": self.name, "epsilon": guarantee.epsilon, "delta": guarantee.delta, "unit": guarantee.unit,
            "counters": counters, "sources": sources, "universe": universe, "false_keys": false_keys,
            "items_per_unit": items_per_unit, "items": items,
        }  # fmt: skip

    @property
    def threshold(self) -> float:
        """What a noisy value must reach, in units of frequency."""
        return self.least / (self.counters + 1)

    def __repr__(self) -> str:
        return f"<sum of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate: the formulas at the head of this module, evaluated at the threshold."""
        kept = Fraction(self.scale) * Fraction(self.guarantee.epsilon) >= (2 * self.counters + 2) * self.items_per_unit
        delta = self._delta(self.least) if self.universe is None else 0.0
        return by_formula(self.guarantee, delta if kept else 1.0, "the low sensitivity of summed Misra-Gries sketches")

    def draw(self, values: Integers, items: int, source: Source) -> tuple["SummedSketch", Floats]:
        """Return this mechanism with the noisy N, and a token for each value above zero, 0 for 'nothing'."""
        noisy = values + discrete_laplace(self.scale, len(values), source=source)
        counted = items + int(discrete_laplace(self.scale, 1, source=source)[0])
        return self.knowing(items=counted), np.where(noisy >= self.least, noisy, 0) / (self.counters + 1)

    def draw_zeros(self, held: Integers, source: Source) -> tuple[Integers, Floats]:
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
        below, above = self._slack
        lost = 0 if self.items is None else self.items
        count = np.maximum(np.rint(noisy), 0).astype(np.int64)
        low = np.maximum(np.ceil(noisy - below / unit), 0).astype(np.int64)
        high = np.floor(noisy + (lost + above) / unit).astype(np.int64)
        return Reading(count, low, np.maximum(high, low), noisy)

    def addends(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return the noisy values, or g of them, not below zero."""
        noisy = np.asarray(tokens, dtype=np.float64)
        return noisy if g is None else np.asarray(g(np.maximum(noisy, 0)), dtype=np.float64)

    def _bounds(self) -> tuple[int, int]:
        """Return bounds on all X_i, and on all -X_i plus the noise of N, that fail with half of the chance each."""
        keys, half = self.universe or self.counters * self.sources, _MISSED / 2
        below = least_threshold(lambda t: keys * self._tail(t), half) - 1
        return below, least_threshold(lambda t: any_above(t, {0: keys}, self.scale), half) - 1

    def _delta(self, least: int) -> float:
        k = self.counters
        shown = max(self._tail(least - 2 * k - 1), self._tail(least - k - 2) + (k - 1) * self._tail(least - 1))
        silent = all(self._tail(least - b) <= -math.expm1(-b / self.scale) for b in (1, 2 * k + 1))
        whole = group_delta(shown, self.guarantee.epsilon, self.items_per_unit)
        return min(1.0, whole * (1 + 1e-9)) if silent and least > 2 * k + 1 else 1.0

    def _tail(self, x: int) -> float:
        return float(tail(np.array([x]), self.scale)[0])


def summed_sketch(
    epsilon: float,
    delta: float,
    counters: int,
    sources: int = 1,
    universe: int | None = None,
    false_keys: float = 1.0,
    items_per_unit: int = 1,
    *,
    items: int | None = None,
    unit: str | None = None,
) -> SummedSketch:
    """Return the noise and the threshold for a sum of sketches, from public numbers alone; see `noisy_sketch`.

    >>> round(summed_sketch(1.0, 1e-8, 1024).threshold, 1)
    49.3
    >>> round(summed_sketch(1.0, 0, 1024, universe=10**9).threshold, 1)
    40.1
    """
    if universe is None:
        epsilon, delta = unknown_domain(epsilon, delta)
    hint = "Pass a privacy budget such as epsilon=1.0."
    epsilon, many = validate.positive("epsilon", validate.epsilon(epsilon), hint=hint), checked_items(items_per_unit)
    guarantee = Guarantee(epsilon, delta, unit=protected(many, unit))
    size = validate.whole("counters", counters, low=1, high=MOST_COUNTERS, hint="Pass the size of the sketches.")
    streams = validate.whole("sources", sources, low=1, high=MOST_SOURCES, hint="Pass how many sketches are added up.")
    if universe is not None and guarantee.delta > 0:
        raise InvalidValue("delta and universe exclude each other. Pass a delta above zero, or a known universe.")
    if universe is not None:
        universe = validate.whole("universe", universe, low=1, high=MOST_KEYS, hint="Pass how many keys can occur.")
    false_keys = validate.positive("false_keys", false_keys, hint="Pass how many false keys to expect, such as 1.0.")
    if items is not None:
        items = validate.whole("items", items, low=-(2**62), high=2**62, hint="Pass the saved number.")
    return SummedSketch(guarantee, size, streams, universe, false_keys, many, items)


def from_json(data: Mapping[str, Any]) -> SummedSketch:
    """Make the mechanism again whose `to_json` is given."""
    return made_again(summed_sketch, data)


def _coin(least: int, scale: float, rate: float) -> ExactTable:
    """Return a table that gives 1 with probability P[X >= least] / rate, for least >= 1."""

    def tails() -> arb:
        return 1 - (-arb(least) / arb(scale)).exp() / (1 + (-1 / arb(scale)).exp()) / arb(rate)

    return ExactTable(lambda k: arb(0) if k < 0 else tails() if k == 0 else arb(1))
