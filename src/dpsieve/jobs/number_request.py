"""Requests for numbers of a table, and for collections from the rows of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.key_columns import make_row_expressions
from dpsieve.jobs.request import Request, argument
from dpsieve.validate import Neighbours, QuantileMethod, RowKind, Scale

if TYPE_CHECKING:
    from dpsieve.engines.engine import Columns, NumberColumns
    from dpsieve.engines.sql.row_expressions import RowExpressions
    from dpsieve.types import Floats

MeanMethod = Literal["auto", "box", "plan"]
Protocol = Literal["rounds", "cohorts", "one_round"]

_MOST_COLUMNS = 256  # where rows are chosen per unit
_MOST_ROWS = 10_000
_COLUMN = "Name the column of numbers, such as column='price', or several."
_BOUNDS = "Pass public bounds of the numbers, such as bounds=(0, 100), or a pair for each column."
_RELATION = (
    "'add_remove' (one unit more or less), or 'replace' (a unit's rows are exchanged for others). With 'replace', the "
    "number of units that have a row is public."
)
_MOMENT = (
    "where all columns have one unit of measure, the moment of the total error that the split of noise minimises, such "
    "as 2; left out, each column has noise in proportion to its bounds."
)


@dataclass(frozen=True, kw_only=True)
class NumberRequest(Request):
    """A job on columns of numbers, or on an array where `column` is left out."""

    statistic: ClassVar[str]
    rows: ClassVar["RowExpressions | None"] = None

    column: tuple[str, ...] | None = argument(
        "the column of numbers, or several. Rows without a number (null or NaN; in a text file, a text that is not a "
        "number) in one of them are left out. Leave it out where data is an array.", None, form="COLUMN",
    )  # fmt: skip
    bounds: tuple[tuple[float, float], ...] = argument(
        "a public pair (low, high) for all columns, or one for each; numbers outside are clipped.", form="LOW,HIGH"
    )
    max_rows_per_unit: int = argument(
        "the number of rows of a unit that count. A table with a unit needs it: the noise grows with it, and more rows "
        "of a unit are left out.", None,
    )  # fmt: skip
    epsilon: float | None = argument(  # type: ignore[assignment]
        "epsilon of the budget. Without delta: pure differential privacy.", None
    )
    delta: float | None = argument(  # type: ignore[assignment]
        "delta of the budget; with rho, the delta at which epsilon is reported.", None
    )
    rho: float | None = argument("the budget in zCDP, instead of epsilon.", None)
    where: str | None = argument(
        "count only rows that satisfy this SQL condition, such as \"country = 'DE'\"; with "
        "neighbours='add_remove' only, as it makes the number of units private. It is published too.", None, form="SQL",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.where is not None and (self.column is None or getattr(self, "neighbours", "") != "add_remove"):
            why = "needs a table" if self.column is None else "makes the number of units private"
            fix = "Name a column." if self.column is None else "Pass neighbours='add_remove'."
            raise InvalidValue(f"where {why}. {fix}", argument="where")
        validate.store(self, rows=make_row_expressions(self.where, None, self.privacy_unit))
        if self.column is not None:
            validate.store(self, column=_columns(self.column))
            validate.store(self, bounds=_pairs(self.bounds, len(self.column)))
            self._check_units()
        hint = "Pass the number of rows of a unit that count, such as max_rows_per_unit=1."
        if cast(object, self.max_rows_per_unit) is None:
            validate.store(self, max_rows_per_unit=self._default_rows() if self.privacy_unit and self.column else 1)
        rows = validate.whole("max_rows_per_unit", self.max_rows_per_unit, low=1, high=_MOST_ROWS, hint=hint)
        validate.store(self, max_rows_per_unit=rows)

    def _default_rows(self) -> int:
        raise InvalidValue(
            "max_rows_per_unit is missing: the number of rows of a unit that count; others are left out. Pass about "
            "as many as most units have, such as max_rows_per_unit=5; the noise grows with it.",
            argument="max_rows_per_unit",
        )

    @classmethod
    def _needs_unit(cls, arguments: Mapping[str, Any]) -> bool:
        return arguments.get("column") is not None

    def _check_units(self) -> None:
        assert self.column is not None
        if not self.privacy_unit:
            if self.max_rows_per_unit not in (None, 1):
                raise InvalidValue(
                    "max_rows_per_unit needs a privacy_unit other than 'row', where each row is a unit. "
                    "Name the column that identifies who is protected, such as privacy_unit='user_id'."
                )
        elif set(self.privacy_unit) & set(self.column):
            raise InvalidValue("privacy_unit is among the columns of numbers. Name another column.")
        elif len(self.column) > _MOST_COLUMNS:
            fix = "Keep one row per unit yourself, and pass privacy_unit='row'; or pass fewer columns."
            raise InvalidValue(f"column names more than {_MOST_COLUMNS} columns, too many with a unit. {fix}")

    @property
    def split(self) -> dict[str, Any]:
        """How noise is split between columns: by their widths, or to minimise a moment of the total error."""
        moment = getattr(self, "p", None)
        return {"p": 2.0 if moment is None else moment, "shape": "proportional" if moment is None else "best"}

    @property
    def columns(self) -> "NumberColumns":
        """The columns that are read."""
        from dpsieve.engines.engine import NumberColumns

        assert self.column is not None
        return NumberColumns(self.column, self.privacy_unit, rows=self.rows)

    @property
    def box(self) -> "tuple[Floats, Floats]":
        """The lower and the upper bound of each column."""
        import numpy as np

        lows, highs = np.array(self.bounds).T
        return lows, highs

    @property
    def budget(self) -> dict[str, Any]:
        """The budget and the unit, as mechanisms take them."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho, "unit": self.unit}


