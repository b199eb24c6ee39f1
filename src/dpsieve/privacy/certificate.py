"""Certificates: what was checked, by which method, and the resulting guarantee."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from html import escape
from typing import Any, Literal

from dpsieve import validate
from dpsieve.display import html_table
from dpsieve.errors import NotCertified
from dpsieve.privacy.guarantee import Guarantee, rounded_up, shown
from dpsieve.privacy.kernel import Block, examine

Scope = Literal["one key", "one unit"]
Method = Literal["kernel", "balls", "formula"]

_HOW = {
    "kernel": "checked exactly on the integers that are drawn from",
    "balls": "by proven bounds",
    "formula": "by floating-point formulas with a margin for rounding",
}
COLUMNS = ("holds for", "what was checked", "epsilon", "delta", "found, at most", "how")
"""The columns of `Certificate.lines`."""
NOT_COVERED = "Not covered: the draw and the bounding of units, which tests check."
"""The scope that no certificate covers."""


@dataclass(frozen=True)
class Part:
    """One check.

    Attributes:
        scope: 'one key': the effect of a unit on one of its keys; 'one unit': its effect on all of them.
        method: 'kernel' (integers, exactly), 'balls' (proven bounds) or 'formula' (floats with a margin).
        covers: a description of what was checked.
        epsilon, delta: what holds for the scope.
        worst: an upper bound on the divergence at epsilon, at most delta.
    """

    scope: Scope
    method: Method
    covers: str
    epsilon: float
    delta: float
    worst: float

    def __str__(self) -> str:
        promise = f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})"
        return f"{promise} for {self.scope}, {_HOW[self.method]}: {self.covers}"


@dataclass(frozen=True)
class Certificate:
    """All checks; the last part is the guarantee for one privacy unit.

    >>> print(formula(Guarantee(1.0), 0.0, "balls", "discrete Laplace noise of scale 1"))
    (1, 0) for one unit, by proven bounds: discrete Laplace noise of scale 1. Not covered: ...
    """

    guarantee: Guarantee
    parts: tuple[Part, ...]

    @property
    def worst(self) -> float:
        """A bound on the divergence of neighbours, at the epsilon of the guarantee; at most its delta."""
        return self.parts[-1].worst

    def within(self, whole: Part, guarantee: Guarantee) -> "Certificate":
        """Return the certificate of a mechanism that uses this one for each key; `whole` composes all keys."""
        return Certificate(guarantee, (*(replace(part, scope="one key") for part in self.parts), whole))

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return {"guarantee": self.guarantee.to_json(), "parts": [asdict(part) for part in self.parts]}

    def __str__(self) -> str:
        return f"{'; '.join(map(str, self.parts))}. {NOT_COVERED}"

    def lines(self) -> list[tuple[str, ...]]:
        """Return the display columns of each part: scope, coverage, promise, an upper bound on delta, and method.

        Numbers have four digits and are rounded up.
        """
        return [
            (part.scope, part.covers, *map(rounded_up, (part.epsilon, part.delta, part.worst)), _HOW[part.method])
            for part in self.parts
        ]

    def _repr_html_(self) -> str:
        """Return the parts as a table, for a notebook."""
        table = html_table(self.lines(), COLUMNS)
        return f"<div><p>{escape(str(self.guarantee))}</p>{table}<p><small>{NOT_COVERED}</small></p></div>"


def formula(guarantee: Guarantee, worst: float, method: Method, covers: str) -> Certificate:
    """Return the certificate of a promise for one unit, or raise NotCertified if `worst` is above its delta."""
    return Certificate(guarantee, (whole_unit(guarantee, worst, method, covers),))


def laplace(guarantee: Guarantee, scale: float, change: int, covers: str) -> Certificate:
    """Return the certificate of discrete Laplace noise on numbers that a unit changes by `change` together.

    It is pure privacy if the scale is at least change / epsilon: one comparison of exact fractions.
    """
    is_private = Fraction(scale) * Fraction(guarantee.epsilon) >= change
    return formula(guarantee, 0.0 if is_private else 1.0, "balls", covers)


def whole_unit(guarantee: Guarantee, worst: float, method: Method, covers: str) -> Part:
    """Return the part for one unit; raise NotCertified if `worst` is above the promised delta."""
    if not worst <= guarantee.delta:
        raise NotCertified(f"{covers}: delta={worst:.17g} is above the promised {shown(guarantee.delta)}")
    return Part("one unit", method, covers, guarantee.epsilon, guarantee.delta, worst)


def certify(
    stacks: Iterable[Block],
    guarantee: Guarantee,
    *,
    shift: int | None = None,
    floor: int | None = None,
) -> Certificate:
    """Return the certificate of a table, or raise NotCertified naming the pair of rows that breaks the promise.

    Promise: for adjacent rows P, Q, in both orders, sum_o max(0, P(o) - e^epsilon Q(o)) <= delta, where row 0 is
    'nothing' and rows 1, 2, ... come in `stacks` (see `dpsieve.privacy.kernel`). With `shift`, the table continues
    without end after its last row; each row is the previous one shifted up by `shift` tokens. Tokens below `floor` are
    announced as 'nothing'. Neighbours are add/remove of a unit that counts once, in one key.

    >>> import numpy as np
    >>> quarter = np.array([[2**62]], dtype=np.uint64)  # one row: token 1 with probability 1/4
    >>> row = Block(np.array([1, 2]), quarter, np.zeros_like(quarter))
    >>> certify([row], Guarantee(1.0, 0.25)).worst
    0.25
    >>> certify([row], Guarantee(1.0, 0.24))
    Traceback (most recent call last):
    dpsieve.errors.NotCertified: rows 0 and 1 diverge by more than delta: 0.25 > 0.23999999999999999
    """
    validate.is_a(Iterable, "Pass a list of blocks.")(stacks, "stacks")
    validate.is_a(Guarantee, "Pass Guarantee(1.0, 1e-8).")(guarantee, "guarantee")
    if shift is not None:
        shift = validate.whole("shift", shift, high=2**30, hint="Pass the shift of each later row in tokens.")
    if floor is not None:
        floor = validate.whole("floor", floor, low=-(2**31), high=2**31, hint="Pass the lowest token that is reported.")
    verdict = examine(stacks, guarantee.epsilon, guarantee.delta, shift, floor)
    if not verdict.accepted:
        raise NotCertified(verdict.reason)
    rows = "1 row" if verdict.rows == 1 else f"{verdict.rows:,} rows"
    reach = "every frequency" if shift is not None else f"every frequency up to {verdict.rows:,}"
    return formula(guarantee, verdict.worst, "kernel", f"{rows}, for {reach}")
