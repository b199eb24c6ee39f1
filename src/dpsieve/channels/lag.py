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

from dataclasses import dataclass

from dpsieve.channels.grid import FACTOR_BITS, ONE, Steps


@dataclass(frozen=True)
class Lag:
    """Lags edges[t] to edges[t+1]-1 have the mass masses[t] each, in units of 2^-128."""

    edges: list[int]
    masses: list[int]

    def total(self) -> int:
        """Return the sum of all masses."""
        return sum((b - a) * m for a, b, m in zip(self.edges, self.edges[1:], self.masses, strict=False))


def optimal_lag(steps: Steps, resolution: int) -> Lag:
    """Return the distribution of the lag in parts of 1/resolution; it sums to one less a vanishing remainder."""
    ladder = [steps.delta // resolution]
    low, high = resolution, 2 * resolution
    while _lag(steps, ladder, resolution, high).total() <= ONE:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _lag(steps, ladder, resolution, middle).total() <= ONE else (low, middle)
    return _filled(steps, ladder, resolution, low)


def _filled(steps: Steps, ladder: list[int], resolution: int, c: int) -> Lag:
    """Raise the part that holds c, between its two regimes, until all mass is used."""
    unit = c // resolution
    low, high = ladder[unit - 2] if unit > 1 else steps.shrink(ladder[0]), _rung(steps, ladder, unit)
    while high - low > 1 + (high >> 80):
        middle = (low + high) // 2
        fits = _lag(steps, ladder, resolution, c, middle).total() <= ONE
        low, high = (middle, high) if fits else (low, middle)
    return _lag(steps, ladder, resolution, c, low)


def _lag(steps: Steps, ladder: list[int], resolution: int, c: int, at_c: int | None = None) -> Lag:
    """Return the lag distribution for a given c, vanishing where it must."""
    unit, place = divmod(c, resolution)
    before = [_rung(steps, ladder, k) for k in range(unit + 1)]
    after = before[:unit]
    middle = after if at_c is None else [*after, at_c]
    parts = [(place, before), (1, middle), (resolution - place - 1, after)]
    chains = [(width, list(chain)) for width, chain in parts if width]
    last = unit if place or at_c is not None else unit - 1
    for _, chain in chains:
        _extend(steps, chain, last)
    while sum(width * chain[last] for width, chain in chains) > steps.delta:
        last += 1
        for _, chain in chains:
            _extend(steps, chain, last)
    return _cells(steps, chains, last)


def _cells(steps: Steps, chains: list[tuple[int, list[int]]], last: int) -> Lag:
    """Lay out the units before `last` whole, and of `last` the parts without which more than delta would vanish."""
    edges: list[int] = [0]
    masses: list[int] = []

    def add(width: int, mass: int) -> None:
        if width and masses and masses[-1] == mass:
            edges[-1] += width
        elif width:
            edges.append(edges[-1] + width)
            masses.append(mass)

    for unit in range(last):
        for width, chain in chains:
            add(width, chain[unit])
    excess = sum(width * chain[last - 1] for width, chain in chains) - steps.delta if last else ONE
    for width, chain in chains:
        if excess <= 0:
            break
        gain = chain[last - 1] - chain[last] if last else 0  # less vanishes when a part stays for one step more
        whole = min(width, excess // gain) if gain > 0 else width
        add(whole, chain[last])
        excess -= whole * gain
        if whole < width and excess > 0:
            add(1, -((-excess << FACTOR_BITS) // (steps.factor - (1 << FACTOR_BITS))))
            excess = 0
    return Lag(edges, masses)


def _rung(steps: Steps, ladder: list[int], k: int) -> int:
    while len(ladder) <= k:
        ladder.append(steps.grow(ladder[-1]))
    return ladder[k]


def _extend(steps: Steps, chain: list[int], unit: int) -> None:
    while len(chain) <= unit:
        chain.append(steps.shrink(chain[-1]))
