"""The content of a ledger at one moment: entries chained by hashes, and the remaining budget.

An entry has the hash SHA-256([previous hash, number, time, spend, note]), and the header, which is the first link,
SHA-256(["dpsieve ledger", format, time, rules, ""]). The list is written as JSON, in ASCII and without spaces; rules
and spend are themselves JSON text with sorted keys. The spend of the first entry also has the index of the division of
delta that it fixed. So a row that is changed, removed from the middle or moved breaks the chain. Truncation at the end
and a chain with all later hashes rewritten are detected only by a hash noted elsewhere.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Context
from fractions import Fraction
from functools import cache, cached_property, reduce
from itertools import product
from typing import Any

from dpsieve.accounting.composition import Composition
from dpsieve.accounting.spends import Approximate, Spend, total_leak
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import first_whole, largest
from dpsieve.privacy.guarantee import Guarantee, shown
from dpsieve.privacy.ledger.rules import Cost, Division, Rules, Totals

ORIGIN = "dpsieve ledger"
_MOST_RUNS = _MOST_ROOM = 10**6
_LONGEST_NOTE = 1000
_LONGEST_SPEND = 900_000  # bytes; the file takes rows of up to 10^6
_SHARE = 1e-6  # less than this share of the budget's epsilon counts as nothing
_WORTH = 1.1  # a batch is charged the sum of its epsilons unless composition saves more than this factor


@dataclass(frozen=True)
class Entry:
    """One spend on a ledger. The hash covers all of it and the previous hash.

    Attributes:
        number: from 1.
        time: in UTC, ISO 8601.
        note: its purpose.
        hash: of this entry.
        cost: the amount spent.
        division: index of the division of delta that the first entry fixed; None for all others.
    """

    number: int
    time: str
    note: str
    hash: str
    cost: Cost
    division: int | None = None

    @property
    def text(self) -> str:
        """The cost and the division, as they are stored."""
        return _stored_text(self.cost, self.division)

    @property
    def spend(self) -> Spend:
        """One spend that covers the entry."""
        return self.cost.spend

    @property
    def curves(self) -> tuple[Spend, ...]:
        """The noise it was spent on, where that is known; it costs no more than `spend`."""
        return self.cost.curves

    def words(self) -> str:
        """Return a readable description."""
        batch = "" if self.cost.members == 1 else f"batch of {self.cost.members:,}: "
        return f"{batch}{self.spend.words()}"


@dataclass(frozen=True)
class Remaining(Guarantee):
    """The largest guarantee of one more release, and the rule of the ledger that admits it."""

    rule: str = ""

    def __str__(self) -> str:
        return f"{super().__str__()[:-1]}, by {self.rule}."


@dataclass(frozen=True)
class Chain:
    """The verified content of a ledger: its rules, the hash of its header, its entries and their totals per rule."""

    rules: Rules
    start: str
    entries: tuple[Entry, ...] = ()
    sums: Totals | None = None  # None for a chain without entries

    @property
    def budget(self) -> Guarantee:
        """The guarantee of all entries together."""
        return self.rules.budget

    @property
    def head(self) -> str:
        """The hash of the last entry, or of the header where there is none."""
        return self.entries[-1].hash if self.entries else self.start

    def holds(self, head: str) -> bool:
        """Return whether this hash is part of the chain."""
        return head == self.start or any(head == entry.hash for entry in reversed(self.entries))

    def following(self, cost: Cost, note: str) -> Entry:
        """Return the next entry, with the present time; the first one fixes the division of delta."""
        number, time = len(self.entries) + 1, utc_now()
        division = None if self.entries else self.rules.choose(self.rules.totals(cost))
        _check_length(cost)
        own_hash = link(self.head, number, time, _stored_text(cost, division), note)
        return Entry(number, time, note, own_hash, cost, division)

    def parsed(self, number: int, text: str) -> tuple[Cost, int | None]:
        """Return the cost and the division of the entry that was stored as this text.

        Raises an error for any other text, and for a first entry that does not fit the division it names.
        """
        data, division = json.loads(text), None
        if number == 1 and isinstance(data, dict):
            division = data.pop("division", None)
        cost = Cost.from_json(data)
        if number == 1:
            if type(division) is not int or not 0 <= division < len(self.rules.divisions):
                raise ValueError
            if not self.rules.find_rule(self.rules.totals(cost), self.rules.divisions[division]):
                raise ValueError
        if _stored_text(cost, division) != text:
            raise ValueError
        return cost, division

    def plus(self, entries: Iterable[Entry]) -> "Chain":
        """Return this chain with more entries at its end."""
        added = tuple(entries)
        totals = (self.rules.totals(entry.cost) for entry in added)
        return Chain(self.rules, self.start, (*self.entries, *added), reduce(Totals.plus, totals, self._totals))

    @property
    def _totals(self) -> Totals:
        return self.sums or self.rules.totals()

    @property
    def division(self) -> Division | None:
        """The division of delta that was recorded with the first entry; None without entries."""
        if not self.entries:
            return None
        index = self.entries[0].division
        assert index is not None
        return self.rules.divisions[index]

    def rule_with(self, cost: Cost) -> str | None:
        """Return the name of a rule that admits this cost after all entries, or None."""
        added = self.rules.totals(cost)
        division = self.division or self.rules.divisions[self.rules.choose(added)]
        return self.rules.find_rule(self._totals.plus(added), division)

    def room_for(self, cost: Cost) -> int:
        """Return how many more entries of this cost fit, up to a million."""
        added = self.rules.totals(cost)
        division = self.division or self.rules.divisions[self.rules.choose(added)]

        def is_refused(times: int) -> bool:
            return self.rules.find_rule(self._totals.plus(added.times(Fraction(times))), division) is None

        return first_whole(is_refused, 1, _MOST_ROOM + 1) - 1

    @cached_property
    def _valid(self) -> bool:
        """Whether a rule holds for the entries so far; false only for a forged ledger."""
        return self.rules.find_rule(self._totals, self.division or self.rules.divisions[-1]) is not None

    def spent(self) -> float:
        """Return the result of `Ledger.spent`."""
        totals = _compositions([entry.cost for entry in self.entries])
        epsilon = min(total.epsilon(self.budget.delta) for total in totals)
        # At most the budget's epsilon, by the rules; the composition may round slightly above it.
        return min(epsilon, self.budget.epsilon) if self._valid else epsilon

    def left_for_leaks(self) -> float:
        """Return the largest delta of one more release, rounded down; zero or less where there is none."""
        division, totals = self.division, self._totals
        if division is None:
            return self.budget.delta
        if division.leaks is not None:
            return math.nextafter(float(division.leaks - totals.leak), -1.0)
        over = max(Fraction(0), totals.epsilon - Fraction(self.budget.epsilon))
        return math.nextafter(float(division.own - totals.delta - over), -1.0)

    def remaining(self, delta: float | None) -> Remaining | None:
        """Return the result of `Ledger.remaining`."""
        if not self._valid:
            return None
        if delta is None:
            delta = float(f"{max(0.0, self.left_for_leaks()) / 2:.3g}") if self.entries else self.budget.delta

        def rule(epsilon: float) -> str | None:
            return self.rule_with(Cost(Approximate(epsilon, delta)))

        most = largest(lambda epsilon: epsilon == 0 or rule(epsilon) is not None, 0.0, self.budget.epsilon)
        epsilon = float(Context(prec=6, rounding=ROUND_DOWN).create_decimal_from_float(most))
        name = rule(epsilon)
        if epsilon <= _SHARE * self.budget.epsilon or name is None:
            return None
        return Remaining(epsilon, delta, self.budget.neighbours, self.budget.unit, name)

    def batched(self, costs: list[Cost], delta: float | None) -> Cost | None:
        """Return one cost that covers a batch and fits, or None.

        The curves of the members add up under each rule. As (epsilon, delta)-DP they have the epsilon of their
        composition, which holds for amounts fixed in advance, at the given delta or at one that the ledger has left.
        Where that does not fit, they may count as this (epsilon, delta) alone.
        """
        members = sum(cost.members for cost in costs)
        curves = tuple(merge_equal(curve for cost in costs for curve in cost.curves or (cost.spend,)))
        _check_length(Cost(Approximate(0.0), curves, members))  # before the slow part
        totals, points = _compositions(costs), self._points(delta)

        @cache
        def least(first: int, at: float) -> float:  # the first composition is the faster one
            return min(total.epsilon(at) for total in totals[:first])

        leaked = total_leak(totals[0].spends)
        if delta is None and leaked <= self.budget.delta and totals[0].pure_epsilon <= _WORTH * least(1, points[0][0]):
            points.insert(0, (leaked, False))  # a larger delta would hardly lower epsilon
        for first, (at, alone) in product(range(1, len(totals) + 1), points):
            epsilon = least(first, at)
            if epsilon <= 500:
                cost = Cost(Approximate(epsilon, at), () if alone else curves, members)
                if self.rule_with(cost):
                    return cost
        return None

    def _points(self, delta: float | None) -> list[tuple[float, bool]]:
        """Return (delta of the composition, whether the batch counts by it alone), in order of preference."""
        division, left = self.division, max(0.0, self.left_for_leaks())
        own = left if division is None or division.leaks is None else max(0.0, division.own - float(self._totals.own))
        if delta is not None:
            return [(delta, False), (delta, True)]
        points = [(own * share, False) for share in (0.5, 1.0)] + [(left * share, True) for share in (0.5, 1.0)]
        return list(dict.fromkeys(points))

    def refusal(self, costs: list[Cost]) -> str:
        """Return the message for a spend, or a batch, that does not fit, with what would fit."""
        budget = f"the budget of epsilon {shown(self.budget.epsilon)}, delta {shown(self.budget.delta)}"
        spend = costs[0].spend
        delta = spend.delta if isinstance(spend, Approximate) and len(costs) == 1 else None
        left = self.remaining(delta) or self.remaining(None)
        available = "Nothing is left"
        if left:
            available = f"At most epsilon {shown(left.epsilon)} is left at delta {shown(left.delta)}, by {left.rule}"
        if left and delta is not None and left.delta != delta:
            available = f"Nothing is left at delta {shown(delta)}. {available}"
        fix = "Spend less." if left else "Ask the budget owner for more."
        numbers = ", ".join(f"{name}={value}" for name, value in spend.numbers().items())
        times = f"{spend.count:,} times " if spend.count > 1 else ""
        kind = "" if isinstance(spend, Approximate) else f"{spend.name.replace('_', ' ')} noise of "
        what = f"{times}{kind}{numbers}" if len(costs) == 1 else f"a batch of {len(costs):,} spends"
        return f"{what} does not fit {budget} (entries so far: {len(self.entries)}). {available}. {fix}"


def canonical(data: Any) -> str:
    """Return canonical JSON text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def link(*parts: str | int) -> str:
    """Return the hash of one link of the chain."""
    return hashlib.sha256(canonical(parts).encode("ascii")).hexdigest()


