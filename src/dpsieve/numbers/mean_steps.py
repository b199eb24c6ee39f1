"""The steps of a private mean, each with its own mechanism: scale, centre, spread, radius, tail, and the noisy sum.

Privacy. Every step sees the rows through one mechanism whose mu of Gaussian privacy is fixed before the first draw, and
otherwise public numbers and what earlier steps let out. So the mus add in squares (Dong, Roth and Su 2022), whatever
the rows are: assumptions on data decide how good the mean is, never how private.
"""

import math
from typing import Any, ClassVar

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.numbers.box_grid import BoxGrid
from dpsieve.numbers.dyadic_grid import DyadicGrid
from dpsieve.numbers.mean_noise import (
    BELOW,
    JUST_BELOW,
    Clipping,
    MeanNoise,
    NormTail,
    best_clipping,
    rare_clipping,
)
from dpsieve.numbers.mean_plan import JUMPS, SMALLEST_SPREAD, MeanPlan
from dpsieve.numbers.norm_noise import promised
from dpsieve.numbers.ranks import NoisyRanks, first_point, linear_grid, log_grid, normal_tail
from dpsieve.numbers.rows import LARGEST_RADIUS, PARTS, BoundedRows
from dpsieve.numbers.scaled_noise import l2_distance
from dpsieve.numbers.search import RANK_NOISE
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source
from dpsieve.types import Floats

_REGULARISER = 0.1
_SURPRISING = 2.0  # deviations of a count
_ABOVE = 17 / 16  # of the widest norm: a grid to there has a point at it or above


