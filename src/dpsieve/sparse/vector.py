"""A private sparse vector: a publication that estimates the entry at any index, present or absent."""

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve import validate
from dpsieve.codec import decode_fields, register
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Mechanism, from_json
from dpsieve.publication.publication import UNSAFE, Notes, Publication
from dpsieve.randomness.source import Source
from dpsieve.sparse.choice import REFERENCE, Recipe, Variant, VectorPreview, VectorRequest, preview_vector
from dpsieve.sparse.digests import KEY_WORDS, Dimension, check_dimension, column_type, digest_items, read_items
from dpsieve.sparse.embedding import Embedding, Errors, Relation
from dpsieve.sparse.entry_list import EntryList
from dpsieve.sparse.grid_noise import PrivateNorm, PrivateSparsity
from dpsieve.types import Floats, Ints, Words
from dpsieve.values.columns import Kind
from dpsieve.values.keys import refuse_set
from dpsieve.values.saved_bytes import ByteReader, keys_to_bytes, sealed

_NAME, _FORMAT, _MOST_BYTES = b"dpsieve sparse vector", 2, 2**36
_CELLS = pa.schema([pa.field("word", pa.uint64())])
_FIX = "Use it as it was made."
_LARGEST = 2**53
_SOME = {"text": "a key", "bytes": b"a key", "any": "a key"}  # by the kind of keys, to rehearse with


@dataclass(frozen=True)
class VectorNotes(Notes):
    """Notes with the dimension: the indices or keys that a vector answers."""

    dimension: Dimension = 2**64

    def __post_init__(self) -> None:
        super().__post_init__()
        check_dimension(self.dimension)


