"""Sketches of many streams, brought together by a trusted aggregator, and two ways to release them.

A merged sketch keeps both: the sum of the post-processed sketches (`sketches.summed`), whose noise does not grow with
the number of streams nor with k, but which holds up to k keys a stream; and the bounded merge of Agarwal et al. (2013),
k counters, with Gaussian noise that grows with sqrt(k) (`sketches.one_sided`). Neighbours are add/remove of one item
of one stream. `release` takes the one of the lower threshold, which is a function of public numbers.

As bytes: the magic and version (15 bytes), the kind (1), counters (4), sources, items, lost (8 each), the keys of the
sum and of the merge (8 each); then the values and keys of each, and SHA-256 of all, as in `sketches.saved`.
"""

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.channels.contributions import MOST_KEYS
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.sketches import saved
from dpsieve.sketches.layout import MOST_COUNTERS
from dpsieve.sketches.misra_gries import MisraGries
from dpsieve.sketches.one_sided import OneSidedSketch, one_sided_sketch
from dpsieve.sketches.releasing import Terms, released
from dpsieve.sketches.summed import MOST_SOURCES, SummedSketch, summed_sketch
from dpsieve.sketches.universe import released_over
from dpsieve.values.items import Kind, one_item

if TYPE_CHECKING:
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.publication import Release
    from dpsieve.randomness.source import Source

METHODS = ("auto", "sum", "bounded")
_HEADER = struct.Struct("<15sBI5Q")


