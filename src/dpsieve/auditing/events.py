"""Find the event that tells two inputs apart best, among the runs that are set aside for finding it.

Candidates are statements about one feature of an output (a key is there, a number is at least t, a text is this one),
and about the sum of the log-likelihood ratios of all features, each estimated in bins: a naive Bayes classifier, which
sees what is spread over many keys. One event in one direction is selected. Its confidence comes from other runs alone,
so the number of candidates costs nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from dpsieve.auditing.bounds import epsilon_from_rates, rate_high, rate_low
from dpsieve.auditing.outputs import Feature
from dpsieve.display import shorten
from dpsieve.types import Bools, Floats

Run: TypeAlias = dict[str, Feature]
_BINS = 16
_TEXTS = 32
_THRESHOLDS = 64
_CAUTION = 0.1  # error probability of the rates by which events are compared


class Event(Protocol):
    """A set of outputs."""

    def holds(self, run: Run) -> bool:
        """Return whether an output is in the set."""

    def __str__(self) -> str: ...


@dataclass(frozen=True)
class AtLeast:
    """A number is there and at least this."""

    name: str
    least: float

    def holds(self, run: Run) -> bool:
        value = run.get(self.name)
        return isinstance(value, float) and value >= self.least

    def __str__(self) -> str:
        return f"{self.name} is at least {self.least:g}"


@dataclass(frozen=True)
class Is:
    """A text is there and is this one."""

    name: str
    text: str

    def holds(self, run: Run) -> bool:
        return run.get(self.name) == self.text

    def __str__(self) -> str:
        return f"{self.name} is {shorten(self.text)}"


@dataclass(frozen=True)
class Resembles:
    """All features together are more likely on the first input: the sum of their log-likelihood ratios is high."""

    edges: dict[str, Floats]
    ratios: dict[str, dict[str | int, float]]
    least: float = 0.0

    @classmethod
    def of(cls, runs: Sequence[Run], neighbour_runs: Sequence[Run]) -> "Resembles":
        """Estimate the ratios of binned features from runs on both inputs."""
        edges, ratios = {}, {}
        for name in _names(runs, neighbour_runs):
            numbers = [value for run in (*runs, *neighbour_runs) if isinstance(value := run.get(name), float)]
            edges[name] = (
                np.unique(np.quantile(numbers, np.linspace(0, 1, _BINS + 1)[1:-1])) if numbers else np.empty(0)
            )
            counts = [Counter(_bin(run.get(name), edges[name]) for run in each) for each in (runs, neighbour_runs)]
            sizes = [len(runs) + 1.0, len(neighbour_runs) + 1.0]
            ratios[name] = {
                cell: float(np.log((counts[0][cell] + 0.5) / sizes[0]) - np.log((counts[1][cell] + 0.5) / sizes[1]))
                for cell in counts[0] | counts[1]
            }
        return cls(edges, ratios)

    def score(self, run: Run) -> float:
        """Return the sum of the log-likelihood ratios of a run; what was never seen counts 0."""
        return sum(cells.get(_bin(run.get(name), self.edges[name]), 0.0) for name, cells in self.ratios.items())

    def holds(self, run: Run) -> bool:
        return self.score(run) >= self.least

    def __str__(self) -> str:
        top = sorted(self.ratios, key=lambda name: -max(map(abs, self.ratios[name].values())))
        more = f" and {len(top) - 1} more features" if len(top) > 1 else ""
        return f"the log-likelihood ratio of {top[0] if top else 'nothing'}{more} is at least {self.least:.3g}"


@dataclass(frozen=True)
class Found:
    """An event, whether its complement is meant, and whether it is more likely on the neighbour."""

    event: Event
    negated: bool = False
    reversed: bool = False

    def count(self, runs: Sequence[Run]) -> int:
        """Return in how many runs the event happened."""
        return sum(self.event.holds(run) is not self.negated for run in runs)

    def __str__(self) -> str:
        return f"not: {self.event}" if self.negated else str(self.event)


def find_event(runs: Sequence[Run], neighbour_runs: Sequence[Run], delta: float, level: float, tests: int) -> Found:
    """Return the event that promises the largest lower bound of epsilon from `tests` further runs on each input."""
    half, other = len(runs) // 2, len(neighbour_runs) // 2
    likelihood = Resembles.of(runs[:half], neighbour_runs[:other])
    scores = sorted({likelihood.score(run) for run in (*runs[:half], *neighbour_runs[:other])})
    events: list[Event] = [*_about_one(runs[:half], neighbour_runs[:other])]
    rates = [_rates(event, runs, neighbour_runs) for event in events]
    held_out = [np.array([likelihood.score(run) for run in part]) for part in (runs[half:], neighbour_runs[other:])]
    for least in _spaced(scores):
        events.append(Resembles(likelihood.edges, likelihood.ratios, least))
        rates.append((_counts(held_out[0] >= least), _counts(held_out[1] >= least)))
    if not events:
        return Found(Is("type", ""))
    best, chosen = 0.0, Found(events[0])
    for part in (1, 1 / 3, 0):  # where nothing promises a bound at this delta, what would at a smaller one
        for negated in (False, True):
            for is_reversed in (False, True):
                promised = _promised(np.array(rates), negated, is_reversed, part * delta, level, tests)
                if promised.max() > best:
                    best, chosen = float(promised.max()), Found(events[int(promised.argmax())], negated, is_reversed)
        if best > 0:
            return chosen
    shares = np.array([[hits / trials for hits, trials in pair] for pair in rates])
    likeliest = int(np.abs(shares[:, 0] - shares[:, 1]).argmax())
    return Found(events[likeliest], reversed=bool(shares[likeliest, 1] > shares[likeliest, 0]))


def _promised(rates: Floats, negated: bool, is_reversed: bool, delta: float, level: float, tests: int) -> Floats:
    """Return the bound that each event would give if further runs had the rates of these, read with caution."""
    hits, trials = rates[:, :, 0], rates[:, :, 1]
    hits = trials - hits if negated else hits
    more, less = (1, 0) if is_reversed else (0, 1)
    low = rate_low(hits[:, more], trials[:, more], _CAUTION)
    high = rate_high(hits[:, less], trials[:, less], _CAUTION)
    return epsilon_from_rates(np.floor(low * tests), tests, np.ceil(high * tests), tests, delta, level)


def _about_one(runs: Sequence[Run], neighbour_runs: Sequence[Run]) -> Iterator[Event]:
    """Yield events about one feature, with thresholds and texts that occur."""
    for name in _names(runs, neighbour_runs):
        values = [run[name] for run in (*runs, *neighbour_runs) if name in run]
        numbers = sorted({value for value in values if isinstance(value, float)})
        yield from (AtLeast(name, least) for least in _spaced(numbers))
        texts = [
            Counter(run[name] for run in part if isinstance(run.get(name), str)) for part in (runs, neighbour_runs)
        ]
        by_difference = sorted(texts[0] | texts[1], key=lambda text: -abs(texts[0][text] - texts[1][text]))
        yield from (Is(name, str(text)) for text in by_difference[:_TEXTS])


def _rates(event: Event, runs: Sequence[Run], neighbour_runs: Sequence[Run]) -> tuple[tuple[int, int], tuple[int, int]]:
    return tuple(_counts(np.array([event.holds(run) for run in part])) for part in (runs, neighbour_runs))  # type: ignore[return-value]


def _counts(held: Bools) -> tuple[int, int]:
    return int(held.sum()), len(held)


def _spaced(values: Sequence[float]) -> list[float]:
    """Return at most 64 of the values, evenly spaced."""
    places = np.linspace(0, len(values) - 1, _THRESHOLDS).round().astype(int) if values else ()
    return [values[i] for i in sorted({int(place) for place in places})]


def _names(*groups: Sequence[Run]) -> list[str]:
    return sorted({name for runs in groups for run in runs for name in run})


def _bin(value: Feature | None, edges: Floats) -> str | int:
    if isinstance(value, float):
        return int(np.searchsorted(edges, value, side="right"))
    return "absent" if value is None else value
