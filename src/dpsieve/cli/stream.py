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
from dpsieve.errors import DpsieveError

if TYPE_CHECKING:
    from dpsieve.sketches import MergedSketch, MisraGries

_SAVE_EVERY = 60.0  # seconds, while a pipe is read


def stream(
    files: Annotated[
        list[str] | None, typer.Argument(help="Files of lines, CSV or JSON lines; - for standard input.")
    ] = None,
    counters: Annotated[
        int | None, typer.Option(help="The size of a new sketch, 1,024 unless told: keys of more than 1/counters show.")
    ] = None,
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

    if not files and not merge and state is None:
        raise InvalidValue("there is nothing to read. Pass files, or - for standard input.")
    if epsilon is None and state is None:
        raise InvalidValue("nothing would come of this. Pass --epsilon and --delta to release, or --state to keep.")
    warn_of_large_delta(delta)
    refuse_existing(out)
    # Whatever can be wrong is found before a file is read: what was read is in the state, and would count twice.
    book = None if ledger is None else Ledger.open(ledger)
    sketch, others = _opened(state, counters, files, merge, keep=epsilon is None)
    options: dict[str, Any] = {"unit": f"one {unit}", "ledger": book, "note": note}
    if universe is not None:
        options["universe"] = _universe(universe)
    if items_per_unit != 1:
        if others:
            raise InvalidValue("--items-per-unit works for one sketch, not for merged ones. Leave out one of the two.")
        options["items_per_unit"] = items_per_unit
    if epsilon is not None:
        _check_budget(epsilon, delta, sketch.counters, options)
    for path in files or []:
        _read(sketch, path, form, column, state, quiet=as_json)
    whole = _merged(sketch, others)
    if epsilon is None:
        assert state is not None
        if others:
            _save(whole, state)
        if not as_json:
            typer.echo(f"Kept in {state}. It holds true keys and counts: guard it like the data.")
        return
    try:
        made = whole.release(epsilon, delta, **options)
    except DpsieveError as error:
        read = (
            f" The state {str(state)!r} holds {', '.join(files)} already: run again without." if files and state else ""
        )
        raise type(error)(f"{error}{read}") from None
    if out is not None:
        made.save(out)
    typer.echo(json.dumps(summary(made), default=str)) if as_json else show(made, top, out)


def _opened(
    state: Path | None, counters: int | None, files: list[str] | None, merge: list[Path] | None, *, keep: bool
) -> tuple[Any, list[Any]]:
    """Return the sketch to go on with, and those to merge it with."""
    from dpsieve.errors import InvalidValue
    from dpsieve.sketches import MisraGries

    paths = [path.resolve() for path in [*(merge or []), *([state] if state is not None and merge else [])]]
    if len(set(paths)) < len(paths):
        raise InvalidValue("a state would be merged with itself, so that its items count twice. Name each state once.")
    exists = state is not None and state.exists()
    if merge and keep and (exists or files):
        raise InvalidValue("merged sketches are kept under a new name. Pass a --state that is not there, and no files.")
    sketch = _load(state) if state is not None and exists else MisraGries(1024 if counters is None else counters)
    if counters is not None and sketch.counters != counters:
        raise InvalidValue(f"--counters {counters} is not the size of the state, {sketch.counters}. Leave it out.")
    if files and not isinstance(sketch, MisraGries):
        raise InvalidValue(f"--state {str(state)!r} is a merged sketch, which takes no more items. Start a new one.")
    others = [_load(path) for path in merge or []]
    if others and not exists and not files:
        sketch, *others = others
    if merge and any(other.counters != sketch.counters for other in others):
        raise InvalidValue("the states to merge differ in size. Make them with the same --counters.")
    return sketch, others


def _merged(sketch: Any, others: list[Any]) -> Any:
    from dpsieve.sketches import MergedSketch

    return MergedSketch.of(sketch, *others) if others else sketch


def _check_budget(epsilon: float, delta: float, counters: int, options: dict[str, Any]) -> None:
    """Refuse a budget that no release could be made with, and a universe that is none."""
    from dpsieve.errors import InvalidValue
    from dpsieve.sketches.noisy import noisy_sketch
    from dpsieve.sketches.summed import summed_sketch
    from dpsieve.sketches.universe import Universe

    many = options.get("items_per_unit", 1)
    if "universe" not in options:
        noisy_sketch(epsilon, delta, counters, many)
        return
    if delta:
        raise InvalidValue("with a universe the release is purely private. Leave out --delta, or --universe.")
    summed_sketch(epsilon, 0.0, counters, 1, len(Universe(options["universe"])), items_per_unit=many)


def _read(
    sketch: "MisraGries", path: str, form: str | None, column: str | None, state: Path | None, *, quiet: bool
) -> None:
    """Count the items of one file. The state is saved after the whole file; of a pipe, now and then and when stopped.

    A file that breaks off in the middle leaves the state as it was, so that it can be read again from its start. A pipe
    cannot: when it is interrupted, what was read is kept, and the command ends without a release.
    """
    from dpsieve.engines.items import item_batches

    pipe, saved, stopped = path == "-", time.monotonic(), False
    with _counting(quiet=quiet) as tell:
        try:
            for batch in item_batches(path, form, column):
                sketch.update(batch)
                tell(len(batch))
                if pipe and state is not None and time.monotonic() - saved > _SAVE_EVERY:
                    _save(sketch, state)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if not pipe or state is None:
                raise
            stopped = True
    if state is not None:
        _save(sketch, state)
    if stopped:
        typer.echo(f"interrupted: what was read is kept in {state}, and nothing is released.", err=True)
        raise typer.Exit(130)


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
