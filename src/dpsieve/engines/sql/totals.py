"""What units add to totals per key, as SQL for DuckDB; `noise.totals` has the formulas.

A row has the columns q0, q1, ...: whole numbers as decimals, null where there is no finite number. A pair of a unit and
a key has their sums s0, ... and for means their numbers c0, ...; what the unit adds is a0, ..., on the grid, or in
steps where bounds are still to be chosen. Sums are of decimals: exact in any order, and with room for 10^10 rows of a
unit in one key at the very least. All that follows is computed from these sums alone, in doubles.
"""

import sys
from collections.abc import Callable, Mapping, Sequence

from dpsieve.engines.sql.columns import Column
from dpsieve.noise.totals import GRID, AnyTotal, RawTotal

Call = Callable[..., str]
"""Returns the call of a function or an operator, by its name and arguments; see `sql.queries.Pieces`."""
_EXACT = "DECIMAL(18, 0)"


def row_values(totals: Sequence[AnyTotal], columns: Mapping[str, Column], call: Call) -> list[str]:
    """Return the columns q0, q1, ... of a row."""
    return [_in_steps(columns[total.column].as_number, total, call) for total in totals]


def pair_sums(totals: Sequence[AnyTotal], call: Call, sum_name: str) -> list[str]:
    """Return the columns of a pair of a unit and a key."""
    sums = [f"{call(sum_name, f'q{i}')} AS s{i}" for i in range(len(totals))]
    return sums + [f"{call('count', f'q{i}')} AS c{i}" for i, total in enumerate(totals) if total.statistic == "mean"]


def amounts(totals: Sequence[AnyTotal], call: Call, *, of_rows: bool = False) -> list[str]:
    """Return the columns a0, a1, ... of what a pair adds, or `of_rows` each row that is a unit of its own."""
    return [f"{_amount(i, total, call, of_rows)} AS a{i}" for i, total in enumerate(totals)]


def amount_names(totals: Sequence[AnyTotal]) -> list[str]:
    """Return a0, a1, ..."""
    return [f"a{i}" for i in range(len(totals))]


def key_sums(totals: Sequence[AnyTotal], call: Call) -> str:
    """Return the sums over units, as further columns of a SELECT; empty without totals."""
    return "".join(f", CAST({call('sum', f'a{i}')} AS BIGINT) AS a{i}" for i in range(len(totals)))


def _in_steps(value: str, total: AnyTotal, call: Call) -> str:
    least, most = _real(-sys.float_info.max), _real(sys.float_info.max)
    clipped = _clipped(value, _real(-total.largest_row), _real(total.largest_row), call)
    steps = _rounded(call("*", clipped, _real(total.steps_per_unit)), call)
    # NaN is above all numbers, or unordered: it is in no range, and neither is an infinity.
    return f"CASE WHEN {value} >= {least} AND {most} >= {value} THEN CAST({steps} AS {_EXACT}) END"


def _amount(i: int, total: AnyTotal, call: Call, of_rows: bool) -> str:
    name = f"{'q' if of_rows else 's'}{i}"
    x = f"CAST({name} AS DOUBLE)"
    if total.statistic == "mean" and not of_rows:
        x = call("/", x, f"CAST(c{i} AS DOUBLE)")
    if isinstance(total, RawTotal):
        return f"CASE WHEN {name} IS NOT NULL THEN {x} END"
    moved = call("*", call("-", x, _real(total.low * total.steps_per_unit)), _real(total.per_step))
    grid = _rounded(_clipped(moved, _real(0.0), _real(float(GRID)), call), call)
    return f"CASE WHEN {name} IS NOT NULL THEN CAST({grid} AS BIGINT) ELSE {total.missing} END"


def _clipped(value: str, low: str, high: str, call: Call) -> str:
    return call("least", call("greatest", value, low), high)


def _rounded(value: str, call: Call) -> str:
    return call("floor", call("+", value, _real(0.5)))


def _real(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"
