"""Sums, means and quantiles of columns of a table, or of an array."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from dpsieve.engines.engine import Engine
from dpsieve.engines.true_data import NumberRows
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.key_columns import describe_rows
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import document
from dpsieve.jobs.run import Plan, run
from dpsieve.jobs.table import Array, Table, check_columns, clip_rows
from dpsieve.numbers.box import best_noise, mean_noise, sum_noise, unit_means_noise
from dpsieve.numbers.estimate import Estimate, describe_contribution, draw_sums
from dpsieve.numbers.grid_quantiles import GridQuantiles
from dpsieve.numbers.mean_plan import MeanPlan
from dpsieve.numbers.mean_steps import PreparedMean
from dpsieve.numbers.noise import ScaledNoise
from dpsieve.numbers.quantiles import INVENTED, choose_quantiles, draw_quantiles
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source
from dpsieve.types import Floats
from dpsieve.validate import Neighbours, QuantileMethod, RowKind, Scale

from dpsieve.jobs.number_request import (  # isort: skip
    MeanMethod, MeanRequest, NumberRequest, QuantileRequest, SumRequest,
)  # fmt: skip

Progress = Callable[[float], None] | bool | None
Bounds = Sequence[float] | Sequence[Sequence[float]]
_Numbers = TypeVar("_Numbers", SumRequest, MeanRequest, QuantileRequest)
_USUAL_WIDTHS = 10  # standard deviations between the bounds, where nothing is known
_TYPICAL_UNITS = (1_000, 10_000, 100_000)
_FEW = 16  # rows of a rehearsal


@document(SumRequest)
def sum(  # noqa: A001
    data: Any,
    *,
    column: str | Sequence[str] | None = None,
    bounds: Bounds,
    privacy_unit: str | Sequence[str] | None = None,
    max_rows_per_unit: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    neighbours: Neighbours = "add_remove",
    p: float | None = None,
    where: str | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> Estimate:
    """Publish the sums of columns of a table, or of an array, with differential privacy for one unit with all its rows.

    Each unit keeps at most `max_rows_per_unit` of its rows, chosen by a hash with a fresh secret salt, and each number
    is clipped to the bounds of its column. So one unit moves a sum by at most `max_rows_per_unit` times the larger
    bound in size, and the noise is for that. Each row of an array is a unit.

    [arguments]

    >>> import pyarrow as pa
    >>> sales = pa.table({"customer": [1, 1, 2, 3], "price": [20.0, 80.0, 30.0, 1e9]})
    >>> options = {"column": "price", "bounds": (0, 100), "privacy_unit": "customer", "max_rows_per_unit": 2}
    >>> total = sum(sales, **options, epsilon=500.0)
    >>> abs(total.value - 230) < 10
    True
    >>> print(total.guarantee)
    500-differential privacy when one customer is added or removed.
    >>> abs(sum([20.0, 30.0], bounds=(0, 100), epsilon=500.0).value - 50) < 10
    True
    """
    request = SumRequest.of(locals())
    plan = plan_sum(*locate(request, data, table, engine, progress))
    return run(plan, ledger=ledger, note=note, source=source, notes=describe_rows(request.rows))


@document(QuantileRequest)
def quantile(
    data: Any,
    *,
    column: str | Sequence[str] | None = None,
    bounds: Bounds,
    quantile: float | Sequence[float],
    privacy_unit: str | Sequence[str] | None = None,
    max_rows_per_unit: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    neighbours: Neighbours = "add_remove",
    method: QuantileMethod = "auto",
    scale: Scale = "linear",
    where: str | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> Estimate:
    """Publish quantiles of a column of a table, or of an array, with differential privacy for one unit.

    They are those of the rows that units keep, at most `max_rows_per_unit` of each. The number of rows of a table is
    private, under both relations. The values are points of a public grid between the bounds; `rank_error` bounds the
    number of rows between a value and its rank, for all quantiles together with probability 0.95.

    [arguments]

    >>> import pyarrow as pa
    >>> visits = pa.table({"minutes": list(range(10_001))})
    >>> median = quantile(visits, column="minutes", privacy_unit="row", quantile=0.5, bounds=(0, 9e5), epsilon=1.0)
    >>> abs(median.value - 5_000) <= 100
    True
    """
    request = QuantileRequest.of(locals())
    plan = plan_quantile(*locate(request, data, table, engine, progress))
    return run(plan, ledger=ledger, note=note, source=source, notes=describe_rows(request.rows))


@document(MeanRequest)
def mean(
    data: Any,
    *,
    column: str | Sequence[str] | None = None,
    bounds: Bounds | None = None,
    privacy_unit: str | Sequence[str] | None = None,
    max_rows_per_unit: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    p: float | None = None,
    method: MeanMethod = "auto",
    kind: RowKind = "real",
    neighbours: Neighbours = "replace",
    where: str | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress = None,
    source: Source | None = None,
) -> Estimate:
    """Publish the means of columns of a table over its units, or of the rows of an array, with differential privacy.

    A unit counts once: with the mean of the rows that it keeps, at most `max_rows_per_unit`, each number clipped to its
    bounds. So the noise does not grow with `max_rows_per_unit`. The table has a 95 % interval for the mean of the
    units, or nulls where none can be stated. 'auto' takes 'plan' where there are enough units for it, and the noise of
    'box' would exceed what the mean of as many units varies by itself, were the bounds ten deviations wide.

    [arguments]

    >>> import pyarrow as pa
    >>> visits = pa.table({"visitor": [i % 5_000 for i in range(10_000)], "minutes": [i % 61 for i in range(10_000)]})
    >>> options = {"column": "minutes", "bounds": (0, 60), "privacy_unit": "visitor", "max_rows_per_unit": 2}
    >>> average = mean(visits, **options, epsilon=1.0)
    >>> abs(average.value - 30) < 1
    True
    >>> print(average.guarantee)
    1-differential privacy when one visitor is replaced by another.
    """
    request = MeanRequest.of(locals())
    plan = plan_mean(*locate(request, data, table, engine, progress))
    return run(plan, ledger=ledger, note=note, source=source, notes=describe_rows(request.rows))


def locate(
    request: _Numbers, data: Any, table: str | None, engine: Engine | None, progress: Progress
) -> tuple[_Numbers, Table | Array]:
    """Return the request and the table to read; an array gives the request the names of its coordinates."""
    if request.column is not None:
        return request, Table.of(data, table, engine, request.allow_null_units, progress)
    is_table = isinstance(data, str | os.PathLike) or hasattr(data, "schema") or hasattr(data, "columns")
    if is_table or request.privacy_unit or table is not None or engine is not None:
        fix = "Name the column of numbers, such as column='price'; only arrays and lists of numbers have none."
        raise InvalidValue(f"column is missing. {fix}")
    array = Array.of(data)
    implied: Any = {"bounds": None} if isinstance(request, MeanRequest) and request.kind == "binary" else {}
    return replace(request, column=tuple(array.names), **implied), array


def plan_sum(request: SumRequest, table: Table | Array | None) -> Plan[Any, Estimate]:
    """Return the plan of a sum; without a table it can only be previewed."""
    names = request.column or ()
    lows, highs = request.box
    shared: Any = {"neighbours": request.neighbours, "rows_per_unit": request.max_rows_per_unit, **request.split}
    mechanism, grid = best_noise(lows, highs, **shared, **request.budget)
    split = f"best for moment {request.p:g} of the error" if request.p is not None else "in proportion to the bounds"
    reason = f"{mechanism.noise.capitalize()} noise" + (f", divided among the columns {split}" if len(lows) > 1 else "")
    notes: Any = {"reason": reason, "single": _is_single(request, table)}
    notes["contribution"] = describe_contribution(request.max_rows_per_unit, request.bounds)

    def finish(rows: NumberRows, source: Source) -> Estimate:
        drawn = sum_noise(mechanism, grid, rows.values.shape[0])
        return draw_sums(grid.sums(clip_rows(rows.values, lows, highs)), drawn, source, names, **notes)

    return _plan(request, table, mechanism, finish, notes)


def plan_quantile(request: QuantileRequest, table: Table | Array | None) -> Plan[Any, Estimate]:
    """Return the plan of quantiles; without a table it can only be previewed."""
    options: Any = {"bounds": request.bounds[0], "neighbours": request.neighbours, "method": request.method}
    options |= {"scale": request.scale, "rows_per_unit": request.max_rows_per_unit, **request.budget}
    mechanism, reason = choose_quantiles(request.quantile, **options)
    single = np.ndim(request.quantile) == 0
    if _is_sparse(table):
        raise InvalidType("data is a sparse matrix, and quantiles are of one column. Pass an array.")

    def finish(rows: NumberRows, source: Source) -> Estimate:
        values = np.ascontiguousarray(rows.values[:, 0], np.float64)
        return draw_quantiles(values, mechanism, source, reason=reason, single=single)

    notes = {"reason": reason, "contribution": describe_contribution(request.max_rows_per_unit, request.bounds)}
    return _plan(request, table, mechanism, finish, notes, len(INVENTED))


def plan_mean(request: MeanRequest, table: Table | Array | None) -> Plan[Any, Estimate]:
    """Return the plan of a mean; without a table it can only be previewed.

    Under 'replace' the number of units is public, and both the choice of the method and the cost depend on it.
    """
    assert request.column is not None
    lows, highs = request.box
    names, single = list(request.column), _is_single(request, table)
    rows = describe_contribution(request.max_rows_per_unit, request.bounds)
    adds = rows if request.max_rows_per_unit == 1 else f"the mean of {rows}"

    def notes_of(mechanism: ScaledNoise) -> Any:
        return {"reason": f"{mechanism.noise} noise for the bounds", "contribution": adds, "single": single}

    if request.neighbours == "add_remove":
        if _is_sparse(table):
            fix = "Pass neighbours='replace', or a dense array."
            raise InvalidType(f"data is a sparse matrix, which a mean with a private count would fill. {fix}")
        counted, sums_of = unit_means_noise(lows, highs, **request.budget, **request.split)

        def finish_counted(rows: NumberRows, source: Source) -> Estimate:
            *values, count = counted.draw(sums_of(_unit_means(rows, lows, highs)), source).tolist()
            options = {"drawn": {"units": count}, **notes_of(counted)}
            return Estimate.of(counted, np.array(values), names, source=source, **options)

        return _plan(request, table, counted, finish_counted, notes_of(counted))
    noise, grid = best_noise(lows, highs, "replace", **request.budget, **request.split)
    if request.method != "box" and not request.pure:
        _mean_plan(request, 1)  # raises for a budget or a moment that it does not take

    @cache
    def choose(count: int) -> PreparedMean | ScaledNoise:
        box = mean_noise(noise, grid, count)
        return _prepared(request, count) if _takes_plan(request, count, box.deviations, highs - lows) else box

    def cost_of(rows: NumberRows) -> Mechanism:
        chosen = choose(len(rows.starts) - 1)
        return chosen.cost if isinstance(chosen, PreparedMean) else chosen

    def finish(rows: NumberRows, source: Source) -> Estimate:
        units = _unit_means(rows, lows, highs)
        chosen = choose(units.shape[0])
        if not isinstance(chosen, PreparedMean):
            return draw_sums(grid.sums(units), chosen, source, names, **notes_of(chosen))
        estimate = chosen.draw(chosen.bounded(units), source, names, single=single)
        return replace(estimate, notes=replace(estimate.notes, contribution=adds))

    def rehearse(rows: NumberRows, source: Source) -> None:
        units = np.zeros((len(rows.starts) - 1, len(names)))
        chosen = choose(len(units))
        if isinstance(chosen, PreparedMean):
            chosen.draw(chosen.bounded(units[:_FEW]), source, names, single=single)
        else:
            chosen.draw(np.zeros(len(names), np.int64), source)

    plan = _plan(request, table, mean_noise(noise, grid, 1), finish, notes_of(noise))
    return replace(plan, final_cost=cost_of, rehearse=rehearse)


def _plan(
    request: NumberRequest,
    table: Table | Array | None,
    mechanism: Mechanism,
    finish: Callable[[NumberRows, Source], Estimate],
    notes: dict[str, Any],
    rehearsed: int = 1,
) -> Plan[Any, Estimate]:
    """Return the plan that reads rows of numbers; `rehearsed` is the number of invented rows."""
    assert request.column is not None

    def read(source: Source) -> NumberRows:
        assert table is not None
        return table.numbers(request.columns, request.max_rows_per_unit, source)

    def rehearse(_: NumberRows, source: Source) -> None:
        assert request.column is not None
        finish(NumberRows(np.zeros((rehearsed, len(request.column))), np.arange(rehearsed + 1)), source)

    def describe() -> Preview:
        details = _noise_lines(request, mechanism)
        return Preview(mechanism.guarantee, mechanism.name, notes["reason"], notes["contribution"], details=details)

    def finish_named(rows: NumberRows, source: Source) -> Estimate:
        return finish(rows, source).with_notes(statistic=request.statistic, bounds=request.bounds)

    check = check_columns(request, table)
    return Plan(mechanism, read, finish_named, rehearse, check, describe)


def _noise_lines(request: NumberRequest, mechanism: Any) -> tuple[tuple[str, str], ...]:
    """Return the noise to expect; that of a mean is inversely proportional to the number of units."""
    if isinstance(mechanism, GridQuantiles):
        return (("rows off its rank", f"at most {max(mechanism.rank_errors):,.0f} for each quantile (95 %)"),)

    def listed(units: int) -> str:
        size = len(request.column or request.bounds)
        return ", ".join(f"{deviation / units:.4g}" for deviation in mechanism.deviations[:size])

    label = "standard deviation of the noise"
    if isinstance(request, SumRequest):
        return ((label, listed(1)),)
    return tuple((f"{label}, {units:,} units", listed(units)) for units in _TYPICAL_UNITS)


def _is_single(request: NumberRequest, table: Table | Array | None) -> bool:
    """Return whether the result is one number, not an array of them."""
    return table.is_flat if isinstance(table, Array) else len(request.column or ()) == 1


def _is_sparse(table: Table | Array | None) -> bool:
    return isinstance(table, Array) and hasattr(table.values, "tocsr")


def _unit_means(rows: NumberRows, lows: Floats, highs: Floats) -> Any:
    """Return the mean of the rows of each unit; a sparse matrix has one row per unit, and stays sparse."""
    return rows.values if hasattr(rows.values, "tocsr") else rows.unit_means(lows, highs)


def _takes_plan(request: MeanRequest, count: int, deviations: Floats, widths: Floats) -> bool:
    if request.method == "box" or request.pure:
        return False
    plan = _mean_plan(request, count)
    if request.method == "plan":
        if not plan.useful:
            needed = f"{plan.rows_needed:,}" if plan.rows_needed else "more than all"
            fix = "Pass a larger budget, or method='box'."
            raise InvalidValue(f"data has too few units: method='plan' needs {needed} units for these columns. {fix}")
        return True
    noise, usual = float(np.linalg.norm(deviations)), float(np.linalg.norm(widths)) / _USUAL_WIDTHS
    return plan.useful and noise > usual / math.sqrt(count)


def _mean_plan(request: MeanRequest, count: int) -> MeanPlan:
    assert request.column is not None
    bound = None if request.kind == "binary" else float(np.abs(request.box).max())
    budget = {"rho": request.rho, "epsilon": request.epsilon, "delta": request.delta}
    return MeanPlan.make(count, len(request.column), bound=bound, **budget, p=request.split["p"], kind=request.kind)


def _prepared(request: MeanRequest, count: int) -> PreparedMean:
    plan = _mean_plan(request, count)
    return PreparedMean(plan, plan.promise(request.epsilon, request.delta), request.unit)
