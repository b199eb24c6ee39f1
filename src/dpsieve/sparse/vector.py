"""A private sparse vector: a publication that answers for any index, present or not."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve import validate
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidType, InvalidValue
from dpsieve.privacy.composed import Composed
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger, charge, open_ledger
from dpsieve.privacy.mechanism import Mechanism, restored
from dpsieve.privacy.registry import from_json
from dpsieve.publication.publication import UNSAFE, Notes, Publication
from dpsieve.randomness.source import Source, resolve
from dpsieve.sparse.alp import Alp
from dpsieve.sparse.choice import REFERENCE, Ask, Recipe
from dpsieve.sparse.decoders import DECODERS
from dpsieve.sparse.digests import KEY_WORDS, Dimension, checked_dimension, digests_of, items_of, type_of
from dpsieve.sparse.embedding import Embedding, Errors
from dpsieve.sparse.entry_list import EntryList
from dpsieve.sparse.private_sizes import PrivateNorm, PrivateSparsity
from dpsieve.types import Floats, Ints, Words
from dpsieve.values.keys import refuse_set

_MAGIC = b"dpsieve sparse vector 1\n"
_DIGEST = 32
_CELLS = pa.schema([pa.field("word", pa.uint64())])
_FIX = "Use it as it was made."
_LARGEST = 2**53
_SOME = {"text": "a key", "bytes": b"a key", "any": "a key"}  # by the kind of keys, to rehearse with


@dataclass(frozen=True)
class VectorNotes(Notes):
    """How a sparse vector was made, and which indices or keys it answers for."""

    dimension: Dimension = 2**64

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_dimension(self.dimension)


@dataclass(frozen=True, eq=False, repr=False)
class SparseVector(Publication):
    """A private vector of huge dimension in few bits; `get` estimates any entry.

    Attributes:
        table: large entries that are listed by name, if the variant lists any: `index` or `key`, and `value`.
        cells: what all other entries are estimated from: the key of the hash, then packed bits.
    """

    kind: ClassVar[str] = "sparse_vector"
    notes_kind: ClassVar[type[Notes]] = VectorNotes
    more_tables: ClassVar[tuple[str, ...]] = ("cells",)

    cells: pa.Table = field(kw_only=True)
    notes: VectorNotes = field(default_factory=VectorNotes, kw_only=True)

    def __post_init__(self) -> None:
        kinds: list[type[Mechanism]] = [type(part) for part in self._parts]
        expected: list[type[Mechanism]] = [kind for kind in (PrivateSparsity, PrivateNorm, EntryList) if kind in kinds]
        expected += [kind for kind in kinds if issubclass(kind, Embedding)][:1]
        if kinds != expected or (self._embedding is None and self._list is None) or not self._once:
            raise InvalidValue(f"mechanism is not that of a sparse vector. {_FIX}")
        super().__post_init__()

    @classmethod
    def private(
        cls,
        indices: Any,
        values: Any,
        *,
        neighbours: str,
        dimension: Dimension,
        epsilon: float,
        delta: float = 0.0,
        variant: str = "auto",
        max_value: float | None = None,
        sparsity: int | None = None,
        total: float | None = None,
        signed: bool = False,
        threshold: bool | None = None,
        bits: float | None = None,
        alpha: float | None = None,
        unit: str | None = None,
        ledger: AnyLedger = None,
        note: str = "",
        source: Source | None = None,
    ) -> Self:
        """Make a private representation of a sparse vector; indices that are not given have the value 0.

        Its size and its parameters depend on the arguments alone, and on the size that was bought, if any was: values
        above `max_value` count as `max_value`, and more entries than `sparsity` make answers worse. Under 'retrieval',
        promise enough: the guarantee rests on `sparsity`, and with about 8 % more entries all answers are lost.
        Repeated indices, indices outside of the dimension and values that are not finite are refused.

        Args:
            indices: whole numbers below `dimension`, or keys of the kind that it names; each once.
            values: one for each index. Under 'one_entry' they are rounded down to whole numbers.
            neighbours: which vectors must not be told apart: 'one_entry' (whole values, one of which changes by 1, as
                when a unit is added to one count) or 'l1' (real values that change by 1 in total, over any entries).
                Divide the values first if a unit may change them by more.
            dimension: how many indices there are, up to 2^64; or 'integers', 'text' or 'bytes', where entries have
                keys of this kind instead of an index; or 'any' for any Python keys made of numbers, texts, bytes, None
                and tuples, which cannot be listed by name.
            epsilon, delta: the budget. A delta above 0 allows 'retrieval' and 'korolova'.
            variant: 'auto', or 'retrieval', 'alp', 'histogram', 'multiplicative', 'max_projection', 'dense',
                'cormode', 'korolova'.
            max_value: a public bound on values. Without one, large entries are listed by name ('alp' and its
                relatives), or it is 2^20 ('retrieval').
            sparsity: a promised bound on the number of entries. Without one, 5 % of epsilon buy it ('one_entry'), or
                the total that stands for it ('l1').
            total: a promised bound on the sum of all absolute values, in place of `sparsity`.
            signed: whether negative values are kept; otherwise they count as 0.
            threshold: whether large entries are listed by name, with a part of the budget; chosen if left out.
            bits: how many bits to use for an entry; chosen if left out.
            alpha: how much of a value, times epsilon, one bit stands for ('alp', 'multiplicative'); under 'histogram'
                the whole number of counts. Chosen if left out.
            unit: who is protected, in words, such as 'one user_id'.
            ledger, note, source: see `dpsieve.release`.

        >>> vector = SparseVector.private(
        ...     [7, 10**9], [40, 25], neighbours="one_entry", dimension=2**40, epsilon=8.0, delta=1e-9, sparsity=100
        ... )
        >>> vector.get([7, 10**9, 12345]).round().tolist()
        [40.0, 25.0, 0.0]
        """
        ask = Ask.of(locals())
        book, source = open_ledger(ledger, note), resolve(source)
        planned = ask.recipe(
            None if ask.bought is None else REFERENCE
        )  # refuses what cannot be, before anything is paid
        cost: Mechanism | Guarantee = ask.mechanism(planned) if ask.bought is None else ask.guarantee
        if book is not None:
            book.check(cost, note)
        items, numbers = _entries(indices, values, ask)
        invented = _entries([_SOME.get(str(ask.dimension), 0)], [1], ask)
        with charge(book, cost, note, lambda: cls._drawn(ask, planned, *invented, resolve(None))) as entry:
            return cls._drawn(ask, planned, items, numbers, source, entry)

    @classmethod
    def _drawn(
        cls,
        ask: Ask,
        planned: Recipe,
        items: pa.Array,
        numbers: Ints | Floats,
        source: Source,
        entry: int | None = None,
    ) -> Self:
        """Return the vector of entries that are paid for."""
        size, recipe = ask.bought, planned
        if size is not None:
            recipe = ask.recipe(size.draw(np.clip(numbers, -ask.counted, ask.counted), source))
        listed = (pa.array([], type_of(ask.dimension)), np.empty(0))  # no slice, which would carry what it was cut from
        if recipe.entry_list is not None:
            listed = recipe.entry_list.draw(items, numbers, source)
        words: Words = np.empty(0, np.uint64)
        if recipe.embedding is not None:
            key = source.words(KEY_WORDS)
            kind = np.int64 if recipe.embedding.neighbours == "one_entry" else np.float64
            words = recipe.embedding.draw(digests_of(items, key), numbers.astype(kind, copy=False), source, key)
        return cls(
            pa.table([listed[0], pa.array(listed[1], pa.float64())], names=[_name(ask.dimension), "value"]),
            ask.mechanism(recipe),
            cells=pa.table([pa.array(words)], schema=_CELLS),
            unsafe_to_publish=not source.publishable,
            notes=VectorNotes(ask.unit, recipe.reason, ask.dimension, entry=entry),
        )

    def get(self, indices: Any, *, decoder: str | None = None) -> Floats:
        """Return an estimate for each index or key, in their order; those of no entry are estimated too, near 0.

        Args:
            indices: whole numbers below the dimension, or keys of its kind; also repeated ones.
            decoder: 'likelihood' (default), 'posterior' or 'prefix', where the cells hold levels; see `Alp.get`.
        """
        items = items_of(indices, self.notes.dimension, "indices")
        if decoder is not None and not isinstance(self._embedding, Alp):
            raise InvalidValue("decoder is for variants with levels. Leave it out.")
        if self._embedding is None:
            found = np.zeros(len(items))
        else:
            digests = digests_of(items, self._words[:KEY_WORDS])
            if isinstance(self._embedding, Alp):
                found = self._embedding.get(self._words, digests, decoder or DECODERS[0])
            else:
                found = self._embedding.get(self._words, digests)
        if len(self):
            place = pc.index_in(items, self.table.column(0).combine_chunks()).to_numpy(zero_copy_only=False)
            listed = np.flatnonzero(~np.isnan(place.astype(np.float64)))
            found[listed] = self.table.column(1).to_numpy()[place[listed].astype(np.int64)]
        return found

    def errors(self, value: float = 0.0) -> Errors:
        """Return the distribution of estimate - value for an entry of this value; 0 stands for one that is not there.

        It is computed from public numbers, where there are as many entries as promised and all others have the largest
        value. Most data is kinder; levels can err more where other values are spread over a wide range.
        """
        value = validate.real("value", value, hint="Pass the value of an entry, 0 for one that is not there.")
        return Recipe(self._list, self._embedding).errors(value)

    def expected_error(self, value: float = 0.0) -> float:
        """Return the mean of |estimate - value|; see `errors`."""
        return self.errors(value).mean

    def error_bound(self, level: float = 0.95, value: float = 0.0) -> float:
        """Return the least b with P[|estimate - value| <= b] >= level; see `errors`."""
        return self.errors(value).bound(level)

    @property
    def bits(self) -> int:
        """How many bits the listed entries and the cells take, without names and headers."""
        return 64 * (len(self._words) + 2 * len(self))

    def to_bytes(self) -> bytes:
        """Return everything as bytes that any version and machine reads: a record, listed entries, cells, a digest."""
        self.check()
        column, values = self.table.column(0).combine_chunks(), self.table.column(1).to_numpy()
        buffers = [_plain_bytes(column), values.astype("<f8").tobytes(), self._words.astype("<u8").tobytes()]
        record = {**self._record(), "buffers": [len(one) for one in buffers]}
        head = json.dumps(record, sort_keys=True, allow_nan=False).encode()
        whole = b"".join([_MAGIC, len(head).to_bytes(8, "little"), head, *buffers])
        return whole + hashlib.sha256(whole).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` returned; anything else is refused."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType(f"data must be bytes, not {type(data).__name__}. Pass what to_bytes returned.")
        try:
            return cls._read(bytes(data))
        except (DpsieveError, pa.ArrowException, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            raise CorruptRelease("data is no whole sparse vector. Pass all the bytes that to_bytes returned.") from None

    @classmethod
    def _read(cls, data: bytes) -> Self:
        whole, start = data[:-_DIGEST], len(_MAGIC) + 8
        if not data.startswith(_MAGIC) or hashlib.sha256(whole).digest() != data[-_DIGEST:]:
            raise ValueError
        end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
        record = json.loads(whole[start:end])
        sizes = record.pop("buffers") if isinstance(record, dict) else None
        if not isinstance(sizes, list) or [type(size) for size in sizes] != [int] * 3:
            raise ValueError
        if end + sum(sizes) != len(whole) or min(sizes) < 0 or sizes[1] % 8 or sizes[2] % 8:
            raise ValueError
        names, numbers, words = (whole[end + sum(sizes[:i]) : end + sum(sizes[: i + 1])] for i in range(3))
        notes = restored(VectorNotes, record["notes"], "notes")
        column = _column(names, sizes[1] // 8, notes.dimension)
        made = cls(
            pa.table(
                [column, pa.array(np.frombuffer(numbers, "<f8").astype(float))], [_name(notes.dimension), "value"]
            ),
            from_json(record["mechanism"]),
            cells=pa.table([pa.array(np.frombuffer(words, "<u8").astype(np.uint64))], schema=_CELLS),
            unsafe_to_publish=record["unsafe_to_publish"],
            notes=notes,
        )
        made.check()
        if json.dumps(record, sort_keys=True) != json.dumps(made._record(), sort_keys=True):
            raise ValueError
        return made

    def check(self) -> None:
        """Raise unless the tables are ones that the mechanism can have let out."""
        kind = type_of(self.notes.dimension)
        if self.table.column_names != [_name(self.notes.dimension), "value"] or self.cells.schema != _CELLS:
            raise InvalidValue(f"tables have other columns than a sparse vector. {_FIX}")
        if self.table.schema.types != [kind, pa.float64()] or self.cells.column(0).null_count:
            raise InvalidValue(f"tables have other types than a sparse vector. {_FIX}")
        if any(getattr(part, "dimension", self.notes.dimension) != self.notes.dimension for part in self._parts):
            raise InvalidValue(f"notes have another dimension than the mechanism. {_FIX}")
        wanted = 0 if self._embedding is None else self._embedding.words
        if self.cells.num_rows != wanted or (len(self) and self._list is None):
            raise InvalidValue(f"tables have other sizes than the mechanism makes. {_FIX}")
        if len(self):
            if self.notes.dimension == "any":
                raise InvalidValue(f"table names keys that no table holds. {_FIX}")
            items_of(self.table.column(0).combine_chunks(), self.notes.dimension, "table")
            order = pc.sort_indices(self.table.column(0)).to_numpy().astype(np.int64)
            distinct = len(pc.unique(self.table.column(0))) == len(self)
            if self.table.column(1).null_count or not distinct or not (np.diff(order) > 0).all():
                raise InvalidValue(f"table is not sorted by index, or holds one more than once. {_FIX}")
            if self._list is None or not self._list.possible(self.table.column(1).to_numpy()):
                raise InvalidValue(f"table holds values that the mechanism does not let out. {_FIX}")

    def __bool__(self) -> bool:
        return True  # also without a row that is listed

    def __repr__(self) -> str:
        last = self._embedding or self._list
        warning = f" {UNSAFE}" if self.unsafe_to_publish else ""
        name = "" if last is None else f", {last.name.replace('_', ' ')}"
        return f"<SparseVector{name}, {self.bits // 8:,} bytes: {self.guarantee}{warning}>"

    @cached_property
    def _words(self) -> Words:
        return np.ascontiguousarray(self.cells.column(0).to_numpy())

    @cached_property
    def _parts(self) -> list[Mechanism]:
        whole = self.mechanism
        return [use.mechanism for use in whole.uses] if isinstance(whole, Composed) else [whole]

    @property
    def _once(self) -> bool:
        return not isinstance(self.mechanism, Composed) or all(use.times == 1 for use in self.mechanism.uses)

    @cached_property
    def _embedding(self) -> Embedding | None:
        return next((part for part in self._parts if isinstance(part, Embedding)), None)

    @cached_property
    def _list(self) -> EntryList | None:
        return next((part for part in self._parts if isinstance(part, EntryList)), None)


def _entries(indices: Any, values: Any, ask: Ask) -> tuple[pa.Array, Ints | Floats]:
    """Return the indices and values of the entries that are not 0, checked."""
    items = items_of(refuse_set(indices), ask.dimension, "indices")
    hint = "Pass one finite number for each index."
    numbers = _numbers(validate.listed(refuse_set(values)), hint)
    if numbers.ndim != 1 or len(numbers) != len(items):
        raise InvalidValue(f"values has another length than indices. {hint}")
    if len(pc.unique(items)) != len(items):
        raise InvalidValue("indices holds one more than once. Add up the values of equal indices first.")
    most = min(ask.max_value or _LARGEST, _LARGEST)  # up to 2^53 whole numbers are floats too
    bounded = np.clip(numbers, -most if ask.signed else 0, most)
    kept = np.floor(bounded).astype(np.int64) if ask.neighbours == "one_entry" else bounded.astype(np.float64)
    held = np.flatnonzero(kept)
    return (items, kept) if len(held) == len(kept) else (items.take(pa.array(held)), kept[held])


def _numbers(values: Any, hint: str) -> Ints | Floats:
    """Return values as 64-bit whole numbers, larger ones as the largest that are kept, or as floats."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidType(f"values is a masked array. {hint}")
    try:
        numbers = np.asarray(values)
    except ValueError:
        raise InvalidType(f"values must be a flat sequence of numbers. {hint}") from None
    if numbers.dtype == object and all(type(value) is int for value in numbers.flat):
        numbers = np.array([min(max(value, -_LARGEST), _LARGEST) for value in numbers.flat], np.int64)
    if numbers.dtype.kind == "u":
        return np.minimum(numbers.astype(np.uint64), np.uint64(_LARGEST)).astype(np.int64)
    return numbers.astype(np.int64) if numbers.dtype.kind == "i" else validate.finite("values", numbers, hint=hint)


def _name(dimension: Dimension) -> str:
    return "key" if isinstance(dimension, str) else "index"


def _plain_bytes(column: pa.Array) -> bytes:
    """Return numbers as words; texts as the words of their ends, and then their bytes."""
    if pa.types.is_integer(column.type):
        return bytes(column.to_numpy().view(np.uint64).astype("<u8").data)
    texts = [text.encode() if isinstance(text, str) else text for text in column.to_pylist()]
    return np.cumsum([len(text) for text in texts], dtype="<u8").tobytes() + b"".join(texts)


def _column(data: bytes, count: int, dimension: Dimension) -> pa.Array:
    """Return the column that `_plain_bytes` wrote."""
    kind, ends = type_of(dimension), np.frombuffer(data[: 8 * count], "<u8").astype(np.int64)
    if pa.types.is_integer(kind):
        if len(data) != 8 * count:
            raise ValueError
        return pa.array(ends.view(np.uint64).astype(kind.to_pandas_dtype()))
    if len(data) != 8 * count + (int(ends[-1]) if count else 0):
        raise ValueError
    offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64))
    column = pa.Array.from_buffers(kind, count, [None, offsets, pa.py_buffer(data[8 * count :])])
    column.validate(full=True)
    return column
