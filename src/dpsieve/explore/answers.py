"""What a view asks and shows, in parts that explore.js draws."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpsieve.explore.inputs import Input, of
from dpsieve.explore.planning import EPSILONS, Reach
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import Request

if TYPE_CHECKING:
    from dpsieve.explore.saved import Files

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a view shows.

    Attributes:
        headline: the answer in one sentence.
        python, command: what gives the same in Python and on the command line.
        tiles: the main numbers: name, value, and what it compares with.
        facts: rows of a small table, the first one its head.
        plots: what `linePlot` of parts.js draws.
        table: of a publication or a ledger, sortable.
        parts, not_covered: of a certificate.
        notes: what else to know.
        ahead: what sliders may ask for next.
    """

    headline: str
    python: str
    command: str
    tiles: list[tuple[str, str, str]] = field(default_factory=list)
    facts: list[list[str]] = field(default_factory=list)
    plots: list[Json] = field(default_factory=list)
    table: Json | None = None
    parts: list[Json] = field(default_factory=list)
    not_covered: str = ""
    notes: list[str] = field(default_factory=list)
    ahead: list[Callable[[], object]] = field(default_factory=list)


@dataclass(frozen=True)
class View:
    """A view: its title, what it is for, its inputs, and its answer to their values."""

    title: str
    intro: str
    inputs: Callable[["Files"], list[Input]]
    answer: Callable[["Files", Json], Answer]


def texts(numbers: tuple[float, ...]) -> tuple[str, ...]:
    """Return the stops of a slider as they are typed."""
    return tuple(f"{number:g}" for number in numbers)


def budget_inputs(request: type[Request], **more: Any) -> list[Input]:
    """Return the inputs of epsilon and delta."""
    deltas = texts(tuple(10.0**power for power in range(-12, -3)))
    return [
        of(request, "epsilon", "number", "1", stops=texts(EPSILONS), **more),
        of(request, "delta", "number", "1e-08", stops=deltas, **more),
    ]


def line_of(name: str, curve: tuple[Any, Any]) -> Json:
    """Return one line of a plot."""
    return {"name": name, "x": curve[0].tolist(), "y": curve[1].tolist()}


def curves_of(named: list[tuple[str, Reach]], what: Callable[[Reach, Any], tuple[Any, Any]]) -> list[Json]:
    """Return the curves of mechanisms, each drawn as far as the farthest."""
    end = max(int(what(one, None)[0][-1]) for _, one in named)
    return [line_of(name, what(one, end)) for name, one in named]


def plot_of(title: str, x: str, y: str, lines: list[Json], **more: Any) -> Json:
    """Return a plot, with what `linePlot` of parts.js knows besides."""
    return {"title": title, "xName": x, "xWord": x[:1].upper() + x[1:], "yName": y, "lines": lines, **more}


def side_by_side(*columns: tuple[str, Preview]) -> list[list[str]]:
    """Return the lines of previews side by side."""
    found = [dict(preview.lines()) for _, preview in columns]
    names = list(dict.fromkeys(name for lines in found for name in lines))
    return [
        ["", *(name for name, _ in columns)],
        *([name, *(lines.get(name, "") for lines in found)] for name in names),
    ]
