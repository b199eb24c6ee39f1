"""A sketch for users with sets of items: whatever the size of the sets, one user changes each counter by at most one.

All items of a user enter together: each raises its counter by 1, or starts one. If more than k keys are held then, all
counters are lowered by 1, once, and keys at zero leave. Each lowering subtracts at least k + 1, so a counter is at most
N/(k+1) below the true number of users, for N items in all. Merging subtracts the (k+1)-st largest sum from all, so this
bound stays, and a merged sketch can be updated further. Neighbours are add/remove of one user, with the complete set.
Proof: docs/background/streams.md#proof-sketches-of-users.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact import exact_sum
from dpsieve.locks import OneThread
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import MOST_COUNTERS
from dpsieve.sketches.misra_gries import add_tables, common_shape, positive
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.sketch import MOST_ITEMS, Sketch, State, Table, release_table
from dpsieve.types import Ints
from dpsieve.values.columns import check_kind, column_of_items, converted, is_sound, kind_of_type, plain_items

_HINT = "Pass the sets of several users: a list of lists, or an Arrow array of lists, of texts, bytes or whole numbers."
_NO_SETS = f"sets cannot be read as sets of items. {_HINT}"


class UserMisraGries(Sketch):
    """Counts the users whose sets contain each key, with `counters` counters. True values: do not publish them.

    The first item decides the kind of all others. Use a sketch in one thread at a time: a second thread gets an error.

    >>> sketch = UserMisraGries(counters=2)
    >>> sketch.update([["tea", "milk"], ["tea"], ["tea", "salt", "milk"]])
    >>> sketch.estimate("tea"), sketch.users, sketch.decrements
    (2, 3, 1)
    """

    _numbers: ClassVar[int] = 4

    decrements: int = 0

    def __init__(self, counters: int) -> None:
        hint = f"Pass how many keys to hold, at most {MOST_COUNTERS:,}: the noise grows with the square root."
        super().__init__(counters, MOST_COUNTERS, hint)
        self.users = self.items = 0
        self._held = Table(pa.nulls(0), np.empty(0, np.int64))  # in any order
        self._alone = OneThread("this sketch")

    def __len__(self) -> int:
        return len(self._held.values)

    def update(self, sets: Any) -> None:
        """Count the sets of users, one after the other; repeated items of a user count once.

        One element is the complete set of one user. Nulls are ignored. The result does not depend on how users are
        divided into batches. An update that fails changes nothing.
        """
        values, offsets = _flatten(sets)
        with self._alone:
            self._count(values, offsets)

    def _count(self, values: pa.Array, offsets: Ints) -> None:
        """Count sets, given as their concatenated items and offsets."""
        from dpsieve.sketches.integer_loops import count_sets

        if not len(values):
            self.users += len(offsets) - 1
            return
        kind = kind_of_type(values.type)
        check_kind("sets", kind, self._kind)
        every = values if self._kind is None else pa.concat_arrays([self._held.keys, values])
        coded = every.dictionary_encode()  # the held keys come first, in their order
        codes, known = coded.indices.to_numpy().astype(np.int64), len(self)
        stored = np.zeros(len(coded.dictionary), np.int64)
        stored[:known] = self._held.values
        remaining, lowered, counted = count_sets(codes[known:], offsets, stored, known, self.counters)
        table = Table(coded.dictionary.take(pa.array(remaining)), stored[remaining] - lowered)
        users, items, decrements = self.users + len(offsets) - 1, self.items + counted, self.decrements + lowered
        self._kind, self._held, self.users, self.items, self.decrements = kind, table, users, items, decrements

    def merge(self, other: "UserMisraGries") -> "UserMisraGries":
        """Return a sketch of the users of both, which can be updated further; both inputs are unchanged.

        A user must be in one of them only: with a set in each, it would change counters by two. So distribute users
        among the sketches, not rows.

        >>> first, second = UserMisraGries(2), UserMisraGries(2)
        >>> first.update([["tea", "milk"], ["tea"]])
        >>> second.update([["tea", "salt"], ["salt"]])
        >>> both = first.merge(second)
        >>> dict(both), both.users, both.decrements
        ({'salt': 1, 'tea': 2}, 4, 1)
        """
        if not isinstance(other, UserMisraGries):
            raise InvalidType(f"other must be a UserMisraGries, not {type(other).__name__}.")
        counters, kind = common_shape((self, other))
        merged = UserMisraGries(counters)
        (_, (_, *numbers), table), (_, (_, *others), added) = self.snapshot(), other.snapshot()
        merged.users, merged.items, merged.decrements = (sum(both) for both in zip(numbers, others, strict=True))
        if max(merged.users, merged.items) > MOST_ITEMS:
            raise InvalidValue("the sketches have counted too many users for one sketch. Release them apart.")
        merged._kind, (merged._held, over) = kind, bounded_merge(table, added, counters)
        merged.decrements += over
        return merged

    def release(
        self,
        epsilon: float,
        delta: float,
        *,
        unit: str = "one user",
        ledger: AnyLedger = None,
        note: str = "",
        source: Source | None = None,
    ) -> Release:
        """Release keys and counts with (epsilon, delta)-differential privacy when one user is added or removed.

        Gaussian noise and a threshold, which grow with the square root of `counters`, not with the size of the sets
        (`sketches.one_sided_noise`). The intervals are for the true numbers of users, including what the sketch lost.
        `count` is the noisy counter (column `counter`) plus the noisy loss, clipped to the interval: close to the truth
        for keys that occur throughout, and too high, by up to the loss, for those of late or adjacent users.

        The protected unit is the owner of one set. `unit` names it, such as 'one device' for a set per device, and must
        equal that of a ledger to be charged.
        """
        mechanism = OneSidedSketch(epsilon, delta, self.counters, unit=unit)
        _, (*_, decrements), table = self.snapshot()
        reason = "one user changes each counter by at most one, all in one direction"
        return release_table(mechanism, table, decrements, reason, ledger=ledger, note=note, source=source)

    def snapshot(self) -> State:
        with self._alone:
            keys, counts = self._held
            order = pc.sort_indices(keys) if len(keys) else pa.array([], pa.int64())
            table = Table(keys.take(order), counts[order.to_numpy()])
            return State(self._kind, (self.counters, self.users, self.items, self.decrements), table)

    @classmethod
    def _of(cls, state: State) -> Self | None:
        """A user raises a counter by at most one; lowering all, or merging, subtracts k + 1 or more in total."""
        kind, (counters, users, items, decrements), (keys, counts) = state
        left = items - decrements * (counters + 1) - exact_sum(counts)
        if (
            (kind is None) != (items == 0)
            or len(keys) > counters
            or left < 0
            or (decrements == 0 and left > 0)
            or counts.min(initial=1) < 1
            or int(counts.max(initial=0)) + decrements > users
        ):
            return None
        sketch = cls(counters)
        sketch._kind, sketch.users, sketch.items, sketch.decrements = kind, users, items, decrements
        sketch._held = Table(keys, counts)
        return sketch


def bounded_merge(first: Table, second: Table, counters: int) -> tuple[Table, int]:
    """Return the sums of counters minus the (k+1)-st largest, where positive, and that (k+1)-st largest sum."""
    keys, values = add_tables(first, second)
    over = int(np.partition(values, -counters - 1)[-counters - 1]) if len(values) > counters else 0
    return positive(keys, values - over), over


def _flatten(sets: Any) -> tuple[pa.Array, Ints]:
    """Return the items of all sets, of one kind and without nulls, and the offsets of the sets."""
    if isinstance(sets, pa.Array | pa.ChunkedArray):
        values, offsets = _flatten_arrow(sets)
    else:
        rows = [_as_list(items) for items in _as_list(sets) if items is not None]
        values = column_of_items(list(chain.from_iterable(rows)), "sets", _HINT)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(present)])[offsets]
    return plain_items(values, "sets", _HINT), offsets


def _flatten_arrow(sets: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    if sets.null_count == len(sets):
        return pa.nulls(0), np.zeros(1, np.int64)
    if not (pa.types.is_list(sets.type) or pa.types.is_large_list(sets.type)):
        raise InvalidType(_NO_SETS)
    if not is_sound(sets):
        raise InvalidValue(f"sets is a broken Arrow array, or has text that is not UTF-8. {_HINT}")
    item_type = sets.type.value_type
    if pa.types.is_string_view(item_type) or pa.types.is_binary_view(item_type):  # not selectable in Arrow
        item_type = pa.large_string() if pa.types.is_string_view(item_type) else pa.large_binary()
    # Drop values under nulls, which are not items.
    lists = converted(lambda: sets.cast(pa.large_list(item_type)).drop_null(), "sets", _HINT)
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    offsets = lists.offsets.to_numpy()
    values = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values, offsets - offsets[0]


def _as_list(values: Any) -> list[Any]:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return list(values.to_pylist())
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | bytearray | memoryview | Mapping):
        return list(values)
    raise InvalidType(_NO_SETS)