class PlanSteps:
    """Runs a plan on rows, and keeps the mechanisms that were used."""

    limited: ClassVar[bool] = True  # whether results are limited to the bounds

    def __init__(self, plan: MeanPlan, rows: BoundedRows, delta: float, unit: str, source: Source) -> None:
        self.plan, self.rows, self.delta, self.unit, self.source = plan, rows, delta, unit, source
        self.made: list[Mechanism] = []
        self.told = ""
        self.centres: Floats | None = None
        self.spreads: Floats | None = None

    @staticmethod
    def promised(plan: MeanPlan, epsilon: float | None, delta: float | None) -> tuple[float, float]:
        """Return the (epsilon, delta) that all steps keep together."""
        return promised(1.0, plan.mu, epsilon, delta)

    def planned(self) -> list[Mechanism]:
        """Return what will be spent, as mechanisms of the same cost; the real ones may cost a rounding less."""
        return [self._planned(step) for step in self.plan.shares]

    def _planned(self, step: str) -> Mechanism:
        return NoisyRanks.within(self._squares(step), 1, step, delta=self.delta, unit=self.unit)

    def run(self, known: Floats | None, spread: str | float) -> Floats:
        """Return the private mean."""
        plan = self.plan
        if plan.boxed:
            return self._box_mean("noise")
        if plan.nonnegative:
            return self._binary(known)
        scale = self._scale()
        if plan.mode == "best":
            self.centres = centre = self._centre(scale / (2 * plan.size))
            self.spreads = np.sqrt(known) if known is not None else self._spreads(centre, scale, spread)
            spreads = self.spreads + _REGULARISER * self.spreads.mean()
            return self._best_mean(centre, self._weight(spreads), spreads)
        finest, flat = scale / (4 * math.sqrt(plan.size)), np.ones(plan.size)
        spreads = np.full(plan.size, scale / math.sqrt(plan.size))
        self.centres = centre = self._rotated_centre(finest) if plan.mode == "rotated" else self._centre(finest)
        if plan.mode == "shifted":
            return self._best_mean(centre, flat, spreads)
        return self._clipped_mean("noise", centre, flat, self._radius(centre, flat, spreads))

    @property
    def last(self) -> MeanNoise:
        """The mechanism of the latest noisy mean."""
        return next(one for one in reversed(self.made) if isinstance(one, MeanNoise))

    def _scale(self) -> float:
        """Return about the root of the sum of all variances: of distances between two rows, half are below it."""
        low, high = SMALLEST_SPREAD * self.plan.bound, 2 * self.plan.bound * math.sqrt(self.plan.size)
        if self.plan.kind == "binary":
            low, high = 2.0**-6, 2 * math.sqrt(self.plan.size)
        grid = log_grid(low, high, 8)
        ranks, distances = self._ranks("scale", grid.depth), self.rows.distances()
        return ranks.search(distances, grid, lambda _: len(distances) / 2, self.source) / math.sqrt(2)

    def _centre(self, finest: float) -> Floats:
        grid = linear_grid(self.plan.bound, finest)
        ranks = self._ranks("centre", self.plan.size * grid.depth)
        return self.rows.quantiles(0.5, grid, ranks.rows, self.source)

    def _rotated_centre(self, finest: float) -> Floats:
        signs = 1.0 - 2.0 * (self.source.words(self.plan.size) & np.uint64(1)).astype(np.float64)
        wide = math.sqrt(self.plan.size) * (1.0 if self.plan.kind == "binary" else self.plan.bound)
        grid = linear_grid(wide, finest)
        ranks = self._ranks("centre", self.plan.columns * grid.depth)
        return self.rows.rotated_medians(signs, grid, ranks.rows, self.source)

    def _spreads(self, centre: Floats, scale: float, spread: str | float) -> Floats:
        """Return a standard deviation for each coordinate, as Gaussian data would have it."""
        grid = log_grid(scale / (20 * self.plan.size), 2 * scale, 4)
        if spread == "pairs":
            return self._pair_spreads(grid)
        quantile = 0.841 if spread == "auto" else float(spread)
        ranks = self._ranks("spread", self.plan.size * grid.depth)
        found = self.rows.quantiles(2 * quantile - 1, grid, ranks.rows, self.source, centre=centre)
        return found / normal_tail(1 - quantile)

    def _pair_spreads(self, grid: DyadicGrid) -> Floats:
        ranks = self._ranks("spread", self.plan.size * grid.depth)
        return pair_deviations(self.rows, 1, grid, ranks.rows, self.source)

    def _weight(self, spreads: Floats) -> Floats:
        return np.asarray(spreads ** (-2 / (self.plan.p + 2)))

    def _best_mean(self, centre: Floats, weight: Floats, spreads: Floats) -> Floats:
        """Return the mean of rows clipped to the radius with the least error, or of the box where that has less.

        The search goes up to the widest norm, so that a spread that was not found does no harm. It aims at its own rank
        error, or at the number of clipped rows that is worth the noise, where that is more.
        """
        plan, rows = self.plan, self.rows
        usual = float(np.linalg.norm(spreads * weight))
        widest = float(np.linalg.norm((rows.high + np.abs(centre)) * weight))
        ratio = _norm(spreads, plan.p) / usual  # of the error in l_p to the norms that are clipped
        noise = self._noise_norm("noise", weight) / ratio
        grid = log_grid(min(usual, widest) / 16, widest * _ABOVE, 64)
        ranks, norms = self._ranks("radius", grid.depth), rows.norms(centre, weight)
        rank = min(max(ranks.rows * normal_tail(JUMPS / grid.depth), noise), plan.rows / 2)
        found = ranks.search(norms, grid, lambda _: rank, self.source)
        clipping = self._clipping(norms, found, rank, grid, widest, noise)
        stated = self._is_checked(norms, clipping, widest)
        return self._less_error(centre, weight, clipping, stated, ratio)

    def _clipping(
        self, norms: Floats, radius: float, rank: float, grid: DyadicGrid, widest: float, noise: float
    ) -> Clipping:
        """Return the radius with the least error, from one that about `rank` rows exceed and four noisy counts."""
        gap = 2 ** (1 / math.sqrt(self.plan.size))
        rare = radius <= first_point(grid)
        points = radius * (np.ones(4) if rare else np.array([1 / gap, 0.5 / gap, JUST_BELOW, BELOW]))
        ranks = self._ranks("tail", len(points))
        counts = ranks.counts(norms, points, self.source)
        if rare:
            return rare_clipping(radius, widest, float(counts.mean()), ranks.rows / 2, noise)
        near, far, tied, below = counts.tolist()
        above = (near - ranks.rows, far - ranks.rows)
        return best_clipping(NormTail(radius, rank, (gap, 2 * gap), above, tied, below - tied, widest), noise)

    def _is_checked(self, norms: Floats, clipping: Clipping, widest: float) -> bool:
        """Return whether no more rows are clipped than expected, by a noisy count."""
        ranks = self._ranks("check", 1)
        count = float(ranks.counts(norms, np.array([clipping.radius]), self.source)[0])
        return clipping.radius >= widest or count <= clipping.rows + _SURPRISING * ranks.rows

    def _less_error(self, centre: Floats, weight: Floats, clipping: Clipping, stated: bool, ratio: float) -> Floats:
        """Return the mean of clipped rows, or of the whole box if its noise is less: both are known before the draw."""
        size, width = self.plan.size, self.rows.high - self.rows.low
        box = width * math.sqrt(size) * size ** (1 / self.plan.p) / self._left_mu("noise")
        if box <= clipping.error * ratio:
            return self._box_mean("noise")
        return self._clipped_mean("noise", centre, weight, clipping.radius, clipping, stated)

    def _left_mu(self, step: str) -> float:
        return self.plan.mu * math.sqrt(self.plan.shares[step])

    def _noise_norm(self, step: str, weight: Floats) -> float:
        """Return about the l_p norm of the noise on sums of rows that are clipped to a norm of 1."""
        change = math.sqrt(2) if self.plan.nonnegative else 2.0
        return change / self._left_mu(step) * _norm(1 / np.abs(weight), self.plan.p)

    def _radius(self, centre: Floats, weight: Floats, spreads: Floats) -> float:
        """Return a norm that about sqrt(n) / 2 scaled rows exceed, and as many more as the search may be off.

        Half of what the thesis has: as good for rows that are spread evenly around their centre, better for others.
        """
        usual = float(np.linalg.norm(spreads * weight))
        widest = float(np.linalg.norm((self.rows.high + np.abs(centre)) * weight))
        grid = log_grid(usual / 16, max(usual, min(widest, usual * 2**12)), 64)
        ranks = self._ranks("radius", grid.depth)
        more = math.sqrt(self.plan.size / self.plan.mu**2 * 2) if self.plan.mode == "plain_scale" else 0.0
        allowed = math.sqrt(self.plan.rows) / 2 + ranks.rows * normal_tail(JUMPS / grid.depth) + more
        allowed = min(allowed, self.plan.rows / 2)
        return ranks.search(self.rows.norms(centre, weight), grid, lambda _: allowed, self.source)

    def _binary(self, known: Floats | None) -> Floats:
        """Return the mean by two stages: a rough one tells how often each coordinate is one, the second is scaled.

        Rows are taken around 0, and around 1 where ones are the rule, so that nothing is negative.
        """
        size = self.plan.size
        flat, zeros, half = np.ones(size), np.zeros(size), np.full(size, 0.5)
        if self.plan.mode == "plain_scale":
            return self._clipped_mean("noise", zeros, flat, self._balanced_radius("radius", zeros, flat, half)[0])
        if self.plan.mode == "shifted":
            return self._balanced_mean(zeros, flat, half)
        if known is None:
            radius, _, _ = self._balanced_radius("first radius", zeros, flat, half)
            rough = self._clipped_mean("first mean", zeros, flat, radius)
            deviation = float(self.last.deviations[0])
            centre = (rough > 0.5).astype(np.float64)
            often = np.maximum(np.abs(rough - centre), deviation / 2)
            self.spreads = np.sqrt(rough * (1 - rough))
        else:
            centre, often = zeros, np.maximum((1 - np.sqrt(np.maximum(0.0, 1 - 4 * known))) / 2, 1e-9)
            self.spreads = np.sqrt(known)
        self.centres = centre
        weight = often ** (-1 / (self.plan.p + 2)) * np.where(centre > 0, -1.0, 1.0)
        return self._balanced_mean(centre, weight, often)

    def _balanced_mean(self, centre: Floats, weight: Floats, often: Floats) -> Floats:
        """Return the mean of binary rows clipped to a balanced radius, or of the box where that has less error."""
        radius, rank, ratio = self._balanced_radius("radius", centre, weight, often)
        norms, noise = self.rows.norms(centre, weight), self._noise_norm("noise", weight) / ratio
        widest = float(np.linalg.norm(weight))
        clipping = self._clipping(norms, radius, rank, _grid_of_ones(weight), widest, noise)
        stated = self._is_checked(norms, clipping, widest)
        return self._less_error(centre, weight, clipping, stated, ratio)

    def _balanced_radius(self, step: str, centre: Floats, weight: Floats, often: Floats) -> tuple[float, float, float]:
        """Return the norm at which clipping more rows would add as much bias as it saves noise.

        Return also how many rows exceed it at most, and the ratio of the error in l_p to the norms that are clipped.

        With radius C the noise has the l_p norm A C. A clipped row of norm r loses (1 - C/r) of itself; a row has about
        r^2 times what a row of the mean has, over its squared norm: so it adds about r K per unit of C, for K the ratio
        of norms below. The balance is at k C K = A, for k rows that are clipped.
        """
        plan, share = self.plan, "first mean" if step == "first radius" else "noise"
        grid = _grid_of_ones(weight)
        ranks = self._ranks(step, grid.depth)
        noise = self._noise_norm(share, weight) * math.sqrt(2 / math.pi)
        ratio = _norm(often, plan.p) / float((weight**2 * often).sum())
        least = ranks.rows * normal_tail(JUMPS / grid.depth)

        def allowed(radius: float) -> float:
            return min(max(noise / (radius * ratio), least), 0.3 * plan.rows)

        found = ranks.search(self.rows.norms(centre, weight), grid, allowed, self.source)
        return found, allowed(found), ratio * found

    def _squares(self, step: str) -> int:
        """Return the mu^2 of a step, in units of 2^-58: its share, or for the last step all that the others leave."""
        mu, shares = self.plan.mu, self.plan.shares
        if step != "noise":
            return int(RANK_NOISE * mu * math.sqrt(shares[step])) ** 2
        left = int(RANK_NOISE * mu) ** 2 - sum(self._squares(other) for other in shares if other != "noise")
        return math.isqrt(left) ** 2  # a square, so that what is planned for a ledger is not less than what is drawn

    def _ranks(self, step: str, comparisons: int) -> NoisyRanks:
        made = NoisyRanks.within(self._squares(step), max(1, comparisons), step, delta=self.delta, unit=self.unit)
        self.made.append(made)
        return made

    def _noise(
        self, change: float, scale: float, steps: Floats, offsets: Floats, radius: float = 0.0, **interval: Any
    ) -> MeanNoise:
        low, high = self.rows.low, self.rows.high
        if not self.limited:
            low, high = -1e300, 1e300
        epsilon, delta = promised(scale, change, None, self.delta)
        made = MeanNoise(
            epsilon, delta, change, scale, tuple(steps.tolist()), tuple(offsets.tolist()),
            neighbours="replace", unit=self.unit, low=low, high=high, radius=radius, **interval,
            centres=_listed(self.centres), spreads=_listed(self.spreads),
        )  # fmt: skip
        self.made.append(made)
        return made

    def _norm(self, step: str) -> tuple[int, float, float]:
        """Return the largest whole radius of clipped rows, how far their sums move at most, and the scale of noise."""
        twice = 2 if self.plan.nonnegative else 4  # the square of the change, over that of the norm
        squares, halvings = self._squares(step), 0
        while (radius := math.isqrt(squares // twice >> 2 * halvings) // PARTS) > LARGEST_RADIUS:
            halvings += 1
        if not radius:
            raise InvalidValue("the budget is too small. Pass a larger rho or epsilon.")
        change = upper(lambda: (ball(twice) * (PARTS * radius) ** 2).sqrt())
        return radius, change, RANK_NOISE / 2**halvings

    def _clipped_mean(
        self, step: str, centre: Floats, weight: Floats, radius: float, clipping: Clipping | None = None,
        stated: bool = False,
    ) -> Floats:  # fmt: skip
        """Return the noisy mean of rows that are scaled around a centre and clipped to a norm.

        Without a `clipping` nothing is known of what that moves. With one, the radius has room for the rounding of rows
        and of the centre, so that no row at the radius is clipped.
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
            whole = PARTS * norm / radius
            rounding = PARTS * self.plan.rows / 2  # each row, at most
            interval |= {"bias": clipping.mean * whole + rounding, "bias_deviation": clipping.deviation * whole}
        made = self._noise(change, scale, steps, centre, radius, **interval)
        self.told += f"{'; ' if self.told else ''}{step}: rows clipped to a norm of {radius:.4g}"
        self.told += "; the interval assumes that norms fall off beyond it as they do before it" * stated
        return made.draw(sums, self.source)

    def _box_mean(self, step: str) -> Floats:
        """Return the noisy mean of rows in the box, all coordinates with the same noise."""
        size, squares, halvings = self.plan.size, self._squares(step), 0
        while (width := math.isqrt((squares >> 2 * halvings) // size) // 2 * 2) > 2**30:
            halvings += 1
        lows, highs = np.full(size, self.rows.low), np.full(size, self.rows.high)
        grid = BoxGrid(lows, highs, (highs - lows) / max(width, 1), "replace")
        if not width or sum(change * change for change in grid.changes.tolist()) > squares >> 2 * halvings:
            raise InvalidValue("the budget is too small. Pass a larger rho or epsilon.")
        change = l2_distance(tuple(grid.changes.tolist()))
        sums, scale = grid.sums(self.rows.values), RANK_NOISE / 2**halvings
        made = self._noise(change, scale, grid.steps / self.plan.rows, grid.origins)
        self.told += f"{'; ' if self.told else ''}{step}: no row is clipped"
        return made.draw(sums, self.source)


def _grid_of_ones(weight: Floats) -> DyadicGrid:
    """Return a grid from below the norm of every weighted binary row but zeros to above the largest one."""
    return log_grid(float(np.abs(weight).min()) / 2, float(np.linalg.norm(weight)) * _ABOVE, 64)


def _listed(values: Floats | None) -> tuple[float, ...]:
    return () if values is None else tuple(values.tolist())


def _norm(values: Floats, p: float) -> float:
    """Return the l_p norm of positive numbers, also where their powers are beyond floats."""
    largest = float(values.max())
    return largest * float(np.linalg.norm(values / largest, p))


def pair_deviations(rows: BoundedRows, pairs: int, grid: DyadicGrid, sigma: float, source: Source) -> Floats:
    """Return a private standard deviation for each column: Algorithm 18, with groups of `pairs` pairs of rows.

    A pair has (x - y)^2 / 2 with mean sigma^2. Their mean over a group is, for Gaussian rows, chi-square with k = pairs
    degrees of freedom, over k; its mean is its median over (1 - 2/(9k))^3. The grid is for the root mean square of the
    differences x - y. The cost is that of a search in each column, see `search_columns`: a row is in one group.
    """
    medians = rows.pair_quantiles(0.5, pairs, grid, sigma, source)
    return np.asarray(medians / math.sqrt(2 * (1 - 2 / (9 * pairs)) ** 3))
