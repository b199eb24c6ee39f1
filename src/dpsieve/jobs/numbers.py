"""Sums, quantiles and means of columns of a table, in one call.

The order is that of `jobs.release`: check the arguments and the ledger, bound and read, write the spend down, draw.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpsieve.engines import Engine, NumberRows, choose
from dpsieve.errors import InvalidValue
from dpsieve.jobs.number_request import MeanRequest, NumberRequest, QuantileRequest, SumRequest
from dpsieve.numbers.box_mean import box_mean_noise, unit_means_noise
from dpsieve.numbers.estimate import Estimate, bounded_words
from dpsieve.numbers.mean import private_mean
from dpsieve.numbers.mean_plan import MeanPlan, preview_mean
from dpsieve.numbers.quantiles import best_quantiles, publish_quantiles
from dpsieve.numbers.scaled_noise import ScaledNoise
from dpsieve.numbers.sums import best_noise, private_sum
from dpsieve.privacy.ledger import AnyLedger, Ledger, charge, opened
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

Progress = Callable[[float], None] | bool | None
Bounds = Sequence[float] | Sequence[Sequence[float]]
_USUAL_WIDTHS = 10  # deviations between the bounds, where nothing is known


def sum_of(
    data: Any,
    *,
    column: str | Sequence[str],
    bounds: Bounds,
    privacy_unit: str | Sequence[str] | None = None,
    max_rows_per_unit: int = 1,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    allow_null_units: bool = False,
    neighbours: Neighbours = "add_remove",
    p: float | None = None,
    engine: Engine | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> Estimate:
    """Publish the sums of columns of a table, with differential privacy for one unit with all its rows.

    Each unit keeps at most `max_rows_per_unit` of its rows, chosen by a hash with a fresh secret salt, and each number
    is limited to the bounds of its column. So one unit moves a sum by at most `max_rows_per_unit` times the larger
    bound in size, and the noise is for that (`dpsieve.private_sum`).

    Args:
        data: see `dpsieve.release`.
        column: the column of numbers, or several. Rows without a number (null or NaN; in a text file, a text that is no
            number) in one of them are left out.
        bounds: a public pair (low, high) for all columns, or one for each.
        privacy_unit: the column that says who is protected, or several: then a unit is one combination of their values.
            Without it, each row is its own unit.
        max_rows_per_unit: how many rows of a unit count; the noise grows with it.
        epsilon, delta, rho: the budget: epsilon alone for pure privacy, epsilon and delta, or rho for zCDP.
        allow_null_units: drop rows with a null unit instead of refusing the data.
        neighbours: 'add_remove' (a unit more or less), or 'replace' (a unit's rows are exchanged for others). With
            'replace' and one row a unit, how many units have a row that is not left out is taken as public.
        p: where all columns are in one unit of measure, the moment of the total error that the split of noise makes
            least, such as 2; left out, each column has noise in proportion to its bounds.
        engine, ledger, note, progress, source: see `dpsieve.release`.

    >>> import pyarrow as pa
    >>> sales = pa.table({"customer": [1, 1, 2, 3], "price": [20.0, 80.0, 30.0, 1e9]})
    >>> options = {"column": "price", "bounds": (0, 100), "privacy_unit": "customer", "max_rows_per_unit": 2}
    >>> total = sum_of(sales, **options, epsilon=500.0)
    >>> abs(total.value - 230) < 10
    True
    >>> print(total.guarantee)
    500-differential privacy when one customer is added or removed.
    """
    request, source, book = SumRequest.of(locals()), resolve(source), opened(ledger, note)
    lows, highs = request.box
    shared: Any = {"neighbours": request.neighbours, "rows_per_unit": request.max_rows_per_unit, **request.split}
    made, _ = best_noise(lows, highs, noise="auto", **shared, **request.budget)
    values = _read(data, request, made, engine, book, note, progress, source).values
    x, widths = _one_or_many(np.clip(values, lows, highs)), np.column_stack([lows, highs])
    names = list(request.column)
    return private_sum(x, widths, names=names, ledger=book, note=note, source=source, **shared, **request.budget)


def quantile_of(
    data: Any,
    *,
    column: str | Sequence[str],
    bounds: Bounds,
    q: float | Sequence[float],
    privacy_unit: str | Sequence[str] | None = None,
    max_rows_per_unit: int = 1,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    allow_null_units: bool = False,
    neighbours: Neighbours = "add_remove",
    method: str = "auto",
    scale: str = "linear",
    engine: Engine | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> Estimate:
    """Publish quantiles of a column of a table, with differential privacy for one unit with all its rows.

    They are those of the rows that units keep, at most `max_rows_per_unit` of each. The number of rows is private,
    under both relations.

    Args:
        q: the quantile, from 0 to 1, or a list of them.
        method, scale: see `dpsieve.private_quantile`.
        data, column, bounds, privacy_unit, max_rows_per_unit, epsilon, delta, rho, allow_null_units, neighbours,
            engine, ledger, note, progress, source: see `dpsieve.sum_of`; there is one column.

    >>> import pyarrow as pa
    >>> visits = pa.table({"minutes": list(range(10_001))})
    >>> median = quantile_of(visits, column="minutes", q=0.5, bounds=(0, 1_000_000), epsilon=1.0)
    >>> abs(median.value - 5_000) <= 100
    True
    """
    request, source, book = QuantileRequest.of(locals()), resolve(source), opened(ledger, note)
    if request.method == "slices":
        why = "needs a public number of rows, and that of a table is private"
        raise InvalidValue(f"method='slices' {why}. Pass method='halving', or use private_quantile.")
    options: Any = {"bounds": request.bounds[0], "neighbours": request.neighbours, "method": request.method}
    options |= {"scale": request.scale, "rows_per_unit": request.max_rows_per_unit, **request.budget}
    made, reason = best_quantiles(request.q, **options)
    values = _read(data, request, made, engine, book, note, progress, source).values
    column_values, single = np.ascontiguousarray(values[:, 0]), not isinstance(request.q, Sequence)
    return publish_quantiles(column_values, made, reason, single=single, ledger=book, note=note, source=source)


def mean_of(
    data: Any,
    *,
    column: str | Sequence[str],
    bounds: Bounds | None = None,
    privacy_unit: str | Sequence[str] | None = None,
    max_rows_per_unit: int = 1,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    allow_null_units: bool = False,
    p: float | None = None,
    method: str = "auto",
    kind: str = "real",
    neighbours: Neighbours = "replace",
    engine: Engine | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> Estimate:
    """Publish the means of columns of a table over its units, with differential privacy for one unit with all its rows.

    A unit counts once: with the mean of the rows that it keeps, at most `max_rows_per_unit`, each number limited to its
    bounds. So the noise does not grow with `max_rows_per_unit`. The table has a 95 % interval for the mean of the
    units, or nulls where none can be stated.

    Args:
        p: where all columns are in one unit of measure, the norm of the total error that is made small, such as 2; left
            out, 'box' has noise in proportion to the bounds of each column, and 'plan' takes 2.
        method: 'box' (the sum's noise, for what the bounds allow; no other clipping), 'plan' (PLAN: finds centre and
            spread privately and clips what is far from them; for many columns, or bounds much wider than the data; see
            `dpsieve.private_mean`), or 'auto': 'plan' where there are enough units for it, and the noise of 'box'
            would be above what the mean of as many units varies by itself, were the bounds ten deviations wide.
        kind: 'real', or 'binary' for columns of zeros and ones: what share of the units is one. Bounds are left out
            then, as they are 0 and 1; a number outside counts as the nearer one.
        neighbours: 'replace' (one unit is replaced by another: the number of units that have a row which is not left
            out is public), or 'add_remove' (a unit more or less: their number is private, and part of the budget counts
            them; method 'box' alone). With 'add_remove' one ledger serves counts, sums, quantiles and means.
        data, column, bounds, privacy_unit, max_rows_per_unit, epsilon, delta, rho, allow_null_units, engine, ledger,
            note, progress, source: see `dpsieve.sum_of`.

    >>> import pyarrow as pa
    >>> visits = pa.table({"visitor": [i % 5_000 for i in range(10_000)], "minutes": [i % 61 for i in range(10_000)]})
    >>> options = {"column": "minutes", "bounds": (0, 60), "privacy_unit": "visitor", "max_rows_per_unit": 2}
    >>> mean = mean_of(visits, **options, epsilon=1.0)
    >>> abs(mean.value - 30) < 1
    True
    >>> print(mean.guarantee)
    1-differential privacy when one visitor is replaced by another.
    """
    request, source, book = MeanRequest.of(locals()), resolve(source), opened(ledger, note)
    options: Any
    lows, highs = request.box
    if request.neighbours == "add_remove":
        counted, sums_of = unit_means_noise(lows, highs, **request.budget, **request.split)
        units = _read(data, request, counted, engine, book, note, progress, source).unit_means(lows, highs)
        sums = sums_of(units)
        with charge(book, counted, note, lambda: counted.draw(np.zeros_like(sums), resolve(None))) as entry:
            *values, count = counted.draw(sums, source).tolist()
            return _box_estimate(request, replace(counted, units=count), np.array(values), source, entry)
    budget = {**request.budget, "p": request.split["p"]}
    made, _ = box_mean_noise(1, lows, highs, **request.budget, **request.split)
    if request.method != "box" and not request.pure:
        _planned(request, 1)
    units = _read(data, request, made, engine, book, note, progress, source).unit_means(lows, highs)
    made, grid = box_mean_noise(len(units), lows, highs, **request.budget, **request.split)
    if _takes_plan(request, len(units), made.deviations, highs - lows):
        x, bound = _one_or_many(units), _bound(request)
        options = {"bound": bound, "kind": request.kind, "names": list(request.column), **budget}
        found = private_mean(x, ledger=book, note=note, source=source, **options)
    else:
        sums = grid.sums(units)
        with charge(book, made, note, lambda: made.draw(np.zeros_like(sums), resolve(None))) as entry:
            return _box_estimate(request, made, made.draw(sums, source), source, entry)
    return replace(found, notes=replace(found.notes, contribution=_held(request)))


def _box_estimate(
    request: MeanRequest, made: ScaledNoise, values: Floats, source: Source, entry: int | None
) -> Estimate:
    reason, single = f"{made.noise} noise for all that the bounds allow", len(request.column) == 1
    words: Any = {"reason": reason, "contribution": _held(request), "single": single, "entry": entry}
    return Estimate.of(made, values, list(request.column), source=source, **words)


def _held(request: MeanRequest) -> str:
    held = bounded_words(request.max_rows_per_unit)
    return held if request.max_rows_per_unit == 1 else f"the mean of {held}"


def _takes_plan(request: MeanRequest, count: int, deviations: Floats, widths: Floats) -> bool:
    if request.method == "box" or request.pure:
        return False
    plan = _planned(request, count)
    if request.method == "plan":
        if not plan.useful:
            needed = f"{plan.rows_needed:,}" if plan.rows_needed else "more than all"
            fix = "Pass a larger budget, or method='box'."
            raise InvalidValue(f"data has too few units: method='plan' needs {needed} units for these columns. {fix}")
        return True
    noise, usual = float(np.linalg.norm(deviations)), float(np.linalg.norm(widths)) / _USUAL_WIDTHS
    return plan.useful and noise > usual / math.sqrt(count)


def _planned(request: MeanRequest, count: int) -> MeanPlan:
    budget: Any = {"rho": request.rho, "epsilon": request.epsilon, "delta": request.delta, "p": request.split["p"]}
    return preview_mean(count, len(request.column), bound=_bound(request), kind=request.kind, **budget)


def _bound(request: MeanRequest) -> float | None:
    return None if request.kind == "binary" else float(np.abs(request.box).max())


def _read(
    data: Any,
    request: NumberRequest,
    cost: Mechanism,
    engine: Engine | None,
    book: Ledger | None,
    note: str,
    progress: Progress,
    source: Source,
) -> NumberRows:
    """Return the bounded rows of a request, once the ledger says that the cost would fit."""
    if book is not None:
        book.check(cost, note)
    options: Any = {"salt": uniform_bits(source, 63), "allow_null_units": request.allow_null_units}
    chosen = choose(data, engine)
    return chosen.read_numbers(data, request.columns, request.max_rows_per_unit, progress=progress, **options)


def _one_or_many(values: Floats) -> Floats:
    """Return one column as a flat array."""
    return values[:, 0] if values.shape[1] == 1 else values
