"""What people and scripts see: safe text, valid JSON, intervals, small tables, progress of a long call."""

import base64
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import import_module
from typing import Any

_LONGEST = 200  # characters of a key that are shown


def printable(value: object) -> str:
    """Return a value as text that cannot steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def shortened(value: object) -> str:
    """Return a value as safe text that leaves room for others: of a long one its start, and how long it is.

    >>> shortened("tea" * 1000)[190:]
    'eateateate... (3,000 characters)'
    """
    text = str(value)
    return printable(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters)")


def json_text(value: Any) -> str:
    """Return valid JSON. What it has no form for is written as in the JSON of Protocol Buffers.

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


def only_high(low: int, high: int, least: int = 1) -> bool:
    """Return whether the upper end alone tells something: the low end is the least frequency that there is.

    That is 1 for a key that occurs, and 0 where every key of a public list is answered.
    """
    return low == least < high


def interval_words(low: int, high: int, least: int = 1) -> str:
    """Return an interval in words.

    >>> interval_words(967, 1_012), interval_words(1, 137)
    ('967 to 1,012', 'at most 137')
    """
    return f"at most {high:,}" if only_high(low, high, least) else f"{low:,} to {high:,}"


def html_table(rows: Iterable[Sequence[object]], head: Sequence[object] = ()) -> str:
    """Return rows as an HTML table of text; without a head, the first cell of each row is its name.

    >>> html_table([("<b>", 1)])
    '<table><tbody><tr><th scope="row">&lt;b&gt;</th><td>1</td></tr></tbody></table>'
    """
    names = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    top = f"<thead><tr>{names}</tr></thead>" if head else ""
    body = ("".join(_cell(value, not head and not i) for i, value in enumerate(row)) for row in rows)
    return f"<table>{top}<tbody>{''.join(f'<tr>{cells}</tr>' for cells in body)}</tbody></table>"


def shown_progress(what: str = "reading and counting") -> Callable[[float], None]:
    """Return what takes the fraction done, and shows it: in a notebook as a bar, in a terminal as a percentage.

    It shows nothing elsewhere, and takes itself away when all is done.
    """
    show = _in_notebook(what) if _kernel() is not None else _in_terminal(what) if sys.stderr.isatty() else None
    last = -1

    def tell(done: float) -> None:
        nonlocal last
        if show is not None and int(100 * done) > last:
            last = int(100 * done)
            show(last)

    return tell


def _kernel() -> Any:
    """Return the notebook kernel that this process is, if it is one."""
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
    return f'<th scope="row">{_text(value)}</th>' if is_name else f"<td>{_text(value)}</td>"


def _text(value: object) -> str:
    return escape(printable(value))
