"""Many quantiles by slices with noisy ranks (after Imola and others, NeurIPS 2025), for (epsilon, delta) privacy.

The target ranks of m quantiles get correlated noise: every step from one rank to the next gets discrete Laplace noise
of scale s, so that R_i, the i-th noisy rank, has the sum of i draws. Then a point k is picked for each rank with
probability proportional to e^(-c u(k)), where u(k) = min(l, max(0, #(rows < k) - R, R - #(rows <= k))): how many rows
it is off, but at most l. So a pick looks at a slice of 2 l rows only. Unlike with halving, a row takes part in few
picks however many quantiles there are, and the cost of moved ranks is that of two steps.

Privacy, when a row x is replaced by y. Let y >= x (else reverse the order of all points: u, and what is used of the
noise, stay the same). Let x be the a-th row of X, the first of those equal to it, and y the b-th of X', the last of
those equal to it. #(X' <= k) is #(X <= k) - 1 for x <= k < y, and the same elsewhere. Compare the picks of X' for ranks
R' with those of X for ranks R. For one rank:

    R = R':      u is the same except for x <= k <= y. If R' < a all of these are above the rank, if R' >= b all below,
                 so that all change in the same direction, by at most 1: the loss of the pick is at most c. Else it is
                 at most 2c. If R' < a - l or R' >= b + l, nothing changes, as u = l there.
    R = R' + 1:  u is the same for x < k < y. If a <= R' < b, points up to x are below the rank and those from y on
                 above it: the loss is at most c for each side, and 0 for the side up to x if R' >= a + l - 1, for that
                 from y on if R' < b - l.

Let all steps between ranks R' be at least 2 l (what fails is in delta), so that at most one R' is in a - l, ...,
a + l - 1, and at most one in b - l, ..., b + l - 1. If b - a < l take R = R'. Only ranks from a - l to b + l - 1
matter; there is one, with a loss of at most 2c, or two, one below a and one from b on, with at most c each. Else choose
one of the l numbers t = b - l + 1, ..., b at random; ranks R' from a to t - 1 move up by 1, others stay. A rank near a
loses c; one near b loses c too, or 2c if it stays although below b: 3c in all. At most two steps change, by 1 each:
e^(2/s) for the noise. For one t, ranks R come from one R', or two if a rank is t; with steps of 2 l - 1 or more at most
one rank is among the l numbers, so over all t each R counts at most 1 + 1/l times. So P'(O) <= e^epsilon P(O) + delta
for every set O of outputs, with

    epsilon = 2/s + 3 c + ln(1 + 1/l),   delta = the probability that a step is less than 2 l.

l is such that a pick outside of its slice is unlikely: e^(-c l) times the size of the grid and m is at most 0.025.
That compares with a point of u = 0, which exists for ranks from 0 to n. For a rank of n + v, or -v, the least u is v,
so l is larger by the largest v that the noise is likely to give: 0 unless a target is near 0 or n.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import Ball, ball, lower, upper
from dpsieve.numbers.gaps import segments
from dpsieve.numbers.grid_quantiles import UNCERTAIN, GridQuantiles
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import discrete_laplace, laplace_scale
from dpsieve.randomness.picks import uniform_integers, weighted_pick
from dpsieve.randomness.source import Source
from dpsieve.types import Ints

_NOISE_SHARE, _LEAST_PICK_SHARE, _LOG_SHARE = 0.6, 0.38, 0.02  # of epsilon; the last is for ln(1 + 1/l) < 1/l
_MOST_ROWS = 2**40


@register("slice_quantiles")
@dataclass(frozen=True, repr=False)
class SliceQuantiles(GridQuantiles):
    """Two or more quantiles from slices around noisy ranks, when one row is replaced; see the head of this module.

    Attributes:
        rows: how many rows there are: public.
        step_scale: s, the scale of the noise of a step between ranks.
        rate: c of the picks.
        half: l, half the length of a slice.

    >>> made = SliceQuantiles(1.0, tuple(i / 20 for i in range(1, 20)), 0.0, 100.0, rows=50_000, delta=1e-10,
    ...     neighbours="replace")
    >>> made.half, round(made.step_scale, 2), round(made.rate, 3), made.certify().worst < 1e-10
    (226, 3.33, 0.132, True)
    """

    rows: int = 0

    def __post_init__(self) -> None:
        hint = "Pass the public number of rows, or method='halving'."
        validate.store(self, rows=validate.whole("rows", self.rows, low=1, high=_MOST_ROWS, hint=hint))
        super().__post_init__()
        if self.neighbours != "replace" or self.rows_per_unit != 1:
            raise InvalidValue("slices need neighbours='replace' and one row for each unit. Pass method='halving'.")
        if self.rho or not self.delta or len(self.shares) < 2:
            raise InvalidValue("slices need epsilon, delta and two quantiles or more. Pass method='halving'.")
        if self.miss_chance > self.delta:
            raise InvalidValue("slices of neighbouring quantiles would overlap. Pass method='halving', or more rows.")

    @cached_property
    def half(self) -> int:
        """How many rows a slice has on each side of its rank; more if noise may put a rank below 0 or above n."""
        room = [min(target, self.rows - target) for target in self.targets]
        beyond = max(0.0, *(noise - rows for noise, rows in zip(self.noise_bounds, room, strict=True)))
        return math.ceil(max(self._pick_chance * 3 / _LEAST_PICK_SHARE, 1 / _LOG_SHARE) / self.epsilon + beyond)

    @cached_property
    def step_scale(self) -> float:
        """The scale of the noise of a step between ranks."""
        return laplace_scale(_NOISE_SHARE * self.epsilon, 2)

    @cached_property
    def rate(self) -> float:
        """What a row that a point is off costs in the exponent of its probability."""
        return lower(lambda: (ball(self.epsilon) - self._noise_loss() - _log_more(self.half)) / 3)

    @cached_property
    def targets(self) -> list[int]:
        """The ranks without noise."""
        return [math.floor(share * self.rows) for share in self.shares]

    @cached_property
    def miss_chance(self) -> float:
        """The probability that a step between ranks is less than the length of a slice, rounded up.

        Discrete Laplace noise is -t or less with probability e^(-t/s) / (1 + e^(-1/s)), for t > 0.
        """
        room = [int(step) - 2 * self.half + 1 for step in np.diff(self.targets)]
        if min(room) < 1:
            return 1.0
        least, times = np.unique(room, return_counts=True)
        pairs = list(zip(least.tolist(), times.tolist(), strict=True))
        scale = self.step_scale
        tail = upper(
            lambda: (
                sum(((-ball(t) / ball(scale)).exp() * many for t, many in pairs), ball(0))
                / (1 + (-1 / ball(scale)).exp())
            )
        )
        return min(1.0, tail)

    @cached_property
    def noise_bounds(self) -> tuple[float, ...]:
        """How far the noise moves each rank at most, all of them with probability 0.975.

        The sum of i draws is beyond r with probability at most 2 e^(-h r) E[e^(h Z)]^i for every h; here
        h is 0.6 / s at most.
        """
        found, bound = [], math.log(4 * len(self.shares) / UNCERTAIN)
        for i in range(1, len(self.shares) + 1):
            h = min(0.6, math.sqrt(bound / i))  # in units of 1/s, where E[e^(hZ)] <= 1 / (1 - h^2)
            found.append((bound - i * math.log1p(-(h**2))) / h * self.step_scale)
        return tuple(found)

    @cached_property
    def rank_errors(self) -> tuple[float, ...]:
        """How many rows each value is off at most, all of them with probability 0.95.

        All noise is within its bounds with probability 0.975, and then all picks are within their slices with
        probability 0.975. A pick for the rank n + v may be off by v more, but the target is lower by v at least.
        """
        picks = self._pick_chance / self.rate
        return tuple(float(math.ceil(noise + picks + 1)) for noise in self.noise_bounds)

    @property
    def typical_error(self) -> float:
        """About how many rows the values are off: the farthest of a random walk, and of the picks, as simulated.

        Targets at 0 and n change little, as slices are long enough there too.
        """
        return 1.65 * math.sqrt(2 * len(self.shares)) * self.step_scale + 2.2 / self.rate

    def certify(self) -> Certificate:
        """Return the certificate: the draws are exact, and losses are added with bounds rounded up."""
        spent = upper(lambda: self._noise_loss() + 3 * ball(self.rate) + _log_more(self.half))
        kept = spent <= self.epsilon and self.rate > 0
        return formula(self.guarantee, self.miss_chance if kept else 1.0, "balls", f"{self.size:,} picks from slices")

    def draw_sorted(self, rows: Ints, source: Source) -> Ints:
        """Return a point for each of `shares`, in order, from the sorted points of the rows."""
        if len(rows) != self.rows:
            raise InvalidValue("rows is not the number of rows. Pass the public number of rows.")
        noise = np.cumsum(discrete_laplace(self.step_scale, len(self.targets), source=source))
        return np.sort([self._pick(rows, int(rank), source) for rank in self.targets + noise])

    def _pick(self, rows: Ints, rank: int, source: Source) -> int:
        start, stop = (min(max(rank + move, 0), len(rows)) for move in (-self.half, self.half))
        starts, lengths, misses = segments(rows[start:stop], 0, self.grid.size - 1, Fraction(1), rank - start)
        misses = np.minimum(misses, self.half)
        misses -= misses[lengths > 0].min()  # above 0 where the rank is below the first row or above the last
        at = weighted_pick(lengths, misses, self.rate, 1, source)
        return int(starts[at] + uniform_integers(1, int(lengths[at]), source)[0])

    @property
    def _pick_chance(self) -> float:
        """For c times the rows that a pick is off: no pick exceeds it, with probability 0.975."""
        return math.log(len(self.shares) * self.grid.size * 2 / UNCERTAIN)

    def _noise_loss(self) -> Ball:
        return 2 / ball(self.step_scale)


def _log_more(half: int) -> Ball:
    return (1 + 1 / ball(half)).log()
