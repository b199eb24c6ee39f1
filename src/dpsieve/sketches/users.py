"""A sketch for users who hold sets of items: however large the sets, one user changes each counter by at most one.

All items of a user enter together: each raises its counter by 1, or starts one. If more than k keys are held then, all
counters are lowered by 1, once, and keys at zero leave. Each lowering takes at least k + 1 away, so a counter is at
most N/(k+1) below the true number of users, for N items in all.

Neighbours are add/remove of one user, with the whole set. The states of `sketches.one_sided` are kept: say c - c' is
in {0, 1} for every key, so every key of the second is one of the first. The same set for both keeps that. If both are
lowered, the differences stay (0 stays 0). If one is, it is the first, as it holds as many keys or more; then c' - c is
in {0, 1}, and lost = lost' + 1. From there the roles are exchanged. The one user more leads from c = c' to either
state.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.channels.contributions import MOST_KEYS
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.one_thread import OneThread
from dpsieve.sketches.noisy import noisy_sketch
from dpsieve.sketches.one_sided import one_sided_sketch
from dpsieve.sketches.releasing import Terms, released
from dpsieve.values.items import (
    Kind,
    check_kind,
    column_of_items,
    converted,
    kind_of_type,
    one_item,
    plain_items,
    sound,
)

if TYPE_CHECKING:
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.publication import Release
    from dpsieve.randomness.source import Source

_HINT = "Pass the sets of several users: a list of lists, or an Arrow array of lists, of texts, bytes or whole numbers."
_NO_SETS = f"sets cannot be read as sets of items. {_HINT}"


class UserMisraGries:
    """Counts in how many users' sets each key is, in `counters` places. What it holds is true: not to be published.

    The first item settles the kind of all others. A sketch is for one thread at a time: a second one that uses it
    meanwhile gets an error.

    >>> sketch = UserMisraGries(counters=2)
    >>> sketch.update([["tea", "milk"], ["tea"], ["tea", "salt", "milk"]])
    >>> sketch.estimate("tea"), sketch.users, sketch.decrements
    (2, 3, 1)
    """

    def __init__(self, counters: int) -> None:
        hint = f"Pass how many keys to hold, at most {MOST_KEYS - 1:,}: the noise grows with the square root."
        self.counters = validate.whole("counters", counters, low=1, high=MOST_KEYS - 1, hint=hint)
        self.users = self.items = self.decrements = 0
        self.kind: Kind | None = None
        self._keys: pa.Array = pa.array([], pa.string())
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        self._alone = OneThread("this sketch")

    def __repr__(self) -> str:
        return f"<UserMisraGries of {self.counters:,} counters>"

    def __len__(self) -> int:
        return len(self._counts)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        keys, counts = self.keys_and_counts()
        return iter(zip(keys.to_pylist(), counts.tolist(), strict=True))

    def update(self, sets: Any) -> None:
        """Count the sets of some users, one after the other; an item that a user has twice counts once.

        The sets of one user must come together, in one element. Nulls are no items. Where the batches are cut does not
        matter. An update that fails changes nothing.
        """
        values, offsets = _flat(sets)
        with self._alone:
            self._count(values, offsets)

    def _count(self, values: pa.Array, offsets: NDArray[np.int64]) -> None:
        """Count sets whose items follow each other; without items, only the users."""
        from dpsieve.sketches.compiled.users import count_sets

        if not len(values):
            self.users += len(offsets) - 1
            return
        kind = kind_of_type(values.type)
        check_kind("sets", kind, self.kind)
        every = values if self.kind is None else pa.concat_arrays([self._keys, values])
        coded = every.dictionary_encode()  # the keys that are held come first, in their order
        codes, held = coded.indices.to_numpy().astype(np.int64), len(self._counts)
        stored = np.zeros(len(coded.dictionary), np.int64)
        stored[:held] = self._counts
        kept, lowered, counted = count_sets(codes[held:], offsets, stored, held, self.counters)
        keys, counts = coded.dictionary.take(pa.array(kept)), stored[kept] - lowered
        users, items, decrements = self.users + len(offsets) - 1, self.items + counted, self.decrements + lowered
        self.kind, self._keys, self._counts = kind, keys, counts
        self.users, self.items, self.decrements = users, items, decrements

    def keys_and_counts(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the keys, sorted, and their counters. True values, not to be published."""
        with self._alone:
            order = pc.sort_indices(self._keys)
            return self._keys.take(order), self._counts[order.to_numpy()]

    def estimate(self, item: Any) -> int:
        """Return the counter of an item, 0 if it is not held: at most the true number, and `decrements` below at most.

        A true value, not to be published.
        """
        keys, counts = self.keys_and_counts()
        place = pc.index_in(one_item(item, self.kind), value_set=keys)[0].as_py()
        return 0 if place is None else int(counts[place])

    def release(
        self,
        epsilon: float,
        delta: float,
        *,
        unit: str = "one user",
        ledger: "Ledger | None" = None,
        note: str = "",
        source: "Source | None" = None,
    ) -> "Release":
        """Release keys and counts with (epsilon, delta)-differential privacy when one user is added or removed.

        Gaussian noise with a threshold, which grow with the square root of `counters` and not with the size of the
        sets; see `sketches.one_sided`. The intervals are for the true numbers of users, what the sketch lost included.

        Protected is whoever has one set; `unit` names it, such as 'one device' for a set a device, and must be that of
        a ledger to be charged.
        """
        mechanism = one_sided_sketch(epsilon, delta, self.counters, unit=unit)
        keys, counts = self.keys_and_counts()
        why = "one user changes each counter by at most one, all in one direction"
        return released(mechanism, keys, counts, self.decrements, why, Terms(ledger, note, source))


