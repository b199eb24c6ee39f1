"""How a private mean spends its budget, decided from public numbers alone: the plan, and a preview of it.

A budget is a mu of Gaussian privacy, and mu^2 = 2 rho is what the steps share. A search that compares ranks m times
with noise of s rows costs m / s^2. A search for d medians goes wrong, badly, where noise exceeds about half of the
rows, so that its noise must be a small part of them: its share follows from n, d and the depth of the search, whatever
the data are. What is left goes to the noise on the mean.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from dpsieve import validate
from dpsieve.accounting.renyi import zcdp_rho
from dpsieve.errors import InvalidValue
from dpsieve.numbers.norm_noise import budget_mu, moment
from dpsieve.numbers.ranks import normal_tail

MODES = ("best", "thesis", "shifted", "rotated", "plain_scale", "gaussian")
KINDS = ("real", "binary")
SMALLEST_SPREAD = 2.0**-20  # of the bound: below it, rows count as alike
FAILS = 0.01  # the chance that any search ends far off, where a plan is useful
THESIS_FAILS = 0.1  # beta, which the thesis leaves open; its authors' experiments have 0.1
JUMPS = 1e-4  # the chance that noise makes a radius jump above all rows
_ROOM = 1 - 2.0**-30  # of mu; what is left out covers the margins of composition
_LEAST_NOISE_SHARE = 0.3
_FARTHEST = 0.05  # of all rows: so many may be clipped by mistake
_THESIS = {"centre": 0.0625, "spread": 0.1875, "radius": 0.1875, "noise": 0.5625}
_STEPS = {
    ("real", "best"): ("scale", "centre", "spread", "radius", "tail", "check"),
    ("real", "thesis"): ("centre", "spread", "radius"),
    ("real", "shifted"): ("scale", "centre", "radius", "tail", "check"),
    ("real", "rotated"): ("scale", "centre", "radius"),
    ("real", "plain_scale"): ("scale", "centre", "radius"),
    ("binary", "best"): ("first radius", "first mean", "radius", "tail", "check"),
    ("binary", "thesis"): ("centre", "spread", "radius"),
    ("binary", "shifted"): ("radius", "tail", "check"),
    ("binary", "rotated"): ("scale", "centre", "radius"),
    ("binary", "plain_scale"): ("radius",),
}
_MOST_ROWS = 2**33
# Of what is searched for, how many rows off is still good, as a share of all rows.
_TOLERANCE = {"scale": 0.1, "centre": 0.3, "spread": 0.2}


@dataclass(frozen=True)
class MeanPlan:
    """What a private mean will do, and how well it can do at best; made by `preview_mean`, and spends nothing.

    Attributes:
        rows, size: the numbers of rows and coordinates.
        bound: of the coordinates.
        mu: the budget, in Gaussian privacy.
        p: the moment of the error that is made small.
        kind, mode: see `private_mean`.
        known: whether variances are given.
    """

    rows: int
    size: int
    bound: float
    mu: float
    p: float = 2.0
    kind: str = "real"
    mode: str = "best"
    known: bool = False

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of mu^2 (so of rho) of each step, in order; they add up to 1, and the last is the noise.

        The noise may be below zero: then the steps before it cannot be paid for.
        """
        steps = [step for step in _STEPS.get((self.kind, self.mode), ()) if not (self.known and step in _ESTIMATES)]
        steps = [] if self.boxed else steps
        if self.mode == "thesis":
            parts = {step: _THESIS[step] for step in steps}
        else:
            parts = {step: self._share(step) for step in steps}
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
            most = _TOLERANCE[step] * max(1, self.rows) / normal_tail(FAILS / 4 / count)
            return max(0.01 if step != "scale" else 0.001, count / most**2 / squares)
        # A radius should be right to a part of sqrt(n) rows, the number that is clipped, where that is cheap.
        part, most = (8, 0.02) if self.kind == "binary" else (2, 0.05)
        tail, rows = normal_tail(JUMPS / count), max(1, self.rows)
        wanted, needed = (count * (tail / off) ** 2 / squares for off in (math.sqrt(rows) / part, _FARTHEST * rows))
        usual = min(most, wanted)
        if self.states_interval and step == "radius":
            # Noise on d coordinates outweighs about 4 sqrt(d) / mu clipped rows: a rank error near that is good enough.
            few = min(0.06, count * (tail / 6) ** 2 / self.size)
            usual = few if self.kind == "real" else max(usual, few)
        return min(0.2, max(needed, usual))

    def comparisons(self, step: str) -> int:
        """At most how many ranks a step compares."""
        size = max(2, self.size)
        if step == "scale":
            return 9
        if step in ("tail", "check"):
            return 4 if step == "tail" else 1
        if step == "spread":
            return self.size * _spread_depth(size)
        if step == "centre":
            return self.columns * self._centre_depth
        return 13

    @property
    def columns(self) -> int:
        """In how many columns medians are searched: a rotation pads them to a power of two."""
        return 1 << (self.size - 1).bit_length() if self.mode == "rotated" else self.size

    @property
    def _centre_depth(self) -> int:
        # From twice the bound, times sqrt(d) where rotated, to a part of the spread of a coordinate.
        parts = 2 * self.size if self.mode == "best" else 4 * math.sqrt(self.size)
        wide = math.sqrt(self.size) if self.mode == "rotated" else 1.0
        return min(40, math.ceil(math.log2(2 * wide * parts / SMALLEST_SPREAD)) + 1)

    @property
    def boxed(self) -> bool:
        """Whether rows get the noise of the whole box, by public numbers: no radius could make it smaller by much.

        Two binary rows are sqrt(d) apart at most, and sqrt(2) radii where they are clipped to a radius, from 1 on.
        """
        return self.mode == "gaussian" or (self.mode == "best" and self.kind == "binary" and self.size <= 4)

    @property
    def states_interval(self) -> bool:
        """Whether the result has 95 % intervals for the mean of the rows."""
        return self.mode in ("best", "shifted", "gaussian")

    @property
    def useful(self) -> bool:
        """Whether searches find what they look for, and enough of the budget is left for the noise."""
        if self.boxed:
            return True
        if self.rows < 4 or self.shares["noise"] < _LEAST_NOISE_SHARE:
            return False
        if self.mode == "thesis":
            return self._picks_hold and self.noise_per_radius * math.sqrt(self.size) < 1
        radii = [step for step in self.shares if "radius" in step]
        off = [self.rank_noise(step) * normal_tail(JUMPS / self.comparisons(step)) / self.rows for step in radii]
        if any(one > _FARTHEST * 1.001 for one in off):
            return False
        return self.noise_per_radius * math.sqrt(self.size) < 1

    def picks(self, step: str) -> int:
        """How many quantiles mode 'thesis' picks in a step; 0 where it adds noise instead."""
        if step == "radius":
            return 1
        return self.size if step == "centre" or (step == "spread" and self.kind == "real") else 0

    @property
    def thesis_clipped(self) -> float:
        """How many rows mode 'thesis' clips: k = sqrt(n) + the rank error of Lemma 5.4, for T = ln(2 bound)."""
        depth = max(2.0, math.log(2 * self.bound)) if self.kind == "real" else 2.0
        share = self.mu**2 / 2 * self.shares["radius"]
        off = math.sqrt(depth * math.log(3 * depth / THESIS_FAILS) / (2 * share))
        return min(math.sqrt(max(1, self.rows)) + off, self.rows / 2)

    @property
    def _picks_hold(self) -> bool:
        """Whether hardly any pick ends outside of all rows, were every coordinate of a standard deviation of 1.

        There u is half of the rows, so that the chance is about length * e^(-e rows / 4) over what the gaps near the
        quantile weigh, 4 / (rows * e / 2).
        """
        if self.thesis_clipped > math.sqrt(self.rows) + _FARTHEST * self.rows:
            return False
        lengths = {"centre": (1, 2 * self.bound), "spread": (2, 2 * self.bound**2)} if self.kind == "real" else {}
        for step, (rows_each, length) in lengths.items():
            if step in self.shares:
                rate = math.sqrt(self.mu**2 * self.shares[step] / self.picks(step))  # e / 2
                reach = rate * self.rows / rows_each
                if math.log(self.size * length * max(1.0, reach) / 4 / (FAILS / 4)) > reach / 2:
                    return False
        return True

    def rank_noise(self, step: str) -> float:
        """The deviation of the noise on the ranks of a step, in rows."""
        return math.sqrt(self.comparisons(step) / self.shares[step]) / self.mu

    @property
    def noise_per_radius(self) -> float:
        """The deviation of the noise on one scaled coordinate of the mean, where rows are clipped to norm 1."""
        change = 2**0.5 if self.nonnegative else 2.0
        return change / (max(1, self.rows) * self.mu * math.sqrt(max(self.shares["noise"], 1e-12)))

    @property
    def nonnegative(self) -> bool:
        """Whether scaled rows have no negative coordinate, so that two differ by sqrt(2) times their norm at most."""
        return self.kind == "binary" and self.mode in ("best", "shifted", "plain_scale")

    @cached_property
    def rows_needed(self) -> int | None:
        """The least number of rows for which the plan is useful; None where that is beyond all data."""
        low, high = 1, _MOST_ROWS
        if not self._with(high).useful:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._with(middle).useful else (middle + 1, high)
        return low

    def _with(self, rows: int) -> "MeanPlan":
        return MeanPlan(rows, self.size, self.bound, self.mu, self.p, self.kind, self.mode, self.known)

    @property
    def errors(self) -> dict[str, float]:
        """The two terms of the error in l_p norm, were every coordinate of a standard deviation of 1 (0.5 for binary).

        'sampling' is that of the mean of the rows themselves, 'noise' what privacy adds. Skew makes the second smaller.
        """
        spread, rows = 0.5 if self.kind == "binary" else 1.0, max(1, self.rows)
        norm = (_absolute_moment(self.p) * self.size) ** (1 / self.p)
        if self.boxed:
            noise = (1.0 if self.kind == "binary" else 2 * self.bound) / (rows * self.mu)
        else:
            noise = self.noise_per_radius * (math.sqrt(0.5) if self.kind == "binary" else 1.0)
        return {"sampling": norm * spread / math.sqrt(rows), "noise": norm * noise * math.sqrt(self.size)}

    def __str__(self) -> str:
        spent = ", ".join(f"{step} {share:.1%}" for step, share in self.shares.items())
        if not self.useful:
            needed = f"{self.rows_needed:,} rows are needed" if self.rows_needed else "no number of rows is enough"
            return f"mode {self.mode}: not useful, {needed} for {self.size:,} coordinates at rho={self.mu**2 / 2:.4g}"
        terms = ", ".join(f"{name} {value:.3g}" for name, value in self.errors.items())
        return f"mode {self.mode}: {spent}; error in l_{self.p:g} where deviations are 1: {terms}"


