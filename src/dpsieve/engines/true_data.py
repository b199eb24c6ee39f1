"""The types of true data: counts of keys, (unit, key) pairs and rows of numbers. All of it is secret.

True data leaves an engine through a mechanism only.
"""

import math
import weakref
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.display import log, timed
from dpsieve.noise.keys_per_unit import units_by_size
from dpsieve.privacy.guarantee import Weight
from dpsieve.privacy.mechanism import Mechanism, Outcome
from dpsieve.publication.release import draw_keys
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.values.columns import as_arrow

T = TypeVar("T")
_COMPILED_FROM = 1 << 20  # pairs: below, numpy takes less time than loading compiled code


@dataclass(frozen=True, eq=False, repr=False)
class Counted:
    """True counts or sums of weights.

    Attributes:
        keys: one row per key that occurs (or per key of a public list), in no particular order, with the key columns
            under their own names; no row is null in any column and no two rows are equal.
        frequencies: the count or the sum of weights of each key; 0 only for keys of a public list.
        sums: for each total that was asked for, the sum per key of what units add on the grid (`noise.totals`).
    """

    keys: pa.Table
    frequencies: Ints
    sums: Ints | None = None

    def __repr__(self) -> str:
        return "<Counted: true frequencies, not to be published>"

    @property
    def summands(self) -> Ints:
        """Integers with the sum of the frequencies: the frequencies, or fewer numbers where these are remote."""
        return self.frequencies

    def draw(self, mechanism: Mechanism, source: Source) -> tuple[pa.Table, Outcome]:
        """Certify a mechanism, and return the keys that it reports, in no particular order, with their outcome.

        The mechanism is a channel, noise for known keys, a composition that ends with one of these, or a selector by
        weights.
        """
        with timed("certify"):
            mechanism.certify()
        return draw_keys(mechanism, self.keys, self.frequencies, source, **self._options)

    def draw_with_rest(self, mechanism: Mechanism, source: Source) -> tuple[pa.Table, Outcome, "Counted"]:
        """Return the same, and the true numbers of the keys that are not reported."""
        mechanism.certify()
        last: Any = mechanism.last
        outcome: Outcome = last.draw(self.frequencies, source=source, **self._options)
        shown, others = np.flatnonzero(outcome.tokens), np.flatnonzero(outcome.tokens == 0)
        sums = None if outcome.sums is None else outcome.sums[:, shown]
        reported = replace(outcome, tokens=outcome.tokens[shown], sums=sums)
        rest = None if self.sums is None else self.sums[:, others]
        unreported = Counted(self.keys.take(as_arrow(others)), self.frequencies[others], sums=rest)
        return self.keys.take(as_arrow(shown)), reported, unreported

    @property
    def _options(self) -> dict[str, Ints]:
        return {} if self.sums is None else {"sums": self.sums}


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """The distinct keys of each unit, after each unit was bounded.

    Units are sorted by a salted hash of the unit, and the keys of a unit by a salted hash of unit and key; ties are
    broken by the values themselves. So the relative order of two units, and of two keys of a unit, depends on no other
    unit.

    Attributes:
        keys: one row per key that occurs (or per key of a public list), with the key columns.
        starts: unit u has key_numbers[starts[u]] to key_numbers[starts[u + 1] - 1]; one entry more than there are
            units.
        key_numbers: row numbers in `keys`; no unit has a key twice.
        amounts: for each total that was asked for, what each pair adds: on the grid, or in steps, NaN without a number,
            where bounds are still to be chosen (`noise.totals`).
        threads: how many may work on them.
    """

    keys: pa.Table
    starts: Ints
    key_numbers: NDArray[np.int32]
    amounts: Floats | None = None
    threads: int = 1

    @classmethod
    def of(cls, units: Iterable[Iterable[Hashable]]) -> "Pairs":
        """Return the pairs of units that are given as collections of keys, in this order; for tests and figures."""
        numbers: dict[Hashable, int] = {}
        lists = [[numbers.setdefault(key, len(numbers)) for key in dict.fromkeys(unit)] for unit in units]
        starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        key_numbers = np.array([number for each in lists for number in each], np.int32)
        return cls(pa.table({"key": pa.array(list(numbers))}), starts, key_numbers)

    def make_dummy(self) -> "Pairs":
        """Return one unit with one key, for a rehearsal; load the compiled code that pairs of this size use."""
        dummy = Pairs.of([["a key"]])
        if self._loops() is not None:
            dummy._count(self._loops(), 1)
        return dummy

    def __repr__(self) -> str:
        return "<Pairs: true keys of units, not to be published>"

    @property
    def sizes(self) -> Ints:
        """The number of keys of each unit."""
        return np.diff(self.starts)

    def bound(self, most: int) -> "Pairs":
        """Return the first `most` keys of each unit: those that an engine keeps under this bound and the same salt."""
        sizes = self.sizes
        if int(sizes.max(initial=0)) <= most:
            return self
        loops = self._loops()
        if loops is None:
            return self._bound_by_numpy(most)
        starts = np.zeros(len(self.starts), np.int64)
        np.cumsum(np.minimum(sizes, most), out=starts[1:])
        key_numbers, added = np.empty(int(starts[-1]), np.int32), np.empty((len(self.added), int(starts[-1])))
        pairs, bounded = (self.starts, self.key_numbers, self.added), (starts, key_numbers, added)
        self._in_ranges(lambda begin, stop: loops.first_keys(*pairs, most, begin, stop, *bounded), len(sizes))
        return Pairs(self.keys, starts, key_numbers, None if self.amounts is None else added, self.threads)

    def _bound_by_numpy(self, most: int) -> "Pairs":
        return self.filter(np.arange(len(self.key_numbers)) - np.repeat(self.starts[:-1], self.sizes) < most)

    def restrict(self, selected: Bools) -> "Pairs":
        """Return the pairs of the selected keys; all units stay, also those without a key."""
        number = np.cumsum(selected, dtype=np.int32) - np.int32(1)
        pairs = self.filter(selected[self.key_numbers])
        return replace(pairs, keys=self.keys.filter(selected), key_numbers=number[pairs.key_numbers])

    def rank(self, order: Ints) -> "Pairs":
        """Return the pairs of the keys in `order`, renumbered in this order; the keys of each unit are sorted by it."""
        rank = np.full(self.keys.num_rows, -1, np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        keys, loops = self.keys.take(as_arrow(order)), self._loops()
        if loops is None:
            ranks = rank[self.key_numbers]
            some = self.filter(ranks >= 0)
            key_numbers, units = ranks[ranks >= 0], np.repeat(np.arange(len(some.sizes)), some.sizes)
            by_unit = np.lexsort((key_numbers, units))
            amounts = None if some.amounts is None else some.amounts[:, by_unit]
            return replace(some, keys=keys, key_numbers=key_numbers[by_unit], amounts=amounts)
        pairs, sizes = (self.starts, self.key_numbers, self.added, rank), np.empty(len(self.sizes), np.int64)
        ranked, added = np.empty_like(self.key_numbers), np.empty_like(pairs[2])

        def rank_units(begin: int, stop: int) -> slice:
            first = int(self.starts[begin])
            return slice(first, loops.rank_keys(*pairs, begin, stop, sizes, ranked, added))

        parts = self._in_ranges(rank_units, len(sizes))
        amounts = None if self.amounts is None else np.concatenate([added[:, part] for part in parts], axis=1)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        return Pairs(keys, starts, np.concatenate([ranked[part] for part in parts]), amounts, self.threads)

    def filter(self, selected: Bools) -> "Pairs":
        """Return the selected pairs, with all units and all keys."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(selected, dtype=np.int64)])
        amounts = None if self.amounts is None else self.amounts.compress(selected, axis=1)
        return Pairs(self.keys, before[self.starts], self.key_numbers[selected], amounts, self.threads)

    def counts(self, most: int | None = None) -> Ints:
        """Return the number of units of each key, or of those that have it among their first `most` keys."""
        counts: Ints = replace(self, amounts=None)._numbers(most)[0]
        return counts

    def _numbers(self, most: int | None) -> Ints:
        """Return the counts of keys, and for each total the sums of what units add on the grid."""
        pairs = self if most is None or self.amounts is None else self.bound(most)
        most = int(pairs.starts[-1]) if most is None else most
        loops, added = pairs._loops(), pairs.added
        if loops is not None:
            numbers, expected = pairs._count(loops, most), int(np.minimum(pairs.sizes, most).sum())
            if numbers.sum(axis=1).tolist() == [expected, *added.sum(axis=1)]:
                return numbers
            log.warning("compiled loops: the sums of keys are not those of their units; numpy counts instead")
        # The sums are whole numbers below 2^53.
        kept, names = pairs._bound_by_numpy(most).key_numbers, self.keys.num_rows
        return np.array([np.bincount(kept, row, names) for row in (None, *added)]).astype(np.int64, copy=False)

    def _count(self, loops: Any, most: int) -> Ints:
        """Return the same by compiled loops."""

        def count(begin: int, stop: int, numbers: Ints) -> None:
            loops.count_keys(self.starts, self.key_numbers, self.added, most, begin, stop, numbers)

        return self.add_up(count, 1 + len(self.added))

    def add_up(self, act: Callable[[int, int, Ints], object], rows: int = 1) -> Ints:
        """Return rows of whole numbers by key, to which `act` adds what a range of units adds, in several threads."""

        def add(begin: int, stop: int) -> Ints:
            numbers = np.zeros((rows, names), np.int64)
            act(begin, stop, numbers)
            return numbers

        names, pairs = self.keys.num_rows, len(self.key_numbers)
        # Each thread has numbers of all keys, which are added up at the end: with few pairs per key, few threads do.
        return reduce(_add, self._in_ranges(add, len(self.starts) - 1, math.isqrt(2 * pairs // max(1, names))))

    @property
    def added(self) -> Floats:
        """What each pair adds to each total, without any where none was asked for."""
        # Compiled loops are for rows without gaps, which a selection of columns does not have.
        return np.empty((0, len(self.key_numbers))) if self.amounts is None else np.ascontiguousarray(self.amounts)

    def _loops(self) -> Any:
        """Return the compiled loops over pairs; None for few pairs, or where there are none."""
        if len(self.key_numbers) < _COMPILED_FROM:
            return None
        try:
            from dpsieve.engines.duckdb.compiled import load_pair_loops
        except ImportError:
            return None
        return load_pair_loops()

    def _in_ranges(self, act: Callable[[int, int], T], count: int, most: int | None = None) -> list[T]:
        """Call a function with ranges up to `count`, one per thread, on at most `most` threads; return results."""
        threads = self.threads if most is None else max(1, min(self.threads, most))
        edges = np.linspace(0, count, threads + 1).astype(np.int64).tolist()
        if threads == 1:
            return [act(*edges)]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(act, edges[:-1], edges[1:]))

    def count(self, most: int | None = None) -> Counted:
        """Return the keys that some unit has, with their numbers of units and sums.

        With `most`, units have their first keys alone.
        """
        counted = self.count_all(most)
        some = np.flatnonzero(counted.frequencies)
        if len(some) == len(counted.frequencies):
            return counted
        sums = None if counted.sums is None else counted.sums[:, some]
        return Counted(self.keys.take(as_arrow(some)), counted.frequencies[some], sums)

    def count_all(self, most: int | None = None) -> Counted:
        """Return the same for all keys, also those that no unit has."""
        numbers = self._numbers(most)
        return Counted(self.keys, numbers[0], None if self.amounts is None else numbers[1:])

    def sums(self, most: int | None = None) -> Ints | None:
        """Return, for each total, the sum per key of what units add on the grid."""
        return None if self.amounts is None else self._numbers(most)[1:]

    def weights(self, weight: Weight) -> Ints:
        """Return the sum of the weights of each key, as an engine computes it."""
        sizes = self.sizes
        table = np.array([0, *weight.of_keys(int(sizes.max(initial=1)))], np.int64)
        sums = np.zeros(self.keys.num_rows, np.int64)
        np.add.at(sums, self.key_numbers, np.repeat(table[sizes], sizes))
        return sums


class CountedByBound(AbstractContextManager["CountedByBound"]):
    """The true counts under every bound on the keys per unit up to 1,000, each key once per unit.

    All counts come from one read of the data, so they are consistent with each other and with `units`. Use it in a
    `with` block: what does not fit into memory is on disk until `close`.

    Args:
        units: the number of units with 0, 1, ..., 1,000 keys; units with more keys count as 1,000.
        add_up: returns the counts under a bound.
        resources: what is closed by `close`, or when this object is no longer used.
        read_pairs: returns the keys of each unit, in the order in which bounds keep them; it may read the data again.
        most_pairs: the number of pairs up to which `read_pairs` is possible, from settings alone and whatever the data;
            0 where it is not.
    """

    def __init__(
        self,
        units: Ints,
        add_up: Callable[[int], Counted],
        resources: ExitStack | None = None,
        read_pairs: Callable[[], Pairs] | None = None,
        most_pairs: float = 0,
    ) -> None:
        self.units, self._add_up, self._read_pairs, self.most_pairs = units, add_up, read_pairs, most_pairs
        self._closing = None if resources is None else weakref.finalize(self, resources.close)

    def under(self, keys: int) -> Counted:
        """Return the counts where each unit keeps at most this number of its keys."""
        return self._add_up(keys)

    def read_pairs(self) -> Pairs:
        """Return the keys of each unit, where `most_pairs` allows it."""
        assert self._read_pairs is not None
        return self._read_pairs()

    def close(self) -> None:
        if self._closing is not None:
            self._closing()

    def __exit__(self, *_: object) -> None:
        self.close()


class FromPairs(CountedByBound):
    """Counts from pairs in memory; keys that are `listed` are all counted, also those that do not occur."""

    def __init__(
        self, pairs: Pairs, most_pairs: float = math.inf, resources: ExitStack | None = None, *, listed: bool = False
    ) -> None:
        units, count = units_by_size(pairs.sizes), pairs.count_all if listed else pairs.count
        super().__init__(units, count, resources, lambda: pairs, most_pairs)
        self.pairs, self.listed = pairs, listed


def _add(total: Ints, counts: Ints) -> Ints:
    total += counts
    return total


def units_by_place(places: Ints, numbers: Ints, most: int) -> Ints:
    """Return the number of units with 0, 1, ..., most keys, from the numbers of units that have a key at some places.

    A unit with d keys has one at each of the places 1 to d. A place may occur several times, with other keys.

    >>> units_by_place(np.array([1, 2, 3, 1]), np.array([4, 3, 3, 1]), 3)
    array([0, 2, 0, 3])
    """
    holding = np.zeros(most + 1, np.int64)
    np.add.at(holding, places, numbers)
    units = -np.diff(holding, append=0)
    units[0] = 0
    return units


@dataclass(frozen=True, eq=False, repr=False)
class NumberRows:
    """True numbers, after each unit was bounded.

    Attributes:
        values: one row per row that is kept, one column per requested column, without NaN; values may be infinite. The
            rows of a unit are contiguous, in an order that depends on these rows and the salt alone. Units are in no
            particular order: callers that need a random order must shuffle them.
        starts: where the rows of each unit start, and at the end the number of rows.
    """

    values: Floats
    starts: Ints

    def __repr__(self) -> str:
        return "<NumberRows: true numbers, not to be published>"

    def unit_means(self, low: Floats, high: Floats) -> Floats:
        """Return the mean of the rows of each unit, each number clipped to its bounds first.

        Rows of a unit are added in their order, so a mean depends on them alone, down to its last digit.
        """
        sizes = np.diff(self.starts)
        clipped = np.clip(self.values, low, high)
        if len(clipped) == len(sizes):
            return clipped
        total, more, place = clipped[self.starts[:-1]], np.flatnonzero(sizes > 1), 1
        while len(more):
            total[more] += clipped[self.starts[more] + place]
            place += 1
            more = more[sizes[more] > place]
        return np.clip(total / sizes[:, None], low, high)
