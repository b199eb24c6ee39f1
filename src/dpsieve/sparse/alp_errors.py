"""Where a random walk with drift is highest: the exact distribution of the error of an ALP estimate, in levels.

The estimate of an entry whose true level is y is where a sum over its columns is highest. Seen from y, the sum goes
outward in two independent walks S, to lower levels and to higher ones, with steps up (an entry's own bit flipped; a
collision or a flip) and down. For one walk of n steps,

    P[maximum M, first reached at f, last at l] = h_M(f) R(f, l) V(l),

with h_M(f) = P[S_f = M, S_i < M before], which read backwards from f is P[S_f = M, all partial sums above 0],
R(f, l) = P[back at that height at l, never above it], V(l) = P[below it in all steps after l]. The side with the higher
maximum wins; if they are equal, the highest points reach from the furthest on one side to the furthest on the other.
The error is the middle between the first and the last. (The thesis bounds it by the last step at which a walk is not
negative, Lemma 2.10, which is about 2.5 times as much.)

What is computed in floats is right to 1e-9: the walks are cut where what is left out is below 1e-10.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from dpsieve.errors import InvalidValue
from dpsieve.sparse.bit_loops import climbs, returns, spread, stays
from dpsieve.types import Floats

_LEFT_OUT = 1e-10
_MOST_CELLS, _MOST_MIXED = 1 << 26, 4000


@dataclass(frozen=True)
class Stretch:
    """Steps of one kind: `count` of them, `up` with probability `chance` and else `down`, both above 0."""

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
        """After how many steps of an endless stretch the walk is hardly ever at or above 0."""
        if not self.decay:
            return self.count
        odds = (1 - self.chance) * self.down / (self.chance * self.up)
        tilt = math.log(odds) / (self.up + self.down)
        rate = self.chance * math.exp(tilt * self.up) + (1 - self.chance) * math.exp(-tilt * self.down)
        return min(self.count, math.ceil(math.log(_LEFT_OUT * (1 - rate)) / math.log(rate)))


class _Side:
    """One walk outward, with the tables of its formula."""

    def __init__(self, stretches: tuple[Stretch, ...]) -> None:
        kinds = [one for one in stretches if one.count]
        chance = np.repeat([one.chance for one in kinds], [one.count for one in kinds]).astype(np.float64)
        up, down = (
            np.repeat([getattr(one, name) for one in kinds], [one.count for one in kinds]).astype(np.int64)
            for name in ("up", "down")
        )
        n = 0
        for one in kinds:
            n += one.reach
            if one.reach < one.count:
                break
        chance, up, down = chance[:n], up[:n], down[:n]
        far = int(up.sum())
        decay = min((one.decay for one in kinds), default=0.0)
        far = min(far, math.ceil(-math.log(_LEFT_OUT / 10) / decay)) if decay else far
        self.same = len(kinds) < 2 or n <= kinds[0].count
        if (n + 1) * (far + 1) > _MOST_CELLS or (not self.same and n > _MOST_MIXED):
            hint = "Use more bits an entry, so that fewer entries collide, or fewer levels."
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
        """Return the chances of first + last, where this side has the higher maximum."""
        below = np.concatenate([[0.0], np.cumsum(other.maximum)])[: self.far + 1]
        below = np.append(below, np.full(self.far + 1 - len(below), below[-1]))
        out = np.zeros(2 * self.steps + 1)
        spread(self.rise @ below, self.back, self.stay, out)
        return out

    def last_waves(self, size: int, heights: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.complex128]]":
        """Return the Fourier transform, over the place of the last highest point, of its chance with each maximum."""
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
    """Return the possible middles of the highest points, relative to the start, and their chances.

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