_ESTIMATES = ("spread", "first mean", "first radius")


def preview_mean(
    n: int,
    d: int,
    *,
    bound: float | None = None,
    rho: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    p: float = 2.0,
    kind: str,
    mode: str = "best",
    variances_known: bool = False,
) -> MeanPlan:
    """Return what `private_mean` would do with n rows of d coordinates, from public numbers; it spends nothing.

    See `useful`, `rows_needed`, `shares` and `errors` of the result, or print it.

    >>> print(preview_mean(10_000, 256, bound=100.0, rho=0.5, kind="real"))
    mode best: scale 0.1%, centre ...
    >>> preview_mean(1_000, 256, bound=100.0, rho=0.5, kind="real").rows_needed
    2...
    """
    n = validate.whole("n", n, low=0, high=_MOST_ROWS, hint="Pass the number of rows.")
    d = validate.whole("d", d, low=1, high=10**6, hint="Pass the number of coordinates.")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidValue("kind is not known. Choose 'real', or 'binary' for rows of zeros and ones.")
    if not isinstance(mode, str) or mode not in MODES:
        raise InvalidValue(f"mode is not known. Choose one of {', '.join(MODES)}.")
    if moment(p) < 1:
        raise InvalidValue("p is below 1, where there is no norm. Pass p=2 (squared error) or p=1.")
    hint = "Pass a public number, above zero, that no coordinate exceeds in size; such as bound=100.0."
    if kind == "binary" and bound is not None:
        raise InvalidValue("bound has no use for kind='binary', whose rows are in [0, 1]. Leave it out.")
    bound = validate.between("bound", 1.0 if bound is None else bound, 1e-100, 1e100, hint=hint)
    if (rho is None) == (epsilon is None):
        raise InvalidValue("exactly one of rho and epsilon is the budget. Pass rho=0.5, or epsilon=1.0 with delta.")
    if mode == "thesis" and epsilon is not None and delta is not None:  # picks are concentrated, but not Gaussian
        rho, epsilon = zcdp_rho(validate.positive_epsilon(epsilon), delta), None
    return MeanPlan(n, d, bound, _ROOM * budget_mu(rho, epsilon, delta), moment(p), kind, mode, bool(variances_known))


def _spread_depth(size: int) -> int:
    return math.ceil(math.log2(4 * math.ceil(math.log2(40 * size)) + 1))


def _absolute_moment(p: float) -> float:
    return 2 ** (p / 2) * math.gamma((p + 1) / 2) / math.sqrt(math.pi)
