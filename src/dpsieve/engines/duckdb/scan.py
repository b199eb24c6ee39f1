"""Data as a table of a FROM clause on a DuckDB connection."""

import glob
import secrets
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpsieve.engines.engine import Columns
from dpsieve.engines.inputs.files import DataStream, Files, Header, common_header, field_names
from dpsieve.engines.inputs.frames import Foreign, Frame, Source
from dpsieve.engines.sql.columns import Column, literal, quoted
from dpsieve.errors import UnreadableData
from dpsieve.values.columns import ESCAPE, ESCAPED, in_utf8

# On a user's connection there may be a table or view of any name that can be foreseen.
VIEW, KNOWN = (f"dpsieve_{what}_{secrets.token_hex(8)}" for what in ("data", "known"))
# Otherwise a folder named unit=7 would take the place of the column 'unit' in its files.
_NO_FOLDERS = "hive_partitioning = false"
_READ: "weakref.WeakSet[pa.RecordBatchReader]" = weakref.WeakSet()


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


def columns_of(source: Source, connection: Any, folder: Path) -> list[Column]:
    """Return all columns, from the schema alone. Streams are stored in the folder, if need be."""
    if isinstance(source, Foreign):
        return _describe(source.relation, _ForeignColumn)
    if isinstance(source, Frame):
        connection.register(VIEW, source.schema().empty_table())
        return _describe(connection.table(VIEW))
    if isinstance(source, DataStream):
        if source.kind == "csv":
            return _text_columns(source.header().names)
        source = source.store(folder)
    if source.kind == "parquet":
        return _describe(connection.sql(f"SELECT * FROM {_parquet(source)}"))
    if source.kind == "csv":
        return _text_columns(common_header(source)[0].names)
    return _text_columns(field_names(source))


def scan_of(source: Source, wanted: Columns, connection: Any, folder: Path) -> Scan:
    """Return the scan of the wanted columns; raise when one of them is not there. Streams are stored in the folder."""
    if isinstance(source, Foreign):
        return _scan_table(_describe(source.relation, _ForeignColumn), VIEW, wanted)
    if isinstance(source, Frame):
        return _frame(source, wanted, connection)
    if isinstance(source, DataStream):
        if source.kind == "csv":  # before a long stream is stored
            wanted.check_present(source.header().names, listed=False)
        source = source.store(folder)
    if source.kind == "parquet":
        scan = _scan_table(columns_of(source, connection, folder), _parquet(source), wanted)
        counts = f"SELECT CAST(sum(num_rows) AS BIGINT) FROM parquet_file_metadata({_listed(list(shown_as(source)))})"
        ((rows,),) = connection.execute(counts).fetchall()
        return replace(scan, shown=shown_as(source), rows=rows)
    if source.kind == "csv":
        header, paths = common_header(source)
        wanted.check_present(header.names, listed=False)
        return _csv(header, shown_as(replace(source, paths=tuple(paths))), wanted)
    wanted.check_present(field_names(source), listed=False)
    return _json(source, wanted)


def ask(source: Source, connection: Any, text: str) -> pa.Table:
    """Run a query over the scan of a source."""
    relation = source.relation.query(VIEW, text) if isinstance(source, Foreign) else connection.sql(text)
    return relation.to_arrow_table()


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


def _describe(relation: Any, kind: type[Column] = Column) -> list[Column]:
    return [
        kind(name, quoted(name), str(type_), kind is _ForeignColumn)
        for name, type_ in zip(relation.columns, relation.types, strict=True)
    ]


def _text_columns(names: tuple[str, ...] | list[str]) -> list[Column]:
    return [Column(name, quoted(name), "VARCHAR") for name in names]


def _scan_table(columns: list[Column], text: str, wanted: Columns) -> Scan:
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


def _listed(paths: list[Path]) -> str:
    """Return a list of names that are no patterns, whatever they hold."""
    return f"[{', '.join(literal(glob.escape(str(path))) for path in paths)}]"
