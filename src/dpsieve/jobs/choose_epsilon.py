"""The least epsilon, or the least delta, for goals in the words of users; from public numbers, before any data is read.

Each goal is a probability that the mechanism in use reaches, computed from its rows: those that would be drawn from.
Candidates are the numbers with three digits, and the answer is one that was computed itself: what is promised for it is
not interpolated. The search halves the candidates, as more budget reaches more. Where a choice between mechanisms makes
that untrue for a few candidates, the answer reaches the goals all the same; a lower one may, too.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np

from dpsieve import validate
from dpsieve.channels.channel import ReportedCounts
from dpsieve.discovery.find_then_count import FindThenMeasure, MeasuredReader
from dpsieve.display import html_table
from dpsieve.errors import InvalidType, InvalidValue, NotCertified
from dpsieve.estimation.estimators import middles
from dpsieve.exact.balls import first_whole
from dpsieve.jobs.mechanisms import choose_mechanism, half_reported
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import Method
from dpsieve.jobs.table_request import TableRequest
from dpsieve.jobs.totals import mechanism_of_totals
from dpsieve.noise.key_totals import KeyTotals
from dpsieve.noise.totals import GRID, AnyTotal, Total, TotalsReader, mean_missed
from dpsieve.privacy.mechanism import Mechanism

_COMMON = 10**9  # a frequency far above every threshold
_FAR = 2.0  # times the frequency of a goal
_EPSILONS, _DELTAS = (-2, 20.0), (-15, 1e-3)  # the first power of ten, and the largest candidate
Reached = Callable[[Any], float]
Goals = list["_Goal"]


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
    mean_within: tuple[int, float, float] | None = None,
    sums: Mapping[str, tuple[float, float]] | None = None,
    means: Mapping[str, tuple[float, float]] | None = None,
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
        mean_within: (units, distance, probability): the mean of a published key that this number of units hold is
            stated, and off by at most this distance, with at least this probability, for each column of `means`.
        sums, means: columns of the same release with their bounds, as for `dpsieve.release`.
        epsilon: given, to find the least delta.
        delta: given, to find the least epsilon.
        max_keys_per_unit, max_rows_per_key, method, min_units: as for `dpsieve.release`.
        privacy_unit: who is protected, as the guarantee calls it.

    >>> found = choose_epsilon(appear=(50, 0.95), delta=1e-8, max_keys_per_unit=1)
    >>> found.epsilon, found.preview.surely
    (0.386, 50)
    >>> choose_epsilon(mean_within=(200, 0.1, 0.95), means={"rating": (1, 5)}, delta=1e-8).epsilon
    0.585
    """
    if (epsilon is None) == (delta is None):
        raise InvalidType("Pass either delta, to find the least epsilon, or epsilon, to find the least delta.")
    shared: Any = {
        "max_keys_per_unit": max_keys_per_unit, "max_rows_per_key": max_rows_per_key, "method": method,
        "min_units": min_units, "privacy_unit": privacy_unit, "sums": sums, "means": means,
    }  # fmt: skip
    if cast(object, max_keys_per_unit) == "auto":
        fix = "Pass about as many keys as most units have, such as max_keys_per_unit=5."
        raise InvalidValue(f"max_keys_per_unit='auto' chooses by the data. {fix}", argument="max_keys_per_unit")
    name, given = ("epsilon", delta) if epsilon is None else ("delta", epsilon)
    (power, largest), other = (_EPSILONS, "delta") if name == "epsilon" else (_DELTAS, "epsilon")

    def request(value: float) -> TableRequest:
        budget: Any = {name: value, other: given}
        return TableRequest(key=("any key",), **budget, **shared)

    totals = request(largest).totals  # raises for wrong arguments
    least = min_units * max_rows_per_key
    goals = _goals_of_totals(appear, count_within, mean_within, totals, max_keys_per_unit, least)
    if not totals:
        goals = _goals(appear, count_within, least)
    if not goals:
        example = "appear=(50, 0.95): a key of 50 units is published with probability 0.95"
        raise InvalidType(f"a goal is missing. Pass one, such as {example}.", argument="appear")

    def probabilities(value: float) -> list[float]:
        try:
            last, _ = _planned(request(value))
        except (InvalidValue, NotCertified):  # this budget has no mechanism
            return [0.0] * len(goals)
        return [goal.reached(last) for goal in goals]

    def is_far(value: float) -> bool:
        """Return whether a budget is far too small for `appear`, so that no long table has to be computed."""
        if appear is None or totals or goals[0].wanted < 0.5:
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
    reached = zip((goal.words for goal in goals), probabilities(values[place]), strict=True)
    return EpsilonChoice(best.epsilon, best.delta, tuple(reached), _planned(best)[1], _call(best))


