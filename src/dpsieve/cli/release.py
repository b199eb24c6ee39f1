"""`dpsieve release`, `preview` and `report`: from files to a private release and its page, on the command line."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsieve.cli.messages import as_typed, errors_as_typed
from dpsieve.cli.options import (
    RELEASE,
    AsJson,
    Data,
    EngineName,
    LedgerPath,
    Memory,
    Note,
    Out,
    TableName,
    Top,
    takes_request,
    typed,
)  # fmt: skip
from dpsieve.display import json_text
from dpsieve.errors import InvalidValue

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from dpsieve.engines import Engine
    from dpsieve.publication.folders import Reserved
    from dpsieve.publication.publication import Publication
    from dpsieve.publication.release import Release


@takes_request(RELEASE)
def release(
    data: Data,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    table: TableName = None,
    engine: EngineName = "duckdb",
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Publish which keys occur in a table, and how often.

    Example: dpsieve release events.parquet --key query --unit user_id --epsilon 1 --delta 1e-8 --out published
    """
    from dpsieve.jobs.release import release as run
    from dpsieve.privacy.ledger import open_ledger

    where, book = engine_of(data, memory, engine), open_ledger(ledger, note)
    with reserved(out) as place, scanning(quiet=as_json) as progress:
        made = run(data, engine=where, table=table, ledger=book, note=note, progress=progress, **request)
        finish(made, place, partial(show_release, made, top), as_json=as_json)


@takes_request(RELEASE)
def preview(
    request: dict[str, Any],
    data: Annotated[list[str] | None, typer.Argument(help="Files, to check that the columns are there.")] = None,
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    table: TableName = None,
    engine: EngineName = "duckdb",
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Say what a release would add and withhold; spends and writes nothing. With a ledger, say whether it would fit.

    It takes all options of a release; --memory and --top change nothing here.

    Example: dpsieve preview events.parquet --key query --unit user_id --epsilon 1 --delta 1e-8 --max-keys 5
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.jobs.release import preview as run

    with reserved(out):
        seen = run(data, engine=engine_of(data, memory, engine), table=table, ledger=ledger, note=note, **request)
    if as_json:
        typer.echo(json_text(seen.to_json()))
        return
    rows = Table(show_header=False)
    for name, value in seen.lines():
        rows.add_row(name, escape(as_typed(value, typed(RELEASE)) if value == seen.rarer else value))
    Console(highlight=False).print(rows)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that --out of another command has written.")],
    out: Annotated[Path, typer.Option(help="The page to write, or to replace.")] = Path("report.html"),
) -> None:
    """Write one HTML page about a saved release, which works offline and holds nothing but what is published.

    Example: dpsieve report published --out report.html
    """
    from dpsieve.publication.publication import Publication

    made = Publication.load(folder)
    with errors_as_typed({"path": "out"}):
        typer.echo(f"Written to {made.report(out)}.")


def finish(
    made: "Publication",
    place: "Reserved | None",
    show: "Callable[[Console], None]",
    *,
    as_json: bool,
    answers: "pa.Table | None" = None,
) -> None:
    """Save a publication, and print it: `show` prints its rows, then come the guarantee and where the rest is.

    `answers`, where given, are what was asked of it: a single file holds them in place of its table.
    """
    from rich.console import Console

    kept = keep(made, place, quiet=as_json, answers=answers)
    with _printing(made, kept):
        if as_json:
            typer.echo(json_text(summary(made, answers)))
        else:
            console = Console(highlight=False)
            show(console)
            _show_promise(made, console, kept)
    if place is not None and kept != place.target:
        raise typer.Exit(1)


@contextmanager
def _printing(made: "Publication", kept: Path | None) -> Iterator[None]:
    """Report on standard error where a publication that is made cannot be printed, and whether it was charged."""
    from dpsieve.privacy.ledger import charged_words

    try:
        yield
        sys.stdout.flush()
    except (OSError, SystemExit, AttributeError) as error:  # rich exits for a broken pipe; a closed stream is None
        if isinstance(error, AttributeError) and sys.stdout is not None:
            raise
        there = "Pass --out to keep it" if kept is None else f"It is in {kept}"
        charged = "" if made.notes.entry is None else f" {charged_words(made.notes.entry)}"
        typer.echo(f"error: the release is made and cannot be printed. {there}.{charged}", err=True)
        if sys.stdout is not None:  # the flush at exit needs a place to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None


def show_release(made: "Release", top: int, console: "Console") -> None:
    """Print the most common keys; of few, also what would report rarer ones."""
    counted = made.tokens is not None
    rows = made.top(top) if counted else made.table.slice(0, top)
    if len(made):
        which = "most common" if counted else "first, by name,"
        several = f"The {min(top, len(made)):,} {which} of {len(made):,} released keys"
        title = "The one released key" if len(made) == 1 else several
        of = "\nof the bounded count" if made.notes.contribution else ""
        show_rows(title, rows, console, least=made.least, of=of)
    else:
        console.print("No key is released. dpsieve preview, with the same options, says how frequent a key must be.")
    if made.notes.rarer:
        console.print(f"For more keys: {as_typed(made.notes.rarer, typed(RELEASE))}.", markup=False)


