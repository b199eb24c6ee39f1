"""What a release would do, before any budget is spent: from public numbers alone."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.display import html_table
from dpsieve.jobs.plan import Plan
from dpsieve.noise.known_keys import KnownKeys
from dpsieve.noise.report_then_count import ReportThenCount
from dpsieve.privacy import Guarantee

_WIDE = 500.0  # the sigma of Gaussian noise from which on intervals are as long as those of real noise, and a bit

_AFTER_CHOICE = "chosen with the bound, from a private histogram of keys per unit"


@dataclass(frozen=True)
class Preview:
    """What a release would add, withhold and promise.

    Attributes:
        mechanism, reason: what would be used, and why.
        guarantee: what the release would promise.
        each_key: the (epsilon, delta) that one key of a unit gets.
        rarely, half, surely: the true frequency that is reported with probability 0.05, 0.5 and 0.95 (None: never, or
            not chosen yet; 0 with known keys, which are always answered).
        width: the widest 95 % interval of a key that is far above the threshold, from its low to its high end; None if
            not chosen yet.
        contribution: what a unit's rows are cut to, in words.
        counts_from: with `report_then_count`, the frequency below which a reported key only has an upper end.
        rarer: what would report rarer keys, in words.
    """

    mechanism: str
    reason: str
    guarantee: Guarantee
    each_key: tuple[float, float]
    rarely: int | None
    half: int | None
    surely: int | None
    width: int | None
    contribution: str
    counts_from: int | None = None
    rarer: str = ""

    @classmethod
    def of(cls, plan: Plan, contribution: str, rarer: str = "") -> "Preview":
        """Read a plan."""
        each = plan.each
        one_key = each.each_key if isinstance(each, ReportedCounts) else each.guarantee
        shares = (0.05, 0.5, 0.95)
        rarely, half, surely = (frequency_at(each, p) if isinstance(each, ReportedCounts) else 0 for p in shares)
        return cls(
            plan.name, plan.reason, plan.guarantee, (one_key.epsilon, one_key.delta), rarely, half, surely,
            _width(each), contribution,
            each.first * each.max_rows if isinstance(each, ReportThenCount) else None, rarer,
        )  # fmt: skip

    @classmethod
    def before_choice(
        cls, guarantee: Guarantee, epsilon: float, contribution: str, why: str = _AFTER_CHOICE
    ) -> "Preview":
        """Say what is known before the bound on keys is chosen, and the mechanism with it."""
        return cls("auto", why, guarantee, (epsilon, guarantee.delta), None, None, None, None, contribution)

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return {**self.__dict__, "guarantee": self.guarantee.to_json(), "each_key": list(self.each_key)}

    def lines(self) -> list[tuple[str, str]]:
        """Return what to show, as pairs of a name and a value."""
        head = [("guarantee", str(self.guarantee)), ("mechanism", f"{self.mechanism}: {self.reason}")]
        if self.surely == 0:
            width = f"at most {self.width:,} wide"
            reported = "every key of the list, and no other"
            return [*head, ("a unit adds", self.contribution), ("reported", reported), ("95 % interval", width)]
        if self.width is None:
            return [*head, ("a unit adds", self.contribution)]
        begin = f"frequency {self.counts_from or 0:,}; a rarer key that is reported is 'at most about' that"
        return [
            *head,
            ("each key gets", f"epsilon {self.each_key[0]:.4g}, delta {self.each_key[1]:.4g}"),
            ("a unit adds", self.contribution),
            ("reported with probability 0.05", _frequency(self.rarely)),
            ("reported with probability 0.5", _frequency(self.half)),
            ("reported with probability 0.95", _frequency(self.surely)),
            *([("counts begin at", begin)] if self.counts_from else []),
            ("95 % interval of a common key", f"at most {self.width:,} wide"),
            *([("for rarer keys", self.rarer)] if self.rarer else []),
        ]

    def _repr_html_(self) -> str:
        """Return the same as a table, for a notebook."""
        return html_table(self.lines())

    def __str__(self) -> str:
        longest = max(len(name) for name, _ in self.lines())
        return "\n".join(f"{name:<{longest}}  {value}" for name, value in self.lines())


def _frequency(value: int | None) -> str:
    return "no frequency" if value is None else f"a key of frequency {value:,}"


def _width(each: object) -> int:
    """Return the widest interval among the tokens of a key far above the threshold."""
    if isinstance(each, KnownKeys):
        return 2 * each.half_width(0.95)
    assert isinstance(each, ReportedCounts)
    sigma: float = getattr(each, "sigma", 0.0)
    if sigma > _WIDE:  # its table need not be made for this
        return math.ceil(2 * 1.9599640 * sigma * 1.001) + 2
    row = each.row(10**9)
    low, high = each.interval(row.right, 0.95)
    likely = row.mass > row.mass.max() * 1e-3
    return int(np.max((high - low)[likely]))
