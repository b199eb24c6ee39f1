"""Options of commands. Those of a job are generated from the fields of its request."""

import contextlib
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.jobs.request import ROWS
from dpsieve.jobs.table_request import parse_totals

if TYPE_CHECKING:
    from dpsieve.engines.engine import Engine
    from dpsieve.jobs.request import Request


def _log(context: typer.Context, wanted: bool) -> None:
    """Print the log on standard error while a command runs."""
    if not wanted or context.resilient_parsing:
        return
    import logging

    from dpsieve.display import log

    handler, before = logging.StreamHandler(), log.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    context.call_on_close(partial(log.setLevel, before))
    context.call_on_close(partial(log.removeHandler, handler))


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Data = Annotated[
    list[str],
    typer.Argument(
        help="Files or globs (Parquet, CSV, JSON lines), - for standard input, CSV by default, or a database URL."
    ),
]
OptionalData = Annotated[list[str] | None, typer.Argument(help="Files, to check that the columns are there.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be published; reads no rows, spends and writes nothing.")
]
EngineName = Annotated[str, typer.Option("--engine", help="Where to count and draw: duckdb, or spark.")]
Format = Annotated[
    str | None, typer.Option(help="Format of the data: csv, tsv, jsonl or parquet; default by file name.")
]
Header = Annotated[str | None, typer.Option(help="The header line that CSV data lacks, such as user,query.")]
LedgerPath = Annotated[Path | None, typer.Option("--ledger", help="The ledger to charge; see dpsieve ledger create.")]
KeyExpression = Annotated[
    list[str] | None,
    typer.Option(
        "--key-expression",
        metavar="NAME=SQL",
        help="A derived column of the key, such as \"day=date_trunc('day', ts)\".",
    ),
]
Memory = Annotated[str | None, typer.Option(help="Memory for the scan, such as 500MB; beyond it, disk.")]
Note = Annotated[str, typer.Option(help="What this is for; kept in the ledger.")]
Out = Annotated[
    Path | None,
    typer.Option(help="A new folder for release.parquet and release.json; or a new .csv, .jsonl, .parquet."),
]
TableName = Annotated[str | None, typer.Option("--table", help="The table of a database to read, such as shop.orders.")]
Top = Annotated[int, typer.Option(help="Rows to show.", min=1)]
Verbose = Annotated[
    bool, typer.Option("--verbose", callback=_log, help="Log the engine, the mechanism and seconds per phase.")
]


_FIRST = ("key", "column", "bounds", "quantile", "k", "privacy_unit", "epsilon", "delta", "rho")


def request_parameters(request: "type[Request]") -> list[inspect.Parameter]:
    """Return one keyword parameter, with its option, per field of a request; columns and budget come first."""
    offered = [field for field in fields(request) if field.metadata["option"]]
    places = {name: place for place, name in enumerate(_FIRST)}
    return [_parameter(field) for field in sorted(offered, key=lambda field: places.get(field.name, len(places)))]


def _parameter(field: "Field[Any]") -> inspect.Parameter:
    names = [f"--{field.name.replace('_', '-')}", *([f"--{alias}"] if (alias := field.metadata["alias"]) else [])]
    kind, more = _kind(field)
    help_text = field.metadata["help"][:1].upper() + field.metadata["help"][1:].replace("`", "")
    option = typer.Option(*names, help=help_text, **more)
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if field.name == "key":  # unless there is --key-expression
        default, kind = None, list[str] | None
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(field.name, keyword, default=default, annotation=Annotated[kind, option])


def _kind(field: "Field[Any]") -> tuple[Any, dict[str, Any]]:
    """Return the type of an option, and further settings; `parse_values` turns what is typed into arguments."""
    form, optional = field.metadata["form"], field.default is None
    parts = get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    more = {"metavar": form} if form else {}
    if form == "NUMBER|auto|FOLDER":
        return Any, {"parser": _read_bound, **more}
    if parts == (bool, types.NoneType):
        return Any, {"parser": _yes_or_no, "metavar": "yes|no"}
    if form == "COLUMN:LOW:HIGH":  # may be given again
        return list[str] | None, more
    if form == "PATH":
        return Path | None, more
    if any(get_origin(part) is tuple and get_args(part)[-1] is ... for part in parts):  # may be given again
        return (list[str] | None if optional else list[str]), more
    if form:  # numbers separated by commas, or one column
        return str, more
    simple: Any = next((part for part in (int, float, bool, str) if part in parts), str)
    if get_origin(field.type) is Literal:
        simple = str
    return (simple | None if optional else simple), more


