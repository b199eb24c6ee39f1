"""Options that commands share: those of a request, in one list, so that commands cannot drift apart."""

import inspect
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsieve.cli.messages import errors_as_typed
from dpsieve.errors import InvalidValue


def _log(context: typer.Context, wanted: bool) -> None:
    """Print the log on standard error while a command runs."""
    if not wanted or context.resilient_parsing:
        return
    import logging

    from dpsieve.logs import log

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
DataFiles = Annotated[  # for commands without --table
    list[str],
    typer.Argument(help="Files or globs (Parquet, CSV, JSON lines), or - for standard input, CSV by default."),
]
Memory = Annotated[str | None, typer.Option(help="Memory for the scan, such as 500MB; beyond it, disk.")]
EngineName = Annotated[str, typer.Option("--engine", help="Where to count and draw: duckdb, or spark.")]
Note = Annotated[str, typer.Option(help="What this is for, kept in the ledger.")]
Out = Annotated[
    Path | None,
    typer.Option(help="A new folder for release.parquet and release.json; or a new .csv, .jsonl, .parquet."),
]
TableName = Annotated[str | None, typer.Option("--table", help="The table of a database to read, such as shop.orders.")]
Top = Annotated[int, typer.Option(help="Rows to show.", min=1)]
Verbose = Annotated[
    bool, typer.Option("--verbose", callback=_log, help="Log the engine, the mechanism and seconds for each phase.")
]
LedgerPath = Annotated[Path | None, typer.Option("--ledger", help="The ledger to charge; see dpsieve ledger create.")]


def _option(
    name: str,
    kind: Any,
    help: str,  # noqa: A002
    default: Any = inspect.Parameter.empty,
    **more: Any,
) -> tuple[str, Any, Any]:
    return name, Annotated[kind, typer.Option(f"--{name.replace('_', '-')}", help=help, **more)], default


def _number_or_auto(text: str) -> int | str:
    try:
        return "auto" if text == "auto" else int(text)
    except ValueError:
        raise typer.BadParameter("Pass a whole number, or auto.") from None


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise typer.BadParameter("Pass yes or no.")
    return text == "yes"


