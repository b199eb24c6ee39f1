"""Channels to estimate from: with and without sampling, and one of another shape."""

import functools
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from dpsieve.channels import Channel, optimal, simple, stability
from dpsieve.channels.rows import Rows
from dpsieve.codec import register
from dpsieve.exact import floor_words
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.privacy import Block
from dpsieve.sampling import custom, ppswor, priority


class WobblyRows(Rows):
    resolution, last, spread = 1, None, 4

    def block(self, first, count):
        i, tokens = np.arange(first, first + count)[:, None], np.arange(max(first - 3, 1), first + count + 3)
        masses = np.where(np.abs(tokens - i) <= 3, -np.expm1(-i / 10) / 7, 0.0)
        return Block(np.append(tokens, tokens[-1] + 1), *floor_words(masses))

    def withheld(self, frequencies):
        often = np.exp(-frequencies / 10)
        return np.where(frequencies > 3, often, 1 - self.reported(frequencies))


@register("wobbly")
@dataclass(frozen=True, repr=False)
class Wobbly(Channel):
    """A key of frequency i is kept with probability 1 - e^(-i/10) and comes out at i - 3, ..., i + 3, if above zero.

    It is not private. Its rows change with i, and its tokens may exceed i: what holds for it was not due to luck.
    """

    @cached_property
    def rows(self):
        return WobblyRows()


MAKE = {
    "simple": lambda: simple(1.0, 1e-3),
    "simple, tiny delta": lambda: simple(2.0, 1e-20),
    "optimal": lambda: optimal(1.0, 1e-3),
    "optimal, small": lambda: optimal(0.5, 1e-6),
    "optimal, sampled": lambda: optimal(1.0, 1e-3, ppswor(0.05)),
    "simple, sampled": lambda: simple(1.0, 1e-3, ppswor(0.01)),
    "simple, priority": lambda: simple(0.5, 1e-4, priority(0.03)),
    "simple, jump": lambda: simple(0.5, 1e-4, custom([0.5] * 60 + [1.0])),
    "stability": lambda: stability(1.0, 1e-3),
    "stability, sampled": lambda: sampled_stability(1.0, 1e-3, ppswor(0.05)),
    "wobbly": lambda: Wobbly(1.0, 0.5),
}


@functools.cache
def made(name):
    return MAKE[name]()


@pytest.fixture(params=MAKE)
def channel(request):
    return made(request.param)


@pytest.fixture(params=[name for name in MAKE if name not in ("wobbly", "stability", "stability, sampled")])
def private(request):
    """Channels whose tokens never exceed the frequency."""
    return made(request.param)


@pytest.fixture
def wobbly():
    return Wobbly(1.0, 0.5)
