"""A ledger as it was read at one moment: its entries, chained by hashes, and what they leave of the budget.

An entry has the hash SHA-256([hash before, number, time, spend, note]), and the header, which is the first link,
SHA-256(["dpsieve ledger", format, time, budget, ""]). The list is written as JSON, in ASCII and without spaces; budget
and spend are themselves JSON text with sorted keys. So a row that is changed, removed from the middle or moved breaks
the chain. Whoever rewrites every later hash too, or cuts entries off the end, is found only by a hash noted elsewhere.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Context
from functools import cached_property
from typing import Any, NamedTuple

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.composition import Composition
from dpsieve.privacy.curves.losses import either
from dpsieve.privacy.curves.spends import Approximate, Renyi, Spend, ZeroConcentrated, leak, spend_from_json
from dpsieve.privacy.guarantee import Guarantee, shown

ORIGIN = "dpsieve ledger"
_MOST_RUNS = 10**6
_LONGEST_NOTE = 1000
# Less than this share of the budget's epsilon counts as nothing left.
_SHARE = 1e-6


@dataclass(frozen=True)
class Entry:
    """One spend on a ledger. The hash covers all of it and the hash of the entry before.

    Attributes:
        number, time: from 1 on; in UTC, ISO 8601.
        spend: what was spent, as one spend that covers it.
        curves: what it was spent on, more exactly, where that is known: noise of these kinds, which costs no more.
        note: what it was for.
        hash: of this entry.
    """

    number: int
    time: str
    spend: Spend
    note: str
    hash: str
    curves: tuple[Spend, ...] = ()

    @property
    def cost(self) -> "Cost":
        """What was spent."""
        return Cost(self.spend, self.curves)


class Cost(NamedTuple):
    """What an entry costs: a spend that covers it, and the curves it is made of, where they are known."""

    spend: Spend
    curves: tuple[Spend, ...] = ()

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain JSON values: the spend first, then the curves."""
        return [spend.to_json() for spend in (self.spend, *self.curves)]

    @classmethod
    def from_json(cls, data: Any) -> "Cost":
        """Rebuild what `to_json` returned; anything else is refused."""
        if not isinstance(data, list) or not data:
            raise InvalidType("data must be a list of spends. Pass what to_json returned.")
        first, *curves = map(spend_from_json, data)
        return cls(first, tuple(curves))


@dataclass(frozen=True)
class Chain:
    """The verified content of a ledger: its budget, the hash of its header, and its entries."""

    budget: Guarantee
    start: str
    entries: tuple[Entry, ...] = ()

    @property
    def head(self) -> str:
        """The hash of the last entry, or of the header where there is none."""
        return self.entries[-1].hash if self.entries else self.start

    def holds(self, head: str) -> bool:
        """Return whether this was the head at some time."""
        return head == self.start or any(head == entry.hash for entry in reversed(self.entries))

    def following(self, cost: Cost, note: str) -> Entry:
        """Return the entry that would come next, at this time."""
        number, time = len(self.entries) + 1, utc_now()
        hashed = link(self.head, number, time, canonical(cost.to_json()), note)
        return Entry(number, time, cost.spend, note, hashed, cost.curves)

    def plus(self, entries: Iterable[Entry]) -> "Chain":
        """Return this chain with more entries at its end."""
        return Chain(self.budget, self.start, (*self.entries, *entries))

    def totals(self, *more: Cost) -> list[Composition]:
        """Return all spends together, with `more` of them; each composition is true, so the lower one counts.

        The first takes each entry as one spend, the second as the curves it is made of. Many uses of Gaussian noise
        cost far less as such; a single one may cost a little less as the exact (epsilon, delta) it was made for.
        """
        costs = [*(entry.cost for entry in self.entries), *more]
        totals = [Composition(_joined(cost.spend for cost in costs))]
        if any(cost.curves for cost in costs):
            totals.append(Composition(_joined(curve for cost in costs for curve in cost.curves or (cost.spend,))))
        return totals

    @cached_property
    def _now(self) -> list[Composition]:
        return self.totals()

    @cached_property
    def _left(self) -> float:
        """What the spends leave of the budget's delta at the budget's epsilon; below zero for a forged ledger."""
        return self.budget.delta - min(_delta(total, self.budget.epsilon) for total in self._now)

    def fits(self, cost: Cost) -> bool:
        """Return whether all spends with this one stay within the budget."""
        return any(_delta(total, self.budget.epsilon) <= self.budget.delta for total in self.totals(cost))

    def spent(self) -> float:
        """Return what `Ledger.spent` promises."""
        epsilon = min(total.epsilon(self.budget.delta) for total in self._now)
        # Both are upper bounds, found in different ways.
        return min(epsilon, self.budget.epsilon) if self._left >= 0 else epsilon

    def remaining(self, delta: float | None) -> Guarantee | None:
        """Return what `Ledger.remaining` promises."""
        budget = self.budget
        if self._left < 0:
            return None
        if delta is None:
            delta = float(f"{self._left / 2:.3g}") if self.entries else budget.delta

        def release(epsilon: float) -> Cost:
            return Cost(Approximate(epsilon, delta))

        # Composing zCDP or Renyi spends is slow, so there the search is coarse, over whole compositions, not over a
        # sum of two parts.
        if any(isinstance(spend, ZeroConcentrated | Renyi) for total in self._now for spend in total.spends):
            bound = _bisected(lambda epsilon: self.fits(release(epsilon)), budget.epsilon, 10)
        else:
            bound = max(self._room(now, delta) for now in self._now)
        # A spend composes all anew, which agrees with the search up to the grid of losses.
        shares = [bound * share for share in (1.0, 1 - 1e-6, 1 - 1e-5, 1 - 1e-4, 1 - 1e-3, 0.99)]
        for candidate in sorted([*shares, budget.epsilon - self._now[0].pure_epsilon], reverse=True):
            epsilon = _rounded_down(max(candidate, 0.0))
            if epsilon > _SHARE * budget.epsilon and self.fits(release(epsilon)):
                return replace(budget, epsilon=epsilon, delta=delta)
        return None

    def _room(self, now: Composition, delta: float) -> float:
        """Return about the largest epsilon of a release with this delta that fits on top of the spends so far."""
        at = self.budget.epsilon
        return _bisected(lambda epsilon: _on_top(now, at, epsilon, delta) <= self.budget.delta, at, 24)

    def refusal(self, cost: Cost) -> str:
        """Return why a spend that does not fit is refused, and what would fit."""
        budget = f"the budget epsilon={shown(self.budget.epsilon)}, delta={shown(self.budget.delta)}"
        spend = cost.spend
        delta = spend.delta if isinstance(spend, Approximate) else None
        left = self.remaining(delta) or self.remaining(None)
        rest = "Nothing is left"
        if left:
            rest = f"At most epsilon={shown(left.epsilon)} is left at delta={shown(left.delta)}"
        if left and delta is not None and left.delta != delta:
            rest = f"Nothing is left at delta={shown(delta)}. {rest}"
        fix = "Spend less." if left else "Ask whoever decides on the budget."
        words = ", ".join(f"{name}={value}" for name, value in spend.numbers().items())
        times = f"{spend.count:,} times " if spend.count > 1 else ""
        kind = "" if isinstance(spend, Approximate) else f"{spend.kind.replace('_', ' ')} noise of "
        what = f"{times}{kind}{words}"
        return f"{what} does not fit {budget} (entries so far: {len(self.entries)}). {rest}. {fix}"


