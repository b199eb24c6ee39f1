"""Estimates from ALP cells: the likeliest level of an entry, and the exact distribution of its error, in levels.

A walk along the columns of an entry weighs one bit per step; the estimate is the middle between its first and its last
highest point. Seen from the true level, the walk moves outward in two independent walks, whose laws determine that of
the error. Steps are whole multiples of 1/12 of ln((1 - p) / p), so that sums are equal on every machine. Formulas and
proof: docs/background/vectors.md#the-likeliest-level-and-its-error. Floats are accurate to 1e-9: walks are truncated
where the omitted mass is below 1e-10.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.sparse.embedding import in_threads
from dpsieve.types import Floats, Ints, Words

LEAST_TAKEN, MOST_TAKEN = 1e-6, 0.95
"""The range of estimated shares of taken places: a share of 0 cannot be certain, and a share of 1 leaves no signal."""
STEP_UNITS = 12
_ENTRIES_PER_TASK = 1 << 14  # enough to pay for a thread
_LEFT_OUT = 1e-10
_MOST_CELLS, _MOST_MIXED = 1 << 26, 4000


def likelihood_steps(flip: float, taken: Floats) -> tuple[Ints, Ints]:
    """Return what a one and what a zero adds, for columns with these shares of taken places."""
    rate = flip + np.maximum(taken, LEAST_TAKEN) * (1 - 2 * flip)
    unit = math.log((1 - flip) / flip) / STEP_UNITS
    ones, zeros = np.floor(np.log((1 - flip) / rate) / unit), np.ceil(np.log((1 - rate) / flip) / unit)
    return np.maximum(ones, 1).astype(np.int64), -np.maximum(zeros, 1).astype(np.int64)


def taken_shares(cells: Words, places: int, columns: int, flip: float) -> Floats:
    """Return the estimated share of taken places in each column, from its share of ones."""
    ones = np.array([_ones(cells, column * places, (column + 1) * places) for column in range(columns)])
    return np.clip((ones / places - flip) / (1 - 2 * flip), 0.0, MOST_TAKEN)


def likeliest_levels(cells: Words, words: Words, places: int, columns: int, negative: int, flip: float) -> Floats:
    """Return the position of each entry among the edges of levels, the lowest first: whole, or half way between two.

    Args:
        cells: the bits, in words.
        words: two per entry, which determine its places.
        places, columns: the shape of the cells.
        negative: how many of the columns, the first ones, are for values below 0.
        flip: the probability with which a bit was flipped.
    """
    from dpsieve.sparse.loops import highest_points

    ones, zeros = likelihood_steps(flip, taken_shares(cells, places, columns, flip))
    ones[:negative], zeros[:negative] = -ones[:negative], -zeros[:negative]  # a bit means 'this low', not 'this high'
    order = np.arange(columns)
    order[:negative] = order[:negative][::-1]
    ones, zeros, positions = ones[order], zeros[order], np.empty(len(words))

    def read(start: int, stop: int) -> None:
        highest_points(words[start:stop], cells, places, order, ones, zeros, positions[start:stop])

    in_threads(read, len(words), _ENTRIES_PER_TASK)
    return positions


def _ones(cells: Words, start: int, stop: int) -> int:
    """Return the number of ones among the bits from start to before stop."""
    full_words = int(np.bitwise_count(cells[start >> 6 : stop >> 6]).sum(dtype=np.int64))
    return full_words + _low_ones(cells, stop) - _low_ones(cells, start)


def _low_ones(cells: Words, bit: int) -> int:
    return (int(cells[bit >> 6]) & ((1 << (bit & 63)) - 1)).bit_count() if bit & 63 else 0


@dataclass(frozen=True)
class Stretch:
    """Steps of one kind: `count` of them, `up` with probability `chance`, otherwise `down`, both above 0."""

    count: int
    chance: float
    up: int
    down: int

    @property
    def step(self) -> tuple[float, int, int]:
        """One of the steps."""
        return self.chance, self.up, self.down

    @cached_property
    def decay(self) -> float:
        """The l > 0 with E[e^(l step)] = 1, so that P[maximum >= M] <= e^(-l M); 0 where the drift is not downward."""
        if self.chance * self.up >= (1 - self.chance) * self.down:
            return 0.0
        low, high = 0.0, -math.log(self.chance) / self.up  # there the first term alone is 1
        for _ in range(60):
            middle = (low + high) / 2
            risen = self.chance * math.exp(middle * self.up) + (1 - self.chance) * math.exp(-middle * self.down)
            low, high = (middle, high) if risen < 1 else (low, middle)
        return low

    @cached_property
    def reach(self) -> int:
        """The number of steps after which the walk of an endless stretch is almost never at or above 0."""
        if not self.decay:
            return self.count
        odds = (1 - self.chance) * self.down / (self.chance * self.up)
        tilt = math.log(odds) / (self.up + self.down)
        rate = self.chance * math.exp(tilt * self.up) + (1 - self.chance) * math.exp(-tilt * self.down)
        return min(self.count, math.ceil(math.log(_LEFT_OUT * (1 - rate)) / math.log(rate)))


class _Side:
    """One walk outward, with the tables of its formula."""

    def __init__(self, stretches: tuple[Stretch, ...]) -> None:
        from dpsieve.sparse.loops import climbs, returns, spread, stays

        kinds = [stretch for stretch in stretches if stretch.count]
        counts = [kind.count for kind in kinds]
        chance = np.repeat([kind.chance for kind in kinds], counts).astype(np.float64)
        up, down = (
            np.repeat([getattr(kind, name) for kind in kinds], counts).astype(np.int64) for name in ("up", "down")
        )
        n = 0
        for kind in kinds:
            n += kind.reach
            if kind.reach < kind.count:
                break
        chance, up, down = chance[:n], up[:n], down[:n]
        far = int(up.sum())
        decay = min((kind.decay for kind in kinds), default=0.0)
        far = min(far, math.ceil(-math.log(_LEFT_OUT / 10) / decay)) if decay else far
        self.same = len(kinds) < 2 or n <= kinds[0].count
        if (n + 1) * (far + 1) > _MOST_CELLS or (not self.same and n > _MOST_MIXED):
            hint = "Use more bits per entry, so that fewer entries collide, or fewer levels."
            raise InvalidValue(f"errors of this size take too long to compute. {hint}")
        self.stay = stays(chance, up, down, far)
        at_zero = np.zeros(far + 1)
        at_zero[0] = 1.0
        if not kinds:
            self.rise, self.back = at_zero[None], np.ones((1, 1))
        elif self.same:
            self.rise = climbs(*kinds[0].step, n, at_zero)
            self.back = returns(chance, up, down, 0, far)[None]
        else:  # read backwards, a walk that gets beyond the first stretch begins in the second one
            c = kinds[0].count
            beyond = climbs(*kinds[1].step, n - c, at_zero)[1:]
            through = [climbs(*kinds[0].step, c, row)[c] for row in beyond]
            self.rise = np.concatenate([climbs(*kinds[0].step, c, at_zero), through])
            self.back = np.zeros((n + 1, n + 1))
            later = returns(chance, up, down, c, far)
            for f in range(n + 1):
                self.back[f, : n + 1 - f] = returns(chance, up, down, f, far) if f < c else later[: n + 1 - f]
        self.steps, self.far = n, far
        self.maximum = spread(np.zeros(n + 1), self.back, self.stay, np.zeros(2 * n + 1)) @ self.rise

    def winning(self, other: "_Side") -> Floats:
        """Return the probabilities of first + last, where this side has the higher maximum."""
        from dpsieve.sparse.loops import spread

        below = np.concatenate([[0.0], np.cumsum(other.maximum)])[: self.far + 1]
        below = np.append(below, np.full(self.far + 1 - len(below), below[-1]))
        out = np.zeros(2 * self.steps + 1)
        spread(self.rise @ below, self.back, self.stay, out)
        return out

    def last_waves(self, size: int, heights: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.complex128]]":
        """Return the Fourier transform, over the last highest point, of its joint probability with each maximum."""
        rise = self.rise[:, :heights]
        if self.same:
            waves = np.fft.rfft(rise, size, axis=0) * np.fft.rfft(self.back[0], size)[:, None]
            joint = np.fft.irfft(waves, size, axis=0)[: self.steps + 1]
        else:
            n = self.steps + 1
            moved = np.array([np.append(np.zeros(f), self.back[f, : n - f]) for f in range(n)])
            joint = moved.T @ rise
        return np.fft.rfft(joint * self.stay[:, None], size, axis=0)


@lru_cache(maxsize=256)
def middles(left: tuple[Stretch, ...], right: tuple[Stretch, ...]) -> tuple[Floats, Floats]:
    """Return the possible middles of the highest points, relative to the start, and their probabilities.

    >>> away = (Stretch(2, 0.25, 1, 1),)
    >>> [part.tolist() for part in middles((), away)]
    [[0.0, 0.5, 1.0, 1.5, 2.0], [0.5625, 0.0, 0.375, 0.0, 0.0625]]
    """
    lower, upper = _Side(left), _Side(right)
    size = 1 << (2 * max(lower.steps, upper.steps) + 1).bit_length()
    heights = min(lower.far, upper.far) + 1
    waves = (np.conj(lower.last_waves(size, heights)) * upper.last_waves(size, heights)).sum(axis=1)
    ties = np.fft.irfft(waves, size)
    chances = np.zeros(2 * (lower.steps + upper.steps) + 1)
    zero = 2 * lower.steps
    chances[zero - lower.steps : zero + upper.steps + 1] = np.roll(ties, lower.steps)[: lower.steps + upper.steps + 1]
    chances[: zero + 1] += lower.winning(upper)[::-1]
    chances[zero:] += upper.winning(lower)
    chances = np.where(chances > 1e-15, chances, 0.0)
    return (np.arange(len(chances)) - zero) / 2, chances / chances.sum()
