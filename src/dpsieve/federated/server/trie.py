"""Heavy hitters by a trie (TrieHH++): which strings many clients have, found prefix by prefix, with counts.

At each level clients extend the prefixes that survived so far, and only those that enough clients sent survive
(Bharadwaj and Cormode, AISTATS 2022, Section 4.1, after Zhu et al., AISTATS 2020). A string that ends at a level is
told apart from one that continues: both may survive, each with its own count.

The survivors of a level are published in the question of the next one. That is safe only because the histogram of each
level is private by itself: the guarantee covers all questions and the release together, as
`federated.plans.level_plans` proves. The reports themselves are not private, and the server that counts
them is trusted: with several levels it sees no more of a string than a prefix that others share, plus `step` symbols.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.client.answers import PrefixReport
from dpsieve.federated.client.questions import Question
from dpsieve.federated.client.strings import Strings, Symbols
from dpsieve.federated.plans.level_plans import LevelOptions, LevelPlan, level_plan, levels_of
from dpsieve.federated.server.level_server import LevelServer, words_of
from dpsieve.federated.server.many_clients import answer_all, string_type
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Bools, Ints
from dpsieve.values.keys import is_sorted

_READ = ("count", "low", "high")


@dataclass(frozen=True, kw_only=True)
class TrieNotes(Notes):
    """How a trie was made: which strings there are, and how many symbols each level adds."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"strings": Strings.from_json}

    strings: Strings
    step: int


@dataclass(frozen=True, eq=False, repr=False)
class TrieRelease(Release):
    """A release of heavy hitters, with the trie they were found in.

    Attributes:
        trie: every prefix that survived, ended ones too: `level`, `prefix`, `ended`, `token` (the sampled count), and
            `count`, `low`, `high` for how many clients have it. It is as private as the release, and saved with it.
    """

    kind: ClassVar[str] = "heavy_hitters"
    notes_kind: ClassVar[type[Notes]] = TrieNotes
    more_tables: ClassVar[tuple[str, ...]] = ("trie",)

    notes: TrieNotes = field(kw_only=True)
    trie: pa.Table = field(kw_only=True)

    def check(self) -> None:
        """Raise unless the trie is one that these questions can lead to, and the release is what ended in it."""
        super().check()
        if not _follows(self):
            raise InvalidValue("trie is not one that its plan leads to. Use the release as it was made.")