# For each field of a request: the name of its option, the option, and its default.
Options = dict[str, tuple[str, Any, Any]]
_SHARED: Options = {
    "key": _option("key", list[str], "The column to publish; give it again for several."),
    "privacy_unit": _option(
        "unit",
        list[str] | None,
        "The column that says who is protected; give it again for several; else each row.",
        None,
    ),
    "epsilon": _option("epsilon", float, "Privacy budget: smaller is more private."),
    "delta": _option("delta", float, "Probability that a key of one unit may show; far below 1 / units."),
    "allow_null_units": _option("allow_null_units", bool, "Leave out rows without a unit.", False),
}
RELEASE: Options = {
    **_SHARED,
    "max_keys_per_unit": _option(
        "max_keys", Any,
        "Keys that one unit may add; auto: chosen privately, for 2 % of epsilon. Default auto with --unit, else 1.",
        None, parser=_number_or_auto, metavar="NUMBER|auto",
    ),
    "goal": _option("goal", str, "keys: find most keys; counts: the best counts of common keys.", "keys"),
    "max_rows_per_key": _option("max_rows", int, "Rows of a unit that count in one key.", 1),
    "mechanism": _option(
        "mechanism", str,
        "auto, optimal, simple, truncated_geometric, stability; for several keys a unit report_then_count, gaussian; "
        "with --known-keys laplace, gaussian.", "auto",
    ),
    "known_keys": _option(
        "known_keys", Path | None, "A public list: one key a line, or Parquet or CSV with the key columns.", None
    ),
    "sample_size": _option("sample_size", int | None, "Sample about this many keys.", None),
    "keys_only": _option("keys_only", bool, "Publish keys without counts.", False),
    "tell_kept": _option(
        "tell_kept", Any, "Tell which share of all pairs of unit and key is kept; no saves 1 % of epsilon.", None,
        parser=_yes_or_no, metavar="yes|no",
    ),
}  # fmt: skip
DISCOVER: Options = {
    **_SHARED,
    "max_keys_per_unit": _option("max_keys", int | None, "Keys that one unit may add; default 100.", None),
    "mechanism": _option(
        "mechanism", str,
        "auto, renyi, renyi_two_rounds, greedy, one_key, weighted_gaussian, policy_gaussian, policy_greedy, "
        "repeated_rounds.", "auto",
    ),
    "typical_keys": _option(
        "typical_keys", int | None, "Typical keys per unit, if public; else a private median, for 0.5 % of epsilon.",
        None,
    ),
}  # fmt: skip
HITS: Options = {
    **DISCOVER,
    "typical_keys": _option("typical_keys", int | None, "Keys that a unit typically holds, if that is public.", None),
    "k": _option("k", int, "How many keys to find, up to 1,000."),
}
_BOUNDS = "Its public bounds: LOW,HIGH; once for all columns, or for each in order."
_NUMBERS: Options = {
    "column": _option("column", list[str], "A column of numbers; give it again for several."),
    "bounds": _option("bounds", list[str], _BOUNDS),
    "privacy_unit": _SHARED["privacy_unit"],
    "max_rows_per_unit": _option("max_rows", int, "Rows of one unit that count.", 1),
    "epsilon": _option("epsilon", float | None, "Privacy budget; alone, it is a pure one.", None),
    "delta": _option("delta", float | None, "With epsilon: for (epsilon, delta). With rho: where it is stated.", None),
    "rho": _option("rho", float | None, "Privacy budget in zCDP, instead of epsilon.", None),
    "allow_null_units": _SHARED["allow_null_units"],
}
_RELATION = _option("neighbours", str, "add_remove, or replace: a unit's rows are exchanged for others.", "add_remove")
_MOMENT = _option(
    "p", float | None, "For columns in one unit of measure: the moment of their total error to make small.", None
)
SUM: Options = {**_NUMBERS, "neighbours": _RELATION, "p": _MOMENT}
MEAN: Options = {
    **_NUMBERS,
    "bounds": _option("bounds", list[str] | None, f"{_BOUNDS} Not with --kind binary.", None),
    "kind": _option("kind", str, "real, or binary: columns of zeros and ones.", "real"),
    "p": _MOMENT,
    "neighbours": _option(
        "neighbours", str, "replace (the number of units is public), or add_remove (it is private).", "replace"
    ),
    "method": _option(
        "method", str, "box (noise for the bounds), plan (for many columns, or wide bounds), or auto.", "auto"
    ),
}
QUANTILE: Options = {
    **_NUMBERS,
    "column": _option("column", list[str], "The column of numbers."),
    "q": _option("quantile", str, "Which, from 0 to 1; several with commas."),
    "neighbours": _RELATION,
    "method": _option("method", str, "search, gaps, halving, or auto.", "auto"),
    "scale": _option("scale", str, "linear, or log: a grid with spacing relative to the value.", "linear"),
}
_COLLECT: Options = {
    "column": _option("column", str, "The column of values: each client has one."),
    "privacy_unit": _option(
        "unit",
        list[str] | None,
        "The column that says whose row it is; give it again for several; else each row is a client. "
        "One value of each counts.",
        None,
    ),
    "epsilon": _SHARED["epsilon"],
    "delta": _option("delta", float, "Probability that a value of one client may show; far below 1 / clients."),
    "neighbours": _option("neighbours", str, "add_remove, or replace: a client has another value.", "add_remove"),
    "threshold": _option("threshold", int | None, "Reports that a value needs; left out, the best.", None),
    "allow_null_units": _SHARED["allow_null_units"],
}
HISTOGRAM: Options = {
    **_COLLECT,
    "delta": _option(
        "delta", float | None,
        "Probability that a value of one client may show; left out with --rate and --threshold, the exact one.", None,
    ),
    "values": _option("known_keys", Path | None, "A public list of the values that count, one a line.", None),
    "rate": _option("rate", float | None, "The share of clients that answer; left out, the best.", None),
    "goal": _option("goal", str, "reach: the rarest values; error: the least error up to --frequency.", "reach"),
    "frequency": _option("frequency", int | None, "For --goal error: clients of the most frequent values.", None),
    "contacted": _option("contacted", int | None, "The most clients to contact, of --population.", None),
    "population": _option("population", int | None, "How many clients there are, if that is public.", None),
    "hostile": _option("hostile", int, "Reports that may be made up by those who see the release.", 0),
}  # fmt: skip
_LEVELS: Options = {
    **_COLLECT,
    "protocol": _option(
        "protocol", str, "rounds: a coin at each level; cohorts: each client at one level; one_round.", "rounds"
    ),
    "coin": _option("coin", float | None, "The probability with which a client answers; left out, the best.", None),
}
HITTERS: Options = {
    **_LEVELS,
    "max_length": _option("max_length", int, "Symbols of the longest string; clients with longer ones are silent."),
    "min_length": _option("min_length", int, "Symbols of the shortest string.", 0),
    "alphabet": _option("alphabet", str | None, "All characters that strings may have; left out, any.", None),
    "step": _option("step", int, "Symbols that each level adds.", 1),
}
DISTRIBUTION: Options = {
    **_LEVELS,
    "bounds": _option("bounds", str, "Public bounds of the numbers: LOW,HIGH."),
    "branching": _option("branching", int, "Parts into which each level cuts a range.", 4),
    "depth": _option("depth", int, "Levels: branching^depth cells in all.", 5),
    "outside": _option("outside", str, "Numbers outside of the bounds: clip, or silent.", "clip"),
    "confidence": _option("confidence", float, "With which all intervals hold together.", 0.95),
}
_FORMAT: Options = {  # of the data, beside the request
    "format": _option(
        "format", str | None, "What the data holds: csv, tsv, jsonl or parquet; else by the names.", None
    ),
    "header": _option("header", str | None, "The first line that CSV data lacks, such as user,query.", None),
}
TOP: Options = {**HITS, "counts": _option("counts", bool, "Publish noisy counts of the keys too.", False)}


