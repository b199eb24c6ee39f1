"""The command line in this process: it prints and exits as the real command does, and starts at once."""

import contextlib
import functools
import io
import os
import sys
from types import SimpleNamespace
from unittest import mock

import typer.main

from dpsieve.cli import main

made = functools.cache(typer.main.get_command)  # from the signatures of all commands, which do not change


def run(*arguments, cwd=None, input="", encoding="utf-8"):  # noqa: A002 (as subprocess.run calls it)
    """Return what `dpsieve` with these arguments exits with and prints."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(input.encode() if isinstance(input, str) else input))
    with (
        contextlib.chdir(cwd or "."),
        mock.patch("typer.main.get_command", made),
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        mock.patch.multiple(sys, argv=["dpsieve", *map(str, arguments)], stdin=given, stdout=out, stderr=err),
    ):
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out.flush(), err.flush()
    return SimpleNamespace(
        returncode=code, stdout=out.buffer.getvalue().decode(), stderr=err.buffer.getvalue().decode()
    )