def show_rows(title: str, rows: "pa.Table", console: "Console", *, least: int = 1, of: str = "") -> None:
    """Print rows of a publication: keys and, where there are any, counts with their intervals; see `only_high`.

    `of` says of what the intervals are.
    """
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.display import format_interval, printable, shorten
    from dpsieve.publication.publication import plain_rows
    from dpsieve.values.keys import key_names

    console.print(title)
    table = Table()
    names, counted = key_names(rows.column_names), "count" in rows.column_names
    for name in names:
        table.add_column(escape(printable(name)), overflow="fold")
    if counted:
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column(f"95 % interval{of}", justify="right", no_wrap=True)
    for row in plain_rows(rows):
        numbers = (f"{row['count']:,}", format_interval(row["low"], row["high"], least)) if counted else ()
        table.add_row(*(escape(shorten(row[name])) for name in names), *numbers)
    console.print(table)


def _show_promise(made: "Publication", console: "Console", out: Path | None) -> None:
    """Print the guarantee in one sentence, and where the publication is saved."""
    from dpsieve.privacy.composed import Composed

    mechanism = made.mechanism.last if isinstance(made.mechanism, Composed) else made.mechanism
    console.print(f"Guarantee: {made.guarantee}", markup=False)
    console.print(f"Mechanism: {mechanism.name}: {made.notes.reason}.", markup=False)
    if made.notes.bounded:
        console.print(made.notes.bounded, markup=False)
    if out is not None:
        console.print(f"Saved to {out}.", soft_wrap=True, markup=False)
        if is_file(out):
            console.print("It has the table alone. A folder, such as --out published, keeps the certificate too.")


def summary(made: "Publication", answers: "pa.Table | None" = None) -> dict[str, Any]:
    """Return all that a publication says, and what was asked of it, for JSON."""
    from dpsieve.publication.publication import plain_rows

    return {
        "guarantee": made.guarantee.to_json(),
        "certificate": made.certificate.to_json(),
        "mechanism": made.mechanism.to_json(),
        "notes": made.notes.to_json(),
        "bounded": made.notes.bounded,
        "unsafe_to_publish": made.unsafe_to_publish,
        {"estimate": "numbers", "distribution": "ranges"}.get(made.kind, "keys"): plain_rows(made.table),
        **({} if answers is None else {"answers": plain_rows(answers)}),
    }


def engine_of(data: Any, memory: str | None, name: str = "duckdb") -> "Engine | None":
    """Return the engine for the data that a command was given: none for a database, which counts itself."""
    from dpsieve.engines import DuckDB, Spark, is_database

    if name not in ("duckdb", "spark"):
        raise InvalidValue("--engine is neither duckdb nor spark. Choose one, or leave it out.")
    if name == "duckdb" and not is_database(data):
        return DuckDB(memory_limit=memory)
    if memory is not None:
        raise InvalidValue(
            "--memory is for files and duckdb. Leave it out: databases and Spark have their own settings."
        )
    return Spark() if name == "spark" else None


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


@contextmanager
def reserved(out: Path | None) -> "Iterator[Reserved | None]":
    """Hold the place of --out, so that whatever is wrong with it is known before anything is read or spent."""
    from dpsieve.publication.folders import Reserved
    from dpsieve.publication.table_files import NOT_WRITTEN

    if out is None:
        yield None
        return
    if out.suffix.lower() in NOT_WRITTEN:
        fix = "Pass a name that ends in .csv, .jsonl or .parquet, or the name of a new folder."
        raise InvalidValue(f"--out names a file of a kind that is not written. {fix}")
    with ExitStack() as held:
        with errors_as_typed({"folder": "out"}):
            place = held.enter_context(Reserved(out))
        yield place


def keep(
    made: "Publication", place: "Reserved | None", *, quiet: bool, answers: "pa.Table | None" = None
) -> Path | None:
    """Save a release that is paid for; where that fails, among the temporary files, or at the least as printed JSON."""
    if place is None:
        return None
    try:
        return _saved(made, place, answers)
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    kept = None
    with suppress(Exception):
        kept = _saved(made, Path(tempfile.mkdtemp(prefix="dpsieve-release-")) / place.target.name, answers)
    there = "It is printed instead" if kept is None else f"It is in {kept} instead: move it to its place"
    typer.echo(f"error: the release is made and cannot be saved to {place.target} ({why}). {there}.", err=True)
    if kept is None and not quiet:
        typer.echo(json_text(summary(made, answers)))
    return kept


def _saved(made: "Publication", place: "Reserved | Path", answers: "pa.Table | None") -> Path:
    """Write a file, where the name ends like one, or else a folder."""
    from dpsieve.publication.table_files import formulas, write_table

    if not is_file(Path(place)):
        return made.save(place)
    kept = write_table(made, place, answers)
    if kept.suffix.lower() == ".csv" and (found := formulas(made.table)):
        what = "1 text begins" if found == 1 else f"{found:,} texts begin"
        fix = "There, import the key columns as text."
        typer.echo(f"note: {what} with =, +, - or @, which a spreadsheet may run as a formula. {fix}", err=True)
    return kept


def is_file(out: Path) -> bool:
    """Tell whether --out names a file for the table alone, and not a folder."""
    from dpsieve.publication.table_files import CONTENT

    return out.suffix.lower() in CONTENT
