"""The Misra-Gries sketch in the variant whose neighbouring streams give nearly the same state (Algorithm 12).

The sketch holds k keys with a counter each; at first these are dummies, greater than every real key, with counters 0.
For each item x:

1. If x is held, its counter grows by one.
2. Else, if all counters are at least 1, all of them drop by one, and x is forgotten.
3. Else the smallest key whose counter is 0 leaves, and x takes its place with the counter 1.

A key whose counter is 0 stays until its place is needed. What "smallest" means is fixed: integers are ordered by value,
text and bytes as `compiled.texts` says. With f occurrences of a key among n items, its counter is between f - n/(k + 1)
and f, where a key that is not held has counter 0. Leaving one item out of a stream either adds one to all counters and
takes one from `decrements`, or takes one from a single counter; and at least k - 2 of the keys are the same.

An item costs a search in a hash table, and its share of sorting the zero counters: in total O(log k) on average.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType
from dpsieve.one_thread import OneThread
from dpsieve.randomness.source import Words, resolve
from dpsieve.sketches import saved
from dpsieve.sketches.batches import batch_of
from dpsieve.sketches.layout import MOST_COUNTERS
from dpsieve.sketches.store import Store
from dpsieve.values.items import Kind, check_kind

if TYPE_CHECKING:
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.publication import Release
    from dpsieve.randomness.source import Source
    from dpsieve.sketches.merged import MergedSketch


class MisraGries:
    """Estimates how often items occur in a stream, with a fixed number of counters.

    Keys and counters are true values: they tell what is in the data, and are not to be published.

    >>> sketch = MisraGries(counters=2)
    >>> sketch.update(["tea", "tea", "milk", "tea", "water"])
    >>> sketch.estimate("tea"), sketch.upper("tea")
    (2, 3)
    >>> sketch
    <MisraGries of 2 counters>

    The first item settles whether a sketch counts integers (of 64 bits), text or bytes. A sketch is for one thread at a
    time: a second one that uses it meanwhile gets an error.
    """

    def __init__(self, counters: int) -> None:
        hint = "Pass how many keys to hold, such as counters=1024; the error is at most items / (counters + 1)."
        self._counters = validate.whole("counters", counters, low=1, high=MOST_COUNTERS, hint=hint)
        self._kind: Kind | None = None
        self._store: Store | None = None
        self._alone = OneThread("this sketch")

    @property
    def counters(self) -> int:
        """The number of counters, k."""
        return self._counters

    @property
    def kind(self) -> Kind | None:
        """What is counted: 'integers', 'text' or 'bytes'; None before the first item."""
        return self._kind

    @property
    def items(self) -> int:
        """The number of items counted so far, n; nulls are not among them. A true value."""
        return int(self._store.state["items"]) if self._store else 0

    @property
    def decrements(self) -> int:
        """How often all counters were lowered: the most that any estimate is too low by. A true value."""
        return int(self._store.state["decrements"]) if self._store else 0

    def update(self, items: Any) -> None:
        """Count a batch of items, in order; where a stream is cut into batches makes no difference.

        Takes Arrow arrays, NumPy arrays, pandas and Polars Series, lists and other iterables: see `sketches.batches`.
        Nulls are dropped. Items that cannot be counted raise before any of the batch is.
        """
        batch = batch_of(items)
        if batch.kind is None:
            return
        with self._alone:
            check_kind("items", batch.kind, self._kind)
            if self._store is None:
                self._kind, self._store = batch.kind, _new_store(batch.kind, self._counters)
            for block in batch.blocks():
                self._store.update(*block)

    def estimate(self, item: str | bytes | int) -> int:
        """Return the counter of an item, 0 where it is not held: at most as many as it occurred. A true value."""
        return self._find(item) or 0

    def lower(self, item: str | bytes | int) -> int:
        """Return the least number of times that an item may have occurred, which is its counter. A true value."""
        return self._find(item) or 0

    def upper(self, item: str | bytes | int) -> int:
        """Return the largest number of times that an item may have occurred. A true value."""
        return (self._find(item) or 0) + self.decrements

    def keys_and_counts(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the keys held, sorted (text and bytes by their bytes), and their counters. True values.

        Keys are of the Arrow type int64, large_string or large_binary; null, without any, before the first item. Those
        with counter 0 are among them.
        """
        state = self.snapshot()
        return state.keys, state.counts

    def snapshot(self) -> saved.State:
        """Return the whole state at one moment. True values."""
        with self._alone:
            none = pa.nulls(0), np.empty(0, np.int64)
            held = none if self._store is None else self._store.keys_and_counts()
            return saved.State(self._counters, self._kind, self.items, self.decrements, *held)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        keys, counts = self.keys_and_counts()
        return iter(zip(keys.to_pylist(), counts.tolist(), strict=True))

    def __len__(self) -> int:
        return int(self._store.state["held"]) if self._store else 0

    def merge(self, other: "MisraGries | MergedSketch") -> "MergedSketch":
        """Return this and another sketch, of another stream, together; both stay as they are."""
        from dpsieve.sketches.merged import MergedSketch

        return MergedSketch.of(self, other)

    def release(
        self,
        epsilon: float,
        delta: float = 0.0,
        *,
        universe: Any = None,
        false_keys: float = 1.0,
        items_per_unit: int = 1,
        ledger: "Ledger | None" = None,
        note: str = "",
        source: "Source | None" = None,
    ) -> "Release":
        """Release the most common keys, with counts and intervals, under differential privacy.

        Neighbours are add/remove of one unit, which may have up to `items_per_unit` items anywhere in the stream. With
        a delta above zero, noise and a threshold (`sketches.noisy`); with a known `universe`, a range of integers or
        all keys that can occur, pure privacy (`sketches.summed`), of which about `false_keys` are keys that do not
        occur. All intervals hold the true frequencies, what the sketch lost included, together with probability 0.95.

        The guarantee names what is protected: 'one item', or 'one unit with at most m items'. A sketch does not know
        whose items it counts, so it promises nothing else; a ledger to be charged must be for the same unit.

        Args:
            epsilon, delta: the budget of this release.
            universe: all keys that can occur; delta is 0 then. Keys outside of it are left out, those of another kind
                too: whether a call succeeds must not tell what the stream holds.
            false_keys: how many keys that do not occur are expected to come out, with a universe.
            items_per_unit: how many items one unit may have; paid for by group privacy. Nothing checks that no unit
                has more.
            ledger: the budget to charge, before anything is drawn.
            note: what this release is for, kept in the ledger.
            source: randomness for tests; the release then says that it is unsafe to publish.
        """
        from dpsieve.sketches.releasing import Terms, released_sketch

        return released_sketch(
            self, epsilon, delta, universe=universe, false_keys=false_keys, items_per_unit=items_per_unit,
            terms=Terms(ledger, note, source),
        )  # fmt: skip

    def to_bytes(self) -> bytes:
        """Return the whole state, keys and counters included, to be kept as safe as the data."""
        return saved.pack(self.snapshot())

    @classmethod
    def from_bytes(cls, data: bytes) -> "MisraGries":
        """Return the sketch that `to_bytes` saved; it goes on exactly as the saved one would have.

        Bytes that are not whole, or tell of a state that no stream leads to, raise `UnreadableData`.
        """
        state = saved.unpack(data)
        sketch = cls(state.counters)
        if state.kind is not None:
            store = _new_store(state.kind, state.counters)
            store.restore(batch_of(state.keys), state.keys, state.counts, state.items, state.decrements)
            sketch._kind, sketch._store = state.kind, store
        return sketch

    def __reduce__(self) -> tuple[Any, ...]:
        return MisraGries.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"<MisraGries of {self._counters:,} counters>"

    def _find(self, item: str | bytes | int) -> int | None:
        batch = batch_of([item])
        if batch.kind is None:
            raise InvalidType("item must be text, bytes or an integer, not None.")
        with self._alone:
            check_kind("item", batch.kind, self._kind)
            return None if self._store is None else self._store.find(*next(batch.blocks()))


def _salt() -> Words:
    """Return secret words, so that nobody can make up keys that collide in a table."""
    return resolve(None).words(4)


def _new_store(kind: Kind, counters: int) -> Store:
    """Return an empty store. Only here are the compiled loops loaded."""
    if kind == "integers":
        from dpsieve.sketches.integers import Integers

        return Integers(counters, _salt())
    from dpsieve.sketches.texts import Texts

    return Texts(counters, _salt(), binary=kind == "bytes")
