"""Gaussian noise for counters that neighbours change by at most one, all in the same direction.

Two kinds of sketches are like that: bounded merges of Misra-Gries sketches, and sketches of users who hold sets. With
c the k counters and `lost` how much has been taken away from all of them together, neighbours are in one of two states:

    c - c' in {0, 1} for every key, lost = lost'          or          c' - c in {0, 1} for every key, lost = lost' + 1.

(Lemma 3.6 of the thesis for merges; `sketches.users` has the argument for sets.) So at most k + 1 of the numbers c +
lost and lost differ, by 1 each, and Gaussian noise with a threshold on units of k + 1 keys has the exact guarantee of
`channels.lag.gaussian`: its distance is sqrt(k + 1), however many items one unit has. A true frequency is at
least c and at most c + lost, so the noisy `lost` makes honest intervals.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.makers import Gaussian, gaussian, unknown_domain
from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.curves.spends import Spend
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Counting, Reading
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.sketches.noisy import drawn_number
from dpsieve.types import Floats, Ints

MOST_COUNTERS = 9_999
"""Of sketches with Gaussian noise: the channel takes units of up to 10,000 keys."""

_SURE = 10**11  # added to the loss: a key of this frequency is always reported


@register("one_sided_sketch")
@dataclass(frozen=True, repr=False)
class OneSidedSketch(Counting):
    """Gaussian noise with a threshold for the counters of a sketch, and noise for what they have lost.

    Attributes:
        epsilon, delta: the promise.
        counters: k, the size of the sketch.
        unit: what is protected, in words.
        lost: with noise; None before it is drawn.

    >>> round(OneSidedSketch(1.0, 1e-8, 100).threshold)
    327
    """

    epsilon: float
    delta: float
    counters: int
    unit: str = "one item"
    lost: int | None = None

    def __post_init__(self) -> None:
        hint = f"Pass the size of the sketch, at most {MOST_COUNTERS:,}: the noise grows with its square root."
        counters = validate.whole("counters", self.counters, low=1, high=MOST_COUNTERS, hint=hint)
        promise = Guarantee(*unknown_domain(self.epsilon, self.delta), unit=self.unit)
        checked = {"epsilon": promise.epsilon, "delta": promise.delta, "counters": counters, "unit": promise.unit}
        validate.store(self, **checked, lost=drawn_number("lost", self.lost))
        self.channel  # noqa: B018 (raises where no such noise keeps the promise)

    def __repr__(self) -> str:
        return f"<Gaussian noise for a sketch of {self.counters:,} counters, {self.guarantee}>"

    @property
    def channel(self) -> Gaussian:
        """What the counters go through; it keeps the promise for units of k + 1 keys."""
        return _channel(self.epsilon, self.delta, self.counters, self.unit)

    @property
    def guarantee(self) -> Guarantee:
        """What is promised to one unit."""
        return self.channel.guarantee

    @property
    def most_keys(self) -> int:
        """The most keys that a release may have."""
        return self.counters

    @property
    def threshold(self) -> float:
        """What a noisy counter must reach."""
        return self.channel.threshold

    def certify(self) -> Certificate:
        """Return the certificate of the channel."""
        return self.channel.certify()

    def spends(self) -> tuple[Spend, ...]:
        """Return what the channel spends."""
        return self.channel.spends()

    def draw(self, counters: Ints, lost: int, source: Source) -> tuple["OneSidedSketch", Floats]:
        """Return this mechanism with the noisy loss, and a token for each counter, 0 for 'nothing'.

        The loss goes through the channel as one more key, far above the threshold.
        """
        held = np.flatnonzero(counters)
        drawn = self.channel.draw(np.append(counters[held], lost + _SURE), source=source)
        tokens = np.zeros(len(counters))
        tokens[held] = drawn[:-1]
        return replace(self, lost=int(self.channel.read(drawn[-1:]).count[0]) - _SURE), tokens

    def read(self, tokens: ArrayLike) -> Reading:
        """Return what the channel tells of the counters; `high` goes up to the true frequency, by what may be lost.

        Half of the 5 % is for the interval of the counter, half for the noise of the loss.
        """
        seen = self.channel.read(tokens)
        low, high = self.channel.interval(tokens, 0.975)
        most = 0 if self.lost is None else max(0, self.lost + math.ceil(1.96 * self.channel.sigma) + 1)
        return Reading(seen.count, low, high + most, seen.weight)

    def terms(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return what the channel's tokens add."""
        return self.channel.terms(tokens, g)

    def errors(self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None) -> tuple[float, float]:
        """Return the errors of a sum of counters that the channel tells; what the sketch lost is not in them."""
        return self.channel.errors(tokens, weights, g)

    def possible(self, tokens: Floats) -> bool:
        """Return whether the channel can give out these tokens."""
        return self.channel.possible(tokens)


@lru_cache(maxsize=8)
def _channel(epsilon: float, delta: float, counters: int, unit: str) -> Gaussian:
    return gaussian(epsilon, delta, counters + 1, unit=unit)
