"""The command line: collects the commands and turns errors into messages."""

import io
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dpsieve import __version__
from dpsieve.cli import audit, ledger, output, stream, tools
from dpsieve.cli.command import Command, Group, notes_of, spell_options
from dpsieve.cli.jobs import add_jobs
from dpsieve.errors import DpsieveError, PrivacyWarning
from dpsieve.locks import unwind_on_signals

app = typer.Typer(
    name="dpsieve",
    help="Publish which keys occur in sensitive data, and how often, under differential privacy.",
    cls=Group,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
add_jobs(app)
app.command(cls=Command)(tools.plan)
app.command(cls=Command)(output.report)
app.command(cls=Command)(stream.stream)
app.add_typer(ledger.app, name="ledger")
app.command(cls=Command)(tools.explore)
app.add_typer(audit.app, name="audit")
app.command(cls=Command)(tools.demo)
app.command(cls=Command)(tools.warm_up)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dpsieve {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Publish which keys occur in sensitive data, and how often, under differential privacy."""


def main() -> None:
    """Run the command line.

    Exit codes: 0 done, 1 the machine failed (no memory, a full disk) or an audit did, 2 the call was wrong. The last
    line has the fix.
    """
    for printed in (sys.stdout, sys.stderr):
        if isinstance(printed, io.TextIOWrapper):
            printed.reconfigure(errors="backslashreplace")  # a release that is paid for is printed on any terminal
    try:
        with unwind_on_signals(), warnings.catch_warnings():
            warnings.simplefilter("always", PrivacyWarning)
            warnings.showwarning = _one_line(warnings.showwarning)
            app(prog_name="dpsieve")  # also as python -m dpsieve
    except DpsieveError as error:
        _stop(str(error), 2)
    except MemoryError as error:
        _stop(f"there is not enough memory for this. Use smaller numbers.{notes_of(error)}", 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit has a place to go
        sys.exit(1)
    except OSError as error:
        _stop(f"operating system error: {error.strerror}. Check the disk and the permissions.{notes_of(error)}", 1)
    except Exception as error:
        # Its message may hold data; where it comes from does not.
        places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        where = f"{type(error).__name__} at {', '.join(places[-3:])}"
        _stop(f"internal error: {where}. Please report it.{notes_of(error)}", 1)


def _one_line(show_other: Callable[..., None]) -> Callable[..., None]:
    """Return what prints each PrivacyWarning once as a plain line, and other warnings as they were printed before."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if not issubclass(category, PrivacyWarning):
            show_other(message, category, *place)
        elif str(message) not in shown:
            shown.add(str(message))
            typer.echo(f"warning: {spell_options(str(message), frozenset({'delta', 'key'}))}", err=True)

    return show


def _stop(message: str, code: int) -> None:
    try:
        typer.echo(f"error: {message}", err=True)
    finally:
        sys.exit(code)
