"""The sum of bounded rows, in one call: exact sums on a grid, and the noise with the least moment of the error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.box import best_noise, sum_noise
from dpsieve.numbers.estimate import Estimate, charge_and_draw, describe_contribution
from dpsieve.numbers.noise import ScaledNoise
from dpsieve.privacy.ledger import AnyLedger, open_ledger
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats, Ints
from dpsieve.validate import Neighbours
from dpsieve.values.columns import column_of, converted

_ROWS = "Pass rows of numbers: an array, a list of rows, a table with columns of numbers, or a sparse matrix."
_WIDTHS = "Pass one width, one per coordinate, or a pair (low, high) per coordinate."
SMALLEST_BOUND, LARGEST_BOUND = 1e-60, 1e60  # of bounds, so that no step is too small or too large for a float


def private_sum(
    x: Any,
    widths: Any,
    *,
    neighbours: Neighbours,
    p: float = 2.0,
    rho: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise: str = "auto",
    shape: str = "best",
    names: Sequence[str] | None = None,
    rows_per_unit: int = 1,
    unit: str = "one row",
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> Estimate:
    """Return the private sum of all rows, coordinate by coordinate; a privacy unit has one row.

    Each coordinate has public bounds; values outside are clipped to them. The noise follows from the largest change by
    one unit: under 'replace' (another row in its place; the number of rows is public) high - low, under 'add_remove' (a
    row more or less; the number of rows is not used) max(|low|, |high|). So for a width w, which stands for
    [-w/2, w/2], it is w under 'replace' and w/2 under 'add_remove'. For bounds [0, b] it is b under both.

    Args:
        x: n rows of d numbers: an array, a list of rows, a pandas, Polars or Arrow table, or a SciPy sparse matrix,
            which stays sparse. An array of one dimension, or an empty list, is one coordinate. NaN and infinities are
            refused.
        widths: one number for all coordinates, one per coordinate, or a pair (low, high) per coordinate.
        neighbours: 'replace' or 'add_remove'.
        p: the moment of the total error, the sum over coordinates of |error|^p, that the split of noise minimises.
        rho: a zCDP budget; its epsilon is stated at `delta` (default 10^-6).
        epsilon, delta: a budget instead of rho. Without delta the noise is Laplace's, and the guarantee pure.
        noise: 'gaussian', 'laplace', or 'auto': the one with the smaller p-th moment of the error.
        shape: 'best' splits the noise as above; 'equal' gives all coordinates the same noise (the plain mechanism),
            'proportional' noise in proportion to their widths.
        names: of the coordinates; default: those of the columns of a table, or 0, 1, 2, ...
        rows_per_unit: the largest number of rows per unit; the noise grows with it. Above 1, units may have different
            numbers of rows, so bounds are widened to include 0 under 'replace'.
        unit: the name of the privacy unit.
        ledger, note: a `Ledger` or its path, charged before the draw, and a note for the entry.
        source: of randomness, for tests.

    >>> total = private_sum([[1.0, 30.0], [0.0, 45.0]], [(0, 1), (0, 120)], neighbours="add_remove", epsilon=100.0)
    >>> total.table.column_names, len(total.value)
    (['name', 'value', 'deviation', 'low', 'high'], 2)
    >>> print(total.guarantee)
    100-differential privacy when one row is added or removed.
    """
    neighbours, book, source = validate.neighbours(neighbours), open_ledger(ledger, note), resolve(source)
    rows = matrix(x)
    count, size = rows.values.shape
    lows, highs = box(widths, size, rows.single)
    labels = coordinate_names(names, rows)
    mechanism, grid = best_noise(
        lows, highs, neighbours, p=p, rho=rho, epsilon=epsilon, delta=delta, noise=noise, shape=shape, unit=unit,
        rows_per_unit=rows_per_unit,
    )  # fmt: skip
    if book is not None:
        book.check(mechanism, note)
    mechanism, sums = sum_noise(mechanism, grid, count), grid.sums(rows.values)
    splits = {"best": f"best for moment {float(p):g} of the error", "equal": "equal", "proportional": "like the widths"}
    notes: Any = {"reason": f"{mechanism.noise} noise, its split {splits[shape]}", "single": rows.single}
    notes["contribution"] = describe_contribution(rows_per_unit)

    def finish(sums: Ints, source: Source) -> Estimate:
        return draw_sums(sums, mechanism, source, labels, **notes)

    return charge_and_draw(mechanism, finish, sums, np.zeros_like(sums), ledger=book, note=note, source=source)


def draw_sums(sums: Ints, mechanism: ScaledNoise, source: Source, names: Sequence[str], **notes: Any) -> Estimate:
    """Return exact sums, in steps, with the noise of a mechanism; charges no ledger. `notes` go to `Estimate.of`."""
    return Estimate.of(mechanism, mechanism.draw(sums, source), names, source=source, **notes)


class Rows(NamedTuple):
    """Rows as a two-dimensional array or a CSR matrix, names of columns, and whether the input was one flat column."""

    values: Any
    names: list[str] | None
    single: bool


def matrix(x: Any) -> Rows:
    """Return rows of numbers in any accepted form; the numbers are not checked."""
    if hasattr(x, "tocsr"):
        return Rows(_sparse(x), None, False)
    if isinstance(x, pa.Array | pa.ChunkedArray) or (hasattr(x, "to_numpy") and len(getattr(x, "shape", ())) == 1):
        return Rows(_table(pa.table({"0": column_of("x", x, _ROWS)})).values, None, True)
    if hasattr(x, "__arrow_c_stream__") or isinstance(x, pa.Table | pa.RecordBatch):
        return _table(x)
    try:
        values = np.asarray(validate.listed(x))
    except ValueError:
        raise InvalidType(f"x has rows of different lengths. {_ROWS}") from None
    if values.dtype.kind not in "fiub" or values.ndim not in (1, 2) or 0 in values.shape[1:] or np.ma.isMaskedArray(x):
        raise InvalidType(f"x must be rows of numbers. {_ROWS}")
    return Rows(values if values.ndim == 2 else values[:, None], None, values.ndim == 1)


def _table(x: Any) -> Rows:
    pandas = hasattr(x, "iloc")  # its index is no column
    table = converted(lambda: pa.Table.from_pandas(x, preserve_index=False) if pandas else pa.table(x), "x", _ROWS)
    if not all(pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t) for t in table.schema.types):
        raise InvalidType(f"x has columns that are not numbers. {_ROWS}")
    if any(column.null_count for column in table.columns):
        raise InvalidValue("x holds nulls. Fill them in, or leave those rows out.")
    if not table.num_columns:
        raise InvalidType(f"x has no columns. {_ROWS}")
    return Rows(np.column_stack([column.to_numpy() for column in table.columns]), table.column_names, False)


def _sparse(x: Any) -> Any:
    """Return a CSR matrix without duplicate entries, which would be clipped one by one."""
    from scipy.sparse import csr_matrix

    def convert() -> Any:
        given = x.tocsr()
        rows = csr_matrix((given.data, given.indices, given.indptr), given.shape, copy=False)
        rows.check_format(full_check=True)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        return rows

    matrix = converted(convert, "x", _ROWS)
    if matrix.dtype.kind not in "fiub" or not matrix.shape[1]:
        raise InvalidType(f"x must be rows of numbers. {_ROWS}")
    return matrix


def box(widths: Any, size: int, single: bool = False) -> tuple[Floats, Floats]:
    """Return the lower and the upper bound of each coordinate."""
    given = validate.finite("widths", widths, hint=_WIDTHS)
    if single and given.shape == (2,):
        given = given[None]
    if given.shape == (size, 2):
        lows, highs = given.T.copy()
        if (lows > highs).any():
            raise InvalidValue("widths holds a pair whose low is above its high. Pass (low, high).")
    elif given.shape in ((), (1,), (size,)):
        if (given < 0).any():
            raise InvalidValue(f"widths holds a negative width. {_WIDTHS}")
        highs = np.broadcast_to(given / 2, (size,)).copy()
        lows = -highs
    else:
        raise InvalidValue(f"widths has another number of entries than x has coordinates, {size:,}. {_WIDTHS}")
    sizes = np.concatenate([np.abs(lows), np.abs(highs), highs - lows])
    if ((sizes > 0) & ((sizes < SMALLEST_BOUND) | (sizes > LARGEST_BOUND))).any():
        raise InvalidValue("widths holds bounds below 10^-60 or above 10^60. Rescale the data.")
    return lows, highs


def coordinate_names(names: Any, rows: Rows) -> list[str]:
    """Return one name per coordinate."""
    size = rows.values.shape[1]
    fix = "Pass a list with one text per coordinate."
    if names is None:
        names = rows.names or [str(i) for i in range(size)]
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidType(f"names must be a list of texts. {fix}")
    if len(names) != size or len(set(names)) != size:
        raise InvalidValue(f"names has another length than x has coordinates, {size:,}, or repeats one. {fix}")
    if not all(name.isprintable() for name in names):
        raise InvalidValue(f"names has line breaks or control characters. {fix}")
    return list(names)
