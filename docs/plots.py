"""Draw the plots of these pages from the channels themselves: `make docs` writes docs/img anew."""

from collections.abc import Callable, Mapping
from pathlib import Path

import altair as alt
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dpsieve as ds
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.papers.weighted_sampling import sampled_stability

FOLDER = Path(__file__).parent / "img"
COLOURS = ["#1b6ca8", "#d1495b", "#edae49", "#66a182", "#2e4057", "#8d6a9f"]


Reporting = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def reporting(lines: Mapping[str, Reporting], last: int, title: str) -> alt.Chart:
    """Plot the probability of being reported against the true frequency, a line for each channel."""
    frequencies = np.arange(1, last + 1)
    rows = [
        pa.table({"frequency": frequencies, "reported": line(frequencies), "channel": [name] * last})
        for name, line in lines.items()
    ]
    return (
        alt.Chart(pa.concat_tables(rows), title=title, width=520, height=260)
        .mark_line(strokeWidth=2)
        .encode(
            alt.X("frequency:Q", title="true frequency (units that hold the key)"),
            alt.Y("reported:Q", title="probability of being reported", scale=alt.Scale(domain=[0, 1])),
            alt.Color("channel:N", sort=list(lines), scale=alt.Scale(range=COLOURS), title=None),
            alt.StrokeDash("channel:N", sort=list(lines), legend=None),
        )
    )


def row_shapes(frequency: int, last: float) -> alt.Chart:
    """Plot where the token of one frequency falls, for the optimal and the simple channel."""
    rows = []
    for name, channel in {"optimal": ds.channels.optimal(0.5, 0.01), "simple": ds.channels.simple(0.5, 0.01)}.items():
        row = channel.row(frequency)
        left, right = row.left / channel.resolution, row.right / channel.resolution
        rows += [
            {"from": a, "to": b, "density": m / (b - a), "channel": name}
            for a, b, m in zip(left.tolist(), right.tolist(), row.mass.tolist(), strict=True)
            if b - a > 1e-4
        ]
    title = f"The token of a key of frequency {frequency} (epsilon 0.5, delta 0.01)"
    return (
        alt.Chart(pa.Table.from_pylist(rows), title=title, width=520, height=180)
        .mark_rect(opacity=0.55)
        .encode(
            alt.X("from:Q", title="token", scale=alt.Scale(domain=[0, last])),
            alt.X2("to:Q"),
            alt.Y("density:Q", title="density"),
            alt.Color("channel:N", scale=alt.Scale(range=COLOURS), title=None),
        )
    )


def main() -> None:
    """Write every plot."""
    ch = ds.channels
    usual = {
        "optimal, simple": ch.optimal(1.0, 1e-8).reporting_probability,
        "truncated geometric": ch.truncated_geometric(1.0, 1e-8).reporting_probability,
        "stability": ch.stability(1.0, 1e-8).reporting_probability,
        "stability, paper's threshold": ch.stability(1.0, 1e-8, threshold="paper").reporting_probability,
    }
    small = {
        "optimal, simple": ch.optimal(0.1, 0.01).reporting_probability,
        "truncated geometric": ch.truncated_geometric(0.1, 0.01).reporting_probability,
        "stability": ch.stability(0.1, 0.01).reporting_probability,
        "stability, paper's threshold": ch.stability(0.1, 0.01, threshold="paper").reporting_probability,
    }
    scheme = ds.ppswor(0.01)
    sampled: dict[str, Reporting] = {
        "sampled, not private": scheme.inclusion,
        "optimal, simple": ch.optimal(0.1, 1e-3, scheme).reporting_probability,
        "sampled stability": sampled_stability(0.1, 1e-3, scheme).reporting_probability,
        "sampled stability, paper's threshold": sampled_stability(
            0.1, 1e-3, scheme, threshold="paper"
        ).reporting_probability,
    }
    request = ReleaseRequest(
        key=("key",), privacy_unit="unit", epsilon=1.0, delta=1e-8, max_keys_per_unit=10, method="optimal"
    )
    divided = choose_mechanism(request, request.contribution).mechanism.last
    assert isinstance(divided, ch.Channel)
    several: dict[str, Reporting] = {
        "report then count, goal keys": ch.report_then_count(1.0, 1e-8, 10, goal="keys").reporting_probability,
        "report then count": ch.report_then_count(1.0, 1e-8, 10).reporting_probability,
        "gaussian": ch.gaussian(1.0, 1e-8, 10).reporting_probability,
        "optimal, budget divided": divided.reporting_probability,
    }
    FOLDER.mkdir(exist_ok=True)
    reporting(usual, 40, "No sampling, epsilon 1, delta 1e-8").save(FOLDER / "reporting.svg")
    reporting(small, 80, "No sampling, epsilon 0.1, delta 0.01").save(FOLDER / "reporting-small.svg")
    reporting(sampled, 250, "ppswor(0.01), epsilon 0.1, delta 0.001").save(FOLDER / "reporting-sampled.svg")
    reporting(several, 240, "Ten keys a unit, epsilon 1, delta 1e-8").save(FOLDER / "reporting-several.svg")
    row_shapes(20, 20.0).save(FOLDER / "row.svg")


if __name__ == "__main__":
    main()
