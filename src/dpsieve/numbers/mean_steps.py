"""The mean of skewed vectors: PLAN (Lebeda's thesis, chapter 5) with exact draws, prepared from public numbers.

PLAN finds a centre and a spread per coordinate, scales coordinate i by spread_i^(-2/(p+2)) so that noise of one size is
right for all, clips scaled rows to a radius that few exceed, and adds noise to their sum. Every step is private, has a
mechanism of its own, and spends a share of one budget (`mean_plan`): its mu of Gaussian privacy is fixed before the
first draw, and it reads otherwise public numbers and the results of earlier steps. So the mus add in squares (Dong,
Roth and Su 2022), for all rows. Proof: docs/background/means.md#means-of-skewed-vectors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.numbers.box import BoxGrid
from dpsieve.numbers.estimate import Estimate
from dpsieve.numbers.grid_quantiles import DyadicGrid
from dpsieve.numbers.mean_noise import (
    BELOW,
    JUST_BELOW,
    Clipping,
    MeanNoise,
    NormTail,
    best_clipping,
    rare_clipping,
)
from dpsieve.numbers.mean_plan import JUMP, SMALLEST_SPREAD, MeanPlan, compose
from dpsieve.numbers.noise import gaussian_promise, l2_distance
from dpsieve.numbers.rows import LARGEST_RADIUS, PARTS, BoundedRows
from dpsieve.numbers.search import RANK_NOISE, NoisyRanks, linear_grid, log_grid, normal_tail
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.picks import shuffled
from dpsieve.randomness.source import Source
from dpsieve.types import Floats

_REGULARISER = 0.1
_ONE_DEVIATION = 0.841  # the quantile of a Gaussian variable at one standard deviation
_SURPRISING = 2.0  # deviations of a count
_ABOVE = 17 / 16  # of the widest norm: a grid to there has a point at it or above
_TOO_SMALL = "the budget is too small. Pass a larger rho or epsilon."


@dataclass(frozen=True, eq=False)
class PreparedMean:
    """A private mean before any row is read: its plan, its guarantee, its cost and how to draw it."""

    plan: MeanPlan
    promise: tuple[float, float]
    unit: str

    @property
    def cost(self) -> Mechanism:
        """A mechanism that costs what the plan costs."""
        return self.plan.cost(self.promise, self.unit)

    def bounded(self, values: Any) -> BoundedRows:
        """Return rows within the bounds of the plan."""
        low, high = (0.0, 1.0) if self.plan.kind == "binary" else (-self.plan.bound, self.plan.bound)
        return BoundedRows(values, low, high)

    def draw(self, rows: BoundedRows, source: Source, names: Sequence[str], *, single: bool = False) -> Estimate:
        """Return the private mean of rows; charges no ledger.

        Pairs of adjacent rows are compared. In a random order a replaced row is in one pair alone, wherever it stood,
        so the order of the input does not matter, even if it depends on all rows.
        """
        if not self.plan.boxed:
            rows = rows.take(shuffled(rows.shape[0], source))
        steps = self.steps(rows, source)
        values = steps.run()
        notes: Any = {"reason": f"{self.plan}; {steps.summary}", "single": single}
        notes["contribution"] = "one row of numbers within public bounds"
        return Estimate.of(compose(self.promise, steps.mechanisms), values, names, source=source, **notes)

    def steps(self, rows: BoundedRows, source: Source) -> "PlanSteps":
        """Return the steps of the plan on rows."""
        return PlanSteps(self.plan, rows, self.promise[1], self.unit, source)


class PlanSteps:
    """Runs a plan on rows, and records the mechanisms that were drawn from.

    Attributes:
        mechanisms: in order.
        summary: what was clipped, as text.
        centres, spreads: the private estimates of each coordinate, once they are drawn.
    """

    is_limited: ClassVar[bool] = True  # whether results are clipped to the bounds

    def __init__(self, plan: MeanPlan, rows: BoundedRows, delta: float, unit: str, source: Source) -> None:
        self.plan, self.rows, self.delta, self.unit, self.source = plan, rows, delta, unit, source
        self.mechanisms: list[Mechanism] = []
        self.summary = ""
        self.centres: Floats | None = None
        self.spreads: Floats | None = None

    def run(self) -> Floats:
        """Return the private mean."""
        plan = self.plan
        if plan.boxed:
            return self._box_mean("noise")
        if plan.kind == "binary":
            return self._binary_mean()
        scale = self._scale(SMALLEST_SPREAD * plan.bound, 2 * plan.bound * math.sqrt(plan.size))
        centre = self._centre(scale / (2 * plan.size))
        return self._scaled_mean(centre, self._spreads(centre, scale))

    def _scaled_mean(self, centre: Floats, spreads: Floats) -> Floats:
        """Return the mean of rows around a centre, scaled by their spreads."""
        self.centres, self.spreads = centre, spreads
        regular = spreads + _REGULARISER * spreads.mean()
        return self._best_mean(centre, self._weight(regular), regular)

    def _scale(self, low: float, high: float) -> float:
        """Return about the root of the sum of all variances: half of the distances between two rows are below it."""
        grid = log_grid(low, high, 8)
        ranks, distances = self._ranks("scale", grid.depth), self.rows.distances()
        return ranks.search(distances, grid, lambda _: len(distances) / 2, self.source) / math.sqrt(2)

    def _centre(self, finest: float) -> Floats:
        grid = linear_grid(self.plan.bound, finest)
        ranks = self._ranks("centre", self.plan.size * grid.depth)
        return self.rows.quantiles(0.5, grid, ranks.rows, self.source)

    def _spreads(self, centre: Floats, scale: float, quantile: float = _ONE_DEVIATION) -> Floats:
        """Return a standard deviation per coordinate, that of Gaussian data with the same quantile."""
        grid, ranks = self._spread_search(scale)
        distances = self.rows.quantiles(2 * quantile - 1, grid, ranks.rows, self.source, centre=centre)
        return distances / normal_tail(1 - quantile)

    def _spread_search(self, scale: float) -> tuple[DyadicGrid, NoisyRanks]:
        grid = log_grid(scale / (20 * self.plan.size), 2 * scale, 4)
        return grid, self._ranks("spread", self.plan.size * grid.depth)

    def _weight(self, spreads: Floats) -> Floats:
        return np.asarray(spreads ** (-2 / (self.plan.p + 2)))

    def _best_mean(self, centre: Floats, weight: Floats, spreads: Floats) -> Floats:
        """Return the mean of rows clipped to the radius with the least error, or of the box where that has less.

        The search reaches the widest norm, so that a spread that was missed does no harm. Its target is its own rank
        error, or the number of clipped rows that is worth the noise, where that is more.
        """
        plan, rows = self.plan, self.rows
        usual = float(np.linalg.norm(spreads * weight))
        widest = self._widest(centre, weight)
        ratio = _norm(spreads, plan.p) / usual  # of the error in l_p to the norms that are clipped
        noise = self._noise_norm("noise", weight) / ratio
        grid = log_grid(min(usual, widest) / 16, widest * _ABOVE, 64)
        ranks, norms = self._ranks("radius", grid.depth), rows.norms(centre, weight)
        rank = min(max(ranks.rows * normal_tail(JUMP / grid.depth), noise), plan.rows / 2)
        radius = ranks.search(norms, grid, lambda _: rank, self.source)
        clipping = self._clipping(norms, radius, rank, grid, widest, noise)
        stated = self._is_expected(norms, clipping, widest)
        return self._least_error_mean(centre, weight, clipping, stated, ratio)

    def _widest(self, centre: Floats, weight: Floats) -> float:
        return float(np.linalg.norm((self.rows.high + np.abs(centre)) * weight))

    def _clipping(
        self, norms: Floats, radius: float, rank: float, grid: DyadicGrid, widest: float, noise: float
    ) -> Clipping:
        """Return the radius with the least error, from one that about `rank` rows exceed and four noisy counts."""
        gap = 2 ** (1 / math.sqrt(self.plan.size))
        is_rare = radius <= grid.point(0)
        points = radius * (np.ones(4) if is_rare else np.array([1 / gap, 0.5 / gap, JUST_BELOW, BELOW]))
        ranks = self._ranks("tail", len(points))
        counts = ranks.counts(norms, points, self.source)
        if is_rare:
            return rare_clipping(radius, widest, float(counts.mean()), ranks.rows / 2, noise)
        near, far, tied, below = counts.tolist()
        above = (near - ranks.rows, far - ranks.rows)
        return best_clipping(NormTail(radius, rank, (gap, 2 * gap), above, tied, below - tied, widest), noise)

    def _is_expected(self, norms: Floats, clipping: Clipping, widest: float) -> bool:
        """Return whether no more rows are clipped than expected, by a noisy count."""
        ranks = self._ranks("check", 1)
        count = float(ranks.counts(norms, np.array([clipping.radius]), self.source)[0])
        return clipping.radius >= widest or count <= clipping.rows + _SURPRISING * ranks.rows

    def _least_error_mean(
        self, centre: Floats, weight: Floats, clipping: Clipping, stated: bool, ratio: float
    ) -> Floats:
        """Return the mean of clipped rows, or of the box if its noise is less: both are known before the draw."""
        size, width = self.plan.size, self.rows.high - self.rows.low
        box = width * math.sqrt(size) * size ** (1 / self.plan.p) / self._step_mu("noise")
        if box <= clipping.error * ratio:
            return self._box_mean("noise")
        return self._clipped_mean("noise", centre, weight, clipping.radius, clipping, stated)

    def _step_mu(self, step: str) -> float:
        return self.plan.mu * math.sqrt(self.plan.shares[step])

    def _noise_norm(self, step: str, weight: Floats) -> float:
        """Return about the l_p norm of the noise on sums of rows that are clipped to a norm of 1."""
        change = math.sqrt(2) if self.plan.nonnegative else 2.0
        return change / self._step_mu(step) * _norm(1 / np.abs(weight), self.plan.p)

    def _binary_mean(self) -> Floats:
        """Return the mean in two stages: a rough one estimates the frequency of ones, the second is scaled by it.

        Rows are centred at 0, and at 1 where ones are more frequent, so that nothing is negative.
        """
        size = self.plan.size
        flat, zeros, half = np.ones(size), np.zeros(size), np.full(size, 0.5)
        radius, _, _ = self._balanced_radius("first radius", zeros, flat, half)
        rough = self._clipped_mean("first mean", zeros, flat, radius)
        deviation = float(self._last_noise.deviations[0])
        centre = (rough > 0.5).astype(np.float64)
        frequency = np.maximum(np.abs(rough - centre), deviation / 2)
        return self._scaled_binary_mean(centre, frequency, np.sqrt(rough * (1 - rough)))

    def _scaled_binary_mean(self, centre: Floats, frequency: Floats, spreads: Floats) -> Floats:
        self.centres, self.spreads = centre, spreads
        weight = frequency ** (-1 / (self.plan.p + 2)) * np.where(centre > 0, -1.0, 1.0)
        return self._balanced_mean(centre, weight, frequency)

    @property
    def _last_noise(self) -> MeanNoise:
        return next(mechanism for mechanism in reversed(self.mechanisms) if isinstance(mechanism, MeanNoise))

    def _balanced_mean(self, centre: Floats, weight: Floats, frequency: Floats) -> Floats:
        """Return the mean of binary rows clipped to a balanced radius, or of the box where that has less error."""
        radius, rank, ratio = self._balanced_radius("radius", centre, weight, frequency)
        norms, noise = self.rows.norms(centre, weight), self._noise_norm("noise", weight) / ratio
        widest = float(np.linalg.norm(weight))
        clipping = self._clipping(norms, radius, rank, _grid_of_ones(weight), widest, noise)
        stated = self._is_expected(norms, clipping, widest)
        return self._least_error_mean(centre, weight, clipping, stated, ratio)

    def _balanced_radius(
        self, step: str, centre: Floats, weight: Floats, frequency: Floats
    ) -> tuple[float, float, float]:
        """Return the norm at which clipping more rows would add as much bias as it saves noise.

        Return also the largest number of rows above it, and the ratio of the error in l_p to the norms that are
        clipped. How: docs/background/means.md#the-radius-of-binary-rows.
        """
        plan, share = self.plan, "first mean" if step == "first radius" else "noise"
        grid = _grid_of_ones(weight)
        ranks = self._ranks(step, grid.depth)
        noise = self._noise_norm(share, weight) * math.sqrt(2 / math.pi)
        ratio = _norm(frequency, plan.p) / float((weight**2 * frequency).sum())
        least = ranks.rows * normal_tail(JUMP / grid.depth)

        def allowed(radius: float) -> float:
            return min(max(noise / (radius * ratio), least), 0.3 * plan.rows)

        radius = ranks.search(self.rows.norms(centre, weight), grid, allowed, self.source)
        return radius, allowed(radius), ratio * radius

    def _ranks(self, step: str, comparisons: int) -> NoisyRanks:
        squares = self.plan.squares(step)
        ranks = NoisyRanks.within(squares, max(1, comparisons), step, delta=self.delta, unit=self.unit)
        self.mechanisms.append(ranks)
        return ranks

    def _noise(
        self, change: float, scale: float, steps: Floats, offsets: Floats, radius: float = 0.0, **interval: Any
    ) -> MeanNoise:
        low, high = (self.rows.low, self.rows.high) if self.is_limited else (-1e300, 1e300)
        epsilon, delta = gaussian_promise(scale, change, None, self.delta)
        noise = MeanNoise(
            epsilon, delta, change, scale, tuple(steps.tolist()), tuple(offsets.tolist()),
            neighbours="replace", unit=self.unit, low=low, high=high, radius=radius, **interval,
            centres=_as_tuple(self.centres), spreads=_as_tuple(self.spreads),
        )  # fmt: skip
        self.mechanisms.append(noise)
        return noise

    def _norm(self, step: str) -> tuple[int, float, float]:
        """Return the largest whole radius of clipped rows, the largest change of their sums, and the scale of noise."""
        twice = 2 if self.plan.nonnegative else 4  # the square of the change, over that of the norm
        squares, halvings = self.plan.squares(step), 0
        while (radius := math.isqrt(squares // twice >> 2 * halvings) // PARTS) > LARGEST_RADIUS:
            halvings += 1
        if not radius:
            raise InvalidValue(_TOO_SMALL)
        change = upper(lambda: (ball(twice) * (PARTS * radius) ** 2).sqrt())
        return radius, change, RANK_NOISE / 2**halvings

    def _clipped_mean(
        self, step: str, centre: Floats, weight: Floats, radius: float, clipping: Clipping | None = None,
        stated: bool = False,
    ) -> Floats:  # fmt: skip
        """Return the noisy mean of rows that are scaled around a centre and clipped to a norm.

        Without a `clipping` its bias is unknown. With one, the radius has room for the rounding of rows and of the
        centre, so that no row at the radius is clipped.
        """
        norm, change, scale = self._norm(step)
        if clipping is not None:
            radius *= 1 + (math.sqrt(self.plan.size) + 1) / norm
        per_step = weight * (norm / radius)
        if self.plan.nonnegative:  # ones become whole numbers without rounding
            per_step = np.sign(per_step) * np.maximum(1.0, np.rint(np.abs(per_step)))
        else:  # zeros do, so that n equal roundings cannot add up
            centre = np.rint(centre * per_step) / per_step
        sums = self.rows.sums(centre, per_step, norm)
        sums = np.where(per_step < 0, -sums, sums)
        steps = 1 / (np.abs(per_step) * PARTS * self.plan.rows)
        interval: dict[str, Any] = {"stated": stated}
        if clipping is not None:
            per_norm = PARTS * norm / radius
            rounding = PARTS * self.plan.rows / 2  # each row, at most
            interval |= {"bias": clipping.mean * per_norm + rounding, "bias_deviation": clipping.deviation * per_norm}
        noise = self._noise(change, scale, steps, centre, radius, **interval)
        self._report(step, f"rows clipped to a norm of {radius:.4g}")
        self.summary += "; the interval assumes that norms fall off beyond it as they do before it" * stated
        return noise.draw(sums, self.source)

    def _box_mean(self, step: str) -> Floats:
        """Return the noisy mean of rows in the box, all coordinates with the same noise."""
        size, squares, halvings = self.plan.size, self.plan.squares(step), 0
        while (width := math.isqrt((squares >> 2 * halvings) // size) // 2 * 2) > 2**30:
            halvings += 1
        lows, highs = np.full(size, self.rows.low), np.full(size, self.rows.high)
        grid = BoxGrid(lows, highs, (highs - lows) / max(width, 1), "replace")
        if not width or sum(change * change for change in grid.changes.tolist()) > squares >> 2 * halvings:
            raise InvalidValue(_TOO_SMALL)
        change = l2_distance(tuple(grid.changes.tolist()))
        sums, scale = grid.sums(self.rows.values), RANK_NOISE / 2**halvings
        noise = self._noise(change, scale, grid.steps / self.plan.rows, grid.origins)
        self._report(step, "no row is clipped")
        return noise.draw(sums, self.source)

    def _report(self, step: str, text: str) -> None:
        self.summary += f"{'; ' if self.summary else ''}{step}: {text}"


def _grid_of_ones(weight: Floats) -> DyadicGrid:
    """Return a grid from below the least norm of a weighted binary row that is not zero to above the largest."""
    return log_grid(float(np.abs(weight).min()) / 2, float(np.linalg.norm(weight)) * _ABOVE, 64)


def _as_tuple(values: Floats | None) -> tuple[float, ...]:
    return () if values is None else tuple(values.tolist())


def _norm(values: Floats, p: float) -> float:
    """Return the l_p norm of positive numbers, also where their powers overflow."""
    largest = float(values.max())
    return largest * float(np.linalg.norm(values / largest, p))
