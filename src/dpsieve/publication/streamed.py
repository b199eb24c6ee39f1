"""Releases that are written to disk while they are drawn, in bounded memory.

Rows are written as they are reported, in the order of the input; they are public. At the end DuckDB sorts them by key,
on disk where necessary, and they are written to the folder of the release. So memory is bounded by batches, not by
keys.
"""

import glob
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dpsieve.errors import InvalidType
from dpsieve.privacy.mechanism import Counting
from dpsieve.publication.files import MAIN, Reserved, write
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, with_counts
from dpsieve.types import Ints
from dpsieve.values.columns import tried
from dpsieve.values.keys import is_sorted, published, refuse_equal

_MEMORY = "384MB"  # for the sort
_ROWS = 1 << 17  # written at a time


class StreamedRelease(Release):
    """A release in a folder, whose rows are loaded and checked on first use."""

    def __init__(self, mechanism: Counting, notes: Notes, unsafe_to_publish: bool) -> None:
        self.__dict__.update(mechanism=mechanism, drawn={}, notes=notes, unsafe_to_publish=unsafe_to_publish, rows=0)
        self.__post_init__()
        self.whole_record()  # raises if it could not be saved

    def write(self, place: Reserved, rows: "ReportedRows", *, keys_only: bool, entry: int | None) -> None:
        """Write drawn rows to a reserved folder; `entry` is the number of the ledger entry."""
        file, count = rows.written(self.mechanism, keys_only=keys_only)
        self.__dict__.update(rows=count, folder=place.target, notes=replace(self.notes, entry=entry))
        write(place, self.whole_record(), {MAIN: file})

    def __len__(self) -> int:
        return int(self.__dict__["rows"])

    @cached_property
    def _loaded(self) -> Release:
        return Release.load(self.__dict__["folder"])

    @cached_property
    def table(self) -> pa.Table:
        """The rows, all in memory."""
        return self._loaded.table

    @cached_property
    def tokens(self) -> Ints | None:
        """What the mechanism drew for each row."""
        return self._loaded.tokens


class ReportedRows:
    """Rows that were reported, on disk in a private folder; `schema` has the types of their keys."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._path, self._folder, self._keys = folder / "reported.parquet", folder, schema
        self._inner = pa.schema([(f"k{i}", kind) for i, kind in enumerate(schema.types)] + [("token", pa.int64())])
        self._waiting: list[pa.Table] = []
        _, failure = tried(self._try_types)
        if failure is not None:
            raise InvalidType(f"key has a type that cannot be sorted on disk ({failure.__name__}). Turn it into text.")
        self._writer = pq.ParquetWriter(self._path, self._inner)

    def _try_types(self) -> None:
        pq.write_table(self._inner.empty_table(), self._path)
        list(self._sorted(self._path))

    def add(self, keys: pa.Table, tokens: Ints) -> None:
        """Add rows."""
        self._waiting.append(pa.table([*keys.columns, pa.array(tokens)], schema=self._inner))
        if sum(map(len, self._waiting)) >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.concat_tables([self._inner.empty_table(), *self._waiting]), row_group_size=_ROWS)
        self._waiting = []

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def written(self, mechanism: Counting, *, keys_only: bool) -> tuple[Path, int]:
        """Write the table of a release, sorted by key; return its file, and how many rows it has."""
        self._flush()
        self.close()
        target, rows, last = self._folder / "sorted.parquet", 0, self._keys.empty_table()
        names, writer = self._keys.names, None
        for part in self._sorted(self._path):
            keys = pa.table(part.columns[:-1], names=names)
            last = _in_order(last, keys)
            whole = keys if keys_only else _whole(mechanism, keys, part.column("token").to_numpy())
            writer = _append(writer, target, whole)
            rows += len(keys)
        if writer is None:
            none = published(self._keys.empty_table())
            writer = _append(None, target, none if keys_only else _whole(mechanism, none, np.empty(0, np.int64)))
        writer.close()
        return target, rows

    def _sorted(self, path: Path) -> Iterator[pa.Table]:
        """Yield all rows of a file sorted by key, in the types that they came with."""
        settings: dict[str, Any] = {"memory_limit": _MEMORY, "temp_directory": str(self._folder)}
        target = path.with_suffix(".sorted")
        with duckdb.connect(":memory:", config=settings) as connection:
            # A reader in place of a file would hold all rows.
            rows = connection.read_parquet(glob.escape(str(path))).order(", ".join(self._inner.names[:-1]))
            rows.write_parquet(str(target), row_group_size=_ROWS, compression="snappy")
        with pq.ParquetFile(target, pre_buffer=False) as file:  # otherwise it keeps what it has read
            file.schema_arrow.empty_table().cast(self._inner)  # raises if a type is not restored
            for batch in file.iter_batches(_ROWS):
                yield pa.Table.from_batches([batch]).cast(self._inner)


def _whole(mechanism: Counting, keys: pa.Table, tokens: Ints) -> pa.Table:
    """Return the rows as they are saved."""
    return with_counts(mechanism, {}, keys, tokens).append_column("token", pa.array(tokens))


def _append(writer: Any, target: Path, table: pa.Table) -> Any:
    writer = pq.ParquetWriter(target, table.schema) if writer is None else writer
    writer.write_table(table)
    return writer


def _in_order(last: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the last of these rows; raise if a key is repeated, or rows are not in order."""
    joined = pa.concat_tables([last, keys])
    refuse_equal(joined, "batches")
    if not is_sorted(joined):
        raise InvalidType("key has a type that is sorted in two ways. Turn it into text.")
    return keys.slice(max(0, len(keys) - 1))
