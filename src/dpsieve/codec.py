"""Saved forms: frozen dataclasses as tagged JSON, and back.

    @register("simple")
    @dataclass(frozen=True)
    class Simple(Channel): ...

`encode` returns {"kind": "simple", **fields}; `decode` makes an equal value from it. Fields are plain JSON values,
registered values, or tuples of these. What saved forms promise, from format 2 on: a tag keeps its meaning; a field is
never removed, and its meaning never changes; a new field has a default that preserves the old behaviour. A tag or field
that this version does not know is refused, never guessed.

A class is registered by its decorator alone: where a tag is not loaded yet, the module with that decorator is found in
the source of the package and imported.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypeVar, cast, get_args, get_origin, get_type_hints

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.validate import Checked

T = TypeVar("T")
_Kind = TypeVar("_Kind", bound=type)

_FIX = "Pass what was saved, or install a newer dpsieve."
_DECORATOR = re.compile(r'^@register\("(\w+)"\)$', re.MULTILINE)
_LOADED: dict[str, list[type]] = {}
_DEEPEST = 8  # of nested lists
NOT_SAVED_BY_DEFAULT = {"saved": "if not the default"}
"""The metadata of a field that was added later: with its default, the saved form is that of before."""


def register(tag: str) -> Callable[[_Kind], _Kind]:
    """Return a decorator that gives a frozen dataclass its tag, under which it is saved."""

    def add(kind: _Kind) -> _Kind:
        kind.name = tag  # type: ignore[attr-defined]
        known = [other for other in _LOADED.get(tag, []) if _place(other) != _place(kind)]
        if any(_family(other) is _family(kind) for other in known):
            raise InvalidValue(f"name={tag!r} is taken by another class. Choose another name.")
        _LOADED[tag] = [*known, kind]
        return kind

    return add


def find_class(tag: object, bases: type | tuple[type, ...]) -> type | None:
    """Return the class with this tag that derives from one of the bases; None where there is none."""
    if not isinstance(tag, str):
        return None
    for module in homes().get(tag, ()):
        import_module(module)
    return next((kind for kind in _LOADED.get(tag, ()) if issubclass(kind, bases)), None)


@cache
def homes() -> dict[str, tuple[str, ...]]:
    """Return the modules of every tag in the package, from the decorators in its source."""
    root = Path(__file__).parent
    modules: dict[str, tuple[str, ...]] = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(("dpsieve", *path.relative_to(root).with_suffix("").parts))
        for tag in _DECORATOR.findall(path.read_text(encoding="utf-8")):
            modules[tag] = (*modules.get(tag, ()), name)
    return modules


def _place(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _family(kind: type) -> type:
    """Return the topmost class of the project that a class derives from; a tag is unique within a family.

    `Checked` is below all of them: it states how fields are checked, not what a class is.
    """
    return [base for base in kind.__mro__ if base.__module__.startswith("dpsieve") and base is not Checked][-1]


def encode(value: Any) -> Any:
    """Return a registered value, a tuple of such values, or a plain value as JSON values."""
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if hasattr(value, "from_json"):
        return value.to_json()  # a message to devices, which have a form of their own
    if is_dataclass(value) and not isinstance(value, type):
        if type(value) not in _LOADED.get(getattr(value, "name", ""), ()):
            raise InvalidType(f"{type(value).__name__} has no name to be saved under. Register it with dpsieve.codec.")
        return {"kind": cast(Any, value).name, **encode_fields(value)}
    return value


def encode_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values; `delta_`, beside a method `delta`, is saved as 'delta'."""
    saved = [field for field in fields(value) if field.init]
    saved = [f for f in saved if f.metadata != NOT_SAVED_BY_DEFAULT or getattr(value, f.name) != f.default]
    return {field.name.removesuffix("_"): encode(getattr(value, field.name)) for field in saved}


def decode(data: Any, base: type[T], what: str = "data") -> T:
    """Make the value again that `encode` described; anything but a saved `base` is refused.

    >>> from dpsieve.privacy.mechanism import Mechanism
    >>> decode({"kind": "simple", "epsilon": 1.0, "delta": 1e-6}, Mechanism)
    <simple channel, epsilon=1, delta=1e-06>
    >>> decode({"kind": "magic"}, Mechanism)
    Traceback (most recent call last):
    dpsieve.errors.InvalidValue: data has a kind that this version does not know. ...
    """
    if not isinstance(data, Mapping):
        raise InvalidType(f"{what} must be a mapping, not {type(data).__name__}. {_FIX}")
    kind = find_class(data.get("kind"), base)
    if kind is None:
        raise InvalidValue(f"{what} has a kind that this version does not know. {_FIX}")
    return decode_fields(kind, {name: value for name, value in data.items() if name != "kind"})


def decode_fields(kind: type[T], data: Any) -> T:
    """Make a value of a known dataclass from its saved fields; missing and unknown fields are refused."""
    if not isinstance(data, Mapping):
        raise InvalidType(f"data must be a mapping, not {type(data).__name__}. {_FIX}")
    known = {field.name.removesuffix("_"): field for field in fields(kind) if field.init}  # type: ignore[arg-type]
    needed = {name for name, field in known.items() if field.default is MISSING and field.default_factory is MISSING}
    if not needed <= set(data) <= set(known):
        raise InvalidValue(f"data has other fields than {getattr(kind, 'name', kind.__name__)}. {_FIX}")
    classes = _field_classes(kind)  # type: ignore[arg-type]
    values = {known[name].name: _decode_value(value, classes[known[name].name], name) for name, value in data.items()}
    return kind(**values)


class Saved:
    """A frozen dataclass whose saved form is its fields, all of them, without a tag."""

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values; floats survive the round trip exactly."""
        return encode_fields(self)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Rebuild what `to_json` returned; anything else is refused."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if isinstance(data, Mapping) and set(data) != names:
            raise InvalidValue(f"a {cls.__name__.lower()} has the fields {', '.join(sorted(names))}. {_FIX}")
        return decode_fields(cls, data)


def _decode_value(value: Any, classes: tuple[type, ...], name: str, depth: int = 0) -> Any:
    """Return a field's value: mappings are saved values of the field's classes, lists are tuples if it has tuples."""
    if isinstance(value, list) and tuple in classes:
        if depth > _DEEPEST:
            raise InvalidValue(f"{name} has lists that are nested too deeply. {_FIX}")
        return tuple(_decode_value(item, classes, name, depth + 1) for item in value)
    if not isinstance(value, Mapping):
        return value
    message = next((one for one in classes if hasattr(one, "from_json")), None)
    if message is not None:
        return message.from_json(value)
    kind = find_class(value.get("kind"), tuple(one for one in classes if one is not tuple))
    if kind is None:
        raise InvalidValue(f"{name} has a kind that this version does not know. {_FIX}")
    return decode_fields(kind, {field: item for field, item in value.items() if field != "kind"})


@cache
def _field_classes(kind: type) -> dict[str, tuple[type, ...]]:
    """Return, for each field, the classes of this package, and tuple, in its annotation."""
    return {name: tuple(_classes(hint)) for name, hint in get_type_hints(kind).items()}


def _classes(hint: Any) -> list[type]:
    parts = [found for part in get_args(hint) for found in _classes(part)]
    if get_origin(hint) is tuple:
        return [tuple, *parts]
    own = isinstance(hint, type) and hint.__module__.startswith("dpsieve")
    return [hint, *parts] if own else parts