@register("sparse_vector")
@dataclass(frozen=True, eq=False, repr=False)
class SparseVector(Publication):
    """A private vector of huge dimension in few bits; `get` estimates any entry.

    Attributes:
        table: large entries that are listed by name, if the variant lists any: `index` or `key`, and `value`.
        cells: what all other entries are estimated from: the key of the hash, then packed bits.
    """

    notes_kind: ClassVar[type[Notes]] = VectorNotes
    more_tables: ClassVar[tuple[str, ...]] = ("cells",)

    cells: pa.Table = field(kw_only=True)
    notes: VectorNotes = field(default_factory=VectorNotes, kw_only=True)

    def __post_init__(self) -> None:
        kinds: list[type[Mechanism]] = [type(part) for part in self._parts]
        expected: list[type[Mechanism]] = [kind for kind in (PrivateSparsity, PrivateNorm, EntryList) if kind in kinds]
        expected += [kind for kind in kinds if issubclass(kind, Embedding)][:1]
        several = any(use.times > 1 for use in self.mechanism.uses)
        if kinds != expected or (self.embedding is None and self._list is None) or several:
            raise InvalidValue(f"mechanism is not that of a sparse vector. {_FIX}")
        super().__post_init__()

    @classmethod
    def private(
        cls,
        indices: Any,
        values: Any,
        *,
        neighbours: Relation,
        dimension: Dimension,
        epsilon: float,
        delta: float = 0.0,
        variant: Variant = "auto",
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
    ) -> "SparseVector":
        """Return a private representation of a sparse vector; indices that are not given have the value 0.

        Its size and parameters depend only on the arguments, and on the estimated size, if any: values above
        `max_value` count as `max_value`, and more entries than `sparsity` reduce accuracy. Under 'retrieval' the
        guarantee requires `sparsity`, and with about 8 % more entries all answers are lost. Repeated indices, indices
        outside of the dimension and values that are not finite raise.

        Args:
            indices: whole numbers below `dimension`, or keys of the kind that it names; each once.
            values: one for each index. Under 'one_entry' they are rounded down to whole numbers.
            neighbours: the vectors that must be indistinguishable: 'one_entry' (whole values, where one changes by 1,
                as when a unit is added to one count) or 'l1' (real values that change by 1 in total, over any entries).
                Divide the values first if a unit may change them by more.
            dimension: how many indices there are, up to 2^64; or 'integers', 'text' or 'bytes', where entries have
                keys of this kind instead of an index; or 'any' for any Python keys made of numbers, texts, bytes, None
                and tuples, which cannot be listed by name.
            epsilon, delta: the budget. A delta above 0 allows 'retrieval'.
            variant: 'auto', or 'retrieval', 'alp', 'histogram', 'max_projection', 'dense'.
            max_value: a public bound on values. Without one, large entries are listed by name ('alp' and its
                relatives), or it is 2^20 ('retrieval').
            sparsity: a promised bound on the number of entries. By default, 5 % of epsilon estimate it ('one_entry'),
                or the total ('l1').
            total: a promised bound on the sum of all absolute values, in place of `sparsity`.
            signed: whether negative values are kept; otherwise they count as 0.
            threshold: whether large entries are listed by name, with a part of the budget; chosen by default.
            bits: the number of bits per entry; chosen by default.
            alpha: how much of a value, times epsilon, one bit stands for ('alp'); under 'histogram' the whole
                number of counts. Chosen if left out.
            unit: the protected unit, such as 'one user_id'.
            ledger, note, source: see `dpsieve.release`.

        >>> vector = SparseVector.private(
        ...     [7, 10**9], [40, 25], neighbours="one_entry", dimension=2**40, epsilon=8.0, delta=1e-9, sparsity=100
        ... )
        >>> vector.get([7, 10**9, 12345]).round().tolist()
        [40.0, 25.0, 0.0]
        """
        return release_vector(VectorRequest.of(locals()), indices, values, ledger=ledger, note=note, source=source)

    @classmethod
    def preview(
        cls,
        *,
        neighbours: Relation,
        dimension: Dimension,
        epsilon: float,
        delta: float = 0.0,
        variant: Variant = "auto",
        max_value: float | None = None,
        sparsity: int | None = None,
        total: float | None = None,
        signed: bool = False,
        threshold: bool | None = None,
        bits: float | None = None,
        alpha: float | None = None,
        unit: str | None = None,
    ) -> "VectorPreview":
        """Return what `private` would do with these arguments: variant, errors and size. It spends nothing.

        Where 5 % of epsilon would estimate the size of the vector, it is taken to be a million entries: errors hardly
        depend on it.

        >>> seen = SparseVector.preview(neighbours="one_entry", dimension="text", epsilon=1.0, delta=1e-6)
        >>> seen.variant, round(seen.expected_error(0), 1), round(seen.bits_per_entry)
        ('retrieval', 0.5, 48)
        """
        return preview_vector(VectorRequest.of(locals()))

    @classmethod
    def _of(
        cls, keys: pa.Array, values: Floats, words: Words, mechanism: Mechanism, notes: VectorNotes, *, unsafe: bool
    ) -> Self:
        """Return the vector with these listed entries and cells."""
        return cls(
            pa.table([keys, pa.array(values, pa.float64())], names=[_name(notes.dimension), "value"]),
            mechanism,
            cells=pa.table([pa.array(words)], schema=_CELLS),
            unsafe_to_publish=unsafe,
            notes=notes,
        )

    def get(self, indices: Any) -> Floats:
        """Return an estimate for each index or key, in their order; absent entries have estimates near 0.

        `indices` are whole numbers below the dimension, or keys of its kind; repeated ones are allowed.
        """
        items = read_items(indices, self.notes.dimension, "indices")
        if self.embedding is None:
            return self.with_listed(items, np.zeros(len(items)))
        return self.with_listed(items, self.embedding.get(self.words, digest_items(items, self.words[:KEY_WORDS])))

    def with_listed(self, items: pa.Array, estimates: Floats) -> Floats:
        """Return estimates, replaced by the listed value for each item that is listed by name."""
        if not len(self):
            return estimates
        rows = pc.fill_null(pc.index_in(items, self.table.column(0).combine_chunks()), -1).to_numpy()
        return np.where(rows >= 0, self.table.column(1).to_numpy()[rows], estimates)

    def errors(self, value: float = 0.0) -> Errors:
        """Return the distribution of estimate - value for an entry of this value, 0 for an absent one.

        It is computed from public numbers, for as many entries as promised, where all others have the largest value.
        Most data has smaller errors; levels can have larger ones if other values are spread over a wide range.
        """
        return Recipe(self._list, self.embedding).errors(value)

    def expected_error(self, value: float = 0.0) -> float:
        """Return the mean of |estimate - value|; see `errors`."""
        return self.errors(value).mean

    def error_bound(self, level: float = 0.95, value: float = 0.0) -> float:
        """Return the least b with P[|estimate - value| <= b] >= level; see `errors`."""
        return self.errors(value).bound(level)

    @property
    def bits(self) -> int:
        """The number of bits of listed entries and cells, without names and headers."""
        return 64 * (len(self.words) + 2 * len(self))

    def to_bytes(self) -> bytes:
        """Return a portable form: sizes, a record, listed keys and values, cells, a digest."""
        self.check()
        record = json.dumps(self._record(), sort_keys=True, allow_nan=False).encode()
        sizes = np.array([len(record), len(self), len(self.words)], "<u8").tobytes()
        names, values = self.table.column(0).combine_chunks(), self.table.column(1).to_numpy().astype("<f8").tobytes()
        kind = _kind(self.notes.dimension)
        keys = names.to_numpy().astype("<u8").tobytes() if kind is None else keys_to_bytes(kind, names)
        body = b"".join([_NAME, bytes([_FORMAT]), sizes, record, keys, values, self.words.astype("<u8").tobytes()])
        return sealed(body, "this vector is too long to be saved in 64 GB. Use fewer bits.", _MOST_BYTES)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the vector that `to_bytes` saved; raise for anything else."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType("data must be bytes. Pass what to_bytes returned.", argument="data")
        try:
            return cls._read(ByteReader(data, _NAME, _FORMAT, "sparse vector", _MOST_BYTES))
        except (DpsieveError, pa.ArrowException, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            raise CorruptRelease("data is no whole sparse vector. Pass all the bytes that to_bytes returned.") from None

    @classmethod
    def _read(cls, reader: ByteReader) -> Self:
        size, rows, words = reader.words(3)
        record = json.loads(bytes(reader.take(size)))
        notes = decode_fields(VectorNotes, record["notes"])
        kind = _kind(notes.dimension)
        keys = pa.array(_words(reader, rows)) if kind is None else reader.keys(kind, rows)
        values = np.frombuffer(reader.take(8 * rows), "<f8").astype(float)
        cells = _words(reader, words)
        reader.end()
        mechanism = from_json(record["mechanism"])
        vector = cls._of(keys, values, cells, mechanism, notes, unsafe=record["unsafe_to_publish"])
        vector.check()
        if json.dumps(record, sort_keys=True) != json.dumps(vector._record(), sort_keys=True):
            raise ValueError
        return vector

    def check(self) -> None:
        kind = column_type(self.notes.dimension)
        if self.table.column_names != [_name(self.notes.dimension), "value"] or self.cells.schema != _CELLS:
            raise InvalidValue(f"tables have other columns than a sparse vector. {_FIX}")
        if self.table.schema.types != [kind, pa.float64()] or self.cells.column(0).null_count:
            raise InvalidValue(f"tables have other types than a sparse vector. {_FIX}")
        if any(getattr(part, "dimension", self.notes.dimension) != self.notes.dimension for part in self._parts):
            raise InvalidValue(f"notes have another dimension than the mechanism. {_FIX}")
        wanted = 0 if self.embedding is None else self.embedding.words
        if self.cells.num_rows != wanted or (len(self) and self._list is None):
            raise InvalidValue(f"tables have other sizes than the mechanism makes. {_FIX}")
        if len(self):
            if self.notes.dimension == "any":
                raise InvalidValue(f"table names keys that no table holds. {_FIX}")
            read_items(self.table.column(0).combine_chunks(), self.notes.dimension, "table")
            order = pc.sort_indices(self.table.column(0)).to_numpy().astype(np.int64)
            distinct = len(pc.unique(self.table.column(0))) == len(self)
            if self.table.column(1).null_count or not distinct or not (np.diff(order) > 0).all():
                raise InvalidValue(f"table is not sorted by index, or holds one more than once. {_FIX}")
            if self._list is None or not self._list.possible(self.table.column(1).to_numpy()):
                raise InvalidValue(f"table holds values that the mechanism cannot publish. {_FIX}")

    def __bool__(self) -> bool:
        return True  # also without listed entries

    def __repr__(self) -> str:
        last = self.embedding or self._list
        warning = f" {UNSAFE}" if self.unsafe_to_publish else ""
        name = "" if last is None else f", {last.name.replace('_', ' ')}"
        return f"<SparseVector{name}, {self.bits // 8:,} bytes: {self.guarantee}{warning}>"

    @cached_property
    def words(self) -> Words:
        """The words of the cells: the key of the hash, then packed bits."""
        return np.ascontiguousarray(self.cells.column(0).to_numpy())

    @cached_property
    def _parts(self) -> list[Mechanism]:
        return [use.mechanism for use in self.mechanism.uses]

    @cached_property
    def embedding(self) -> Embedding | None:
        """The mechanism of the cells; None where entries are only listed by name."""
        return next((part for part in self._parts if isinstance(part, Embedding)), None)

    @cached_property
    def _list(self) -> EntryList | None:
        return next((part for part in self._parts if isinstance(part, EntryList)), None)


def release_vector(
    request: VectorRequest, indices: Any, values: Any, *, ledger: AnyLedger, note: str, source: Source | None
) -> SparseVector:
    """Check, charge and draw the requested vector."""
    from dpsieve.jobs.run import Plan, run

    planned = request.recipe(None if request.size is None else REFERENCE)  # raises before anything is charged
    cost: Mechanism | Guarantee = request.mechanism(planned) if request.size is None else request.guarantee
    invented = _entries([_SOME.get(str(request.dimension), 0)], [1], request)
    plan = Plan(
        cost,
        lambda _: _entries(indices, values, request),
        lambda entries, source: _draw(request, planned, *entries, source),
        lambda _, source: _draw(request, planned, *invented, source),
    )
    return run(plan, ledger=ledger, note=note, source=source)


def _draw(
    request: VectorRequest, planned: Recipe, items: pa.Array, numbers: Ints | Floats, source: Source
) -> SparseVector:
    """Draw the vector; the budget is charged."""
    size, recipe = request.size, planned
    if size is not None:
        recipe = request.recipe(size.draw(np.clip(numbers, -request.counted, request.counted), source))
    listed = pa.array([], column_type(request.dimension)), np.empty(0)  # no slice, which keeps its parent
    if recipe.entry_list is not None:
        listed = recipe.entry_list.draw(items, numbers, source)
    words: Words = np.empty(0, np.uint64)
    if recipe.embedding is not None:
        key = source.words(KEY_WORDS)
        kind = np.int64 if recipe.embedding.neighbours == "one_entry" else np.float64
        words = recipe.embedding.draw(digest_items(items, key), numbers.astype(kind, copy=False), source, key)
    notes = VectorNotes(request.unit, recipe.reason, request.dimension)
    return SparseVector._of(*listed, words, request.mechanism(recipe), notes, unsafe=not source.publishable)


def _entries(indices: Any, values: Any, request: VectorRequest) -> tuple[pa.Array, Ints | Floats]:
    """Return the indices and values of the entries that are not 0, checked."""
    items = read_items(refuse_set(indices), request.dimension, "indices")
    hint = "Pass one finite number for each index."
    numbers = _numbers(validate.listed(refuse_set(values)), hint)
    if numbers.ndim != 1 or len(numbers) != len(items):
        raise InvalidValue(f"values has another length than indices. {hint}")
    if len(pc.unique(items)) != len(items):
        raise InvalidValue("indices holds one more than once. Add up the values of equal indices first.")
    most = min(request.max_value or _LARGEST, _LARGEST)  # up to 2^53 whole numbers are floats too
    bounded = np.clip(numbers, -most if request.signed else 0, most)
    rounded = np.floor(bounded).astype(np.int64) if request.neighbours == "one_entry" else bounded.astype(np.float64)
    rows = np.flatnonzero(rounded)
    return (items, rounded) if len(rows) == len(rounded) else (items.take(pa.array(rows)), rounded[rows])


def _numbers(values: Any, hint: str) -> Ints | Floats:
    """Return values as 64-bit whole numbers, clipped to the largest supported one, or as floats."""
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


def _kind(dimension: Dimension) -> Kind | None:
    """Return the kind of keys as they are saved; None for indices."""
    return None if isinstance(dimension, int) else "bytes" if dimension == "any" else dimension


def _words(reader: ByteReader, count: int) -> Words:
    return np.frombuffer(reader.take(8 * count), "<u8").astype(np.uint64)
