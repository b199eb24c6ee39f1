"""The list of public names: everything in `__all__` of the package and its public namespaces, with signatures.

Signatures are those of the source, so the list does not depend on the versions of Python and NumPy, nor on the module
in which something is defined. Inherited members of a class are listed with it.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dpsieve

STORED = Path(__file__).with_name("public_names.txt")
ROOT = "dpsieve"


def stored() -> str:
    """Return the stored list."""
    return STORED.read_text() if STORED.exists() else ""


def listing() -> str:
    """Return the list, one name per line, members of classes indented."""
    return "".join(f"{line}\n" for line in _namespace(dpsieve, ROOT))


def _namespace(module: ModuleType, path: str) -> Iterator[str]:
    """Yield the lines of a namespace, and then those of the namespaces in it."""
    names = getattr(module, "__all__", None)
    if names is None:  # what is defined here: submodules appear when something imports them
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        ]
    values = {name: getattr(module, name) for name in sorted(names)}
    for name, value in values.items():
        if not isinstance(value, ModuleType):
            yield from _entry(f"{path}.{name}", value)
    for name, value in values.items():
        if isinstance(value, ModuleType):
            yield from _namespace(value, f"{path}.{name}")


def _entry(path: str, value: Any) -> Iterator[str]:
    """Yield the line of a function or constant, or the lines of a class."""
    if inspect.isclass(value):
        yield f"class {path}{_constructor(value)}"
        yield from (f"    {member}" for member in _members(value))
    elif (node := _parsed(inspect.unwrap(getattr(value, "py_func", value)))) is not None:
        yield f"{path}{_signature(node)}"
    else:
        kind = type(value).__name__
        yield f"{path}: {kind}" + (f" = {value!r}" if isinstance(value, str | int | float | tuple) else "")


def _own(kind: type) -> list[type]:
    """Return the classes of the package that a class inherits from, itself first."""
    return [base for base in kind.__mro__ if base.__module__.split(".")[0] == ROOT]


def _parsed(value: Any) -> Any:
    """Return the syntax tree of a function or class, or None where it has no source of its own."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    except (OSError, TypeError):
        return None


def _signature(node: Any, bound: bool = False) -> str:
    """Return the arguments and the result of a function; of a bound one, without its first argument."""
    given = node.args
    if bound:
        (given.posonlyargs or given.args).pop(0)
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"({ast.unparse(given)}){result}"


def _constructor(kind: type) -> str:
    """Return the arguments of a class: those of its `__init__` or `__new__`, or its fields."""
    for base in _own(kind):
        for name in ("__init__", "__new__"):
            node = _parsed(base.__dict__[name]) if name in base.__dict__ else None
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return _signature(node, bound=True).removesuffix(" -> None")
        if "__init__" in base.__dict__ or "__new__" in base.__dict__:  # generated: a dataclass or a named tuple
            break
    try:
        arguments = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return ""
    types = dict(_fields(kind))
    words, starred = [], False
    for one in arguments:
        if one.kind is one.KEYWORD_ONLY and not starred:
            words, starred = [*words, "*"], True
        default = "" if one.default is one.empty else " = ..."
        words.append(
            f"{one.name}: {types[one.name]}{default}" if one.name in types else str(one.replace(annotation=one.empty))
        )
    return f"({', '.join(words)})"


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the annotated attributes of a class, those of its bases first."""
    for base in reversed(_own(kind)):
        node = _parsed(base)
        for part in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                yield part.target.id, ast.unparse(part.annotation)


def _members(kind: type) -> list[str]:
    """Return the public methods, properties and attributes of a class, inherited ones included, by name."""
    found: dict[str, str] = {name: f"{name}: {text}" for name, text in _fields(kind) if not name.startswith("_")}
    for base in reversed(_own(kind)):
        for name, value in vars(base).items():
            if name.startswith("_"):
                continue
            plain = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
            node = _parsed(plain) if callable(plain) and not inspect.isclass(plain) else None
            if not isinstance(node, ast.FunctionDef):
                continue
            if isinstance(value, classmethod | staticmethod):
                words = f"{type(value).__name__} {name}{_signature(node, isinstance(value, classmethod))}"
            elif inspect.isfunction(value):
                words = f"{name}{_signature(node, True)}"
            else:
                words = f"property {name}" + ("" if node.returns is None else f": {ast.unparse(node.returns)}")
            found[name] = words
    return [found[name] for name in sorted(found)]
