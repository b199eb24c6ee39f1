"""`dpsieve demo`: the main job on made-up data, from events to a private release, in a few seconds."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pyarrow as pa


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
    from rich.table import Table

    from dpsieve.channels import optimal
    from dpsieve.synthetic import query_log

    console = Console(highlight=False)
    channel = optimal(epsilon, delta, unit="one user_id")
    with console.status(f"making up {rows:,} events of {users:,} users"):
        log = query_log(rows, users)
    start = time.perf_counter()
    with console.status("counting each user once, then releasing"):
        counted = _one_query_per_user(log)
        release = channel.release(counted.field("values"), counted.field("counts"))
    seconds = time.perf_counter() - start
    console.print(f"{rows:,} made-up events of {users:,} users. Each user counts once, for one of their queries.\n")
    table = Table(title="The ten most common queries, as released")
    table.add_column("query", overflow="fold")
    table.add_column("users", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    for row in release.top(10).to_pylist():
        table.add_row(row["key"], f"{row['count']:,}", f"{row['low']:,} to {row['high']:,}")
    console.print(table)
    half = int((channel.reporting_probability(range(1, 100_000)) < 0.5).sum()) + 1
    console.print(f"{len(release):,} queries released, in {seconds:.2f} s. A query of {half} users has an even chance.")
    console.print(f"Guarantee: {release.guarantee}")
    console.print(f"Certificate: {release.certificate}")


def _one_query_per_user(log: "pa.Table") -> "pa.StructArray":
    """Keep one event of each user, chosen at random; count the users of each query."""
    import numpy as np
    import pyarrow as pa

    from dpsieve.randomness.source import resolve

    shuffled = log.take(pa.array(np.argsort(resolve(None).words(log.num_rows))))
    _, first = np.unique(shuffled.column("user_id").to_numpy(), return_index=True)
    return shuffled.column("query").take(pa.array(first)).combine_chunks().value_counts()
