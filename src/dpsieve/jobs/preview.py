"""What a release would do, before any budget is spent: from public numbers alone."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsieve.channels import KnownKeys
from dpsieve.jobs.plan import Plan, frequency_at
from dpsieve.privacy import Guarantee

_WIDE = 500.0  # the sigma of Gaussian noise from which on intervals are as long as those of real noise, and a bit


@dataclass(frozen=True)
class Preview:
    """What a release would add, withhold and promise.

    Attributes:
        mechanism, reason: what would be used, and why.
        guarantee: what the release would promise.
        each_key: the (epsilon, delta) that one key of a unit gets.
        rarely, half, surely: the true frequency that is reported with probability 0.05, 0.5 and 0.95 (None: never;
            0 with known keys, which are always answered).
        width: the widest 95 % interval of a key that is far above the threshold, from its low to its high end.
        contribution: what a unit's rows are cut to, in words.
    """

    mechanism: str
    reason: str
    guarantee: Guarantee
    each_key: tuple[float, float]
    rarely: int | None
    half: int | None
    surely: int | None
    width: int
    contribution: str

    @classmethod
    def of(cls, plan: Plan) -> "Preview":
        """Read a plan."""
        channel = plan.channel
        rarely: int | None = 0
        half, surely = rarely, rarely
        each_key = (channel.guarantee.epsilon, channel.guarantee.delta)
        if not isinstance(channel, KnownKeys):
            rarely, half, surely = (frequency_at(channel, p) for p in (0.05, 0.5, 0.95))
            each_key = channel.each_key
        return cls(
            plan.mechanism, plan.reason, plan.guarantee, each_key, rarely, half, surely, _width(plan),
            contribution(plan.max_keys, plan.max_rows),
        )  # fmt: skip

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
        return [
            *head,
            ("each key gets", f"epsilon {self.each_key[0]:.4g}, delta {self.each_key[1]:.4g}"),
            ("a unit adds", self.contribution),
            ("reported with probability 0.05", _frequency(self.rarely)),
            ("reported with probability 0.5", _frequency(self.half)),
            ("reported with probability 0.95", _frequency(self.surely)),
            ("95 % interval of a common key", f"at most {self.width:,} wide"),
        ]

    def __str__(self) -> str:
        longest = max(len(name) for name, _ in self.lines())
        return "\n".join(f"{name:<{longest}}  {value}" for name, value in self.lines())


def contribution(keys: int, rows: int) -> str:
    """Say what a unit's rows are cut to."""
    which = "1 key" if keys == 1 else f"{keys:,} keys"
    return f"at most {which}, once each" if rows == 1 else f"at most {which}, {rows:,} rows each"


def _frequency(value: int | None) -> str:
    return "no frequency" if value is None else f"a key of frequency {value:,}"


def _width(plan: Plan) -> int:
    """Return the widest interval among the tokens of a key far above the threshold."""
    channel = plan.channel
    if isinstance(channel, KnownKeys):
        return 2 * channel.reach(0.95)
    sigma: float = channel.to_json().get("derived", {}).get("sigma", 0.0)
    if sigma > _WIDE:  # its table need not be made for this
        return math.ceil(2 * 1.9599640 * sigma * 1.001) + 2
    row = channel.row(10**9)
    low, high = channel.interval(row.right, 0.95)
    likely = row.mass > row.mass.max() * 1e-3
    return int(np.max((high - low)[likely]))
