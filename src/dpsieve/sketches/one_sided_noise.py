"""Gaussian noise for counters that neighbours change by at most one, all in the same direction.

Two kinds of sketches are like that: bounded merges of Misra-Gries sketches, and sketches of users who hold sets. With
c the k counters and `lost` how much has been taken away from all of them together, neighbours are in one of two states:

    c - c' in {0, 1} for every key, lost = lost'          or          c' - c in {0, 1} for every key, lost = lost' + 1.

(Lemma 3.6 of the thesis for merges; `sketches.users` has the argument for sets.) One of the two holds all keys of the
other, k at most. So their counters and -lost are k + 1 numbers of which one unit moves some by 1, all up or all down.
`sketches.shared_noise` has the noise for them, the threshold and the proof, however many items one unit has.

A true frequency is at least c and at most c + lost, so the noisy `lost` makes honest intervals; in the sum of a noisy
counter and the noisy loss, the noise that all share is gone. That sum, with a loss below zero taken for zero, is the
count, cut to its interval. It is right for keys that were held from their first item on, and too high, by up to `lost`,
for those whose items come late or in bursts; see `sketches.laplace_noise`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri

from dpsieve import validate
from dpsieve.accounting.spends import Approximate, Gaussian, Spend
from dpsieve.channels.budget import check_budget
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Counting
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import discrete_gaussian, rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import MISSED, SketchReading, are_parts, drawn_number, read_estimates
from dpsieve.sketches.shared_noise import SharedNoise, shared_noise
from dpsieve.sketches.sketch import MOST_COUNTERS
from dpsieve.types import Floats, Ints

_MOST = 2**50  # larger counters count as this one, which brings no two sketches further apart
_FAR, _NODES = 8, 256  # deviations above the threshold where being reported tells nothing, and nodes for each


@register("one_sided_noise")
@dataclass(frozen=True, repr=False)
class OneSidedSketch(Counting):
    """Gaussian noise with a threshold for the counters of a sketch, and noise for what they have lost.

    Attributes:
        epsilon, delta: the promise.
        counters: k, the size of the sketch.
        unit: what is protected, in words.
        lost: with noise; None before it is drawn.

    >>> OneSidedSketch(1.0, 1e-8, 100).threshold
    181.0
    """

    epsilon: float
    delta: float
    counters: int
    unit: str = "one item"
    lost: int | None = None

    def __post_init__(self) -> None:
        hint = f"Pass the size of the sketch, at most {MOST_COUNTERS:,}: the noise grows with its square root."
        counters = validate.whole("counters", self.counters, low=1, high=MOST_COUNTERS, hint=hint)
        promise = Guarantee(*check_budget(self.epsilon, self.delta), unit=self.unit)
        checked = {"epsilon": promise.epsilon, "delta": promise.delta, "counters": counters, "unit": promise.unit}
        validate.store(self, **checked, lost=drawn_number("lost", self.lost))
        self.noise  # noqa: B018 (raises where no such noise keeps the promise)

    def __repr__(self) -> str:
        return f"<Gaussian noise for a sketch of {self.counters:,} counters, {self.guarantee}>"

    @property
    def noise(self) -> SharedNoise:
        """The noise and the threshold."""
        return shared_noise(self.epsilon, self.delta, self.counters)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one unit."""
        return Guarantee(self.epsilon, self.delta, unit=self.unit)

    @property
    def most_keys(self) -> int:
        """The most keys that a release may have."""
        return self.counters

    @property
    def threshold(self) -> float:
        """What a noisy counter must reach."""
        return self.noise.threshold

    def certify(self) -> Certificate:
        """Return the certificate: the bounds of `sketches.shared_noise`, in ball arithmetic, for the noise drawn."""
        noise = self.noise
        kind = f"Gaussian noise of deviation {noise.deviation:.4g} and a threshold of {noise.threshold:,.6g}"
        covers = f"{kind}, for {self.counters:,} counters and their loss, moved in one direction"
        return formula(self.guarantee, noise.delta(self.epsilon, self.delta), "balls", covers)

    def spends(self) -> tuple[Spend, ...]:
        """Return the Gaussian curve of the noise and the leak of the threshold, or the promise if that leak is 1."""
        if self.noise.leak == 1:
            return super().spends()
        return Gaussian(1.0, self.noise.mu), Approximate(0.0, self.noise.leak)

    def draw(self, counters: Ints, lost: int, source: Source) -> tuple["OneSidedSketch", Floats]:
        """Return this mechanism with the noisy loss, and a token for each counter, 0 for 'nothing'."""
        noise, held = self.noise, np.flatnonzero(counters)
        unit = 1 << noise.digits
        own = rounded_gaussian(noise.own * unit, len(held) + 1, source=source)
        shared = int(discrete_gaussian(noise.shared * unit, 1, source=source)[0]) if noise.shared else 0
        noisy = np.minimum(counters[held], _MOST) * unit + shared + own[:-1]
        less = -min(lost, _MOST) * unit + shared + int(own[-1])
        tokens = np.zeros(len(counters))
        tokens[held] = np.where(noisy >= noise.least, noisy, 0) / unit
        return replace(self, lost=-(less // unit)), tokens

    def read(self, tokens: ArrayLike) -> SketchReading:
        """Return counts, and for each an interval that holds the true frequency with probability 0.95.

        It does so also given that the key was reported. That counters were reported makes noise from below likelier,
        so `low` comes from a Gaussian that is cut off at the threshold; of the noise from above it tells nothing bad.
        `high` goes up by what may be lost; without a noisy loss it bounds the counter instead.
        """
        noise, noisy = self.noise, np.asarray(tokens, dtype=np.float64)
        above = (noisy - noise.threshold) / noise.deviation
        low = np.ceil(noise.threshold - noise.step / 2 + noise.deviation * _lowest(above))
        spread = noise.deviation if self.lost is None else math.sqrt(2) * noise.own
        high = np.floor(noisy + (self.lost or 0) - float(ndtri(MISSED / 2)) * spread + noise.step)
        low = np.maximum(low, 1).astype(np.int64)
        high = np.maximum(high.astype(np.int64), low)
        return read_estimates(self.terms(noisy, None), low, high, noisy)

    def terms(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return the noisy counters plus what they may have lost, not below zero, or g of that."""
        noisy = np.asarray(tokens, dtype=np.float64) + max(self.lost or 0, 0)
        return noisy if g is None else np.asarray(g(np.maximum(noisy, 0)), dtype=np.float64)

    def errors(self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None) -> tuple[float, float]:
        """Return no bias and the variance of the noise; with a g, about what it makes of one deviation.

        The error is about the counter plus what was lost: the noise of the loss is in all estimates then, in place of
        the one that counters share. That a key was not held all the time, and counters below the threshold, are not in
        it.
        """
        noise, noisy = self.noise, np.asarray(tokens, dtype=np.float64)
        up, down = (self.terms(noisy + sign * noise.deviation, g) for sign in (1, -1))
        slopes = weights * (up - down) / (2 * noise.deviation)
        common = noise.own if (self.lost or 0) > 0 else noise.shared
        return 0.0, float(noise.own**2 * (slopes @ slopes) + (common * slopes.sum()) ** 2)

    def possible(self, tokens: Floats) -> bool:
        """Return whether all tokens are whole steps, from the threshold on."""
        return are_parts(tokens, 1 << self.noise.digits, self.noise.least)


def _lowest(above: Floats) -> Floats:
    """Return how far a counter is from the threshold at least, in deviations, for a noisy one that is this far above.

    With N standard Gaussian it is the least x with P[x + N >= above | x + N >= 0] >= 2.5 %, at a node below `above`.
    """
    nodes = _lowest_at_nodes()
    near = nodes[np.clip(above * _NODES, 0, len(nodes) - 1).astype(np.int64)]
    return np.where(above < _FAR, near, above + float(ndtri(MISSED / 2)))


@lru_cache(maxsize=1)
def _lowest_at_nodes() -> Floats:
    above = np.arange(_FAR * _NODES + 1) / _NODES
    low, high = np.full(len(above), -100.0), above.copy()
    for _ in range(60):
        middle = (low + high) / 2
        rare = log_ndtr(middle - above) - log_ndtr(middle) < math.log(MISSED / 2)
        low, high = np.where(rare, middle, low), np.where(rare, high, middle)
    return low
