"""Figure 4.1 of Lebeda's thesis, and the errors of Lemmas 4.8 and 4.11: sums whose coordinates differ in width.

    .venv/bin/python experiments/skewed_sums.py [draws]

'library' is what the mechanism says its expected error is, from its whole numbers; 'drawn' is the mean over draws, with
its standard error. Neighbours replace a row, so that widths are the thesis's sensitivities.
"""

import math
import sys

import altair as alt
import numpy as np
import pyarrow as pa
from discovery_data import save
from rich.console import Console
from rich.table import Table

from dpsieve.numbers.box import Shape, best_noise
from dpsieve.numbers.noise import LawName, ScaledNoise
from dpsieve.randomness.source import resolve
from dpsieve.types import Floats

DRAWS = 4_000
# With the colours of the thesis's figure.
SHAPES: dict[Shape, str] = {"equal": "blue", "proportional": "orange", "best": "green"}
CLAIMS: dict[tuple[LawName, Shape], float] = {
    ("gaussian", "equal"): 17, ("gaussian", "proportional"): 17, ("gaussian", "best"): 12.5,
    ("laplace", "equal"): 10, ("laplace", "proportional"): 10, ("laplace", "best"): 9,
}  # fmt: skip
MOMENTS = (0.5, 1.0, 2.0, 4.0)
CONSOLE = Console(width=140)


def mechanism(widths: Floats, noise: LawName, shape: Shape, p: float) -> ScaledNoise:
    """Return the noise for rows with these widths, at rho or epsilon 1."""
    rho, epsilon = (1.0, None) if noise == "gaussian" else (None, 1.0)
    return best_noise(
        -widths / 2, widths / 2, "replace", p=p, rho=rho, epsilon=epsilon, delta=None, noise=noise, shape=shape,
        unit="one row",
    )[0]  # fmt: skip


def drawn(made: ScaledNoise, p: float, draws: int) -> tuple[float, float]:
    """Return the mean error over draws and its standard error."""
    source, zeros = resolve(None), np.zeros(made.size, np.int64)
    errors = [(np.abs(made.draw(zeros, source)) ** p).sum() for _ in range(draws)]
    return float(np.mean(errors)), float(np.std(errors) / math.sqrt(draws))


def closed_form(widths: Floats, noise: str, p: float) -> float:
    """Return the least expected error at rho or epsilon 1: Lemma 4.8 or 4.11."""
    if noise == "gaussian":
        order, factor = 2 * p / (p + 2), math.gamma((p + 1) / 2) / math.sqrt(math.pi)
    else:
        order, factor = p / (p + 1), math.gamma(p + 1)
    return factor * float((widths**order).sum() ** (p / order))


def verdict(claim: float, library: float, found: float, error: float) -> str:
    """Return whether a claim is met: by the mechanism up to 0.01 %, by draws up to four standard errors."""
    return "agrees" if abs(library / claim - 1) < 1e-4 and abs(found - claim) <= 4 * error else "differs"


def table_of(title: str, *names: str) -> Table:
    """Return a table with these columns."""
    table = Table(title=title)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def figure_41(draws: int) -> None:
    """Show two coordinates of widths 4 and 1."""
    table = table_of(
        "Figure 4.1: expected error for widths 4 and 1; squared at rho 1, absolute at epsilon 1",
        "noise", "shape", "thesis", "library", "drawn", "deviations", "verdict",
    )  # fmt: skip
    points, widths = [], np.array([4.0, 1.0])
    for (noise, shape), claim in CLAIMS.items():
        p = 2.0 if noise == "gaussian" else 1.0
        made = mechanism(widths, noise, shape, p)
        library, (found, error) = made.expected_error(p), drawn(made, p, draws)
        deviations = ", ".join(f"{one:.3f}" for one in made.deviations)
        says = verdict(claim, library, found, error)
        cells = (f"{claim:g}", f"{library:.4f}", f"{found:.2f} +- {error:.2f}", deviations, says)
        table.add_row(noise, f"{shape} ({SHAPES[shape]})", *cells)
        source, zeros = resolve(None), np.zeros(2, np.int64)
        for x, y in (made.draw(zeros, source).tolist() for _ in range(300)):
            points.append({"x": x, "y": y, "noise": noise, "shape": shape})
    CONSOLE.print(table)
    chart = (
        alt.Chart(pa.Table.from_pylist(points), width=220, height=160)
        .mark_circle(size=9, clip=True)
        .encode(
            alt.X("x:Q", title="width 4", scale=alt.Scale(domain=[-20, 20])),
            alt.Y("y:Q", title="width 1", scale=alt.Scale(domain=[-15, 15])),
            alt.Color("shape:N", sort=list(SHAPES), scale=alt.Scale(range=list(SHAPES.values())), legend=None),
        )
    )
    facets = chart.facet(
        column=alt.Column("shape:N", sort=list(SHAPES), title=None), row=alt.Row("noise:N", title=None)
    )
    save("skewed_sums", facets.properties(title="Figure 4.1: 300 draws of noise, rho or epsilon 1"))


def lemmas(draws: int) -> None:
    """Show the error of the best shape for widths with a heavy tail, and what others have more."""
    widths = 100 / np.arange(1, 33.0)
    table = table_of(
        "Lemmas 4.8 and 4.11: widths 100/1, ..., 100/32, at rho or epsilon 1",
        "noise", "p", "closed form", "library", "drawn", "equal", "proportional", "verdict",
    )  # fmt: skip
    for noise in ("gaussian", "laplace"):
        for p in MOMENTS:
            claim, made = closed_form(widths, noise, p), mechanism(widths, noise, "best", p)
            library, (found, error) = made.expected_error(p), drawn(made, p, draws)
            others = [mechanism(widths, noise, shape, p).expected_error(p) for shape in ("equal", "proportional")]
            cells = (f"{claim:.5g}", f"{library:.5g}", f"{found:.4g} +- {error:.1g}")
            more = (f"x {other / library:.2f}" for other in others)
            table.add_row(noise, f"{p:g}", *cells, *more, verdict(claim, library, found, error))
        table.add_section()
    CONSOLE.print(table)


def main() -> None:
    """Print both tables and save the figure."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    figure_41(draws)
    lemmas(draws)


if __name__ == "__main__":
    main()
