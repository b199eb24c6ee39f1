"""What dpsieve tells the standard `logging` module: engines, mechanisms, phases and ledger entries, never a value.

The logger is called `dpsieve` and is silent until the program that uses it adds a handler. How long a phase takes
depends on the data: logs are for who runs the release, not for its readers.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

log = logging.getLogger("dpsieve")
log.addHandler(logging.NullHandler())


_inside: ContextVar[bool] = ContextVar("inside of a phase that is logged as a whole", default=False)


@contextmanager
def timed(phase: str, *, whole: bool = False) -> Iterator[None]:
    """Log how many seconds a phase took, once it is done; as a `whole`, without the phases inside of it."""
    start, outer = time.perf_counter(), _inside.get()
    reset = _inside.set(outer or whole)
    try:
        yield
    finally:
        _inside.reset(reset)
    if not outer:
        log.info("%s: %.2f s", phase, time.perf_counter() - start)


@contextmanager
def silenced(loggers: Iterable[logging.Logger]) -> Iterator[None]:
    """Switch off loggers of another library for a while, as its messages may quote data."""
    before = {logger: logger.disabled for logger in loggers}
    for logger in before:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in before.items():
            logger.disabled = disabled
