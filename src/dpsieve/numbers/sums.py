"""Rows of numbers in any accepted form, and the draw of their sums."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.estimate import Estimate
from dpsieve.numbers.noise import ScaledNoise
from dpsieve.randomness.source import Source
from dpsieve.types import Ints
from dpsieve.values.columns import column_of, converted

_ROWS = "Pass rows of numbers: an array, a list of rows, a table with columns of numbers, or a sparse matrix."
SMALLEST_BOUND, LARGEST_BOUND = 1e-60, 1e60  # of bounds, so that no step is too small or too large for a float


def draw_sums(sums: Ints, mechanism: ScaledNoise, source: Source, names: Sequence[str], **notes: Any) -> Estimate:
    """Return exact sums, in steps, with the noise of a mechanism; charges no ledger. `notes` go to `Estimate.of`."""
    return Estimate.of(mechanism, mechanism.draw(sums, source), names, source=source, **notes)


class Rows(NamedTuple):
    """Rows as a two-dimensional array or a CSR matrix, names of columns, and whether the input was one flat column."""

    values: Any
    names: list[str] | None
    single: bool


def matrix(x: Any, name: str = "x") -> Rows:
    """Return rows of numbers in any accepted form, of an argument of this name; the numbers are not checked."""
    if hasattr(x, "tocsr"):
        return Rows(_sparse(x, name), None, False)
    if isinstance(x, pa.Array | pa.ChunkedArray) or (hasattr(x, "to_numpy") and len(getattr(x, "shape", ())) == 1):
        return Rows(_table(pa.table({"0": column_of(name, x, _ROWS)}), name).values, None, True)
    if hasattr(x, "__arrow_c_stream__") or isinstance(x, pa.Table | pa.RecordBatch):
        return _table(x, name)
    try:
        values = np.asarray(validate.listed(x))
    except ValueError:
        raise InvalidType(f"{name} has rows of different lengths. {_ROWS}") from None
    if values.dtype.kind not in "fiub" or values.ndim not in (1, 2) or 0 in values.shape[1:] or np.ma.isMaskedArray(x):
        raise InvalidType(f"{name} must be rows of numbers. {_ROWS}")
    return Rows(values if values.ndim == 2 else values[:, None], None, values.ndim == 1)


def _table(x: Any, name: str) -> Rows:
    pandas = hasattr(x, "iloc")  # its index is no column
    table = converted(lambda: pa.Table.from_pandas(x, preserve_index=False) if pandas else pa.table(x), name, _ROWS)
    if not all(pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_boolean(t) for t in table.schema.types):
        raise InvalidType(f"{name} has columns that are not numbers. {_ROWS}")
    if any(column.null_count for column in table.columns):
        raise InvalidValue(f"{name} holds nulls. Fill them in, or leave those rows out.")
    if not table.num_columns:
        raise InvalidType(f"{name} has no columns. {_ROWS}")
    return Rows(np.column_stack([column.to_numpy() for column in table.columns]), table.column_names, False)


def _sparse(x: Any, name: str) -> Any:
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

    matrix = converted(convert, name, _ROWS)
    if matrix.dtype.kind not in "fiub" or not matrix.shape[1]:
        raise InvalidType(f"{name} must be rows of numbers. {_ROWS}")
    return matrix


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
