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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels import gaussian
from dpsieve.channels.contributions import MOST_KEYS
from dpsieve.privacy import Certificate
from dpsieve.privacy.mechanism import Floats, Integers, Mechanism, Reading
from dpsieve.randomness.source import Source
from dpsieve.sketches.noisy import made_again

_SURE = 10**11  # added to the loss: a key of this frequency is always reported


class OneSidedSketch(Mechanism):
    """Gaussian noise with a threshold for the counters of a sketch, and noise for what they have lost.

    Attributes:
        counters: k, the size of the sketch.
        channel: what the counters go through; it keeps the promise for units of k + 1 keys.
        lost: with noise; None before it is drawn.
    """

    name = "one_sided_sketch"

    def __init__(self, epsilon: float, delta: float, counters: int, *, unit: str, lost: int | None = None) -> None:
        self.counters, self.lost = counters, lost
        self.channel = gaussian(epsilon, delta, counters + 1, unit=unit)
        self.guarantee = self.channel.guarantee
        found = self.channel.parameters["derived"]
        self.sigma, self.threshold = float(found["sigma"]), float(found["threshold"])
        self.parameters = {
            "mechanism": self.name, "epsilon": epsilon, "delta": delta, "unit": unit,
            "counters": counters, "lost": lost,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<Gaussian noise for a sketch of {self.counters:,} counters, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate of the channel."""
        return self.channel.certify()

    def draw(self, counters: Integers, lost: int, source: Source) -> tuple["OneSidedSketch", Floats]:
        """Return this mechanism with the noisy loss, and a token for each counter, 0 for 'nothing'.

        The loss goes through the channel as one more key, far above the threshold.
        """
        held = np.flatnonzero(counters)
        drawn = self.channel.draw(np.append(counters[held], lost + _SURE), source=source)
        tokens = np.zeros(len(counters))
        tokens[held] = drawn[:-1]
        return self.knowing(lost=int(self.channel.likeliest(drawn[-1:])[0]) - _SURE), tokens

    def read(self, tokens: ArrayLike) -> Reading:
        """Return what the channel tells of the counters; `high` goes up to the true frequency, by what may be lost.

        Half of the 5 % is for the interval of the counter, half for the noise of the loss.
        """
        seen = self.channel.read(tokens)
        low, high = self.channel.interval(tokens, 0.975)
        most = 0 if self.lost is None else max(0, self.lost + math.ceil(1.96 * self.sigma) + 1)
        return Reading(seen.count, low, high + most, seen.weight)

    def addends(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return what the channel's tokens add."""
        return self.channel.addends(tokens, g)


def one_sided_sketch(
    epsilon: float, delta: float, counters: int, *, unit: str = "one item", lost: int | None = None
) -> OneSidedSketch:
    """Return the noise and the threshold, from public numbers alone.

    >>> round(one_sided_sketch(1.0, 1e-8, 100).threshold)
    327
    """
    hint = f"Pass the size of the sketch, at most {MOST_KEYS - 1:,}: the noise grows with its square root."
    size = validate.whole("counters", counters, low=1, high=MOST_KEYS - 1, hint=hint)
    if lost is not None:
        lost = validate.whole("lost", lost, low=-(2**62), high=2**62, hint="Pass the saved number.")
    return OneSidedSketch(epsilon, delta, size, unit=unit, lost=lost)


def from_json(data: Mapping[str, Any]) -> OneSidedSketch:
    """Make the mechanism again whose `to_json` is given."""
    return made_again(one_sided_sketch, data)
