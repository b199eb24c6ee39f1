"""Publications of discovery: a set of keys, the k most frequent ones in order, or k keys that reach most units."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsieve.accounting.exponential_picks import checked_picks
from dpsieve.accounting.spends import Spend
from dpsieve.codec import register
from dpsieve.discovery.picks import HittingKeys, TopKeys
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.guarantee import Contribution, Guarantee
from dpsieve.privacy.mechanism import Counting, Drawn, Mechanism
from dpsieve.publication.files import MAIN
from dpsieve.publication.publication import Notes, Publication
from dpsieve.publication.release import Release, stated_contribution, with_counts
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import is_a
from dpsieve.values.columns import as_arrow
from dpsieve.values.keys import TAKEN, check_published, order_of, published

_FIX = "Use it as it was made."


@register("top_counts")
@dataclass(frozen=True, repr=False)
class TopCounts(Mechanism):
    """The k keys with the largest counts of a release; ties in the order of keys.

    Guarantee: that of the release. Leaving out keys, and counts, is post-processing.

    Attributes:
        mechanism: what the release was drawn from.
        k: the largest number of published keys.
    """

    count_sigma: ClassVar[float] = 0.0

    mechanism: Annotated[Counting, is_a(Counting, "Pass the mechanism of a release.")]
    k: Annotated[int, checked_picks]

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of one privacy unit."""
        return self.mechanism.guarantee

    def __repr__(self) -> str:
        return f"<{self.name} of {self.k:,} keys, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate of the release."""
        return self.mechanism.certify()

    def spends(self) -> tuple[Spend, ...]:
        return self.mechanism.spends()

    @property
    def table_rows(self) -> int | None:
        return self.mechanism.table_rows

    @property
    def reports_coverage(self) -> bool:  # type: ignore[override]
        return self.mechanism.reports_coverage

    def contribution_given(self, drawn: Drawn) -> Contribution:
        return self.mechanism.contribution_given(drawn)

    def reader(self, drawn: Drawn) -> Any:
        return self.mechanism.reader(drawn)


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

    @classmethod
    def of_release(cls, release: Release, k: int, **more: Any) -> Self:
        """Return the k keys of a release with the largest counts."""
        table, notes = release.keys.take(as_arrow(release.places_of_top(k))), release.notes
        words, reason = notes.contribution or str(release.contribution), f"the {k:,} largest counts: {notes.reason}"
        notes = replace(notes, contribution=words, reason=reason, rarer="")
        common: Any = {"drawn": release.drawn, "unsafe_to_publish": release.unsafe_to_publish, "notes": notes}
        return cls(table, TopCounts(release.mechanism, k), **common, **more)

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
        if stated_contribution(self.notes.contribution) != self.mechanism.contribution_given(self.drawn):
            raise InvalidValue(f"notes have another contribution than the mechanism. {_FIX}")
        if self.notes.coverage is not None and not self.mechanism.reports_coverage:
            raise InvalidValue(f"notes have a coverage that was not paid for. {_FIX}")


@register("hitting_set")
@dataclass(frozen=True, eq=False, repr=False)
class HittingSet(KeySet):
    """Keys such that many units hold at least one of them.

    Attributes:
        table: one row per picked key, in the order of the picks: the one that most units hold first, then the one
            that adds most units to it, and so on, as far as noise allows.
    """

    maker: ClassVar[Any] = (HittingKeys, TopCounts)

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
        table: one row per key, the most common first, as far as noise allows. With counts, `count` is the noisy number
            of units that hold the key, and `low` and `high` are its 95 % interval; those of a release also have `bound`
            (see `dpsieve.Release`).
        tokens: what a release drew for each row, where its counts are published; None otherwise.
    """

    maker: ClassVar[Any] = (TopKeys, TopCounts)

    tokens: Ints | None = field(default=None, kw_only=True)

    @classmethod
    def of_release(cls, release: Release, k: int, *, counts: bool = False, **more: Any) -> Self:
        """Return the k keys of a release with the largest counts, and these counts on request."""
        made = super().of_release(release, k, **more)
        if not counts or release.tokens is None:
            return made
        tokens = release.tokens[release.places_of_top(k)]
        table = _with_counts_of_release(made.last.mechanism, release.drawn, made.table, tokens)
        return replace(made, table=table, tokens=tokens)

    def check(self) -> None:
        """Raise unless the table holds at most k distinct keys, with counts and intervals if they were paid for."""
        self._check_maker()
        keys = self.keys
        check_published(keys, in_order=False)
        expected = keys
        if self.tokens is not None:
            counts = (
                isinstance(self.last, TopCounts) and self.tokens.dtype == np.int64 and len(self.tokens) == len(keys)
            )
            if not counts or not self.last.mechanism.possible(self.tokens):
                raise InvalidValue(f"table has tokens that the mechanism cannot draw. {_FIX}")
            expected = _with_counts_of_release(self.last.mechanism, self.drawn, keys, self.tokens)
        elif self.last.count_sigma and "count" in self.table.column_names:
            expected = _with_counts(self.last, keys, self.table.column("count").to_numpy())
        added = expected.column_names[keys.num_columns :]  # not the keys: NaN equals no other
        same = self.table.schema.equals(expected.schema) and self.table.select(added).equals(expected.select(added))
        if len(self) > self.last.k or not same:
            raise InvalidValue(f"table has other rows or columns than the mechanism publishes. {_FIX}")

    def tables(self) -> dict[str, pa.Table]:
        """Return the table as it is saved: with the tokens of a release last."""
        more = super().tables()
        return more if self.tokens is None else {**more, MAIN: self.table.append_column("token", pa.array(self.tokens))}

    @classmethod
    def from_tables(cls, tables: dict[str, pa.Table], mechanism: Mechanism, **other: Any) -> Self:
        """Make a top-k from its saved tables."""
        table = tables.pop(MAIN)
        if "token" in table.column_names:
            other["tokens"], table = table.column("token").to_numpy(), table.drop_columns("token")
        return super().from_tables({MAIN: table, **tables}, mechanism, **other)


def selected_table(keys: pa.Table) -> pa.Table:
    """Return selected keys as they are published: sorted."""
    table = published(keys)
    return table.take(order_of(table))


def top_table(mechanism: TopKeys, keys: pa.Table, noisy: Floats | None) -> pa.Table:
    """Return picked keys as they are published: in their order and, if given, with noisy counts."""
    table = published(keys)
    counts = None if noisy is None else np.maximum(np.rint(noisy), 0).astype(np.int64)
    return table if counts is None else _with_counts(mechanism, table, counts)


def _with_counts_of_release(mechanism: Counting, drawn: Drawn, keys: pa.Table, tokens: Ints) -> pa.Table:
    return with_counts(mechanism, drawn, keys, tokens).drop_columns("weight")


def _with_counts(mechanism: TopKeys, keys: pa.Table, counts: Ints) -> pa.Table:
    width = math.ceil(mechanism.half_width(0.95) + 0.5)
    columns = {"count": counts, "low": np.maximum(counts - width, 0), "high": counts + width}
    for name, values in columns.items():
        keys = keys.append_column(name, pa.array(values, pa.int64()))
    return keys
