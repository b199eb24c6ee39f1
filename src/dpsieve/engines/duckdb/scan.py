"""Data, and public lists of keys, as tables of a FROM clause on a DuckDB connection."""

import glob
import secrets
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsieve.engines.engine import Columns
from dpsieve.engines.inputs.files import DataStream, Files, Header, header_of, json_fields
from dpsieve.engines.inputs.frames import Foreign, Frame, Source
from dpsieve.engines.sql.bounded_query import Column, literal, quoted
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.values.columns import ESCAPE, ESCAPED, in_utf8, is_interrupt

# On a user's connection there may be a table or view of any name that can be foreseen.
VIEW, KNOWN = (f"dpsieve_{what}_{secrets.token_hex(8)}" for what in ("data", "known"))
# Otherwise a folder named unit=7 would take the place of the column 'unit' in its files.
_NO_FOLDERS = "hive_partitioning = false"
_READ: "weakref.WeakSet[pa.RecordBatchReader]" = weakref.WeakSet()
_EMPTY = "is empty, so it has no columns. Pass a file with a header or a row."


@dataclass(frozen=True)
class Scan:
    """The text of the table, its columns by name, the files behind it as the user knows them, and its size.

    `rows` is how many rows it has, where that is known without reading them and they can be read again, and `table` has
    them where they are in memory.
    """

    text: str
    columns: dict[str, Column]
    shown: Mapping[Path, str] = field(default_factory=dict)
    rows: int | None = None
    table: pa.Table | None = None


def is_text(source: object) -> bool:
    """Tell whether what stands for the names of columns may be a first row of data."""
    return isinstance(source, DataStream | Files) and source.kind != "parquet"


def columns_of(source: Source, connection: Any, folder: Path) -> list[Column]:
    """Return all columns, from the schema alone. Streams are stored in the folder, if need be."""
    if isinstance(source, Foreign):
        return _described(source.relation, _ForeignColumn)
    if isinstance(source, Frame):
        connection.register(VIEW, source.schema().empty_table())
        return _described(connection.table(VIEW))
    if isinstance(source, DataStream):
        if source.kind == "csv":
            return _text_columns(_some(source.header(), source.name).names)
        source = source.stored(folder)
    if source.kind == "parquet":
        return _described(connection.sql(f"SELECT * FROM {_parquet(source)}"))
    if source.kind == "csv":
        return _text_columns(headers_of(source)[0].names)
    return _text_columns(fields_of(source))


def scan_of(source: Source, wanted: Columns, connection: Any, folder: Path) -> Scan:
    """Return the scan of the wanted columns; raise when one of them is not there. Streams are stored in the folder."""
    if isinstance(source, Foreign):
        return _whole(_described(source.relation, _ForeignColumn), VIEW, wanted)
    if isinstance(source, Frame):
        return _frame(source, wanted, connection)
    if isinstance(source, DataStream):
        if source.kind == "csv":  # before a long stream is stored
            wanted.check_present(_some(source.header(), source.name).names, listed=False)
        source = source.stored(folder)
    if source.kind == "parquet":
        scan = _whole(columns_of(source, connection, folder), _parquet(source), wanted)
        counts = f"SELECT CAST(sum(num_rows) AS BIGINT) FROM parquet_file_metadata({_listed(list(shown_as(source)))})"
        ((rows,),) = connection.execute(counts).fetchall()
        return replace(scan, shown=shown_as(source), rows=rows)
    if source.kind == "csv":
        header, paths = headers_of(source)
        wanted.check_present(header.names, listed=False)
        return _csv(header, shown_as(replace(source, paths=tuple(paths))), wanted)
    wanted.check_present(fields_of(source), listed=False)
    return _json(source, wanted)


def ask(source: Source, connection: Any, text: str) -> pa.Table:
    """Run a query over the scan of a source."""
    made = source.relation.query(VIEW, text) if isinstance(source, Foreign) else connection.sql(text)
    return made.to_arrow_table()


def shown_as(source: object) -> dict[Path, str]:
    """Return the files of a source, by the path that DuckDB gets, under the names that the user knows."""
    if not isinstance(source, Files):
        return {}
    return {path.absolute(): source.name or repr(str(path)) for path in source.paths}


