"""The base of all sketches, their releases, and their saved form: bytes that are equal for equal states.

    name, format        14 bytes and 1
    class of sketch     1 byte: 0 MisraGries, 2 UserMisraGries, 3 MergedSketch (1 had a second table, and is refused)
    kind of keys        1 byte: 0 none yet, 1 integers, 2 text, 3 bytes
    numbers             8 bytes each: the number of counters, others that depend on the class, and the number of keys
    values              numbers, in the order of the keys
    keys, sorted        integers: 8 bytes each; text and bytes: their lengths as numbers, then their bytes
    SHA-256             of everything before it

See `values.saved_bytes` for the numbers and the keys of a table.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import MOST_COUNTERS, PrivateSketch
from dpsieve.sketches.summed_noise import MOST_KEYS, SummedSketch
from dpsieve.types import Ints
from dpsieve.values.columns import Kind, kind_of_type, one_item, plain_items
from dpsieve.values.saved_bytes import (
    KINDS,
    LARGEST_NUMBER,
    ByteReader,
    keys_to_bytes,
    numbers_to_bytes,
    refuse,
    sealed,
)  # fmt: skip

MOST_ITEMS = LARGEST_NUMBER
_NAME, _FORMAT = b"dpsieve sketch", 1
_SKETCHES = {0: "MisraGries", 2: "UserMisraGries", 3: "MergedSketch"}
_UNIVERSE = "Pass a range of integers such as range(10**9), or the list or Arrow array of all keys that can occur."


class Table(NamedTuple):
    """Keys, sorted and distinct, with a non-negative number each."""

    keys: pa.Array
    values: Ints


class State(NamedTuple):
    """The state of a sketch: the kind of its keys, the number of counters and further numbers, and its table."""

    kind: Kind | None
    numbers: tuple[int, ...]
    table: Table


class Sketch(ABC):
    """Counters for the most common keys of a stream. They are true values: do not publish them."""

    _numbers: ClassVar[int]  # of the saved form, without the number of keys

    def __init__(self, counters: int, most: int, hint: str) -> None:
        self._counters = validate.whole("counters", counters, low=1, high=most, hint=hint)
        self._kind: Kind | None = None

    @property
    def counters(self) -> int:
        """The number of counters, k."""
        return self._counters

    @property
    def kind(self) -> Kind | None:
        """The kind of keys: 'integers', 'text' or 'bytes'; None before the first item."""
        return self._kind

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._counters:,} counters>"

    @property
    @abstractmethod
    def decrements(self) -> int:
        """The largest error of an estimate, which is never too high. A true value."""

    def keys_and_counts(self) -> Table:
        """Return the keys held, sorted (text and bytes by their bytes), and their counters. True values.

        Keys are of the Arrow type int64, large_string or large_binary; null, without any, before the first item.
        """
        return self.snapshot().table

    def estimate(self, item: str | bytes | int) -> int:
        """Return the counter of an item, 0 where it is not held: at most its true frequency. A true value."""
        column, (keys, counts) = one_item(item, self.kind), self.keys_and_counts()
        place = pc.index_in(column, value_set=keys)[0].as_py() if len(keys) else None
        return 0 if place is None else int(counts[place])

    def lower(self, item: str | bytes | int) -> int:
        """Return a lower bound on the true frequency of an item, which is its counter. A true value."""
        return self.estimate(item)

    def upper(self, item: str | bytes | int) -> int:
        """Return an upper bound on the true frequency of an item. A true value."""
        return self.estimate(item) + self.decrements

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        keys, counts = self.keys_and_counts()
        return iter(zip(keys.to_pylist(), counts.tolist(), strict=True))

    def to_bytes(self) -> bytes:
        """Return the complete state, with keys and counters: protect it like the data."""
        return _pack(type(self).__name__, self.snapshot())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the sketch that `to_bytes` saved; it continues exactly as the saved one would have.

        Incomplete bytes, and bytes that describe a state that no stream can produce, raise `UnreadableData`.
        """
        sketch = cls._of(_unpack(data, cls.__name__, cls._numbers))
        return refuse("describe a state that no stream can produce") if sketch is None else sketch

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),)

    @abstractmethod
    def snapshot(self) -> State:
        """Return the complete state at one moment. True values."""

    @classmethod
    @abstractmethod
    def _of(cls, state: State) -> Self | None:
        """Return a sketch in this state, or None if no stream can produce it. Tables have keys of the right kind."""


def saved_class(data: object) -> str | None:
    """Return the name of the class that saved these bytes, by their first bytes; None if it is unknown."""
    if not isinstance(data, bytes | bytearray | memoryview):
        return None
    head = bytes(data[: len(_NAME) + 2])
    return _SKETCHES.get(head[-1]) if head.startswith(_NAME) and len(head) == len(_NAME) + 2 else None


def _pack(name: str, state: State) -> bytes:
    (code,), (keys, values) = (code for code, known in _SKETCHES.items() if known == name), state.table
    head = _NAME + bytes([_FORMAT, code, KINDS.index(state.kind)])
    numbers = np.array([*state.numbers, len(values)], "<u8").tobytes()
    body = head + numbers + numbers_to_bytes(values) + keys_to_bytes(state.kind, keys)
    return sealed(body, "the keys of this sketch are too long to be saved in 512 MB. Use fewer counters.")


