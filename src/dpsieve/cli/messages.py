"""Messages of the library with options of the command line in place of arguments of Python.

Options have the names of arguments, so one rule serves all messages.
"""

import re

_PLAIN = re.compile(r"[\w.,:/+-]+")
_VALUE = r"""(?:\(([^()]*)\)|\[('[^\[\]]*')\]|'([^']*)'|"([^"]*)"|(True)\b|(-?\d[\w.+-]*\w|-?\d|\.\.\.))"""
_ARGUMENT = re.compile(rf"(?<![\w'\"-])([a-z]\w*)(?:={_VALUE}|\b(?!=))")


def spell_options(message: str, names: frozenset[str] | None = None) -> str:
    """Return a message with arguments spelled as options.

    A word counts as an argument where a value follows, or, if it is among `names`, where it starts the message or has
    an underscore.

    >>> spell_options("bounds is empty. Pass public bounds, such as bounds=(0, 100).", frozenset({"bounds"}))
    '--bounds is empty. Pass public bounds, such as --bounds 0,100.'
    >>> spell_options("quantile=2 is above 1. Pass quantile=[0.25, 0.5] or max_rows_per_unit=1.")
    '--quantile 2 is above 1. Pass --quantile 0.25,0.5 or --max-rows-per-unit 1.'
    >>> spell_options("privacy_unit=['tenant', 'user id'] holds nulls.")
    "--privacy-unit tenant --privacy-unit 'user id' holds nulls."
    """
    message = re.sub(r"dpsieve\.files\(data, (.*?)\)", r"\1", message)
    message = re.sub(r", or Ledger\(path, .*?\)", "", message)
    message = re.sub(r"^data=(?=')", "", message)
    message = re.sub(r"\[([-\d., ]+)\]", lambda numbers: _join(numbers[1]), message)
    return _ARGUMENT.sub(lambda match: _spell(match, names), message)


def _spell(match: re.Match[str], names: frozenset[str] | None) -> str:
    name, pair, several, single, double, flag, number = match.groups()
    option = f"--{_RENAMED.get(name, name).replace('_', '-')}"
    if names is not None and name not in names and name not in _RENAMED:
        return match[0]
    if pair is not None:
        return f"{option} {_join(pair)}"
    values = [value for value in (single, double, number) if value is not None]
    if several is not None:
        values = several.strip("'").split("', '")
    if values:
        return " ".join(f"{option} {_quote(value)}" for value in values)
    named = names is not None and ("_" in name or not match.start())
    return option if flag or named else match[0]


_RENAMED = {"memory_limit": "memory", "folder": "out", "path": "out", "form": "format"}
"""Arguments of the library whose option has another name."""


def _quote(value: str) -> str:
    quote = "" if _PLAIN.fullmatch(value) else '"' if "'" in value else "'"
    return f"{quote}{value}{quote}"


def _join(numbers: str) -> str:
    return re.sub(r",\s+", ",", numbers)


def notes_of(error: BaseException) -> str:
    """Return the notes of an error, each after a space: whether a ledger was charged before it."""
    return "".join(f" {note}" for note in getattr(error, "__notes__", ()))