class _ForeignColumn(Column):
    """A column of a user's database, whose texts may be under a collation, and may not be UTF-8 (see `in_utf8`).

    DuckDB takes texts from Arrow as they are; in a sort, one with the byte FF is then equal to another one.
    """

    @property
    def as_key(self) -> str:
        return super().as_key if self.kind != "VARCHAR" else f'{self._in_utf8} COLLATE "C"'

    @property
    def as_unit(self) -> str:
        return super().as_unit if self.kind != "VARCHAR" else self._in_utf8

    @property
    def _in_utf8(self) -> str:
        raw = f"system.main.encode({self.sql})"
        valid = f"TRY(system.main.decode({raw})) IS NOT NULL"
        usual = f"{valid} AND NOT system.main.starts_with({self.sql}, {literal(ESCAPE)})"
        odd = f"{valid} AND NOT system.main.regexp_full_match({self.sql}, {literal(ESCAPED)})"
        escaped = f"system.main.concat({literal(ESCAPE)}, system.main.hex({raw}))"
        return f"CASE WHEN {self.sql} IS NULL OR ({usual}) OR ({odd}) THEN {self.sql} ELSE {escaped} END"


def _described(relation: Any, kind: type[Column] = Column) -> list[Column]:
    return [
        kind(name, quoted(name), str(type_), kind is _ForeignColumn)
        for name, type_ in zip(relation.columns, relation.types, strict=True)
    ]


def _text_columns(names: tuple[str, ...] | list[str]) -> list[Column]:
    return [Column(name, quoted(name), "VARCHAR") for name in names]


def _whole(columns: list[Column], text: str, wanted: Columns) -> Scan:
    """Return the scan of a table whose columns are read under their own names."""
    wanted.check_present([column.name for column in columns], listed=True)
    return Scan(text, {column.name: column for column in columns})


def _frame(source: Frame, wanted: Columns, connection: Any) -> Scan:
    wanted.check_present(source.names(), listed=True)
    taken, table = source.take(wanted.names), None
    # DuckDB does not tell names apart that differ in case alone, and cuts them at a NUL.
    plain = [f"c{i}" for i in range(len(wanted.names))]
    if isinstance(taken, pa.Table):
        taken = table = pa.table([in_utf8(taken.column(name)) for name in wanted.names], names=plain)
    else:
        taken = _batches_in_utf8(taken, wanted.names, plain)
    connection.register(VIEW, taken)
    triples = zip(wanted.names, plain, connection.table(VIEW).types, strict=True)
    columns = {name: Column(name, inner, str(type_)) for name, inner, type_ in triples}
    return Scan(VIEW, columns, rows=None if table is None else len(table), table=table)


def _batches_in_utf8(data: Any, names: tuple[str, ...], plain: list[str]) -> pa.RecordBatchReader:
    """Return some columns of a reader or a dataset, under other names, with texts in UTF-8.

    A reader that was read here before is refused: it would seem to have no rows.
    """
    if isinstance(data, pa.RecordBatchReader) and data in _READ:
        raise UnreadableData("data cannot be read: this reader was read already. Pass a new one, or a table.")
    reader = data if isinstance(data, pa.RecordBatchReader) else data.scanner(columns=list(names)).to_reader()
    schema = pa.schema([(inner, reader.schema.field(name).type) for name, inner in zip(names, plain, strict=True)])

    def batches() -> Iterator[pa.RecordBatch]:
        _READ.add(reader)
        for batch in reader:
            yield pa.record_batch([in_utf8(batch.column(name)) for name in names], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _parquet(source: Files) -> str:
    return f"read_parquet({_listed(list(shown_as(source)))}, {_NO_FOLDERS})"


def headers_of(source: Files) -> tuple[Header, list[Path]]:
    """Return the one header of CSV files, and those of them that are not empty."""
    found = {path: header for path in source.paths if (header := header_of(path, source.format)) is not None}
    paths = list(found)
    header = _some(found[paths[0]] if paths else None, source.name or "data")
    for path in paths:
        if found[path] != header:
            hint = "Pass files with the same columns, in the same order."
            raise UnreadableData(f"{str(path)!r} has another header than {str(paths[0])!r}. {hint}")
    return header, paths


def _csv(header: Header, shown: dict[Path, str], wanted: Columns) -> Scan:
    """CSV under inner names, c0 and so on: the names in a header may be anything."""
    types = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(header.names)))
    options = (
        f"auto_detect = false, header = {str(header.in_file).lower()}, delim = {literal(header.separator)}, "
        f"quote = '\"', escape = '\"', columns = {{{types}}}, {_NO_FOLDERS}"
    )
    where = {name: header.names.index(name) for name in wanted.names}
    columns = {name: Column(name, f"c{i}", "VARCHAR") for name, i in where.items()}
    return Scan(f"read_csv({_listed(list(shown))}, {options})", columns, shown)


