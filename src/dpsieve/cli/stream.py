"""`dpsieve stream`: heavy hitters of a stream of items, in the memory of a sketch."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsieve.cli.table import AsJson, refuse_existing, show, summary, warn_of_large_delta

if TYPE_CHECKING:
    from dpsieve.output import Release
    from dpsieve.sketches import MergedSketch, MisraGries

_SAVE_EVERY = 60.0  # seconds, while a pipe is read


def stream(
    files: Annotated[
        list[str] | None, typer.Argument(help="Files of lines, CSV or JSON lines; - for standard input.")
    ] = None,
    counters: Annotated[int, typer.Option(help="The size of a new sketch: keys of more than 1/counters show.")] = 1024,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget; without it, the sketch is only kept.")] = None,
    delta: Annotated[float, typer.Option(help="Far below 1 / items; 0 with a universe.")] = 0.0,
    column: Annotated[str | None, typer.Option(help="The column of CSV or JSON lines that holds the items.")] = None,
    form: Annotated[str | None, typer.Option("--format", help="lines, csv or jsonl; else by the name.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="Keep the sketch here and go on with it. It holds true keys and counts.")
    ] = None,
    merge: Annotated[list[Path] | None, typer.Option(help="States to merge into the release; give it again.")] = None,
    universe: Annotated[Path | None, typer.Option(help="All keys that can occur, one a line: pure privacy.")] = None,
    items_per_unit: Annotated[int, typer.Option(help="Items that one protected unit may add.")] = 1,
    unit: Annotated[str, typer.Option(help="Who is protected, in the ledger's words.")] = "item",
    ledger: Annotated[Path | None, typer.Option(help="The ledger to charge; see dpsieve ledger create.")] = None,
    note: Annotated[str, typer.Option(help="What this is for, kept in the ledger.")] = "",
    out: Annotated[Path | None, typer.Option(help="A new folder for release.parquet and release.json.")] = None,
    top: Annotated[int, typer.Option(help="Rows to show.", min=1)] = 10,
    as_json: AsJson = False,
) -> None:
    """Publish the most common items of a stream, read once, in little memory.

    Example: cat queries.txt | dpsieve stream --counters 1024 --epsilon 1 --delta 1e-8 -
    """
    from dpsieve.errors import InvalidValue
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.sketches import MergedSketch, MisraGries

    if not files and not merge and state is None:
        raise InvalidValue("there is nothing to read. Pass files, or - for standard input.")
    if epsilon is None and state is None:
        raise InvalidValue("nothing would come of this. Pass --epsilon and --delta to release, or --state to keep.")
    warn_of_large_delta(delta)
    refuse_existing(out)
    book = None if ledger is None else Ledger.open(ledger)
    sketch: MisraGries | MergedSketch = MisraGries(counters)
    if state is not None and state.exists():
        sketch = _load(state)
        if files and not isinstance(sketch, MisraGries):
            raise InvalidValue(
                f"--state {str(state)!r} is a merged sketch, which takes no more items. Start a new one."
            )
    if isinstance(sketch, MisraGries):
        for path in files or []:
            _read(sketch, path, form, column, state, quiet=as_json)
    if merge and epsilon is None and state is not None and state.exists():
        raise InvalidValue(f"--state {str(state)!r} exists already. Pass a new name for the merged sketch.")
    if merge:
        mine = [sketch] if files or (state is not None and state.exists()) else []
        sketch = MergedSketch.of(*mine, *map(_load, merge))
    if epsilon is None:
        assert state is not None
        if merge:
            _save(sketch, state)
        if not as_json:
            typer.echo(f"Kept in {state}. It holds true keys and counts: guard it like the data.")
        return
    options: dict[str, Any] = {"unit": f"one {unit}", "ledger": book, "note": note}
    if universe is not None:
        options["universe"] = _universe(universe)
    if items_per_unit != 1:
        if not isinstance(sketch, MisraGries):
            raise InvalidValue("--items-per-unit works for one sketch, not for merged ones. Leave out one of the two.")
        options["items_per_unit"] = items_per_unit
    made = sketch.release(epsilon, delta, **options)
    _report(made, out, top, as_json)


def _read(
    sketch: "MisraGries", path: str, form: str | None, column: str | None, state: Path | None, *, quiet: bool
) -> None:
    """Count the items of one file. The state is saved after the whole file; of a pipe, now and then and when stopped.

    A file that breaks off in the middle leaves the state as it was, so that it can be read again from its start.
    """
    from dpsieve.engines.items import item_batches

    pipe, saved = path == "-", time.monotonic()
    with _counting(quiet=quiet) as tell:
        try:
            for batch in item_batches(path, form, column):
                sketch.update(batch)
                tell(len(batch))
                if pipe and state is not None and time.monotonic() - saved > _SAVE_EVERY:
                    _save(sketch, state)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not pipe:
                raise
    if state is not None:
        _save(sketch, state)


@contextmanager
def _counting(*, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show how many items were read, and how fast, on standard error."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn

    console, total, start = Console(stderr=True), 0, time.monotonic()
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True) as bar:
        task = bar.add_task("reading")

        def tell(more: int) -> None:
            nonlocal total
            total += more
            rate = total / max(time.monotonic() - start, 1e-3)
            bar.update(task, description=f"reading {rate / 1e6:.1f} million items a second")  # the total is a secret

        yield tell


def _save(sketch: "MisraGries | MergedSketch", path: Path) -> None:
    """Replace the state whole, readable by its owner alone."""
    handle, working = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(sketch.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        Path(working).replace(path)
    except BaseException:
        Path(working).unlink(missing_ok=True)
        raise


def _load(path: Path) -> "MisraGries | MergedSketch":
    from dpsieve.errors import UnreadableData
    from dpsieve.sketches import sketch_from_bytes

    try:
        state = path.read_bytes()
    except OSError:
        state = None
    if state is None:
        raise UnreadableData(f"{str(path)!r} cannot be read. Check its name and rights.")
    return sketch_from_bytes(state)


def _universe(path: Path) -> Any:
    import pyarrow as pa

    from dpsieve.engines.items import item_batches

    return pa.chunked_array(list(item_batches(str(path), "lines")), pa.string())


def _report(made: "Release", out: Path | None, top: int, as_json: bool) -> None:
    if out is not None:
        made.save(out)
    if as_json:
        typer.echo(json.dumps(summary(made), default=str))
    else:
        show(made, top, out)
