"""The privacy guarantee that every release, mechanism and ledger carries."""

import json
import math
import sys
import warnings
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, Context
from typing import Any

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue, PrivacyWarning
from dpsieve.validate import Neighbours

LARGE_DELTA = 1e-4  # warn above this
_HINT = "Say who is protected, such as unit='user_id' or unit='one user_id', or name several columns in a list."
_MISLEADING = ("(", ")", ",", '"')


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for one privacy unit, under a named neighbour relation.

    For all neighbouring inputs D, D' and every set of outputs T: P[M(D) in T] <= e^epsilon P[M(D') in T] + delta
    (Dwork, McSherry, Nissim, Smith 2006). Neighbours differ in one unit: 'add_remove' means that D has one unit more
    or less than D', 'replace' that one unit's data is exchanged for other data. The unit is stored as by
    `unit_words`: 'user_id' becomes 'one user_id'.

    >>> promise = Guarantee(1.0, 1e-8, unit="user_id")
    >>> print(promise)
    (1, 1e-08)-differential privacy when one user_id is added or removed.
    >>> promise.implies(Guarantee(2.0, 1e-6, unit="one user_id"))
    True
    """

    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = "add_remove"
    unit: str = "one row"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validate.epsilon(self.epsilon))
        object.__setattr__(self, "delta", validate.delta(self.delta))
        object.__setattr__(self, "neighbours", validate.neighbours(self.neighbours))
        object.__setattr__(self, "unit", unit_words(self.unit))

    def implies(self, other: "Guarantee") -> bool:
        """Return whether this guarantee is at least as strong as `other`, for the same unit.

        A guarantee for 'add_remove' is also judged as one for 'replace' (`for_replacement`); the reverse does not hold.
        """
        if not isinstance(other, Guarantee):
            raise InvalidType(f"other must be a Guarantee, not {type(other).__name__}. Pass what to compare with.")
        if self.unit != other.unit or (self.neighbours, other.neighbours) == ("replace", "add_remove"):
            return False
        same = self.neighbours == other.neighbours
        epsilon, delta = (self.epsilon, self.delta) if same else self._replaced()
        return epsilon <= other.epsilon and delta <= other.delta

    def for_replacement(self) -> "Guarantee":
        """Return the guarantee under replacement of one unit: one is removed, then another added.

        (epsilon, delta) for add/remove gives (2 epsilon, (1 + e^epsilon) delta) for replacement (group privacy),
        rounded up. A delta of one or more promises nothing and is refused.
        """
        if self.neighbours == "replace":
            return self
        epsilon, delta = self._replaced()
        if delta >= 1 or epsilon > 500:
            raise InvalidValue(f"{self} It promises nothing under replacement. Use a smaller epsilon and delta.")
        return Guarantee(epsilon, delta, "replace", self.unit)

    def _replaced(self) -> tuple[float, float]:
        delta = math.nextafter((1 + math.exp(self.epsilon)) * self.delta * (1 + 2**-50), 2.0) if self.delta else 0.0
        return 2 * self.epsilon, delta

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values; floats survive the round trip exactly."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Guarantee":
        """Rebuild what `to_json` returned; unknown or missing fields are refused."""
        if not isinstance(data, dict):
            raise InvalidType("a guarantee is read from a dict. Pass what Guarantee.to_json returned.")
        fields = set(cls.__dataclass_fields__)
        if set(data) != fields:
            raise InvalidValue(f"a guarantee has the fields {', '.join(sorted(fields))}. Pass exactly these.")
        return cls(**data)

    def __str__(self) -> str:
        change = "is added or removed" if self.neighbours == "add_remove" else "is replaced by another"
        name = f"({shown(self.epsilon)}, {shown(self.delta)})" if self.delta else shown(self.epsilon)
        return f"{name}-differential privacy when {self.unit} {change}."


def rounded_up(number: float, digits: int = 4) -> str:
    """Return a number with at most `digits` digits, rounded up: the safe side of what is promised.

    >>> rounded_up(0.0123449999), rounded_up(1e-08), rounded_up(0.3)
    ('0.01235', '1e-08', '0.3')
    """
    short = f"{number + 0.0:.{digits}g}"
    if float(short) < number:
        short = f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(number)):.{digits}g}"
    return short


def shown(number: float) -> str:
    """Return the shortest exact decimal form of a float."""
    short = f"{number + 0.0:g}"
    return short if float(short) == number else repr(number)


def warn_of_large_delta(delta: float | None) -> None:
    """Issue a PrivacyWarning at the caller of dpsieve for a delta above 1e-4."""
    if delta is None or not LARGE_DELTA < delta < 1:
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("dpsieve"):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"delta={delta:.3g} is large: what one unit alone holds may be published with that probability, for about "
        f"{10_000 * delta:,.0f} of 10,000 such units. Use 1e-6 or less.",
        PrivacyWarning,
        stacklevel=level,
    )


def unit_words(unit: object) -> str:
    """Return the phrase for a unit from the names of its columns; one that begins with 'one' is unchanged.

    Without a column each row is a unit. Several columns are sorted, as their order does not matter. Names with a comma,
    a bracket or a quote are quoted.

    >>> unit_words("user_id"), unit_words("one user_id"), unit_words(())
    ('one user_id', 'one user_id', 'one row')
    >>> unit_words(("user_id", "tenant")), unit_words(["tenant", "user_id"])
    ('one (tenant, user_id)', 'one (tenant, user_id)')
    """
    if not isinstance(unit, tuple | list):
        words = validate.text("unit", unit, hint=_HINT)
        return words if words.startswith("one ") else f"one {words}"
    names = sorted({validate.text("unit", name, hint=_HINT) for name in unit})
    if not names and isinstance(unit, list):
        raise InvalidValue(f"unit is an empty list. {_HINT}")
    if not names:
        return "one row"
    if len(names) == 1:
        return f"one {_quoted(names[0]) if names[0].startswith(_MISLEADING) else names[0]}"
    quoted = [_quoted(name) if any(mark in name for mark in _MISLEADING) else name for name in names]
    return f"one ({', '.join(quoted)})"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
