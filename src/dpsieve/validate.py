"""Shared checks of arguments. Each takes the name of the argument for its message.

Public functions check once, here; inner code trusts its input. A check returns the value in its plain Python type
(float, int, str), so NumPy scalars never reach inner code. The fields of frozen dataclasses state their check in their
annotation: see `Checked`.
"""

import math
import numbers
import operator
import os
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from dataclasses import fields
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

from dpsieve.errors import InvalidType, InvalidValue

if TYPE_CHECKING:  # devices check their arguments too, and have no NumPy
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Neighbours = Literal["add_remove", "replace"]
# Names that both a job and a mechanism accept.
SelectorName = Literal[
    "auto", "greedy", "one_key", "policy_gaussian", "policy_greedy", "renyi", "renyi_two_rounds", "repeated_rounds",
    "weighted_gaussian",
]  # fmt: skip
QuantileMethod = Literal["auto", "search", "gaps", "halving"]
RowKind = Literal["real", "binary"]
Scale = Literal["linear", "log"]
NEIGHBOURS: tuple[Neighbours, ...] = ("add_remove", "replace")
Check = Callable[[Any, str], Any]
T = TypeVar("T")
# Limits of budgets and contributions that mechanisms for unknown keys accept.
SMALLEST_EPSILON, LARGEST_EPSILON, SMALLEST_DELTA = 1e-3, 50.0, 1e-20
MOST_KEYS, MOST_ROWS = 10_000, 1_000


def real(name: str, value: object, *, hint: str) -> float:
    """Return a finite float, or raise naming `name`; `hint` is the fix."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidType(f"{name} must be a real number, not {_kind(value)}. {hint}", argument=name)
    try:
        number = float(value)
    except OverflowError:
        raise InvalidValue(f"{name} is too large for a float. {hint}", argument=name) from None
    if not math.isfinite(number):
        raise InvalidValue(f"{name}={number} is not finite. {hint}", argument=name)
    return number


def between(name: str, value: object, low: float, high: float, *, hint: str) -> float:
    """Return a float in [low, high]."""
    number = value if type(value) is float and math.isfinite(value) else real(name, value, hint=hint)
    if not low <= number <= high:
        raise InvalidValue(f"{name}={number:g} is not between {low:g} and {high:g}. {hint}", argument=name)
    return number


def positive(name: str, value: object, *, hint: str) -> float:
    """Return a float above zero."""
    number = value if type(value) is float and math.isfinite(value) else real(name, value, hint=hint)
    if number <= 0:
        raise InvalidValue(f"{name}={number:g} is not positive. {hint}", argument=name)
    return number


def epsilon(value: object, name: str = "epsilon") -> float:
    """Return a privacy parameter epsilon: zero or more, at most 500 (beyond that nothing is private)."""
    return between(name, value, 0.0, 500.0, hint=f"Pass a budget such as {name}=1.0.")


def positive_epsilon(value: object, name: str = "epsilon") -> float:
    """Return a privacy parameter epsilon above zero."""
    return positive(name, epsilon(value, name), hint=f"Pass a budget such as {name}=1.0.")


def delta(value: object, name: str = "delta") -> float:
    """Return a privacy parameter delta in [0, 1)."""
    hint = f"Pass a small probability such as {name}=1e-8."
    number = between(name, value, 0.0, 1.0, hint=hint)
    if number == 1.0:
        raise InvalidValue(f"{name}=1 promises nothing. {hint}", argument=name)
    return number


_check_delta = delta


def whole(name: str, value: object, *, low: int = 0, high: int | None = None, hint: str) -> int:
    """Return an int in [low, high]; floats are refused, even whole ones."""
    if isinstance(value, bool):
        raise InvalidType(f"{name} must be a whole number, not bool. {hint}", argument=name)
    try:
        number = operator.index(cast(int, value))
    except TypeError:
        raise InvalidType(f"{name} must be a whole number, not {_kind(value)}. {hint}", argument=name) from None
    if number < low or (high is not None and number > high):
        reach = f"at least {low}" if high is None else f"between {low} and {high}"
        shown = number if abs(number) < 10**30 else "a huge number"
        raise InvalidValue(f"{name}={shown} is not {reach}. {hint}", argument=name)
    return number


def listed(values: Any) -> Any:
    """Return the values of a dict's view or of an iterator as a list, and anything else as it is."""
    return list(values) if isinstance(values, KeysView | ValuesView | ItemsView | Iterator) else values


