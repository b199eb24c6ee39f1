"""Code blocks of README.md and docs/: found, and run as a reader would, one after the other in one folder.

Blocks of Python share one namespace; numbers that start a comment behind an expression, and the comment behind a print,
must be right. In a console block, lines that start with `$ ` are commands, which a backslash at the end of a line
continues: `dpsieve ...`, with `cat` or `zcat` of a file before it, and HASH for the head of a ledger; `python
examples/...`, where `&` at the end lets it run until the block ends, and port 8000 is a free one; `make ...` is looked
up in the Makefile, and the name after `python -m experiments` in their list. SQL runs in DuckDB, where `orders` has the
columns user_id and product. Fences such as '```{toctree}' are for Sphinx. A block with `not-run` after its language, as
in '```python not-run', needs what a test does not have.
"""

import ast
import contextlib
import gzip
import io
import math
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
from helpers.command import run

import dpsieve as ds

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_SHOWN = r"-?\d+\.?\d*(?:e-?\d+)?(?:\.\.\.)?"


class Block(NamedTuple):
    """A block of code: its language, its text, whether it is to be run, and the line where it starts."""

    language: str
    text: str
    runs: bool
    line: int


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"^```(\S*)([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if found[1].startswith("{"):
            continue
        yield Block(found[1], found[3], "not-run" not in found[2], text[: found.start()].count("\n") + 2)


def run_python(block, page, names):
    """Run a block. What it prints must hold the comment behind the print; see `assert_shown` for other comments."""
    lines = block.text.splitlines()
    for statement in ast.parse(block.text).body:
        source = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        comment = lines[statement.end_lineno - 1].partition("  # ")[2]
        code = ast.increment_lineno(ast.Module([statement], []), block.line - 1)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), str(page), "eval"), names)
            else:
                value = exec(compile(code, str(page), "exec"), names)
        for told in re.findall(r"print\([^#]*\)  # (.*)", source):
            assert told in printed.getvalue(), (told, printed.getvalue())
        if isinstance(statement, ast.Expr) and (said := re.match(rf"{_SHOWN}(?:, {_SHOWN})*(?=$|[ .,:])", comment)):
            assert_shown(re.findall(_SHOWN, said[0]), value)


def assert_shown(texts, value):
    """Check that a value is the numbers at the start of a comment, to the digits that they have there."""
    values = [float(one) for one in np.hstack([np.ravel(part) for part in np.atleast_1d(np.array(value, object))])]
    assert len(values) == len(texts), (texts, values)
    for text, exact in zip(texts, values, strict=True):
        digits = text.rstrip(".").split("e")[0].partition(".")[2]
        unit = 10.0 ** (int(text.partition("e")[2] or 0) - len(digits)) * (2 if text.endswith("...") else 1)
        assert math.isclose(float(text.rstrip(".")), exact, rel_tol=0, abs_tol=0.5001 * unit), (text, exact)


def run_sql(block):
    with duckdb.connect() as connection:
        orders = "SELECT user_id, query AS product FROM 'events.parquet'"
        connection.execute(f"CREATE VIEW orders AS {orders}")
        assert connection.sql(block.text).fetchall()


def run_console(block, folder):
    """Run each command; what is printed below it in the page must be what it prints, but for numbers."""
    with contextlib.ExitStack() as running, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        _run_commands(block, folder, port, running)


def _run_commands(block, folder, port, running):
    text = re.sub(r" \\\n +", " ", block.text)
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            makefile = (ROOT / "Makefile").read_text()
            recipe = re.search(rf"^{words[1]}:.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
            assert recipe is not None, command
            if not shown:
                continue
            words = shlex.split(recipe[1].replace("$(BIN)/", ""))
        if words[:3] == ["python", "-m", "experiments"]:
            listed = subprocess.run([sys.executable, *words[1:3], "--list"], cwd=ROOT, capture_output=True, text=True)
            assert words[3] == "--list" or re.search(rf"^{words[3]}", listed.stdout, re.MULTILINE), command
            continue
        if words[0] == "python":
            printed = _run_example([word.replace("8000", port) for word in words], folder, port, running)
            assert [line for line in shown.splitlines() if line not in printed] == [], (command, printed)
            continue
        given = b""
        if "|" in words:
            reader, file, _, *words = words
            opened = {"cat": Path.read_bytes, "zcat": lambda path: gzip.decompress(path.read_bytes())}[reader]
            given = opened(folder / file)
        assert words[0] == "dpsieve", command
        words = [ds.Ledger.open(folder / words[3]).head if word == "HASH" else word for word in words]
        done = run(*words[1:], cwd=folder, input=given)
        assert done.returncode == 0, (command, done.stderr)
        printed = [_masked(line) for line in done.stdout.splitlines()]
        assert [line for line in shown.splitlines() if "..." not in line and _masked(line) not in printed] == []


def _run_example(words, folder, port, running):
    """Run a script of examples/, or start it where '&' ends the command; return the lines that it prints."""
    program = [sys.executable, ROOT / words[1], *(word for word in words[2:] if word != "&")]
    if words[-1] != "&":
        done = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.splitlines()
    process = running.enter_context(subprocess.Popen(program, cwd=folder))
    running.callback(process.kill)
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), timeout=1):
            return []
        time.sleep(0.05)
    raise AssertionError((words, "does not answer"))


def _masked(line):
    """Return a line without its numbers, and without what depends on how long they are."""
    return re.sub(r"\W+", " ", re.sub(r"\d[\d,.]*(?:e-?\d+)?", " # ", line)).strip()
