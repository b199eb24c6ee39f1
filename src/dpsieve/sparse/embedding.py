"""Embeddings: mechanisms that store the entries of a vector in a public number of cells; and error distributions."""

import os
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Guarantee, unit_words
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Words

Relation = Literal["l1", "one_entry"]
UNITS: dict[Relation, str] = {"l1": "one in total over any entries", "one_entry": "one in one entry"}
"""What is added or removed between neighbouring vectors."""


def check_relation(value: object, name: str = "neighbours") -> Relation:
    """Return a checked name of a neighbour relation between vectors."""
    if not isinstance(value, str) or value not in UNITS:
        hint = "Choose 'one_entry' (whole counts, one of which changes by 1) or 'l1' (real values, a total of 1)."
        raise InvalidValue(f"{name} is not a relation between vectors. {hint}", argument=name)
    return value


def check_flag(value: object, name: str) -> bool:
    """Return a checked boolean."""
    if not isinstance(value, bool):
        raise InvalidType(f"{name} must be True or False. Pass one of them.", argument=name)
    return value


VectorRelation = Annotated[Relation, check_relation]
Flag = Annotated[bool, check_flag]


class VectorMechanism(Mechanism):
    """A mechanism for vectors: what all of them promise.

    Neighbouring vectors x, x' are those of `neighbours`: 'l1', sum over i of |x_i - x'_i| <= 1, for real values; or
    'one_entry', whole values where one differs by 1. An absent entry is 0.

    Attributes:
        unit: what is added or removed; an empty one stands for that of the neighbours.
    """

    epsilon: float
    neighbours: Relation
    unit: str

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, unit=UNITS[self.neighbours] if self.unit == "" else unit_words(self.unit))

    @cached_property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, getattr(self, "delta", 0.0), unit=self.unit)


class Embedding(VectorMechanism):
    """A mechanism that turns the entries of a vector into cells, and cells and an index into an estimate."""

    @property
    @abstractmethod
    def words(self) -> int:
        """The number of stored words."""

    @abstractmethod
    def draw(self, digests: Words, values: Any, source: Source, key: Words | None = None) -> Words:
        """Return the words of the hash key, then the cells.

        Args:
            digests: two words per entry, distinct (see `digests`).
            values: of the entries, none of them 0: int64 where `neighbours` is 'one_entry', else float64.
            source: of randomness.
            key: the hash key of the digests; by default it is drawn first.
        """

    @abstractmethod
    def get(self, cells: Words, digests: Words) -> Floats:
        """Return an estimate for each entry, from what `draw` returned."""

    @abstractmethod
    def errors(self, value: float) -> "Errors":
        """Return the distribution of estimate - value for an entry of this value, 0 for an absent one."""


@dataclass(frozen=True, eq=False)
class Errors:
    """A distribution of errors: sorted, distinct values with probabilities that sum to 1.

    >>> noise = Errors.of(np.array([-1.0, 0.0, 1.0]), np.array([0.25, 0.5, 0.25]))
    >>> noise.mean, noise.bias, noise.bound(0.5), noise.bound(0.9)
    (0.5, 0.0, 0.0, 1.0)
    """

    values: Floats
    masses: Floats

    @classmethod
    def of(cls, values: Floats, masses: Floats) -> "Errors":
        """Return the distribution of values in any order, possibly repeated, with masses scaled to sum 1."""
        distinct, places = np.unique(values, return_inverse=True)
        summed = np.bincount(places, weights=masses, minlength=len(distinct))
        return cls(distinct, summed / summed.sum())

    @property
    def mean(self) -> float:
        """The mean of the absolute error."""
        return float(np.abs(self.values) @ self.masses)

    @property
    def bias(self) -> float:
        """The mean error."""
        return float(self.values @ self.masses)

    def bound(self, level: float) -> float:
        """Return the least b with P[|error| <= b] >= level."""
        level = validate.between("level", level, 0.0, 1.0, hint="Pass a probability such as level=0.95.")
        sizes = np.abs(self.values)
        order = np.argsort(sizes, kind="stable")
        reached = int(np.searchsorted(np.cumsum(self.masses[order]), level * (1 - 1e-12)))
        return float(sizes[order][min(reached, len(order) - 1)])

    def mix(self, other: "Errors", share: float) -> "Errors":
        """Return the mixture of this distribution, with probability `share`, and the other."""
        return Errors.of(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.masses * share, other.masses * (1 - share)]),
        )


def in_threads(work: Callable[[int, int], None], count: int, each: int) -> None:
    """Call work(start, stop) for parts of range(count), at least `each` long, in as many threads as there are cores."""
    threads = min(os.cpu_count() or 1, -(-count // each))
    if threads < 2:
        work(0, count)
        return
    cuts = [count * part // (4 * threads) for part in range(4 * threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, cuts[:-1], cuts[1:]))
