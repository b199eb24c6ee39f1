"""The sum of bounded rows, in one call: exact sums on a grid, noise that is best for the chosen moment of the error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.box_grid import BoxGrid, fitted_grid
from dpsieve.numbers.estimate import Estimate, bounded_words, unit_rows
from dpsieve.numbers.norm_noise import budget_mu, moment, promised
from dpsieve.numbers.scaled_noise import NOISES, ScaledNoise, l2_distance
from dpsieve.privacy.ledger import AnyLedger, charge, open_ledger
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats
from dpsieve.validate import Neighbours
from dpsieve.values.columns import column_of, converted

_ROWS = "Pass rows of numbers: an array, a list of rows, a table with columns of numbers, or a sparse matrix."
_WIDTHS = "Pass one width, one for each coordinate, or a pair (low, high) for each coordinate."
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

    Each coordinate has public bounds; values outside are clipped to them. What a unit can change decides the noise:
    under 'replace' (another row in its place; the number of rows is public) high - low, under 'add_remove' (a row more
    or less; the number of rows is not used) max(|low|, |high|). So for a width w, which stands for [-w/2, w/2], it is w
    under 'replace' and w/2 under 'add_remove'. For bounds [0, b] it is b under both.

    Args:
        x: n rows of d numbers: an array, a list of rows, a pandas, Polars or Arrow table, or a SciPy sparse matrix,
            which stays sparse. An array of one dimension, or an empty list, is one coordinate. NaN and infinities are
            refused.
        widths: one number for all coordinates, one for each, or a pair (low, high) for each.
        neighbours: 'replace' or 'add_remove'.
        p: the moment of the total error, the sum over coordinates of |error|^p, that the split of noise makes least.
        rho: a budget in zCDP. The guarantee then says its epsilon at `delta` (default 10^-6).
        epsilon, delta: a budget instead of rho. Without delta the noise is Laplace's, and the guarantee pure.
        noise: 'auto', 'gaussian' or 'laplace'; 'auto' takes the one with the smaller p-th moment of the error.
        shape: 'best' splits the noise as above; 'equal' gives each coordinate the same noise (the plain mechanism),
            'proportional' each one its width's share.
        names: of the coordinates; default: those of the columns of a table, else 0, 1, 2, ...
        rows_per_unit: at most how many rows of x belong to one unit; the noise grows with it. Above 1, units may have
            different numbers of rows, so that 'replace' has bounds that are widened to hold 0.
        unit: who is protected, in words.
        ledger, note: where the spend is written down before anything is drawn, and a note for it.
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
    made, grid = best_noise(
        lows, highs, neighbours, p=p, rho=rho, epsilon=epsilon, delta=delta, noise=noise, shape=shape, unit=unit,
        rows=count, rows_per_unit=rows_per_unit,
    )  # fmt: skip
    if book is not None:
        book.check(made, note)
    sums = grid.sums(rows.values)
    with charge(book, made, note, lambda: made.draw(np.zeros_like(sums), resolve(None))) as entry:
        values = made.draw(sums, source)
    kinds = {"best": f"best for moment {moment(p):g} of the error", "equal": "equal", "proportional": "like the widths"}
    words = {"reason": f"{made.noise} noise, its split {kinds[shape]}", "contribution": bounded_words(rows_per_unit)}
    return Estimate.of(made, values, labels, source=source, single=rows.single, entry=entry, **words)


def best_noise(
    lows: Floats, highs: Floats, neighbours: Neighbours, *, p: float, rho: float | None, epsilon: float | None,
    delta: float | None, noise: str, shape: str, unit: str, rows: int = 0, rows_per_unit: int = 1,
) -> tuple[ScaledNoise, BoxGrid]:  # fmt: skip
    """Return the noise for rows in a box, and the grid on which rows are summed; `rows` counts under 'replace' alone.

    It holds public numbers alone, so it tells the error before anything is spent.
    """
    if (rho is None) == (epsilon is None):
        raise InvalidValue("exactly one of rho and epsilon is the budget. Pass rho=0.5, or epsilon=1.0 with delta.")
    if not isinstance(noise, str) or noise not in ("auto", *NOISES):
        raise InvalidValue(f"noise is not known. Choose one of auto, {', '.join(NOISES)}.")
    rows_per_unit = unit_rows(rows_per_unit)
    pure = rho is None and (delta is None or validate.delta(delta) == 0)
    kinds = ["gaussian"] if rho is not None else ["laplace"] if pure else list(NOISES)
    if noise != "auto" and noise not in kinds:
        fix = "Pass delta=1e-8 too." if pure else "Pass epsilon instead of rho."
        raise InvalidValue(f"noise={noise!r} does not go with this budget. {fix}")
    made = []
    for kind in kinds if noise == "auto" else [noise]:
        budget = budget_mu(rho, epsilon, delta) if kind == "gaussian" else validate.positive_epsilon(epsilon)
        grid, scale = fitted_grid(lows, highs, neighbours, kind, shape, p, budget, rows_per_unit)
        changes, steps, offsets = (tuple(a.tolist()) for a in (grid.changes, grid.steps, grid.origins * rows))
        promise = promised(scale, l2_distance(changes), epsilon, delta) if kind == "gaussian" else (budget, 0.0)
        numbers = (*promise, changes, scale, steps, offsets if any(offsets) else ())
        made.append((ScaledNoise(*numbers, noise=kind, neighbours=neighbours, unit=unit), grid))
    return min(made, key=lambda one: one[0].expected_error(p))


class Rows(NamedTuple):
    """Rows as an array of two dimensions or a CSR matrix, names of columns, and whether it was one column alone."""

    values: Any
    names: list[str] | None
    single: bool


def matrix(x: Any) -> Rows:
    """Return rows of numbers in any form that is accepted, without looking at the numbers."""
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
    """Return a CSR matrix in which each entry is stored once: what is stored twice would be clipped twice."""
    from scipy.sparse import csr_matrix

    def made() -> Any:
        given = x.tocsr()
        fresh = csr_matrix((given.data, given.indices, given.indptr), given.shape, copy=False)
        fresh.check_format(full_check=True)
        if not fresh.has_canonical_format:
            fresh = fresh.copy()
            fresh.sum_duplicates()
        return fresh

    matrix = converted(made, "x", _ROWS)
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
    """Return a name for each coordinate."""
    size = rows.values.shape[1]
    fix = "Pass a list with one text for each coordinate."
    if names is None:
        names = rows.names or [str(i) for i in range(size)]
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise InvalidType(f"names must be a list of texts. {fix}")
    if len(names) != size or len(set(names)) != size:
        raise InvalidValue(f"names has another length than x has coordinates, {size:,}, or repeats one. {fix}")
    if not all(name.isprintable() for name in names):
        raise InvalidValue(f"names has line breaks or control characters. {fix}")
    return list(names)
