"""The memory that compiled loops share."""

import threading


class Memory:
    """How many bytes the tables of all threads may hold: half of what is allowed.

    What is merged from them takes no more than half again, and neither does what is made of that.
    """

    def __init__(self, allowed: int) -> None:
        self._lock, self._half, self._limit, self._held = threading.Lock(), allowed // 2, allowed // 2, 0

    def allow_again(self) -> None:
        """Allow as much once more, beside what is held."""
        self._limit = self._held + self._half

    def is_half_free(self) -> bool:
        """Tell whether there is room for as much as the tables hold."""
        return self._held <= self._half

    def take(self, count: int) -> bool:
        """Hold so many bytes more, or fewer; tell whether that is allowed."""
        with self._lock:
            if count > 0 and self._held + count > self._limit:
                return False
            self._held += count
            return True
