"""Sketches of many streams, brought together by a trusted aggregator, and two ways to release them.

A merged sketch keeps both: the sum of the post-processed sketches (`sketches.summed`), whose noise does not grow with
the number of streams nor with k, but which holds up to k keys a stream; and the bounded merge of Agarwal et al. (2013),
k counters, with Gaussian noise that grows with sqrt(k) (`sketches.one_sided`). Neighbours are add/remove of one item
of one stream. `release` takes the one of the lower threshold, which is a function of public numbers.
"""

import hashlib
import io
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.channels.contributions import MOST_KEYS
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.sketches.misra_gries import MisraGries
from dpsieve.sketches.one_sided import OneSidedSketch, one_sided_sketch
from dpsieve.sketches.releasing import Terms, released
from dpsieve.sketches.summed import SummedSketch, summed_sketch
from dpsieve.sketches.universe import released_over

if TYPE_CHECKING:
    from dpsieve.output import Release
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.randomness.source import Source

_NAMES = ["key", "value"]
METHODS = ("auto", "sum", "bounded")
_MOST = 2**62


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

    MAGIC = b"dpsieve merged\x01"  # what `to_bytes` begins with

    def __init__(self, counters: int) -> None:
        self.counters, self.sources, self.items, self.lost = counters, 0, 0, 0
        self.kind: str | None = None
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
        return next((row["value"] for row in self._bounded.to_pylist() if row["key"] == item), 0)

    lower = estimate

    def upper(self, item: Any) -> int:
        """Return an upper bound on the true frequency of an item. A true value, not to be published."""
        return self.estimate(item) + self.lost

    def plan(
        self, epsilon: float, delta: float, *, method: str = "auto", unit: str = "one item"
    ) -> SummedSketch | OneSidedSketch:
        """Return what `release` would use, from public numbers alone: k, the number of sketches, epsilon and delta."""
        if method not in METHODS:
            raise InvalidValue(f"method is not known. Choose one of {', '.join(METHODS)}.")
        ways: list[SummedSketch | OneSidedSketch] = []
        if method != "bounded":
            ways.append(summed_sketch(epsilon, delta, self.counters, max(1, self.sources), unit=unit))
        if method == "bounded" or (method == "auto" and self.counters < MOST_KEYS):
            ways.append(one_sided_sketch(epsilon, delta, self.counters, unit=unit))
        return min(ways, key=lambda way: way.threshold)

    def release(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        universe: Any = None,
        false_keys: float = 1.0,
        method: str = "auto",
        unit: str = "one item",
        ledger: "Ledger | None" = None,
        note: str = "",
        source: "Source | None" = None,
    ) -> "Release":
        """Release keys and counts, (epsilon, delta)-private when one item of one stream is added or removed.

        With a known `universe`, delta is 0 (see `MisraGries.release`). Without, 'auto' takes the way of the lower
        threshold: 'sum' or 'bounded'. The intervals are for the true frequencies over all streams.
        """
        terms = Terms(unit, ledger, note, source)
        if universe is not None:
            return released_over(universe, self, epsilon, delta, false_keys=false_keys, items_per_unit=1, terms=terms)
        way = self.plan(epsilon, delta, method=method, unit=unit)
        table, lost = (self.summed, self.items) if isinstance(way, SummedSketch) else (self._bounded, self.lost)
        name = "the sum of the sketches" if isinstance(way, SummedSketch) else "the bounded merge"
        why = f"{name}, with threshold {way.threshold:.4g}" + (", was asked for" if method != "auto" else "")
        keys, values = table["key"].combine_chunks(), table["value"].to_numpy()
        return released(way, keys, values, lost, why, terms)

    def to_bytes(self) -> bytes:
        """Return the whole state, with a digest. It holds true values: keep it as safe as the data."""
        out = io.BytesIO()
        numbers = (self.counters, self.sources, self.items, self.lost)
        for table in (self.summed, self._bounded):
            part = io.BytesIO()
            with pa.ipc.new_stream(part, table.schema) as writer:
                writer.write_table(table)
            out.write(struct.pack("<q", part.tell()) + part.getvalue())
        body = struct.pack("<4q16s", *numbers, (self.kind or "").encode()) + out.getvalue()
        return self.MAGIC + hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, state: bytes) -> "MergedSketch":
        """Return the sketch whose `to_bytes` is given; anything else is refused."""
        wrong = "state is not a merged sketch, or it was damaged. Pass what to_bytes returned."
        head = len(cls.MAGIC) + 32
        if (
            not isinstance(state, bytes | bytearray)
            or len(state) < head + 48
            or bytes(state[: len(cls.MAGIC)]) != cls.MAGIC
        ):
            raise UnreadableData(wrong)
        body = bytes(state[head:])
        if hashlib.sha256(body).digest() != state[len(cls.MAGIC) : head]:
            raise UnreadableData(wrong)
        try:
            counters, sources, items, lost, kind = struct.unpack_from("<4q16s", body)
            made, place, tables = cls(counters), 48, []
            for _ in range(2):
                (size,) = struct.unpack_from("<q", body, place)
                tables.append(pa.ipc.open_stream(body[place + 8 : place + 8 + size]).read_all())
                tables[-1].validate(full=True)
                place += 8 + size
            made.kind = kind.rstrip(b"\0").decode() or None
        except (struct.error, pa.ArrowException, UnicodeError, OSError, ValueError):
            tables = []
        if (
            len(tables) != 2
            or min(counters - 1, sources, items, lost) < 0
            or any(t.schema.names != _NAMES for t in tables)
        ):
            raise UnreadableData(wrong)
        made.sources, made.items, made.lost = sources, items, lost
        made.summed, made._bounded = tables
        return made

    def _add(self, other: "MergedSketch") -> None:
        """Add sums to sums, and merge counters: subtract the (k+1)-st largest and drop what is not above zero."""
        if (self.items + other.items) * (self.counters + 1) >= _MOST:
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
    if sketch.items * (sketch.counters + 1) >= _MOST:
        raise InvalidValue("the stream is too long for a sketch of this size. Use fewer counters.")
    made = MergedSketch(sketch.counters)
    keys, counts = sketch.keys_and_counts()
    made.kind, made.sources, made.items, made.lost = sketch.kind, 1, sketch.items, sketch.decrements
    made.summed = _table(keys, (counts + sketch.decrements) * (sketch.counters + 1) - sketch.items)
    made._bounded = _table(keys, counts)
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
    return pa.table({"key": whole["key"], "value": whole["value_sum"]})
