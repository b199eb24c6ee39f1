"""`dpsieve explore`: a local page that plans releases, and opens ledgers and what is published."""

from pathlib import Path
from typing import Annotated

import typer


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
