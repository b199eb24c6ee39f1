"""Output for terminals, notebooks, scripts and logs: safe text, JSON, intervals, tables, progress and log records.

The logger is `dpsieve`: engines, mechanisms, phases and ledger entries. It is silent until the program adds a handler,
and no record contains data. The duration of a phase depends on the data: logs are for the operator, not for readers of
a release.
"""

import base64
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from importlib import import_module
from typing import Any

_LONGEST = 200  # characters of a key that are shown

log = logging.getLogger("dpsieve")
log.addHandler(logging.NullHandler())
_inside: ContextVar[bool] = ContextVar("inside a phase that is logged as a whole", default=False)


def printable(value: object) -> str:
    """Return a value as text without control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def shorten(value: object) -> str:
    """Return a value as safe text; a long one is cut, and its length appended.

    >>> shorten("tea" * 1000)[190:]
    'eateateate... (3,000 characters)'
    """
    text = str(value)
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)")


def json_text(value: Any) -> str:
    """Return valid JSON; other values are encoded as in the JSON of Protocol Buffers.

    NaN and infinities are the texts "NaN", "Infinity" and "-Infinity", bytes are base64; other values are their text.

    >>> json_text({"key": b"tea", "high": float("inf")})
    '{"key": "dGVh", "high": "Infinity"}'
    """
    return json.dumps(_plain(value), allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def has_only_upper_end(low: int, high: int, least: int = 1) -> bool:
    """Return whether only the upper end is informative: the low end is the least possible frequency.

    That is 1 for a key that occurs, and 0 where every key of a public list is answered.
    """
    return low == least < high


def format_interval(low: int, high: int, least: int = 1) -> str:
    """Return an interval as text.

    >>> format_interval(967, 1_012), format_interval(1, 137)
    ('967 to 1,012', 'at most 137')
    """
    return f"at most {high:,}" if has_only_upper_end(low, high, least) else f"{low:,} to {high:,}"


def format_number(value: object) -> str:
    """Return a number with commas, a float with six significant digits; null as no text, other values as text.

    >>> [format_number(value) for value in (75630, 1068024.7, 0.25, 1e20, None, "tea")]
    ['75,630', '1,068,020', '0.25', '1e+20', '', 'tea']
    """
    if isinstance(value, float):
        return f"{float(f'{value:.6g}'):,.15g}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def html_table(rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """Return rows as an HTML table of text; without a head, the first cell of each row is its header.

    >>> html_table([("<b>", 1)])
    '<table><tbody><tr><th scope="row">&lt;b&gt;</th><td style="text-align: right">1</td></tr></tbody></table>'
    """
    names = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    top = f"<thead><tr>{names}</tr></thead>" if head else ""
    body = ("".join(_cell(value, not head and not i) for i, value in enumerate(row)) for row in rows)
    return f"<table>{top}<tbody>{''.join(f'<tr>{cells}</tr>' for cells in body)}</tbody></table>"


def show_progress(what: str = "reading and counting") -> Callable[[float], None]:
    """Return a callback for the completed fraction: a bar in notebooks, a percentage in terminals.

    No-op elsewhere; clears itself at 100 %.
    """
    show = _in_notebook(what) if _kernel() is not None else _in_terminal(what) if sys.stderr.isatty() else None
    last = -1

    def report(done: float) -> None:
        nonlocal last
        if show is not None and int(100 * done) > last:
            last = int(100 * done)
            show(last)

    return report


def _kernel() -> Any:
    """Return the notebook kernel of this process, or None."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None)


def _in_notebook(what: str) -> Callable[[int], None]:
    shell: Any = import_module("IPython.display")
    handle = shell.display(shell.HTML(""), display_id=True)

    def show(percent: int) -> None:
        bar = f'<progress value="{percent}" max="100" aria-label="{_text(what)}"></progress> {_text(what)}: {percent} %'
        handle.update(shell.HTML(bar if percent < 100 else ""))

    return show


def _in_terminal(what: str) -> Callable[[int], None]:
    def show(percent: int) -> None:
        sys.stderr.write(f"\r{what}: {percent} %" if percent < 100 else "\r\x1b[K")
        sys.stderr.flush()

    return show


def _cell(value: object, is_name: bool) -> str:
    side = "right" if isinstance(value, int | float) else "left"
    return f'<th scope="row">{_text(value)}</th>' if is_name else f'<td style="text-align: {side}">{_text(value)}</td>'


def _text(value: object) -> str:
    return escape(printable(format_number(value)))


@contextmanager
def timed(phase: str, *, whole: bool = False) -> Iterator[None]:
    """Log the seconds that a phase took when it ends; as a `whole`, without the phases inside it."""
    if not log.isEnabledFor(logging.INFO):
        yield
        return
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