def canonical(data: Any) -> str:
    """Return JSON text that is the same for the same data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def link(*parts: str | int) -> str:
    """Return the hash of one link of the chain."""
    return hashlib.sha256(canonical(parts).encode("ascii")).hexdigest()


def linked(stored: object, *parts: object) -> bool:
    """Return whether a stored hash is that of the link; SQLite may hand out other types than the tables declare."""
    plain = [part for part in parts if isinstance(part, str | int)]
    return len(plain) == len(parts) and stored == link(*plain)


def utc_now() -> str:
    """Return the time, with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def checked_time(time: str) -> str:
    """Return a time that `utc_now` wrote; anything else raises ValueError or TypeError."""
    if datetime.fromisoformat(time).astimezone(UTC).isoformat(timespec="microseconds") != time:
        raise ValueError
    return time


def checked_note(note: str) -> str:
    """Return a note that fits one line of a terminal, or refuse it."""
    hint = f"Pass one line of at most {_LONGEST_NOTE:,} characters, such as note='searches of May'."
    if not isinstance(note, str):
        raise InvalidType(f"note must be text, not {type(note).__name__}. {hint}")
    if len(note) > _LONGEST_NOTE:
        raise InvalidValue(f"note has {len(note):,} characters. {hint}")
    # No line breaks, no control sequences for a terminal, no half characters that UTF-8 cannot hold.
    if not note.isprintable():
        raise InvalidValue(f"note holds characters that cannot be printed. {hint}")
    return note


def _joined(spends: Iterable[Spend]) -> list[Spend]:
    """Return the same spends with equal ones as one of a larger count, which is composed much faster."""
    runs: Counter[Spend] = Counter()
    for spend, times in Counter(spends).items():
        runs[replace(spend, count=1)] += spend.count * times
    joined: list[Spend] = []
    for spend, count in runs.items():
        joined += [replace(spend, count=_MOST_RUNS)] * (count // _MOST_RUNS)
        if count % _MOST_RUNS:
            joined.append(replace(spend, count=count % _MOST_RUNS))
    return joined


def _delta(spends: Composition, epsilon: float) -> float:
    """Return an upper bound on delta at `epsilon` that is also tight just below the sum of the epsilons.

    There a grid of losses is too coarse: 0.2 + 0.8 is a hair above 1.0 in floats, and costs 3e-6 on the grid. But a sum
    s of epsilons, and leaks, is at worst delta = leaks + 1 - e^(epsilon - s) at any epsilon below s.
    """
    best = spends.delta(epsilon)
    over = spends.pure_epsilon - epsilon
    if 0 < over < math.inf:
        best = min(best, either(leak(spends.spends), math.nextafter(over, math.inf)))
    return best


def _on_top(now: Composition, at: float, epsilon: float, delta: float) -> float:
    """Return about the delta, at the epsilon `at`, of `now` and one (epsilon, delta)-DP release with epsilon <= at.

    At worst the release leaks everything with probability delta, and else has the losses +-epsilon of randomised
    response (Kairouz, Oh and Viswanath, ICML 2015). A hair is taken off, so that rounding up does not hide a release
    that fits exactly.
    """
    truth = 1 / (1 + math.exp(-epsilon))
    rest = truth * now.delta(at - epsilon) + (1 - truth) * now.delta(min(at + epsilon, 500.0))
    return (delta + (1 - delta) * rest) * (1 - 1e-12)


def _bisected(holds: Callable[[float], bool], high: float, steps: int) -> float:
    """Return about the largest number in [0, high] at which `holds`; zero where there is none."""
    if holds(high):
        return high
    low = 0.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _rounded_down(number: float) -> float:
    """Return the number with six digits."""
    return float(Context(prec=6, rounding=ROUND_DOWN).create_decimal_from_float(number))
