"""`dpsieve sum`, `mean` and `quantile`: private numbers of columns of a table."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsieve.cli.options import (
    MEAN,
    QUANTILE,
    SUM,
    AsJson,
    DataFiles,
    LedgerPath,
    Memory,
    Note,
    Out,
    takes_request,
)  # fmt: skip
from dpsieve.cli.release import finish, reserved, scanning
from dpsieve.errors import InvalidValue

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from dpsieve.numbers.estimate import Estimate


@takes_request(SUM)
def sum_(
    data: DataFiles,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    as_json: AsJson = False,
) -> None:
    """Publish the sums of columns of numbers. Rows without a number in one of them are left out.

    With --neighbours replace and one row a unit, how many units have such a row is taken as public.

    Example: dpsieve sum sales.parquet --column price --bounds 0,100 --unit user_id --max-rows 5 --epsilon 1
    """
    from dpsieve.jobs.numbers import sum_of as run

    _run(run, data, request, ledger, note, out, memory, as_json)


@takes_request(MEAN)
def mean(
    data: DataFiles,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    as_json: AsJson = False,
) -> None:
    """Publish the means of columns of numbers over units: a unit counts once, with the mean of its rows.

    With --neighbours replace, how many units have a number in each column is taken as public. With add_remove it is
    private, and one ledger serves means, sums, quantiles and counts of one table.

    Example: dpsieve mean visits.csv --column minutes --bounds 0,600 --column pages --bounds 0,50 --epsilon 1
    """
    from dpsieve.jobs.numbers import mean_of as run

    _run(run, data, request, ledger, note, out, memory, as_json)


@takes_request(QUANTILE)
def quantile(
    data: DataFiles,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    as_json: AsJson = False,
) -> None:
    """Publish quantiles of a column of numbers. Rows without a number are left out.

    Example: dpsieve quantile sales.parquet --column price --bounds 0,10000 --quantile 0.5,0.9 --epsilon 1
    """
    from dpsieve.jobs.numbers import quantile_of as run

    request["q"] = numbers_of("quantile", request["q"], "0.5,0.9")
    _run(run, data, request, ledger, note, out, memory, as_json)


def _run(
    job: "Callable[..., Estimate]",
    data: Any,
    request: dict[str, Any],
    ledger: "Path | None",
    note: str,
    out: "Path | None",
    memory: str | None,
    as_json: bool,
) -> None:
    from dpsieve.engines import DuckDB
    from dpsieve.privacy.ledger import open_ledger

    if request["bounds"] is not None:
        request["bounds"] = [numbers_of("bounds", pair, "0,100") for pair in request["bounds"]]
    engine, book = DuckDB(memory_limit=memory), open_ledger(ledger, note)
    with reserved(out) as place, scanning(quiet=as_json) as progress:
        made = job(data, engine=engine, ledger=book, note=note, progress=progress, **request)
        finish(made, place, partial(_show, made), as_json=as_json)


def numbers_of(option: str, text: str, example: str) -> list[float]:
    """Return numbers with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue(f"--{option} is not numbers with commas between. Pass --{option} {example}.") from None


def _show(made: "Estimate", console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.display import printable

    ranks = "rank_error" in made.table.column_names
    table = Table()
    table.add_column("quantile" if ranks else "column", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("rows off its rank, at most (95 %)" if ranks else "95 % interval", justify="right", no_wrap=True)
    for row in made.table.to_pylist():
        error = f"{row['rank_error']:,.0f}" if ranks else _interval(row["low"], row["high"])
        table.add_row(escape(printable(row["name"])), f"{row['value']:,.6g}", error)
    console.print(table)


def _interval(low: float | None, high: float | None) -> str:
    return "not stated" if low is None or high is None else f"{low:,.6g} to {high:,.6g}"
