"""The optimal channel without sampling, in closed form: token = frequency - lag, reported when the token is above zero.

Without sampling, row i of Algorithm 5 (Cohen, Geri, Sarlos, Stemmer 2021, as corrected) is one distribution of the lag,
the same for every i, of which the part with lag >= i is silent. Cut a unit of lag into R parts, and follow the part v
through the lags v, v + R, v + 2R, ... that it takes as the frequency grows. Its mass starts with delta / R, is
multiplied by e^epsilon at each step that ends below lag c and by e^-epsilon at each later one, and vanishes at lag b:

        delta/R * e^(epsilon * k),   k = 0, 1, ..., n, n-1, n-2, ...     with n the number of steps that end below c.

Two sums fix b and c: the mass that vanishes at a step is delta, and all mass is 1. Both are solved on integers; the
part that holds c gets a mass between the two regimes, the one that holds b keeps a remainder. With R = 1 this is
Algorithm 4.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from itertools import chain as joined

from dpsieve.channels.grid import FACTOR_BITS, ONE, Steps
from dpsieve.exact.search import first_whole


@dataclass(frozen=True)
class Lag:
    """Lags edges[t] to edges[t+1]-1 have the mass masses[t] each, in units of 2^-128."""

    edges: list[int]
    masses: list[int]

    def total(self) -> int:
        """Return the sum of all masses."""
        return sum((b - a) * m for a, b, m in zip(self.edges, self.edges[1:], self.masses, strict=False))


def optimal_lag(steps: Steps, resolution: int) -> Lag:
    """Return the distribution of the lag in parts of 1/resolution; it sums to one less a vanishing remainder.

    A delta above one half fits once: two units report surely, and all that vanishes from row to row is 1 - delta.
    """
    if 2 * steps.delta > ONE:
        halves = steps.delta // resolution, (ONE - steps.delta - 1) // resolution
        return Lag([0, resolution, 2 * resolution], list(halves))
    ladder = _Ladder(steps, resolution)
    # Geometric sums say nearly where c is.
    near = math.floor((_units_up(steps) - 2) * resolution)
    start = near if near > resolution + 1 and ladder.total(near) <= ONE else resolution + 1
    c = first_whole(lambda c: ladder.total(c) > ONE, start, 1 << 60, step=resolution) - 1
    # Raise the part that holds c, between its two regimes, until all mass is used.
    unit = c // resolution
    low, high = ladder.rung(unit - 2) if unit > 1 else steps.shrink(ladder.rung(0)), ladder.rung(unit)
    used, over = ladder.total(c, low), ladder.total(c, high)
    while (width := high - low) > 1 + (high >> 80):
        # Nearly a line: try both sides of where it would be ONE, and the middle where that did not help.
        line = low + width * max(0, ONE - used) // max(1, over - used)
        for at in (line - (width >> 12), line + (width >> 12) + 1, (low + high) // 2):
            if low < at < high:
                mass = ladder.total(c, at)
                low, used, high, over = (at, mass, high, over) if mass < ONE else (low, used, at, mass)
    return ladder.lag(c, low)


def _units_up(steps: Steps) -> float:
    """Return about how many steps up all mass takes: delta, times e^epsilon at each step, and back again, sums to 1."""
    rise = steps.factor / (1 << FACTOR_BITS)
    return math.log((2 + (rise - 1) * ONE / steps.delta) / (rise + 1)) / math.log(rise)


class _Chain:
    """The masses that a part takes at lags of 0, 1, 2, ... units, given up to its peak, and their sums."""

    def __init__(self, steps: Steps, masses: list[int]) -> None:
        self._steps, self.masses = steps, masses
        self.sums = list(accumulate(masses, initial=0))

    def at(self, unit: int) -> int:
        while len(self.masses) <= unit:
            self.masses.append(self._steps.shrink(self.masses[-1]))
            self.sums.append(self.sums[-1] + self.masses[-1])
        return self.masses[unit]


class _Ladder:
    """Lag distributions for any c, which vanish where they must; chains are kept, as many c share them."""

    def __init__(self, steps: Steps, resolution: int) -> None:
        self._steps, self._resolution = steps, resolution
        self._rungs = [steps.delta // resolution]
        self._chains: dict[int, _Chain] = {}

    def rung(self, k: int) -> int:
        """Return the mass after k steps up."""
        while len(self._rungs) <= k:
            self._rungs.append(self._steps.grow(self._rungs[-1]))
        return self._rungs[k]

    def total(self, c: int, at_c: int | None = None) -> int:
        """Return the sum of all masses for a given c, and a given mass of the part that holds it."""
        chains, last, rest = self._parts(c, at_c)
        return sum(width * chain.sums[last] for width, chain in chains) + sum(width * mass for width, mass in rest)

    def lag(self, c: int, at_c: int) -> Lag:
        """Return the distribution itself."""
        chains, last, rest = self._parts(c, at_c)
        edges: list[int] = [0]
        masses: list[int] = []
        whole = ((width, part.masses[unit]) for unit in range(last) for width, part in chains)
        for width, mass in joined(whole, rest):
            if width and masses and masses[-1] == mass:
                edges[-1] += width
            elif width:
                edges.append(edges[-1] + width)
                masses.append(mass)
        return Lag(edges, masses)

    def _chain(self, peak: int) -> _Chain:
        if peak not in self._chains:
            self._chains[peak] = _Chain(self._steps, [self.rung(k) for k in range(peak + 1)])
        return self._chains[peak]

    def _parts(self, c: int, at_c: int | None) -> tuple[list[tuple[int, _Chain]], int, list[tuple[int, int]]]:
        """Return the chains with their widths, the unit in which they vanish, and what they keep in it."""
        unit, place = divmod(c, self._resolution)
        before, after = self._chain(unit), self._chain(unit - 1)
        middle = after if at_c is None else _Chain(self._steps, [*after.masses[:unit], at_c])
        parts = [(place, before), (1, middle), (self._resolution - place - 1, after)]
        chains = [(width, chain) for width, chain in parts if width]

        def may_vanish(last: int) -> bool:
            return sum(width * chain.at(last) for width, chain in chains) <= self._steps.delta

        last = first_whole(may_vanish, unit if place or at_c is not None else unit - 1, 1 << 60)
        return chains, last, list(self._kept(chains, last))

    def _kept(self, chains: list[tuple[int, _Chain]], last: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of unit `last` without which more than delta would vanish, as widths and masses."""
        steps = self._steps
        excess = sum(width * chain.at(last - 1) for width, chain in chains) - steps.delta if last else ONE
        for width, chain in chains:
            if excess <= 0:
                return
            gain = chain.at(last - 1) - chain.at(last) if last else 0  # less vanishes when a part stays a step more
            whole = min(width, excess // gain) if gain > 0 else width
            yield whole, chain.at(last)
            excess -= whole * gain
            if whole < width and excess > 0:
                yield 1, -((-excess << FACTOR_BITS) // (steps.factor - (1 << FACTOR_BITS)))
                excess = 0