class MergedSketch:
    """Misra-Gries sketches of several streams together. What it holds is true: not to be published.

    It cannot be updated: finish the sketches of the streams first, then merge them. The streams must not share items:
    one that is in two of them, such as in a sketch and in a later state of the same sketch, counts and weighs twice.

    Attributes:
        counters: k, the size of each sketch.
        sources: how many sketches are in it.
        items: how many items they have seen.
        lost: how much the bounded merge may be below the truth.
        kind: 'integers', 'text' or 'bytes'; None while all are empty.
        summed: the sum of the post-processed sketches, in units of 1/(k+1): `key` and `value`.

    >>> first, second = MisraGries(2), MisraGries(2)
    >>> first.update(["tea", "tea", "milk"])
    >>> second.update(["tea", "salt", "rice"])
    >>> merged = first.merge(second)
    >>> merged.sources, merged.items, merged.estimate("tea")
    (2, 6, 2)
    """

    MAGIC = b"dpsieve merged\x02"  # what `to_bytes` begins with

    def __init__(self, counters: int) -> None:
        hint = "Pass the size of the sketches to merge, such as counters=1024."
        self.counters = validate.whole("counters", counters, low=1, high=MOST_COUNTERS, hint=hint)
        self.sources = self.items = self.lost = 0
        self.kind: Kind | None = None
        self.summed = _empty()
        self._bounded = _empty()

    @classmethod
    def of(cls, *sketches: "MisraGries | MergedSketch") -> "MergedSketch":
        """Merge sketches of one size, in the order given."""
        if not sketches:
            raise InvalidValue("there are no sketches to merge. Pass one or more.")
        for sketch in sketches:
            if not isinstance(sketch, MisraGries | MergedSketch):
                raise InvalidType(f"sketches to merge are MisraGries or MergedSketch, not {type(sketch).__name__}.")
        if len({id(sketch) for sketch in sketches}) < len(sketches):
            raise InvalidValue("a sketch would be merged with itself. Pass sketches of streams that share no item.")
        sizes, kinds = {sketch.counters for sketch in sketches}, {sketch.kind for sketch in sketches} - {None}
        if len(sizes) > 1:
            raise InvalidValue(f"sketches differ in size: {sorted(sizes)}. Merge sketches of the same size.")
        if len(kinds) > 1:
            raise InvalidType(f"sketches hold different kinds of keys: {', '.join(sorted(map(str, kinds)))}.")
        merged = cls(sizes.pop())
        merged.kind = kinds.pop() if kinds else None
        for sketch in sketches:
            merged._add(sketch if isinstance(sketch, MergedSketch) else _single(sketch))
        return merged

    def __repr__(self) -> str:
        return f"<MergedSketch of {self.sources:,} sketches of {self.counters:,} counters>"

    def __len__(self) -> int:
        return int(self._bounded.num_rows)

    def merge(self, other: "MisraGries | MergedSketch") -> "MergedSketch":
        """Return this and another sketch together."""
        return MergedSketch.of(self, other)

    def estimate(self, item: Any) -> int:
        """Return the counter of an item in the bounded merge, 0 if it has none. A true value, not to be published."""
        place = pc.index_in(one_item(item, self.kind), value_set=self._bounded["key"].combine_chunks())[0].as_py()
        return 0 if place is None else int(self._bounded["value"][place].as_py())

    lower = estimate

    def upper(self, item: Any) -> int:
        """Return an upper bound on the true frequency of an item. A true value, not to be published."""
        return self.estimate(item) + self.lost

    def plan(self, epsilon: float, delta: float, *, method: str = "auto") -> SummedSketch | OneSidedSketch:
        """Return what `release` would use, from public numbers alone: k, the number of sketches, epsilon and delta."""
        if method not in METHODS:
            raise InvalidValue(f"method is not known. Choose one of {', '.join(METHODS)}.")
        ways: list[SummedSketch | OneSidedSketch] = []
        if method != "bounded":
            ways.append(summed_sketch(epsilon, delta, self.counters, max(1, self.sources)))
        if method == "bounded" or (method == "auto" and self.counters < MOST_KEYS):
            ways.append(one_sided_sketch(epsilon, delta, self.counters))
        return min(ways, key=lambda way: way.threshold)

    def release(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        universe: Any = None,
        false_keys: float = 1.0,
        method: str = "auto",
        ledger: "Ledger | None" = None,
        note: str = "",
        source: "Source | None" = None,
    ) -> "Release":
        """Release keys and counts, (epsilon, delta)-private when one item of one stream is added or removed.

        With a known `universe`, delta is 0 (see `MisraGries.release`). Without, 'auto' takes the way of the lower
        threshold: 'sum' or 'bounded'. The intervals are for the true frequencies over all streams.
        """
        terms = Terms(ledger, note, source)
        if universe is not None:
            return released_over(universe, self, epsilon, delta, false_keys=false_keys, items_per_unit=1, terms=terms)
        way = self.plan(epsilon, delta, method=method)
        table, lost = (self.summed, self.items) if isinstance(way, SummedSketch) else (self._bounded, self.lost)
        name = "the sum of the sketches" if isinstance(way, SummedSketch) else "the bounded merge"
        why = f"{name}, with threshold {way.threshold:.4g}" + (", as requested" if method != "auto" else "")
        keys, values = table["key"].combine_chunks(), table["value"].to_numpy()
        return released(way, keys, values, lost, why, terms)

    def to_bytes(self) -> bytes:
        """Return the whole state, with a digest. It holds true values: keep it as safe as the data."""
        numbers = (self.counters, self.sources, self.items, self.lost, self.summed.num_rows, self._bounded.num_rows)
        body = _HEADER.pack(self.MAGIC, saved.KINDS.index(self.kind), *numbers)
        for table in (self.summed, self._bounded):
            body += saved.numbers_to_bytes(table["value"].to_numpy())
            body += saved.keys_to_bytes(self.kind, table["key"].combine_chunks())
        return saved.sealed(body)

    @classmethod
    def from_bytes(cls, state: bytes) -> "MergedSketch":
        """Return the sketch whose `to_bytes` is given; a state that no streams lead to raises `UnreadableData`."""
        reader = saved.Reader(state, cls.MAGIC)
        _, kind, counters, sources, items, lost, *rows = reader.header(_HEADER)
        numbers = kind < len(saved.KINDS) and 1 <= counters <= MOST_COUNTERS and sources <= MOST_SOURCES
        if not numbers or max(items, lost) > saved.MOST_ITEMS:
            saved.refuse("have numbers out of range")
        made = cls(counters)
        made.kind, made.sources, made.items, made.lost = saved.KINDS[kind], sources, items, lost
        tables = []
        for held in rows:
            values = reader.numbers(held)
            tables.append(pa.table({"key": reader.keys(made.kind, held), "value": values}))
        reader.end()
        made.summed, made._bounded = tables
        if not made._is_possible():
            saved.refuse("tell of a state that no streams lead to")
        return made

    def _is_possible(self) -> bool:
        """Tell whether the numbers agree.

        In one sketch the counters c add up to S = n - gamma (k+1), and the sum holds (k+1) c - S where it is positive:
        at most (k+1) c each, and k S together. A merge adds these up; it takes `over` from k + 1 counters or more.
        """
        size = self.counters + 1
        (keys, values), (held, counters) = (
            (table["key"].combine_chunks(), table["value"].to_numpy()) for table in (self.summed, self._bounded)
        )
        left = self.items - self.lost * size - saved.total(counters)
        if (
            (self.kind is None) != (self.items == 0)
            or self.items * size >= saved.MOST_ITEMS
            or left < 0
            or (self.sources < 2 and left > 0)
            or len(held) > self.counters
            or len(keys) > self.counters * self.sources
            or saved.total(values) > self.counters * self.items
            or min(values.min(initial=1), counters.min(initial=1)) < 1
            or not (saved.increasing(keys) and saved.increasing(held))
        ):
            return False
        if not len(keys):
            return True
        places = pc.fill_null(pc.index_in(keys, value_set=held), len(held)).to_numpy()
        return bool((values <= (np.append(counters, 0)[places] + self.lost) * size).all())

    def _add(self, other: "MergedSketch") -> None:
        """Add sums to sums, and merge counters: subtract the (k+1)-st largest and drop what is not above zero."""
        if (self.items + other.items) * (self.counters + 1) >= saved.MOST_ITEMS:
            raise InvalidValue("the streams are too long for sketches of this size. Use fewer counters.")
        self.summed = _together(self.summed, other.summed)
        whole = _together(self._bounded, other._bounded)
        values = whole["value"].to_numpy()
        over = int(np.partition(values, -self.counters - 1)[-self.counters - 1]) if len(values) > self.counters else 0
        self._bounded = _table(whole["key"].combine_chunks(), values - over)
        self.sources, self.items = self.sources + other.sources, self.items + other.items
        self.lost += other.lost + over