class TrieServer(LevelServer[Question]):
    """A server that finds the prefixes which many clients share, level by level; see `LevelServer`.

    Attributes:
        strings: which strings there are.
        step: how many symbols each level adds.
    """

    def __init__(self, strings: Strings, step: int, plan: LevelPlan, collection: str | None) -> None:
        super().__init__(plan, collection)
        self.strings, self.step = strings, step
        self._prefixes: tuple[Symbols, ...] = (strings.empty,)
        self._counted: list[pa.Table] = []
        self._levels: list[pa.Table] = []

    def take(self, reports: Iterable[Any] | pa.Table) -> None:
        """Count answers to the open question: reports as `client_answer` makes them, in any number of batches.

        Reports may also be what their `to_json` or `to_bytes` returned, lists [prefix, ended, nonce] or without the
        nonce, or a table with columns `prefix` and `ended`. What does not fit the question, or has a nonce that came
        before, is ignored: an honest client does not send it, or sends it again. Reports without a nonce must be
        delivered exactly once. Nothing stops a client that lies about its string, or that draws several nonces, from
        being counted.
        """
        if isinstance(reports, pa.Table):
            if not {"prefix", "ended"} <= set(reports.column_names):
                raise InvalidType("reports has no columns 'prefix' and 'ended'. Pass a table that has, or a list.")
            reports = zip(reports["prefix"].to_pylist(), reports["ended"].to_pylist(), strict=True)
        answers = self._answers(reports)
        prefixes = pa.array([report[0] for report in answers], string_type(self.strings))
        self.count(prefixes, np.array([report[1] for report in answers], np.bool_), np.ones(len(answers), np.int64))

    def count(self, prefixes: pa.Array, ended: Bools, reports: Ints) -> None:
        """Add this number of reports to each prefix. They are trusted to fit the question, unlike those of `take`."""
        self._asked()
        added = pa.table({"prefix": prefixes, "ended": pa.array(ended), "reports": pa.array(reports)})
        self._counted = [_summed([*self._counted, added])]

    def _ask_all(self, strings: Any, source: Source | None, charged: dict[str, Any]) -> None:
        """Ask one client for each of these strings, all in this process."""
        self._source = resolve(source)
        with self._charged():
            answer_all(self.plan, self.strings, strings, self.questions(**charged), self.count, self._source)

    @property
    def trie(self) -> pa.Table:
        """All prefixes that survived, with how many clients have them; see `TrieRelease`."""
        table = pa.concat_tables([_schema(self.strings).empty_table(), *self._levels])
        reading = self.plan.read(table["token"].to_numpy())
        for name in _READ:
            table = table.append_column(name, pa.array(getattr(reading, name)))
        return table

    def _report(self, message: dict[str, Any]) -> PrefixReport:
        return PrefixReport.from_json(message, self.strings)

    def _fits(self, report: Any) -> bool:
        return self._asked().asks_for(report)

    def _ask(self, level: int) -> Question:
        plan = self.plan
        asked = (plan.protocol, level, plan.levels, self.step, plan.coin)
        return Question(*asked, self.strings, self._prefixes, self.terms)

    def _close(self, question: Question) -> bool:
        """Drop what is below the threshold, and keep the rest as a level of the trie."""
        if not self._counted:
            return False
        counted = self._counted.pop().sort_by([("prefix", "ascending"), ("ended", "ascending")])
        kept = counted.filter(pa.array(self._reported(counted["reports"].to_numpy()) > 0))
        rows = [pa.array([question.level] * len(kept), pa.int64()), *kept.columns]
        self._levels.append(pa.table(rows, names=["level", "prefix", "ended", "token"]).cast(_schema(self.strings)))
        self._prefixes = tuple(kept.filter(pc.invert(kept["ended"]))["prefix"].to_pylist())
        return bool(self._prefixes)


