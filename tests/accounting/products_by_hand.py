"""Products of reports by hand: in fractions over all outcomes, and by plain convolution of rounded losses."""

import itertools
import math
from fractions import Fraction

import numpy as np

RARE, OFTEN = (Fraction(1, 50), Fraction(1, 100)), (Fraction(1), Fraction(9, 10))
MIDDLE = (Fraction(3, 5), Fraction(1, 2))
NEW = (Fraction(1, 1000), Fraction(0))  # only P ever reports


def exact(chances, epsilon):
    """The divergence of a product of reports, in fractions, at a factor that is just above e^epsilon."""
    factor, total = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50)), Fraction(0)
    for path in itertools.product((True, False), repeat=len(chances)):
        ps = math.prod(p if here else 1 - p for (p, _), here in zip(chances, path, strict=True))
        qs = math.prod(q if here else 1 - q for (_, q), here in zip(chances, path, strict=True))
        total += max(Fraction(0), ps - factor * qs)
    return total


def normal(z):
    return math.erfc(-z / math.sqrt(2)) / 2


# Reports that become likelier, then a count with noise: what 'report first, then count' does.
CHANCES = [1e-6, 2e-5, 1e-4, 4e-4, 2e-3, 6e-3, 0.02, 0.05, 0.12, 0.24, 0.4, 0.6, 0.76, 0.88, 0.95, 0.98, 0.994, 1.0]


def rows(shrink):
    """Neighbours p, q; with a shift from 0.9 on. Steps shrink so that all pairs of many uses matter."""
    steps = [(p, q + (p - q) * (1 - shrink), 0.06 if p > 0.9 else 0.0) for q, p in itertools.pairwise(CHANCES)]
    return [*steps, (1.0, 1.0, 0.3 * shrink)]


def losses(p, q, mu, grid):
    """Masses at multiples of the grid, rounded down and up: own code, straight from the definition."""
    cells = [(1 - p, math.log((1 - p) / (1 - q)))] if p < 1 else []
    if mu == 0:
        cells.append((p, math.log(p / q)))
    else:
        ends = np.arange(-8, 8, 0.01)
        cells += [(p * (normal(z + 0.01) - normal(z)), math.log(p / q) + mu * z + mu * mu / 2) for z in ends]
    made = []
    for extra in (0, 1 + round(mu * 0.01 / grid)):
        places = [math.floor(loss / grid) + extra for _, loss in cells]
        mass = np.zeros(max(places) - min(places) + 1)
        np.add.at(mass, np.array(places) - min(places), [chance for chance, _ in cells])
        made.append((min(places), mass))
    return made


def convolved(parts, epsilon, grid):
    first, mass = sum(start for start, _ in parts), np.ones(1)
    for _, one in parts:
        mass = np.convolve(mass, one)
    at = (first + np.arange(len(mass))) * grid
    return float(mass[at > epsilon] @ -np.expm1(epsilon - at[at > epsilon]))
