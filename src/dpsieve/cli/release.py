"""`dpsieve release`, `preview` and `report`: from files to a private release and its page, on the command line."""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsieve.cli.messages import as_typed
from dpsieve.cli.options import (
    RELEASE,
    AsJson,
    Data,
    EngineName,
    LedgerPath,
    Memory,
    Note,
    Out,
    Top,
    takes_request,
    typed,
)
from dpsieve.errors import DpsieveError, InvalidValue

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from dpsieve.engines import Engine
    from dpsieve.publication.folders import Reserved
    from dpsieve.publication.publication import Publication
    from dpsieve.publication.release import Release

_FEW = 10  # released keys


@takes_request(RELEASE)
def release(
    data: Data,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    engine: EngineName = "duckdb",
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Publish which keys occur in a table, and how often.

    Example: dpsieve release events.parquet --key query --unit user_id --epsilon 1 --delta 1e-8 --out published
    """
    from dpsieve.jobs.release import release as run
    from dpsieve.privacy.ledger import opened

    where, book = engine_named(memory, engine), opened(ledger, note)
    with reserved(out) as place, scanning(quiet=as_json) as progress:
        made = run(source_of(data), engine=where, ledger=book, note=note, progress=progress, **request)
        finish(made, place, partial(show_release, made, top, request=request), as_json=as_json)


@takes_request(RELEASE)
def preview(
    request: dict[str, Any],
    data: Annotated[list[str] | None, typer.Argument(help="Files, to check that the columns are there.")] = None,
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Say what a release would add and withhold; spends and writes nothing. With a ledger, say whether it would fit.

    Example: dpsieve preview --key query --unit user_id --epsilon 1 --delta 1e-8 --max-keys 5
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.jobs.release import preview as run

    with reserved(out):
        seen = run(source_of(data) if data else None, ledger=ledger, note=note, **request)
    if as_json:
        typer.echo(json.dumps(seen.to_json()))
        return
    table = Table(show_header=False)
    for name, value in seen.lines():
        table.add_row(name, escape(as_typed(value, typed(RELEASE)) if value == seen.rarer else value))
    Console(highlight=False).print(table)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that --out of another command has written.")],
    out: Annotated[Path, typer.Option(help="The page to write, or to replace.")] = Path("report.html"),
) -> None:
    """Write one HTML page about a saved release, which works offline and holds nothing but what is published.

    Example: dpsieve report published --out report.html
    """
    from dpsieve.publication.publication import Publication

    made = Publication.load(folder)
    try:
        typer.echo(f"Written to {made.report(out)}.")
    except DpsieveError as error:
        error.args = (as_typed(str(error), {"path": "out"}), *error.args[1:])
        raise


def finish(made: "Publication", place: "Reserved | None", show: "Callable[[Console], None]", *, as_json: bool) -> None:
    """Save a publication, and print it: `show` prints its rows, then come the guarantee and where the rest is."""
    from rich.console import Console

    kept = keep(made, place, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(summary(made), default=str))
    else:
        console = Console(highlight=False)
        show(console)
        _show_promise(made, console, kept)
    if place is not None and kept != place.target:
        raise typer.Exit(1)


def show_release(made: "Release", top: int, console: "Console", request: dict[str, Any] | None = None) -> None:
    """Print the most common keys; of few, also what would report rarer ones."""
    counted = made.tokens is not None
    rows = made.top(top) if counted else made.table.slice(0, top)
    if len(made):
        which = "most common" if counted else "first, by name,"
        show_rows(f"The {min(top, len(made)):,} {which} of {len(made):,} released keys", rows, console)
    else:
        console.print("No key is released. dpsieve preview, with the same options, says how frequent a key must be.")
    if request is not None and len(made) < _FEW:
        from dpsieve.jobs.bounds import for_rarer_keys
        from dpsieve.jobs.request import ReleaseRequest

        if rarer := for_rarer_keys(ReleaseRequest(**request)):
            console.print(f"For more keys: {as_typed(rarer, typed(RELEASE))}.", markup=False)


def show_rows(title: str, rows: "pa.Table", console: "Console") -> None:
    """Print rows of a publication: keys and, where there are any, counts with their intervals."""
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.display import printable
    from dpsieve.publication.publication import plain_rows
    from dpsieve.values.keys import TAKEN

    console.print(title)
    table = Table()
    names, counted = [name for name in rows.column_names if name not in TAKEN], "count" in rows.column_names
    for name in names:
        table.add_column(escape(printable(name)), overflow="fold")
    if counted:
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column("95 % interval", justify="right", no_wrap=True)
    for row in plain_rows(rows):
        numbers = (f"{row['count']:,}", _interval(row["low"], row["high"])) if counted else ()
        table.add_row(*(escape(printable(row[name])) for name in names), *numbers)
    console.print(table)


def _interval(low: int, high: int) -> str:
    """Return an interval in words: every key that occurs has a frequency of one or more."""
    return f"at most {high:,}" if low == 1 < high else f"{low:,} to {high:,}"


def _show_promise(made: "Publication", console: "Console", out: Path | None) -> None:
    """Print the guarantee in one sentence, and where the publication is saved."""
    from dpsieve.privacy.composed import Composed

    mechanism = made.mechanism.last if isinstance(made.mechanism, Composed) else made.mechanism
    console.print(f"Guarantee: {made.guarantee}", markup=False)
    console.print(f"Mechanism: {mechanism.name}: {made.notes.reason}.", markup=False)
    if made.notes.contribution:
        console.print(f"A unit adds {made.notes.contribution}.", markup=False)
    if out is not None:
        console.print(f"Saved to {out}.", soft_wrap=True, markup=False)


def summary(made: "Publication") -> dict[str, Any]:
    """Return all that a publication says, for JSON."""
    from dpsieve.publication.publication import plain_rows

    return {
        "guarantee": made.guarantee.to_json(),
        "certificate": made.certificate.to_json(),
        "mechanism": made.mechanism.to_json(),
        "notes": made.notes.to_json(),
        "unsafe_to_publish": made.unsafe_to_publish,
        "numbers" if made.kind == "estimate" else "keys": plain_rows(made.table),
    }


def source_of(names: list[str]) -> Any:
    """Return the data that a command was given: files, or standard input for '-'."""
    if names == ["-"]:
        from dpsieve.engines import CsvStream

        return CsvStream(sys.stdin.buffer)
    return names[0] if len(names) == 1 else names


def engine_named(memory: str | None, name: str = "duckdb") -> "Engine":
    """Return the engine that a command was given by its name."""
    if name == "duckdb":
        from dpsieve.engines import DuckDB

        return DuckDB(memory_limit=memory)
    if name != "spark":
        raise InvalidValue("--engine is neither duckdb nor spark. Choose one, or leave it out.")
    if memory is not None:
        raise InvalidValue("--memory is for duckdb. Leave it out: Spark has its own settings.")
    from dpsieve.engines import Spark

    return Spark()


@contextmanager
def scanning(*, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """Show a bar on standard error; yield what takes the fraction done, or None when nothing should be shown."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("reading and counting"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("scan", total=1.0)
        yield lambda done: bar.update(task, completed=done)


def reserved(out: Path | None) -> "AbstractContextManager[Reserved | None]":
    """Hold the place of --out, so that whatever is wrong with it is known before anything is read or spent."""
    from dpsieve.publication.folders import Reserved

    return nullcontext() if out is None else Reserved(out)


def keep(made: "Publication", place: "Reserved | None", *, quiet: bool) -> Path | None:
    """Save a release that is paid for; where that fails, among the temporary files, or at the least as printed JSON."""
    if place is None:
        return None
    try:
        return made.save(place)
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    kept = None
    with suppress(Exception):
        kept = made.save(Path(tempfile.mkdtemp(prefix="dpsieve-release-")) / place.target.name)
    there = "It is printed instead" if kept is None else f"It is in {kept} instead: move it to its place"
    typer.echo(f"error: the release is made and cannot be saved to {place.target} ({why}). {there}.", err=True)
    if kept is None and not quiet:
        typer.echo(json.dumps(summary(made), default=str))
    return kept
