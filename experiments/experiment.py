"""What an experiment is: a function that returns rows of numbers, and a function that judges a paper's claims by them.

Numbers are written first, to results/NAME.csv. Verdicts and pictures are computed from that file alone, so that anyone
can compute them again from the stored numbers, and a failing picture loses nothing.
"""

import csv
import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dpsieve.randomness.source import resolve
from dpsieve.testing import insecure_source
from dpsieve.types import Floats

Row = dict[str, Any]
Outcome = Literal["same", "better", "differs"]

RESULTS = Path(__file__).parent / "results"
PAPERS = {
    "weighted sampling": "Cohen, Geri, Sarlos and Stemmer, 'Differentially Private Weighted Sampling' (2020, 2021)",
    "sample-and-threshold": "Bharadwaj and Cormode, 'Sample-and-threshold differential privacy' (2022)",
    "thesis": "Lebeda, 'Differentially Private Release of Sparse and Skewed Data' (thesis, 2023), chapters 2 to 5",
    "missing mass": "Dick, Joseph and Raman, 'Missing Mass for Differentially Private Domain Discovery' (2026)",
}


@dataclass(frozen=True)
class Verdict:
    """A claim of a paper, what the numbers say about it, and why they differ where they do."""

    claim: str
    found: str
    verdict: Outcome
    reason: str = ""


def judge_claim(claim: str, found: str, holds: object, reason: str = "", *, better: object = False) -> Verdict:
    """Return 'better' or 'same' if the claim holds, else 'differs' with the reason."""
    if holds:
        return Verdict(claim, found, "better" if better else "same")
    return Verdict(claim, found, "differs", reason)


@dataclass(frozen=True)
class Plot:
    """A picture of the rows: a panel per combination of `panels`, and a line per column of `y` and value of `lines`.

    Attributes:
        title: the title of the whole picture.
        x: the column of the horizontal axis.
        y: one column, or several with a line each.
        lines: columns whose values name the lines of a single column `y`.
        panels: columns whose values name the panels.
        log: the logarithmic axes: "", "x", "y" or "xy".
        where: columns and the values that are shown; a tuple has several.
        name: what follows the name of the experiment in the name of the file.
        bars: a column with the standard error of y.
        scatter: draw points without lines.
        columns: panels per line.
    """

    title: str
    x: str
    y: str | tuple[str, ...]
    lines: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    log: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    bars: str = ""
    scatter: bool = False
    columns: int = 3

    def selects(self, row: Row) -> bool:
        """Return whether a row is shown."""
        return all(row[key] in value if isinstance(value, tuple) else row[key] == value
                   for key, value in self.where.items())  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    """A figure, a table or a statement of a paper.

    Attributes:
        name: the name of the command line and of the files in results/.
        paper: a key of `PAPERS`.
        figure: what of the paper is shown, such as "Figures 4 and 5".
        about: one line on setting and data.
        seconds: of a processor, roughly; the longest start first.
        run: compute the rows; with True, at a small size that takes a fraction of a second.
        judge: return verdicts on the rows.
        plots: what is drawn of the rows.
    """

    name: str
    paper: str
    figure: str
    about: str
    seconds: int
    run: Callable[[bool], list[Row]]
    judge: Callable[[list[Row]], list[Verdict]]
    plots: tuple[Plot, ...] = ()

    def picture(self, plot: Plot) -> Path:
        """Return the file of a picture."""
        return RESULTS / f"{self.name}{plot.name and '_'}{plot.name}.svg"

    @property
    def numbers(self) -> Path:
        """The file of the numbers."""
        return RESULTS / f"{self.name}.csv"


def run_experiment(experiment: Experiment) -> float:
    """Run an experiment, write its numbers and its pictures, and return its seconds of a processor."""
    begin = time.process_time()
    with repeatable(experiment.name):
        rows = experiment.run(False)
    seconds = time.process_time() - begin
    write_rows(experiment.numbers, rows)
    draw_pictures(experiment)
    return seconds


@contextmanager
def repeatable(name: str) -> Iterator[None]:
    """Seed all randomness of this process by the name of an experiment, in the block alone, whatever ran before.

    So a run writes the stored numbers again, and what has changed in a file was changed by the code or the data.
    """
    digest = hashlib.sha256(name.encode()).digest()
    state = np.random.default_rng(list(digest)).bit_generator.state
    for module in list(sys.modules.values()):
        rng = getattr(module, "__dict__", {}).get("RNG")
        if isinstance(rng, np.random.Generator):
            rng.bit_generator.state = state
    system = resolve(None)
    vars(system)["words"] = insecure_source(int.from_bytes(digest)).words
    try:
        yield
    finally:
        del vars(system)["words"]


def draw_pictures(experiment: Experiment) -> None:
    """Draw the pictures of stored numbers."""
    from picture import draw  # numbers are written before anything of pictures is loaded

    for plot in experiment.plots:
        experiment.picture(plot).write_text(draw(plot, read_rows(experiment.numbers)) + "\n")


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV, with six significant digits."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        out.writeheader()
        out.writerows({key: _shorten(value) for key, value in row.items()} for row in rows)


def _shorten(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else int(value) if isinstance(value, (bool, np.bool_)) else value


def read_rows(path: Path) -> list[Row]:
    """Read rows, with numbers as numbers."""
    with path.open(newline="") as file:
        return [{key: _parse(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _parse(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def read_verdicts() -> dict[str, list[Verdict]]:
    """Read the stored verdicts of each experiment."""
    verdicts: dict[str, list[Verdict]] = {}
    path = RESULTS / "verdicts.csv"
    rows: Iterable[Row] = csv.DictReader(path.read_text().splitlines()) if path.exists() else ()
    for row in rows:
        verdicts.setdefault(row.pop("experiment"), []).append(Verdict(**row))
    return verdicts


def write_verdicts(experiments: Iterable[Experiment]) -> None:
    """Judge all stored numbers anew, and store the verdicts."""
    rows = [
        {"experiment": experiment.name, **asdict(verdict)}
        for experiment in experiments
        if experiment.numbers.exists()
        for verdict in experiment.judge(read_rows(experiment.numbers))
    ]
    write_rows(RESULTS / "verdicts.csv", rows)


def read_runs() -> dict[str, Row]:
    """Read what is known of each stored run: its data, its seconds and its version."""
    path = RESULTS / "runs.csv"
    return {row["experiment"]: row for row in read_rows(path)} if path.exists() else {}


# What judges share.


def column(rows: Iterable[Row], name: str) -> Floats:
    """Return a column of rows."""
    return np.array([float(row[name]) for row in rows])


def pick(rows: Iterable[Row], **where: Any) -> list[Row]:
    """Return the rows with these values; of floats, nearly."""
    return [row for row in rows if all(_equal(row[key], value) for key, value in where.items())]


def _equal(one: Any, other: Any) -> bool:
    numeric = isinstance(one, (int, float)) and isinstance(other, (int, float))
    return bool(abs(one - other) <= 1e-5 * abs(other)) if numeric else bool(one == other)


def group(rows: Iterable[Row], *names: str) -> Iterator[tuple[tuple[Any, ...], list[Row]]]:
    """Return rows by the values of columns, in the order of their first row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    yield from groups.items()


def between(values: Iterable[float], digits: str = ".2f") -> str:
    """Return the smallest and the largest value in words."""
    numbers = list(values)
    return f"{min(numbers):{digits}} to {max(numbers):{digits}}"


def of_data(rows: Iterable[Row]) -> str:
    """Return the data sets of rows in words."""
    return ", ".join(dict.fromkeys(str(row["data"]) for row in rows if row.get("data"))) or "none"
