"""Find keys with what units do not need for counts: one with few keys spends most of epsilon on finding one of them.

A unit is counted in at most M keys; let q = M - 1. One that holds d keys, d below M, adds M - d to the *first sum* of
one of its keys, which a salted hash chooses; other units add nothing there. A channel reports some keys from these
sums, with a token for each. Then every unit is counted in its keys that were reported, in at most M of them, those with
the largest tokens (ties in the order of keys): it adds q to the *second sum* of each, but to the key of its first sum
only d - 1, which is what is missing. Second sums get discrete Laplace noise of scale M q / epsilon. Both sums of a key
together are q times the number of units that are counted in it: all that hold it, where no unit holds more than M keys.

Proof of privacy. Neighbours are add/remove of a unit with d keys. Its d, its key of step one and what it adds depend on
its own keys, on the salt and, in step two, on the tokens of step one. The channel is (e, s)-private for a change by 1,
with e = epsilon / q.

- Step one: a change by w = M - d is w changes by 1, so it is (w e, s (1 + e^e + ... + e^((w - 1) e)))-private. The
  second number is largest for d = 1, and s is chosen such that it is delta there.
- Step two, given any tokens: if d < M, at most d - 1 sums change by q and one by d - 1, in all by M (d - 1); otherwise
  at most M sums change by q. So it is (min(d, M) - 1) e-private.

For d up to M both epsilons add up to q e = epsilon; for larger d step one sees nothing of the unit. With a least number
of units, the first sum that fewer units can make is at most (min_units - 1) q, and the channel reports nothing up to it
(`channels.floored`).

**Tokens.** Let T be the token of step one, a whole number: a first sum i minus a lag. Let N be the noisy second sum,
and c the constant for which T + c is the likeliest first sum. Published are S = T + c + N, whose count is S / q, and T
itself up to where it is above L, the first row of the channel that always reports. For sums over keys the mean of T + c
minus the first sum, from L on, is subtracted from each S.

**Intervals.** Let f be the true count, and r = f q - i the second sum. For all i from L on, T - i has the same law. Its
convolution with the Laplace noise gives the least h for which |S - f q| <= h with probability P. For i below L, where a
report tells of a small lag, i is in the interval of the channel, given that report, except with a fifth of 1 - P, and r
within the quantile of the Laplace noise around N except with the rest of 1 - P. The published interval is the first
one; where the interval of the channel reaches down to L, it is the hull of both. So for every i it holds f with
probability P at least, given the report.
"""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import ReportedCounts
from dpsieve.channels.floored import HINT, LARGEST_FLOOR, floored
from dpsieve.channels.unknown_keys import simple
from dpsieve.codec import register
from dpsieve.engines.true_data import Pairs
from dpsieve.estimation.estimated_sums import HIGHEST_LEVEL, MOST_TERMS, noise_interval
from dpsieve.exact.balls import Ball, ball, first_whole, lower, upper
from dpsieve.noise.known_keys import NoiseReader, NoisyCounts, laplace_deviation, laplace_half_width, laplace_tail
from dpsieve.privacy.certificate import Certificate, whole_unit
from dpsieve.privacy.guarantee import Contribution, Unit
from dpsieve.privacy.mechanism import Outcome, check_tokens
from dpsieve.randomness import discrete_laplace
from dpsieve.randomness.noise import laplace_scale
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, Epsilon, check_budget, is_whole
from dpsieve.values.columns import as_arrow, as_numpy
from dpsieve.values.keys import order_of, published

MOST_KEYS = 100
_KEYS = f"Pass the number of keys in which a unit is counted, from 2 to {MOST_KEYS}."
_LARGEST = 1 << 62
_FOR_TOKEN = 0.2  # of the probability that an interval of a rare key may fail with
_POINTS_AT_ONCE = 1 << 20