def thresholds_for_users(epsilon: float, delta: float, counters: int, items_per_unit: int) -> dict[str, float]:
    """Return the threshold of each sketch for users of up to so many items: the lower one reports rarer keys.

    'MisraGries' pays by group privacy, so that its threshold grows with the items of a user; that of 'UserMisraGries'
    grows with the square root of the counters.

    >>> thresholds_for_users(1.0, 1e-8, 100, 20)
    {'MisraGries': 491, 'UserMisraGries': 327.2}
    """
    one = noisy_sketch(epsilon, delta, counters, items_per_unit).threshold
    return {"MisraGries": one, "UserMisraGries": round(one_sided_sketch(epsilon, delta, counters).threshold, 1)}


def _flat(sets: Any) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the items of all sets, one kind, without nulls, and where each set starts and ends."""
    if isinstance(sets, pa.Array | pa.ChunkedArray):
        values, offsets = _flat_arrow(sets)
    else:
        rows = [_listed(one) for one in _listed(sets) if one is not None]
        values = column_of_items(list(chain.from_iterable(rows)), "sets", _HINT)
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    if values.null_count:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        offsets = np.concatenate([[0], np.cumsum(present)])[offsets]
    return plain_items(values, "sets", _HINT), offsets


def _flat_arrow(sets: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.int64]]:
    if sets.null_count == len(sets):
        return pa.nulls(0), np.zeros(1, np.int64)
    if not (pa.types.is_list(sets.type) or pa.types.is_large_list(sets.type)):
        raise InvalidType(_NO_SETS)
    if not sound(sets):
        raise InvalidValue(f"sets is a broken Arrow array, or has text that is not UTF-8. {_HINT}")
    held = sets.type.value_type
    if pa.types.is_string_view(held) or pa.types.is_binary_view(held):  # which Arrow cannot select from
        held = pa.large_string() if pa.types.is_string_view(held) else pa.large_binary()
    # What lies under a null is not an item.
    lists = converted(lambda: sets.cast(pa.large_list(held)).drop_null(), "sets", _HINT)
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    offsets = lists.offsets.to_numpy()
    values = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values, offsets - offsets[0]


def _listed(values: Any) -> list[Any]:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return list(values.to_pylist())
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | bytearray | memoryview | Mapping):
        return list(values)
    raise InvalidType(_NO_SETS)
