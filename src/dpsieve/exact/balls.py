"""Ball arithmetic at a chosen precision.

A ball (`flint.arb`) is a midpoint with a proven error radius, so a comparison of two balls that says True is a theorem.
The precision of python-flint belongs to the whole process; the lock keeps our threads from changing it under each
other. Even so, a precision that another library set could only make a ball wider, never wrong.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flint import arb, ctx

_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # so that no other thread holds it in the child, where it could never let go
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with `bits` bits inside this block."""
    with _LOCK, ctx.workprec(bits):
        yield


def floor_bounds(ball: arb) -> tuple[int, int]:
    """Return the floors of the lower and of the upper end of a ball."""
    low, high = ball.lower().floor().lower(), ball.upper().floor().upper()
    return int(low.fmpz()), int(high.fmpz())


def current_precision() -> int:
    """Return the precision in force, in bits."""
    return int(ctx.prec)
