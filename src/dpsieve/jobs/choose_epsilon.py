"""The least epsilon, or the least delta, for goals in the words of users; from public numbers, before any data is read.

Each goal is a probability that the mechanism in use reaches, computed from its rows: those that would be drawn from.
Candidates are the numbers with three digits, and the answer is one that was computed itself: what is promised for it is
not interpolated. The search halves the candidates, as more budget reaches more. Where a choice between mechanisms makes
that untrue for a few candidates, the answer reaches the goals all the same; a lower one may, too.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dpsieve import validate
from dpsieve.channels.channel import ReportedCounts
from dpsieve.display import html_table
from dpsieve.errors import InvalidType, InvalidValue, NotCertified
from dpsieve.estimation.estimators import middles
from dpsieve.exact.balls import first_whole
from dpsieve.jobs.mechanisms import choose_mechanism, half_reported
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import Method, ReleaseRequest

_COMMON = 10**9  # a frequency far above every threshold
_FAR = 2.0  # times the frequency of a goal
_EPSILONS, _DELTAS = (-2, 20.0), (-15, 1e-3)  # the first power of ten, and the largest candidate
Reached = Callable[[ReportedCounts], float]


@dataclass(frozen=True)
class EpsilonChoice:
    """The least budget that reaches some goals.

    Attributes:
        epsilon, delta: the budget; the one that was not given is the least.
        reached: each goal in words, with the probability that is reached.
        preview: what a release with this budget would do.
        call: the call to copy.
    """

    epsilon: float
    delta: float
    reached: tuple[tuple[str, float], ...]
    preview: Preview
    call: str

    def lines(self) -> list[tuple[str, str]]:
        """Return what to show, as pairs of a name and a value."""
        lines = [("least budget", f"epsilon {self.epsilon:g}, delta {self.delta:g}")]
        lines += [("goal", f"{words}: {_percent(probability)}") for words, probability in self.reached]
        return [*lines, *self.preview.lines(), ("call", self.call)]

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        goals = [{"goal": words, "probability": probability} for words, probability in self.reached]
        about = {"epsilon": self.epsilon, "delta": self.delta, "goals": goals, "call": self.call}
        return {**about, "preview": self.preview.to_json()}

    def _repr_html_(self) -> str:
        """Return the same as a table, for a notebook."""
        return html_table(self.lines())

    def __str__(self) -> str:
        longest = max(len(name) for name, _ in self.lines())
        return "\n".join(f"{name:<{longest}}  {value}" for name, value in self.lines())


@dataclass(frozen=True)
class _Goal:
    words: str
    wanted: float
    reached: Reached


def choose_epsilon(
    *,
    appear: tuple[int, float] | None = None,
    count_within: tuple[int, float] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    max_keys_per_unit: int = 1,
    max_rows_per_key: int = 1,
    method: Method = "auto",
    min_units: int = 1,
    privacy_unit: str = "user_id",
) -> EpsilonChoice:
    """Return the least epsilon at a given delta, or the least delta at a given epsilon, that reaches all goals.

    It reads no data and spends nothing. The mechanism is the one that `dpsieve.release` uses with the same arguments.

    Args:
        appear: (units, probability): a key that this number of units hold is published with at least this probability.
        count_within: (distance, probability): the count of a common key is off by at most this distance with at least
            this probability. Counts are those under the bound on keys per unit.
        epsilon: given, to find the least delta.
        delta: given, to find the least epsilon.
        max_keys_per_unit, max_rows_per_key, method, min_units: as for `dpsieve.release`.
        privacy_unit: who is protected, as the guarantee calls it.

    >>> found = choose_epsilon(appear=(50, 0.95), delta=1e-8, max_keys_per_unit=1)
    >>> found.epsilon, found.preview.surely
    (0.386, 50)
    """
    if (epsilon is None) == (delta is None):
        raise InvalidType("Pass either delta, to find the least epsilon, or epsilon, to find the least delta.")
    shared: Any = {
        "max_keys_per_unit": max_keys_per_unit, "max_rows_per_key": max_rows_per_key, "method": method,
        "min_units": min_units, "privacy_unit": privacy_unit,
    }  # fmt: skip
    if cast(object, max_keys_per_unit) == "auto":
        fix = "Pass about as many keys as most units have, such as max_keys_per_unit=5."
        raise InvalidValue(f"max_keys_per_unit='auto' chooses by the data. {fix}", argument="max_keys_per_unit")
    goals = _goals(appear, count_within, min_units * max_rows_per_key)
    name, given = ("epsilon", delta) if epsilon is None else ("delta", epsilon)
    (power, largest), other = (_EPSILONS, "delta") if name == "epsilon" else (_DELTAS, "epsilon")

    def request(value: float) -> ReleaseRequest:
        budget: Any = {name: value, other: given}
        return ReleaseRequest(key=("any key",), **budget, **shared)

    request(largest)  # raises for wrong arguments

    def probabilities(value: float) -> list[float]:
        asked = request(value)
        try:
            last = choose_mechanism(asked, asked.contribution).mechanism.last
        except (InvalidValue, NotCertified):  # this budget has no mechanism
            return [0.0] * len(goals)
        assert isinstance(last, ReportedCounts)
        return [goal.reached(last) for goal in goals]

    def is_far(value: float) -> bool:
        """Return whether a budget is far too small for `appear`, so that no long table has to be computed."""
        if appear is None or goals[0].wanted < 0.5:
            return False
        asked = request(value)
        with contextlib.suppress(InvalidValue):
            half = half_reported(asked.epsilon, asked.delta, max_keys_per_unit) * max_rows_per_key
            return half > _FAR * appear[0]
        return False

    def holds(value: float) -> bool:
        return not is_far(value) and all(p >= goal.wanted for p, goal in zip(probabilities(value), goals, strict=True))

    values = _candidates(power, largest)
    place = first_whole(lambda i: holds(values[i]), 0, len(values), step=len(values) // 2)
    if place == len(values):
        missed = [f"{goal.words}: {_percent(p)}" for p, goal in zip(probabilities(largest), goals, strict=True)]
        fixes = f"Pass a larger {other}, fewer keys per unit, or a lower goal."
        raise InvalidValue(
            f"no {name} up to {largest:g} reaches the goal. At {largest:g}, {'; '.join(missed)}. {fixes}"
        )
    best = request(values[place])
    choice = choose_mechanism(best, best.contribution)
    reached = zip((goal.words for goal in goals), probabilities(values[place]), strict=True)
    return EpsilonChoice(
        best.epsilon, best.delta, tuple(reached), Preview.of(choice, str(best.contribution)), _call(best)
    )


def _goals(appear: Any, count_within: Any, least: int) -> list[_Goal]:
    goals = []
    if appear is not None:
        units, wanted = _pair("appear", appear, "appear=(50, 0.95)")
        if units < least:
            fix = "Raise the number of units of the goal."
            raise InvalidValue(f"appear asks for keys of {units:,}, and none of fewer than {least:,} is shown. {fix}")
        words = f"a key of frequency {units:,} is published"
        goals.append(_Goal(words, wanted, lambda last: float(last.reporting_probability([units])[0])))
    if count_within is not None:
        distance, close = _pair("count_within", count_within, "count_within=(10, 0.95)")
        words = f"the count of a common key is within {distance:,}"
        goals.append(_Goal(words, close, lambda last: _close(last, distance)))
    if not goals:
        example = "appear=(50, 0.95): a key of 50 units is published with probability 0.95"
        raise InvalidType(f"a goal is missing. Pass one, such as {example}.", argument="appear")
    return goals


def _pair(name: str, value: Any, example: str) -> tuple[int, float]:
    """Return a whole number and a probability."""
    hint = f"Pass a number and a probability, such as {example}."
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidType(f"{name} is not a pair. {hint}", argument=name)
    number = validate.whole(name, value[0], low=1, high=10**8, hint=hint)
    return number, validate.between(name, value[1], 0.01, 0.9999, hint=hint)


def _close(last: ReportedCounts, distance: int) -> float:
    """Return the probability that the count of a key far above the threshold is off by at most a distance."""
    law, common = last.rows, np.array([_COMMON])
    edges = law.spanning_edges(_COMMON, _COMMON)  # between which tokens are read alike
    mass, (counts, _) = law.cell_probabilities(common, edges)[0], law.likeliest(middles(edges))
    return float(mass[np.abs(counts - _COMMON) <= distance].sum())


def _candidates(power: int, largest: float) -> list[float]:
    """Return the numbers with three digits from 10^power to the largest."""
    powers = range(power - 2, math.floor(math.log10(largest)) + 1)
    values = (float(f"{digits}e{p}") for p in powers for digits in range(100, 1000))
    return [value for value in values if value <= largest]


def _percent(probability: float) -> str:
    return f"{math.floor(probability * 1e4) / 100:g} %"


def _call(request: ReleaseRequest) -> str:
    asked: dict[str, Any] = {
        "key": "...",
        "privacy_unit": "row" if not request.privacy_unit else request.privacy_unit[0],
    }
    asked |= {"epsilon": request.epsilon, "delta": request.delta, "max_keys_per_unit": request.max_keys_per_unit}
    usual = {"max_rows_per_key": 1, "method": "auto", "min_units": 1}
    asked |= {name: getattr(request, name) for name, value in usual.items() if getattr(request, name) != value}
    return f"dpsieve.release(data, {', '.join(f'{name}={value!r}' for name, value in asked.items())})"
