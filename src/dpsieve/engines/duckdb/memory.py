"""The memory that compiled loops share."""

import threading


class Memory:
    """How many bytes the tables of all threads may hold: half of what is allowed, as the result may take as much."""

    def __init__(self, allowed: int) -> None:
        self._lock, self._limit, self._held = threading.Lock(), allowed // 2, 0

    def take(self, count: int) -> bool:
        """Hold more bytes; tell whether that is allowed."""
        with self._lock:
            if self._held + count > self._limit:
                return False
            self._held += count
            return True

    def give_back(self, count: int) -> None:
        """Hold fewer bytes."""
        with self._lock:
            self._held -= count
