"""`dpsieve ledger`: make, show and list the spends of a privacy budget."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Keep account of a privacy budget.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="The ledger file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


@app.command()
def create(
    path: File,
    epsilon: Annotated[float, typer.Option(help="The whole budget.")],
    delta: Annotated[float, typer.Option(help="The whole budget.")],
    unit: Annotated[str, typer.Option(help="Who is protected: the name of the unit column of all releases.")],
) -> None:
    """Make a new ledger.

    Example: dpsieve ledger create budget.ledger --epsilon 4 --delta 1e-6 --unit user_id
    """
    from dpsieve.errors import InvalidValue
    from dpsieve.privacy.ledger import Ledger

    if path.exists():
        raise InvalidValue(f"{str(path)!r} exists already. Pass a new name, or see dpsieve ledger show.")
    typer.echo(f"{path}: {Ledger(path, epsilon, delta, unit=f'one {unit}').budget}")


@app.command()
def show(path: File, as_json: AsJson = False) -> None:
    """Show the budget, what is spent and what is left.

    Example: dpsieve ledger show budget.ledger
    """
    from dpsieve.privacy.ledger import Ledger

    ledger = Ledger.open(path)
    left, spent = ledger.remaining(), ledger.spent()
    if as_json:
        rest = None if left is None else left.to_json()
        typer.echo(
            json.dumps({"budget": ledger.budget.to_json(), "spent_epsilon": spent, "left": rest, "head": ledger.head})
        )
        return
    typer.echo(f"budget  {ledger.budget}")
    typer.echo(f"spent   epsilon {spent:.6g} at the budget's delta, in {len(ledger):,} releases")
    typer.echo(
        f"left    {'nothing' if left is None else f'one release of epsilon {left.epsilon:.6g}, delta {left.delta:.3g}'}"
    )
    typer.echo(f"head    {ledger.head}")


@app.command()
def history(path: File, as_json: AsJson = False) -> None:
    """List every spend.

    Example: dpsieve ledger history budget.ledger
    """
    from dpsieve.privacy.ledger import Ledger

    for entry in Ledger.open(path).history():
        spend = entry.spend.to_json()
        if as_json:
            record = {
                "number": entry.number,
                "time": entry.time,
                "spend": spend,
                "note": entry.note,
                "hash": entry.hash,
            }
            typer.echo(json.dumps(record))
        else:
            numbers = ", ".join(f"{name} {value}" for name, value in spend.items() if name not in ("kind", "count"))
            typer.echo(f"{entry.number:>4}  {entry.time}  {spend['kind']}: {numbers}  {entry.note}")
