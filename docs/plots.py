"""Draw the pictures of the site from the library itself: `make plots` writes docs/img and docs/static/reporting.js.

Pictures of made-up data use a seeded test source, so that they change only where the library does.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

import dpsieve as ds
from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.privacy import Approximate, Composition
from dpsieve.synthetic import query_log
from dpsieve.testing import insecure_source

FOLDER = Path(__file__).parent / "img"
STATIC = Path(__file__).parent / "static"
ONE_THREAD = ds.engines.DuckDB(threads=1)  # with one thread a seed decides the whole release
SIZE = {"width": 340, "height": 200}  # small, so that two fit beside each other and text stays legible
COLOURS = ["#1b6ca8", "#d1495b", "#edae49", "#66a182", "#2e4057", "#8d6a9f"]

Reporting = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def save(chart: alt.Chart | alt.LayerChart, name: str) -> None:
    """Write a picture, with its legend below: browsers take other fonts, and cut off text that is wider with them."""
    chart = chart.configure_legend(orient="bottom", direction="vertical", labelLimit=0, labelFontSize=11, offset=6)
    chart = chart.configure_axis(labelOverlap="greedy", labelSeparation=8, labelFontSize=11, titleFontWeight="normal")
    chart.configure_title(fontSize=12, anchor="start").save(FOLDER / f"{name}.svg")


def reporting(lines: Mapping[str, Reporting], last: int, title: str) -> alt.Chart:
    """Plot the probability of being reported against the true frequency, a line for each channel."""
    frequencies = np.arange(1, last + 1)
    rows = [
        pa.table({"frequency": frequencies, "reported": line(frequencies), "channel": [name] * last})
        for name, line in lines.items()
    ]
    return (
        alt.Chart(pa.concat_tables(rows), title=title, **SIZE)
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
    title = f"Tokens of frequency {frequency} (epsilon 0.5, delta 0.01)"
    return (
        alt.Chart(pa.Table.from_pylist(rows), title=title, **SIZE)
        .mark_rect(opacity=0.55)
        .encode(
            alt.X("from:Q", title="token", scale=alt.Scale(domain=[0, last])),
            alt.X2("to:Q"),
            alt.Y("density:Q", title="density"),
            alt.Color("channel:N", scale=alt.Scale(range=COLOURS), title=None),
        )
    )


def mechanism_for(epsilon: float, keys: int, delta: float = 1e-8, **options: str) -> ReportedCounts:
    """Return the mechanism that a release takes for a bound on the keys per unit."""
    budget = {"epsilon": epsilon, "delta": delta, "max_keys_per_unit": keys}
    request = ReleaseRequest(key=("key",), privacy_unit="unit", **budget, **options)  # type: ignore[arg-type]
    last = choose_mechanism(request, request.contribution).mechanism.last
    assert isinstance(last, ReportedCounts)
    return last


def curves(
    rows: list[dict[str, object]], across: str, up: str, colour: str, title: str, **scales: alt.Scale
) -> alt.Chart:
    """Plot lines: the columns are named as the axes are to be."""
    return (
        alt.Chart(pa.Table.from_pylist(rows), title=title, **SIZE)
        .mark_line(strokeWidth=2)
        .encode(
            alt.X(f"{across}:Q", scale=scales.get("x", alt.Undefined)),
            alt.Y(f"{up}:Q", scale=scales.get("y", alt.Undefined)),
            alt.Color(f"{colour}:N", sort=None, scale=alt.Scale(range=COLOURS), title=None),
        )
    )


def counts_by_rank(release: ds.Release) -> alt.Chart:
    """Plot the released counts of the demo by rank, with their intervals."""
    rows = sorted((row for row in release.table.to_pylist() if row["count"] is not None), key=lambda row: -row["count"])
    ranks = [{"rank": rank, **row} for rank, row in enumerate(rows, 1) if rank <= 20 or rank % 10 == 0]
    points = alt.Chart(
        pa.Table.from_pylist([{name: row[name] for name in ("rank", "count", "low", "high")} for row in ranks]),
        title="Released counts by rank (epsilon 1, delta 1e-8)", **SIZE,
    ).encode(alt.X("rank:Q", scale=alt.Scale(type="log", nice=False)))  # fmt: skip
    band = points.mark_area(opacity=0.3, color=COLOURS[0]).encode(
        alt.Y("low:Q", scale=alt.Scale(type="log"), title="count, 95 % interval"), alt.Y2("high:Q")
    )
    return band + points.mark_line(color=COLOURS[0]).encode(alt.Y("count:Q", scale=alt.Scale(type="log")))


def bounding(log: pa.Table) -> alt.Chart:
    """Plot the count of a common key against the bound on keys per unit, beside the number of users who hold it."""
    key = "cheap bicycle reviews near me"
    users = log.filter(pa.compute.equal(log["query"], key))["user_id"]
    true = len(pa.compute.unique(users))
    rows: list[dict[str, object]] = []
    for bound in (1, 2, 3, 5, 7, 10, 14, 20, 30, 50):
        asked = {"key": "query", "privacy_unit": "user_id", "epsilon": 1.0, "delta": 1e-8, "max_keys_per_unit": bound}
        table = ds.release(log, **asked, engine=ONE_THREAD, source=insecure_source(bound)).table
        counts = dict(zip(table["query"].to_pylist(), table["count"].to_pylist(), strict=True))
        rows.append({"keys per user": bound, "users": counts[key], "line": "released count"})
        rows.append({"keys per user": bound, "users": true, "line": "users with the key"})
    title = "Count of a common key, by the bound on keys per user"
    return curves(rows, "keys per user", "users", "line", title, x=alt.Scale(type="log", nice=False))


def odds() -> alt.Chart:
    """Plot what an attacker may believe afterwards who believed 50 % (or less) before."""
    epsilons = np.linspace(0, 5, 101)
    rows: list[dict[str, object]] = [
        {
            "epsilon": float(e),
            "belief after, %": 100 * prior / (prior + (1 - prior) * float(np.exp(-e))),
            "belief": f"{100 * prior:.0f} % before",
        }
        for prior in (0.5, 0.1, 0.01)
        for e in epsilons
    ]
    return curves(
        rows,
        "epsilon",
        "belief after, %",
        "belief",
        "The most that an attacker may believe",
        y=alt.Scale(domain=[0, 100]),
    )


def budgets() -> alt.Chart:
    """Plot what many releases cost together."""
    rows: list[dict[str, object]] = []
    for releases in range(1, 53):
        composed = Composition([Approximate(0.1, 1e-9, count=releases)]).epsilon(1e-6)
        rows.append({"releases": releases, "epsilon of all": 0.1 * releases, "line": "sum of epsilons"})
        rows.append({"releases": releases, "epsilon of all": composed, "line": "composed, fixed in advance"})
    return curves(rows, "releases", "epsilon of all", "line", "Cost of releases of (0.1, 1e-9), at delta 1e-6")


def units_needed() -> alt.Chart:
    """Plot how many units a key needs to be released half of the time, by epsilon."""
    rows: list[dict[str, object]] = [
        {"epsilon": epsilon, "units": int(frequency_at(mechanism_for(epsilon, keys), 0.5)), "keys": f"{keys} per unit"}
        for keys in (1, 10, 100)
        for epsilon in (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
    ]
    log = alt.Scale(type="log", nice=False)
    return curves(rows, "epsilon", "units", "keys", "Units for a probability of 50 % (delta 1e-8)", x=log, y=log)


def sketched(log: pa.Table) -> alt.Chart:
    """Plot the counters of sketches of two sizes against the true counts."""
    counts = log["query"].value_counts()
    common = sorted(
        zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True),
        key=lambda one: -one[1],
    )
    rows: list[dict[str, object]] = []
    for counters in (64, 1024):
        sketch = ds.MisraGries(counters)
        sketch.update(log["query"])
        rows += [
            {"true count": count, "counter": max(1, sketch.estimate(key)), "sketch": f"{counters:,} counters"}
            for key, count in common[:400:4]
        ]
    log_scale, title = alt.Scale(type="log", nice=False), "Counters before noise (1 stands for 0)"
    return (
        alt.Chart(pa.Table.from_pylist(rows), title=title, **SIZE)
        .mark_point(size=18)
        .encode(
            alt.X("true count:Q", scale=log_scale),
            alt.Y("counter:Q", scale=log_scale),
            alt.Color("sketch:N", sort=None, scale=alt.Scale(range=COLOURS), title=None),
        )
    )  # fmt: skip


def steps_picture(steps: Sequence[tuple[str, str]], title: str) -> str:
    """Return a row of boxes, each with an arrow to the next, as SVG."""
    width, gap = 122, 22
    boxes = []
    for place, (name, what) in enumerate(steps):
        left = 6 + place * (width + gap)
        boxes.append(
            f'<rect x="{left}" y="34" width="{width}" height="56" rx="6" fill="#eaf2f8" stroke="{COLOURS[0]}"/>'
            f'<text x="{left + width / 2}" y="58" font-weight="bold">{escape(name)}</text>'
            f'<text x="{left + width / 2}" y="77" font-size="11">{escape(what)}</text>'
        )
        if place:
            boxes.append(f'<path d="M{left - gap} 62 h{gap - 7} m-5 -4 l6 4 l-6 4" fill="none" stroke="#333"/>')
    whole = 12 + len(steps) * width + (len(steps) - 1) * gap
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} 100" width="{whole}" height="100" role="img" '
        f'font-family="sans-serif" font-size="13" text-anchor="middle" fill="#222"><title>{escape(title)}</title>'
        f'<rect width="{whole}" height="100" fill="white"/><text x="{whole / 2}" y="20">{escape(title)}</text>'
        f"{''.join(boxes)}</svg>\n"
    )


EPSILONS = [0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0]
BOUNDS = [1, 10, 100]
UNITS = sorted({round(10 ** (place / 25)) for place in range(101)})  # 1 to 10,000


def reporting_data() -> dict[str, object]:
    """Return the numbers of the plot on the first page: per bound and epsilon, the probabilities in per mille."""
    chances = {
        str(bound): [
            np.rint(1000 * mechanism_for(epsilon, bound).reporting_probability(np.array(UNITS))).astype(int).tolist()
            for epsilon in EPSILONS
        ]
        for bound in BOUNDS
    }
    return {"delta": 1e-8, "epsilons": EPSILONS, "units": UNITS, "chances": chances}


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
    divided = mechanism_for(1.0, 10, method="optimal")
    several: dict[str, Reporting] = {
        "report then count, goal keys": ch.report_then_count(1.0, 1e-8, 10, goal="keys").reporting_probability,
        "report then count": ch.report_then_count(1.0, 1e-8, 10).reporting_probability,
        "gaussian": ch.gaussian(1.0, 1e-8, 10).reporting_probability,
        "optimal, budget divided": divided.reporting_probability,
    }
    FOLDER.mkdir(exist_ok=True)
    save(reporting(usual, 40, "No sampling, epsilon 1, delta 1e-8"), "reporting")
    save(reporting(small, 80, "No sampling, epsilon 0.1, delta 0.01"), "reporting-small")
    save(reporting(sampled, 250, "ppswor(0.01), epsilon 0.1, delta 0.001"), "reporting-sampled")
    save(reporting(several, 240, "Ten keys per unit, epsilon 1, delta 1e-8"), "reporting-several")
    save(row_shapes(20, 20.0), "row")
    log = query_log(200_000, 20_000, source=insecure_source(1))
    asked = {"key": "query", "privacy_unit": "user_id", "epsilon": 1.0, "delta": 1e-8, "engine": ONE_THREAD}
    save(counts_by_rank(ds.release(log, source=insecure_source(2), **asked)), "counts")  # type: ignore[arg-type]
    save(bounding(log), "bounding")
    save(odds(), "odds")
    save(budgets(), "budgets")
    save(units_needed(), "units-needed")
    save(sketched(log), "sketch")
    steps = [
        ("request", "validated once"), ("plan", "public numbers"), ("engine", "reads, bounds"),
        ("ledger", "entry is durable"), ("finish", "chooses, draws"), ("publication", "certified"),
    ]  # fmt: skip
    (FOLDER / "call.svg").write_text(steps_picture(steps, "The way of every call"))
    STATIC.mkdir(exist_ok=True)
    numbers = json.dumps(reporting_data(), separators=(",", ":"))
    (STATIC / "reporting.js").write_text(f"const REPORTING = {numbers};\n")


if __name__ == "__main__":
    main()
