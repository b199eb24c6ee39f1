"""What the figures on private weighted sampling share: the data, the channels, tables of verdicts, pictures.

Cohen, Geri, Sarlos and Stemmer, 'Differentially Private Weighted Sampling', in two versions: the first (arXiv, 2020)
and the published one (AISTATS 2021). Their figures 1 to 6 show the same; where text or captions differ, a verdict says
which version it is about. Everything here is an exact sum over the rows of a channel: nothing is drawn.

PWS of the papers is `simple` (Algorithm 4) and `optimal` (Algorithm 5, in the published version alone); both report a
key equally often. SbH is `stability`, with the papers' threshold and with the fair one, which uses all of delta.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.channels.channel import ReportedCounts
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Ints

Row = dict[str, float]

RESULTS = Path(__file__).parent / "results"
EPSILONS, DELTA = (1.0, 0.5, 0.25, 0.1), 2.0**-20  # of figures 3, 5 and 6


@dataclass(frozen=True)
class Style:
    """How the line of a column is drawn."""

    label: str
    colour: str
    dash: tuple[int, int] = (1, 0)
    width: float = 2.0


STYLES = {  # where lines coincide, the later one shows the earlier one beside or below it
    "not_private": Style("sample, not private", "#bcd8c4", width=5),
    "optimal": Style("optimal", "#1b6ca8", width=3),
    "simple": Style("simple", "#4fc3d4", (3, 4), 1.7),
    "both": Style("optimal, simple", "#1b6ca8"),
    "sbh": Style("SbH, paper's threshold", "#d1495b", (6, 2)),
    "sbh_fair": Style("SbH, fair threshold", "#edae49", (2, 2)),
    "1": Style("no sampling", "#08306b"),
    "0.01": Style("rate 0.01", "#2879b9"),
    "1e-4": Style("rate 1e-4", "#73b2d8"),
    "1e-6": Style("rate 1e-6", "#b4d3e9"),
}


@dataclass(frozen=True)
class Verdict:
    """What a paper says, what was computed, and whether that agrees."""

    about: str
    claim: str
    found: str
    verdict: str


@dataclass(frozen=True)
class Figure:
    """A figure: its numbers, a picture under each name, and what they say about the papers."""

    name: str
    rows: Sequence[Row]
    pictures: Mapping[str, alt.TopLevelMixin]
    verdicts: Sequence[Verdict]


def zipf(n: int, alpha: float) -> tuple[Ints, Ints]:
    """Return the frequencies floor((n/i)^alpha), i = 1, ..., n, and how many keys have each."""
    frequencies = np.floor((n / np.arange(1, n + 1)) ** alpha).astype(np.int64)
    distinct, counts = np.unique(frequencies, return_counts=True)
    return distinct, counts.astype(np.int64)


def channels(epsilon: float, delta: float, scheme: Scheme | None = None) -> dict[str, ReportedCounts]:
    """Return the channels that figures compare."""
    return {
        "optimal": ds.channels.optimal(epsilon, delta, scheme),
        "simple": ds.channels.simple(epsilon, delta, scheme),
        "sbh": _stability(epsilon, delta, scheme, threshold="paper"),
        "sbh_fair": _stability(epsilon, delta, scheme),
    }


def _stability(epsilon: float, delta: float, scheme: Scheme | None, **options: Any) -> ReportedCounts:
    if scheme is None:
        return ds.channels.stability(epsilon, delta, **options)
    return sampled_stability(epsilon, delta, scheme, **options)


def threshold(epsilon: float, delta: float) -> float:
    """Return the papers' threshold of SbH."""
    return 1 + math.log(1 / delta) / epsilon


def short(number: float) -> str:
    """Return a number in few letters: 0.01, 1.8e-4, 1e-6."""
    return f"{number:.2g}" if number >= 0.001 else f"{number:.1e}".replace("e-0", "e-").replace(".0e", "e")


def spaced(last: float, points: int) -> Ints:
    """Return whole numbers from 1 to the last, equally far apart on a logarithmic axis."""
    return np.unique(np.rint(np.geomspace(1, last, points)).astype(np.int64))


def table(fixed: Row, i: Ints, found: Mapping[str, Floats]) -> list[Row]:
    """Return a row for each frequency: what is fixed, the frequency, and what was found for each channel."""
    return [
        {**fixed, "frequency": float(w), **{name: float(values[k]) for name, values in found.items()}}
        for k, w in enumerate(i)
    ]


def settles(values: Floats, level: float) -> int:
    """Return the first frequency from which on values of the frequencies 1, 2, ... stay within the level."""
    above = np.flatnonzero(np.abs(values) > level)
    return int(above[-1]) + 2 if len(above) else 1


def column(rows: Iterable[Row], name: str) -> Floats:
    """Return one column of a table."""
    return np.array([row[name] for row in rows])


def between(values: NDArray[np.floating] | Sequence[float], digits: str = ".2f") -> str:
    """Return the smallest and the largest value in words."""
    return f"{min(values):{digits}} to {max(values):{digits}}"


