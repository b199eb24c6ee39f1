"""`dpsieve warm-up`: compile all that a first call would wait for."""

import os
from typing import Annotated

import typer


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
