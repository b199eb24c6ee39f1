"""Heavy hitters by a trie (TrieHH++): strings that many clients have, found prefix by prefix, with counts.

At each level clients extend the prefixes that survived so far, and only those that enough clients sent survive
(Bharadwaj and Cormode, AISTATS 2022, Section 4.1, after Zhu et al., AISTATS 2020). A string that ends at a level is
distinguished from one that continues: both may survive, each with its own count. The survivors of a level are published
in the question of the next one; the guarantee covers all questions and the release together
(`federated.plans.levels`). The reports themselves are not private, and the server that counts them is trusted: with
several levels it sees no more of a string than a prefix that others share, plus `step` symbols.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.client.answers import PrefixReport
from dpsieve.federated.client.coins import new_nonce
from dpsieve.federated.client.questions import Question, Terms
from dpsieve.federated.client.strings import Strings, Symbols
from dpsieve.federated.plans.levels import LevelOptions, LevelPlan, count_levels, level_plan
from dpsieve.federated.server.intake import CountTable, Ignored, Intake
from dpsieve.federated.server.simulated_clients import answer_all, string_type
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.publication import Notes, Publication
from dpsieve.publication.release import Release, with_counts
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Bools, Ints
from dpsieve.values.keys import is_sorted, published

_READ = ("count", "low", "high")
_ESCAPED = 12  # bytes in JSON of a symbol, at most, as in "\\ud83d\\ude00"


@dataclass(frozen=True, kw_only=True)
class TrieNotes(Notes):
    """How a trie was made: the strings that are counted, and the number of symbols per level."""

    strings: Strings
    step: int


@register("heavy_hitters")
@dataclass(frozen=True, eq=False, repr=False)
class TrieRelease(Release):
    """A release of heavy hitters, with the trie they were found in.

    Attributes:
        trie: every prefix that survived, ended ones too: `level`, `prefix`, `ended`, `token` (the sampled count), and
            `count`, `low`, `high` for how many clients have it. It is as private as the release, and saved with it.
    """

    notes_kind: ClassVar[type[Notes]] = TrieNotes
    more_tables: ClassVar[tuple[str, ...]] = ("trie",)

    notes: TrieNotes = field(kw_only=True)
    trie: pa.Table = field(kw_only=True)

    def check(self) -> None:
        super().check()
        if not _is_consistent(self):
            raise InvalidValue("trie is not one that its plan leads to. Use it as it was made.", argument="trie")


class TrieServer(ABC):
    """A server that asks level by level for the prefixes that many clients share, under one guarantee.

    Attributes:
        strings: the strings that are counted.
        step: the number of symbols per level.
        plan: rates, threshold and guarantee.
        terms: what questions state about the collection: its name, threshold and guarantee.
        entry: the number of the ledger entry that was charged; None before, or without a ledger.
    """

    def __init__(self, strings: Strings, step: int, plan: LevelPlan, collection: str | None) -> None:
        self.strings, self.step, self.plan = strings, int(step), plan
        name = new_nonce() if collection is None else collection
        self.terms = Terms(name, plan.epsilon, plan.delta_, plan.threshold, plan.neighbours)
        self.entry: int | None = None
        self._state, self._source = "new", resolve(None)
        self._open: Question | None = None
        self._intake, self._counts = Intake(self._report), self._new_counts()
        self._prefixes: tuple[Symbols, ...] = (strings.empty,)
        self._levels: list[pa.Table] = []

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of all questions and the answer together."""
        return self.plan.guarantee

    @property
    def ignored(self) -> Ignored:
        """How many reports were left out, by reason: private numbers, never to be published."""
        return self._intake.ignored

    def questions(self, *, ledger: AnyLedger = None, note: str = "") -> Iterator[Question]:
        """Yield the question of each level; `take` the answers to one before the next. Can be iterated only once.

        Ends early when nothing reaches the threshold. The budget is spent with the first question.

        Args:
            ledger: the budget to charge; the spend is durable before the first question.
            note: what this is for, stored in the ledger.
        """
        from dpsieve.jobs.run import charge

        if self._state != "new":
            again = f"Make a new {type(self).__name__}, with its own budget."
            raise InvalidValue(f"the questions were asked already. {again}")
        plan, one_client = self.plan, np.ones(1, np.int64)
        plan.certify()
        with charge(plan, ledger, note, lambda: plan.draw(one_client, source=resolve(None))) as self.entry:
            self._state = "asking"
            for level in range(1, plan.levels + 1):
                asked = (plan.protocol, level, plan.levels, self.step, plan.coin)
                self._open = Question(*asked, self.strings, self._prefixes, self.terms)
                self._intake.forget_nonces()
                yield self._open
                if not self._close(level):
                    break
            self._open, self._state = None, "done"

    def take(self, reports: Iterable[Any]) -> None:
        """Count answers to the open question: reports as `client_answer` makes them, in any number of batches.

        Reports may also be what their `to_json` or `to_bytes` returned, or lists [prefix, ended, nonce] or without the
        nonce; None is a silent client. What does not fit the question, or repeats a nonce, is ignored: an honest client
        does not send it, or sends it again. Reports without a nonce must be delivered exactly once. A client that lies
        about its string, or draws several nonces, is counted.
        """
        question = self._asked()
        if not isinstance(reports, Iterable):
            raise InvalidType("reports must be a list of reports. Pass what clients answered.", argument="reports")
        answers = self._intake.read((message for message in reports if message is not None), _ESCAPED * question.depth)
        prefixes = pa.array([report.prefix for report in answers], string_type(self.strings))
        self.count(prefixes, np.array([report.ended for report in answers], np.bool_), np.ones(len(answers), np.int64))

    def count(self, prefixes: pa.Array, ended: Bools, reports: Ints) -> None:
        """Add this number of reports to each prefix. They are trusted to fit the question, unlike those of `take`."""
        self._asked()
        self._counts.add(pa.table({"prefix": prefixes, "ended": pa.array(ended), "count": pa.array(reports)}))

    @property
    def trie(self) -> pa.Table:
        """All prefixes that survived, with how many clients have them; see `TrieRelease`."""
        table = pa.concat_tables([_schema(self.strings).empty_table(), *self._levels])
        reading = self.plan.read(table["token"].to_numpy())
        for name in _READ:
            table = table.append_column(name, pa.array(getattr(reading, name)))
        return table

    def _report(self, message: Any) -> PrefixReport | None:
        """Return the report of a decoded message, if it answers the open question."""
        if isinstance(message, dict):
            message = PrefixReport.from_json(message, self.strings)
        if not self._asked().asks_for(message):
            return None
        return message if isinstance(message, PrefixReport) else PrefixReport(*message)

    def _close(self, level: int) -> bool:
        """Store the prefixes that reached the threshold as a level of the trie; return whether any can be extended."""
        counted = self._counts.total().sort_by([("prefix", "ascending"), ("ended", "ascending")])
        outcome = self.plan.draw(counted["count"].to_numpy(), already_sampled=True, source=self._source)
        survivors = counted.filter(pa.array(outcome.tokens > 0))
        rows = [pa.array([level] * len(survivors), pa.int64()), *survivors.columns]
        self._levels.append(pa.table(rows, names=["level", "prefix", "ended", "token"]).cast(_schema(self.strings)))
        self._prefixes = tuple(survivors.filter(pc.invert(survivors["ended"]))["prefix"].to_pylist())
        self._counts = self._new_counts()
        return bool(self._prefixes)

    def _new_counts(self) -> CountTable:
        return CountTable(pa.schema([("prefix", string_type(self.strings)), ("ended", pa.bool_())]))

    def _asked(self) -> Question:
        if self._open is None:
            raise InvalidValue("no question is open. Take reports inside the loop over `questions()`.")
        return self._open

    def _check_done(self) -> None:
        if self._state != "done":
            raise InvalidValue("there are questions left to ask. Go through all of `questions()` first.")

    @abstractmethod
    def release(self) -> Publication:
        """Return the publication of what survived."""

    def _run(self, strings: Any, source: Source | None, ledger: AnyLedger, note: str) -> Any:
        """Ask one simulated client per string, and release; errors after the charge report it."""
        from dpsieve.jobs.run import report_charge

        self._source = resolve(source)
        try:
            questions = self.questions(ledger=ledger, note=note)
            answer_all(self.plan, self.strings, strings, questions, self.count, self._source)
            return self.release()
        except BaseException as error:
            report_charge(error, self.entry)
            raise


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
            max_length, min_length: the number of symbols of a string. Clients with others stay silent.
            alphabet: None for any text, a str of characters, or bytes for byte strings. Clients whose string has
                another symbol stay silent.
            step: the number of symbols per level; fewer levels cost less and show the server more.
            collection: the unique name of the collection, by which devices charge their budgets; default: random.
            options: protocol, coin, threshold, neighbours, unit and secret_levels, as in `level_plan`; `compare` shows
                what each protocol finds.
        """
        strings, levels = Strings(max_length, min_length, alphabet), count_levels(max_length, step)
        plan = level_plan(epsilon, delta, levels, **options, pruned=True)
        super().__init__(strings, max_length if plan.protocol == "one_round" else step, plan, collection)

    def run(
        self, strings: Any, *, ledger: AnyLedger = None, note: str = "", source: Source | None = None
    ) -> TrieRelease:
        """Ask one simulated client per string, and release.

        Args:
            strings: an Arrow array or a list; nulls are clients without a string.
            ledger, note: the budget to charge, and the note of the entry.
            source: randomness for tests; the release is then marked as unsafe to publish.
        """
        release: TrieRelease = self._run(strings, source, ledger, note)
        return release

    def release(self) -> TrieRelease:
        """Return the strings that ended and survived, with counts, intervals and the trie.

        The interval of a string is that of its count at its last level: over all runs, it misses the true number in at
        most 5 % of those in which the count of that level reaches the threshold.
        """
        self._check_done()
        trie = self.trie
        ended = trie.filter(trie["ended"]).sort_by("prefix")
        tokens = ended["token"].to_numpy()
        table = with_counts(self.plan, {}, published(ended["prefix"]), tokens)
        words: Any = {"contribution": "one string", "reason": describe_levels(self.plan)}
        notes = TrieNotes(strings=self.strings, step=self.step, entry=self.entry, **words)
        unsafe = not self._source.publishable
        return TrieRelease(table, self.plan, tokens=tokens, unsafe_to_publish=unsafe, notes=notes, trie=trie)


def describe_levels(plan: LevelPlan) -> str:
    """Return how a collection by levels was made, in public numbers, without its guarantee."""
    return repr(plan)[1:-1].removesuffix(f", {plan.guarantee}")


def _schema(strings: Strings) -> pa.Schema:
    text = pa.binary() if strings.of_bytes else pa.string()
    return pa.schema([("level", pa.int64()), ("prefix", text), ("ended", pa.bool_()), ("token", pa.int64())])


def _is_consistent(release: TrieRelease) -> bool:
    """Return whether each prefix answers a question of its level, and all other columns follow from the plan."""
    plan, trie, notes = release.mechanism, release.trie, release.notes
    if not isinstance(plan, LevelPlan) or type(notes.step) is not int:
        return False
    strings, step = notes.strings, notes.step
    once = plan.protocol == "one_round"
    if (1 if once else count_levels(strings.max_length, step)) != plan.levels or (once and step != strings.max_length):
        return False
    schema = pa.schema([*_schema(strings), *((name, pa.int64()) for name in _READ)])
    if trie.schema != schema or any(column.null_count for column in trie.columns):
        return False
    tokens = trie["token"].to_numpy()
    if not is_sorted(trie.select(["level", "prefix", "ended"])) or not plan.possible(tokens):
        return False
    reading = plan.read(tokens)
    if any((trie[name].to_numpy() != getattr(reading, name)).any() for name in _READ):
        return False
    return _answers_questions(trie, plan, strings, step) and _matches_ended(release, schema.field("prefix").type)


def _answers_questions(trie: pa.Table, plan: LevelPlan, strings: Strings, step: int) -> bool:
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


def _matches_ended(release: TrieRelease, text: pa.DataType) -> bool:
    """Return whether the keys of the release are the strings that ended, with their tokens."""
    ended = release.trie.filter(release.trie["ended"]).sort_by("prefix")
    keys = release.table["key"] if len(release) else pa.chunked_array([], text)
    return bool(
        ended["prefix"].equals(keys)
        and release.tokens is not None
        and np.array_equal(ended["token"].to_numpy(), release.tokens)
    )
