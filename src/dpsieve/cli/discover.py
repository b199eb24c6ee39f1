"""`dpsieve discover`, `top-k` and `hitting-set`: which keys occur, the most frequent, those that reach most."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from dpsieve.cli.options import (
    DISCOVER,
    HITS,
    TOP,
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
)  # fmt: skip
from dpsieve.cli.release import engine_of, finish, reserved, scanning, show_rows

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from dpsieve.discovery.key_sets import KeySet
    from dpsieve.engines import Engine


@takes_request(DISCOVER)
def discover(
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
    """Publish which keys occur in a table, and nothing else about them.

    Example: dpsieve discover events.parquet --key query --unit user_id --epsilon 1 --delta 1e-8 --out published
    """
    from dpsieve.jobs.discover import discover as run

    _run(run, "keys, by name", data, request, ledger, note, out, engine_of(data, memory, engine), table, top, as_json)


@takes_request(TOP)
def top_k(
    data: Data,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    table: TableName = None,
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Publish the k keys that most units hold, the most common first.

    Example: dpsieve top-k events.parquet --key query --unit user_id --epsilon 1 --delta 1e-8 --k 100
    """
    from dpsieve.jobs.discover import top_k as run

    _run(
        run,
        "keys, the most common first",
        data,
        request,
        ledger,
        note,
        out,
        engine_of(data, memory),
        table,
        top,
        as_json,
    )


@takes_request(HITS)
def hitting_set(
    data: Data,
    request: dict[str, Any],
    ledger: LedgerPath = None,
    note: Note = "",
    out: Out = None,
    memory: Memory = None,
    table: TableName = None,
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Publish k keys such that most units hold at least one of them, the one that adds most units first.

    Example: dpsieve hitting-set events.parquet --key query --unit user_id --epsilon 1 --delta 1e-8 --k 20
    """
    from dpsieve.jobs.discover import hitting_set as run

    _run(
        run,
        "keys that reach most units",
        data,
        request,
        ledger,
        note,
        out,
        engine_of(data, memory),
        table,
        top,
        as_json,
    )


def _run(
    job: "Callable[..., KeySet]",
    what: str,
    data: Any,
    request: dict[str, Any],
    ledger: "Path | None",
    note: str,
    out: "Path | None",
    engine: "Engine | None",
    table: str | None,
    top: int,
    as_json: bool,
) -> None:
    from dpsieve.privacy.ledger import open_ledger

    book = open_ledger(ledger, note)
    with reserved(out) as place, scanning(quiet=as_json) as progress:
        made = job(data, engine=engine, table=table, ledger=book, note=note, progress=progress, **request)
        finish(made, place, partial(_show, made, what, top), as_json=as_json)


def _show(made: "KeySet", what: str, top: int, console: "Console") -> None:
    if len(made):
        show_rows(f"{min(top, len(made)):,} of {len(made):,} {what}", made.table.slice(0, top), console)
    else:
        console.print("No key is published: none is held by enough units. Use a larger epsilon or delta, or more data.")
