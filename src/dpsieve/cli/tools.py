"""Commands beside the jobs: `dpsieve plan`, `explore`, `demo` and `warm-up`."""

import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsieve.cli.options import AsJson
from dpsieve.display import json_text
from dpsieve.errors import InvalidValue


def plan(
    appear: Annotated[
        str | None,
        typer.Option(metavar="UNITS:PROBABILITY", help="A key of this many units is published with this probability."),
    ] = None,
    count_within: Annotated[
        str | None,
        typer.Option(metavar="DISTANCE:PROBABILITY", help="A common key's count is within it with this probability."),
    ] = None,
    mean_within: Annotated[
        str | None,
        typer.Option(
            metavar="UNITS:DISTANCE:PROBABILITY",
            help="The mean of a published key of this many units is within the distance with this probability.",
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
    """Return the numbers between colons; the first is a whole number."""
    if text is None:
        return None
    first, *others = text.split(":")
    try:
        if len(others) != example.count(":"):
            raise ValueError
        return int(first), *map(float, others)
    except ValueError:
        what = "a whole number and a probability" if example.count(":") == 1 else "units, a distance, a probability"
        raise InvalidValue(f"--{option} {text} is not {what}. Pass --{option} {example}.") from None


def explore(
    folder: Annotated[
        Path | None,
        typer.Argument(help="A saved release, or a folder of some: the page may open what is inside of it."),
    ] = None,
    ledger: Annotated[
        list[Path] | None, typer.Option(help="A ledger whose budget the page may show; repeat for several.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="The port; 0 is any free one. Default 8765, or a free one.", min=0, max=65535),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Plan a release in the browser before anything is spent, follow a budget, and look at what is published.

    The page is served to this machine only, reads no rows of data and changes nothing. Ctrl-C ends it.

    Example: dpsieve explore published --ledger budget.ledger
    """
    from dpsieve.errors import InvalidValue
    from dpsieve.explore.server import serve
    from dpsieve.privacy.ledger import Ledger

    if folder is not None and not folder.is_dir():
        raise InvalidValue(f"{str(folder)!r} is not a folder. Pass one with saved releases, or leave it out.")
    for path in ledger or []:
        Ledger.open(path)
    ledgers = {str(path): path.resolve() for path in ledger or []}
    serve(folder, ledgers, port=port, browser=browser, say=lambda text: typer.echo(text, err=True))


def demo(
    rows: Annotated[int, typer.Option(help="Events to make up.", min=1, max=100_000_000)] = 1_000_000,
    users: Annotated[int, typer.Option(help="Users who cause them.", min=1, max=100_000_000)] = 100_000,
    epsilon: Annotated[float, typer.Option(help="Privacy budget: smaller is more private.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Probability that a key of one user may show.")] = 1e-8,
    out: Annotated[
        Path | None, typer.Option(help="Write the events to a new .parquet, .csv or .jsonl file, and stop there.")
    ] = None,
) -> None:
    """Make up a skewed log of searches, release the queries and their counts privately, and show the result.

    Example: dpsieve demo --epsilon 0.5
    """
    import pyarrow.compute as pc
    from rich.console import Console

    from dpsieve.cli.output import finish, is_file, reserve
    from dpsieve.errors import InvalidValue
    from dpsieve.jobs.release import release as publish
    from dpsieve.publication.files import CONTENT, write_file
    from dpsieve.synthetic import query_log

    if out is not None and not is_file(out):
        raise InvalidValue("--out does not name a file for events. Pass a name that ends in .parquet, .csv or .jsonl.")
    console = Console(highlight=False)
    with reserve(out) as place:
        with console.status(f"making up {rows:,} events of {users:,} users"):
            log = query_log(rows, users)
        if place is not None:
            write_file(place, CONTENT[place.target.suffix.lower()](log))
            console.print(f"Wrote {rows:,} made-up events of {users:,} users to {out}.", soft_wrap=True, markup=False)
            return
    start = time.perf_counter()
    with console.status("counting and releasing"):
        release = publish(log, key="query", privacy_unit="user_id", epsilon=epsilon, delta=delta)
    seconds = time.perf_counter() - start
    console.print(f"{rows:,} made-up events of {users:,} users.\n")
    finish(release, None, is_demo=True)
    for key in release.top(1).column("query"):
        holders = pc.count_distinct(log.filter(pc.equal(log["query"], key))["user_id"])
        console.print(f"True number of users with '{key}', known since the data are made up: {holders.as_py():,}.")
    console.print(f"{len(release):,} queries released, in {seconds:.2f} s.")
    page = release.report(Path(tempfile.mkdtemp(prefix="dpsieve-demo-")) / "report.html")
    console.print(f"Report, for a browser: {page}", soft_wrap=True, markup=False)


def warm_up(
    background: Annotated[
        bool, typer.Option("--background", help="Print nothing, at the lowest priority, unless another process does.")
    ] = False,
) -> None:
    """Compile all that a first call would wait for, and keep it in the cache of this user.

    Example: dpsieve warm-up
    """
    from dpsieve.compiled.background import low_priority
    from dpsieve.compiled.jit import SWITCH
    from dpsieve.jobs.warm_up import check_cache
    from dpsieve.jobs.warm_up import warm_up as warm_up_parts

    os.environ[SWITCH] = "wait"
    check_cache()
    if background:
        with low_priority() as is_alone:
            if is_alone:
                list(warm_up_parts())
        return
    total = 0.0
    for part in warm_up_parts():
        words = f"{part.compiled} functions compiled" if part.compiled else "was compiled before"
        typer.echo(f"{part.name + ':':<16}{part.seconds:6.1f} s, {words}")
        total += part.seconds
    typer.echo(f"{'all:':<16}{total:6.1f} s")
