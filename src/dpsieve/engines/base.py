"""What every engine offers: the columns of a table, and its keys counted after each privacy unit was bounded."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue

Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False, repr=False)
class Counted:
    """True frequencies. They are secret: they go through a channel and nowhere else.

    Attributes:
        keys: one row for each key that occurs (or, with a public list of keys, for each of the list), in no particular
            order, with the key columns under their own names; no row is null in any column and no two rows are equal.
        frequencies: how often each of them occurs; 0 only for keys of a public list.
    """

    keys: pa.Table
    frequencies: NDArray[np.int64]

    def __repr__(self) -> str:
        return "<Counted: true frequencies, not to be published>"


@dataclass(frozen=True)
class Bounds:
    """What one privacy unit may add: at most `max_keys` keys, and at most `max_rows` to the frequency of each.

    Attributes:
        unit: the column of who is protected; None when every row is a unit of its own.
        salt: decides, together with unit and key, which keys of a unit are kept; 64 bits, fresh for each release.
        allow_null_units: drop rows whose unit is null instead of refusing them.
    """

    key: tuple[str, ...]
    unit: str | None
    max_keys: int
    max_rows: int
    salt: int
    allow_null_units: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        return tuple(dict.fromkeys(self.key if self.unit is None else (self.unit, *self.key)))


class Engine(ABC):
    """Where tables are bounded and counted."""

    @abstractmethod
    def columns(self, data: Any) -> list[tuple[str, str]]:
        """Return name and type of each column. Only the schema is read, never rows beyond what names the columns."""

    @abstractmethod
    def check(self, data: Any, bounds: Bounds) -> None:
        """Refuse columns that the data does not have, and keys of a type that cannot be one, from the schema alone."""

    def count(
        self,
        data: Any,
        *,
        key: tuple[str, ...],
        unit: str | None,
        max_keys: int,
        max_rows: int,
        salt: int,
        allow_null_units: bool = False,
        known: pa.Table | None = None,
        progress: Progress | None = None,
    ) -> Counted:
        """Bound what each privacy unit adds, and return the keys with their true frequencies.

        A key is one value in each of the columns `key`. Rows that are null in any of them are dropped first. Of what
        is left, each unit keeps at most `max_keys` of its distinct keys: those whose hash with the salt and the unit
        is smallest, so every key of the unit has the same chance, the choices of different units are independent, and
        the same salt repeats the same choice. The frequency of a key is the sum, over the units that kept it, of the
        smaller of `max_rows` and the unit's rows with that key. With `unit=None` every row is a unit of its own, and
        a frequency is a number of rows.

        Privacy does not rest on the hash or on the salt being secret: what a unit adds depends on its own rows alone,
        for every salt. So one unit more or less changes at most `max_keys` frequencies, each by at most `max_rows`.

        With `known`, a public list of keys, rows of other keys are dropped first, and each key of the list is answered.

        Args:
            data: see `dpsieve.engines.data`.
            key: the columns of what is counted.
            unit: the column of who is protected, or None.
            max_keys: at most so many keys for each unit.
            max_rows: at most so much is added by a unit to the frequency of one key.
            salt: a number below 2^64, fresh from the system for each release.
            allow_null_units: a null unit is refused, as nobody knows how many units hide behind it; with True, rows
                with a null unit are dropped.
            known: the public keys, a table with the columns `key`.
            progress: called now and then, in this thread, with the share of the work that is done, from 0 to 1. What
                it raises stops the count.
        """
        bounds = checked_bounds(key, unit, max_keys, max_rows, salt, allow_null_units)
        if progress is not None and not callable(progress):
            raise InvalidType("progress must be a function of one number. Leave it out, or pass such a function.")
        return self._count(data, bounds, known, None if progress is None else _rising(progress))

    @abstractmethod
    def _count(self, data: Any, bounds: Bounds, known: pa.Table | None, progress: Progress | None) -> Counted:
        """Count under checked bounds."""


def _rising(progress: Progress) -> Progress:
    """Never tell less than before, also where an engine starts anew."""
    furthest = 0.0

    def tell(share: float) -> None:
        nonlocal furthest
        furthest = max(furthest, min(share, 1.0))
        progress(furthest)

    return tell


def checked_bounds(
    key: object, unit: object, max_keys: object, max_rows: object, salt: object, allow_null_units: object
) -> Bounds:
    """Return the bounds in plain types, or raise naming the argument."""
    hint = "Pass one or several column names, such as key=('query',)."
    if not isinstance(key, tuple | list):
        raise InvalidType(f"key must be a tuple of column names, not {type(key).__name__}. {hint}")
    names = tuple(validate.text("key", name, hint=hint) for name in key)
    if not names:
        raise InvalidValue(f"key is empty. {hint}")
    if len(set(names)) < len(names):
        raise InvalidValue("key names a column twice. Name each column once.")
    if unit is not None:
        unit = validate.text("privacy_unit", unit, hint="Pass the name of the column of who is protected.")
    limit = "Pass how many keys of one unit may be kept, such as 1."
    often = "Pass how many rows of one unit may count for the same key, such as 1."
    return Bounds(
        names,
        unit,
        validate.whole("max_keys", max_keys, low=1, high=10**12, hint=limit),
        validate.whole("max_rows", max_rows, low=1, high=10**12, hint=often),
        validate.whole("salt", salt, high=2**64 - 1, hint="Draw 64 random bits."),
        bool(allow_null_units),
    )