def takes_request(options: Options) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command these options, as the dict `request`, and data of any format."""
    return partial(_with_options, options)


def _with_options(options: Options, command: Callable[..., None]) -> Callable[..., None]:
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "request"]
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(name, keyword, default=value, annotation=kind)
        for name, kind, value in [*options.values(), *_FORMAT.values()]
    ]

    @wraps(command)
    def run(**values: Any) -> None:
        from dpsieve.privacy.guarantee import warn_of_large_delta

        request = {field: values.pop(name) for field, (name, _, _) in options.items()}
        values.pop("verbose")
        request["privacy_unit"] = request["privacy_unit"] or None
        if "key" in request:
            warn_of_large_delta(request["delta"])
        if request.get("known_keys") is not None:
            from dpsieve.values.keys import read_known

            request["known_keys"] = read_known(request["known_keys"], request["key"])
        told = {name: values.pop(name) for name in _FORMAT}
        with errors_as_typed(typed({**options, **_FORMAT})):
            if "table" not in values:
                _refuse_databases(values["data"])
            command(request=request, **values | {"data": _source(values["data"], told)})

    shared.append(inspect.Parameter("verbose", keyword, default=False, annotation=Verbose))
    parameters = [*(p.replace(kind=keyword) for p in own[:1]), *shared, *(p.replace(kind=keyword) for p in own[1:])]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _refuse_databases(names: list[str]) -> None:
    from dpsieve.engines import is_database

    if any(map(is_database, names)):
        raise InvalidValue("DATA is a database, and this command reads files. Save the table to a Parquet file first.")


def _source(names: list[str] | None, told: dict[str, str | None]) -> Any:
    """Return the data that a command was given: files, or standard input for '-'."""
    from dpsieve.engines import files

    if names == ["-"]:
        return files(sys.stdin.buffer, **told)
    data = names[0] if names and len(names) == 1 else names
    if told == dict.fromkeys(told):
        return data
    if not data:
        raise InvalidValue("--format and --header are about data. Pass files too, or leave them out.")
    return files(data, **told)


def typed(options: Options) -> dict[str, str]:
    """Return how each field of a request is typed."""
    return {field: name.replace("_", "-") for field, (name, _, _) in options.items()}