def _json(source: Files, wanted: Columns) -> Scan:
    types = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in wanted.names)
    options = f"format = 'newline_delimited', columns = {{{types}}}, {_NO_FOLDERS}"
    shown = shown_as(source)
    columns = {column.name: column for column in _text_columns(wanted.names)}
    return Scan(f"read_json({_listed(list(shown))}, {options})", columns, shown)


def fields_of(source: Files) -> list[str]:
    """Return the names of the fields of JSON lines."""
    if all(path.stat().st_size == 0 for path in source.paths):
        raise UnreadableData(f"data {_EMPTY}")
    names = json_fields(source.paths)
    if not names:
        hint = "Pass JSON lines: one object on each line, without a list around them."
        raise UnreadableData(f"data names no field in its first lines. {hint}")
    return names


def _listed(paths: list[Path]) -> str:
    """Return a list of names that are no patterns, whatever they hold."""
    return f"[{', '.join(literal(glob.escape(str(path))) for path in paths)}]"


def _some(found: Any, name: str) -> Any:
    if found is None:
        raise UnreadableData(f"{name} {_EMPTY}")
    return found


def known_keys(known: pa.Table, columns: list[Column]) -> pa.Table:
    """Return the keys as columns k0, k1, ..., written as `Column.as_key` writes the data's, and `i`, their place.

    The list is public, so that what is wrong with it may be told.
    """
    names = [f"k{n}" for n in range(len(columns))]
    if any(column.null_count for column in known.columns):
        raise InvalidValue("known_keys holds nulls. Leave them out: rows with a null key are not counted.")
    cast = ", ".join(f"CAST({k} AS {_kind(column)}) AS {k}" for k, column in zip(names, columns, strict=True))
    inner = [Column(column.name, k, column.type) for k, column in zip(names, columns, strict=True)]
    keys = ", ".join(f"{column.as_key} AS {column.sql}" for column in inner)
    rounded = " OR ".join(
        f"CAST(CAST({k} AS {_kind(column)}) AS DOUBLE) <> {k}"
        for k, column, given in zip(names, columns, known.columns, strict=True)
        if pa.types.is_floating(given.type) and column.kind not in ("FLOAT", "DOUBLE")
    )
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as connection:
        places = pa.array(range(len(known)), pa.int64())
        connection.register(KNOWN, known.rename_columns(names).append_column("i", places))
        try:
            text = f"SELECT {keys}, i FROM (SELECT {cast}, i FROM {KNOWN}) ORDER BY i ASC"
            table = connection.sql(text).to_arrow_table()
            if rounded and connection.sql(f"SELECT 1 FROM {KNOWN} WHERE {rounded} LIMIT 1").fetchall():
                table = None
        except (duckdb.Error, RuntimeError) as error:
            if is_interrupt(error):
                raise KeyboardInterrupt from None
            table = None
        if table is None:
            types = ", ".join(f"{column.name!r}: {_kind(column)}" for column in columns)
            raise InvalidType(f"known_keys do not all fit the types of the key columns ({types}). Pass keys of these.")
        connection.register(KNOWN, table)
        (distinct,) = connection.sql(
            f"SELECT count(*) FROM (SELECT DISTINCT {', '.join(names)} FROM {KNOWN})"
        ).fetchall()[0]
    if distinct != len(table):
        raise InvalidValue("known_keys holds a key more than once, as the data writes it. Pass each key once.")
    return table


def _kind(column: Column) -> str:
    """Return the type to read a key as; the values of an ENUM are data, so its keys are text."""
    return "VARCHAR" if column.kind in ("ENUM", "JSON", '"NULL"', "NULL") else column.type
