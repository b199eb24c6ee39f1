"""`dpsieve ledger`: create, show and verify a privacy budget, and list its entries."""

import os
from pathlib import Path
from typing import Annotated

import typer

from dpsieve import validate
from dpsieve.cli.command import Command, Group
from dpsieve.cli.options import AsJson
from dpsieve.display import json_text
from dpsieve.errors import InvalidValue

app = typer.Typer(cls=Group, help="Keep account of a privacy budget.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="The ledger file.")]


@app.command(cls=Command)
def create(
    path: File,
    epsilon: Annotated[float, typer.Option(help="The whole budget.")],
    delta: Annotated[float, typer.Option(help="The whole budget.")],
    privacy_unit: Annotated[
        list[str],
        typer.Option("--privacy-unit", "--unit", help="The privacy unit of all releases; repeat for several columns."),
    ],
    neighbours: Annotated[
        str,
        typer.Option(
            help="add_remove; or replace, for means with a public number of units. It takes add_remove spends too."
        ),
    ] = "add_remove",
) -> None:
    """Create a ledger.

    Example: dpsieve ledger create budget.ledger --epsilon 4 --delta 1e-6 --privacy-unit user_id
    """
    from dpsieve.privacy.ledger import Ledger

    if os.path.lexists(path):
        raise InvalidValue(f"{str(path)!r} exists already. Pass a new name, or see dpsieve ledger show.")
    relation = validate.neighbours(neighbours)
    unit = privacy_unit[0] if len(privacy_unit) == 1 else privacy_unit
    created = Ledger(path, epsilon, delta, neighbours=relation, unit=unit)
    typer.echo(f"{path}: {created.budget}")


@app.command(cls=Command)
def show(path: File, as_json: AsJson = False) -> None:
    """Show the budget, what is spent and what is left.

    Example: dpsieve ledger show budget.ledger
    """
    from dpsieve.privacy.ledger import Ledger

    ledger = Ledger.open(path)
    left, spent = ledger.remaining(), ledger.spent()
    batches = [entry for entry in ledger.history() if entry.cost.members > 1]
    if as_json:
        rest = None if left is None else left.to_json()
        record = {"budget": ledger.budget.to_json(), "spent_epsilon": spent, "left": rest, "head": ledger.head}
        record["batches"] = [{"number": entry.number, "members": entry.cost.members} for entry in batches]
        typer.echo(json_text(record))
        return
    typer.echo(f"budget  {ledger.budget}")
    times = "1 entry" if len(ledger) == 1 else f"{len(ledger):,} entries"
    typer.echo(f"spent   epsilon {spent:.6g} at the budget's delta if all amounts were fixed in advance, in {times}")
    words = "nothing"
    if left is not None:
        words = f"one release of epsilon {left.epsilon:.6g}, delta {left.delta:.3g}, by {left.rule}"
    typer.echo(f"left    {words}")
    for entry in batches:
        typer.echo(f"entry   {entry.number}: {entry.words()}  {entry.note}".rstrip())
    typer.echo(f"head    {ledger.head}")


@app.command(cls=Command)
def history(path: File, as_json: AsJson = False) -> None:
    """List all entries.

    Example: dpsieve ledger history budget.ledger
    """
    from dpsieve.privacy.ledger import Ledger

    for entry in Ledger.open(path).history():
        if as_json:
            spent = entry.cost.to_json()
            record = {"number": entry.number, "time": entry.time, **spent, "note": entry.note, "hash": entry.hash}
            typer.echo(json_text(record))
        else:
            counted_as = f" (counted as {' + '.join(curve.words() for curve in entry.curves)})" if entry.curves else ""
            typer.echo(f"{entry.number:>4}  {entry.time}  {entry.words()}{counted_as}  {entry.note}")


@app.command(cls=Command)
def verify(
    path: File,
    head: Annotated[str | None, typer.Option(help="A head noted earlier, from dpsieve ledger show.")] = None,
    as_json: AsJson = False,
) -> None:
    """Verify every entry and, with a head noted earlier, that no entry up to it was cut off or rewritten.

    Exits with 2 where the ledger cannot be trusted.

    Example: dpsieve ledger verify budget.ledger --head $(cat noted-head.txt)
    """
    from dpsieve.privacy.ledger import Ledger

    ledger = Ledger.open(path, expect_head=head)
    hashes = [entry.hash for entry in ledger.history()]
    # The first head, of the untouched ledger, is not that of an entry.
    since = None if head is None else len(hashes) - (hashes.index(head) + 1 if head in hashes else 0)
    if as_json:
        typer.echo(json_text({"entries": len(hashes), "head": ledger.head, "entries_since": since}))
        return
    typer.echo(f"valid   {len(hashes):,} {'entry' if len(hashes) == 1 else 'entries'}")
    typer.echo(f"head    {ledger.head}")
    if since is not None:
        ago = f"{since:,} {'entry' if since == 1 else 'entries'} ago"
        typer.echo(f"noted   {f'matches the head {ago}' if since else 'matches the present head'}")