@dataclass(frozen=True, kw_only=True)
class SumRequest(NumberRequest):
    """Sums of columns."""

    statistic: ClassVar[str] = "sum"

    neighbours: Neighbours = argument(_RELATION, "add_remove", choices=Neighbours)
    p: float | None = argument(_MOMENT, None)


@dataclass(frozen=True, kw_only=True)
class QuantileRequest(NumberRequest):
    """Quantiles of a column."""

    statistic: ClassVar[str] = "quantile"

    quantile: float | Sequence[float] = argument("the quantile, from 0 to 1, or several.", form="NUMBER,...")
    neighbours: Neighbours = argument(_RELATION, "add_remove", choices=Neighbours)
    method: QuantileMethod = argument(
        "'search' (one quantile by noisy bisection), 'gaps' (the exponential mechanism), 'halving' (several quantiles, "
        "recursively), or 'auto'.", "auto", choices=QuantileMethod,
    )  # fmt: skip
    scale: Scale = argument(
        "'linear', or 'log': a grid whose spacing is relative to the value.", "linear", choices=Scale
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.column is not None and len(self.column) > 1:
            raise InvalidValue("column names several columns, and quantiles are of one. Name one column.")


@dataclass(frozen=True, kw_only=True)
class MeanRequest(NumberRequest):
    """Means of columns over units."""

    statistic: ClassVar[str] = "mean"

    max_rows_per_unit: int = argument(
        f"the number of rows of a unit whose mean counts; the noise does not depend on it. Default {_MOST_ROWS:,}.",
        None,
    )
    bounds: tuple[tuple[float, float], ...] = argument(
        "a public pair (low, high) for all columns, or one for each; numbers outside are clipped. Not with "
        "kind='binary'.", None, form="LOW,HIGH",
    )  # fmt: skip
    p: float | None = argument(_MOMENT, None)
    method: MeanMethod = argument(
        "'box' (noise for the bounds; no other clipping), 'plan' (PLAN: finds centre and spread privately and clips "
        "outliers; for many columns, or bounds much wider than the data), or 'auto', which compares their noise.",
        "auto", choices=MeanMethod,
    )  # fmt: skip
    kind: RowKind = argument("'real', or 'binary' for columns of zeros and ones.", "real", choices=RowKind)
    neighbours: Neighbours = argument(
        "'replace' (the number of units is public), or 'add_remove' (it is private, and a part of the budget counts "
        "units; method 'box' only).", "replace", choices=Neighbours,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.kind == "binary":
            if cast(object, self.bounds) is not None:
                raise InvalidValue("bounds are 0 and 1 for kind='binary'. Leave out the bounds=(0, 1).")
            validate.store(self, bounds=(0.0, 1.0))
        elif cast(object, self.bounds) is None and self.kind == "real":
            raise InvalidValue(f"bounds are missing. {_BOUNDS}")
        super().__post_init__()
        if self.method == "plan" and self.pure:
            raise InvalidValue("method='plan' has no pure epsilon. Pass delta=1e-8 too, or method='box'.")
        if self.neighbours == "add_remove" and self.method == "plan":
            fix = "Pass neighbours='replace', or method='box'."
            raise InvalidValue(f"method='plan' needs a public number of units, which 'add_remove' hides. {fix}")

    def _default_rows(self) -> int:
        return _MOST_ROWS

    @property
    def pure(self) -> bool:
        """Whether the budget is an epsilon alone."""
        return self.rho is None and not self.delta


@dataclass(frozen=True, kw_only=True)
class CollectRequest(Request):
    """A collection by sample-and-threshold from the rows of a table, as if they were clients.

    Each unit is a client and keeps one of its values; with privacy_unit='row', each row is a client.
    """

    column: str = argument("the column of values: each client has one.", form="COLUMN")
    neighbours: Neighbours = argument(
        "'add_remove' (one client more or less), or 'replace' (a client has another value).", "add_remove",
        choices=Neighbours,
    )  # fmt: skip
    threshold: int | None = argument("the number of reports that a value needs; left out, the best.", None)

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Name the column of values, such as column='query'."
        if validate.text("column", self.column, hint=hint) in self.privacy_unit:
            raise InvalidValue("privacy_unit is also the column, so every unit would be counted. Name another column.")

    @property
    def columns(self) -> "Columns":
        """The columns that are read."""
        from dpsieve.jobs.table import ValueColumns

        return ValueColumns((self.column,), self.privacy_unit)


@dataclass(frozen=True, kw_only=True)
class HistogramRequest(CollectRequest):
    """A histogram of values."""

    delta: float | None = argument(  # type: ignore[assignment]
        "delta of the budget; left out with a rate and a threshold, the exact one.", None
    )
    known_keys: Any = argument(
        "a public list of the values that count, or a file with one per line; other rows are left out.", None,
        form="PATH",
    )  # fmt: skip
    rate: float | None = argument("the share of clients that answer; left out, the best.", None)
    goal: Literal["reach", "error"] = argument(
        "'reach' (the rarest values), or 'error' (the least error up to `frequency`).",
        "reach",
        choices=("reach", "error"),
    )
    frequency: int | None = argument("with goal='error': the number of clients of the most frequent values.", None)
    contacted: int | None = argument("the most clients to contact, of the population.", None)
    population: int | None = argument("the number of clients, if that is public.", None)
    hostile: int = argument("the number of reports that may be made up by those who see the release.", 0)


@dataclass(frozen=True, kw_only=True)
class LevelRequest(CollectRequest):
    """A collection by levels."""

    protocol: Protocol = argument(
        "'rounds' (a coin at each level), 'cohorts' (each client at one level), or 'one_round'.", "rounds",
        choices=Protocol,
    )  # fmt: skip
    coin: float | None = argument("the probability with which a client answers; left out, the best.", None)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of a server by levels."""
        return {name: getattr(self, name) for name in ("protocol", "coin", "threshold", "neighbours", "unit")}


@dataclass(frozen=True, kw_only=True)
class HeavyHittersRequest(LevelRequest):
    """Strings that many clients have."""

    max_length: int = argument("the number of symbols of the longest string; clients with longer ones are silent.")
    min_length: int = argument("the number of symbols of the shortest string.", 0)
    alphabet: str | bytes | None = argument("all characters that strings may have; left out, any.", None)
    step: int = argument("the number of symbols per level.", 1)


@dataclass(frozen=True, kw_only=True)
class DistributionRequest(LevelRequest):
    """The distribution of a number."""

    bounds: tuple[float, float] = argument("public bounds (low, high) of the numbers.", form="LOW,HIGH")
    branching: int = argument("the number of parts into which each level cuts a range.", 4)
    depth: int = argument("the number of levels: branching^depth cells in all.", 5)
    outside: Literal["clip", "silent"] = argument(
        "numbers outside of the bounds: 'clip', or 'silent'.", "clip", choices=("clip", "silent")
    )
    level: float = argument("the confidence level of all intervals jointly.", 0.95)

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass a probability such as level=0.95."
        validate.store(self, level=validate.between("level", self.level, 0.01, 1 - 1e-9, hint=hint))
        validate.store(self, bounds=_pairs(self.bounds, 1)[0])

    @property
    def columns(self) -> "Columns":
        """The columns that are read."""
        from dpsieve.engines.engine import NumberColumns

        return NumberColumns((self.column,), self.privacy_unit)


def _columns(column: Any) -> tuple[str, ...]:
    names = (column,) if isinstance(column, str) else column
    if not isinstance(names, Sequence) or not names:
        raise InvalidType(f"column must be a column name or a list of them. {_COLUMN}")
    checked = tuple(validate.text("column", name, hint=_COLUMN) for name in names)
    if len(set(checked)) < len(checked):
        raise InvalidValue("column names a column twice. Name each column once.")
    return checked


def _pairs(bounds: Any, count: int) -> tuple[tuple[float, float], ...]:
    """Return a pair of bounds for each column."""
    import numpy as np

    from dpsieve.numbers.estimate import LARGEST_BOUND, SMALLEST_BOUND

    given = validate.finite("bounds", bounds, hint=_BOUNDS)
    if given.shape not in ((2,), (1, 2), (count, 2)):
        raise InvalidValue(f"bounds must be one pair, or one for each column. {_BOUNDS}")
    given = np.broadcast_to(given, (count, 2))
    if (given[:, 0] >= given[:, 1]).any():
        raise InvalidValue(f"bounds has a pair whose low is not below its high. {_BOUNDS}")
    sizes = np.abs(given)
    if ((sizes > 0) & ((sizes < SMALLEST_BOUND) | (sizes > LARGEST_BOUND))).any():
        raise InvalidValue("bounds has a number below 10^-60 or above 10^60. Rescale the data.")
    return tuple((low, high) for low, high in given.tolist())
