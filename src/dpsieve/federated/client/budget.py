"""The budget of a device: which questions it answers, recorded durably before an answer leaves.

A `Budget` records each collection at its first question and charges it as a whole: the epsilon and delta of its
`Terms`, and its exposure, the probability 1 - (1 - coin)^tosses that at least one of its coins says 'report' (one toss
for each level; one in all with cohorts). A refused question is answered by a dummy, as if the coin had said 'silent'.
With R for `exposure`, and for everything that the device answers (with `days`: in any `days` consecutive days):

* whatever servers do, its messages are (0, R)-private;
* what servers that keep their terms publish is (epsilon, delta)-private together, by sums that stay within limits fixed
  in advance.

What is refused, the proofs, and what is not promised: docs/background/federated.md#what-a-budget-promises. Sums are
exact to 50 digits, and numbers are taken as the decimals that Python prints. The record is one text in durable storage:
a private file (`FileStorage`), or a store of the host.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, Self

from dpsieve import locks, validate
from dpsieve.errors import DpsieveError, InvalidType, UnreadableData
from dpsieve.federated.client.coins import RandomWords, uniform

from dpsieve.federated.client.questions import (  # isort: skip
    LARGEST_COIN, SMALLEST_COIN, AnyQuestion, Coin, Question, Terms, ValueQuestion, check_question, least_delta,
    terms_of,
)  # fmt: skip
from dpsieve.federated.client.strings import MOST_LEVELS, Message
from dpsieve.validate import Checked, is_whole

PRIVATE = 0o600
VERSION = 1
_MOST_COLLECTIONS = 1000
_PRECISE = Context(prec=60)
_DAY = 86_400
_CHANGES = ("level", "prefixes")  # from one question of a collection to the next
_LAST_DAY = 10**9
_HINT = "Pass the record of this device as it is."


class Storage(Protocol):
    """A place for one text, such as a key of a mobile host's own store.

    A storage may also have a method `lock()` that returns a context manager; a `Budget` holds it from `get` to `put`.
    A host whose processes share a storage needs it. Failures are to be raised as OSError.
    """

    def get(self) -> str | None:
        """Return the text, or None where none was put yet."""

    def put(self, text: str) -> None:
        """Replace the text; on return it is durable."""


class FileStorage:
    """One text in a file of mode 0600, replaced atomically.

    A new file is written, flushed and renamed, and the folder is flushed. A process that is killed at any point leaves
    the old text or the new one, and `put` returns only once the new one survives a power failure.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = FileStorage(f"{folder}/state")
    ...     with place.lock():
    ...         place.put("tea")
    ...     place.get()
    'tea'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise InvalidType(f"path must be the path of a file, not {type(path).__name__}.", argument="path")
        self.path = Path(os.path.realpath(path))  # the lock of a link is that of its file
        if not self.path.parent.is_dir():
            raise UnreadableData("path: its folder does not exist. Make the folder, or pass another path.")

    def get(self) -> str | None:
        """Return the text, or None where none was put yet."""
        try:
            return self.path.read_bytes().decode(errors="surrogateescape")
        except FileNotFoundError:
            return None

    def put(self, text: str) -> None:
        """Replace the text; on return it is durable."""
        working = self.path.with_name(f".{self.path.name}.partial")
        with open(self._open(working, os.O_WRONLY | os.O_TRUNC), "wb") as file:  # noqa: PTH123
            file.write(text.encode(errors="surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        working.replace(self.path)
        if os.name == "posix":
            locks.flush(self.path.parent)

    @contextmanager
    def lock(self, *, wait: bool = True) -> Iterator[None]:
        """Keep other processes and threads out; without `wait`, raise BlockingIOError where one is inside.

        Outside of Unix nothing is locked, as in all of dpsieve.
        """
        beside = self.path.with_name(f".{self.path.name}.lock")  # the file itself is replaced
        handle = locks.acquire_lock(beside, lambda: os.close(self._open(beside, os.O_RDONLY)), wait=wait)
        try:
            yield
        finally:
            os.close(handle)

    @staticmethod
    def _open(path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), PRIVATE)


class Spent(NamedTuple):
    """The totals of the collections that a budget counts."""

    epsilon: float
    delta: float
    exposure: float
    collections: int


@dataclass(frozen=True)
class _Charge(Checked, Message):
    """One collection in a record.

    Attributes:
        terms: what it promises.
        digest: of the parameters that all of its questions share.
        coin, tosses: the rate, and how many coins are tossed at most.
        level: with cohorts, the level that this device drew; else 0.
        asked: the last level that was asked for.
        day: of the last admitted question, counted from 1970.
    """

    terms: Terms
    digest: Annotated[str, lambda value, name: validate.text(name, value, hint=_HINT)]
    coin: Coin
    tosses: Annotated[int, is_whole(1, MOST_LEVELS, _HINT)]
    level: Annotated[int, is_whole(0, MOST_LEVELS, _HINT)]
    asked: Annotated[int, is_whole(0, MOST_LEVELS, _HINT)]
    day: Annotated[int, is_whole(0, _LAST_DAY, _HINT)]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        fields = cls._read_fields(data)
        return cls(**{**fields, "terms": Terms.from_json(fields["terms"])})


class _Record(NamedTuple):
    """The charges of a device by the names of collections, and the latest day of a question."""

    charges: dict[str, _Charge]
    day: int

    def to_text(self) -> str:
        body = {"version": VERSION, "day": self.day, "charges": [charge.to_json() for charge in self.charges.values()]}
        text = json.dumps(body)
        return f"{_digest(text)}\n{text}\n"

    @classmethod
    def from_text(cls, text: str | None) -> "_Record | None":
        """Return the record, or None where it is missing or damaged."""
        digest, _, body = (text or "").removesuffix("\n").partition("\n")
        try:
            if digest != _digest(body) or (data := json.loads(body))["version"] is not VERSION:
                return None
            charges = [_Charge.from_json(charge) for charge in data["charges"]]
            day = validate.whole("day", data["day"], hint=_HINT)
        except (DpsieveError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return cls({charge.terms.collection: charge for charge in charges}, day)


class Budget:
    """The budget of a device over all collections and servers; the head of the module has the promise.

    Several processes and threads may use one budget: each question is decided and recorded under a lock.

    >>> import tempfile
    >>> from dpsieve.federated.client import ValueQuestion, value_answer
    >>> folder = tempfile.TemporaryDirectory()
    >>> budget = Budget(f"{folder.name}/budget", epsilon=4.0, delta=1e-6, exposure=0.5)
    >>> question = ValueQuestion(0.24, terms=Terms("drinks", 1.0, 1e-8, threshold=19))
    >>> report = value_answer(question, "tea", budget=budget)
    >>> budget.spent()
    Spent(epsilon=1.0, delta=1e-08, exposure=0.24, collections=1)
    >>> budget.refusal(question)
    'this level of the collection was asked before'
    >>> folder.cleanup()
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Storage,
        *,
        epsilon: float,
        delta: float,
        exposure: float,
        rate: float = 0.5,
        days: int | None = None,
        neighbours: validate.Neighbours = "add_remove",
    ) -> None:
        """Open the record, or start one where there is none.

        Args:
            place: a file of this device, made with mode 0600, or a `Storage` of the host.
            epsilon, delta: the most that all collections together may promise, added up.
            exposure: the largest probability that anything about a value leaves the device.
            rate: the largest coin that is answered.
            days: forget a collection this many days after its last question; None counts all collections, always.
            neighbours: 'add_remove' (one client more or less) or 'replace' (another value).
        """
        hint = "Pass a probability such as exposure=0.5: that anything leaves the device."
        self.epsilon, self.delta = validate.positive_epsilon(epsilon), validate.delta(delta)
        self.exposure = validate.between("exposure", exposure, SMALLEST_COIN, LARGEST_COIN, hint=hint)
        self.rate = validate.between("rate", rate, SMALLEST_COIN, LARGEST_COIN, hint="Pass a rate such as rate=0.5.")
        hint = "Pass how many, such as days=30."
        self.days = None if days is None else validate.whole("days", days, low=1, hint=hint)
        self.neighbours = validate.neighbours(neighbours)
        self._mutex = threading.Lock()
        if isinstance(place, str | os.PathLike):
            self._storage: Storage = FileStorage(place)
        elif all(callable(getattr(place, name, None)) for name in ("get", "put")):
            self._storage = place
        else:
            raise InvalidType(f"place must be a path or a Storage, not {type(place).__name__}.", argument="place")
        with self._locked():
            if self._storage.get() is None:
                self._storage.put(_Record({}, 0).to_text())

    def __repr__(self) -> str:
        return f"<Budget of a device: epsilon={self.epsilon:g}, delta={self.delta:g}, exposure={self.exposure:g}>"

    def spent(self) -> Spent:
        """Return what is charged; raise UnreadableData where the record is damaged and all questions are refused."""
        with self._locked():
            record = self._current_record(self._storage.get())
        if record is None:
            raise UnreadableData("place: the record of this budget is damaged or gone, and all questions are refused.")
        charges = list(record.charges.values())
        epsilon, delta, exposure = (float(total) for _, total, _ in self._limits(charges))
        return Spent(epsilon, delta, exposure, len(charges))

    def refusal(self, question: AnyQuestion) -> str | None:
        """Return why a question would be refused, or None; nothing is charged. Do not send it: dummies hide it."""
        _check_question(question)
        with self._locked():
            record = self._current_record(self._storage.get())
        return self._refusal(question, record)

    def charge(self, question: AnyQuestion, *, source: RandomWords | None = None) -> bool:
        """Record a question and return whether to toss a coin for it; on return the record is durable.

        False means refused or, with cohorts, a level that this device did not draw. `value_answer` and `client_answer`
        call it. It receives no value, and rewrites the record also where it refuses.
        """
        _check_question(question)
        try:
            with self._locked():
                return self._charge(question, source)
        except OSError:  # such as a full disk: what is not recorded is not answered
            return False

    def _charge(self, question: AnyQuestion, source: RandomWords | None) -> bool:
        text = self._storage.get()
        record = self._current_record(text)
        if record is None or self._refusal(question, record) is not None:
            if text is not None:
                self._storage.put(text)
            return False
        name, cohorts = terms_of(question).collection, question.protocol == "cohorts"
        old = record.charges.get(name)
        level = old.level if old else 1 + uniform(question.levels, source) if cohorts else 0
        charged = _new_charge(question, level, record.day)
        self._storage.put(_Record({**record.charges, name: charged}, record.day).to_text())
        return not cohorts or level == question.level

    def _refusal(self, question: AnyQuestion, record: _Record | None) -> str | None:
        if record is None:
            return "the record is damaged or gone"
        terms = terms_of(question)
        if question.coin > self.rate:
            return "the coin is above the rate of this budget"
        if least_delta(question) > terms.delta:
            return "the terms cannot be true for this coin and threshold"
        old, new = record.charges.get(terms.collection), _new_charge(question, 0, record.day)
        if old is not None:
            if old.digest != new.digest:
                return "another collection has this name"
            return "this level of the collection was asked before" if question.level <= old.asked else None
        if self.neighbours == "add_remove" and terms.neighbours == "replace":
            return "the terms are for 'replace', and this budget is for 'add_remove'"
        if len(record.charges) >= _MOST_COLLECTIONS:
            return "the record is full"
        charges = [*record.charges.values(), new]
        over = [name for name, total, limit in self._limits(charges) if total > limit]
        return f"{' and '.join(over)} would be exceeded" if over else None

    def _current_record(self, text: str | None) -> _Record | None:
        """Return today's record without expired charges, or None; a clock that was set back is ignored."""
        record = _Record.from_text(text)
        if record is None:
            return None
        day = max(record.day, int(time.time() // _DAY))
        first = 0 if self.days is None else day - self.days + 1
        return _Record({name: charge for name, charge in record.charges.items() if charge.day >= first}, day)

    def _limits(self, charges: Iterable[_Charge]) -> Iterator[tuple[str, Decimal, Decimal]]:
        """Yield the name of each limit, the total of these charges, and the limit."""
        epsilon = delta = Decimal(0)
        silent = Decimal(1)
        for charge in charges:
            own, factor = _decimal(charge.terms.epsilon), Decimal(1)
            if self.neighbours == "replace" and charge.terms.neighbours == "add_remove":
                own, factor = _PRECISE.multiply(own, 2), _PRECISE.add(_PRECISE.exp(own), 1)
            epsilon = _PRECISE.add(epsilon, own)
            delta = _PRECISE.add(delta, _PRECISE.multiply(factor, _decimal(charge.terms.delta)))
            stays = _PRECISE.power(_PRECISE.subtract(Decimal(1), _decimal(charge.coin)), charge.tosses)
            silent = _PRECISE.multiply(silent, stays)
        yield "epsilon", epsilon, _decimal(self.epsilon)
        yield "delta", delta, _decimal(self.delta)
        yield "exposure", _PRECISE.subtract(Decimal(1), silent), _decimal(self.exposure)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._mutex, getattr(self._storage, "lock", nullcontext)():
            yield


def tosses(question: AnyQuestion) -> int:
    """Return the largest number of coins that a collection tosses on a device: one per level, or one with cohorts."""
    return 1 if question.protocol == "cohorts" else question.levels


def _new_charge(question: AnyQuestion, level: int, day: int) -> _Charge:
    fixed = {name: value for name, value in question.to_json().items() if name not in _CHANGES}
    digest = _digest(json.dumps([type(question).__name__, fixed], sort_keys=True))
    return _Charge(terms_of(question), digest, question.coin, tosses(question), level, question.level, day)


def _check_question(question: AnyQuestion) -> None:
    check_question(question, ValueQuestion, Question)
    terms_of(question)


def _decimal(number: float) -> Decimal:
    return Decimal(repr(number))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
