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

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.channels.contributions import MOST_KEYS
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.items import plain_type, sound
from dpsieve.sketches.noisy import noisy_sketch
from dpsieve.sketches.one_sided import one_sided_sketch
from dpsieve.sketches.releasing import Terms, released

if TYPE_CHECKING:
    from dpsieve.output import Release
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.randomness.source import Source

_HINT = "Pass the sets of several users: a list of lists, or an Arrow array of lists, of texts, bytes or whole numbers."


class UserMisraGries:
    """Counts in how many users' sets each key is, in `counters` places. What it holds is true: not to be published.

    >>> sketch = UserMisraGries(counters=2)
    >>> sketch.update([["tea", "milk"], ["tea"], ["tea", "salt", "milk"]])
    >>> sketch.estimate("tea"), sketch.users, sketch.decrements
    (2, 3, 1)
    """

    def __init__(self, counters: int) -> None:
        hint = f"Pass how many keys to hold, at most {MOST_KEYS - 1:,}: the noise grows with the square root."
        self.counters = validate.whole("counters", counters, low=1, high=MOST_KEYS - 1, hint=hint)
        self.users = self.items = self.decrements = 0
        self._keys: pa.Array | None = None
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)

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
        from dpsieve.sketches.compiled.users import count_sets

        batch = _lists(sets).drop_null()  # what lies under a null is not an item
        if not len(batch):
            return
        offsets = batch.offsets.to_numpy().astype(np.int64)
        values = batch.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        offsets = offsets - offsets[0]
        if values.null_count:
            present = values.is_valid().to_numpy(zero_copy_only=False)
            offsets = np.concatenate([[0], np.cumsum(present)])[offsets]
            values = values.drop_null()
        if self._keys is not None and values.type != self._keys.type:
            raise InvalidType(f"sets holds items of another type than before: {values.type}, not {self._keys.type}.")
        every = values if self._keys is None else pa.concat_arrays([self._keys, values])
        coded = every.dictionary_encode()  # the keys that are held come first, in their order
        codes, held = coded.indices.to_numpy().astype(np.int64), len(self._counts)
        stored = np.zeros(len(coded.dictionary), np.int64)
        stored[:held] = self._counts
        kept, lowered, counted = count_sets(codes[held:], offsets, stored, held, self.counters)
        keys, counts = coded.dictionary.take(pa.array(kept)), stored[kept] - lowered
        users, items, decrements = self.users + len(batch), self.items + counted, self.decrements + lowered
        self._keys, self._counts, self.users, self.items, self.decrements = keys, counts, users, items, decrements

    def keys_and_counts(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the keys, sorted, and their counters. True values, not to be published."""
        if self._keys is None:
            return pa.array([], pa.string()), self._counts
        order = pc.sort_indices(self._keys)
        return self._keys.take(order), self._counts[order.to_numpy()]

    def estimate(self, item: Any) -> int:
        """Return the counter of an item, 0 if it is not held: at most the true number, and `decrements` below at most.

        A true value, not to be published.
        """
        return next((count for key, count in self if key == item), 0)

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
        """
        mechanism = one_sided_sketch(epsilon, delta, self.counters, unit=unit)
        keys, counts = self.keys_and_counts()
        why = "one user changes each counter by at most one, all in one direction"
        return released(mechanism, keys, counts, self.decrements, why, Terms(unit, ledger, note, source))


def thresholds_for_users(epsilon: float, delta: float, counters: int, items_per_unit: int) -> dict[str, float]:
    """Return the threshold of each sketch for users of up to so many items: the lower one reports rarer keys.

    'MisraGries' pays by group privacy, so that its threshold grows with the items of a user; that of 'UserMisraGries'
    grows with the square root of the counters.

    >>> thresholds_for_users(1.0, 1e-8, 100, 20)
    {'MisraGries': 491, 'UserMisraGries': 327.2}
    """
    one = noisy_sketch(epsilon, delta, counters, items_per_unit).threshold
    return {"MisraGries": one, "UserMisraGries": round(one_sided_sketch(epsilon, delta, counters).threshold, 1)}


def _lists(sets: Any) -> pa.LargeListArray:
    """Return sets as one Arrow array of lists."""
    try:
        if isinstance(sets, pa.ChunkedArray):
            sets = sets.combine_chunks()
        if not isinstance(sets, pa.Array):
            if isinstance(sets, str | bytes) or not isinstance(sets, Iterable):
                raise TypeError
            sets = pa.array([None if one is None else _listed(one) for one in sets])
        if pa.types.is_null(sets.type) or len(sets) == 0:
            sets = pa.array([[]] * 0, pa.list_(pa.string()))
        if pa.types.is_list(sets.type) and pa.types.is_null(sets.type.value_type):
            sets = sets.cast(pa.list_(pa.string()))
        if not (pa.types.is_list(sets.type) or pa.types.is_large_list(sets.type)):
            raise TypeError
    except (TypeError, pa.ArrowException):
        raise InvalidType(f"sets cannot be read as sets of items. {_HINT}") from None
    if not sound(sets):
        raise InvalidValue(f"sets is a broken Arrow array. {_HINT}")
    plain = plain_type(sets.type.value_type)
    if plain is None:
        raise InvalidType(f"sets holds items of a type that cannot be keys. {_HINT}")
    try:
        return sets.cast(pa.large_list(plain))
    except pa.ArrowException:
        raise InvalidValue(f"sets holds items that are too large. {_HINT}") from None


def _listed(one: Any) -> list[Any]:
    if isinstance(one, str | bytes):
        raise TypeError
    return list(one)
