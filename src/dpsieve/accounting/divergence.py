"""How far apart two rows are: the hockey-stick divergence, its curve delta(epsilon) and the inverse epsilon(delta).

These are floating-point curves for people and planning (relative error about 1e-14 times the number of outputs); what
is drawn from is checked by the kernel, on integers.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.types import Floats


def hockey_stick(p: ArrayLike, q: ArrayLike, epsilon: float) -> float:
    """Return sum_o max(0, p(o) - e^epsilon q(o)): the least delta with p(T) <= e^epsilon q(T) + delta for all T.

    >>> round(hockey_stick([0.75, 0.25], [0.25, 0.75], epsilon=0.0), 12)
    0.5
    """
    p, q = _pair(p, q)
    return _excess(p, q, validate.epsilon(epsilon))


def divergence(p: ArrayLike, q: ArrayLike, epsilon: float) -> float:
    """Return the larger of the hockey-stick divergences of (p, q) and (q, p)."""
    p, q = _pair(p, q)
    epsilon = validate.epsilon(epsilon)
    return max(_excess(p, q, epsilon), _excess(q, p, epsilon))


def joint_divergence(first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike], epsilon: float) -> float:
    """Return the hockey-stick divergence of two independent outputs seen together: p1 x p2 against q1 x q2.

    >>> half = ([0.75, 0.25], [0.25, 0.75])
    >>> round(joint_divergence(half, half, 0.0), 12)
    0.5
    """
    epsilon = validate.epsilon(epsilon)
    one, other = _pair(*_two("first", first)), _pair(*_two("second", second))
    (p, q), (r, s) = _by_loss(*one), _by_loss(*other)
    return math.fsum(np.maximum(np.outer(p, r) - math.exp(epsilon) * np.outer(q, s), 0.0).ravel())


@dataclass(frozen=True, eq=False)
class PrivacyCurve:
    """The exact trade between epsilon and delta over a set of neighbouring pairs of rows, in both directions.

    >>> curve = PrivacyCurve.of([([0.75, 0.25], [0.25, 0.75])])
    >>> round(curve.epsilon(0.0), 12) == round(math.log(3), 12)
    True
    >>> round(curve.delta(0.0), 12)
    0.5
    """

    pairs: tuple[tuple[Floats, Floats], ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[ArrayLike, ArrayLike]]) -> "PrivacyCurve":
        """Check the rows and build the curve."""
        if not isinstance(pairs, Iterable):
            raise InvalidType(f"pairs must be a list of pairs of rows, not {type(pairs).__name__}.")
        checked = tuple(_pair(*_two("pairs", pair)) for pair in pairs)
        if not checked:
            raise InvalidValue("pairs is empty. Pass at least one pair of rows (p, q).")
        return cls(checked)

    def delta(self, epsilon: float) -> float:
        """Return the least delta such that every pair keeps (epsilon, delta) in both directions."""
        epsilon = validate.epsilon(epsilon)
        return max(max(_excess(p, q, epsilon), _excess(q, p, epsilon)) for p, q in self.pairs)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon such that every pair keeps (epsilon, delta); infinite when none does."""
        delta = validate.delta(delta)
        return max(max(_inverse(p, q, delta), _inverse(q, p, delta)) for p, q in self.pairs)


def _excess(p: Floats, q: Floats, epsilon: float) -> float:
    return math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0))


def _by_loss(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Join outputs whose losses ln(p/q) agree to 1e-12: this lowers a divergence by less than 1e-12."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.round(np.log(p / q), 12)
    kept = (p > 0) | (q > 0)
    _, group = np.unique(loss[kept], return_inverse=True)
    return np.bincount(group, p[kept]).astype(float), np.bincount(group, q[kept]).astype(float)


def _inverse(p: Floats, q: Floats, delta: float) -> float:
    """Return ln x for the least x >= 1 with sum max(0, p - x q) <= delta.

    With outputs sorted by p/q downwards, the sum over the first m of them is P_m - x Q_m, and the divergence is the
    largest of these over m: so x = max_m (P_m - delta) / Q_m.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.where(q > 0, p / q, np.where(p > 0, np.inf, -1.0)))[::-1]
    heads, tails = np.cumsum(p[order]), np.cumsum(q[order])
    needed = heads > delta * (1 + 1e-15)
    if (needed & (tails == 0)).any():
        return math.inf
    return max(0.0, math.log(max(1.0, *((heads[needed] - delta) / tails[needed])))) if needed.any() else 0.0


def _two(name: str, pair: tuple[ArrayLike, ArrayLike]) -> tuple[ArrayLike, ArrayLike]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidType(f"{name} must hold two rows. Pass (p, q), one probability for each output.")
    return pair[0], pair[1]


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[Floats, Floats]:
    p, q = _row("p", p), _row("q", q)
    if len(p) != len(q):
        raise InvalidValue(f"p has {len(p)} outputs and q has {len(q)}. Pass two rows over the same outputs.")
    return p, q


def _row(name: str, values: ArrayLike) -> Floats:
    hint = "Pass one probability for each output, 'nothing' included."
    row = validate.finite(name, values, hint=hint)
    if row.ndim != 1 or not len(row) or not ((row >= 0) & (row <= 1 + 1e-9)).all():
        raise InvalidValue(f"{name} must be a flat row of numbers from 0 to 1. {hint}")
    if not math.isclose(total := math.fsum(row), 1.0, abs_tol=1e-9):
        raise InvalidValue(f"{name} sums to {total:.12g}, not 1. {hint}")
    return row
