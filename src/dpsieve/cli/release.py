"""`dpsieve release` and `dpsieve preview`: from files to a private release, on the command line."""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsieve.publication import Release
    from dpsieve.publication.folders import Reserved

Data = Annotated[
    list[str], typer.Argument(help="Files or globs (Parquet, CSV, JSON lines), or - for CSV on standard input.")
]
Key = Annotated[list[str], typer.Option("--key", help="The column to publish; give it again for several.")]
Unit = Annotated[str | None, typer.Option("--unit", help="The column that says who is protected; else each row.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget: smaller is more private.")]
Delta = Annotated[float, typer.Option(help="Probability that a key of one unit may show; far below 1 / units.")]
MaxKeys = Annotated[int, typer.Option("--max-keys", help="Keys that one unit may add.")]
MaxRows = Annotated[int, typer.Option("--max-rows", help="Rows of a unit that count in one key.")]
Mechanism = Annotated[
    str, typer.Option(help="auto, optimal, simple, truncated_geometric, stability, gaussian; or laplace.")
]
Known = Annotated[
    Path | None,
    typer.Option("--known-keys", help="A public list: one key a line, or Parquet or CSV with the key columns."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def release(
    data: Data,
    key: Key,
    epsilon: Epsilon,
    delta: Delta,
    unit: Unit = None,
    max_keys: MaxKeys = 1,
    max_rows: MaxRows = 1,
    mechanism: Mechanism = "auto",
    known_keys: Known = None,
    sample_size: Annotated[int | None, typer.Option(help="Sample about so many keys.")] = None,
    keys_only: Annotated[bool, typer.Option("--keys-only", help="Publish keys without counts.")] = False,
    allow_null_units: Annotated[
        bool, typer.Option("--allow-null-units", help="Leave out rows without a unit.")
    ] = False,
    ledger: Annotated[Path | None, typer.Option(help="The ledger to charge; see dpsieve ledger create.")] = None,
    note: Annotated[str, typer.Option(help="What this is for, kept in the ledger.")] = "",
    out: Annotated[Path | None, typer.Option(help="A new folder for release.parquet and release.json.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory for the scan, such as 500MB; beyond it, disk.")] = None,
    top: Annotated[int, typer.Option(help="Rows to show.", min=1)] = 10,
    as_json: AsJson = False,
) -> None:
    """Publish which keys occur in a table, and how often.

    Example: dpsieve release events.parquet --key query --unit user_id --epsilon 1 --delta 1e-8 --out published
    """
    from dpsieve.cli.progress import scanning
    from dpsieve.engines import DuckDB
    from dpsieve.jobs.release import release as run
    from dpsieve.privacy.ledger import Ledger

    warn_of_large_delta(delta)
    book = None if ledger is None else Ledger.open(ledger)
    with reserved(out) as place, scanning(quiet=as_json) as progress:
        made = run(
            _source(data),
            key=key,
            privacy_unit=unit,
            epsilon=epsilon,
            delta=delta,
            max_keys_per_unit=max_keys,
            max_rows_per_key=max_rows,
            mechanism=mechanism,
            known_keys=_known(known_keys, key),
            sample_size=sample_size,
            keys_only=keys_only,
            allow_null_units=allow_null_units,
            engine=DuckDB(memory_limit=memory),
            ledger=book,
            note=note,
            progress=progress,
        )
        finish(made, place, top, as_json=as_json)


def preview(
    key: Key,
    epsilon: Epsilon,
    delta: Delta,
    data: Annotated[list[str] | None, typer.Argument(help="Files, to check that the columns are there.")] = None,
    unit: Unit = None,
    max_keys: MaxKeys = 1,
    max_rows: MaxRows = 1,
    mechanism: Mechanism = "auto",
    known_keys: Known = None,
    as_json: AsJson = False,
) -> None:
    """Say what a release would add and withhold; spends nothing.

    Example: dpsieve preview --key query --unit user_id --epsilon 1 --delta 1e-8 --max-keys 5
    """
    from rich.console import Console
    from rich.table import Table

    from dpsieve.jobs.release import preview as run

    warn_of_large_delta(delta)
    seen = run(
        data=_source(data) if data else None,
        key=key,
        privacy_unit=unit,
        epsilon=epsilon,
        delta=delta,
        max_keys_per_unit=max_keys,
        max_rows_per_key=max_rows,
        mechanism=mechanism,
        known_keys=_known(known_keys, key),
    )
    if as_json:
        typer.echo(json.dumps(seen.to_json()))
        return
    table = Table(show_header=False)
    for name, value in seen.lines():
        table.add_row(name, value)
    Console(highlight=False).print(table)


def finish(made: "Release", place: "Reserved | None", top: int, *, as_json: bool) -> None:
    """Save a release, and print it."""
    kept = keep(made, place, quiet=as_json)
    typer.echo(json.dumps(summary(made), default=str)) if as_json else show(made, top, kept)
    if place is not None and kept != place.target:
        raise typer.Exit(1)


def show(made: "Release", top: int, out: Path | None) -> None:
    """Print the most common keys, the guarantee in one sentence, and where the rest is."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title=f"The {min(top, len(made)):,} most common of {len(made):,} released keys")
    table.add_column("key", overflow="fold")
    if made.tokens is not None:
        table.add_column("count", justify="right", no_wrap=True)
        table.add_column("95 % interval", justify="right", no_wrap=True)
    rows = made.table.slice(0, top) if made.tokens is None else made.top(top)
    for row in _rows(rows):
        numbers = () if made.tokens is None else (f"{row['count']:,}", f"{row['low']:,} to {row['high']:,}")
        table.add_row(_text(row["key"]), *numbers)
    console.print(table)
    console.print(f"Guarantee: {made.guarantee}")
    console.print(f"Mechanism: {made.notes['mechanism']}: {made.notes['reason']}.")
    if out is not None:
        console.print(f"Saved to {out}.", soft_wrap=True)


def summary(made: "Release") -> dict[str, Any]:
    """Return all that a release says, for JSON."""
    return {
        "guarantee": made.guarantee.to_json(),
        "certificate": made.certificate.to_json(),
        "notes": made.notes,
        "unsafe_to_publish": made.unsafe_to_publish,
        "keys": _rows(made.table),
    }


def _rows(table: "pa.Table") -> list[dict[str, Any]]:
    """Return rows for people; dates and times as text, since Python has none after the year 9999."""
    import pyarrow as pa

    def plain(column: pa.Array) -> list[Any]:
        if pa.types.is_struct(column.type):
            fields = [plain(part) for part in column.flatten()]
            names = [field.name for field in column.type]
            return [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
        return list((column.cast(pa.string()) if pa.types.is_temporal(column.type) else column).to_pylist())

    columns = {name: plain(table.column(name).combine_chunks()) for name in table.column_names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _text(key: object) -> str:
    """Return a key as text that cannot steer the terminal or the table."""
    from rich.markup import escape

    shown = " | ".join(str(part) for part in key.values()) if isinstance(key, dict) else str(key)
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown))


def _known(path: Path | None, key: list[str]) -> Any:
    if path is None:
        return None
    from dpsieve.cli.known import read_known

    return read_known(path, key)


def _source(names: list[str]) -> Any:
    if names == ["-"]:
        from dpsieve.engines import CsvStream

        return CsvStream(sys.stdin.buffer)
    return names[0] if len(names) == 1 else names


def warn_of_large_delta(delta: float) -> None:
    """Say what a large delta would mean, on standard error."""
    if 1e-3 <= delta < 1:
        typer.echo(
            f"warning: delta={delta:g} lets a key that one unit alone holds show with that probability: among "
            f"{round(1 / delta):,} such keys about one is published. Use 1e-6 or less.",
            err=True,
        )


@contextmanager
def reserved(out: Path | None) -> "Iterator[Reserved | None]":
    """Hold the place of --out, so that whatever is wrong with it is known before anything is read or spent."""
    if out is None:
        yield None
        return
    from dpsieve.publication.folders import Reserved

    with Reserved(out) as place:
        yield place


def keep(made: "Release", place: "Reserved | None", *, quiet: bool) -> Path | None:
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