@dataclass(frozen=True)
class Axis:
    """An axis of a picture: a column, its title, and the ends; a logarithmic one has few lines."""

    column: str
    title: str
    low: float
    high: float
    log: bool = False

    def options(self) -> dict[str, Any]:
        """Return what Altair is to know."""
        scale = alt.Scale(type="log" if self.log else "linear", domain=[self.low, self.high])
        first, last = (math.log10(end) for end in (self.low, self.high)) if self.log else (0.0, 0.0)
        step = 0.5 if last - first <= 2.5 else 1.0 if last - first <= 4 else 2.0
        places = np.arange(math.ceil(last), first - 1e-9, -step)
        powers = [float(f"{10**place:.0e}") for place in places if place <= last]
        label = "format(datum.value, datum.value < 0.01 || datum.value >= 1e5 ? '.0e' : '~g')"
        ticks = {"values": powers, "labelExpr": label} if self.log else {"tickCount": 5}
        return {"title": self.title, "scale": scale, "axis": alt.Axis(titleFontWeight="normal", **ticks)}


def lines(
    rows: Iterable[Row], x: Axis, y: Axis, columns: Sequence[str], size: tuple[int, int], title: str
) -> alt.Chart:
    """Plot columns of a table against x, a line for each; zeros are left out of a logarithmic axis."""
    styles = [STYLES[name] for name in columns]
    long = [
        {x.column: row[x.column], "line": STYLES[name].label, y.column: row[name]}
        for name in columns
        for row in rows
        if row[name] > 0 or not y.log
    ]
    names, legend = [style.label for style in styles], alt.Legend(orient="top", labelLimit=0, symbolStrokeWidth=2)
    colours = alt.Scale(type="ordinal", domain=names, range=[style.colour for style in styles])
    dashes = alt.Scale(type="ordinal", domain=names, range=[style.dash for style in styles])
    widths = alt.Scale(type="ordinal", domain=names, range=[style.width for style in styles])
    chart: alt.Chart = alt.Chart(pa.Table.from_pylist(long), width=size[0], height=size[1], title=title)
    drawn: alt.Chart = chart.mark_line(clip=True).encode(
        alt.X(f"{x.column}:Q", **x.options()),
        alt.Y(f"{y.column}:Q", **y.options()),
        alt.Color("line:N", scale=colours, title=None, legend=legend),
        alt.StrokeDash("line:N", scale=dashes, title=None, legend=legend),
        alt.StrokeWidth("line:N", scale=widths, legend=None),
    )
    return drawn


def grid(panels: Sequence[alt.Chart], columns: int) -> alt.ConcatChart:
    """Return panels side by side, with one legend, and titles of axes at the left and at the bottom alone."""
    for place, panel in enumerate(panels):
        if place % columns:
            panel.encoding.y.title = None
        if place < len(panels) - columns:
            panel.encoding.x.title = None
    chart: alt.ConcatChart = alt.concat(*panels, columns=columns).configure_title(fontSize=12, fontWeight="normal")
    return chart


def said(holds: bool | np.bool_) -> str:
    """Return the verdict on a claim."""
    return "holds" if holds else "does not hold"


def publish(name: str, figures: Sequence[Figure]) -> None:
    """Write numbers and pictures to experiments/results, and print the verdicts."""
    RESULTS.mkdir(exist_ok=True)
    verdicts = [verdict for figure in figures for verdict in figure.verdicts]
    for figure in figures:
        if figure.rows:
            _write(figure.name, list(figure.rows[0]), [[f"{x:.6g}" for x in row.values()] for row in figure.rows])
        for picture, chart in figure.pictures.items():
            _draw(chart, RESULTS / f"{picture}.svg")
    table = Table(title="What the papers say, and what was computed", show_lines=True)
    fields = ("about", "claim", "found", "verdict")
    for field in fields:
        table.add_column(field)
    cells = [[getattr(verdict, field) for field in fields] for verdict in verdicts]
    for line in cells:
        table.add_row(*line)
    Console(width=150).print(table)
    _write(f"verdicts_{name}", list(fields), cells)


def _draw(chart: alt.TopLevelMixin, path: Path) -> None:
    """Save a picture without attributes that change nothing, with coordinates to a tenth of a pixel: half the size."""
    text = io.StringIO()
    chart.save(text, format="svg")
    small = re.sub(r' (?:aria-\w+|class|role|pointer-events|opacity)="[^"]*"', "", text.getvalue())
    small = re.sub(r'<path d="(?:M0,0h0v0h0Z)?"[^>]*/>', "", small)
    long = re.compile(r"\d+\.\d{2,}")
    rounded = re.sub(r' (?:d|transform)="[^"]*"', lambda one: long.sub(lambda n: f"{float(n[0]):.1f}", one[0]), small)
    path.write_text(rounded + "\n")
    print(path)


def _write(name: str, header: list[str], lines: list[list[str]]) -> None:
    with (RESULTS / f"{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
