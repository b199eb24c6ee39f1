"""Which keys each privacy unit holds: what selectors that look at whole units work on."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.privacy.contribution import Weight
from dpsieve.types import Bools, Ints

_FEW = 1 << 20  # pairs: to load compiled code takes longer than these do without it


@dataclass(frozen=True, eq=False, repr=False)
class Incidence:
    """The distinct keys of each unit, after each unit was bounded. It is secret: it goes through a mechanism only.

    Units stand in the order of a salted hash of the unit, and the keys of a unit in the order of a salted hash of unit
    and key; ties are broken by the values themselves. So the place of two units, and of two keys of a unit, relative to
    each other depends on no other unit.

    Attributes:
        keys: one row for each key that occurs (or for each of a public list), with the key columns.
        starts: unit u holds held[starts[u]] to held[starts[u + 1] - 1]; one entry more than there are units.
        held: numbers of keys, as rows of `keys`; no unit holds a key twice.
    """

    keys: pa.Table
    starts: Ints
    held: NDArray[np.int32]

    @classmethod
    def of(cls, units: Iterable[Iterable[Hashable]]) -> "Incidence":
        """Return the incidence of units that are given as collections of keys, in this order; for tests and figures."""
        numbers: dict[Hashable, int] = {}
        lists = [[numbers.setdefault(key, len(numbers)) for key in dict.fromkeys(unit)] for unit in units]
        starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        held = np.array([number for each in lists for number in each], np.int32)
        return cls(pa.table({"key": pa.array(list(numbers))}), starts, held)

    def invented(self) -> "Incidence":
        """Return one unit with one key, to rehearse with; compiled code that a table of this size uses is loaded."""
        made = Incidence.of([["a key"]])
        if len(self.held) >= _FEW:
            from dpsieve.discovery.loops import count_keys, first_keys

            first_keys(made.starts, made.held, 1)
            count_keys(made.held, np.zeros(1, np.int64))
        return made

    def __repr__(self) -> str:
        return "<Incidence: true keys of units, not to be published>"

    @property
    def sizes(self) -> Ints:
        """How many keys each unit holds."""
        return np.diff(self.starts)

    def bounded(self, most: int) -> "Incidence":
        """Return the first `most` keys of each unit: those that an engine keeps under this bound and the same salt."""
        sizes = self.sizes
        if int(sizes.max(initial=0)) <= most:
            return self
        if len(self.held) < _FEW:
            return self.keeping(np.arange(len(self.held)) - np.repeat(self.starts[:-1], sizes) < most)
        from dpsieve.discovery.loops import first_keys

        return Incidence(self.keys, *first_keys(self.starts, self.held, most))

    def restricted(self, found: Bools) -> "Incidence":
        """Return what units hold of the keys that were found; units stay, also those left with nothing."""
        number = np.cumsum(found, dtype=np.int32) - np.int32(1)
        kept = self.keeping(found[self.held])
        return Incidence(self.keys.filter(found), kept.starts, number[kept.held])

    def ranked(self, order: Ints) -> "Incidence":
        """Return what units hold of the keys in `order`, numbered anew in this order, and the first of them first."""
        from dpsieve.discovery.loops import sort_keys

        rank = np.full(self.keys.num_rows, -1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        ranks = rank[self.held]
        kept = self.keeping(ranks >= 0)
        held = ranks[ranks >= 0]
        sort_keys(kept.starts, held)
        return Incidence(self.keys.take(pa.array(order)), kept.starts, held)

    def keeping(self, kept: Bools) -> "Incidence":
        """Return the pairs of a unit and a key that are kept, with all units and all keys."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
        return Incidence(self.keys, before[self.starts], self.held[kept])

    def counts(self) -> Ints:
        """Return how many units hold each key."""
        if len(self.held) < _FEW:
            return np.bincount(self.held, minlength=self.keys.num_rows).astype(np.int64, copy=False)
        from dpsieve.discovery.loops import count_keys

        counts = np.zeros(self.keys.num_rows, np.int64)
        count_keys(self.held, counts)
        return counts

    def counted(self) -> tuple[pa.Table, Ints]:
        """Return the keys that some unit holds, and how many do."""
        counts = self.counts()
        some = np.flatnonzero(counts)
        return self.keys.take(pa.array(some)), counts[some]

    def weights(self, weight: Weight) -> Ints:
        """Return the sum of the weights of each key, as an engine computes it."""
        sizes = self.sizes
        table = np.array([0, *weight.of_keys(int(sizes.max(initial=1)))], np.int64)
        sums = np.zeros(self.keys.num_rows, np.int64)
        np.add.at(sums, self.held, np.repeat(table[sizes], sizes))
        return sums
