"""What a sketch needs from the memory of its keys, whatever their kind."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve.sketches.batches import Batch


class Store(ABC):
    """Keys with counters, and the numbers that go with them: see `layout.STATE`.

    Each call of a compiled loop leaves a state that is whole, so that an interrupt between two of them does no harm.
    """

    @property
    @abstractmethod
    def state(self) -> Any:
        """The record of the present state."""

    @abstractmethod
    def update(self, *block: NDArray[np.int64]) -> None:
        """Count a block of items."""

    @abstractmethod
    def find(self, *block: NDArray[np.int64]) -> int | None:
        """Return the counter of the first item of a block, or None where it is not held."""

    @abstractmethod
    def keys_and_counts(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the keys, sorted, and their counters."""

    def restore(self, batch: Batch, keys: pa.Array, counts: NDArray[np.int64], items: int, decrements: int) -> None:
        """Take over a state in place of the empty one: sorted keys, as a batch too, and the rest."""
        for block in batch.blocks():
            self.update(*block)
        self._set_counters(keys, counts, decrements)
        self.state["items"], self.state["decrements"] = items, decrements
        self.state["waiting"] = self._collect() if decrements else 0

    @abstractmethod
    def _set_counters(self, keys: pa.Array, counts: NDArray[np.int64], decrements: int) -> None:
        """Replace the counters of all keys."""

    @abstractmethod
    def _collect(self) -> int:
        """List the keys whose counters are zero, and return how many there are; all places must be taken."""