def _planned(request: TableRequest) -> tuple[Mechanism, Preview]:
    """Return the mechanism for a request, and its preview."""
    if request.totals:
        return mechanism_of_totals(request)
    choice = choose_mechanism(request, request.contribution)
    return choice.mechanism.last, Preview.of(choice, str(request.contribution))


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
    return goals


def _goals_of_totals(
    appear: Any, count_within: Any, mean_within: Any, totals: Sequence[AnyTotal], keys: int, least: int
) -> Goals:
    """Return the goals of a release with totals; those about counts are of the noise that counts and totals share."""
    goals = _goals(appear, count_within, least)
    if appear is not None:
        goals[0] = replace(goals[0], reached=lambda last: _published(last, appear[0], keys))
    if count_within is not None:
        steps = (count_within[0] + 0.5) * GRID
        goals[-1] = replace(goals[-1], reached=lambda last: 1 - _reader(last).noise_beyond(0.0, 1.0, steps))
    if mean_within is None:
        return goals
    averaged = [total for total in totals if total.statistic == "mean"]
    hint = "Pass units, a distance and a probability, such as mean_within=(200, 0.1, 0.95)."
    if not isinstance(mean_within, tuple | list) or len(mean_within) != 3:
        raise InvalidType(f"mean_within is not three numbers. {hint}", argument="mean_within")
    if not averaged:
        raise InvalidValue(
            "mean_within needs the columns that are averaged. Pass means={'rating': (1, 5)} with it.",
            argument="mean_within",
        )
    units, _ = _pair("mean_within", (mean_within[0], mean_within[2]), "mean_within=(200, 0.1, 0.95)")
    if units < least:
        raise InvalidValue(
            f"mean_within asks for keys of {units:,}, and none of fewer than {least:,} is shown. Raise the number.",
            argument="mean_within",
        )
    for total in averaged:
        if not isinstance(total, Total):
            raise InvalidValue(
                f"means[{total.column!r}]='auto' chooses bounds by the data. Pass two numbers.", argument="means"
            )
        most = total.half_width
        distance = validate.between("mean_within", mean_within[1], most * 1e-6, most, hint=hint)
        words = f"the mean of {total.column!r} of a published key of frequency {units:,} is within {distance:g}"
        goals.append(_Goal(words, mean_within[2], partial(_mean_reached, units, distance / most)))
    return goals


def _reader(last: Mechanism) -> TotalsReader:
    reader = last.reader({})
    assert isinstance(reader, KeyTotals | MeasuredReader)
    return reader


def _published(last: Mechanism, units: int, keys: int) -> float:
    """Return the probability that a key is published whose units hold this number of keys each, rounded down."""
    if isinstance(last, KeyTotals):
        return float(last.reporting_probability([units])[0])
    assert isinstance(last, FindThenMeasure)
    selector: Any = last.selector
    shares = np.concatenate([np.arange(1, 100) / 100, 1 - np.logspace(-2.1, -5)])
    reached = first_whole(lambda i: selector.users_needed(keys, float(shares[i])) > units, 0, len(shares))
    return float(shares[reached - 1]) if reached else 0.0


def _mean_reached(units: int, distance: float, last: Mechanism) -> float:
    """Return the probability that the mean of a published key is stated, and within a distance in half widths."""
    missed, published, stated = mean_missed(_reader(last), units, distance), 1.0, 1.0
    if isinstance(last, KeyTotals):  # one noise decides on both
        published, stated = (float(share([units])[0]) for share in (last.reporting_probability, last.exact_probability))
    return max(0.0, (stated - missed) / published) if published else 0.0


def _pair(name: str, value: Any, example: str) -> tuple[int, float]:
    """Return a whole number and a probability."""
    hint = f"Pass a number and a probability, such as {example}."
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidType(f"{name} is not a pair. {hint}", argument=name)
    number = validate.whole(name, value[0], low=1, high=10**8, hint=hint)
    return number, validate.between(f"the probability of {name}", value[1], 0.01, 0.9999, hint=hint)


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


def _call(request: TableRequest) -> str:
    asked: dict[str, Any] = {
        "key": "...",
        "privacy_unit": "row" if not request.privacy_unit else request.privacy_unit[0],
    }
    asked |= {"epsilon": request.epsilon, "delta": request.delta, "max_keys_per_unit": request.max_keys_per_unit}
    asked |= {name: dict(value) for name in ("sums", "means") if (value := getattr(request, name)) is not None}
    usual = {"max_rows_per_key": 1, "method": "auto", "min_units": 1}
    asked |= {name: getattr(request, name) for name, value in usual.items() if getattr(request, name) != value}
    return f"dpsieve.release(data, {', '.join(f'{name}={value!r}' for name, value in asked.items())})"
