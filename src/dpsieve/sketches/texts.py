"""The keys and counters of a sketch of text or bytes, which are ordered as `compiled.texts` says."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.randomness.source import Words
from dpsieve.sketches.compiled import texts as compiled
from dpsieve.sketches.layout import ENTRY, STATE, table_size
from dpsieve.sketches.store import Store

_SMALLEST = 1 << 16


class Texts(Store):
    """Entries with counters, their bytes in an arena, a table that leads to them, and the list of zero counters.

    Texts that leave stay in the arena as garbage. When it is full, those held are copied to a new one of at least twice
    their size, so that a copy is paid for by the bytes that came since the last one.
    """

    def __init__(self, counters: int, salt: Words, *, binary: bool) -> None:
        self._type = pa.large_binary() if binary else pa.large_string()
        self._table = np.zeros(table_size(counters), np.uint64)
        self._zeros, self._spare = np.empty((2, counters + 1), np.uint64)
        self._salt = salt
        # These three change together, in one step.
        self._held = np.zeros(counters + 1, ENTRY), np.empty(_SMALLEST, np.uint8), np.zeros(1, STATE)

    @property
    def state(self) -> Any:
        """The record of the present state."""
        return self._held[2][0]

    def update(self, *block: NDArray[np.int64]) -> None:
        """Count a block of texts, which are given as addresses and lengths."""
        first, (places, lengths) = 0, block
        while first < len(places):
            entries, arena, state = self._held
            first = compiled.update(
                first, places, lengths, self._table, entries, arena, self._zeros, self._spare, state, self._salt
            )
            if first < len(places):
                self._make_room(int(lengths[first]))

    def keys_and_counts(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the keys, sorted by their bytes, and their counters."""
        entries, starts, ends = self._layout()
        data = self._gathered(starts, int(ends[-1]) if len(ends) else 0)
        buffers = [None, pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64)), pa.py_buffer(data)]
        keys = pa.Array.from_buffers(self._type, len(ends), buffers)
        order = pc.sort_indices(keys).to_numpy()
        return keys.take(pa.array(order)), entries["stored"][order] - self.state["decrements"]

    def find(self, *block: NDArray[np.int64]) -> int | None:
        """Return the counter of the one text in a block, or None where it is not held."""
        entries, arena, _ = self._held
        entry = compiled.search(block[0][0], block[1][0], self._table, entries, arena, self._salt)
        return int(entries[entry]["stored"] - self.state["decrements"]) if entry else None

    def _set_counters(self, keys: pa.Array, counts: NDArray[np.int64], decrements: int) -> None:
        entries = self._held[0]
        entries["stored"][1 : len(counts) + 1] = counts + decrements  # entries are in the order in which they came

    def _collect(self) -> int:
        entries, arena, _ = self._held
        return int(compiled.collect(entries, arena, self.state["decrements"], self._zeros, self._spare))

    def _make_room(self, length: int) -> None:
        old, starts, ends = self._layout()
        used = int(ends[-1]) if len(ends) else 0
        entries, state = np.zeros_like(self._held[0]), self._held[2].copy()
        entries[1 : len(old) + 1] = old
        entries["start"][1 : len(old) + 1] = starts
        state["used"] = used
        self._held = entries, self._gathered(starts, 2 * (used + length) + _SMALLEST), state

    def _layout(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """Return the entries in use, and where their texts start and end when put one after another."""
        entries = self._held[0][1 : int(self.state["held"]) + 1]
        ends = np.cumsum(entries["length"])
        return entries, ends - entries["length"], ends

    def _gathered(self, starts: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """Return a new arena with the texts in use at these places."""
        arena = np.empty(size, np.uint8)
        compiled.gather(self._held[0], self._held[1], starts, arena)
        return arena
