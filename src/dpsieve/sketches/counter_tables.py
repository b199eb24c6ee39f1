"""The keys and counters of a Misra-Gries sketch in memory: one table for integers, one for text and bytes.

A counter c is stored as c + decrements, so that lowering all counters is one addition to `decrements`. Loading this
module loads the compiled loops.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.sketches import integer_loops as integers
from dpsieve.sketches import text_loops as texts
from dpsieve.types import Bytes, Ints, Words
from dpsieve.values.columns import as_numpy

# `zeros` lists the keys whose counters were zero after the last decrement, in order: `waiting` of them. Those before
# `cursor` have left the sketch or been counted since. `used` is the filled part of the arena of texts.
_STATE = np.dtype([(name, np.int64) for name in ("items", "decrements", "held", "cursor", "waiting", "used")])
_SMALLEST = 1 << 16  # bytes of an arena
_BLOCK = 1 << 16  # items per call of a compiled loop


class CounterTable(ABC):
    """Keys with counters, and the numbers that go with them.

    Each call of a compiled loop leaves a consistent state, so an interrupt between two calls does no harm.
    """

    def __init__(self, counters: int, salt: Words, slot: Any) -> None:
        # A power of two: at most a quarter full while it fits the cache, then half.
        size = 1 << ((4 if counters <= 2**16 else 2) * counters - 1).bit_length()
        self._table = np.zeros(size, slot)
        self._zeros, self._spare = np.empty((2, counters + 1), np.uint64)
        self._salt = salt
        self._held: tuple[NDArray[Any], ...] = ()  # the state comes last

    @property
    def state(self) -> Any:
        """The record of the current state."""
        return self._held[-1][0]

    def update(self, column: pa.Array) -> None:
        """Count the items of a column."""
        for first in range(0, len(column), _BLOCK):
            self._count(column.slice(first, _BLOCK))

    @abstractmethod
    def _count(self, block: pa.Array) -> None:
        """Count up to _BLOCK items."""

    @abstractmethod
    def find(self, item: pa.Array) -> int:
        """Return the counter of an item, given as a column, 0 where it is not held."""

    @abstractmethod
    def keys_and_counts(self) -> tuple[pa.Array, Ints]:
        """Return the keys, sorted, and their counters."""

    def restore(self, keys: pa.Array, counts: Ints, items: int, decrements: int) -> None:
        """Replace the empty state by a saved one."""
        self.update(keys)
        self._set_counters(keys, counts, decrements)
        self.state["items"], self.state["decrements"] = items, decrements
        self.state["waiting"] = self._collect() if decrements else 0

    @abstractmethod
    def _set_counters(self, keys: pa.Array, counts: Ints, decrements: int) -> None:
        """Replace the counters of all keys."""

    @abstractmethod
    def _collect(self) -> int:
        """List the keys whose counters are zero, and return their number; the table must be full."""


class IntegerTable(CounterTable):
    """Integers, which are ordered by value."""

    def __init__(self, counters: int, salt: Words) -> None:
        super().__init__(counters, salt, integers.SLOT)
        self._held = (np.zeros(1, _STATE),)

    def _count(self, block: pa.Array) -> None:
        items = as_numpy(block).view()
        items.flags.writeable = False  # one signature of the compiled loop for all batches
        integers.update(items, self._table, self._zeros, self._spare, self._held[-1], self._salt)

    def keys_and_counts(self) -> tuple[pa.Array, Ints]:
        occupied = self._table[self._table["stored"] != 0]
        occupied = occupied[np.argsort(occupied["key"])]
        return pa.array(occupied["key"]), occupied["stored"] - (1 + self.state["decrements"])

    def find(self, item: pa.Array) -> int:
        stored = int(self._table[integers.find(as_numpy(item)[0], self._table, self._salt)]["stored"])
        return stored - 1 - int(self.state["decrements"]) if stored else 0

    def _set_counters(self, keys: pa.Array, counts: Ints, decrements: int) -> None:
        slots = np.flatnonzero(self._table["stored"])
        which = np.searchsorted(keys.to_numpy(), self._table["key"][slots])
        self._table["stored"][slots] = counts[which] + (1 + decrements)

    def _collect(self) -> int:
        return int(integers.collect(self._table, self.state["decrements"], self._zeros, self._spare))


class TextTable(CounterTable):
    """Text or bytes, ordered as in `text_loops`: entries with counters, and their bytes in an arena.

    Texts that leave stay in the arena as garbage. When it is full, the live texts are copied to a new one of at least
    twice their size, so the cost of copying is amortised.
    """

    def __init__(self, counters: int, salt: Words, kind: pa.DataType) -> None:
        super().__init__(counters, salt, np.uint64)
        self._kind = kind
        # These three are replaced together.
        self._held = np.zeros(counters + 1, texts.ENTRY), np.empty(_SMALLEST, np.uint8), np.zeros(1, _STATE)

    def _count(self, block: pa.Array) -> None:
        first, (places, lengths) = 0, _addresses(block)
        while first < len(places):
            entries, arena, state = self._held
            first = texts.update(
                first, places, lengths, self._table, entries, arena, self._zeros, self._spare, state, self._salt
            )
            if first < len(places):
                self._make_room(int(lengths[first]))

    def keys_and_counts(self) -> tuple[pa.Array, Ints]:
        entries, starts, ends = self._layout()
        data = self._gather(starts, int(ends[-1]) if len(ends) else 0)
        buffers = [None, pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64)), pa.py_buffer(data)]
        keys = pa.Array.from_buffers(self._kind, len(ends), buffers)
        order = pc.sort_indices(keys).to_numpy()
        return keys.take(pa.array(order)), entries["stored"][order] - self.state["decrements"]

    def find(self, item: pa.Array) -> int:
        entries, arena, _ = self._held
        (place,), (length,) = _addresses(item)
        entry = texts.search(place, length, self._table, entries, arena, self._salt)
        return int(entries[entry]["stored"] - self.state["decrements"]) if entry else 0

    def _set_counters(self, keys: pa.Array, counts: Ints, decrements: int) -> None:
        entries = self._held[0]
        entries["stored"][1 : len(counts) + 1] = counts + decrements  # entries are in the order in which they came

    def _collect(self) -> int:
        entries, arena, _ = self._held
        return int(texts.collect(entries, arena, self.state["decrements"], self._zeros, self._spare))

    def _make_room(self, length: int) -> None:
        old, starts, ends = self._layout()
        used = int(ends[-1]) if len(ends) else 0
        entries, state = np.zeros_like(self._held[0]), self._held[2].copy()
        entries[1 : len(old) + 1] = old
        entries["start"][1 : len(old) + 1] = starts
        state["used"] = used
        self._held = entries, self._gather(starts, 2 * (used + length) + _SMALLEST), state

    def _layout(self) -> tuple[NDArray[Any], Ints, Ints]:
        """Return the entries in use, and the starts and ends of their texts when concatenated."""
        entries = self._held[0][1 : int(self.state["held"]) + 1]
        ends = np.cumsum(entries["length"])
        return entries, ends - entries["length"], ends

    def _gather(self, starts: Ints, size: int) -> Bytes:
        """Return a new arena with the texts in use at these starts."""
        arena = np.empty(size, np.uint8)
        texts.gather(self._held[0], self._held[1], starts, arena)
        return arena


def _addresses(column: pa.Array) -> tuple[Ints, Ints]:
    """Return addresses and lengths of texts, which stay in the buffers of the column."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    return ends[:-1] + (data.address if data else 0), np.diff(ends)
