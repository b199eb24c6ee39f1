"""A guard for objects that serve one thread at a time."""

import threading
from types import TracebackType
from typing import Any

from dpsieve.errors import InvalidValue


class OneThread:
    """A context that raises at once where another thread is inside, in place of waiting for it.

    >>> guard = OneThread("this sketch")
    >>> with guard, guard:
    ...     pass
    Traceback (most recent call last):
    ...
    dpsieve.errors.InvalidValue: this sketch is in use by another thread. Use one for each thread, or a lock.
    """

    def __init__(self, name: str) -> None:
        self._name, self._lock = name, threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InvalidValue(f"{self._name} is in use by another thread. Use one for each thread, or a lock.")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return OneThread, (self._name,)
