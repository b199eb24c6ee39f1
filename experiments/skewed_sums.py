"""Figure 4.1 of the thesis, and the errors of Lemmas 4.8 and 4.11: sums whose coordinates differ in width.

'library' is what the mechanism says its expected error is, from its whole numbers; 'drawn' is the mean over draws, with
its standard error. Neighbours replace a row, so that widths are the thesis's sensitivities.
"""

import math

import numpy as np
from experiment import Experiment, Plot, Row, Verdict, column, group, judge_claim, pick

from dpsieve.numbers.box import Shape, best_noise
from dpsieve.numbers.noise import LawName, ScaledNoise
from dpsieve.randomness.source import resolve
from dpsieve.types import Floats

DRAWS = 4_000
SHAPES: tuple[Shape, ...] = ("equal", "proportional", "best")
LAWS: tuple[LawName, ...] = ("gaussian", "laplace")
CLAIMS: dict[tuple[LawName, Shape], float] = {
    ("gaussian", "equal"): 17, ("gaussian", "proportional"): 17, ("gaussian", "best"): 12.5,
    ("laplace", "equal"): 10, ("laplace", "proportional"): 10, ("laplace", "best"): 9,
}  # fmt: skip
MOMENTS = (0.5, 1.0, 2.0, 4.0)


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


def figure_41(small: bool) -> list[Row]:
    """Return the errors of noise for two coordinates of widths 4 and 1, and 200 draws of it."""
    rows: list[Row] = []
    source, zeros = resolve(None), np.zeros(2, np.int64)
    for (noise, shape), claim in CLAIMS.items():
        p = 2.0 if noise == "gaussian" else 1.0
        made = mechanism(np.array([4.0, 1.0]), noise, shape, p)
        found, error = drawn(made, p, 100 if small else DRAWS)
        head = {"noise": noise, "shape": shape}
        numbers = {"thesis": claim, "library": made.expected_error(p), "drawn": found, "standard error": error}
        rows += [{**head, "what": what, "width 4": value, "width 1": ""} for what, value in numbers.items()]
        points = (made.draw(zeros, source).tolist() for _ in range(10 if small else 200))
        rows += [{**head, "what": "draw", "width 4": x, "width 1": y} for x, y in points]
    return rows


def judge_figure_41(rows: list[Row]) -> list[Verdict]:
    """Judge the errors that the text of the figure states."""
    verdicts = []
    for (noise, shape), part in group(rows, "noise", "shape"):
        number = {row["what"]: row["width 4"] for row in part if row["what"] != "draw"}
        kind = "squared error at rho 1" if noise == "gaussian" else "absolute error at epsilon 1"
        verdicts.append(
            judge_claim(
                f"{noise.title()} noise, shape '{shape}', widths 4 and 1: {kind} is {number['thesis']:g}",
                f"{number['library']:.4f} by the mechanism, {number['drawn']:.2f} +- {number['standard error']:.2f} "
                "drawn",
                _agrees(number["thesis"], number["library"], number["drawn"], number["standard error"]),
                "the numbers do not agree",
            )
        )
    return verdicts


def _agrees(claim: float, library: float, found: float, error: float) -> bool:
    """Return whether a claim is met: by the mechanism up to 0.01 %, by draws up to six standard errors."""
    return abs(library / claim - 1) < 1e-4 and abs(found - claim) <= 6 * error


def lemmas(small: bool) -> list[Row]:
    """Return the error of the best shape for widths with a heavy tail, and what others have more."""
    widths, rows = 100 / np.arange(1, 33.0), list[Row]()
    for noise in LAWS:
        for p in MOMENTS[-1:] if small else MOMENTS:
            claim, made = closed_form(widths, noise, p), mechanism(widths, noise, "best", p)
            library, (found, error) = made.expected_error(p), drawn(made, p, 100 if small else DRAWS)
            others = {shape: mechanism(widths, noise, shape, p).expected_error(p) for shape in SHAPES[:2]}
            rows.append({
                "noise": noise, "p": p, "closed_form": claim, "library": library, "drawn": found,
                "standard_error": error, **{shape: other / library for shape, other in others.items()},
            })  # fmt: skip
    return rows


def judge_lemmas(rows: list[Row]) -> list[Verdict]:
    """Judge the closed forms, and that no other shape is better."""
    verdicts = []
    for noise, lemma in (("gaussian", "4.8"), ("laplace", "4.11")):
        part = pick(rows, noise=noise)
        apart = max(abs(row["library"] / row["closed_form"] - 1) for row in part)
        most = max(abs(row["drawn"] - row["closed_form"]) / row["standard_error"] for row in part)
        others = np.concatenate([column(part, shape) for shape in SHAPES[:2]])
        verdicts.append(
            judge_claim(
                f"Lemma {lemma}: the closed form of the error, least of all shapes, for widths 100/1 to 100/32",
                f"the mechanism is within {apart:.0e} of it, draws within {most:.1f} standard errors; equal and "
                f"proportional shapes have {others.min():.2f} to {others.max():.2f} times the error",
                apart < 1e-4 and most < 6 and others.min() >= 1,
                "the closed form is not met",
            )
        )
    return verdicts


EXPERIMENTS = (
    Experiment(
        "skewed_sums", "thesis", "Figure 4.1", "errors of three shapes of noise, two coordinates, 4,000 draws", 20,
        figure_41, judge_figure_41,
        (
            Plot("Figure 4.1: 200 draws of noise, rho or epsilon 1", "width 4", "width 1", ("shape",),
                 ("noise", "shape"), where={"what": "draw"}, scatter=True),
        ),
    ),
    Experiment(
        "skewed_sums_lemmas", "thesis", "Lemmas 4.8 and 4.11", "widths 100/1 to 100/32, powers 0.5 to 4", 30, lemmas,
        judge_lemmas,
        (Plot("Error over that of the best shape", "p", ("equal", "proportional"), panels=("noise",), log="xy"),),
    ),
)  # fmt: skip
