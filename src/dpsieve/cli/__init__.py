"""The command line. Each command is a file; this one only collects them and turns errors into messages."""

import sys
from typing import Annotated

import typer

from dpsieve import __version__
from dpsieve.cli.demo import demo
from dpsieve.errors import DpsieveError

app = typer.Typer(
    name="dpsieve",
    help="Publish which keys occur in sensitive data, and how often, under differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpsieve {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it and exit.")
    ] = False,
) -> None:
    """Publish which keys occur in sensitive data, and how often, under differential privacy."""


def main() -> None:
    """Run the command line; an error of dpsieve ends it with exit code 2 and one line that names the fix."""
    try:
        app()
    except DpsieveError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
