"""The steps of private means that reproduce the thesis: mode 'thesis' (Section 5.7), and two baselines.

- *centre*: the median of each coordinate, by the exponential mechanism on [-bound, bound] (Kaplan, Schnapp and Stemmer
  2022: for one quantile, recursive halving is one pick), each with 1/d of 1/16 of rho.
- *spread*: for real rows, the median of (x - y)^2 / 2 over pairs of rows (Algorithm 18 with k = 1) on [0, 2 bound^2],
  likewise, each with 1/d of 3/16 of rho, times (9/7)^3; for binary ones, q (1 - q) for the mean q with Gaussian noise,
  and no variance below d^(-2/5). The mean spread is added to all spreads.
- *radius*: the quantile 1 - k/n of the norms, for k = sqrt(n) + the rank error of Lemma 5.4, by one pick with 3/16 of
  rho on [0, sqrt(ln(d) ln(1/beta)) |spread^(p/(p+2))|_2].
- *noise*: Gaussian, with 9/16 of rho.

Privacy: picks are e^2/8-zCDP for one replaced row (`rank_picks`), and all else is Gaussian; their rhos add up to rho.

Choices where the thesis leaves something open: beta is 0.1, and T of Lemma 5.4, which is about binary search, is
ln(2 bound), as in the code of its authors. Their code makes three copies of each row, moved by 0.1, for a third of the
budget each; that would be a ninth, and the text does not have it: here rows are taken once. A median of zeros and ones
is one of both; picked from [0, 1], it would be anything between. The bound M of Section 5.D for the radius of binary
rows is read as |spread^(-2/(p+2))|_2, the largest norm there is. The direct estimators of Section 5.C divide the
distance of a quantile from the centre by that of a standard Gaussian, which the thesis does for 0.841 only.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpsieve.numbers.grid_quantiles import DyadicGrid, as_share
from dpsieve.numbers.mean_plan import JUMP, SMALLEST_SPREAD
from dpsieve.numbers.mean_steps import PlanSteps
from dpsieve.numbers.rows import BoundedRows, search_columns
from dpsieve.numbers.search import RANK_NOISE, linear_grid, log_grid, normal_tail
from dpsieve.papers.thesis.rank_picks import RankPicks
from dpsieve.papers.thesis.rotation import rotated_medians
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints

if TYPE_CHECKING:
    from dpsieve.papers.thesis.mean_plans import ReproducedPlan

THESIS_FAILURE = 0.1  # beta, which the thesis leaves open; its authors' experiments have 0.1
_MEAN_OVER_MEDIAN = (1 - 2 / 9) ** -3  # of a chi-square variable with one degree of freedom


class ReproducedSteps(PlanSteps):
    """Runs a plan of mode 'best', 'shifted' or 'gaussian' on rows, with given variances or another spread."""

    plan: "ReproducedPlan"
    variances: Floats | None = None
    spread: str | float = "auto"

    def run(self) -> Floats:
        """Return the private mean."""
        plan, size = self.plan, self.plan.size
        if plan.boxed or (plan.mode == "best" and plan.kind == "binary" and self.variances is None):
            return super().run()
        flat, zeros = np.ones(size), np.zeros(size)
        if plan.kind == "binary":
            if plan.mode == "shifted":
                return self._balanced_mean(zeros, flat, np.full(size, 0.5))
            assert self.variances is not None
            frequency = np.maximum((1 - np.sqrt(np.maximum(0.0, 1 - 4 * self.variances))) / 2, 1e-9)
            return self._scaled_binary_mean(zeros, frequency, np.sqrt(self.variances))
        scale = self._scale(SMALLEST_SPREAD * plan.bound, 2 * plan.bound * math.sqrt(size))
        if plan.mode == "shifted":
            self.centres = centre = self._centre(scale / (4 * math.sqrt(size)))
            return self._best_mean(centre, flat, np.full(size, scale / math.sqrt(size)))
        centre = self._centre(scale / (2 * size))
        return self._scaled_mean(centre, self._estimated_spreads(centre, scale))

    def _estimated_spreads(self, centre: Floats, scale: float) -> Floats:
        if self.variances is not None:
            return np.sqrt(self.variances)
        if self.spread == "pairs":
            grid, ranks = self._spread_search(scale)
            return pair_deviations(self.rows, 1, grid, ranks.rows, self.source)
        return self._spreads(centre, scale, *(() if self.spread == "auto" else (float(self.spread),)))


class BaselineSteps(ReproducedSteps):
    """Runs a plan of mode 'rotated' or 'plain_scale' on rows."""

    def run(self) -> Floats:
        """Return the private mean."""
        size = self.plan.size
        flat, zeros = np.ones(size), np.zeros(size)
        if self.plan.nonnegative:
            radius, _, _ = self._balanced_radius("radius", zeros, flat, np.full(size, 0.5))
            return self._clipped_mean("noise", zeros, flat, radius)
        low, high = SMALLEST_SPREAD * self.plan.bound, 2 * self.plan.bound * math.sqrt(size)
        scale = self._scale(*((2.0**-6, 2 * math.sqrt(size)) if self.plan.kind == "binary" else (low, high)))
        finest, spreads = scale / (4 * math.sqrt(size)), np.full(size, scale / math.sqrt(size))
        self.centres = centre = self._rotated_centre(finest) if self.plan.mode == "rotated" else self._centre(finest)
        return self._clipped_mean("noise", centre, flat, self._radius(centre, flat, spreads))

    def _rotated_centre(self, finest: float) -> Floats:
        signs = 1.0 - 2.0 * (self.source.words(self.plan.size) & np.uint64(1)).astype(np.float64)
        wide = math.sqrt(self.plan.size) * (1.0 if self.plan.kind == "binary" else self.plan.bound)
        grid = linear_grid(wide, finest)
        ranks = self._ranks("centre", self.plan.columns * grid.depth)
        return rotated_medians(self.rows, signs, grid, ranks.rows, self.source)

    def _radius(self, centre: Floats, weight: Floats, spreads: Floats) -> float:
        """Return a norm that about sqrt(n) / 2 scaled rows exceed, plus the rank error of the search.

        Half of what the thesis has: as good for rows that are spread evenly around their centre, better for others.
        """
        usual = float(np.linalg.norm(spreads * weight))
        grid = log_grid(usual / 16, max(usual, min(self._widest(centre, weight), usual * 2**12)), 64)
        ranks = self._ranks("radius", grid.depth)
        extra = math.sqrt(self.plan.size / self.plan.mu**2 * 2) if self.plan.mode == "plain_scale" else 0.0
        allowed = math.sqrt(self.plan.rows) / 2 + ranks.rows * normal_tail(JUMP / grid.depth) + extra
        allowed = min(allowed, self.plan.rows / 2)
        return ranks.search(self.rows.norms(centre, weight), grid, lambda _: allowed, self.source)


class ThesisSteps(ReproducedSteps):
    """Runs a plan of mode 'thesis' on rows; see the head of this module."""

    is_limited: ClassVar[bool] = False

    def run(self) -> Floats:
        """Return the private mean."""
        plan, variances = self.plan, self.variances
        if plan.kind == "binary":
            centre = self._picks("centre").majorities(count_ones(self.rows), plan.rows, self.source)
            mean = self._box_mean("spread") if variances is None else centre
            spreads = np.sqrt(np.maximum(mean * (1 - mean) if variances is None else variances, plan.size**-0.4))
        else:
            centre = self._medians("centre", Fraction(1, 2))
            spreads = np.sqrt(variances) if variances is not None else self._estimated(centre)
        self.centres, self.spreads = centre, spreads
        spreads = np.maximum(spreads, plan.bound * 2.0**-50)  # also where all columns are constant
        spreads = spreads + spreads.mean()
        weight = self._weight(spreads)
        widest = float(np.linalg.norm(weight))
        if plan.kind == "real":
            logs = max(1.0, math.log(plan.size)) * math.log(1 / THESIS_FAILURE)
            widest = math.sqrt(logs) * float(np.linalg.norm(spreads ** (plan.p / (plan.p + 2))))
        share = as_share(1 - plan.clipped / plan.rows)
        norms = self.rows.norms(centre, weight)[:, None]
        radius = self._picks("radius").quantiles(norms, share, 0.0, widest, self.source)[0]
        return self._clipped_mean("noise", centre, weight, max(float(radius), widest * 2.0**-20))

    def _estimated(self, centre: Floats) -> Floats:
        """Return a private standard deviation for each coordinate of real rows."""
        if self.spread not in ("auto", "pairs"):
            quantile = float(self.spread)
            return np.abs(self._medians("spread", as_share(quantile)) - centre) / normal_tail(1 - quantile)
        picks, widest, half = self._picks("spread"), 2 * self.plan.bound**2, Fraction(1, 2)
        medians = [picks.quantiles(differences[:, 0] ** 2 / 2, half, 0.0, widest, self.source)
                   for differences in pair_differences(self.rows, 1)]  # fmt: skip
        return np.asarray(np.sqrt(np.concatenate(medians) * _MEAN_OVER_MEDIAN))

    def _medians(self, step: str, share: Fraction) -> Floats:
        picks, bound = self._picks(step), self.plan.bound
        medians = [picks.quantiles(block, share, -bound, bound, self.source) for _, block in self.rows.blocks()]
        return np.concatenate(medians)

    def _picks(self, step: str) -> RankPicks:
        picks = make_picks(self.plan, step, self.delta, self.unit)
        self.mechanisms.append(picks)
        return picks


def pair_deviations(rows: BoundedRows, pairs: int, grid: DyadicGrid, sigma: float, source: Source) -> Floats:
    """Return a private standard deviation per column: Algorithm 18, with groups of `pairs` pairs of rows.

    A pair has (x - y)^2 / 2 with mean sigma^2. Their mean over a group is, for Gaussian rows, chi-square with
    k = pairs degrees of freedom, over k; its mean is its median over (1 - 2/(9k))^3. The grid is for the root mean
    square of the differences x - y. A row is in one group, so the cost is that of `search_columns`.

    >>> from dpsieve.testing import insecure_source
    >>> rows = BoundedRows(np.array([[0.0], [1.0]] * 500), 0.0, 1.0)
    >>> pair_deviations(rows, 1, DyadicGrid(1e-3, 2.0, 8, "log"), 1.0, insecure_source(1)).round(1).tolist()
    [1.0]
    """
    medians = []
    for differences in pair_differences(rows, pairs):
        values = np.abs(differences[:, 0]) if pairs == 1 else np.sqrt((differences**2).mean(axis=1))
        medians.append(search_columns(values, 0.5, grid, sigma, neighbours="replace", source=source))
    return np.asarray(np.concatenate(medians) / math.sqrt(2 * (1 - 2 / (9 * pairs)) ** 3))


def pair_differences(rows: BoundedRows, pairs: int) -> Iterator[Floats]:
    """Yield, per block of columns, the differences of adjacent rows, in groups of `pairs` pairs.

    >>> rows = BoundedRows(np.array([[0.0], [1.0], [1.0], [0.5]]), 0.0, 1.0)
    >>> [block[:, 0, 0].tolist() for block in pair_differences(rows, 1)]
    [[-1.0, 0.5]]
    """
    count = rows.shape[0] // (2 * pairs)
    for _, block in rows.blocks():
        used = np.clip(block[: 2 * pairs * count], rows.low, rows.high).astype(np.float64)
        yield (used[0::2] - used[1::2]).reshape(count, pairs, -1)


def count_ones(rows: BoundedRows) -> Ints:
    """Return the number of entries of each column that are nearer to the upper bound.

    >>> count_ones(BoundedRows(np.array([[0.0, 1.0], [1.0, 1.0]]), 0.0, 1.0)).tolist()
    [1, 2]
    """
    return np.asarray((rows.values > (rows.low + rows.high) / 2).sum(axis=0)).ravel()


def make_picks(plan: "ReproducedPlan", step: str, delta: float, unit: str) -> RankPicks:
    """Return the picks of a step, with its share of the budget.

    >>> from dpsieve.papers.thesis.mean_plans import preview_mean
    >>> plan = preview_mean(10_000, 16, bound=100.0, rho=0.5, kind="real")
    >>> make_picks(plan, "centre", 1e-6, "one row")
    <rank picks: centre, 16 of epsilon 0.125 each, ...>
    """
    rho = Fraction(plan.squares(step), 2 * int(RANK_NOISE) ** 2)
    return RankPicks.within(rho, plan.picks(step), step, delta=delta, unit=unit)
