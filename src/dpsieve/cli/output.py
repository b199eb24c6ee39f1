"""Save, print and show publications."""

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsieve.cli.command import spell_options
from dpsieve.display import format_number, json_text
from dpsieve.errors import DpsieveError, InvalidValue

_DEFAULT = "dpsieve-release-"  # a folder for what is paid for, where --out names none
_OF_BOUNDED = "\nof the bounded count"  # an interval
_EMPTY = "Whether the data has any rows is not revealed."

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from dpsieve.jobs.preview import Preview
    from dpsieve.numbers.estimate import Estimate
    from dpsieve.publication.files import Reserved
    from dpsieve.publication.publication import Publication
    from dpsieve.publication.release import Release


def finish(
    publication: "Publication",
    place: "Reserved | None",
    *,
    top: int = 10,
    as_json: bool = False,
    answers: "pa.Table | None" = None,
    ledger: Path | None = None,
    is_demo: bool = False,
) -> None:
    """Save a publication, and print its rows, its guarantee, where it is, and what the ledger was charged.

    `answers`, where given, are the quantiles that were asked of it: a single file holds them in place of its table.
    """
    from rich.console import Console

    saved = save_paid(publication, place, quiet=as_json, answers=answers)
    with _report_failed_print(publication, saved):
        charged = {} if ledger is None or publication.notes.entry is None else _charged(ledger, publication.notes.entry)
        if as_json:
            typer.echo(json_text({**summary(publication, answers), **charged}))
        else:
            console = Console(highlight=False)
            _show(publication, top, answers, console)
            _show_promise(publication, console, saved)
            if place is None and not is_demo:
                typer.echo("note: this result is not saved. Pass --out, as in --out published, to keep one.", err=True)
            if charged:
                words = "Ledger: charged {charged} as entry {entry}.".format(**charged["ledger"])
                console.print(f"{words} {left_words(charged['ledger']['left'])}", markup=False)
    if place is not None and saved != place.target:
        raise typer.Exit(1)


def _charged(ledger: Path, number: int) -> dict[str, Any]:
    """Return what an entry charged and what is left; nothing where the ledger cannot be read."""
    from dpsieve.privacy.ledger import Ledger

    with suppress(DpsieveError):  # the result is paid for, and comes first
        book = Ledger.open(ledger)
        left, charged = book.remaining(), book.history()[number - 1].words().removeprefix("approximate: ")
        return {"ledger": {"entry": number, "charged": charged, "left": None if left is None else left.to_json()}}
    return {}


def left_words(left: dict[str, Any] | None) -> str:
    """Return what a ledger has left, as a sentence."""
    if left is None:
        return "Nothing is left."
    return f"Left for one more release: epsilon {left['epsilon']:.6g}, delta {left['delta']:.3g}."


@contextmanager
def _report_failed_print(publication: "Publication", saved: Path | None) -> Iterator[None]:
    """Report on standard error where a publication cannot be printed, and whether it was charged."""
    from dpsieve.jobs.run import describe_charge

    try:
        yield
        sys.stdout.flush()
    except (OSError, SystemExit, AttributeError) as error:  # rich exits for a broken pipe; a closed stream is None
        if isinstance(error, AttributeError) and sys.stdout is not None:
            raise
        there = "Pass --out to keep it" if saved is None else f"It is in {saved}"
        charged = "" if publication.notes.entry is None else f" {describe_charge(publication.notes.entry)}"
        typer.echo(f"error: the release is made and cannot be printed. {there}.{charged}", err=True)
        if sys.stdout is not None:  # the flush at exit needs a place to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None