def parse_values(request: "type[Request]", values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a request among the values of a command, and remove them there."""
    given = {field.name: values.pop(field.name) for field in fields(request) if field.name in values}
    given["privacy_unit"] = ROWS if given["privacy_unit"] == [ROWS] else given["privacy_unit"] or None
    if given.get("bounds") is not None:
        pairs = [given["bounds"]] if isinstance(given["bounds"], str) else given["bounds"]
        numbers = [parse_numbers("bounds", pair, "0,100") for pair in pairs]
        given["bounds"] = numbers[0] if len(numbers) == 1 else numbers
    if "key" in given:
        given["key"] = _with_expressions(given["key"] or [], values.pop("key_expression", None) or [])
    if "quantile" in given:
        quantiles = parse_numbers("quantile", given["quantile"], "0.5,0.9")
        given["quantile"] = quantiles[0] if len(quantiles) == 1 else quantiles
    for name in ("sums", "means"):
        if name in given:
            given[name] = parse_totals(name.removesuffix("s"), given[name])
    if given.get("known_keys") is not None:
        from dpsieve.values.keys import read_known

        given["known_keys"] = read_known(given["known_keys"], given.get("key") or [given["column"]])
    return given


def _with_expressions(key: list[str], expressions: list[str]) -> list[str] | dict[str, str]:
    """Return the columns of a key, and those that are derived by expressions, written as NAME=SQL."""
    if not key and not expressions:
        raise InvalidValue("--key is missing. Name the column to publish, such as --key query.")
    pairs = [(name.strip(), text) for name, _, text in (each.partition("=") for each in expressions)]
    if any(not name or not text for name, text in pairs):
        fix = "Pass --key-expression \"day=date_trunc('day', ts)\"."
        raise InvalidValue(f"--key-expression has no name or no expression. {fix}")
    if len({name for name, _ in pairs} | set(key)) < len(pairs) + len(key):
        raise InvalidValue("--key and --key-expression name a column twice. Choose other names.")
    return {name: name for name in key} | dict(pairs) if pairs else key


def parse_numbers(option: str, text: str, example: str) -> list[float]:
    """Return numbers that are separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue(f"--{option} is not numbers separated by commas. Pass --{option} {example}.") from None


def _read_bound(text: str) -> Any:
    """Return a number, 'auto', or what a unit added in an earlier release, by its folder."""
    if text == "auto":
        return text
    with contextlib.suppress(ValueError):
        return int(text)
    if not Path(text).is_dir():
        raise typer.BadParameter("Pass a whole number, auto, or the folder of an earlier release.")
    from dpsieve.publication.release import Release

    try:
        return Release.load(text).contribution
    except DpsieveError as error:
        raise typer.BadParameter(str(error)) from None


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise typer.BadParameter("Pass yes or no.")
    return text == "yes"


def open_data(names: list[str] | None, format_name: Any, header: str | None) -> Any:
    """Return the data that a command was given: files, or standard input for '-'."""
    from dpsieve.engines.inputs.files import files

    if names == ["-"]:
        return files(sys.stdin.buffer, format=format_name, header=header)
    data = names[0] if names and len(names) == 1 else names
    if format_name is None and header is None:
        return data
    if not data:
        raise InvalidValue("--format and --header describe data. Pass files too, or leave them out.")
    return files(data, format=format_name, header=header)


def engine_for(data: Any, memory: str | None, name: str = "duckdb") -> "Engine | None":
    """Return the engine for the data that a command was given: None for a database, which counts itself."""
    from dpsieve.engines.duckdb.engine import DuckDB
    from dpsieve.engines.inputs.frames import is_database
    from dpsieve.engines.spark import Spark

    if name not in ("duckdb", "spark"):
        raise InvalidValue("--engine is neither duckdb nor spark. Choose one, or leave it out.")
    if name == "duckdb" and not is_database(data):
        return DuckDB(memory_limit=memory)
    if memory is not None:
        raise InvalidValue("--memory is for files and duckdb. Leave it out: databases and Spark have their own.")
    return Spark() if name == "spark" else None


def with_parameters(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Return the command with the signature that typer is to read."""
    command.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
