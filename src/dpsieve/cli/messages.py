"""Messages of the library in the words of the command line: options in place of arguments of Python."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from dpsieve.errors import DpsieveError

_PLAIN = re.compile(r"[\w.,:/+-]+")
_VALUE = r"""(?:\(([^()]*)\)|\[('[^\[\]]*')\]|'([^']*)'|"([^"]*)"|(True)\b|(-?\d[\w.+-]*\w|-?\d|\.\.\.))"""


def as_typed(message: str, options: Mapping[str, str]) -> str:
    """Return a message with the options, by the names of their arguments, as one types them.

    A name counts as one where a value follows, where it starts the message, or where it has an underscore.

    >>> options = {"bounds": "bounds", "max_rows_per_unit": "max-rows", "q": "quantile"}
    >>> as_typed("bounds is empty. Pass public bounds, such as bounds=(0, 100).", options)
    '--bounds is empty. Pass public bounds, such as --bounds 0,100.'
    >>> as_typed("q=2 is above 1. Pass q=[0.25, 0.5] or max_rows_per_unit=1.", options)
    '--quantile 2 is above 1. Pass --quantile 0.25,0.5 or --max-rows 1.'
    >>> as_typed("privacy_unit=['tenant', 'user id'] holds nulls.", {"privacy_unit": "unit"})
    "--unit tenant --unit 'user id' holds nulls."
    """
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    found = rf"(?<![\w'\"-])({names})(?:={_VALUE}|\b(?!=))"
    message = re.sub(r"dpsieve\.files\(data, (.*?)\)", r"\1", message)
    message = re.sub(r", or Ledger\(path, .*?\)", "", message)
    message = re.sub(r"^data=(?=')", "", message)
    message = re.sub(r"\[([-\d., ]+)\]", lambda numbers: _joined(numbers[1]), message)
    return re.sub(found, lambda one: _typed(one, options), message)


@contextmanager
def errors_as_typed(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors pass in the words of the command line."""
    try:
        yield
    except DpsieveError as error:
        error.args = (as_typed(str(error), options), *error.args[1:])
        raise


def _typed(found: re.Match[str], options: Mapping[str, str]) -> str:
    name, pair, several, single, double, flag, number = found.groups()
    if pair is not None:
        return f"--{options[name]} {_joined(pair)}"
    values = [one for one in (single, double, number) if one is not None]
    if several is not None:
        values = several.strip("'").split("', '")
    if values:
        return " ".join(f"--{options[name]} {_quoted(value)}" for value in values)
    return f"--{options[name]}" if flag or "_" in name or not found.start() else found[0]


def _quoted(value: str) -> str:
    quote = "" if _PLAIN.fullmatch(value) else '"' if "'" in value else "'"
    return f"{quote}{value}{quote}"


def _joined(numbers: str) -> str:
    return re.sub(r",\s+", ",", numbers)


def notes_of(error: BaseException) -> str:
    """Return the notes of an error, each after a space: whether a ledger was charged before it."""
    return "".join(f" {note}" for note in getattr(error, "__notes__", ()))
