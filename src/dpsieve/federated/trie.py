"""Heavy hitters by a trie (TrieHH++): which strings many clients have, found prefix by prefix, with counts.

At each level clients tell how the prefixes that survived so far go on, and only those that enough of them sent stay
(Bharadwaj and Cormode, AISTATS 2022, Section 4.1, after Zhu et al., AISTATS 2020). A string that ends at a level is
told apart from one that goes on: both may survive, each with its own count.

The survivors of a level are published before the next one, in its question. That is no leak, but only since the
histogram of each level is private by itself: what is promised is the guarantee of all questions and the release
together, as `federated.level_plans` proves it. The reports themselves are not private, and the server that counts
them is trusted: with several levels it sees no more of a string than a prefix that others share, plus `step` symbols.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.level_plans import Way, checked_way, level_plan, levels_of
from dpsieve.federated.level_server import LevelServer, sent
from dpsieve.federated.trie_question import Question
from dpsieve.federated.trie_strings import Strings, Symbols
from dpsieve.privacy.ledger import Ledger
from dpsieve.publication.draw import release_of
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source, resolve
from dpsieve.validate import Neighbours

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class TrieRelease(Release):
    """A release of heavy hitters, with the trie they were found in.

    Attributes:
        trie: every prefix that survived, ended ones too: `level`, `prefix`, `ended`, `token` (the sampled count), and
            `count`, `low`, `high` for how many clients have it. It is as private as the release, and saved with it.
    """

    kind: ClassVar[str] = "heavy_hitters"
    more_tables: ClassVar[tuple[str, ...]] = ("trie",)

    trie: pa.Table = field(default_factory=lambda: pa.table({}))

    def check(self) -> None:
        """Raise unless the trie is one that these questions can lead to, and the release is what ended in it."""
        from dpsieve.federated.trie_files import check_trie

        super().check()
        check_trie(self)


class TrieHeavyHitters(LevelServer):
    """The server that finds heavy strings, level by level.

    >>> server = TrieHeavyHitters(1.0, 1e-6, max_length=3, alphabet="abc", way="cohorts")
    >>> for question in server.questions():
    ...     server.take([])  # what the clients answered, by `client_answer(question, string)`
    >>> len(server.release())
    0

    Attributes:
        plan: rates, threshold and guarantee.
        strings: which strings there are.
        step: how many symbols each level adds.
        ignored: how many reports were not asked for or malformed. It is not private: never publish it.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        max_length: int,
        alphabet: Symbols | None = None,
        min_length: int = 0,
        step: int = 1,
        way: Way = "rounds",
        coin: float | None = None,
        threshold: int | None = None,
        neighbours: Neighbours = "add_remove",
        unit: str = "one client",
    ) -> None:
        """Plan the levels; nothing is spent before a question is asked.

        Args:
            epsilon, delta: the budget of the whole trie.
            max_length, min_length: how many symbols strings have. Clients with others stay silent.
            alphabet: None for any text, a str of characters, or bytes for byte strings. Clients whose string has
                another symbol stay silent.
            step: how many symbols each level adds; fewer levels cost less and show the server more.
            way: 'rounds' (a client may answer at every level), 'cohorts' (at one) or 'one_round' (full strings at
                once); `compare` tells what each finds.
            coin, threshold: to choose these instead of the best ones; what they cost is checked.
            neighbours, unit: what is promised, and to whom.
        """
        self.strings = Strings(max_length, min_length, alphabet)
        levels = levels_of(max_length, step)
        self.step = max_length if checked_way(way) == "one_round" else step
        plan = level_plan(
            epsilon, delta, levels, way=way, coin=coin, threshold=threshold, neighbours=neighbours, unit=unit
        )
        super().__init__(plan)
        self._open: Question | None = None
        self._counted: list[pa.Table] = []
        self._levels: list[pa.Table] = []

    def questions(self, *, ledger: Ledger | None = None, note: str = "") -> Iterator[Question]:
        """Yield the question of each level; `take` the answers to one before asking for the next.

        It ends when no prefix is left. The budget is spent with the first question, whatever comes after.

        Args:
            ledger: the budget to charge; the spend is durable before the first question.
            note: what this is for, kept in the ledger.
        """
        self._start(ledger, note)
        prefixes: tuple[Symbols, ...] = (self.strings.empty,)
        for level in range(1, self.plan.levels + 1):
            if not prefixes:
                break
            plan, self._nonces = self.plan, set()
            self._open = Question(plan.way, level, plan.levels, self.step, plan.coin, self.strings, prefixes)
            yield self._open
            prefixes = self._close(level)
        self._open, self._state = None, "done"

    def take(self, reports: Iterable[Any] | pa.Table) -> None:
        """Count answers to the question that is open: reports as `client_answer` makes them, in any number of batches.

        Reports may also be lists [prefix, ended, nonce], as JSON has them, or without the nonce, or a table with
        columns `prefix` and `ended`. What does not fit the question, or has a nonce that came before, is ignored: an
        honest client does not send it, or sends it again. Reports without a nonce must be delivered exactly once.
        Nothing stops a client that lies about its string, or that draws several nonces, from being counted.
        """
        question = self._asked()
        if isinstance(reports, pa.Table):
            if not {"prefix", "ended"} <= set(reports.column_names):
                raise InvalidType("reports has no columns 'prefix' and 'ended'. Pass a table that has, or a list.")
            reports = zip(reports["prefix"].to_pylist(), reports["ended"].to_pylist(), strict=True)
        every = sent(reports)
        fine = [report for report in every if question.asks_for(report) and self._is_new((*report, "")[2])]
        self.ignored += len(every) - len(fine)
        prefixes = pa.array([report[0] for report in fine], self.strings.type)
        self.count(prefixes, np.array([report[1] for report in fine], np.bool_), np.ones(len(fine), np.int64))

    def count(self, prefixes: pa.Array, ended: NDArray[np.bool_], reports: Counts) -> None:
        """Count so many reports of each prefix. They are trusted to fit the question, unlike those of `take`."""
        self._asked()
        added = pa.table({"prefix": prefixes, "ended": pa.array(ended), "reports": pa.array(reports)})
        self._counted = [_summed([*self._counted, added])]

    def run(
        self, strings: Any, *, ledger: Ledger | None = None, note: str = "", source: Source | None = None
    ) -> TrieRelease:
        """Ask one client for each of these strings, all in this process, and release; see `federated.trie_simulation`.

        Args:
            strings: an Arrow array or a list; nulls are clients without a string.
            ledger, note: the budget to charge, and what for.
            source: randomness for tests; a release made with it says that it is unsafe to publish.
        """
        from dpsieve.federated.trie_simulation import simulate

        self._source = resolve(source)
        simulate(self, strings, self.questions(ledger=ledger, note=note), self._source)
        return self.release()

    @property
    def trie(self) -> pa.Table:
        """All prefixes that survived, with how many clients have them; see `TrieRelease`."""
        table = pa.concat_tables([_level(self.strings, 0, None), *self._levels])
        reading = self.plan.read(table["token"].to_numpy())
        for name in ("count", "low", "high"):
            table = table.append_column(name, pa.array(getattr(reading, name)))
        return table

    def release(self) -> TrieRelease:
        """Return the strings that ended and survived, with counts, intervals and the trie.

        The interval of a string is that of its count at its last level: over all runs, it misses the true number in at
        most 5 % of those in which the count of that level reaches the threshold.
        """
        self._check_done()
        trie = self.trie
        found = trie.filter(trie["ended"])
        keys = found["prefix"].combine_chunks()
        tokens = found["token"].to_numpy().astype(np.float64)
        made = release_of(self.plan, self.plan.certify(), keys, tokens, source=self._source)
        notes = {"way": self.plan.way, "step": self.step, "strings": self.strings.to_json()}
        return TrieRelease(**{**vars(made), "notes": notes}, trie=trie)

    def _asked(self) -> Question:
        if self._open is None:
            raise InvalidValue("no question is open. Take reports inside the loop over `questions()`.")
        return self._open

    def _close(self, level: int) -> tuple[Symbols, ...]:
        """Drop what is below the threshold, keep the rest as a level of the trie, and return what may go on."""
        kept = None
        if self._counted:
            counted = self._counted.pop().sort_by([("prefix", "ascending"), ("ended", "ascending")])
            kept = counted.filter(pc.greater_equal(counted["reports"], self.plan.threshold))
        self._levels.append(_level(self.strings, level, kept))
        going_on = [] if kept is None else kept.filter(pc.invert(kept["ended"]))["prefix"].to_pylist()
        return tuple(going_on)


def _summed(tables: list[pa.Table]) -> pa.Table:
    """Return one row for each prefix and end, with its reports added up."""
    every = pa.concat_tables(tables)
    summed = every.group_by(["prefix", "ended"], use_threads=False).aggregate([("reports", "sum")])
    return summed.select(["prefix", "ended", "reports_sum"]).rename_columns(every.column_names)


def _level(strings: Strings, level: int, kept: pa.Table | None) -> pa.Table:
    """Return the survivors of a level as rows of the trie; none at all for None."""
    rows = 0 if kept is None else kept.num_rows
    columns = [[], [], []] if kept is None else [kept["prefix"], kept["ended"], kept["reports"]]
    text = pa.binary() if strings.of_bytes else pa.string()
    kinds = {"level": pa.int64(), "prefix": text, "ended": pa.bool_(), "token": pa.int64()}
    arrays = [pa.chunked_array([pa.array([level] * rows, pa.int64())]), *columns]
    return pa.table(
        {
            name: column.cast(kind) if kept is not None else pa.array([], kind)
            for (name, kind), column in zip(kinds.items(), arrays, strict=True)
        }
    )
