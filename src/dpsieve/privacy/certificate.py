"""Certificates: the kernel's verdict on a table, kept with what was checked."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue, NotCertified
from dpsieve.privacy.guarantee import Guarantee, shown
from dpsieve.privacy.kernel import Rows, examine


@dataclass(frozen=True)
class Certificate:
    """The promise (epsilon, delta) was checked: on a table, by the kernel, or by a formula with proven bounds.

    The kernel checks a table of integer masses, every adjacent pair of rows. Neighbours are add/remove: one unit more
    or less moves a key from row i to row i + 1 or back. Noise that is drawn exactly from its distribution has no
    table; its certificate names the formula that was evaluated, rounded up.

    Attributes:
        epsilon, delta: the promise that was checked, as exact floats.
        worst: a proven upper bound on the largest divergence found; at most delta.
        rows: how many rows were checked (frequencies 1 to `rows`); 0 with a formula.
        shift: tokens by which each later row is the one before moved up; None when the table ends at `rows`.
        formula: what was evaluated, where there is no table.
    """

    epsilon: float
    delta: float
    worst: float
    rows: int
    shift: int | None
    formula: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Certificate":
        """Rebuild what `to_json` returned; anything else is refused."""
        hint = "Pass what Certificate.to_json returned."
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise InvalidValue(f"data is not a certificate. {hint}")
        epsilon, delta = validate.epsilon(data["epsilon"]), validate.delta(data["delta"])
        worst = validate.between("worst", data["worst"], 0.0, delta, hint=hint)
        formula = validate.text("formula", data["formula"], hint=hint) if data["formula"] != "" else ""
        rows = validate.whole("rows", data["rows"], low=0 if formula else 1, hint=hint)
        shift = None if data["shift"] is None else validate.whole("shift", data["shift"], hint=hint)
        return cls(epsilon, delta, worst, rows, shift, formula)

    def __str__(self) -> str:
        promise = f"({shown(self.epsilon)}, {shown(self.delta)})"
        if self.formula:
            return f"{promise} by {self.formula}, evaluated with proven bounds"
        reach = "every frequency" if self.shift is not None else f"every frequency up to {self.rows:,}"
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return f"{promise} checked on the integers of {rows}, covering {reach}"


def by_formula(guarantee: Guarantee, worst: float, formula: str) -> Certificate:
    """Return the certificate of a promise that a formula gives, or raise NotCertified when its delta is larger."""
    if not worst <= guarantee.delta:
        raise NotCertified(f"{formula} gives delta={worst:.17g}, above the promised {shown(guarantee.delta)}")
    return Certificate(guarantee.epsilon, guarantee.delta, worst, 0, None, formula)


def certify(
    stacks: Iterable[Rows], *, epsilon: float, delta: float, shift: int | None = None, floor: int | None = None
) -> Certificate:
    """Return the certificate of a table, or raise NotCertified naming the pair of rows that breaks the promise.

    Promise: for adjacent rows P, Q, in both orders, sum_o max(0, P(o) - e^epsilon Q(o)) <= delta, where row 0 is
    'nothing' and rows 1, 2, ... come in `stacks` (see `dpsieve.privacy.kernel`). With `shift`, the table goes on for
    ever after its last row, each row being the one before moved up by `shift` tokens. Tokens below `floor` are
    announced as 'nothing'.

    >>> import numpy as np
    >>> quarter = np.array([[2**62]], dtype=np.uint64)  # one row: token 1 with probability 1/4
    >>> row = Rows(np.array([1, 2]), quarter, np.zeros_like(quarter))
    >>> certify([row], epsilon=1.0, delta=0.25).worst
    0.25
    >>> certify([row], epsilon=1.0, delta=0.24)
    Traceback (most recent call last):
    dpsieve.errors.NotCertified: rows 0 and 1 diverge by more than delta: 0.25 > 0.23999999999999999
    """
    epsilon, delta = validate.epsilon(epsilon), validate.delta(delta)
    if not isinstance(stacks, Iterable):
        raise InvalidType(f"stacks must be a sequence of Rows, not {type(stacks).__name__}. Pass a list of them.")
    if shift is not None:
        shift = validate.whole("shift", shift, high=2**30, hint="Pass how many tokens each later row moves up.")
    if floor is not None:
        floor = validate.whole("floor", floor, low=-(2**31), high=2**31, hint="Pass the lowest token that is reported.")
    verdict = examine(stacks, epsilon, delta, shift, floor)
    if not verdict.accepted:
        raise NotCertified(verdict.reason)
    return Certificate(epsilon, delta, verdict.worst, verdict.rows, shift)
