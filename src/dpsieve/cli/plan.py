"""`dpsieve plan`: the least epsilon or delta for a goal."""

from typing import Annotated, Any

import typer

from dpsieve.cli.options import AsJson
from dpsieve.display import json_text
from dpsieve.errors import InvalidValue


def plan(
    appear: Annotated[
        str | None,
        typer.Option(metavar="UNITS:PROBABILITY", help="A key of so many units is published with this probability."),
    ] = None,
    count_within: Annotated[
        str | None,
        typer.Option(metavar="DISTANCE:PROBABILITY", help="A common key's count is within it with this probability."),
    ] = None,
    mean_within: Annotated[
        str | None,
        typer.Option(
            metavar="UNITS:DISTANCE:PROBABILITY",
            help="The mean of a published key of so many units is within the distance with this probability.",
        ),
    ] = None,
    sums: Annotated[
        list[str] | None, typer.Option("--sum", metavar="COLUMN:LOW:HIGH", help="Columns to add up, with bounds.")
    ] = None,
    means: Annotated[
        list[str] | None, typer.Option("--mean", metavar="COLUMN:LOW:HIGH", help="Columns to average, with bounds.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Given, to find the least delta.")] = None,
    delta: Annotated[float | None, typer.Option(help="Given, to find the least epsilon.")] = None,
    max_keys_per_unit: Annotated[
        int, typer.Option("--max-keys-per-unit", "--max-keys", help="The number of keys that a unit may add.")
    ] = 1,
    max_rows_per_key: Annotated[int, typer.Option(help="The number of rows of a unit that count in one key.")] = 1,
    method: Annotated[str, typer.Option(help="The mechanism, as for dpsieve release.")] = "auto",
    min_units: Annotated[int, typer.Option(help="Never publish a key that fewer units hold.")] = 1,
    privacy_unit: Annotated[str, typer.Option("--privacy-unit", "--unit", help="Who is protected.")] = "user_id",
    as_json: AsJson = False,
) -> None:
    """Find the least epsilon, or the least delta, that reaches a goal; reads no data and spends nothing.

    Example: dpsieve plan --appear 50:0.95 --count-within 10:0.95 --delta 1e-8 --max-keys-per-unit 5

    With a mean: dpsieve plan --mean rating:1:5 --mean-within 200:0.1:0.95 --delta 1e-8
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from dpsieve.jobs.choose_epsilon import choose_epsilon
    from dpsieve.jobs.table_request import parse_totals

    found = choose_epsilon(
        appear=_numbers("appear", appear, "50:0.95"),
        count_within=_numbers("count-within", count_within, "10:0.95"),
        mean_within=_numbers("mean-within", mean_within, "200:0.1:0.95"),
        sums=parse_totals("sum", sums),
        means=parse_totals("mean", means),
        epsilon=epsilon,
        delta=delta,
        max_keys_per_unit=max_keys_per_unit,
        max_rows_per_key=max_rows_per_key,
        method=method,  # type: ignore[arg-type]  # checked by the request
        min_units=min_units,
        privacy_unit=privacy_unit,
    )
    if as_json:
        typer.echo(json_text(found.to_json()))
        return
    unit = f"--privacy-unit {privacy_unit} --epsilon {found.epsilon:g} --delta {found.delta:g}"
    bounds = {"max-keys-per-unit": max_keys_per_unit, "max-rows-per-key": max_rows_per_key, "min-units": min_units}
    more = "".join(f" --{name} {value}" for name, value in bounds.items() if value != 1 or name == "max-keys-per-unit")
    more += "" if method == "auto" else f" --method {method}"
    more += "".join(f" --{name} {text}" for name, texts in (("sum", sums), ("mean", means)) for text in texts or [])
    rows = Table(show_header=False)
    for name, value in [*found.lines()[:-1], ("command", f"dpsieve release DATA --key KEY {unit}{more}")]:
        rows.add_row(name, escape(value))
    Console(highlight=False).print(rows)


def _numbers(option: str, text: str | None, example: str) -> Any:
    """Return the numbers between colons, of which the first is whole."""
    if text is None:
        return None
    first, *others = text.split(":")
    try:
        if len(others) != example.count(":"):
            raise ValueError
        return int(first), *map(float, others)
    except ValueError:
        what = (
            "a whole number and a probability" if len(example.split(":")) == 2 else "units, a distance, a probability"
        )
        raise InvalidValue(f"--{option} is not {what}. Pass --{option} {example}.") from None
