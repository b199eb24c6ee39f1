"""Units with several keys: what 'report first, then count' gains over Gaussian noise and a threshold.

    DPSIEVE_DATA=folder .venv/bin/python experiments/many_keys.py [word of a name ...]

First, from public numbers alone: the frequency that is reported with an even chance and with 99 %, the deviation of a
count and `first`. Then, on real sets (see discovery_data.py; delta is 1e-8): units keep 10 or 50 of their keys and are
counted once, and the counts go through each mechanism 20 times. Means have standard errors of these 20 draws. The error
of a count is its distance from the bounded count: over the keys that are released (nan where none is), and over all
keys, where one that is not released counts as zero.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from discovery_data import MORE, Row, chosen, load, row_of
from experiment import Plot
from picture import draw
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.engines import DuckDB
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.errors import InvalidValue
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.jobs.request import Method, ReleaseRequest
from dpsieve.privacy.guarantee import Contribution
from dpsieve.privacy.mechanism import Counting
from dpsieve.publication.release import draw_release

FIGURES = Path(__file__).parent / "figures"
EPSILONS, KEYS, DELTA, DRAWS = (0.3, 1.0, 3.0), (10, 50), 1e-8, 20
UNITS = (2, 3, 5, 10, 30, 100, 1000)  # keys a unit, in the table from public numbers
GAUSSIAN, FOR_KEYS, FOR_COUNTS = "Gaussian threshold", "report then count, goal keys", "report then count, goal counts"

Numbers = tuple[float, float, float]


def chosen_by(method: Method, epsilon: float, delta: float, keys: int) -> Counting:
    """Return the mechanism for units of this many keys."""
    request = ReleaseRequest(
        key=("key",), privacy_unit=("unit",), epsilon=epsilon, delta=delta, max_keys_per_unit=keys, method=method
    )
    return choose_mechanism(request, request.contribution).mechanism


def mechanisms(epsilon: float, keys: int) -> dict[str, Counting]:
    """Return what is compared on data."""
    plans: dict[str, Method] = {"optimal, divided": "optimal", GAUSSIAN: "gaussian", FOR_COUNTS: "report_then_count"}
    made = {label: chosen_by(name, epsilon, DELTA, keys) for label, name in plans.items()}
    return {**made, FOR_KEYS: ds.channels.report_then_count(epsilon, DELTA, keys, goal="keys")}


def frequency(channel: ReportedCounts, probability: float) -> float:
    """Return the frequency that is reported with a probability, between whole numbers by a straight line."""
    above = frequency_at(channel, probability)
    assert above is not None
    before, after = channel.reporting_probability([max(1, above - 1), above])
    return above - float((after - probability) / (after - before)) if after > before else above


def summary(channel: ReportedCounts) -> Numbers:
    """Return the frequency of an even chance, that of 99 %, and the deviation of a count."""
    return frequency(channel, 0.5), frequency(channel, 0.99), float(getattr(channel, "sigma", 0.0))


def written(numbers: Numbers, first: int | None = None) -> str:
    """Return numbers in one cell."""
    half, surely, deviation = numbers
    return f"{half:.1f} / {surely:.0f} / {deviation:.1f}" + ("" if first is None else f" ({first:,})")


def public_numbers(console: Console) -> None:
    """Print what public numbers tell."""
    table = Table(title="frequency of an even chance / of 99 % / deviation of a count (first)")
    for name in ("epsilon, delta, keys a unit", "optimal", GAUSSIAN, FOR_KEYS, FOR_COUNTS):
        table.add_column(name, justify="right")
    for epsilon, delta, keys in ((e, d, m) for e in EPSILONS for d in (1e-8, 1e-5) for m in UNITS):
        cells = [f"{epsilon:g}, {delta:g}, {keys:,}", _optimal(epsilon, delta, keys)]
        cells.append(written(summary(ds.channels.gaussian(epsilon, delta, keys))))
        for goal in ("keys", "counts"):
            channel = ds.channels.report_then_count(epsilon, delta, keys, goal=goal)
            cells.append(written(summary(channel), channel.first))
        table.add_row(*cells)
    console.print(table)


def _optimal(epsilon: float, delta: float, keys: int) -> str:
    try:
        each = chosen_by("optimal", epsilon, delta, keys).last
    except InvalidValue:  # too little is left for each key
        return ""
    assert isinstance(each, ReportedCounts)
    return f"{frequency(each, 0.5):.1f} / {frequency(each, 0.99):.0f}"


def counted(held: Pairs, keys: int) -> Counted:
    """Bound units and count, as a release does."""
    units = np.repeat(np.arange(len(held.sizes)), held.sizes)
    pairs = pa.table({"unit": units, "key": held.keys.column(0).combine_chunks().take(pa.array(held.key_numbers))})
    salt = int(np.random.default_rng().integers(2**62))
    return DuckDB().aggregate(pairs, Aggregation(Columns(("key",), ("unit",)), Contribution(keys), salt=salt))


def trial(mechanism: Counting, data: Counted, order: np.ndarray) -> tuple[float, float, float]:
    """Return the keys that one draw releases, the error of their counts, and the error over all keys."""
    table = draw_release(mechanism, data.keys, data.frequencies).table
    if not len(table):
        return 0.0, float("nan"), float(data.frequencies.mean())
    names = data.keys.column(0).to_numpy(zero_copy_only=False)[order]
    released = table.column("key").to_numpy(zero_copy_only=False)
    true = data.frequencies[order][np.searchsorted(names, released)]
    errors = np.abs(table.column("count").to_numpy() - true)
    withheld = data.frequencies.sum() - true.sum()
    return len(released), float(errors.mean()), float((errors.sum() + withheld) / len(names))


def on_data(names: Iterable[str]) -> dict[str, list[Row]]:
    """Print and return, for each set, keys a user and epsilon, what each mechanism releases."""
    measures = "keys released", "error of released counts", "error over all keys"
    rows: dict[str, list[Row]] = {f"{measure}, {keys} keys a user": [] for keys in KEYS for measure in measures}
    for name in names:
        held = load(name)
        for keys in KEYS:
            data = counted(held, keys)
            order = np.argsort(data.keys.column(0).to_numpy(zero_copy_only=False))
            for epsilon in EPSILONS:
                for label, mechanism in mechanisms(epsilon, keys).items():
                    drawn = zip(*(trial(mechanism, data, order) for _ in range(DRAWS)), strict=True)
                    for measure, values in zip(measures, drawn, strict=True):
                        row = row_of(name, label, "epsilon", epsilon, values)
                        rows[f"{measure}, {keys} keys a user"].append(row)
        for title, found in rows.items():
            digits = ",.0f" if title.startswith("keys released") else ".2f"
            show(title, [row for row in found if row["data"] == name], "epsilon", digits)
    return rows


def show(title: str, rows: Sequence[Row], value: str, digits: str = ".3f") -> None:
    """Print a table for each set: a line for each mechanism, a column for each value."""
    for data in dict.fromkeys(row["data"] for row in rows):
        here = [row for row in rows if row["data"] == data]
        places = list(dict.fromkeys(row[value] for row in here))
        table = Table(title=f"{data}: {title}")
        table.add_column(value)
        for place in places:
            table.add_column(f"{place:g}", justify="right")
        for mechanism in dict.fromkeys(row["mechanism"] for row in here):
            cells = {row[value]: row for row in here if row["mechanism"] == mechanism}
            shown = [
                f"{cells[p]['mean']:{digits}} ± {cells[p]['error']:{digits}}" if p in cells else "" for p in places
            ]
            table.add_row(str(mechanism), *shown)
        Console(width=140).print(table)


def verdicts(rows: list[Row], console: Console) -> None:
    """Print how many more keys come out at ten keys a user and epsilon 1."""
    means = {(row["data"], row["mechanism"]): float(row["mean"]) for row in rows if row["epsilon"] == 1.0}
    for name in dict.fromkeys(row["data"] for row in rows):
        more = {goal: means[name, goal] / means[name, GAUSSIAN] - 1 for goal in (FOR_COUNTS, FOR_KEYS)}
        asked = f"; at least 15 % more: {'yes' if min(more.values()) >= 0.15 else 'NO'}" if name in MORE[:2] else ""
        shown = ", ".join(f"{100 * share:+.1f} % ({goal})" for goal, share in more.items())
        console.print(f"{name}: keys at ten keys a user, epsilon 1, against the Gaussian threshold: {shown}{asked}")


def main() -> None:
    """Print both, and plot the second."""
    console = Console(width=170)
    public_numbers(console)
    rows = on_data(chosen([*MORE, "Amazon Magazine"]))
    verdicts(rows[f"keys released, {KEYS[0]} keys a user"], console)
    for title, found in rows.items():
        name = "many_keys_" + title.replace(",", "").replace(" ", "_")
        if "of released" not in title:  # which compares different keys
            plot = Plot(f"{title}, delta 1e-8", "epsilon", "mean", ("mechanism",), ("data",), "x", bars="error")
            FIGURES.mkdir(exist_ok=True)
            (FIGURES / f"{name}.svg").write_text(draw(plot, found))


if __name__ == "__main__":
    main()
