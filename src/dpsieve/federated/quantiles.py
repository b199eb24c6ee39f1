"""Quantiles, shares and ranges of a number that every client has, by a tree of ranges.

The value is written as digits, the most significant first, and the digits go through the trie of `federated.trie`: so
each range of values that enough clients share is cut further, and the counts of all ranges make up a hierarchical
histogram (Bharadwaj and Cormode, AISTATS 2022, Section 4.2). The guarantee is that of the trie.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import InvalidValue
from dpsieve.federated.level_plans import LevelPlan, Way
from dpsieve.federated.quantile_answers import Distribution, checked_confidence
from dpsieve.federated.quantile_bands import Ints, Tree
from dpsieve.federated.quantile_grid import Grid
from dpsieve.federated.trie import TrieHeavyHitters
from dpsieve.federated.trie_question import Question
from dpsieve.privacy import Guarantee
from dpsieve.privacy.ledger import Ledger
from dpsieve.randomness.source import Source
from dpsieve.validate import Neighbours


class Quantiles:
    """The server that learns how values are distributed.

    >>> import numpy as np
    >>> server = Quantiles(0.0, 1.0, epsilon=1.0, delta=1e-6)
    >>> answers = server.run(np.linspace(0.0, 1.0, 100_001) ** 2)
    >>> low, high = answers.quantile(0.5)[1:]
    >>> 0.2 < low < 0.25 < high < 0.3
    True

    Attributes:
        grid: the cells, which clients need to know: `client_answer(question, grid.string(value))`.
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
        way: Way = "rounds",
        coin: float | None = None,
        threshold: int | None = None,
        neighbours: Neighbours = "add_remove",
        unit: str = "one client",
    ) -> None:
        """Plan the levels; nothing is spent before a question is asked.

        Args:
            low, high: the interval in which values are counted. It must not come from the data.
            epsilon, delta: the budget of all levels together.
            branching, depth: each level cuts ranges into so many parts, so many times.
            outside: 'clip' counts values outside of the interval at its nearer end; 'silent' leaves them out.
            way: 'rounds' or 'cohorts', see `federated.level_plans`; or 'one_round', for the finest cells at once.
            coin, threshold: to choose these instead of the best ones; what they cost is checked.
            neighbours, unit: what is promised, and to whom.
        """
        if way == "one_round":  # one level with all cells: the same tree with the branching of the whole
            branching, depth = Grid(low, high, branching, depth, outside).cells, 1
            if branching > 256:
                raise InvalidValue("way='one_round' is for 256 cells at most. Pass a smaller depth, or way='rounds'.")
        self.grid = Grid(low, high, branching, depth, outside)
        digits = bytes(range(branching))
        self._trie = TrieHeavyHitters(
            epsilon, delta, max_length=depth, min_length=depth, alphabet=digits, way=way, coin=coin,
            threshold=threshold, neighbours=neighbours, unit=unit,
        )  # fmt: skip

    @property
    def plan(self) -> LevelPlan:
        """Rates, threshold and guarantee."""
        return self._trie.plan

    @property
    def guarantee(self) -> Guarantee:
        """What all questions and answers promise together."""
        return self._trie.guarantee

    @property
    def ignored(self) -> int:
        """How many reports were not asked for or malformed. It is not private: never publish it."""
        return self._trie.ignored

    def questions(self, *, ledger: Ledger | None = None, note: str = "") -> Iterator[Question]:
        """Yield the question of each level; see `TrieHeavyHitters.questions`."""
        return self._trie.questions(ledger=ledger, note=note)

    def take(self, reports: Iterable[Any] | pa.Table) -> None:
        """Count answers to the question that is open; see `TrieHeavyHitters.take`."""
        self._trie.take(reports)

    def run(
        self, values: Any, *, ledger: Ledger | None = None, note: str = "", source: Source | None = None
    ) -> Distribution:
        """Ask one client for each of these numbers, all in this process; NaN, and null in Arrow, have no value."""
        self._trie.run(self.grid.strings(values), ledger=ledger, note=note, source=source)
        return self.release()

    def release(self, *, confidence: float = 0.95) -> Distribution:
        """Return the distribution, whose intervals all hold together with this confidence."""
        confidence, made = checked_confidence(confidence), self._trie.release()
        levels = [self._survivors(made.trie, level) for level in range(1, self.plan.levels + 1)]
        tree = Tree(self.grid, levels, self.plan.threshold)
        return Distribution(self.grid, self.plan, tree, confidence, made.unsafe_to_publish)

    def _survivors(self, trie: pa.Table, level: int) -> tuple[Ints, Ints]:
        rows = trie.filter(pc.equal(trie["level"], level))
        numbers = self.grid.numbers(rows["prefix"])
        order = np.argsort(numbers)
        return numbers[order], rows["token"].to_numpy().astype(np.int64)[order]