def show_preview(preview: "Preview", ledger: Path | None, *, as_json: bool) -> None:
    """Print what a job would do, and what the ledger has left before it."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    left: dict[str, Any] = {}
    if ledger is not None:
        from dpsieve.privacy.ledger import Ledger

        remaining = Ledger.open(ledger).remaining()
        left = {"left": None if remaining is None else remaining.to_json()}
    if as_json:
        typer.echo(json_text({**preview.to_json(), **left}))
        return
    rows = Table(show_header=False)
    for name, value in preview.lines():
        rows.add_row(name, escape(spell_options(value) if value == preview.rarer else value))
    if left:
        rows.add_row("ledger, before this", left_words(left["left"]))
    Console(highlight=False).print(rows)


def _show(publication: Any, top: int, answers: "pa.Table | None", console: "Console") -> None:
    """Print the rows of a publication of any kind; of few, also what would report rarer keys."""
    if publication.kind == "estimate":
        _show_estimate(publication, console)
    elif publication.kind == "distribution":
        _show_quantiles(publication, answers, console)
    elif publication.kind in ("release", "heavy_hitters"):
        _show_release(publication, top, console)
    elif len(publication):
        order = {"top_k": "most common first", "hitting_set": "those that reach most units first"}
        title = f"First {min(top, len(publication)):,} of {len(publication):,} keys"
        title, rows = f"{title}, {order.get(publication.kind, 'alphabetically')}", publication.table.slice(0, top)
        if getattr(publication, "tokens", None) is None:
            show_rows(title, rows, console)
        else:  # a top-k with the counts of a release
            show_rows(title, rows, console, least=publication.last.mechanism.least_count, of=_OF_BOUNDED)
    else:
        console.print(f"No key is published: too few units hold any. Use a larger budget, or more data. {_EMPTY}")
    if publication.notes.rarer:
        console.print(f"For more keys, {spell_options(publication.notes.rarer)}.", markup=False)


def _show_release(release: "Release", top: int, console: "Console") -> None:
    """Print the most common keys."""
    from dpsieve.noise.totals import table_names

    totals: Sequence[tuple[str, str, str]]
    has_counts = release.tokens is not None
    rows = release.top(top) if has_counts else release.table.slice(0, top)
    if len(release):
        several = f"First {min(top, len(release)):,} of {len(release):,} released keys, alphabetically"
        if has_counts:
            several = f"{min(top, len(release)):,} most common of {len(release):,} released keys"
        of = _OF_BOUNDED if release.notes.contribution else ""
        title, totals = "1 released key" if len(release) == 1 else several, ()
        if release.sums is not None:
            totals, of = table_names(release.totals, release.keys.column_names), ""
        show_rows(title, rows, console, least=release.least, of=of, totals=totals)
    else:
        console.print(f"No key is released. The same command with --dry-run shows how frequent a key must be. {_EMPTY}")


def show_rows(
    title: str, rows: "pa.Table", console: "Console", *, least: int = 1, of: str = "",
    totals: "Sequence[tuple[str, str, str]]" = (),
) -> None:  # fmt: skip
    """Print keys and, where there are any, counts and totals with their intervals.

    `of` is what the intervals are of; `totals` has the names of the columns of each total, and of its interval's ends.
    """
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.display import format_interval, printable, shorten
    from dpsieve.publication.publication import plain_rows
    from dpsieve.values.keys import key_names

    console.print(title)
    table = Table()
    names, has_counts = key_names(rows.column_names), "count" in rows.column_names
    for name in names:
        table.add_column(escape(printable(name)), overflow="fold")
    if has_counts:
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column(f"95 % interval{of}", justify="right", no_wrap=True)
    for name, *_ in totals:
        table.add_column(f"{escape(printable(name))}\n95 % interval", justify="right", overflow="fold")
    for row in plain_rows(rows):
        value = "" if not has_counts or row["count"] is None else f"{row['count']:,}"
        numbers = (value, format_interval(row["low"], row["high"], least)) if has_counts else ()
        real = [_real_cell(*(row[name] for name in columns)) for columns in totals]
        table.add_row(*(escape(shorten(row[name])) for name in names), *numbers, *real)
    console.print(table)


def _real_cell(value: float | None, low: float | None, high: float | None) -> str:
    """Return a total with its interval below it; both may be null."""
    if value is None or low is None or high is None:
        return ""
    digits = min(9, max(0, 2 - math.ceil(math.log10(max(high - low, 1e-9)))))
    return f"{value:,.{digits}f}\n{low:,.{digits}f} to {high:,.{digits}f}"


def _show_estimate(estimate: "Estimate", console: "Console") -> None:
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.display import printable

    ranks, bounded = "rank_error" in estimate.table.column_names, "at most" in estimate.notes.contribution
    table = Table()
    table.add_column("quantile" if ranks else "column", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    error = "rank error,\nat most (95 %)" if ranks else "95 % interval"
    of = f"\nof the bounded {'rows' if ranks else estimate.notes.statistic or 'numbers'}" if bounded else ""
    table.add_column(f"{error}{of}", justify="right", no_wrap=True)
    for row in estimate.table.to_pylist():
        stated = (
            "not stated" if row.get("low") is None else f"{format_number(row['low'])} to {format_number(row['high'])}"
        )
        off = f"{row['rank_error']:,.0f}" if ranks else stated
        table.add_row(escape(printable(row["name"])), format_number(row["value"]), off)
    console.print(table)


def _show_quantiles(distribution: Any, answers: "pa.Table | None", console: "Console") -> None:
    from rich.table import Table

    table = Table()
    for name in ("quantile", "value", f"{distribution.confidence:.4g} interval, jointly"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in [] if answers is None else answers.to_pylist():
        value, low, high = (format_number(row[name]) for name in ("value", "low", "high"))
        table.add_row(f"{row['quantile']:g}", value, f"{low} to {high}")
    console.print(table)
    total = distribution.total
    console.print(f"Clients with a number: about {total.value:,.0f} ({total.low:,.0f} to {total.high:,.0f}).")


def _show_promise(publication: "Publication", console: "Console", out: Path | None) -> None:
    """Print the guarantee in one sentence, and where the publication is saved."""
    console.print(f"Guarantee: {publication.guarantee}", markup=False)
    if publication.unprotected:
        console.print(publication.unprotected, markup=False)
    console.print(f"Mechanism: {publication.mechanism.last.name}: {publication.notes.reason}.", markup=False)
    if publication.bounded:
        console.print(publication.bounded, markup=False)
    if out is not None and not str(out).startswith(_DEFAULT):
        console.print(f"Saved to {out}.", soft_wrap=True, markup=False)
        if is_file(out):
            console.print("This file holds the table alone; pass a folder, as in --out published, for the certificate.")


def summary(made: "Publication", answers: "pa.Table | None" = None) -> dict[str, Any]:
    """Return a publication, and the quantiles that were asked of it, for JSON."""
    from dpsieve.publication.publication import plain_rows

    return {
        "guarantee": made.guarantee.to_json(),
        "not_protected": made.unprotected,
        "certificate": made.certificate.to_json(),
        "mechanism": made.mechanism.to_json(),
        "notes": made.notes.to_json(),
        "bounded": made.bounded,
        "unsafe_to_publish": made.unsafe_to_publish,
        {"estimate": "numbers", "distribution": "ranges"}.get(made.kind, "keys"): plain_rows(made.table),
        **({} if answers is None else {"answers": plain_rows(answers)}),
        **({} if getattr(made, "rest", None) is None else {"rest": getattr(made, "rest")}),  # noqa: B009
    }


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """Show a progress bar on standard error; yield its callback, or None where nothing is shown."""
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
def reserve(out: Path | None, ledger: Path | None = None) -> "Iterator[Reserved | None]":
    """Reserve the path of --out, so that errors about it come before anything is read or spent.

    What a ledger is charged for is always kept: without --out, in a new folder of the current one.
    """
    from dpsieve.publication.files import NOT_WRITTEN, Reserved

    if out is None and ledger is not None:
        with _reserve_default() as place:
            yield place
        return
    if out is None:
        yield None
        return
    if out.suffix.lower() in NOT_WRITTEN:
        fix = "Pass a name that ends in .csv, .jsonl or .parquet, or the name of a new folder."
        raise InvalidValue(f"--out {out.name} has an unsupported extension. {fix}")
    with Reserved(out, "out") as place:
        yield place


@contextmanager
def _reserve_default() -> "Iterator[Reserved]":
    """Reserve the first free folder dpsieve-release-1, dpsieve-release-2, ..."""
    from dpsieve.publication.files import Reserved

    def is_taken(place: "Reserved") -> bool:
        return os.path.lexists(place.target) or os.path.lexists(place.working)

    with ExitStack() as stack:
        for place in (Reserved(f"{_DEFAULT}{number}", "out") for number in count(1)):
            try:
                if not is_taken(place):
                    stack.enter_context(place)
                    break
            except InvalidValue:
                if not is_taken(place):  # by a process that was faster
                    raise
        yield place


def save_paid(
    publication: "Publication", place: "Reserved | None", *, quiet: bool, answers: "pa.Table | None" = None
) -> Path | None:
    """Save a publication that is paid for; if that fails, to a temporary folder, and failing that, print it as JSON."""
    if place is None:
        return None
    try:
        saved = _save(publication, place, answers)
        if str(place.target).startswith(_DEFAULT):
            typer.echo(f"Saved to {saved}. Pass --out to choose the place.", err=True)
        return saved
    except Exception as error:
        why = getattr(error, "strerror", None) or type(error).__name__
    rescued = None
    with suppress(Exception):
        rescued = _save(publication, Path(tempfile.mkdtemp(prefix="dpsieve-release-")) / place.target.name, answers)
    there = "It is printed instead" if rescued is None else f"It is in {rescued} instead: move it to its place"
    typer.echo(f"error: the release is made and cannot be saved to {place.target} ({why}). {there}.", err=True)
    if rescued is None and not quiet:
        typer.echo(json_text(summary(publication, answers)))
    return rescued


def _save(publication: "Publication", place: "Reserved | Path", answers: "pa.Table | None") -> Path:
    """Write a file if the name ends like one, otherwise a folder."""
    from dpsieve.publication.files import formulas, write_table

    if not is_file(Path(place)):
        return publication.save(place)
    saved = write_table(publication, place, answers)
    if saved.suffix.lower() == ".csv" and (number := formulas(publication.table)):
        what = "1 text begins" if number == 1 else f"{number:,} texts begin"
        fix = "Import the key columns as text there."
        typer.echo(f"note: {what} with =, +, - or @, which a spreadsheet may run as a formula. {fix}", err=True)
    return saved


def is_file(out: Path) -> bool:
    """Return whether --out names a file for the table alone, and not a folder."""
    from dpsieve.publication.files import CONTENT

    return out.suffix.lower() in CONTENT


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that --out of another command has written.")],
    out: Annotated[Path, typer.Option(help="The page to write, or to replace.")] = Path("report.html"),
) -> None:
    """Write one HTML page about a saved publication, which works offline and holds only what is published.

    Example: dpsieve report published --out report.html
    """
    from dpsieve.publication.publication import Publication

    typer.echo(f"Written to {Publication.load(folder).report(out)}.")
