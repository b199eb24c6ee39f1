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
) -> None:
    """Make up a skewed log of searches, release the queries and their counts privately, and show the result.

    Example: dpsieve demo --epsilon 0.5
    """
    from rich.console import Console

    from dpsieve.cli.output import finish
    from dpsieve.jobs.release import release as publish
    from dpsieve.synthetic import query_log

    console = Console(highlight=False)
    with console.status(f"making up {rows:,} events of {users:,} users"):
        log = query_log(rows, users)
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
