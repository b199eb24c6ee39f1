"""The keys and counters of a sketch of integers, which are ordered by value."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.randomness.source import Words
from dpsieve.sketches.compiled import integers as compiled
from dpsieve.sketches.layout import SLOT, STATE, table_size
from dpsieve.sketches.store import Store


class Integers(Store):
    """A table of (key, counter) and the list of keys whose counters are zero."""

    def __init__(self, counters: int, salt: Words) -> None:
        self._table = np.zeros(table_size(counters), SLOT)
        self._zeros, self._spare = np.empty((2, counters + 1), np.uint64)
        self._state = np.zeros(1, STATE)
        self._salt = salt

    @property
    def state(self) -> Any:
        """The record of the present state."""
        return self._state[0]

    def update(self, *block: NDArray[np.int64]) -> None:
        """Count a block of integers."""
        (items,) = block
        compiled.update(items, self._table, self._zeros, self._spare, self._state, self._salt)

    def keys_and_counts(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the keys, sorted, and their counters."""
        held = self._table[self._table["stored"] != 0]
        held = held[np.argsort(held["key"])]
        return pa.array(held["key"]), held["stored"] - (1 + self.state["decrements"])

    def find(self, *block: NDArray[np.int64]) -> int | None:
        """Return the counter of the one integer in a block, or None where it is not held."""
        stored = int(self._table[compiled.find(block[0][0], self._table, self._salt)]["stored"])
        return stored - 1 - int(self.state["decrements"]) if stored else None

    def _set_counters(self, keys: pa.Array, counts: NDArray[np.int64], decrements: int) -> None:
        slots = np.flatnonzero(self._table["stored"])
        which = np.searchsorted(keys.to_numpy(), self._table["key"][slots])
        self._table["stored"][slots] = counts[which] + (1 + decrements)

    def _collect(self) -> int:
        return int(compiled.collect(self._table, self.state["decrements"], self._zeros, self._spare))
