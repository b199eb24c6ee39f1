"""Sketches of many streams, brought together by a trusted aggregator, and two ways to release them.

A merged sketch keeps both: the sum of the post-processed sketches (`sketches.rounded`), whose noise does not grow with
the number of streams nor with k, but which holds up to k keys a stream; and the bounded merge of Agarwal et al. (2013),
k counters, with Gaussian noise that grows with sqrt(k) (`sketches.one_sided`). Over a known universe both get Laplace
noise (`sketches.summed_noise`). Neighbours are add/remove of one item of one stream. `release` takes the one of the
lower threshold, which is a function of public numbers.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source
from dpsieve.sketches.misra_gries import MisraGries
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.releasing import noisy_release, release_over
from dpsieve.sketches.rounded_noise import RoundedSketch
from dpsieve.sketches.sketch import MOST_COUNTERS, MOST_ITEMS, Sketch, State, Table, total
from dpsieve.sketches.summed_noise import MOST_SOURCES
from dpsieve.types import Ints
from dpsieve.values.columns import Kind

METHODS = ("auto", "sum", "bounded")


class MergedSketch(Sketch):
    """Misra-Gries sketches of several streams together. What it holds is true: not to be published.

    It cannot be updated: finish the sketches of the streams first, then merge them. The streams must not share items:
    one that is in two of them, such as in a sketch and in a later state of the same sketch, counts and weighs twice.

    Attributes:
        sources: how many sketches are in it.
        items: how many items they have seen.
        decrements: how much the counters of the bounded merge may be below the truth.
        summed, bounded: the sum of the post-processed sketches, in units of 1/(k+1), and the bounded merge.

    >>> first, second = MisraGries(2), MisraGries(2)
    >>> first.update(["tea", "tea", "milk"])
    >>> second.update(["tea", "salt", "rice"])
    >>> merged = first.merge(second)
    >>> merged.sources, merged.items, merged.estimate("tea")
    (2, 6, 2)
    """

    _numbers: ClassVar[int] = 4
    _tables: ClassVar[int] = 2

    decrements: int = 0

    def __init__(self, counters: int) -> None:
        super().__init__(counters, MOST_COUNTERS, "Pass the size of the sketches to merge, such as counters=1024.")
        self.sources = self.items = 0
        self.summed = self.bounded = Table(pa.array([], pa.string()), np.empty(0, np.int64))

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
        return len(self.bounded.values)

    def merge(self, other: "MisraGries | MergedSketch") -> "MergedSketch":
        """Return this and another sketch together."""
        return MergedSketch.of(self, other)

    def plan(self, epsilon: float, delta: float, *, method: str = "auto") -> RoundedSketch | OneSidedSketch:
        """Return what `release` would use, from public numbers alone: k, the number of sketches, epsilon and delta."""
        _check_method(method)
        ways: list[RoundedSketch | OneSidedSketch] = []
        if method != "bounded":
            ways.append(RoundedSketch(epsilon, delta, self.counters, max(1, self.sources)))
        if method != "sum":
            ways.append(OneSidedSketch(epsilon, delta, self.counters))
        return min(ways, key=lambda way: way.threshold)

    def release(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        universe: Any = None,
        false_keys: float = 1.0,
        method: str = "auto",
        ledger: AnyLedger = None,
        note: str = "",
        source: Source | None = None,
    ) -> Release:
        """Release keys and counts, (epsilon, delta)-private when one item of one stream is added or removed.

        With a known `universe`, delta is 0 (see `MisraGries.release`). The method 'auto' takes the way of the lower
        threshold: 'sum' or 'bounded'; over a universe that is always 'sum', but where the streams are so skewed that
        little was lost, 'bounded' may tell more. The intervals are for the true frequencies over all streams. In a sum
        a key has no value before it has N/(k+1) items of all N, and must reach the threshold above that.
        """
        terms: dict[str, Any] = {"ledger": ledger, "note": note, "source": source}
        if universe is not None:
            _check_method(method)
            return release_over(universe, self, epsilon, delta, false_keys, 1, method, **terms)
        way = self.plan(epsilon, delta, method=method)
        table, lost, reason = self.bounded, self.decrements, f"the bounded merge, with threshold {way.threshold:.4g}"
        if isinstance(way, RoundedSketch):
            table, lost = self.summed, self.items
            more = f"and 1/{way.parts:,} of all items more"
            reason = f"the sum of the sketches: a key needs {way.threshold:.4g} items by threshold, {more}"
        reason += ", as requested" if method != "auto" else ""
        return noisy_release(way, table, lost, reason, **terms)

    def snapshot(self) -> State:
        """Return the whole state at one moment. True values."""
        numbers = self.counters, self.sources, self.items, self.decrements
        return State(self.kind, numbers, (self.summed, self.bounded))

    @classmethod
    def _of(cls, state: State) -> Self | None:
        made = cls(state.numbers[0])
        made._kind, (_, made.sources, made.items, made.decrements) = state.kind, state.numbers
        made.summed, made.bounded = state.tables
        return made if made._is_possible() else None

    def _is_possible(self) -> bool:
        """Return whether the numbers agree.

        In one sketch the counters c add up to S = n - gamma (k+1), and the sum holds (k+1) c - S where it is positive:
        at most (k+1) c each, and k S together. A merge adds these up; it takes `over` from k + 1 counters or more.
        """
        size, (keys, values), (held, counters) = self.counters + 1, self.summed, self.bounded
        left = self.items - self.decrements * size - total(counters)
        if (
            (self.kind is None) != (self.items == 0)
            or self.sources > MOST_SOURCES
            or self.items * size >= MOST_ITEMS
            or left < 0
            or (self.sources < 2 and left > 0)
            or len(held) > self.counters
            or len(keys) > self.counters * self.sources
            or total(values) > self.counters * self.items
            or min(values.min(initial=1), counters.min(initial=1)) < 1
        ):
            return False
        if not len(keys):
            return True
        places = pc.fill_null(pc.index_in(keys, value_set=held), len(held)).to_numpy()
        return bool((values <= (np.append(counters, 0)[places] + self.decrements) * size).all())

    def _add(self, other: "MergedSketch") -> None:
        """Add sums to sums, and merge counters: subtract the (k+1)-st largest and drop what is not above zero."""
        if (self.items + other.items) * (self.counters + 1) >= MOST_ITEMS:
            raise InvalidValue("the streams are too long for sketches of this size. Use fewer counters.")
        self.summed = _together(self.summed, other.summed)
        self.bounded, over = bounded_merge(self.bounded, other.bounded, self.counters)
        self.sources, self.items = self.sources + other.sources, self.items + other.items
        self.decrements += other.decrements + over


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise InvalidValue(f"method is not known. Choose one of {', '.join(METHODS)}.")


def common_shape(sketches: Sequence[Sketch]) -> tuple[int, Kind | None]:
    """Return the number of counters and the kind of keys of sketches that can be merged; refuse others."""
    if len({id(sketch) for sketch in sketches}) < len(sketches):
        raise InvalidValue("a sketch would be merged with itself. Pass sketches of streams that share no item.")
    sizes, kinds = {sketch.counters for sketch in sketches}, {sketch.kind for sketch in sketches} - {None}
    if len(sizes) > 1:
        raise InvalidValue(f"sketches differ in size: {sorted(sizes)}. Merge sketches of the same size.")
    if len(kinds) > 1:
        raise InvalidType(f"sketches hold different kinds of keys: {', '.join(sorted(map(str, kinds)))}.")
    return sizes.pop(), kinds.pop() if kinds else None


def bounded_merge(first: Table, second: Table, counters: int) -> tuple[Table, int]:
    """Return the sums of counters less the (k+1)-st largest, where they are above zero, and what was taken away."""
    keys, values = _together(first, second)
    over = int(np.partition(values, -counters - 1)[-counters - 1]) if len(values) > counters else 0
    return _positive(keys, values - over), over


def _single(sketch: MisraGries) -> MergedSketch:
    """Return one sketch as a merged one; v is counted in units of 1/(k+1)."""
    kind, (counters, items, decrements), ((keys, counts),) = sketch.snapshot()
    if items * (counters + 1) >= MOST_ITEMS:
        raise InvalidValue("the stream is too long for a sketch of this size. Use fewer counters.")
    made = MergedSketch(counters)
    made._kind, made.sources, made.items, made.decrements = kind, 1, items, decrements
    made.summed = _positive(keys, (counts + decrements) * (counters + 1) - items)
    made.bounded = _positive(keys, counts)
    return made


def _positive(keys: pa.Array, values: Ints) -> Table:
    """Return the keys whose values are above zero."""
    held = np.flatnonzero(values > 0)
    return Table(keys.take(pa.array(held)), values[held])


def _together(first: Table, second: Table) -> Table:
    """Return two tables with the values of equal keys added up, sorted by key."""
    if not len(first.values) or not len(second.values):
        return second if len(second.values) or pa.types.is_null(first.keys.type) else first
    whole = pa.concat_tables(pa.table({"key": table.keys, "value": table.values}) for table in (first, second))
    whole = whole.group_by("key").aggregate([("value", "sum")]).sort_by("key")
    return Table(whole["key"].combine_chunks(), whole["value_sum"].to_numpy())
