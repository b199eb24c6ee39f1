"""The inputs of the page. Those of a job have the name, the words and the choices of the field of its request."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from dpsieve.errors import InvalidType, InvalidValue

if TYPE_CHECKING:
    from dpsieve.jobs.request import Request

Kind = Literal["number", "whole", "text", "file", "bounds"]


def _read_bounds(text: str) -> tuple[tuple[str, tuple[float, float]], ...]:
    """Return columns with bounds.

    >>> _read_bounds("price:0:200, a:b:-1:0.5")
    (('price', (0, 200)), ('a:b', (-1, 0.5)))
    """

    def number(text: str) -> float:
        return int(value) if (value := float(text)).is_integer() else value

    found = {column.strip(): (number(low), number(high)) for column, low, high in
             (one.rsplit(":", 2) for one in text.split(","))}  # fmt: skip
    if len(found) != text.count(",") + 1:
        raise ValueError
    return tuple(found.items())


_PARSERS: dict[str, Any] = {"number": float, "whole": lambda text: int(text.replace(",", "")), "bounds": _read_bounds}
_EXAMPLES = {"whole": ("whole number", "10"), "number": ("number", "1"),
             "bounds": ("list of different columns with two bounds each", "price:0:200")}  # fmt: skip


@dataclass(frozen=True)
class Input:
    """One input.

    Attributes:
        name: of the argument; its label is the name with spaces.
        help: what it means.
        kind: how its text is read.
        default: its text at first; '' for an argument that may be left out.
        stops: the values of its slider, if it has one.
        choices: the values that it takes, if they are listed.
        suggestions: some values that it takes.
        group: the title of the group that it is shown in, closed at first.
        when: another input and the text of that with which this one matters.
    """

    name: str
    help: str
    kind: Kind = "text"
    default: str = ""
    stops: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    group: str = ""
    when: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """Return the value of a text; None where it is blank and may be."""
        text = text.strip()
        if not text and not self.default:
            return None
        if not text:
            raise InvalidValue(f"{self.name} is blank. Pass one, as {self.name}={self.default}.", argument=self.name)
        if self.choices and text not in self.choices:
            raise InvalidValue(f"{self.name} is not known. Choose one of those listed.", argument=self.name)
        try:
            return _PARSERS.get(self.kind, str)(text)
        except ValueError:
            kind, example = _EXAMPLES[self.kind]
            fix = f"Pass one such as {self.name}={self.default or example}."
            raise InvalidValue(f"{self.name} is not a {kind}. {fix}", argument=self.name) from None

    def to_json(self) -> dict[str, Any]:
        """Return what the page needs to show it."""
        return {**vars(self), "label": label(self.name)}


def of(request: "type[Request]", name: str, kind: Kind = "text", default: str = "", **more: Any) -> Input:
    """Return the input for a field of a request."""
    field = next(field for field in fields(request) if field.name == name)
    text = field.metadata["help"].replace("`", "")
    described = {"help": text[:1].upper() + text[1:], "choices": field.metadata["choices"]}
    return Input(name, kind=kind, default=default, **described | more)


def read_inputs(inputs: Iterable[Input], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of inputs; those that are not given have their defaults."""
    known = {one.name: one for one in inputs}
    for name in given.keys() - known.keys():
        raise InvalidType(f"{name} is not an input of this view. Leave it out.", argument=name)
    return {name: one.read(given.get(name, one.default)) for name, one in known.items()}


def label(name: str) -> str:
    """Return the name of an argument as the page shows it.

    >>> label("max_keys_per_unit")
    'max keys per unit'
    """
    return name.replace("_", " ")


def spell(message: str, names: Iterable[str]) -> str:
    """Return a message of the library with arguments named as on the page.

    >>> spell("max_keys_per_unit=0 is not between 1 and 9. Pass max_keys_per_unit=5.", ["max_keys_per_unit"])
    'max keys per unit 0 is not between 1 and 9. Pass max keys per unit 5.'
    """
    known = "|".join(map(re.escape, names))
    return re.sub(
        rf"\b({known}|[a-z]+(?:_[a-z]+)+(?==))(?:(=)|\b)",
        lambda found: label(found[1]) + (" " if found[2] else ""),
        message,
    )


def python_call(function: str, *first: str, **arguments: Any) -> str:
    """Return a call in Python; arguments that are None are left out.

    >>> python_call("ds.preview", epsilon=1.0, note=None)
    'ds.preview(epsilon=1.0)'
    """
    named = (f"{name}={value!r}" for name, value in arguments.items() if value is not None)
    return f"{function}({', '.join([*map(repr, first), *named])})"


def command_line(words: Sequence[str], **arguments: Any) -> str:
    """Return a command with its options, for a shell; a list repeats its option, and True is an option alone.

    >>> command_line(["preview"], max_keys_per_unit=5, key="search term", rate=None, sum=["a:0:1", "b:0:2"], rest=True)
    "dpsieve preview --max-keys-per-unit 5 --key 'search term' --sum a:0:1 --sum b:0:2 --rest"
    """
    options = [(f"--{name.replace('_', '-')}", value) for name, given in arguments.items() if given is not None
               for value in (given if isinstance(given, list) else [given])]  # fmt: skip
    parts = ((name,) if value is True else (name, str(value)) for name, value in options)
    return shlex.join(["dpsieve", *words, *(part for option in parts for part in option)])
