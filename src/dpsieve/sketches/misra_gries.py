"""Misra-Gries sketches in the variant whose neighbouring streams give nearly the same state, and their merges.

A sketch holds k keys with a counter each (Algorithm 12 of the thesis); at first these are dummies, greater than every
real key, with counters 0. For each item x:

1. If x is held, its counter grows by one.
2. Otherwise, if all counters are at least 1, all of them drop by one, and x is discarded.
3. Otherwise the smallest key whose counter is 0 leaves, and x takes its place with the counter 1.

The order of keys is fixed: integers by value, text and bytes as in `text_loops`. With f occurrences of a key among n
items, its counter is between f - n/(k + 1) and f, where a key that is not held has counter 0. An item costs a search in
a hash table, and its share of sorting the zero counters: in total O(log k) on average.

A merged sketch keeps the sum of the post-processed sketches (`summed_noise`), whose noise grows neither with the number
of streams nor with k. Neighbours are add/remove of one item of one stream: docs/background/streams.md#proof-one-sketch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact import exact_sum
from dpsieve.locks import OneThread
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source, resolve
from dpsieve.sketches.laplace_noise import MOST_COUNTERS, NoisySketch
from dpsieve.sketches.sketch import (
    MOST_ITEMS,
    Sketch,
    State,
    Table,
    Universe,
    release_over,
    release_table,
)
from dpsieve.sketches.summed_noise import MOST_SOURCES, RoundedSketch, SummedSketch
from dpsieve.types import Ints, Words
from dpsieve.values.columns import PLAIN, Kind, check_kind, column_of_items, kind_of_type, one_item, plain_items

if TYPE_CHECKING:
    from dpsieve.sketches.counter_tables import CounterTable

_ITEMS = "Pass integers, text or bytes: an Arrow or NumPy array, a pandas or Polars Series, or a list."


class MisraGries(Sketch):
    """Estimates how often items occur in a stream, with a fixed number of counters.

    Keys and counters are true values: do not publish them.

    >>> sketch = MisraGries(counters=2)
    >>> sketch.update(["tea", "tea", "milk", "tea", "water"])
    >>> sketch.estimate("tea"), sketch.upper("tea")
    (2, 3)
    >>> sketch
    <MisraGries of 2 counters>

    The first item decides whether a sketch counts integers (of 64 bits), text or bytes. Use a sketch in one thread at a
    time: a second thread gets an error.
    """

    _numbers: ClassVar[int] = 3

    def __init__(self, counters: int) -> None:
        hint = "Pass how many keys to hold, such as counters=1024; the error is at most items / (counters + 1)."
        super().__init__(counters, MOST_COUNTERS, hint)
        self._table: CounterTable | None = None
        self._alone = OneThread("this sketch")

    @property
    def items(self) -> int:
        """The number of items counted so far, n, without nulls. A true value."""
        return int(self._table.state["items"]) if self._table else 0

    @property
    def decrements(self) -> int:
        """How often all counters were lowered. A true value."""
        return int(self._table.state["decrements"]) if self._table else 0

    def update(self, items: Any) -> None:
        """Count a batch of items, in order. The result does not depend on how a stream is divided into batches.

        Accepts Arrow arrays, NumPy arrays, pandas and Polars Series, lists and iterables (see `values.columns`). Drops
        nulls. A batch with an item that cannot be counted raises and changes nothing.
        """
        columns = _read_items(items)
        if not columns:
            return
        kind = kind_of_type(columns[0].type)
        assert kind is not None
        with self._alone:
            check_kind("items", kind, self._kind)
            if self._table is None:
                self._kind, self._table = kind, _new_table(kind, self._counters)
            for column in columns:
                self._table.update(column)

    def estimate(self, item: str | bytes | int) -> int:
        with self._alone:
            column = one_item(item, self._kind)
            return 0 if self._table is None else self._table.find(column)

    def __len__(self) -> int:
        return int(self._table.state["held"]) if self._table else 0

    def merge(self, other: "MisraGries | MergedSketch") -> "MergedSketch":
        """Return the merge of this sketch and one of another stream; both inputs are unchanged."""
        return MergedSketch.of(self, other)

    def release(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        universe: Any = None,
        false_keys: float = 1.0,
        items_per_unit: int = 1,
        ledger: AnyLedger = None,
        note: str = "",
        source: Source | None = None,
    ) -> Release:
        """Release the most common keys, with counts and intervals, under differential privacy.

        Neighbours are add/remove of one unit, which may have up to `items_per_unit` items anywhere in the stream.
        With delta above zero: noise and a threshold (`sketches.laplace_noise`). With a known `universe`, a range of
        integers or all keys that can occur: pure privacy (`sketches.summed_noise`), and about `false_keys` published
        keys that do not occur. With probability 0.95 all intervals contain the true frequencies, including what the
        sketch lost.

        The column `counter` is the noisy counter T, which is below the truth by what the sketch lost. `count` is
        T + max(G, 0) for the noisy number of decrements G, clipped to the interval. It is close to the truth for keys
        that occur throughout the stream, and too high, by up to G, for keys whose items come late or in bursts, as in a
        stream sorted by key, by rarity or by topic.

        The guarantee names the protected unit: 'one item', or 'one unit with at most m items'. A sketch cannot identify
        whose items it counts, so it promises nothing else; a ledger to be charged must have the same unit.

        Args:
            epsilon, delta: the budget of this release.
            universe: all keys that can occur; requires delta=0. Keys outside of it, or of another kind, are ignored:
                the success of a call must not depend on the stream.
            false_keys: with a universe, the expected number of published keys that do not occur.
            items_per_unit: how many items one unit may have; paid for by group privacy. Not checked.
            ledger: the budget to charge, or its path; it is charged before anything is drawn.
            note: the purpose of this release, stored in the ledger.
            source: randomness for tests; the release is then marked unsafe to publish.
        """
        terms: dict[str, Any] = {"ledger": ledger, "note": note, "source": source}
        if universe is not None:
            return MergedSketch.of(self)._release_over(universe, epsilon, delta, false_keys, items_per_unit, **terms)
        mechanism = NoisySketch(epsilon, delta, self.counters, items_per_unit=items_per_unit)
        _, (_, _, decrements), table = self.snapshot()
        reason = f"noise for a sketch of {self.counters:,} counters, and a threshold of {mechanism.threshold:,}"
        if items_per_unit > 1:
            reason += f"; a unit of {items_per_unit:,} items is paid for by group privacy"
        return release_table(mechanism, table, decrements, reason, **terms)

    def snapshot(self) -> State:
        with self._alone:
            none = pa.nulls(0), np.empty(0, np.int64)
            contents = none if self._table is None else self._table.keys_and_counts()
            return State(self._kind, (self._counters, self.items, self.decrements), Table(*contents))

    @classmethod
    def _of(cls, state: State) -> Self | None:
        """Each item adds one to one counter, or takes one from all k and is discarded: the counters add up."""
        kind, (counters, items, decrements), (keys, counts) = state
        if (
            (kind is None) != (len(keys) == 0)
            or len(keys) > counters
            or exact_sum(counts) != items - decrements * (counters + 1)
            or (len(keys) < counters and decrements > 0)
            or (decrements == 0 and not (counts > 0).all())
        ):
            return None
        sketch = cls(counters)
        if kind is not None:
            sketch._kind, sketch._table = kind, _new_table(kind, counters)
            sketch._table.restore(keys, counts, items, decrements)
        return sketch


class MergedSketch(Sketch):
    """The merge of Misra-Gries sketches of several streams. It contains true values: do not publish them.

    It cannot be updated: finish the sketches of the streams first, then merge them. The streams must not share items:
    an item in two of them, such as in a sketch and in a later state of the same sketch, counts twice.

    Attributes:
        sources: the number of merged sketches.
        items: the number of items they counted.
        summed: the sum of the post-processed sketches, in units of 1/(k+1).

    >>> first, second = MisraGries(2), MisraGries(2)
    >>> first.update(["tea", "tea", "milk"])
    >>> second.update(["tea", "salt", "rice"])
    >>> merged = first.merge(second)
    >>> merged.sources, merged.items, merged.estimate("tea")
    (2, 6, 1)
    """

    _numbers: ClassVar[int] = 3

    def __init__(self, counters: int) -> None:
        super().__init__(counters, MOST_COUNTERS, "Pass the size of the sketches to merge, such as counters=1024.")
        self.sources = self.items = 0
        self.summed = Table(pa.nulls(0), np.empty(0, np.int64))

    @classmethod
    def of(cls, *sketches: "MisraGries | MergedSketch") -> "MergedSketch":
        """Merge sketches of one size, in the order given."""
        if not sketches:
            raise InvalidValue("there are no sketches to merge. Pass one or more.")
        for sketch in sketches:
            if not isinstance(sketch, MisraGries | MergedSketch):
                raise InvalidType(f"sketches to merge are MisraGries or MergedSketch, not {type(sketch).__name__}.")
        counters, kind = common_shape(sketches)
        merged = cls(counters)
        merged._kind = kind
        for sketch in sketches:
            merged._add(sketch if isinstance(sketch, MergedSketch) else _single(sketch))
        return merged

    def __repr__(self) -> str:
        return f"<MergedSketch of {self.sources:,} sketches of {self.counters:,} counters>"

    def __len__(self) -> int:
        return len(self.summed.values)

    @property
    def decrements(self) -> int:
        """A bound on how much the sum is below the truth, N/(k+1). A true value."""
        return self.items // (self.counters + 1)

    def keys_and_counts(self) -> Table:
        """Return the keys of the sum, sorted, and their values, rounded up to whole items. True values."""
        return Table(self.summed.keys, -(-self.summed.values // (self.counters + 1)))

    def merge(self, other: "MisraGries | MergedSketch") -> "MergedSketch":
        """Return the merge of this sketch and one of other streams; both inputs are unchanged."""
        return MergedSketch.of(self, other)

    def release(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        universe: Any = None,
        false_keys: float = 1.0,
        ledger: AnyLedger = None,
        note: str = "",
        source: Source | None = None,
    ) -> Release:
        """Release keys and counts, (epsilon, delta)-private when one item of one stream is added or removed.

        With a known `universe`, delta is 0 (see `MisraGries.release`). The intervals are for the true frequencies over
        all streams. A key has no value before it has N/(k+1) items of all N, and must reach the threshold above that.
        """
        terms: dict[str, Any] = {"ledger": ledger, "note": note, "source": source}
        if universe is not None:
            return self._release_over(universe, epsilon, delta, false_keys, 1, **terms)
        mechanism = RoundedSketch(epsilon, delta, self.counters, max(1, self.sources))
        more = f"and 1/{mechanism.parts:,} of all items more"
        reason = f"the sum of the sketches: a key needs {mechanism.threshold:.4g} items by threshold, {more}"
        return release_table(mechanism, self.summed, self.items, reason, **terms)

    def _release_over(
        self, universe: Any, epsilon: float, delta: float, false_keys: float, items_per_unit: int, **terms: Any
    ) -> Release:
        """Release the sum of the sketches over a known universe."""
        if delta != 0:
            hint = "Leave out delta, or the universe."
            raise InvalidValue(f"with a universe the release is purely private. {hint}", argument="delta")
        keys = Universe(universe)
        mechanism = SummedSketch(
            epsilon,
            0.0,
            self.counters,
            max(1, self.sources),
            universe=len(keys),
            false_keys=false_keys,
            items_per_unit=items_per_unit,
        )
        return release_over(keys, mechanism, self.summed, self.items, **terms)

    def snapshot(self) -> State:
        return State(self.kind, (self.counters, self.sources, self.items), self.summed)

    @classmethod
    def _of(cls, state: State) -> Self | None:
        """The sum of one sketch has at most k keys, with values of k n at most, also together; sums add these up."""
        merged = cls(state.numbers[0])
        merged._kind, (_, merged.sources, merged.items), merged.summed = state
        keys, values = merged.summed
        if (
            (merged.kind is None) != (merged.items == 0)
            or (merged.sources == 0 and merged.items > 0)
            or merged.sources > MOST_SOURCES
            or merged.items * (merged.counters + 1) >= MOST_ITEMS
            or len(keys) > merged.counters * merged.sources
            or exact_sum(values) > merged.counters * merged.items
            or values.min(initial=1) < 1
        ):
            return None
        return merged

    def _add(self, other: "MergedSketch") -> None:
        if (self.items + other.items) * (self.counters + 1) >= MOST_ITEMS:
            raise InvalidValue("the streams are too long for sketches of this size. Use fewer counters.")
        self.summed = add_tables(self.summed, other.summed)
        self.sources, self.items = self.sources + other.sources, self.items + other.items


def common_shape(sketches: Sequence[Sketch]) -> tuple[int, Kind | None]:
    """Return the number of counters and the kind of keys of sketches that can be merged; raise for others."""
    if len({id(sketch) for sketch in sketches}) < len(sketches):
        raise InvalidValue("a sketch would be merged with itself. Pass sketches of streams that share no item.")
    sizes, kinds = {sketch.counters for sketch in sketches}, {sketch.kind for sketch in sketches} - {None}
    if len(sizes) > 1:
        raise InvalidValue(f"sketches differ in size: {sorted(sizes)}. Merge sketches of the same size.")
    if len(kinds) > 1:
        raise InvalidType(f"sketches hold different kinds of keys: {', '.join(sorted(map(str, kinds)))}.")
    return sizes.pop(), kinds.pop() if kinds else None


def _single(sketch: MisraGries) -> MergedSketch:
    """Return one sketch as a merged one; values of the sum are in units of 1/(k+1)."""
    kind, (counters, items, decrements), (keys, counts) = sketch.snapshot()
    if items * (counters + 1) >= MOST_ITEMS:
        raise InvalidValue("the stream is too long for a sketch of this size. Use fewer counters.")
    merged = MergedSketch(counters)
    merged._kind, merged.sources, merged.items = kind, 1, items
    merged.summed = positive(keys, (counts + decrements) * (counters + 1) - items)
    return merged


def positive(keys: pa.Array, values: Ints) -> Table:
    """Return the keys whose values are above zero."""
    rows = np.flatnonzero(values > 0)
    return Table(keys.take(pa.array(rows)), values[rows])


def add_tables(first: Table, second: Table) -> Table:
    """Return the sum of two tables, sorted by key."""
    if not len(first.values) or not len(second.values):
        return second if len(second.values) or pa.types.is_null(first.keys.type) else first
    both = pa.concat_tables(pa.table({"key": table.keys, "value": table.values}) for table in (first, second))
    both = both.group_by("key").aggregate([("value", "sum")]).sort_by("key")
    return Table(both["key"].combine_chunks(), both["value_sum"].to_numpy())


def _read_items(items: Any) -> list[pa.Array]:
    """Return the items in columns of int64, large_string or large_binary, validated and without nulls."""
    array = column_of_items(items, "items", _ITEMS)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    columns = (_plain_column(chunk) for chunk in chunks if chunk.null_count < len(chunk))
    return [column for column in columns if len(column)]


def _plain_column(chunk: pa.Array) -> pa.Array:
    """Return a validated column. Validating UTF-8 is slow and most texts are ASCII, so these are only scanned."""
    raw = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(chunk.type)
    if raw is None:
        return plain_items(chunk, "items", _ITEMS)
    column = plain_items(chunk.view(raw), "items", _ITEMS)
    text = column.view(pa.large_string())
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, 8 * column.offset)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return text if data.max(initial=0) < 128 else plain_items(text, "items", _ITEMS)


def _new_table(kind: Kind, counters: int) -> "CounterTable":
    """Return an empty table. Importing `counter_tables` loads the compiled loops, which a new sketch does not need."""
    from dpsieve.sketches.counter_tables import IntegerTable, TextTable

    return IntegerTable(counters, _salt()) if kind == "integers" else TextTable(counters, _salt(), PLAIN[kind])


def _salt() -> Words:
    """Return secret words, so that nobody can construct keys that collide in a table."""
    return resolve(None).words(4)
