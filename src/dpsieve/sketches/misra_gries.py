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

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dpsieve.errors import InvalidType
from dpsieve.locks import OneThread
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source, resolve
from dpsieve.sketches.batches import batch_of
from dpsieve.sketches.laplace_noise import NoisySketch
from dpsieve.sketches.releasing import noisy_release, release_over
from dpsieve.sketches.sketch import MOST_COUNTERS, Sketch, State, Table, total
from dpsieve.types import Words
from dpsieve.values.columns import Kind, check_kind

if TYPE_CHECKING:
    from dpsieve.sketches.counter_tables import CounterTable
    from dpsieve.sketches.merged import MergedSketch


class MisraGries(Sketch):
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

    _numbers: ClassVar[int] = 3

    def __init__(self, counters: int) -> None:
        hint = "Pass how many keys to hold, such as counters=1024; the error is at most items / (counters + 1)."
        super().__init__(counters, MOST_COUNTERS, hint)
        self._table: CounterTable | None = None
        self._alone = OneThread("this sketch")

    @property
    def items(self) -> int:
        """The number of items counted so far, n; nulls are not among them. A true value."""
        return int(self._table.state["items"]) if self._table else 0

    @property
    def decrements(self) -> int:
        """How often all counters were lowered. A true value."""
        return int(self._table.state["decrements"]) if self._table else 0

    def update(self, items: Any) -> None:
        """Count a batch of items, in order; where a stream is cut into batches makes no difference.

        Takes Arrow arrays, NumPy arrays, pandas and Polars Series, lists and iterables: see `values.columns`. Nulls
        are dropped. Items that cannot be counted raise before any of the batch is.
        """
        batch = batch_of(items)
        if batch.kind is None:
            return
        with self._alone:
            check_kind("items", batch.kind, self._kind)
            if self._table is None:
                self._kind, self._table = batch.kind, _new_table(batch.kind, self._counters)
            for block in batch.blocks():
                self._table.update(*block)

    def estimate(self, item: str | bytes | int) -> int:
        """Return the counter of an item, 0 where it is not held: at most its true frequency. A true value."""
        batch = batch_of([item])
        if batch.kind is None:
            raise InvalidType("item must be text, bytes or an integer, not None.")
        with self._alone:
            check_kind("item", batch.kind, self._kind)
            return 0 if self._table is None else self._table.find(*next(batch.blocks()))

    def __len__(self) -> int:
        return int(self._table.state["held"]) if self._table else 0

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
        ledger: AnyLedger = None,
        note: str = "",
        source: Source | None = None,
    ) -> Release:
        """Release the most common keys, with counts and intervals, under differential privacy.

        Neighbours are add/remove of one unit, which may have up to `items_per_unit` items anywhere in the stream.
        With a delta above zero, noise and a threshold (`sketches.laplace_noise`); with a known `universe`, a range of
        integers or all keys that can occur, pure privacy (`sketches.summed_noise`), of which about `false_keys` do
        not occur. All intervals hold the true frequencies, what the sketch lost included, together with probability
        0.95.

        The column `counter` is the noisy counter T, which is below the truth by what the sketch lost; `count` is
        T + max(G, 0) for the noisy number of decrements G, cut to the interval. It is near the truth for keys that come
        all along the stream, and too high, by up to G, for keys whose items come late or in bursts, as in a stream that
        is sorted by key, by rarity or by topic.

        The guarantee names what is protected: 'one item', or 'one unit with at most m items'. A sketch does not know
        whose items it counts, so it promises nothing else; a ledger to be charged must be for the same unit.

        Args:
            epsilon, delta: the budget of this release.
            universe: all keys that can occur; delta is 0 then. Keys outside of it are left out, those of another kind
                too: whether a call succeeds must not tell what the stream holds.
            false_keys: how many keys that do not occur are expected to come out, with a universe.
            items_per_unit: how many items one unit may have; paid for by group privacy. Nothing checks that no unit
                has more.
            ledger: the budget to charge, or its path; it is charged before anything is drawn.
            note: what this release is for, kept in the ledger.
            source: randomness for tests; the release then says that it is unsafe to publish.
        """
        terms: dict[str, Any] = {"ledger": ledger, "note": note, "source": source}
        if universe is not None:
            from dpsieve.sketches.merged import MergedSketch

            whole = MergedSketch.of(self)
            return release_over(universe, whole, epsilon, delta, false_keys, items_per_unit, **terms)
        mechanism = NoisySketch(epsilon, delta, self.counters, items_per_unit)
        _, (_, _, decrements), (table,) = self.snapshot()
        reason = f"noise for a sketch of {self.counters:,} counters, and a threshold of {mechanism.threshold:,}"
        if items_per_unit > 1:
            reason += f"; a unit of {items_per_unit:,} items is paid for by group privacy"
        return noisy_release(mechanism, table, decrements, reason, **terms)

    def snapshot(self) -> State:
        """Return the whole state at one moment. True values."""
        with self._alone:
            none = pa.nulls(0), np.empty(0, np.int64)
            held = none if self._table is None else self._table.keys_and_counts()
            return State(self._kind, (self._counters, self.items, self.decrements), (Table(*held),))

    @classmethod
    def _of(cls, state: State) -> Self | None:
        """Each item adds one to one counter, or takes one from all k and is forgotten: the counters add up."""
        kind, (counters, items, decrements), ((keys, counts),) = state
        if (
            (kind is None) != (len(keys) == 0)
            or len(keys) > counters
            or total(counts) != items - decrements * (counters + 1)
            or (len(keys) < counters and decrements > 0)
            or (decrements == 0 and not (counts > 0).all())
        ):
            return None
        sketch = cls(counters)
        if kind is not None:
            sketch._kind, sketch._table = kind, _new_table(kind, counters)
            sketch._table.restore(batch_of(keys), keys, counts, items, decrements)
        return sketch


def _salt() -> Words:
    """Return secret words, so that nobody can make up keys that collide in a table."""
    return resolve(None).words(4)


def _new_table(kind: Kind, counters: int) -> "CounterTable":
    """Return an empty table. Only here are the compiled loops loaded."""
    from dpsieve.sketches.counter_tables import new_table

    return new_table(kind, counters, _salt())