@register("divided_units")
@dataclass(frozen=True, repr=False)
class DividedUnits(NoisyCounts, NoiseReader):
    """Keys that are found with what units do not need for their counts; see the head of this module.

    Attributes:
        max_keys: the number of keys in which a unit is counted, M.
        min_units: no key of fewer units is reported.

    >>> DividedUnits(1.0, 1e-8, 5)
    <divided units with at most 5 keys, (1, 1e-08)-differential privacy when one row is added or removed.>
    """

    withholds = True

    epsilon: Epsilon
    delta: Delta
    max_keys: Annotated[int, is_whole(2, MOST_KEYS, _KEYS)]
    min_units: Annotated[int, is_whole(1, LARGEST_FLOOR, HINT)] = 1
    _: KW_ONLY
    unit: Unit = "one row"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.epsilon, self.delta)
        self.channel  # noqa: B018  # raises where a unit has too many parts for this budget

    def __repr__(self) -> str:
        return f"<divided units with at most {self.max_keys} keys, {self.guarantee}>"

    @property
    def steps(self) -> int:  # type: ignore[override]
        """What a unit adds to both sums of a key together, q."""
        return self.max_keys - 1

    @property
    def contribution(self) -> Contribution:
        """What one unit may add to the counts of keys that were found."""
        return Contribution(self.max_keys, after="find_first")

    @property
    def least(self) -> int:  # type: ignore[override]
        """The least count of a reported key."""
        return self.min_units

    @property
    def least_count(self) -> int:
        return self.min_units

    @property
    def resolution(self) -> int:
        return self.steps * self._marks

    @cached_property
    def channel(self) -> ReportedCounts:
        """What reports keys by their first sums, private for a change by 1."""
        one = lower(lambda: ball(self.epsilon) / self.steps)
        delta = lower(lambda: ball(self.delta) / _changes(one, self.steps))
        return floored(simple(one, delta, unit=self.unit), self._shift + 1)

    @property
    def scale(self) -> float:
        """The scale of the noise on second sums."""
        return laplace_scale(self.epsilon, self.max_keys * self.steps)

    @property
    def _shift(self) -> int:
        """The largest first sum that fewer than `min_units` units can make."""
        return (self.min_units - 1) * self.steps

    @cached_property
    def _settled(self) -> int:
        """The first sum, beyond the shift, from which on tokens have one law."""
        last = self.channel.rows.last
        assert last is not None
        return last - self._shift

    @property
    def _marks(self) -> int:
        """What the first token is published below of, beyond the shift."""
        return self._settled + 2

    @cached_property
    def _law(self) -> tuple[Ints, Floats]:
        """The errors of the likeliest first sum where tokens have one law, and their probabilities."""
        last = self._settled + self._shift
        row = self.channel.row(last)
        return row.right + self._likeliest_lag - last, row.mass / row.mass.sum()

    @cached_property
    def _likeliest_lag(self) -> int:
        """How much larger than a token the likeliest first sum is."""
        token = self._settled + self._shift
        return int(self.channel.likeliest([token])[0]) - token

    def half_reported(self) -> float:
        """Return the number of units with a single key for which that key is reported half of the time."""
        return (self.channel.half or math.inf) / self.steps

    def certify(self) -> Certificate:
        """Return the certificate of the channel, and of both steps for units of any number of keys."""
        most, one, scale = self.max_keys, Fraction(self.channel.epsilon), Fraction(self.scale)
        costs = [(most - d) * one + most * (d - 1) / scale for d in range(1, most + 1)]
        worst = upper(lambda: ball(self.channel.delta_) * _changes(self.channel.epsilon, self.steps))
        covers = (
            f"a unit with d of {most} keys: {most} - d changes of the channel, then Laplace noise of scale "
            f"{self.scale:.4g} on sums that change by {most}(d - 1) in all, composed"
        )
        whole = whole_unit(self.guarantee, worst if max(costs) <= self.epsilon else 1.0, "balls", covers)
        return self.channel.certify().within(whole, self.guarantee)

    def find(self, pairs: Pairs, source: Source) -> tuple[pa.Table, Outcome]:
        """Return the keys that are reported with their tokens, from all pairs of units and keys."""
        first = self.first_sums(pairs)
        some = np.flatnonzero(first)
        tokens = self.channel.draw(first[some], source=source).tokens
        found, tokens = some[tokens > 0], tokens[tokens > 0]
        order = as_numpy(order_of(published(pairs.keys.take(as_arrow(found)))))
        order = order[np.argsort(-tokens[order], kind="stable")]
        found, tokens = found[order], tokens[order]
        second = self.second_sums(pairs, first, found)
        noisy = tokens + self._likeliest_lag + second + discrete_laplace(self.scale, len(second), source=source)
        mark = np.minimum(tokens - self._shift, self._marks - 1)
        return pairs.keys.take(as_arrow(found)), Outcome(noisy * self._marks + mark)

    def first_sums(self, pairs: Pairs) -> Ints:
        """Return the first sum of each key."""
        sizes = pairs.sizes
        few = (sizes > 0) & (sizes < self.max_keys)
        keys = pairs.key_numbers[pairs.starts[:-1][few]]
        return np.bincount(keys, self.max_keys - sizes[few], minlength=pairs.keys.num_rows).astype(np.int64)

    def second_sums(self, pairs: Pairs, first: Ints, found: Ints) -> Ints:
        """Return the second sums of the keys that were found, which come in the order of their tokens."""
        return self.steps * pairs.rank(found).bound(self.max_keys).counts() - first[found]

    def possible(self, tokens: Ints) -> bool:
        noisy, mark = np.divmod(tokens, self._marks)
        return bool((mark > 0).all() and (np.abs(noisy) < _LARGEST // self._marks).all())

    def noisy(self, tokens: ArrayLike) -> Floats:
        """Return the noisy counts, unbiased where the channel always reports."""
        return (check_tokens(tokens) // self._marks - self._mean) / self.steps

    @cached_property
    def _mean(self) -> float:
        """The mean of the noise, in steps."""
        points, masses = self._law
        return float(masses @ points)

    @cached_property
    def deviation(self) -> float:
        points, masses = self._law
        variance = float(masses @ (points - self._mean) ** 2)
        return math.hypot(laplace_deviation(self.scale), math.sqrt(variance)) / self.steps

    def noise_tail(self, x: Floats) -> Floats:
        """Return the larger of P[noise >= x] and P[noise <= -x] for whole numbers x of steps."""
        return np.maximum(self._tail(x, 1), self._tail(x, -1))

    def _tail(self, x: Floats, side: int) -> Floats:
        """Return P[noise >= x] (side 1) or P[noise <= -x] (side -1) for whole numbers x of steps."""
        points, masses = self._law
        parts = np.array_split(np.asarray(x, np.float64), 1 + len(x) * len(points) // _POINTS_AT_ONCE)
        tails = [laplace_tail(part[:, None] - side * points, self.scale) @ masses for part in parts]
        return np.minimum(1.0, np.concatenate(tails) * (1 + 1e-9))

    def half_width(self, level: float) -> int:
        """Return the least number h of steps such that noise is within -h to h at this level."""
        enough = (1 - level) / 2
        return first_whole(lambda h: bool(self.noise_tail(np.array([h + 1.0]))[0] <= enough), 0, 1 << 50)

    def interval(self, tokens: ArrayLike, level: float = 0.95) -> tuple[Ints, Ints]:
        level = validate.between("level", level, 0.0, 1 - 1e-12, hint="Pass a confidence level such as level=0.95.")
        noisy, mark = np.divmod(check_tokens(tokens), self._marks)
        half = self.half_width(level)
        low, high = noisy - half, noisy + half
        some = np.flatnonzero(mark <= self._settled)
        if len(some):
            token = mark[some] + self._shift
            ends = self.channel.interval(token, 1 - _FOR_TOKEN * (1 - level))
            near = ends[0] <= self._settled + self._shift
            rest = noisy[some] - token - self._likeliest_lag
            half = laplace_half_width(self.scale, 1 - (1 - _FOR_TOKEN) * (1 - level))
            low[some] = np.where(near, np.minimum(low[some], ends[0] + rest - half), low[some])
            high[some] = np.where(near, np.maximum(high[some], ends[1] + rest + half), high[some])
        return np.maximum(-(-low // self.steps), self.least), np.maximum(high // self.steps, self.least)

    def sum_interval(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
    ) -> tuple[float, float] | None:
        """Return the interval of a weighted sum of counts; with a g, of one count only.

        Noise of keys that the channel always reports is convolved. Each of up to 16 rare keys, and at extreme levels
        every key, has its own interval; these fail with equal parts of a fifth of 1 - level, or of all of it.
        """
        counts = check_tokens(tokens)
        if len(counts) == 1:
            return self._scaled(np.concatenate(self.interval(counts, level)), weights, g)
        alone = counts % self._marks <= self._settled
        if level > 2 * HIGHEST_LEVEL - 1:
            alone[:] = True
        elif alone.sum() > MOST_TERMS:
            return None
        if g is not None or not len(counts):
            return None
        low, high, share = 0.0, 0.0, 1.0 if alone.all() else _FOR_TOKEN
        if alone.any():
            ends = np.array(self.interval(counts[alone], 1 - share * (1 - level) / int(alone.sum())))
            low, high = (float(extreme(weights[alone] * ends, axis=0).sum()) for extreme in (np.min, np.max))
            level = 1 - (1 - share) * (1 - level)
        if share == 1:
            return low, high
        value = float(weights[~alone] @ (counts[~alone] // self._marks)) / self.steps
        tails = partial(self._tail, side=1), partial(self._tail, side=-1)
        unit, deviation = 1 / self.steps, math.hypot(self.deviation * self.steps, self._mean)
        settled = noise_interval(value, weights[~alone], tails[0], deviation, level, unit, tails[1])
        return None if settled is None else (low + settled[0], high + settled[1])


def _changes(epsilon: float, count: int) -> Ball:
    """Return 1 + e^epsilon + ..., `count` terms: what delta grows to in so many changes."""
    total = ball(0)
    for j in range(count):
        total += (ball(epsilon) * j).exp()
    return total
