"""True counts of keys, and the one way out of them: through a mechanism."""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from dpsieve.discovery.incidence import Incidence
from dpsieve.logs import timed
from dpsieve.noise.keys_per_unit import units_by_size
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

    All of them come from one read of the data, so that what was read first and what is counted later cannot differ. Use
    it in a `with` block: what does not fit into memory is on disk until `close`.

    Attributes:
        units: how many units hold 0, 1, ..., 1,000 keys, the last with those that hold more.
    """

    units: Ints

    def close(self) -> None:  # noqa: B027
        """Remove what is kept outside of memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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


class FromPlaces(CountedByBound):
    """Counts from how many units have each key as their first, second, ... choice.

    Args:
        units: see `CountedByBound`.
        add_up: returns the sums over the first places.
        kept: what is closed at the end: by `close`, or when this is no longer used.
    """

    def __init__(self, units: Ints, add_up: Callable[[int], Counted], kept: ExitStack | None = None) -> None:
        self.units, self._add_up = units, add_up
        self._closing = None if kept is None else weakref.finalize(self, kept.close)

    def under(self, keys: int) -> Counted:
        """Return the counts where each unit keeps at most this number of its keys."""
        return self._add_up(keys)

    def close(self) -> None:
        """Remove what is kept outside of memory."""
        if self._closing is not None:
            self._closing()
