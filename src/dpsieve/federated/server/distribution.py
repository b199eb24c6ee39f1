"""The distribution of a number of every client: quantiles, shares and ranges, by a tree of ranges.

The value is written as digits, the most significant first, and the digits go through the trie of
`federated.server.trie`: each range of values that enough clients share is divided further, and the counts of all ranges
are a hierarchical histogram (Bharadwaj and Cormode, AISTATS 2022, Section 4.2). The guarantee is that of the trie. The
interval of each answer covers sampling, thresholds and the width of cells.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.exact.binomial import at_least, below
from dpsieve.federated.client.strings import Grid, Strings
from dpsieve.federated.plans.levels import LevelOptions, LevelPlan, level_plan
from dpsieve.federated.server.bands import Bands, Tree
from dpsieve.federated.server.simulated_clients import cell_edges, read_digits, write_digits
from dpsieve.federated.server.trie import TrieServer, describe_levels
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.publication import Notes, Publication
from dpsieve.randomness.source import Source
from dpsieve.types import Floats
from dpsieve.validate import is_between
from dpsieve.values.keys import is_sorted

_NUMBERS = "Pass a finite number or an array of them."
check_confidence = is_between(0.01, 1 - 1e-9, "Pass a probability such as confidence=0.95.")
_SCHEMA = pa.schema([("level", pa.int64()), ("range", pa.int64()), ("token", pa.int64())])


class Estimate(NamedTuple):
    """A value, and an interval for the true one; floats, or arrays where the question was one."""

    value: Floats | float
    low: Floats | float
    high: Floats | float


@dataclass(frozen=True, kw_only=True)
class DistributionNotes(Notes):
    """How a distribution was made: its cells, and the joint confidence of its intervals."""

    grid: Grid
    confidence: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, confidence=check_confidence(self.confidence, "confidence"))


@register("distribution")
@dataclass(frozen=True, eq=False, repr=False)
class Distribution(Publication):
    """A private release of a distribution of values: shares, quantiles and ranges.

    All intervals hold jointly with probability `confidence`. They cover the sample (Hoeffding's bound for each edge
    of the grid, all of them together), what the threshold hides, and the width of cells: between two edges the true
    function may be any non-decreasing one. Values between edges are interpolated linearly.
    Shares are of the clients that have a counted value. Their number is never used; `total` estimates it.

    Attributes:
        table: the ranges that survived, with their sampled counts: `level`, `range` and `token`.
        mechanism: the plan: rates, threshold and guarantee.
        notes: with the grid, and the confidence of all intervals together.
    """

    notes_kind: ClassVar[type[Notes]] = DistributionNotes

    mechanism: LevelPlan
    notes: DistributionNotes = field(kw_only=True)

    @property
    def grid(self) -> Grid:
        """The cells."""
        return self.notes.grid

    @property
    def confidence(self) -> float:
        """The joint coverage of all intervals."""
        return self.notes.confidence

    @cached_property
    def tree(self) -> Tree:
        """The ranges that survived, level by level."""
        level, numbers, counts = (self.table[name].to_numpy() for name in _SCHEMA.names)
        ends = np.searchsorted(level, np.arange(1, self.mechanism.levels + 2))
        parts = [slice(a, b) for a, b in pairwise(ends)]
        return Tree(self.grid, [(numbers[part], counts[part]) for part in parts], self.mechanism.threshold)

    def check(self) -> None:
        if not self._is_consistent():
            raise InvalidValue("table is not one that its plan leads to. Use it as it was made.", argument="table")

    def _is_consistent(self) -> bool:
        plan, table = self.mechanism, self.table
        if not isinstance(plan, LevelPlan) or plan.levels != self.grid.depth:
            return False
        if table.schema != _SCHEMA or any(column.null_count for column in table.columns) or not is_sorted(table):
            return False
        tokens, level = table["token"].to_numpy(), table["level"].to_numpy()
        if not plan.possible(tokens) or not ((level >= 1) & (level <= plan.levels)).all():
            return False
        clients = max(int(counts.sum()) for _, counts in self.tree.levels)
        return clients <= LARGEST_FREQUENCY and self.tree.is_consistent

    def cdf(self, x: ArrayLike) -> Estimate:
        """Return the share of values below x (at the upper end of the grid, of all). It grows with x."""
        at, bands = validate.finite("x", x, hint=_NUMBERS), self._bands
        place = np.searchsorted(self._at, at, side="right")  # of the first edge above x
        before, after = np.clip(place - 1, 0, None), np.minimum(place, len(self._at) - 1)
        on = (place > 0) & (self._at[before] == at)
        low = np.where(place > 0, bands.low[before], 0.0)
        high = np.where(on, bands.high[before], np.where(place > 0, bands.high[after], 0.0))
        return _estimate(np.interp(at, self._at, bands.estimate, left=0.0, right=1.0), low, high)

    def quantile(self, phi: ArrayLike) -> Estimate:
        """Return a value q such that a share of about phi is below it: inf{q : phi of the values are at most q}.

        It grows with phi, from the smallest value at phi = 0. The interval holds the true quantile: at its lower end
        less than phi of the values are below, at its upper end phi or more.
        """
        wanted, bands = validate.finite("phi", phi, hint=_NUMBERS), self._bands
        if not ((wanted >= 0) & (wanted <= 1)).all():
            raise InvalidValue("phi must be between 0 and 1. Pass shares such as phi=0.5.", argument="phi")
        wanted = np.maximum(wanted, 1e-300)
        low = self._at[np.maximum(np.searchsorted(bands.high, wanted, side="left") - 1, 0)]
        high = self._at[np.searchsorted(bands.low, wanted, side="left")]
        value = np.interp(wanted, bands.estimate, self._at)
        return _estimate(value, low, high)

    def range(self, first: float, last: float) -> Estimate:
        """Return the share of values from `first` up to, but not with, `last`; with it at the end of the grid."""
        hint = "Pass two numbers, first <= last."
        first, last = validate.real("first", first, hint=hint), validate.real("last", last, hint=hint)
        if first > last:
            raise InvalidValue(f"first={first:g} is above last={last:g}. {hint}", argument="first")
        below_first, below_last = self.cdf(first), self.cdf(last)
        low = float(below_last.low) - float(below_first.high)
        high = float(below_last.high) - float(below_first.low)
        starts = np.searchsorted(self._at, [first, last], side="left")  # the first edges at or above
        ends = np.searchsorted(self._at, [first, last], side="right") - 1  # the last edges at or below
        inner, outer = (starts[0], ends[1]), (ends[0], starts[1])
        if 0 < inner[0] < inner[1] < len(self._at) - 1:
            low = max(low, self._between(*inner)[0])
        if 0 < outer[0] < outer[1] < len(self._at) - 1:
            high = min(high, self._between(*outer)[1])
        low, high = max(0.0, min(low, high)), min(1.0, max(high, 0.0))
        return _estimate(np.array(float(below_last.value) - float(below_first.value)), np.array(low), np.array(high))

    @cached_property
    def total(self) -> Estimate:
        """The number of clients with a counted value: sampled counts of the first level, divided by the rate.

        The interval is exact, by the tails of the binomial distribution, with the same confidence for it alone.
        """
        least, most = self.tree.total()
        miss = (1 - self.confidence) / 2 * (1 - 1e-9)
        far = round((most + 40 * most**0.5 + 1600) / self.mechanism.rate)
        low = 0
        if least:
            low = first_whole(lambda n: float(at_least(n, least, self.mechanism.rate)) > miss, least, far)
        high = first_whole(lambda n: float(below(n, most + 1, self.mechanism.rate)) <= miss, most, far) - 1
        return Estimate(
            min(max(least / self.mechanism.rate, low), high), float(low), float(min(high, LARGEST_FREQUENCY))
        )

    def _between(self, first: int, last: int) -> tuple[float, float]:
        """Return bounds on the share between two edges, from all ranges between them at once.

        They hold for all pairs of edges, with half of the allowed miss probability.
        """
        levels = int(self._bands.levels[first]), int(self._bands.levels[last])
        pairs = float(np.prod([self.grid.depth * float(self.tree.own_edges(level)) for level in levels]))
        ends = int(self._bands.edges[first]), int(self._bands.edges[last])
        return self.tree.share(*ends, (1 - self.confidence) / (4 * pairs))

    @cached_property
    def _bands(self) -> Bands:
        return self.tree.bands((1 - self.confidence) / 2)

    @cached_property
    def _at(self) -> Floats:
        return cell_edges(self.grid, self._bands.edges)


class Quantiles(TrieServer):
    """The server that estimates a distribution of values.

    >>> import numpy as np
    >>> server = Quantiles(0.0, 1.0, epsilon=1.0, delta=1e-6)
    >>> answers = server.run(np.linspace(0.0, 1.0, 100_001) ** 2)
    >>> low, high = answers.quantile(0.5)[1:]
    >>> 0.2 < low < 0.25 < high < 0.3
    True

    Attributes:
        grid: the cells, which clients need: `client_answer(question, grid.string(value), budget=budget)`.
    """

    def __init__(
        self,
        low: float,
        high: float,
        *,
        epsilon: float,
        delta: float,
        branching: int = 4,
        depth: int = 5,
        outside: Literal["clip", "silent"] = "clip",
        collection: str | None = None,
        **options: Unpack[LevelOptions],
    ) -> None:
        """Plan the levels; nothing is spent before a question is asked.

        Args:
            low, high: the interval in which values are counted. It must not come from the data.
            epsilon, delta: the budget of all levels together.
            branching, depth: the parts into which each level cuts a range, and the number of levels.
            outside: 'clip' counts values outside of the interval at its nearer end; 'silent' leaves them out.
            collection: the unique name of the collection, by which devices charge their budgets; default: random.
            options: protocol, coin, threshold, neighbours, unit and secret_levels, as in `level_plan`; 'one_round' asks
                for the finest cells at once.
        """
        if options.get("protocol") == "one_round":  # the same tree, with all cells in one level
            branching, depth = Grid(low, high, branching, depth, outside).cells, 1
            if branching > 256:
                fix = "Pass a smaller depth, or protocol='rounds'."
                raise InvalidValue(f"protocol='one_round' is for 256 cells at most. {fix}", argument="protocol")
        self.grid = Grid(low, high, branching, depth, outside)
        strings = Strings(self.grid.depth, self.grid.depth, bytes(range(self.grid.branching)))
        super().__init__(strings, 1, level_plan(epsilon, delta, self.grid.depth, **options, pruned=True), collection)

    def run(
        self, values: Any, *, ledger: AnyLedger = None, note: str = "", source: Source | None = None
    ) -> Distribution:
        """Ask one simulated client per number; NaN, and null in Arrow, have no value."""
        distribution: Distribution = self._run(write_digits(self.grid, values), source, ledger, note)
        return distribution

    def release(self, *, confidence: float = 0.95) -> Distribution:
        """Return the distribution, whose intervals hold jointly with this confidence."""
        words: Any = {"contribution": "one value", "reason": describe_levels(self.plan)}
        notes = DistributionNotes(grid=self.grid, confidence=confidence, entry=self.entry, **words)
        self._check_done()
        table = pa.concat_tables([_SCHEMA.empty_table(), *map(self._ranges, self._levels)]).combine_chunks()
        return Distribution(table, self.plan, unsafe_to_publish=not self._source.publishable, notes=notes)

    def _ranges(self, survivors: pa.Table) -> pa.Table:
        numbers = pa.array(read_digits(self.grid, survivors["prefix"]), pa.int64())
        return pa.table([survivors["level"], numbers, survivors["token"]], schema=_SCHEMA).sort_by("range")


def _estimate(value: Floats, low: Floats, high: Floats) -> Estimate:
    """Return an estimate that lies in its interval, with floats for a single number."""
    inside = np.minimum(np.maximum(value, low), high)
    return Estimate(*(float(part) if np.ndim(part) == 0 else np.asarray(part) for part in (inside, low, high)))
