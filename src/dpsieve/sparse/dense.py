"""Noise on every entry of a vector of small dimension: what all other mechanisms are compared with."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.accounting.spends import Spend
from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.registry import register
from dpsieve.randomness.source import Source
from dpsieve.sparse.digests import KEY_WORDS
from dpsieve.sparse.embedding import Embedding, Errors, Relation
from dpsieve.sparse.grid_noise import MOST_VALUE, GridNoise, checked_noise, clamped, yes_or_no
from dpsieve.types import Floats, Words

MOST_ENTRIES = 2**24


@register("dense_laplace")
@dataclass(frozen=True)
class DenseLaplace(Embedding):
    """The Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006) with the discrete noise of `grid_noise`.

    Every one of `dimension` entries gets noise, zeros too, and takes a word. Epsilon-private for both relations, as
    nothing but noisy entries is stored. Values are clamped to 2^40, and where `signed` is False, values and answers
    are clamped to 0 from below.
    """

    epsilon: float
    neighbours: Relation
    dimension: int
    signed: bool = False
    unit: str = ""

    def __post_init__(self) -> None:
        epsilon, near, unit = checked_noise(self.epsilon, self.neighbours, self.unit)
        hint = "Pass at most 2^24; for more indices or for keys, choose another variant."
        dimension = validate.whole("dimension", self.dimension, low=1, high=MOST_ENTRIES, hint=hint)
        signed = yes_or_no("signed", self.signed)
        validate.store(self, epsilon=epsilon, neighbours=near, unit=unit, dimension=dimension, signed=signed)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised for neighbouring vectors."""
        return Guarantee(self.epsilon, unit=self.unit)

    @cached_property
    def noise(self) -> GridNoise:
        """The noise of each entry."""
        return GridNoise(self.epsilon, self.neighbours)

    @property
    def words(self) -> int:
        """How many words it stores."""
        return KEY_WORDS + self.dimension

    def certify(self) -> Certificate:
        """Return the certificate, by proven bounds on the noise."""
        return self.noise.certificate(self.guarantee, "noise on every entry")

    def spends(self) -> tuple[Spend, ...]:
        """Return the curve of the noise."""
        return self.noise.spends()

    def draw(self, digests: Words, values: Any, source: Source, key: Words | None = None) -> Words:
        """Return a hash key, which nothing reads here, and the noisy entries, in steps."""
        key = source.words(KEY_WORDS) if key is None else key
        real = clamped(values, self._low)
        dense = np.zeros(self.dimension, real.dtype)
        dense[digests[:, 0].astype(np.int64)] = real
        return np.concatenate([key, self.noise.noisy(self.noise.steps(dense, source), source).view(np.uint64)])

    def get(self, cells: Words, digests: Words) -> Floats:
        """Return the noisy entries of these indices."""
        steps = cells[KEY_WORDS:].view(np.int64)[digests[:, 0].astype(np.int64)]
        return np.maximum(self.noise.values(steps), -np.inf if self.signed else 0.0)

    def errors(self, value: float) -> Errors:
        """Return how answer - value is distributed."""
        stored = float(np.clip(value, self._low, MOST_VALUE))
        noisy = self.noise.errors(stored)
        answers = np.maximum(noisy.values + stored, -np.inf if self.signed else 0.0)
        return Errors.of(answers - float(value), noisy.masses)

    @property
    def _low(self) -> float:
        return -MOST_VALUE if self.signed else 0.0
