"""Values in an interval as strings of digits, the most significant first: cells of a grid, and coarser ones above."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_CELLS = 2**40


@dataclass(frozen=True)
class Grid:
    r"""The interval [low, high] cut into branching^depth cells of equal width. It is public.

    Cell i holds the values from edge(i) up to, but not with, edge(i+1); the last one holds `high` as well.

    Attributes:
        low, high: the interval.
        branching, depth: so many parts at each level, and so many levels; up to 2^40 cells in all.
        outside: what clients do whose value is outside: 'clip' moves it to the nearer end, 'silent' leaves it out.

    >>> Grid(0.0, 1.0, branching=4, depth=2).string(1 / 3)  # in [1/4, 2/4), and there in [5/16, 6/16)
    b'\x01\x01'
    """

    low: float
    high: float
    branching: int = 4
    depth: int = 5
    outside: Literal["clip", "silent"] = "clip"

    def __post_init__(self) -> None:
        low, high = checked_interval(self.low, self.high)
        parts = validate.whole("branching", self.branching, low=2, high=256, hint="Pass 2 to 256, such as branching=4.")
        depth = validate.whole("depth", self.depth, low=1, high=40, hint="Pass how many levels, such as depth=5.")
        if self.outside not in ("clip", "silent"):
            raise InvalidValue("outside is not known. Choose 'clip' or 'silent'.")
        if parts**depth > _MOST_CELLS:
            raise InvalidValue(f"depth={depth} makes more than 2^40 cells. Pass fewer levels or a smaller branching.")
        if not low + (high - low) / parts**depth > low:
            raise InvalidValue("low and high are too close for that many cells. Pass fewer levels or a wider interval.")
        for name, value in (("low", low), ("high", high), ("branching", parts), ("depth", depth)):
            object.__setattr__(self, name, value)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.branching**self.depth)

    def edge(self, cell: ArrayLike) -> Floats:
        """Return where cells begin; the edge after the last one is `high`."""
        place = np.asarray(cell, np.float64)
        return np.where(place == self.cells, self.high, self.low + (self.high - self.low) * (place / self.cells))

    def cell(self, values: ArrayLike) -> Ints:
        """Return the cell of each value, -1 for a value that is not counted: NaN, or outside where that is silent."""
        x = np.asarray(values, np.float64)
        inside = np.clip(np.where(np.isnan(x), self.low, x), self.low, self.high)
        found = np.floor((inside - self.low) / (self.high - self.low) * self.cells).astype(np.int64)
        found = np.clip(found, 0, self.cells - 1)
        found -= (inside < self.edge(found)) & (found > 0)  # by rounding, one off at an edge
        found += (inside >= self.edge(found + 1)) & (found < self.cells - 1)
        counted = ~np.isnan(x) & ((self.outside == "clip") | (x == inside))
        return np.where(counted, found, -1)

    def strings(self, values: Any) -> pa.Array:
        """Return the digits of many values as byte strings, null where a value is not counted."""
        cells = self.cell(number_column(values))
        powers = self.branching ** np.arange(self.depth - 1, -1, -1, dtype=np.int64)
        digits = (np.maximum(cells, 0)[:, None] // powers % self.branching).astype(np.uint8)
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(self.depth), len(cells), [None, pa.py_buffer(np.ascontiguousarray(digits))]
        )
        return pc.if_else(pa.array(cells >= 0), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))

    def string(self, value: object) -> bytes | None:
        """Return the digits of a client's value, or None if it is not counted; anything at all may be passed."""
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return None
        try:
            found: bytes | None = self.strings(np.array([float(value)]))[0].as_py()
        except OverflowError:
            return None
        return found

    def numbers(self, strings: pa.Array) -> Ints:
        """Return the cells, at their own level, whose digits these are; all are of one length."""
        joined = b"".join(strings.to_pylist())
        if not joined:
            return np.zeros(len(strings), np.int64)
        digits = np.frombuffer(joined, np.uint8).reshape(len(strings), -1).astype(np.int64)
        return digits @ self.branching ** np.arange(digits.shape[1] - 1, -1, -1, dtype=np.int64)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Grid":
        """Rebuild what `to_json` returned; anything else is refused."""
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise InvalidValue("data is not a grid. Pass what Grid.to_json returned.")
        return cls(**data)


def checked_interval(low: object, high: object) -> tuple[float, float]:
    """Return the ends of an interval of values."""
    hint = "Pass two finite numbers, low < high, such as low=0.0 and high=100.0."
    first, last = validate.real("low", low, hint=hint), validate.real("high", high, hint=hint)
    if not 0 < last - first < np.inf:
        raise InvalidValue(f"low={first:g} is not below high={last:g}, or too far from it. {hint}")
    return first, last


def number_column(values: Any) -> NDArray[Any]:
    """Return one number for each client as a NumPy array, NaN for a null in Arrow; all else is refused, unquoted."""
    hint = "Pass numbers, as an Arrow array, a NumPy array or a list."
    if isinstance(values, pa.Array | pa.ChunkedArray):
        kind = values.type
        if any(fits(kind) for fits in (types.is_integer, types.is_floating, types.is_decimal, types.is_null)):
            values = values.cast(pa.float64(), safe=False)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # their messages may quote values
        array = np.empty((0, 0))
    if array.shape == (0,):
        return np.empty(0)
    if array.ndim == 1 and array.dtype == object and all(isinstance(value, int | float) for value in array):
        raise InvalidValue("values holds a whole number that does not fit 64 bits. Pass such numbers as floats.")
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidType(f"values must be one column of numbers. {hint}")
    return array
