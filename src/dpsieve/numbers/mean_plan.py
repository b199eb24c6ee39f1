"""The plan of a private mean, made from public numbers alone: how its budget is spent, and a preview of its error.

A budget is a mu of Gaussian privacy, and the steps share mu^2 = 2 rho. A search that compares ranks m times with noise
of s rows costs m / s^2. A search for d medians fails badly where noise exceeds about half of the rows, so its noise
must be a small part of them: its share follows from n, d and the depth of the search, for all data. The remaining share
is for the noise on the mean.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, get_args

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.numbers.noise import budget_mu, check_moment, gaussian_moment, gaussian_promise
from dpsieve.numbers.search import RANK_NOISE, NoisyRanks, normal_tail
from dpsieve.privacy.mechanism import Composed, Mechanism, Use
from dpsieve.validate import RowKind

KINDS: tuple[RowKind, ...] = get_args(RowKind)
SMALLEST_SPREAD = 2.0**-20  # of the bound: below it, rows count as equal
FAILURE = 0.01  # the probability that any search ends far off, where a plan is useful
JUMP = 1e-4  # the probability that noise makes a radius jump above all rows
MOST_CLIPPED = 0.05  # of all rows: the share that a search for a radius may clip by mistake
_MARGIN = 1 - 2.0**-30  # of mu; covers the margins of composition
_LEAST_NOISE_SHARE = 0.3
_MOST_ROWS = 2**33
_STEPS = {
    "real": ("scale", "centre", "spread", "radius", "tail", "check"),
    "binary": ("first radius", "first mean", "radius", "tail", "check"),
}
_TOLERANCE = {"scale": 0.1, "centre": 0.3, "spread": 0.2}  # the tolerated rank error of a search, of all rows


@dataclass(frozen=True)
class MeanPlan:
    """The steps of a private mean, and its least error; made by `make`, and spends nothing.

    Attributes:
        rows, size: the numbers of rows and coordinates.
        bound: of the coordinates.
        mu: the budget, in Gaussian privacy.
        p: the moment of the error that is minimised.
        kind: 'real' or 'binary'.
    """

    rows: int
    size: int
    bound: float
    mu: float
    p: float = 2.0
    kind: RowKind = "real"

    @classmethod
    def make(
        cls, n: int, d: int, *, bound: float | None, rho: float | None, epsilon: float | None, delta: float | None,
        p: float, kind: RowKind,
    ) -> Self:  # fmt: skip
        """Return the plan for n rows of d coordinates, from public numbers.

        All coordinates are clipped to [-bound, bound], by default with bound 1. Binary rows have no bound: other
        numbers are clipped to [0, 1] there, and those between are not refused, as that would reveal one row. The
        epsilon of a zCDP budget is stated at `delta` (default 10^-6). p is the norm of the error, from 1.
        """
        n = validate.whole("n", n, low=0, high=_MOST_ROWS, hint="Pass the number of rows.")
        d = validate.whole("d", d, low=1, high=10**6, hint="Pass the number of coordinates.")
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidValue("kind is not known. Choose 'real', or 'binary' for rows of zeros and ones.")
        if check_moment(p) < 1:
            raise InvalidValue("p is below 1, where there is no norm. Pass p=2 (squared error) or p=1.")
        hint = "Pass a public number, above zero, that no coordinate exceeds in size; such as bound=100.0."
        if kind == "binary" and bound is not None:
            raise InvalidValue("bound has no use for kind='binary', whose rows are in [0, 1]. Leave it out.")
        bound = validate.between("bound", 1.0 if bound is None else bound, 1e-100, 1e100, hint=hint)
        if (rho is None) == (epsilon is None):
            raise InvalidValue("the budget must be either rho or epsilon. Pass rho=0.5, or epsilon=1.0 with delta.")
        return cls(n, d, bound, _MARGIN * budget_mu(rho, epsilon, delta), check_moment(p), kind)

    def promise(self, epsilon: float | None, delta: float | None) -> tuple[float, float]:
        """Return the (epsilon, delta) of all steps together."""
        return gaussian_promise(1.0, self.mu, epsilon, delta)

    def cost(self, promise: tuple[float, float], unit: str) -> Mechanism:
        """Return a mechanism that costs what the plan costs; the drawn ones may cost a rounding less."""
        return compose(promise, [self.mechanism(step, promise[1], unit) for step in self.shares])

    def mechanism(self, step: str, delta: float, unit: str) -> Mechanism:
        """Return a mechanism that costs what a step costs."""
        return NoisyRanks.within(self.squares(step), 1, step, delta=delta, unit=unit)

    def squares(self, step: str) -> int:
        """Return the mu^2 of a step, in units of 2^-58: its share, or for the last step what the others leave."""
        if step != "noise":
            return int(RANK_NOISE * self.mu * math.sqrt(self.shares[step])) ** 2
        left = int(RANK_NOISE * self.mu) ** 2 - sum(self.squares(other) for other in self.shares if other != "noise")
        return math.isqrt(left) ** 2  # a square, so that the planned cost is not below the drawn one

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps before the noise."""
        return () if self.boxed else _STEPS[self.kind]

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of mu^2 (so of rho) of each step, in order; they add up to 1, and the last is the noise.

        The noise may be below zero: then the steps before it cannot be paid for.
        """
        parts = {step: self._share(step) for step in self.steps}
        return {**parts, "noise": 1 - math.fsum(parts.values())}

    def _share(self, step: str) -> float:
        squares = self.mu**2
        if step == "first mean":
            return 0.05
        if step == "tail":  # counts with noise of about a fifth of the rank error of the radius
            return self._share("radius") / 3
        if step == "check":
            return self._share("radius") / 2
        count = self.comparisons(step)
        if step in _TOLERANCE:
            most = _TOLERANCE[step] * max(1, self.rows) / normal_tail(FAILURE / 4 / count)
            return max(0.01 if step != "scale" else 0.001, count / most**2 / squares)
        # The rank error of a radius should be a part of sqrt(n), the number of clipped rows, where that is cheap.
        part, most = (8, 0.02) if self.kind == "binary" else (2, 0.05)
        tail, rows = normal_tail(JUMP / count), max(1, self.rows)
        wanted, needed = (count * (tail / off) ** 2 / squares for off in (math.sqrt(rows) / part, MOST_CLIPPED * rows))
        usual = min(most, wanted)
        if step == "radius":
            usual = self._radius_share(usual, count * (tail / 6) ** 2 / self.size)
        return min(0.2, max(needed, usual))

    def _radius_share(self, usual: float, enough: float) -> float:
        # Noise on d coordinates outweighs about 4 sqrt(d) / mu clipped rows: a rank error near that is good enough.
        few = min(0.06, enough)
        return few if self.kind == "real" else max(usual, few)

    def comparisons(self, step: str) -> int:
        """Return the largest number of ranks that a step compares."""
        if step == "scale":
            return 9
        if step in ("tail", "check"):
            return 4 if step == "tail" else 1
        if step == "spread":
            return self.size * math.ceil(math.log2(4 * math.ceil(math.log2(40 * max(2, self.size))) + 1))
        return self._centre_comparisons if step == "centre" else 13

    @property
    def _centre_comparisons(self) -> int:
        # From twice the bound to a part of the spread of a coordinate.
        return self.size * min(40, math.ceil(math.log2(4 * self.size / SMALLEST_SPREAD)) + 1)

    @property
    def boxed(self) -> bool:
        """Whether rows get the noise of the whole box, by public numbers: no radius could make it much smaller.

        Two binary rows are sqrt(d) apart at most, and sqrt(2) radii where they are clipped to a radius, from 1 on.
        """
        return self.kind == "binary" and self.size <= 4

    @property
    def useful(self) -> bool:
        """Whether searches succeed, and enough of the budget is left for the noise."""
        if self.boxed:
            return True
        if self.rows < 4 or self.shares["noise"] < _LEAST_NOISE_SHARE:
            return False
        return self._searches_succeed and self.noise_per_radius * math.sqrt(self.size) < 1

    @property
    def _searches_succeed(self) -> bool:
        radii = [step for step in self.shares if "radius" in step]
        off = [self.rank_noise(step) * normal_tail(JUMP / self.comparisons(step)) / self.rows for step in radii]
        return max(off) <= MOST_CLIPPED * 1.001

    def rank_noise(self, step: str) -> float:
        """Return the deviation of the noise on the ranks of a step, in rows."""
        return math.sqrt(self.comparisons(step) / self.shares[step]) / self.mu

    @property
    def noise_per_radius(self) -> float:
        """The deviation of the noise on one scaled coordinate of the mean, where rows are clipped to norm 1."""
        change = 2**0.5 if self.nonnegative else 2.0
        return change / (max(1, self.rows) * self.mu * math.sqrt(max(self.shares["noise"], 1e-12)))

    @property
    def nonnegative(self) -> bool:
        """Whether scaled rows have no negative coordinate, so that two differ by sqrt(2) times their norm at most."""
        return self.kind == "binary"

    @cached_property
    def rows_needed(self) -> int | None:
        """The least number of rows for which the plan is useful; None where no data are that large."""
        low, high = 1, _MOST_ROWS
        if not replace(self, rows=high).useful:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if replace(self, rows=middle).useful else (middle + 1, high)
        return low

    @property
    def errors(self) -> dict[str, float]:
        """The two terms of the error in l_p norm, if all coordinates had a standard deviation of 1 (0.5 for binary).

        'sampling' is the error of the mean of the rows itself, 'noise' that of privacy. Skew makes the second smaller.
        """
        spread, rows = 0.5 if self.kind == "binary" else 1.0, max(1, self.rows)
        norm = (gaussian_moment(self.p) * self.size) ** (1 / self.p)
        if self.boxed:
            noise = (1.0 if self.kind == "binary" else 2 * self.bound) / (rows * self.mu)
        else:
            noise = self.noise_per_radius * (math.sqrt(0.5) if self.kind == "binary" else 1.0)
        return {"sampling": norm * spread / math.sqrt(rows), "noise": norm * noise * math.sqrt(self.size)}

    @property
    def title(self) -> str:
        """The name of the method."""
        return "PLAN"

    def __str__(self) -> str:
        spent = ", ".join(f"{step} {share:.1%}" for step, share in self.shares.items())
        if not self.useful:
            needed = f"{self.rows_needed:,} rows are needed" if self.rows_needed else "no number of rows is enough"
            return f"{self.title}: not useful, {needed} for {self.size:,} coordinates at rho={self.mu**2 / 2:.4g}"
        terms = ", ".join(f"{name} {value:.3g}" for name, value in self.errors.items())
        return f"{self.title}: {spent}; error in l_{self.p:g} where deviations are 1: {terms}"


def compose(promise: tuple[float, float], parts: list[Mechanism]) -> Mechanism:
    """Return mechanisms that are drawn from in sequence as one."""
    return parts[0] if len(parts) == 1 else Composed(*promise, tuple(Use(part) for part in parts))
