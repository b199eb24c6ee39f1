"""`dpsieve stream`: heavy hitters of a stream of items, in the memory of a sketch."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsieve.cli.options import AsJson, DryRun, Note, Out, Top, Verbose
from dpsieve.cli.output import finish, reserve, show_preview
from dpsieve.cli.stream_files import is_there, load, locked, named_files, read_one, read_parallel, save
from dpsieve.errors import InvalidValue, UnreadableData

if TYPE_CHECKING:
    from dpsieve.jobs.preview import Preview
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.sketches.laplace_noise import LaplaceSketch


def stream(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files, globs or folders: Parquet, CSV, JSON lines, lines; - for standard input."),
    ] = None,
    counters: Annotated[
        int | None, typer.Option(help="Size of a new sketch, default 1,024; finds keys above a share of 1/counters.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon. Omit it to update --state without releasing.")] = None,
    delta: Annotated[float, typer.Option(help="Far below 1 / items; 0 with a universe.")] = 0.0,
    column: Annotated[
        str | None, typer.Option(help="The column of Parquet, CSV or JSON lines that holds the items.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="lines, csv, jsonl or parquet; else by the name.")
    ] = None,
    header: Annotated[str | None, typer.Option(help="The first line that CSV lacks, such as user,query.")] = None,
    state: Annotated[
        Path | None, typer.Option(help="File that stores the sketch between runs. It holds true keys and counts.")
    ] = None,
    parallel: Annotated[
        int,
        typer.Option(
            min=1,
            help="Sketches to count files in at the same time, then merged: faster with several cores, "
            "but a key needs more items to come out: N/(counters + 1) of all N.",
        ),
    ] = 1,
    merge: Annotated[list[Path] | None, typer.Option(help="States to merge into the release; give it again.")] = None,
    universe: Annotated[Path | None, typer.Option(help="All keys that can occur, one a line: pure privacy.")] = None,
    items_per_unit: Annotated[
        int, typer.Option(help="Protect any unit with at most this many items; nothing checks that none has more.")
    ] = 1,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="The ledger to charge, made by dpsieve ledger create --unit item; "
            "with --items-per-unit 5, --unit 'unit with at most 5 items'."
        ),
    ] = None,
    note: Note = "",
    out: Out = None,
    dry_run: DryRun = False,
    top: Top = 10,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Publish the most common items of a stream, read once, in little memory. The privacy unit is one item.

    Example: dpsieve stream events/*.parquet --column query --counters 1024 --epsilon 1 --delta 1e-8
    """
    files = files or []
    if not files and not merge and state is None:
        raise InvalidValue("there is nothing to read. Pass files, or - for standard input.")
    if epsilon is None and state is None:
        raise InvalidValue("nothing to do. Pass --epsilon and --delta to release, or --state to keep the sketch.")
    if files.count("-") > 1 or (state is not None and "-" in files and len(files) > 1):
        raise InvalidValue("standard input cannot be read again. Pass - once, and with --state as the only input.")
    if parallel > 1 and "-" in files:
        raise InvalidValue("standard input is one stream. Leave out --parallel, or pass files.")
    files = named_files(files)
    import pyarrow as pa

    from dpsieve.engines.inputs.files import Format
    from dpsieve.engines.inputs.items import item_batches
    from dpsieve.privacy.guarantee import warn_of_large_delta
    from dpsieve.sketches import MergedSketch

    warn_of_large_delta(delta)
    Format("csv", header)
    if note and ledger is None:
        raise InvalidValue("--note is kept in a ledger. Pass --ledger too, or leave it out.")
    # Whatever can be wrong is found before a file is read: what was read is in the state, and would count twice.
    options: dict[str, Any] = {"ledger": _ledger(ledger, items_per_unit), "note": note}
    if universe is not None:
        options["universe"] = pa.chunked_array(list(item_batches(str(universe), "lines")), pa.string())
    if items_per_unit != 1:
        options["items_per_unit"] = items_per_unit
    writes = state is not None and (files or epsilon is None)
    if epsilon is None and dry_run:
        raise InvalidValue("--dry-run shows what a release would be. Pass --epsilon and --delta too.")
    keeps = ledger if epsilon is not None and not dry_run else None
    with reserve(out, keeps) as place, locked(state) if state is not None and writes else nullcontext():
        continued = state is not None and is_there(state)
        sketch, others = _opened(state, counters, files, merge, parallel, keep=epsilon is None)
        if items_per_unit != 1 and (others or parallel > 1 or not hasattr(sketch, "update")):
            raise InvalidValue("--items-per-unit works for one sketch, not for merged ones. Leave out one of the two.")
        if epsilon is not None:
            mechanism = _check_budget(epsilon, delta, sketch.counters, options)
            if dry_run:
                merges = bool(others) or parallel > 1
                show_preview(_describe(mechanism, merges=merges), ledger, as_json=as_json)
                return
            _check_pipe(files)
        how = {"form": form, "column": column, "header": header}
        if files and parallel > 1:
            kept = sketch if continued else None
            sketch = read_parallel(parallel, kept, sketch.counters, files, how, state, quiet=as_json)
        elif files:
            read_one(sketch, files, how, state, quiet=as_json)
        whole = MergedSketch.of(sketch, *others) if others else sketch
        if epsilon is None:
            assert state is not None
            if merge:
                save(whole, state)
            if not as_json:
                typer.echo(f"Kept in {state}. It holds true keys and counts: guard it like the data.")
            return
        finish(whole.release(epsilon, delta, **options), place, top=top, as_json=as_json, ledger=ledger)


