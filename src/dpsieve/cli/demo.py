"""`dpsieve demo`: the main job on made-up data, from events to a private release, in a few seconds."""

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer


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
    from rich.console import Console

    from dpsieve.cli.output import finish, is_file, reserve
    from dpsieve.errors import InvalidValue
    from dpsieve.jobs.release import release as publish
    from dpsieve.publication.folders import write_file
    from dpsieve.publication.table_files import CONTENT
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
    console.print(f"{len(release):,} queries released, in {seconds:.2f} s.")
    console.print(f"Certificate: {release.certificate}")
    page = release.report(Path(tempfile.mkdtemp(prefix="dpsieve-demo-")) / "report.html")
    console.print(f"Report, for a browser: {page}", soft_wrap=True, markup=False)