def _single(sketch: MisraGries) -> MergedSketch:
    """Return one sketch as a merged one; v is counted in units of 1/(k+1)."""
    state = sketch.snapshot()
    if state.items * (state.counters + 1) >= saved.MOST_ITEMS:
        raise InvalidValue("the stream is too long for a sketch of this size. Use fewer counters.")
    made = MergedSketch(state.counters)
    made.kind, made.sources, made.items, made.lost = state.kind, 1, state.items, state.decrements
    made.summed = _table(state.keys, (state.counts + state.decrements) * (state.counters + 1) - state.items)
    made._bounded = _table(state.keys, state.counts)
    return made


def _empty() -> pa.Table:
    return pa.table({"key": pa.array([], pa.string()), "value": pa.array([], pa.int64())})


def _table(keys: pa.Array, values: NDArray[np.int64]) -> pa.Table:
    """Return the keys whose values are above zero, sorted."""
    held = np.flatnonzero(values > 0)
    return pa.table({"key": keys.take(pa.array(held)), "value": values[held]}).sort_by("key")


def _together(first: pa.Table, second: pa.Table) -> pa.Table:
    """Return two tables with the values of equal keys added up."""
    if not first.num_rows or not second.num_rows:
        return first if first.num_rows else second
    whole = pa.concat_tables([first, second]).group_by("key").aggregate([("value", "sum")])
    return pa.table({"key": whole["key"], "value": whole["value_sum"]}).sort_by("key")