def integers(name: str, values: "ArrayLike", *, hint: str) -> "NDArray[np.int64]":
    """Return a flat array of 64-bit integers; fractions, NaN, text and overflowing numbers are refused."""
    import numpy as np

    try:
        array = np.asarray(listed(values))
    except ValueError:
        raise InvalidType(f"{name} must be a flat sequence of 64-bit whole numbers. {hint}", argument=name) from None
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidType(f"{name} must be a flat sequence of 64-bit whole numbers. {hint}", argument=name)
    if array.dtype.kind == "u" and array.size and int(array.max()) >= 2**63:
        raise InvalidValue(f"{name} holds numbers of 2^63 or more. {hint}", argument=name)
    return array.astype(np.int64, copy=False)


def finite(name: str, values: "ArrayLike", *, hint: str) -> "NDArray[np.float64]":
    """Return a number, or an array of numbers, as floats; text, truth values, NaN and infinities are refused."""
    import numpy as np

    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"{name} must be a number or an array. {hint}", argument=name) from None
    if array.dtype.kind not in "fiu":
        raise InvalidType(f"{name} must be a number or an array. {hint}", argument=name)
    if not np.isfinite(array).all():
        raise InvalidValue(f"{name} is not finite. {hint}", argument=name)
    return array.astype(np.float64)


def neighbours(value: object, name: str = "neighbours") -> Neighbours:
    """Return 'add_remove' or 'replace'."""
    if not isinstance(value, str) or value not in NEIGHBOURS:
        hint = "Choose 'add_remove' (one unit more or less) or 'replace' (one unit changes)."
        raise InvalidValue(f"{name} is not a known relation. {hint}", argument=name)
    return value


def choice(name: str, value: object, options: Sequence[T]) -> T:
    """Return the option that the value is equal to."""
    for option in options:
        if type(value) is type(option) and value == option:
            return option
    raise InvalidValue(f"{name} is not known. Choose one of {', '.join(map(repr, options))}.", argument=name)


def text(name: str, value: object, *, hint: str) -> str:
    """Return a string that is not blank."""
    if not isinstance(value, str):
        raise InvalidType(f"{name} must be text, not {_kind(value)}. {hint}", argument=name)
    if not value.strip():
        raise InvalidValue(f"{name} is blank. {hint}", argument=name)
    if not value.isprintable():
        raise InvalidValue(f"{name} has line breaks or control characters. {hint}", argument=name)
    return value


def check_budget(epsilon: float, delta: float) -> tuple[float, float]:
    """Return epsilon and delta, checked, for keys that are not listed in advance."""
    hint = "Pass a budget such as epsilon=1.0."
    epsilon, delta = between("epsilon", epsilon, SMALLEST_EPSILON, LARGEST_EPSILON, hint=hint), _check_delta(delta)
    if delta < SMALLEST_DELTA:
        why = "a key of one unit may be reported with probability delta at most, so with none no key could ever be"
        fix = "Pass one such as delta=1e-8; when all keys are known in advance, noise without a threshold needs none"
        raise InvalidValue(f"delta={delta:g} is below {SMALLEST_DELTA:g}: {why}. {fix}.", argument="delta")
    return epsilon, delta


def check_max_keys(value: int, name: str = "max_keys") -> int:
    """Return a checked bound on keys per unit."""
    hint = f"Pass how many keys a unit may add, up to {MOST_KEYS:,}."
    return whole(name, value, low=1, high=MOST_KEYS, hint=hint)


def check_max_rows(value: int, name: str = "max_rows") -> int:
    """Return a checked bound on rows per unit in one key."""
    hint = f"Pass how many rows of a unit count in one key, up to {MOST_ROWS:,}."
    return whole(name, value, low=1, high=MOST_ROWS, hint=hint)


