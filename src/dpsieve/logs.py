"""Logging helpers; no log record contains data.

The logger is `dpsieve`: engines, mechanisms, phases and ledger entries. It is silent until the program adds a handler.
The duration of a phase depends on the data: logs are for the operator, not for readers of a release.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

log = logging.getLogger("dpsieve")
log.addHandler(logging.NullHandler())
_inside: ContextVar[bool] = ContextVar("inside a phase that is logged as a whole", default=False)


@contextmanager
def timed(phase: str, *, whole: bool = False) -> Iterator[None]:
    """Log the seconds that a phase took when it ends; as a `whole`, without the phases inside it."""
    start, outer = time.perf_counter(), _inside.get()
    reset = _inside.set(outer or whole)
    try:
        yield
    finally:
        _inside.reset(reset)
    if not outer:
        log.info("%s: %.2f s", phase, time.perf_counter() - start)


@contextmanager
def silence_loggers(loggers: Iterable[logging.Logger]) -> Iterator[None]:
    """Disable loggers of another library inside a block, as their messages may quote data."""
    before = {logger: logger.disabled for logger in loggers}
    for logger in before:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in before.items():
            logger.disabled = disabled