def linked(stored: object, *parts: object) -> bool:
    """Return whether a stored hash is that of the link; SQLite may return other types than the tables declare."""
    plain = [part for part in parts if isinstance(part, str | int)]
    return len(plain) == len(parts) and stored == link(*plain)


def utc_now() -> str:
    """Return the present time, with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def checked_time(time: str) -> str:
    """Return a time that `utc_now` wrote; anything else raises ValueError or TypeError."""
    if datetime.fromisoformat(time).astimezone(UTC).isoformat(timespec="microseconds") != time:
        raise ValueError
    return time


def checked_note(note: str) -> str:
    """Return a note of one printable line, or refuse it."""
    hint = f"Pass one line of at most {_LONGEST_NOTE:,} characters, such as note='searches of May'."
    if not isinstance(note, str):
        raise InvalidType(f"note must be text, not {type(note).__name__}. {hint}", argument="note")
    if len(note) > _LONGEST_NOTE:
        raise InvalidValue(f"note has {len(note):,} characters. {hint}", argument="note")
    # No line breaks, no control sequences of terminals, no lone surrogates, which UTF-8 cannot encode.
    if not note.isprintable():
        raise InvalidValue(f"note has characters that cannot be printed. {hint}", argument="note")
    return note


def merge_equal(spends: Iterable[Spend]) -> list[Spend]:
    """Return the spends with equal ones merged into one of a larger count, which is composed much faster."""
    runs: Counter[Spend] = Counter()
    for spend, times in Counter(spends).items():
        runs[replace(spend, count=1)] += spend.count * times
    merged: list[Spend] = []
    for spend, count in runs.items():
        merged += [replace(spend, count=_MOST_RUNS)] * (count // _MOST_RUNS)
        if count % _MOST_RUNS:
            merged.append(replace(spend, count=count % _MOST_RUNS))
    return merged


def _compositions(costs: list[Cost]) -> list[Composition]:
    """Return compositions of all costs, for amounts fixed in advance.

    The first takes each cost as one spend, the second as its curves. Both hold, so the lower one counts: many uses of
    Gaussian noise cost far less by their curves; a single one may cost slightly less by its exact (epsilon, delta).
    """
    totals = [Composition(merge_equal(cost.spend for cost in costs))]
    if any(cost.curves for cost in costs):
        totals.append(Composition(merge_equal(curve for cost in costs for curve in cost.curves or (cost.spend,))))
    return totals


def _stored_text(cost: Cost, division: int | None) -> str:
    return canonical(cost.to_json() | ({} if division is None else {"division": division}))


def _check_length(cost: Cost) -> None:
    """Refuse a cost that is too long for the file."""
    length = len(_stored_text(cost, None))
    if length > _LONGEST_SPEND:
        fix = "Declare smaller batches, or equal spends, which are stored once."
        raise InvalidValue(f"one entry would take {length:,} bytes, more than {_LONGEST_SPEND:,}. {fix}")