def _ledger(path: Path | None, items_per_unit: int) -> "Ledger | None":
    """Open the ledger to charge, which must be for what a stream protects."""
    from dpsieve.privacy.ledger import Ledger
    from dpsieve.sketches.laplace_noise import check_items_per_unit, protected_unit

    unit = protected_unit(check_items_per_unit(items_per_unit))
    book = None if path is None else Ledger.open(path)
    if book is not None and book.budget.unit != unit:
        fix = f"Charge one made by: dpsieve ledger create ... --unit {unit.removeprefix('one ')!r}"
        raise InvalidValue(f"the ledger is for {book.budget.unit!r}, and this release protects {unit!r}. {fix}")
    return book


def _opened(
    state: Path | None,
    counters: int | None,
    files: list[str] | None,
    merge: list[Path] | None,
    parallel: int,
    *,
    keep: bool,
) -> tuple[Any, list[Any]]:
    """Return the sketch to continue, and those to merge it with."""
    from dpsieve.sketches import MisraGries

    states = [path.resolve() for path in [*(merge or []), *([state] if state is not None and merge else [])]]
    if len(set(states)) < len(states):
        raise InvalidValue("a state would be merged with itself, so that its items count twice. Name each state once.")
    exists = state is not None and (is_there(state) or not (files or merge))
    if merge and keep and (exists or files):
        raise InvalidValue("merged sketches are kept under a new name. Pass a --state that is not there, and no files.")
    sketch = load(state) if state is not None and exists else MisraGries(1024 if counters is None else counters)
    if counters is not None and sketch.counters != counters:
        raise InvalidValue(f"--counters {counters} is not the size of the state, {sketch.counters}. Leave it out.")
    if files and parallel == 1 and not isinstance(sketch, MisraGries):
        fix = "Start a new one, or pass --parallel 2 or more to merge the files into it."
        raise InvalidValue(f"--state {str(state)!r} is a merged sketch, which takes no more items. {fix}")
    others = [load(path) for path in merge or []]
    if others and not exists and not files:
        sketch, *others = others
    if merge and any(other.counters != sketch.counters for other in others):
        raise InvalidValue("the states to merge differ in size. Make them with the same --counters.")
    return sketch, others


def _check_budget(epsilon: float, delta: float, counters: int, options: dict[str, Any]) -> "LaplaceSketch":
    """Return the mechanism of one sketch; refuse a budget that none fits or the ledger cannot pay."""
    from dpsieve.sketches.laplace_noise import NoisySketch
    from dpsieve.sketches.sketch import Universe
    from dpsieve.sketches.summed_noise import SummedSketch

    many = options.get("items_per_unit", 1)
    if "universe" not in options:
        mechanism: LaplaceSketch = NoisySketch(epsilon, delta, counters, items_per_unit=many)
    elif delta:
        raise InvalidValue("with a universe the release is purely private. Leave out --delta, or --universe.")
    else:
        size = len(Universe(options["universe"]))
        mechanism = SummedSketch(epsilon, 0.0, counters, universe=size, items_per_unit=many)
    if options["ledger"] is not None:
        options["ledger"].check(mechanism.guarantee)
    return mechanism


def _check_pipe(files: list[str]) -> None:
    """Refuse to release from a pipe without a byte, such as one whose first command failed."""
    from dpsieve.engines.inputs.files import EMPTY_PIPE

    peek = getattr(sys.stdin.buffer, "peek", None)
    if "-" in files and peek is not None and not peek(1):
        raise UnreadableData(f"standard input is empty: {EMPTY_PIPE}")


def _describe(mechanism: "LaplaceSketch", *, merges: bool) -> "Preview":
    """Return what a release of a sketch would be."""
    from dpsieve.jobs.preview import Preview

    threshold: float | None = getattr(mechanism, "threshold", None)
    details = [("standard deviation of the noise", f"{mechanism.deviation:.3g} per count")]
    if threshold is not None:
        details.append(("a key is published from", f"a noisy counter of {threshold:,.0f}"))
    details.append(("a counter may lose", f"at most 1/{mechanism.counters + 1:,} of all items"))
    if merges:
        details.append(("merged sketches", "these numbers are for one sketch; the noise of a sum is larger"))
    reason = f"noise for a sketch of {mechanism.counters:,} counters"
    adds = "1 item" if mechanism.items_per_unit == 1 else f"at most {mechanism.items_per_unit:,} items"
    return Preview(mechanism.guarantee, mechanism.name, reason, adds, details=tuple(details))