def has_password(path: str) -> bool:
    """Return whether a text may be a mistyped address with a password, which no message may quote.

    >>> [has_password(text) for text in ("postgresql:/me:secret@host/db", "host=h password=secret", "day/a@b.csv")]
    [True, True, False]
    """
    return re.search("://|:.*@|(password|pwd) *=", path, re.IGNORECASE | re.DOTALL) is not None


def no_address(name: str, path: str, *, hint: str) -> str:
    """Return a local path; a missing one that looks like an address is refused and not quoted."""
    folder, last = os.path.split(path)
    exists = "://" not in path and (os.path.lexists(path) or (os.path.isdir(folder) and not has_password(last)))  # noqa: PTH112
    if has_password(path) and not exists:
        raise InvalidValue(
            f"{name} looks like an address, and only files and folders of this machine do. {hint}", argument=name
        )
    return path


class Checked:
    """A frozen dataclass whose fields are checked when it is made, each by the checks in its annotation.

    A check is a function of the value and the name of the field, and returns the value in its plain type.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Noise(Checked):
    ...     epsilon: Annotated[float, positive_epsilon]
    ...     rows: Annotated[int, is_whole(1, 1000, "Pass the rows per key.")] = 1
    >>> Noise(2)
    Noise(epsilon=2.0, rows=1)
    >>> Noise(1.0, rows=0)
    Traceback (most recent call last):
    dpsieve.errors.InvalidValue: rows=0 is not between 1 and 1000. Pass the rows per key.
    """

    def __post_init__(self) -> None:
        for name, shown, check in _checks(type(self)):  # type: ignore[arg-type]
            given = getattr(self, name)
            checked = check(given, shown)
            if checked is not given:
                store(self, **{name: checked})


@cache
def _checks(kind: type) -> list[tuple[str, str, Check]]:
    """Return the fields that have a check; `delta_`, beside a method `delta`, is 'delta' in messages."""
    found = [(field.name, getattr(field.type, "__metadata__", ())) for field in fields(kind)]
    return [(name, name.removesuffix("_"), check) for name, checks in found for check in checks]


def is_between(low: float, high: float, hint: str) -> Check:
    """Return the check of a float in [low, high]."""
    return lambda value, name: between(name, value, low, high, hint=hint)


def is_whole(low: int, high: int, hint: str, argument: str | None = None) -> Check:
    """Return the check of an int in [low, high]; `argument` is its name for users, where that is not the field's."""
    return lambda value, name: whole(argument or name, value, low=low, high=high, hint=hint)


def is_choice(*options: object) -> Check:
    """Return the check of one of these options."""
    return lambda value, name: choice(name, value, options)


def is_positive(hint: str) -> Check:
    """Return the check of a float above zero."""
    return lambda value, name: positive(name, value, hint=hint)


def is_text(hint: str) -> Check:
    """Return the check of a string that is not blank."""
    return lambda value, name: text(name, value, hint=hint)


def is_a(kind: Any, hint: str) -> Check:
    """Return the check of an instance of a class, or of one of several in a union."""

    def check(value: Any, name: str) -> Any:
        if not isinstance(value, kind):
            raise InvalidType(f"{name} has the type {_kind(value)}. {hint}", argument=name)
        return value

    return check


def are(each: Check, low: int, high: int, hint: str) -> Check:
    """Return the check of `low` to `high` values in order, each by its own check, as a tuple."""

    def check(values: Any, name: str) -> tuple[Any, ...]:
        if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | Set):
            raise InvalidType(f"{name} must be a list, not {_kind(values)}. {hint}", argument=name)
        checked = tuple(each(value, name) for value in islice(values, high + 1))
        if not low <= len(checked) <= high:
            raise InvalidValue(f"{name} must hold {low} to {high:,} values. {hint}", argument=name)
        return checked

    return check


Epsilon = Annotated[float, epsilon]
Delta = Annotated[float, _check_delta]
Relation = Annotated[Neighbours, neighbours]


def store(instance: object, **checked: object) -> None:
    """Set fields of a frozen dataclass to their checked values."""
    for name, value in checked.items():
        object.__setattr__(instance, name, value)


def _kind(value: object) -> str:
    return type(value).__name__
