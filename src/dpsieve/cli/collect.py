"""`dpsieve collect`: what a collection from clients would publish, with the rows of a table for clients."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsieve.cli.command import Command, Group
from dpsieve.cli.messages import errors_as_typed
from dpsieve.cli.numbers import numbers_of
from dpsieve.cli.options import (
    DISTRIBUTION,
    HISTOGRAM,
    HITTERS,
    AsJson,
    DataFiles,
    LedgerPath,
    Memory,
    Note,
    Out,
    Top,
    takes_request,
)  # fmt: skip
from dpsieve.cli.release import engine_of, finish, reserved, scanning, show_release
from dpsieve.display import json_text

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from dpsieve.jobs.collect_request import CollectPreview, CollectRequest
    from dpsieve.publication.publication import Publication

app = typer.Typer(
    cls=Group,
    help="Publish what a sample of clients reports: each row of a table, or each --unit, is a client with one value.",
    no_args_is_help=True,
)
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be collected; reads no rows, spends and writes nothing.")
]
# What the functions of the library call the columns.
_WORDS = {"value": "column", "client": "unit", "allow_null_clients": "allow-null-units", "values": "known-keys"}


@app.command(cls=Command)
@takes_request(HISTOGRAM)
def histogram(
    data: DataFiles,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    top: Top = 10,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish which values clients have, and how many have them: each is sampled, and enough reports are needed.

    Neighbours are one client more or less; a client is a row, or all rows of one --unit.

    Example: dpsieve collect histogram events.parquet --column query --unit user_id --epsilon 1 --delta 1e-8
    """
    from dpsieve.jobs.collect_request import HistogramRequest

    if request["values"] is not None:
        from dpsieve.values.keys import known_table, read_known

        listed = read_known(request["values"], [request["column"]])
        request["values"] = known_table(listed, (request["column"],)).column(0)
    show = partial(_show_keys, top)
    _run(HistogramRequest, data, request, ledger, note, out, memory, dry_run, as_json, show)


@app.command("heavy-hitters", cls=Command)
@takes_request(HITTERS)
def heavy_hitters(
    data: DataFiles,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    top: Top = 10,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish which strings many clients have, found prefix by prefix (TrieHH++), with counts.

    Neighbours are one client more or less; a client is a row, or all rows of one --unit.

    Example: dpsieve collect heavy-hitters events.parquet --column query --max-length 12 --epsilon 1 --delta 1e-8
    """
    from dpsieve.jobs.collect_request import HittersRequest

    _run(HittersRequest, data, request, ledger, note, out, memory, dry_run, as_json, partial(_show_keys, top))


@app.command(cls=Command)
@takes_request(DISTRIBUTION)
def quantiles(
    data: DataFiles,
    request: dict[str, Any],
    quantile: Annotated[
        str, typer.Option(help="Which to show, from 0 to 1, with commas; the folder answers all others too.")
    ] = "0.05,0.25,0.5,0.75,0.95",
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Publish how a number that clients have is distributed: all quantiles, shares and ranges, with intervals.

    Neighbours are one client more or less; a client is a row, or all rows of one --unit. Rows without a number are
    left out.

    Example: dpsieve collect quantiles sales.parquet --column price --bounds 0,100 --epsilon 1 --delta 1e-8
    """
    from dpsieve import validate
    from dpsieve.jobs.collect_request import DistributionRequest

    asked = numbers_of("quantile", quantile, "0.25,0.5,0.75")
    for phi in asked:
        validate.between("quantile", phi, 0.0, 1.0, hint="Pass shares such as quantile=0.5.")
    request["bounds"] = numbers_of("bounds", request["bounds"], "0,100")
    show = partial(_show_quantiles, asked)
    _run(
        DistributionRequest, data, request, ledger, note, out, memory, dry_run, as_json, show, partial(_answers, asked)
    )


def _run(
    kind: "type[CollectRequest]",
    data: Any,
    request: dict[str, Any],
    ledger: Path | None,
    note: str,
    out: Path | None,
    memory: str | None,
    dry_run: bool,
    as_json: bool,
    show: "Callable[[Any, Console], None]",
    answers: "Callable[[Any], pa.Table] | None" = None,
) -> None:
    """Collect and publish; or say what would be."""
    from dpsieve.privacy.guarantee import warn_of_large_delta
    from dpsieve.privacy.ledger import open_ledger

    with errors_as_typed(_WORDS):
        wanted, engine, book = kind(**request), engine_of(data, memory), open_ledger(ledger, note)
        warn_of_large_delta(wanted.cost.guarantee.delta)
        with reserved(out) as place:
            if dry_run:
                _show_preview(wanted.preview(data, engine=engine, ledger=book), as_json=as_json)
                return
            with scanning(quiet=as_json) as progress:
                made: Publication = wanted.run(data, engine=engine, ledger=book, note=note, progress=progress)
            asked = None if answers is None else answers(made)
            if asked is not None and not made.total.low:  # type: ignore[attr-defined]
                column = f"Is --column {wanted.column!r} a column of numbers?"
                why = "no client had a number within --bounds, or too few for any range to be found"
                typer.echo(f"warning: the quantiles mean nothing: {why}. {column}", err=True)
            finish(made, place, partial(show, made), as_json=as_json, answers=asked)


def _show_preview(seen: "CollectPreview", *, as_json: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if as_json:
        typer.echo(json_text(seen.to_json()))
        return
    rows = Table(show_header=False)
    for name, value in seen.lines():
        rows.add_row(name, escape(value))
    Console(highlight=False).print(rows)


def _show_keys(top: int, made: Any, console: "Console") -> None:
    if len(made):
        show_release(made, top, console)
    else:
        console.print("No value is released. --dry-run, with the same options, says how many clients a value needs.")


def _answers(asked: list[float], made: Any) -> "pa.Table":
    """Return the quantiles that were asked for, with their intervals."""
    import pyarrow as pa

    found = made.quantile(asked)
    return pa.table({"quantile": asked, "value": found.value, "low": found.low, "high": found.high})


def _show_quantiles(asked: list[float], made: Any, console: "Console") -> None:
    from rich.table import Table

    table = Table()
    for name in ("quantile", "value", f"{made.confidence:.4g} interval, all together"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in _answers(asked, made).to_pylist():
        table.add_row(f"{row['quantile']:g}", f"{row['value']:,.6g}", f"{row['low']:,.6g} to {row['high']:,.6g}")
    console.print(table)
    count = made.total
    console.print(
        f"Clients with a number that counts: about {count.value:,.0f} ({count.low:,.0f} to {count.high:,.0f})."
    )
