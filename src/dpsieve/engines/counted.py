"""True counts of keys, and the one way out of them: through a mechanism."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpsieve.channels.keys_per_unit import units_by_size
from dpsieve.discovery.incidence import Incidence
from dpsieve.logs import timed
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.publication.release import drawn
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Counted:
    """True aggregates. They are secret: they go through a mechanism and nowhere else.

    Attributes:
        keys: one row for each key that occurs (or, with a public list of keys, for each of the list), in no particular
            order, with the key columns under their own names; no row is null in any column and no two rows are equal.
        frequencies: the count or the sum of weights of each of them; 0 only for keys of a public list.
    """

    keys: pa.Table
    frequencies: Ints

    def __repr__(self) -> str:
        return "<Counted: true frequencies, not to be published>"

    @property
    def summands(self) -> Ints:
        """Whole numbers with the sum of the frequencies: these themselves, or few where these are elsewhere."""
        return self.frequencies

    def drawn(self, mechanism: Mechanism, source: Source) -> tuple[pa.Table, Floats]:
        """Certify a mechanism, and return the keys that it reports, in no particular order, with their tokens.

        It is a channel, noise for known keys, a composition that ends with one of these, or a selector by weights.
        """
        with timed("certify"):
            mechanism.certify()
        return drawn(mechanism, self.keys, self.frequencies, source)


class CountedByBound(ABC):
    """The true counts under every bound on the keys of a unit up to 1,000, each key once. They are secret.

    Attributes:
        units: how many units hold 0, 1, ..., 1,000 keys, the last with those that hold more.
    """

    units: Ints

    @abstractmethod
    def under(self, keys: int) -> Counted:
        """Return the counts where each unit keeps at most this number of its keys."""


def units_by_place(holding: Ints) -> Ints:
    """Return how many units hold 0, 1, ... keys, given how many have a key at places 0, 1, ... among theirs.

    A unit with d keys has one at each of the places 1 to d.

    >>> units_by_place(np.array([0, 5, 3, 3]))
    array([0, 2, 0, 3])
    """
    units = -np.diff(holding, append=0)
    units[0] = 0
    return units


class FromIncidence(CountedByBound):
    """Counts from which units hold which keys."""

    def __init__(self, held: Incidence) -> None:
        self.held, self.units = held, units_by_size(held.sizes)

    def under(self, keys: int) -> Counted:
        """Return the counts where each unit keeps at most this number of its keys."""
        return Counted(*self.held.bounded(keys).counted())


@dataclass(frozen=True, eq=False, repr=False)
class ReadAgain(CountedByBound):
    """Counts from data that is read, or asked for, once its bound is known."""

    units: Ints
    read: Callable[[int], Counted]

    def under(self, keys: int) -> Counted:
        """Return the counts where each unit keeps at most this number of its keys."""
        return self.read(keys)