class TrieHeavyHitters(TrieServer):
    """The server that finds heavy strings, level by level.

    >>> server = TrieHeavyHitters(1.0, 1e-6, max_length=3, alphabet="abc", protocol="cohorts")
    >>> for question in server.questions():
    ...     server.take([])  # what the clients answered, by `client_answer(question, string, budget=budget)`
    >>> len(server.release())
    0
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
        collection: str | None = None,
        **options: Unpack[LevelOptions],
    ) -> None:
        """Plan the levels; nothing is spent before a question is asked.

        Args:
            epsilon, delta: the budget of the whole trie.
            max_length, min_length: how many symbols strings have. Clients with others stay silent.
            alphabet: None for any text, a str of characters, or bytes for byte strings. Clients whose string has
                another symbol stay silent.
            step: how many symbols each level adds; fewer levels cost less and show the server more.
            collection: the name by which devices know the collection, and no other one; default: random.
            options: protocol, coin, threshold, neighbours, unit and secret_levels, as in `level_plan`; `compare` tells
                what each protocol finds.
        """
        strings, levels = Strings(max_length, min_length, alphabet), levels_of(max_length, step)
        plan = level_plan(epsilon, delta, levels, **options, pruned=True)
        super().__init__(strings, max_length if plan.protocol == "one_round" else step, plan, collection)

    def run(
        self, strings: Any, *, ledger: AnyLedger = None, note: str = "", source: Source | None = None
    ) -> TrieRelease:
        """Ask one client for each of these strings, all in this process, and release.

        Args:
            strings: an Arrow array or a list; nulls are clients without a string.
            ledger, note: the budget to charge, and what for.
            source: randomness for tests; a release made with it says that it is unsafe to publish.
        """
        self._ask_all(strings, source, {"ledger": ledger, "note": note})
        with self._charged():
            return self.release()

    def release(self) -> TrieRelease:
        """Return the strings that ended and survived, with counts, intervals and the trie.

        The interval of a string is that of its count at its last level: over all runs, it misses the true number in at
        most 5 % of those in which the count of that level reaches the threshold.
        """
        self._check_done()
        trie = self.trie
        found = trie.filter(trie["ended"])
        tokens = found["token"].to_numpy().astype(np.float64)
        made = release_of(self.plan, found["prefix"], tokens, source=self._source)
        words: Any = {"contribution": "one string", "reason": words_of(self.plan)}
        notes = TrieNotes(strings=self.strings, step=self.step, entry=self.entry, **words)
        return TrieRelease(
            made.table, self.plan, tokens=made.tokens, unsafe_to_publish=made.unsafe_to_publish, notes=notes, trie=trie
        )


def _summed(tables: list[pa.Table]) -> pa.Table:
    """Return one row for each prefix and end, with its reports added up."""
    every = pa.concat_tables(tables)
    summed = every.group_by(["prefix", "ended"], use_threads=False).aggregate([("reports", "sum")])
    return summed.select(["prefix", "ended", "reports_sum"]).rename_columns(every.column_names)


def _schema(strings: Strings) -> pa.Schema:
    """Return the columns of the survivors."""
    text = pa.binary() if strings.of_bytes else pa.string()
    return pa.schema([("level", pa.int64()), ("prefix", text), ("ended", pa.bool_()), ("token", pa.int64())])


def _follows(release: TrieRelease) -> bool:
    """Return whether each prefix answers a question that its level could ask, and all else follows from the plan."""
    plan, trie, notes = release.mechanism, release.trie, release.notes
    if not isinstance(plan, LevelPlan) or type(notes.step) is not int:
        return False
    strings, step = notes.strings, notes.step
    once = plan.protocol == "one_round"
    if (1 if once else levels_of(strings.max_length, step)) != plan.levels or (once and step != strings.max_length):
        return False
    schema = pa.schema([*_schema(strings), *((name, pa.int64()) for name in _READ)])
    if trie.schema != schema or any(column.null_count for column in trie.columns):
        return False
    tokens = trie["token"].to_numpy()
    if not is_sorted(trie.select(["level", "prefix", "ended"])) or not plan.possible(tokens.astype(np.float64)):
        return False
    reading = plan.read(tokens)
    if any((trie[name].to_numpy() != getattr(reading, name)).any() for name in _READ):
        return False
    return _answers(trie, plan, strings, step) and _ended(release, schema.field("prefix").type)


def _answers(trie: pa.Table, plan: LevelPlan, strings: Strings, step: int) -> bool:
    """Return whether the rows of each level answer the question about the prefixes of the level before."""
    prefixes = (strings.empty,)
    start, places = 0, trie["level"].to_numpy()
    for level in range(1, plan.levels + 1):
        stop = int(np.searchsorted(places, level, side="right"))
        rows = [trie[name].slice(start, stop - start).to_pylist() for name in ("prefix", "ended")]
        answers = list(zip(*rows, strict=True))
        question = Question(plan.protocol, level, plan.levels, step, plan.coin, strings, prefixes)
        if len(set(answers)) != len(answers) or not all(map(question.asks_for, answers)):
            return False
        prefixes, start = tuple(prefix for prefix, ended in answers if not ended), stop
    return start == len(places)


def _ended(release: TrieRelease, text: pa.DataType) -> bool:
    """Return whether the keys of the release are the strings that ended, with their tokens."""
    found = release.trie.filter(release.trie["ended"]).sort_by("prefix")
    keys = release.table["key"] if len(release) else pa.chunked_array([], text)
    return bool(
        found["prefix"].equals(keys)
        and release.tokens is not None
        and np.array_equal(found["token"].to_numpy(), release.tokens)
    )
