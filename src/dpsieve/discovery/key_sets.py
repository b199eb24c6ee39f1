"""Publications of discovery: a set of keys, the k most frequent ones in order, or k keys that reach most units."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsieve.codec import register
from dpsieve.discovery.greedy import TopTokens
from dpsieve.discovery.picks import HittingKeys, TopKeys
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidValue
from dpsieve.privacy.guarantee import Contribution
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.publication.publication import Notes, Publication
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.values.keys import TAKEN, check_published, order_of, published

_FIX = "Use it as it was made."


@register("key_set")
@dataclass(frozen=True, eq=False, repr=False)
class KeySet(Publication):
    """Keys that occur, without any number.

    Attributes:
        table: one row per selected key, sorted by key: the key columns under their own names.
    """

    when_empty: ClassVar[str] = "No key is held by enough units. Use a larger epsilon or delta, or more data."
    maker: ClassVar[Any] = Selector

    @classmethod
    def of(cls, mechanism: Mechanism, table: pa.Table, *, source: Source, reason: str) -> Self:
        """Return the publication of a table that a mechanism produced."""
        last: Any = mechanism.last
        notes = Notes(str(Contribution(last.max_keys)), reason)
        return cls(table, mechanism, unsafe_to_publish=not source.publishable, notes=notes)

    @property
    def keys(self) -> pa.Table:
        """The key columns."""
        return self.table.select([name for name in self.table.column_names if name not in TAKEN])

    @property
    def last(self) -> Any:
        """The mechanism that produced the keys; others may precede it."""
        return self.mechanism.last

    def check(self) -> None:
        """Raise unless the table holds distinct keys in order, and the mechanism is one that selects keys."""
        self._check_maker()
        check_published(self.table)

    def _check_maker(self) -> None:
        last = self.last
        if not isinstance(last, self.maker):
            raise InvalidValue(f"mechanism publishes no {self.kind.replace('_', ' ')}. {_FIX}")
        if self.notes.contribution != str(Contribution(last.max_keys)):
            raise InvalidValue(f"notes have another contribution than the mechanism. {_FIX}")


@register("hitting_set")
@dataclass(frozen=True, eq=False, repr=False)
class HittingSet(KeySet):
    """Keys such that many units hold at least one of them.

    Attributes:
        table: one row per picked key, in the order of the picks: the one that most units hold first, then the one
            that adds most units to it, and so on, as far as noise allows.
    """

    maker: ClassVar[Any] = (HittingKeys, TopTokens)

    def check(self) -> None:
        """Raise unless the table holds at most k distinct keys."""
        self._check_maker()
        check_published(self.keys, in_order=False)
        if len(self) > self.last.k or self.keys.num_columns < self.table.num_columns:
            raise InvalidValue(f"table has more rows or columns than the mechanism publishes. {_FIX}")


@register("top_k")
@dataclass(frozen=True, eq=False, repr=False)
class TopK(KeySet):
    """The keys that most units hold.

    Attributes:
        table: one row per picked key, the most common first, as far as noise allows. With counts, `count` is the
            noisy number of units that hold the key, and `low` and `high` are its 95 % interval.
    """

    maker: ClassVar[Any] = (TopKeys, TopTokens)

    def check(self) -> None:
        """Raise unless the table holds at most k distinct keys, with counts and intervals if they were paid for."""
        self._check_maker()
        keys = self.keys
        check_published(keys, in_order=False)
        expected = keys
        if self.last.count_sigma and "count" in self.table.column_names:
            expected = _with_counts(self.last, keys, self.table.column("count").to_numpy())
        added = expected.column_names[keys.num_columns :]  # not the keys: NaN equals no other
        same = self.table.schema.equals(expected.schema) and self.table.select(added).equals(expected.select(added))
        if len(self) > self.last.k or not same:
            raise InvalidValue(f"table has other rows or columns than the mechanism publishes. {_FIX}")


def selected_table(keys: pa.Table) -> pa.Table:
    """Return selected keys as they are published: sorted."""
    table = published(keys)
    return table.take(order_of(table))


def top_table(mechanism: TopKeys, keys: pa.Table, noisy: Floats | None) -> pa.Table:
    """Return picked keys as they are published: in their order and, if given, with noisy counts."""
    table = published(keys)
    counts = None if noisy is None else np.maximum(np.rint(noisy), 0).astype(np.int64)
    return table if counts is None else _with_counts(mechanism, table, counts)


def _with_counts(mechanism: TopKeys, keys: pa.Table, counts: Ints) -> pa.Table:
    width = math.ceil(mechanism.half_width(0.95) + 0.5)
    columns = {"count": counts, "low": np.maximum(counts - width, 0), "high": counts + width}
    for name, values in columns.items():
        keys = keys.append_column(name, pa.array(values, pa.int64()))
    return keys
