"""The commands that publish something of a table, one per job; their options come from the job's request."""

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dpsieve.cli.command import Command, Group
from dpsieve.cli.output import finish, reserve, show_preview, show_progress
from dpsieve.jobs import key_set_request, number_request, request
from dpsieve.jobs.table_request import TableRequest

from dpsieve.cli.options import (  # isort: skip
    AsJson, Data, DryRun, EngineName, Format, Header, KeyExpression, LedgerPath, Memory, Note, OptionalData, Out,
    TableName, Top, Verbose, engine_for, open_data, parse_numbers, parse_values, request_parameters, with_parameters,
)  # fmt: skip

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = Annotated[
    str, typer.Option("--quantile", help="Quantiles to show, in [0, 1], comma-separated; the folder has all others.")
]


class Job(NamedTuple):
    """A command: its request, the function that runs it, its help, and an example."""

    request: type[request.Request]
    function: str
    help: str
    example: str


JOBS = {
    "release": Job(
        TableRequest,
        "release.release",
        "Publish which keys occur in a table, how often, and with which totals and means.",
        "events.parquet --key query --privacy-unit user_id --epsilon 1 --delta 1e-8 --out published",
    ),
    "discover": Job(
        key_set_request.DiscoverRequest,
        "discover.discover",
        "Publish which keys occur in a table, and nothing else about them.",
        "events.parquet --key query --privacy-unit user_id --epsilon 1 --delta 1e-8 --out published",
    ),
    "top-k": Job(
        key_set_request.TopKRequest,
        "discover.top_k",
        "Publish the k keys that most units hold, the most common first.",
        "events.parquet --key query --privacy-unit user_id --epsilon 1 --delta 1e-8 --k 100",
    ),
    "hitting-set": Job(
        key_set_request.HittingSetRequest,
        "discover.hitting_set",
        "Publish k keys such that most units hold at least one of them, the one that adds most units first.",
        "events.parquet --key query --privacy-unit user_id --epsilon 1 --delta 1e-8 --k 20",
    ),
    "sum": Job(
        number_request.SumRequest,
        "numbers.sum",
        "Publish the sums of columns of numbers. Rows without a number in one of them are left out.",
        "sales.parquet --column price --bounds 0,100 --privacy-unit user_id --max-rows-per-unit 5 --epsilon 1",
    ),
    "mean": Job(
        number_request.MeanRequest,
        "numbers.mean",
        "Publish the means of columns of numbers over units: a unit counts once, with the mean of its rows.",
        "visits.csv --column minutes --bounds 0,600 --column pages --bounds 0,50 --unit user_id --epsilon 1",
    ),
    "quantile": Job(
        number_request.QuantileRequest,
        "numbers.quantile",
        "Publish quantiles of a column of numbers. Rows without a number are left out.",
        "sales.parquet --column price --bounds 0,10000 --quantile 0.9 --unit user_id --max-rows-per-unit 5 --epsilon 1",
    ),
}
COLLECTIONS = {
    "histogram": Job(
        number_request.HistogramRequest,
        "collect.collect_histogram",
        "Publish which values clients have, and how many have them, by sample-and-threshold.",
        "events.parquet --column query --privacy-unit user_id --epsilon 1 --delta 1e-8",
    ),
    "heavy-hitters": Job(
        number_request.HeavyHittersRequest,
        "collect.collect_heavy_hitters",
        "Publish which strings many clients have, found prefix by prefix (TrieHH++), with counts.",
        "events.parquet --column query --unit user_id --max-length 12 --epsilon 1 --delta 1e-8",
    ),
    "quantiles": Job(
        number_request.DistributionRequest,
        "collect.collect_quantiles",
        "Publish the distribution of a number that clients have: all quantiles, shares and ranges, with intervals.",
        "sales.parquet --column price --bounds 0,100 --unit user_id --epsilon 1 --delta 1e-8",
    ),
}


def add_jobs(app: typer.Typer) -> None:
    """Add all commands of this module to the command line."""
    for name, job in JOBS.items():
        app.command(name, cls=Command)(_command(name, job))
    app.command("preview", cls=Command)(_preview())
    clients = "Publish what a sample of clients reports: each privacy unit of a table is a client."
    collections = typer.Typer(cls=Group, help=clients, no_args_is_help=True)
    for name, job in COLLECTIONS.items():
        collections.command(name, cls=Command)(_command(f"collect {name}", job))
    app.add_typer(collections, name="collect")


