"""A progress bar on standard error for scans that take longer than a moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def scanning(*, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """Yield a function that takes the fraction done, or None when nothing should be shown."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("reading and counting"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("scan", total=1.0)
        yield lambda done: bar.update(task, completed=done)
