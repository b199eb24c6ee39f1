"""Requests to collect from the rows of a table as if they were clients: one value behind library and command line.

Each row is a client with one value, or, where `privacy_unit` names columns, each unit is: it keeps one of its values,
by a hash with a fresh secret salt. Neighbours are such a client more or less, or with `neighbours='replace'` one whose
value is another; the guarantee names the unit.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, Self

from dpsieve import validate
from dpsieve.channels import frequency_at
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.display import html_table
from dpsieve.engines import Columns, Engine, NumberColumns, choose
from dpsieve.engines.engine import unit_columns
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.federated.client.questions import Protocol
from dpsieve.federated.plans.histogram import Goal, plan
from dpsieve.federated.plans.levels import LevelPlan
from dpsieve.federated.server.distribution import Distribution, Quantiles, check_confidence
from dpsieve.federated.server.histogram import Histogram, contribution, reason
from dpsieve.federated.server.trie import TrieHeavyHitters, TrieRelease, describe_levels
from dpsieve.jobs.collect import collect_numbers, collect_strings, collect_table
from dpsieve.noise.sample_threshold import SampleThreshold
from dpsieve.privacy import Guarantee
from dpsieve.privacy.guarantee import unit_words
from dpsieve.privacy.ledger import AnyLedger, open_ledger
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.publication.publication import Publication
from dpsieve.publication.release import Release
from dpsieve.validate import Neighbours

_COLUMN = "Name the column of values, such as column='query'."


@dataclass(frozen=True)
class CollectPreview:
    """What a collection would do, from public numbers alone.

    Attributes:
        guarantee: what it would promise.
        how: who is asked, and how many reports are needed, in words.
        contribution: what a client adds, in words.
        reports: how many reports a client sends on average, at most.
        exposure: the probability that a client sends any report, at most: what `federated.client.Budget` charges.
        rarely, half, surely: how many clients a value needs to be found with probability 0.05, 0.5 and 0.95; with
            several levels, a string that shares its beginning with no other. None: never.
    """

    guarantee: Guarantee
    how: str
    contribution: str
    reports: float
    exposure: float
    rarely: int | None
    half: int | None
    surely: int | None

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return {**self.__dict__, "guarantee": self.guarantee.to_json()}

    def lines(self) -> list[tuple[str, str]]:
        """Return what to show, as pairs of a name and a value."""
        shares = {"0.05": self.rarely, "0.5": self.half, "0.95": self.surely}
        needed = {share: "no number of clients" if n is None else f"{n:,} clients" for share, n in shares.items()}
        return [
            ("guarantee", str(self.guarantee)),
            ("how", self.how),
            ("a client adds", self.contribution),
            ("reports of a client, on average", f"{self.reports:.3g}"),
            ("charged by a device's budget", self._charged()),
            *((f"found with probability {share}", words) for share, words in needed.items()),
        ]

    def _charged(self) -> str:
        promise = self.guarantee
        return f"epsilon {promise.epsilon:g}, delta {promise.delta:g}, exposure {self.exposure:.3g}"

    def _repr_html_(self) -> str:
        """Return the same as a table, for a notebook."""
        return html_table(self.lines())


@dataclass(frozen=True, kw_only=True)
class CollectRequest(ABC):
    """What every collection from a table is told, checked; the budget is checked by who makes the plan."""

    column: str
    epsilon: float
    delta: float
    privacy_unit: tuple[str, ...] = None  # type: ignore[assignment]  # one name, or None, may be given
    allow_null_units: bool = False
    threshold: int | None = None
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        column, unit = validate.text("column", self.column, hint=_COLUMN), unit_columns(self.privacy_unit)
        if column in unit:
            raise InvalidValue("privacy_unit is also the column, so every unit would be counted. Name another column.")
        if not isinstance(self.allow_null_units, bool):
            raise InvalidType("allow_null_units must be True or False. Pass allow_null_units=True, or leave it out.")
        validate.store(self, column=column, privacy_unit=unit)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the request among the arguments of a function."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})

    @property
    def unit(self) -> str:
        """Who is protected, in words."""
        return unit_words(self.privacy_unit)

    @property
    @abstractmethod
    def cost(self) -> Mechanism:
        """What the collection spends."""

    @abstractmethod
    def run(self, data: Any, **terms: Any) -> Publication:
        """Collect; `terms` are engine, ledger, note, progress and source of the functions in `jobs.collect`."""

    @abstractmethod
    def _preview(self) -> CollectPreview:
        """Say what the collection would do."""

    @property
    def columns(self) -> Columns:
        """What is read."""
        return Columns((self.column,), self.privacy_unit)

    def preview(self, data: Any = None, *, engine: Engine | None = None, ledger: AnyLedger = None) -> CollectPreview:
        """Say what the collection would do; spends nothing, and reads no rows.

        With data, its columns are checked; with a ledger, whether the spend would fit.
        """
        if data is not None:
            choose(data, engine).check(data, self.columns)
        book = open_ledger(ledger)
        if book is not None:
            book.check(self.cost)
        return self._preview()

    def _where(self) -> dict[str, Any]:
        """Return the arguments that the functions of `jobs.collect` share."""
        return {
            "value": self.column,
            "client": self.privacy_unit or None,
            "allow_null_clients": self.allow_null_units,
        }


@dataclass(frozen=True, kw_only=True)
class HistogramRequest(CollectRequest):
    """A histogram of values; see `dpsieve.federated.plan` and `collect_table` for the meaning of its fields."""

    delta: float | None = None  # type: ignore[assignment]  # the exact one, where rate and threshold are given
    rate: float | None = None
    goal: Goal = "reach"
    frequency: int | None = None
    contacted: int | None = None
    population: int | None = None
    hostile: int = 0
    values: Any = None

    @cached_property
    def plan(self) -> SampleThreshold:
        """The rate and the threshold."""
        names = ("epsilon", "delta", "rate", "threshold", "neighbours", "goal", "frequency", "contacted", "population")
        chosen: Any = {name: getattr(self, name) for name in (*names, "hostile")}
        return plan(unit=self.unit, **chosen)

    @property
    def cost(self) -> Mechanism:
        """What the collection spends."""
        return self.plan

    def run(self, data: Any, **terms: Any) -> Release:
        """Collect by `collect_table`."""
        return collect_table(data, plan=self.plan, values=self.values, **self._where(), **terms)

    def _preview(self) -> CollectPreview:
        rarely, half, surely = (frequency_at(self.plan, share) for share in (0.05, 0.5, 0.95))
        held, how = contribution(Histogram(self.plan, self.values).buckets), reason(self.plan)
        made = self.plan
        return CollectPreview(made.guarantee, how, held, made.rate, made.rate, rarely, half, surely)


@dataclass(frozen=True, kw_only=True)
class LevelRequest(CollectRequest):
    """A collection by levels; `protocol` and `coin` are those of `dpsieve.federated.level_plan`."""

    protocol: Protocol = "rounds"
    coin: float | None = None

    @abstractmethod
    def server(self) -> TrieHeavyHitters | Quantiles:
        """Return a new server, which asks once."""

    @cached_property
    def plan(self) -> LevelPlan:
        """The coin, the threshold and the levels."""
        return self.server().plan

    @property
    def cost(self) -> Mechanism:
        """What the collection spends."""
        return self.plan

    def _chosen(self) -> Any:
        names = ("protocol", "coin", "threshold", "neighbours", "unit")
        return {name: getattr(self, name) for name in names}

    def _preview(self) -> CollectPreview:
        made = self.plan
        rarely, half, surely = (_needed(made, share) for share in (0.05, 0.5, 0.95))
        reached = (rarely, half, surely)
        return CollectPreview(made.guarantee, describe_levels(made), "one value", made.reports, made.exposure, *reached)


@dataclass(frozen=True, kw_only=True)
class HittersRequest(LevelRequest):
    """Heavy hitters; see `dpsieve.federated.TrieHeavyHitters` for the meaning of its fields."""

    max_length: int
    min_length: int = 0
    alphabet: str | bytes | None = None
    step: int = 1

    def server(self) -> TrieHeavyHitters:
        """Return a new server, which asks once."""
        names = ("max_length", "min_length", "alphabet", "step")
        strings: Any = {name: getattr(self, name) for name in names}
        return TrieHeavyHitters(self.epsilon, self.delta, **strings, **self._chosen())

    def run(self, data: Any, **terms: Any) -> TrieRelease:
        """Collect by `collect_strings`."""
        return collect_strings(data, server=self.server(), **self._where(), **terms)


@dataclass(frozen=True, kw_only=True)
class DistributionRequest(LevelRequest):
    """A distribution of numbers; see `dpsieve.federated.Quantiles` for the meaning of its fields."""

    bounds: Sequence[float]
    branching: int = 4
    depth: int = 5
    outside: Literal["clip", "silent"] = "clip"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        check_confidence(self.confidence)
        pair = validate.finite(
            "bounds", self.bounds, hint="Pass public bounds of the numbers, such as bounds=(0, 100)."
        )
        if pair.shape != (2,) or pair[0] >= pair[1]:
            raise InvalidValue("bounds must be two numbers, the lower one first. Pass public ones: bounds=(0, 100).")
        validate.store(self, bounds=tuple(pair.tolist()))

    @property
    def columns(self) -> Columns:
        """What is read."""
        return NumberColumns((self.column,), self.privacy_unit)

    def server(self) -> Quantiles:
        """Return a new server, which asks once."""
        cells: Any = {name: getattr(self, name) for name in ("epsilon", "delta", "branching", "depth", "outside")}
        low, high = self.bounds
        return Quantiles(low, high, **cells, **self._chosen())

    def run(self, data: Any, **terms: Any) -> Distribution:
        """Collect by `collect_numbers`."""
        return collect_numbers(data, server=self.server(), confidence=self.confidence, **self._where(), **terms)


def _needed(made: LevelPlan, share: float) -> int | None:
    """Return how many clients a string needs to be found with this probability; None where no number is enough."""
    found = first_whole(lambda n: float(made.found([n])[0]) >= share, made.threshold, LARGEST_FREQUENCY)
    return found if found < LARGEST_FREQUENCY else None