def _command(name: str, job: Job) -> Callable[..., None]:
    """Return the command of a job, with the options of its request."""
    kinds: dict[str, tuple[Any, Any]] = {
        "ledger": (LedgerPath, None),
        "note": (Note, ""),
        "out": (Out, None),
        "memory": (Memory, None),
        "table": (TableName, None),
        "engine": (EngineName, "duckdb"),
        "format": (Format, None),
        "header": (Header, None),
        "dry_run": (DryRun, False),
        "as_json": (AsJson, False),
        "verbose": (Verbose, False),
    }
    if job.request not in (number_request.SumRequest, number_request.MeanRequest, number_request.QuantileRequest):
        kinds["top"] = (Top, 10)
    if issubclass(job.request, request.KeyRequest):
        kinds = {"key_expression": (KeyExpression, None), **kinds}
    if job.request is number_request.DistributionRequest:
        kinds = {"quantile": (_SHOWN, "0.05,0.25,0.5,0.75,0.95"), **kinds}

    def command(**values: Any) -> None:
        _run(name, job, **values)

    command.__doc__ = f"{job.help}\n\nExample: dpsieve {name} {job.example}"
    keyword = inspect.Parameter.KEYWORD_ONLY
    around = [inspect.Parameter(n, keyword, default=d, annotation=a) for n, (a, d) in kinds.items()]
    data = inspect.Parameter("data", keyword, annotation=Data)
    return with_parameters(command, [data, *request_parameters(job.request), *around])


def _preview() -> Callable[..., None]:
    """Return the command that previews a release; its data may be left out."""
    release = _command("release", JOBS["release"])

    def preview(**values: Any) -> None:
        release(**values | {"dry_run": True})

    preview.__doc__ = (
        "Show what a release would add and withhold; spends and writes nothing.\n\n"
        "It takes the options of dpsieve release. Other commands have --dry-run.\n\n"
        "Example: dpsieve preview --key query --privacy-unit user_id --epsilon 1 --delta 1e-8 --max-keys-per-unit 5"
    )
    parameters = [p for p in inspect.signature(release).parameters.values() if p.name not in ("data", "dry_run")]
    data = inspect.Parameter("data", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OptionalData)
    return with_parameters(preview, [data, *parameters])


def _run(
    name: str,
    job: Job,
    *,
    data: list[str] | None,
    ledger: Path | None,
    note: str,
    out: Path | None,
    memory: str | None,
    table: str | None,
    engine: str,
    format: str | None,  # noqa: A002
    header: str | None,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
    top: int = 10,
    quantile: str | None = None,
    **values: Any,
) -> None:
    """Run a job, or preview it."""
    from dpsieve.jobs.preview import preview

    if job.request is number_request.QuantileRequest:
        values["quantile"] = quantile
    arguments = parse_values(job.request, values)
    quantiles = None if quantile is None or "quantile" in arguments else _check_quantiles(quantile)
    source = open_data(data, format, header)
    where = engine_for(source, memory, engine)
    with reserve(out, None if dry_run else ledger) as place:
        around: Any = {"engine": where, "table": table, "ledger": ledger, "note": note}
        if dry_run:
            kind: Any = job.function.rsplit(".")[-1]
            show_preview(preview(source, job=kind, **around, **arguments), ledger, as_json=as_json)
            return
        module, function = job.function.split(".")
        run = getattr(import_module(f"dpsieve.jobs.{module}"), function)
        with show_progress(quiet=as_json) as progress:
            publication = run(source, progress=progress, **around, **arguments)
        answers = None if quantiles is None else _answers(quantiles, publication)
        finish(publication, place, top=top, as_json=as_json, answers=answers, ledger=ledger)


def _check_quantiles(text: str) -> list[float]:
    from dpsieve import validate

    quantiles = parse_numbers("quantile", text, "0.25,0.5,0.75")
    for quantile in quantiles:
        validate.between("quantile", quantile, 0.0, 1.0, hint="Pass shares such as quantile=0.5.")
    return quantiles


def _answers(quantiles: list[float], distribution: Any) -> "pa.Table":
    """Return the quantiles that were asked for, with their intervals."""
    import pyarrow as pa

    if not distribution.total.low:
        why = "no client had a number within --bounds, or too few for any range to be found"
        typer.echo(f"warning: the quantiles mean nothing: {why}. Is --column a column of numbers?", err=True)
    found = distribution.quantile(quantiles)
    return pa.table({"quantile": quantiles, "value": found.value, "low": found.low, "high": found.high})
