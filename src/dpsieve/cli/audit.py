"""`dpsieve audit JOB`: audit a job of the library on neighbouring inputs that the audit makes up."""

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsieve.cli.command import Command, Group
from dpsieve.cli.jobs import COLLECTIONS, JOBS, Job
from dpsieve.cli.options import AsJson, parse_values, request_parameters, with_parameters
from dpsieve.display import json_text

if TYPE_CHECKING:
    from dpsieve.auditing.audit import Audit

_HELP = (
    "Audit a job: run it on made-up neighbouring inputs and look for outputs that contradict its guarantee. "
    "Exit code 1 if one is found."
)
_DATA = ("key", "column", "privacy_unit", "where", "allow_null_units", "known_keys", "key_expression")
_EXAMPLES = {
    "release": "--max-keys-per-unit 1 --sum price:0:200",
    "discover": "--max-keys-per-unit 1",
    "top-k": "--k 20 --runs 100",
    "hitting-set": "--k 20 --runs 100",
    "sum": "--bounds 0,10 --max-rows-per-unit 2",
    "mean": "--bounds 0,10",
    "quantile": "--quantile 0.5 --bounds 0,10 --max-rows-per-unit 2",
    "collect heavy-hitters": "--max-length 3",
    "collect quantiles": "--bounds 0,10",
}
Runs = Annotated[int, typer.Option(help="Calls on each input; each takes about 20 ms.", min=24)]
Canaries = Annotated[int, typer.Option(help="Made-up units in the audit of one run.", min=10, max=100_000)]
Confidence = Annotated[float, typer.Option(help="Confidence of the verdict, over all audits of the command.")]

app = typer.Typer(cls=Group, help=_HELP, no_args_is_help=True)


def _command(name: str, job: Job) -> Callable[..., None]:
    """Return the command that audits a job, with the options of its request except those about the user's data."""

    def command(*, runs: int, canaries: int, confidence: float, as_json: bool, **values: Any) -> None:
        asked = parse_values(job.request, {**values, "privacy_unit": None}).items()
        arguments = {name: value for name, value in asked if name not in _DATA and value is not None}
        _run(re.sub("[- ]", "_", name), arguments, runs, canaries, confidence, as_json=as_json)

    budget = "--epsilon 1" if name in ("sum", "quantile") else "--epsilon 1 --delta 0.01"
    example = f"dpsieve audit {name} {budget} {_EXAMPLES.get(name, '')}".rstrip()
    command.__doc__ = (
        f"Audit dpsieve {name} with these options, on inputs that the audit makes up.\n\n"
        f"Use a large delta: few runs show nothing about a small one.\n\nExample: {example}"
    )
    options = [option for option in request_parameters(job.request) if option.name not in _DATA]
    return with_parameters(command, [*options, *_own_options()])


def _own_options() -> list[inspect.Parameter]:
    keyword = inspect.Parameter.KEYWORD_ONLY
    kinds = {
        "runs": (Runs, 300),
        "canaries": (Canaries, 1000),
        "confidence": (Confidence, 0.999),
        "as_json": (AsJson, False),
    }
    return [inspect.Parameter(name, keyword, default=d, annotation=a) for name, (a, d) in kinds.items()]


def stream(
    epsilon: Annotated[float, typer.Option(help="Epsilon of the budget.")],
    delta: Annotated[float, typer.Option(help="Delta of the budget.")],
    counters: Annotated[int, typer.Option(help="The number of counters of the sketch.", min=4)] = 256,
    runs: Runs = 1000,
    canaries: Canaries = 1000,
    confidence: Confidence = 0.999,
    as_json: AsJson = False,
) -> None:
    """Audit dpsieve stream: the sketch of a stream whose items are protected.

    Example: dpsieve audit stream --epsilon 1 --delta 0.01
    """
    arguments = {"epsilon": epsilon, "delta": delta, "counters": counters}
    _run("MisraGries", arguments, runs, canaries, confidence, as_json=as_json)


def _run(name: str, arguments: dict[str, Any], runs: int, canaries: int, confidence: float, *, as_json: bool) -> None:
    """Audit a job, show the results, and exit with 1 if any audit failed."""
    from rich.console import Console

    from dpsieve import validate
    from dpsieve.auditing.audit import audit
    from dpsieve.cli.output import show_progress

    hint = "Pass a share such as confidence=0.999."
    confidence = validate.between("confidence", confidence, 0.5, 1 - 1e-12, hint=hint)
    with show_progress(quiet=as_json) as progress:
        budget = {name: arguments.pop(name) for name in ("epsilon", "delta") if name in arguments}
        results = audit(
            name, arguments=arguments, runs=runs, canaries=canaries, level=confidence, progress=progress, **budget
        )
    if as_json:
        typer.echo(json_text({title: result.to_json() for title, result in results.items()}))
    else:
        _show(results, Console(highlight=False))
    if not all(result.passed for result in results.values()):
        raise typer.Exit(1)


def _show(results: "dict[str, Audit]", console: Any) -> None:
    from rich.markup import escape
    from rich.table import Table

    rows = Table("inputs", "kind", "verdict", "epsilon at least", "would detect", "what was seen")
    for title, result in results.items():
        bounds = ["", ""] if result.lower is None else [f"{result.lower:.3g}", f"{result.detectable:.3g}"]
        verdict = "passed" if result.passed else "failed"
        seen = result.event or "no difference"
        rows.add_row(title, result.kind, verdict, *bounds, escape(seen))
    console.print(rows)
    failed = [title for title, result in results.items() if not result.passed]
    level = next(iter(results.values())).level
    if failed:
        console.print(f"The guarantee is contradicted on: {', '.join(failed)}.", soft_wrap=True)
    else:
        console.print(f"No output contradicts the guarantee, at a confidence of {level:.6g} each.", soft_wrap=True)


for _name, _job in JOBS.items():
    app.command(_name, cls=Command)(_command(_name, _job))
app.command("stream", cls=Command)(stream)
_collect = typer.Typer(cls=Group, help="Audit a collection from clients.", no_args_is_help=True)
for _name, _job in COLLECTIONS.items():
    _collect.command(_name, cls=Command)(_command(f"collect {_name}", _job))
app.add_typer(_collect, name="collect")
