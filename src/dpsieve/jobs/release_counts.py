"""Counts made elsewhere: streamed through a mechanism in constant memory, and written as they are drawn."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.engines.engine import Columns
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.mechanisms import choose_mechanism
from dpsieve.jobs.request import CountsRequest, Method
from dpsieve.jobs.run import charge, open_ledger
from dpsieve.locks import private_folder
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.files import CONTENT, NOT_WRITTEN, Reserved
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release
from dpsieve.publication.streamed import ReportedRows, StreamedRelease
from dpsieve.randomness.source import Source, resolve
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Ints
from dpsieve.values.columns import one_chunk, without_views
from dpsieve.values.keys import declared, key_table, refuse_equal

_ROWS = _SEARCH_ALL = 1 << 17  # drawn at a time; searched for equal keys
_ACCEPTED = "Pass Arrow record batches or tables with the columns of the key and a count, one after another."


def release_counts(
    batches: Iterable[Any],
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    out: str | os.PathLike[str],
    count: str = "count",
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int = 1,
    max_rows_per_key: int = 1,
    min_units: int = 1,
    scheme: Scheme | None = None,
    method: Method = "auto",
    keys_only: bool = False,
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> Release:
    """Release keys and true counts that were made elsewhere, in constant memory, to a new folder.

    The counts are taken at your word: that each key comes once, and that one privacy unit, added or removed, changes at
    most `max_keys_per_unit` counts, each by at most `max_rows_per_key`. Where that is not so, the guarantee is wrong.
    Keys that come twice are refused where that is noticed: in the first batch, in the first 131,072 rows, or reported.

    Rows with a null key or a count of 0 are left out. Counts that are null or negative, or another type of a key than
    in the first batch, stop the release. Nothing is published then, or when `batches` raises an error. The first batch
    is checked before the ledger is charged; what is found later does not give back what was spent, as tokens were
    drawn, and the error says so.

    Args:
        batches: a record batch reader, or any iterable of Arrow record batches or tables.
        key: the column to publish, or several.
        epsilon, delta: the budget of this release.
        out: the new folder that the release is written to, whole or not at all.
        count: the column with the true counts, whole numbers.
        privacy_unit: who is protected, as the guarantee calls it; the batches need no such column.
        max_keys_per_unit, max_rows_per_key: what the counts were bounded to.
        min_units: never publish a key whose count is one that fewer units can make.
        keys_only: publish the keys without counts.
        scheme, method, ledger, note, source: see `dpsieve.release`.

    Returns the release, whose rows are read from the folder when they are first asked for.

    >>> import tempfile, pyarrow as pa
    >>> batches = (pa.record_batch({"drink": [name], "count": [900]}) for name in ("tea", "mate"))
    >>> place = tempfile.mkdtemp() + "/published"
    >>> made = release_counts(batches, key="drink", epsilon=1.0, delta=1e-8, privacy_unit="user", out=place)
    >>> made.table.column("drink").to_pylist()
    ['mate', 'tea']
    """
    request = CountsRequest.of(locals())
    choice = choose_mechanism(request, request.contribution, scheme=request.scheme, keys_only=request.keys_only)
    notes, source = Notes(str(request.contribution), choice.reason), resolve(source)
    release = StreamedRelease(choice.mechanism, notes, not source.publishable)
    last: Any = choice.mechanism.last
    book = open_ledger(ledger, note)
    if book is not None:
        book.check(choice.mechanism, note)
    with Reserved(out, "out") as place, private_folder() as folder:
        if place.target.suffix.lower() in (*CONTENT, *NOT_WRITTEN):
            raise InvalidValue("out ends like a file, and a folder is written. Pass a name such as out='published'.")
        counts = _Counts(batches, request.key, count)
        rows = ReportedRows(folder, counts.schema)
        try:
            one = np.ones(1, np.int64)
            with charge(choice.mechanism, book, note, lambda: last.draw(one, source=resolve(None))) as entry:
                for keys, numbers in counts:
                    tokens = last.draw(numbers, source=source).tokens
                    reported = np.flatnonzero(tokens)
                    rows.add(keys.take(pa.array(reported)), tokens[reported])
                release.write(place, rows, keys_only=request.keys_only, entry=entry)
        finally:
            rows.close()
    return release


class _Counts:
    """Keys and counts of batches, checked, the first one with rows at once; `schema` has the types of the keys."""

    def __init__(self, batches: Any, key: tuple[str, ...], count: str) -> None:
        hint = "Name the column with the true counts."
        if validate.text("count", count, hint=hint) in key:
            raise InvalidValue(f"count={count!r} is a column of the key. {hint}")
        self._key, self._count = key, count
        self._batches = _iterated(batches)
        first = next(self._batches, None)
        texts = pa.schema([(name, pa.string()) for name in key])
        self.schema = texts if first is None else self._read(first.slice(0, 0))[0].schema
        if isinstance(batches, pa.Table | pa.RecordBatchReader):  # other iterables may have no batch without a row
            self.schema = declared(self.schema.empty_table()).schema
        while first is not None and not len(first):
            first = next(self._batches, None)
        self._first = [] if first is None else list(self._parts(first))
        if self._first:
            refuse_equal(pa.concat_tables([keys for keys, _ in self._first]), "batches")

    def __iter__(self) -> Iterator[tuple[pa.Table, Ints]]:
        """Yield some rows at a time, those with a count and without a null in the key."""
        early: list[pa.Table] | None = []
        first, self._first = self._first, []
        for keys, numbers in chain(first, chain.from_iterable(map(self._parts, self._batches))):
            yield keys, numbers
            if early is not None:
                early.append(keys)
                if sum(map(len, early)) > _SEARCH_ALL:
                    refuse_equal(pa.concat_tables(early), "batches")
                    early = None
        if early:
            refuse_equal(pa.concat_tables(early), "batches")

    def _parts(self, batch: pa.Table) -> Iterator[tuple[pa.Table, Ints]]:
        for start in range(0, len(batch), _ROWS):
            keys, numbers = self._read(batch.slice(start, _ROWS))
            if not keys.schema.equals(self.schema):
                raise InvalidType("batches have a key of another type than the first one. Cast it to one type.")
            yield keys, numbers

    def _read(self, batch: pa.Table) -> tuple[pa.Table, Ints]:
        Columns(self._key).check_present([name for name in batch.column_names if name != self._count], listed=True)
        _CountColumn((self._count,)).check_present(batch.column_names, listed=True)
        counts = without_views(one_chunk(batch.column(self._count)))
        if not pa.types.is_integer(counts.type):
            raise InvalidType(f"count={self._count!r} has no whole numbers. Cast it to int64.")
        if counts.null_count:
            raise InvalidValue(f"count={self._count!r} holds nulls. Leave such rows out.")
        numbers = counts.cast(pa.int64(), safe=False).to_numpy()
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() <= LARGEST_FREQUENCY:  # above 2^63 is below 0
            raise InvalidValue(f"count={self._count!r} holds a number below 0 or above 10^12. Pass true counts.")
        keys = batch.select(list(self._key))
        kept = numbers > 0
        for column in keys.columns:
            kept &= column.is_valid().to_numpy()
        if not kept.all():
            places = pa.array(np.flatnonzero(kept))
            keys, numbers = keys.take(places), numbers[kept]
        return key_table(keys), numbers


class _CountColumn(Columns):
    argument = "count"


def _iterated(batches: Any) -> Iterator[pa.Table]:
    """Yield batches as tables; a reader tells its schema even where it has none."""
    if isinstance(batches, pa.RecordBatch | pa.Table):
        batches = [batches]
    elif hasattr(batches, "__arrow_c_stream__"):
        batches = pa.RecordBatchReader.from_stream(batches)
    if isinstance(batches, pa.RecordBatchReader):
        yield batches.schema.empty_table()
    if not isinstance(batches, Iterable) or isinstance(batches, str | bytes):
        raise InvalidType(f"batches must be an iterable of Arrow batches, not {type(batches).__name__}. {_ACCEPTED}")
    for batch in batches:
        if isinstance(batch, pa.RecordBatch):
            yield pa.Table.from_batches([batch])
        elif hasattr(batch, "__arrow_c_stream__"):
            yield pa.table(batch)
        else:
            raise InvalidType(f"batches holds a {type(batch).__name__}. {_ACCEPTED}")
