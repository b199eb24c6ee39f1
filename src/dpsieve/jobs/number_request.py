"""Requests for numbers of a table: what a user wants, one value behind library and command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from dpsieve import validate
from dpsieve.engines import NumberColumns
from dpsieve.engines.engine import unit_columns
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.estimate import MOST_ROWS_PER_UNIT
from dpsieve.numbers.mean_plan import KINDS
from dpsieve.numbers.sums import LARGEST_BOUND, SMALLEST_BOUND
from dpsieve.privacy.guarantee import unit_words
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

_COLUMN = "Name the column of numbers, such as column='price', or several."
_MOST_COLUMNS = 256  # of rows that are chosen for units
_BOUNDS = "Pass public bounds of the numbers, such as bounds=(0, 100), or a pair for each column."
MEAN_METHODS = ("auto", "box", "plan")


@dataclass(frozen=True, kw_only=True)
class NumberRequest:
    """What every job on numbers of a table is told, checked; the budget is checked by who makes the mechanism."""

    column: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    privacy_unit: tuple[str, ...] = None  # type: ignore[assignment]  # one name, or None, may be given
    max_rows_per_unit: int = 1
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None
    allow_null_units: bool = False

    def __post_init__(self) -> None:
        given: Any = self.column
        names = (given,) if isinstance(given, str) else given
        if not isinstance(names, Sequence) or not names:
            raise InvalidType(f"column must be a column name or a list of them. {_COLUMN}")
        names = NumberColumns(tuple(names)).key
        bounds, unit = _pairs(self.bounds, len(names)), unit_columns(self.privacy_unit)
        validate.store(self, column=names, bounds=bounds, privacy_unit=unit)
        hint = "Pass how many rows of a unit count, such as max_rows_per_unit=1."
        validate.whole("max_rows_per_unit", self.max_rows_per_unit, low=1, high=MOST_ROWS_PER_UNIT, hint=hint)
        if not isinstance(self.allow_null_units, bool):
            raise InvalidType("allow_null_units must be True or False. Pass allow_null_units=True, or leave it out.")
        if not unit:
            if self.max_rows_per_unit > 1:
                raise InvalidValue(
                    "max_rows_per_unit needs a privacy_unit: without one each row is its own unit. "
                    "Name the column that says who is protected, such as privacy_unit='user_id'."
                )
        elif set(unit) & set(names):
            raise InvalidValue("privacy_unit is among the columns of numbers. Name another column.")
        elif len(names) > _MOST_COLUMNS:
            fix = "Keep one row for each unit yourself, and leave privacy_unit out; or pass fewer columns."
            raise InvalidValue(f"column names more than {_MOST_COLUMNS} columns, which are too many with a unit. {fix}")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the request among the arguments of a function."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})

    @property
    def split(self) -> dict[str, Any]:
        """How noise is divided among columns: by their widths, or so that a moment of the total error is least."""
        moment = getattr(self, "p", None)
        return {"p": 2.0 if moment is None else moment, "shape": "proportional" if moment is None else "best"}

    @property
    def columns(self) -> NumberColumns:
        """What is read."""
        return NumberColumns(self.column, self.privacy_unit)

    @property
    def unit(self) -> str:
        """Who is protected, in words."""
        return unit_words(self.privacy_unit)

    @property
    def box(self) -> tuple[Floats, Floats]:
        """The lower and the upper bound of each column."""
        lows, highs = np.array(self.bounds).T
        return lows, highs

    @property
    def budget(self) -> dict[str, Any]:
        """The budget, and whom it protects, as the mechanisms take it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho, "unit": self.unit}


@dataclass(frozen=True, kw_only=True)
class SumRequest(NumberRequest):
    """The arguments of `dpsieve.sum_of` that say what is wanted; see there for their meaning."""

    neighbours: Neighbours = "add_remove"
    p: float | None = None


@dataclass(frozen=True, kw_only=True)
class QuantileRequest(NumberRequest):
    """The arguments of `dpsieve.quantile_of` that say what is wanted; see there for their meaning."""

    q: float | Sequence[float]
    neighbours: Neighbours = "add_remove"
    method: str = "auto"
    scale: str = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.column) > 1:
            raise InvalidValue("column names several columns, and quantiles are of one. Name one column.")


@dataclass(frozen=True, kw_only=True)
class MeanRequest(NumberRequest):
    """The arguments of `dpsieve.mean_of` that say what is wanted; see there for their meaning."""

    bounds: tuple[tuple[float, float], ...] = None  # type: ignore[assignment] # left out for zeros and ones
    p: float | None = None
    method: str = "auto"
    kind: str = "real"
    neighbours: Neighbours = "replace"

    def __post_init__(self) -> None:
        given: Any = self.bounds
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise InvalidValue("kind is not known. Choose 'real', or 'binary' for columns of zeros and ones.")
        if self.kind == "binary":
            if given is not None:
                raise InvalidValue("bounds are 0 and 1 for kind='binary'. Leave out the bounds=(0, 1).")
            validate.store(self, bounds=(0.0, 1.0))
        elif given is None:
            raise InvalidValue(f"bounds are missing. {_BOUNDS}")
        super().__post_init__()
        if not isinstance(self.method, str) or self.method not in MEAN_METHODS:
            raise InvalidValue(f"method is not known. Choose one of {', '.join(MEAN_METHODS)}.")
        if self.method == "plan" and self.pure:
            raise InvalidValue("method='plan' has no pure epsilon. Pass delta=1e-8 too, or method='box'.")
        if validate.neighbours(self.neighbours) == "add_remove" and self.method == "plan":
            fix = "Pass neighbours='replace', or method='box'."
            raise InvalidValue(f"method='plan' needs a public number of units, which 'add_remove' hides. {fix}")

    @property
    def pure(self) -> bool:
        """Whether the budget is an epsilon alone."""
        return self.rho is None and not self.delta


def _pairs(bounds: Any, count: int) -> tuple[tuple[float, float], ...]:
    """Return a pair of bounds for each column."""
    given = validate.finite("bounds", bounds, hint=_BOUNDS)
    if given.shape not in ((2,), (1, 2), (count, 2)):
        raise InvalidValue(f"bounds must be one pair, or as many as there are columns, {count:,}. {_BOUNDS}")
    given = np.broadcast_to(given, (count, 2))
    if (given[:, 0] >= given[:, 1]).any():
        raise InvalidValue(f"bounds holds a pair whose low is not below its high. {_BOUNDS}")
    sizes = np.abs(given)
    if ((sizes > 0) & ((sizes < SMALLEST_BOUND) | (sizes > LARGEST_BOUND))).any():
        raise InvalidValue("bounds holds a number below 10^-60 or above 10^60. Rescale the data.")
    return tuple((low, high) for low, high in given.tolist())