def _unpack(data: bytes, name: str, numbers: int) -> State:
    """Return the state that was packed; raise if bytes are missing or numbers are out of range."""
    saved = saved_class(data)
    if saved not in (None, name):
        refuse(f"are a {saved}, not a {name}")
    reader = ByteReader(data, _NAME, _FORMAT, "sketch")
    if reader.take(1)[0] not in _SKETCHES:
        refuse("are a sketch of a class that this version does not know")
    kind, (counters, *others, rows) = reader.kind(), reader.words(numbers + 1)
    if not 1 <= counters <= MOST_COUNTERS or max(*others, rows) > MOST_ITEMS:
        refuse("have numbers out of range")
    values = reader.numbers(rows)
    table = Table(reader.keys(kind, rows), values)
    reader.end()
    return State(kind, (counters, *others), table)


def release_table(
    mechanism: PrivateSketch,
    table: Table,
    lost: int,
    reason: str,
    *,
    ledger: AnyLedger,
    note: str,
    source: Source | None,
) -> Release:
    """Return the keys whose noisy counters reach the threshold; `lost` bounds how much the counters are too low."""
    from dpsieve.jobs.run import Plan, run

    def finish(table: Table, source: Source) -> Release:
        outcome = mechanism.draw(table.values, lost, source)
        shown = np.flatnonzero(outcome.tokens)
        keys, notes = table.keys.take(pa.array(shown)), Notes(reason=reason)
        shown_outcome = replace(outcome, tokens=outcome.tokens[shown])
        return release_of(mechanism, keys, shown_outcome, source=source, notes=notes)

    def rehearse(table: Table, source: Source) -> None:
        mechanism.draw(np.ones(1, table.values.dtype), 1, source)

    mechanism.certify()
    return run(Plan(mechanism, lambda _: table, finish, rehearse), ledger=ledger, note=note, source=source)


def release_over(
    universe: "Universe",
    mechanism: SummedSketch,
    table: Table,
    lost: int,
    *,
    ledger: AnyLedger,
    note: str,
    source: Source | None,
) -> Release:
    """Release the values of keys of a known universe; keys outside of it are ignored."""
    from dpsieve.jobs.run import Plan, run

    places = universe.places(table.keys)
    mechanism.certify()
    reason = f"pure privacy over {len(universe):,} known keys, of which about"
    reason += f" {mechanism.false_keys:g} that do not occur come out"

    def draw(values: Ints, places: Ints, lost: int, source: Source) -> Release:
        outcome = mechanism.draw(values, lost, source)
        zeros, more = mechanism.draw_zeros(places, source)
        shown = np.flatnonzero(outcome.tokens)
        published, tokens = np.concatenate([places[shown], zeros]), np.concatenate([outcome.tokens[shown], more])
        # Of equal tokens the first place of the universe wins: ties must not depend on whether the sketch held the key.
        most = np.lexsort((published, -tokens))[: mechanism.most_keys]
        keys, notes = universe.take(published[most]), Notes(reason=reason)
        return release_of(mechanism, keys, replace(outcome, tokens=tokens[most]), source=source, notes=notes)

    def finish(inside: Ints, source: Source) -> Release:
        return draw(table.values[inside], places[inside], lost, source)

    def rehearse(_: Ints, source: Source) -> None:
        draw(np.ones(1, table.values.dtype), np.zeros(1, np.int64), 1, source)

    plan = Plan(mechanism, lambda _: np.flatnonzero(places >= 0), finish, rehearse)
    return run(plan, ledger=ledger, note=note, source=source)


class Universe:
    """The keys that can occur, by their places 0, 1, 2, ...: a range of integers, or a list."""

    def __init__(self, keys: Any) -> None:
        self._range = keys if isinstance(keys, range) else None
        if self._range is None:
            self._array = plain_items(keys, "universe", _UNIVERSE)
            if len(pc.unique(self._array)) != len(self._array):
                _refuse("holds a key more than once")
        elif not all(-(2**63) <= end < 2**63 for end in (keys.start, keys.stop)):
            _refuse("holds integers of more than 64 bits")
        elif abs(keys.stop - keys.start) // abs(keys.step) > MOST_KEYS:
            _refuse("holds more than 10^12 keys")
        if not len(self):
            _refuse("is empty")

    def __len__(self) -> int:
        return len(self._array) if self._range is None else len(self._range)

    def places(self, keys: pa.Array) -> Ints:
        """Return the place of each key, -1 for keys outside the universe, such as those of another kind."""
        kind = pa.int64() if self._range is not None else self._array.type
        if not len(keys) or kind_of_type(keys.type) != kind_of_type(kind):
            return np.full(len(keys), -1, np.int64)
        if self._range is None:
            places = pc.fill_null(pc.index_in(keys.cast(kind), value_set=self._array), -1)
            return np.asarray(places.to_numpy(), dtype=np.int64)
        span, integers = self._range, keys.to_numpy()
        # Differences modulo 2^64 are exact: both ends fit 64 bits.
        behind = (integers.view(np.uint64) - _word(span.start)) * _word(1 if span.step > 0 else -1)
        inside = (integers >= min(span[0], span[-1])) & (integers <= max(span[0], span[-1]))
        places, remainder = np.divmod(behind, np.uint64(min(abs(span.step), 2**64 - 1)))
        return np.where(inside & (remainder == 0), places, _word(-1)).view(np.int64)

    def take(self, places: Ints) -> pa.Array:
        """Return the keys at these places."""
        if self._range is None:
            return self._array.take(pa.array(places))
        return pa.array((places.astype(np.uint64) * _word(self._range.step) + _word(self._range.start)).view(np.int64))


def _refuse(why: str) -> NoReturn:
    raise InvalidValue(f"universe {why}. {_UNIVERSE}", argument="universe")


def _word(number: int) -> np.uint64:
    return np.uint64(number % 2**64)
