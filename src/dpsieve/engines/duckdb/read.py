"""Read data on a DuckDB connection: data as a table of a FROM clause, the questions about it, and errors.

DuckDB's own messages quote rows, so nothing of them is passed on except line numbers.
"""

import contextlib
import errno
import glob
import re
import secrets
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from dpsieve.engines.answers import check_units, decode_counts, decode_pairs, null_units, translate_errors
from dpsieve.engines.engine import Aggregation, Columns
from dpsieve.engines.inputs.files import DataStream, Files, Header, common_header, field_names
from dpsieve.engines.inputs.frames import Foreign, Frame, Source
from dpsieve.engines.sql.columns import Column, call, literal, quoted
from dpsieve.engines.sql.queries import bounded_query, number_query, pairs_query, places_query
from dpsieve.engines.sql.totals import amount_names
from dpsieve.engines.true_data import Counted, NumberRows, Pairs, units_by_place
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, UnreadableData
from dpsieve.types import Ints
from dpsieve.values.columns import ESCAPE, ESCAPED, as_numpy, in_utf8, is_interrupt, tried

# No table or view of a user's connection can have these names.
VIEW, KNOWN = (f"dpsieve_{what}_{secrets.token_hex(8)}" for what in ("data", "known"))
# Otherwise a folder named unit=7 would replace the column 'unit' of its files.
_NO_FOLDERS = "hive_partitioning = false"
_READ: "weakref.WeakSet[pa.RecordBatchReader]" = weakref.WeakSet()
_PLACES = "dpsieve_places"
_MANY_GROUPS = 8  # row groups of a part
_AHEAD, _BAR = "8MB", "SET enable_progress_bar_print = false; SET enable_progress_bar = true"
_T = TypeVar("_T")
# Anchored at the start, before any quoted row: no data can pose as a line number.
_CSV = re.compile(r"\AInvalid Input Error: CSV Error on Line: (\d{1,18})\n")
_JSON = re.compile(r'\AInvalid Input Error: (?:Malformed JSON|JSON transform error) in file "')
_JSON_LINE = re.compile(r'\A", (at byte \d{1,18} )?in line (\d{1,18}):')


@dataclass(frozen=True)
class Scan:
    """Data as a table of a FROM clause.

    Attributes:
        text: the SQL of the table.
        columns: its columns by name.
        shown: the files behind it, by path, under the names that the user passed.
        rows: its number of rows, before a filter, if known without reading them and they can be read again.
        table: the rows, if they are in memory.
        base: the scan whose rows these are made of, if they are filtered or derived.
        of_part: makes of the text of a part of that one the text of a part of this one.
    """

    text: str
    columns: dict[str, Column]
    shown: Mapping[Path, str] = field(default_factory=dict)
    rows: int | None = None
    table: pa.Table | None = None
    base: "Scan | None" = None
    of_part: Callable[[str], str] = str


def describe_columns(source: Source, connection: Any, folder: Path) -> list[Column]:
    """Return all columns, from the schema alone; a stream other than CSV is stored in the folder."""
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


def open_scan(source: Source, wanted: Columns, connection: Any, folder: Path) -> Scan:
    """Return the scan of the wanted columns, and refuse missing ones; streams are stored in the folder."""
    if isinstance(source, Foreign):
        return _scan_table(_describe(source.relation, _ForeignColumn), VIEW, wanted)
    if isinstance(source, Frame):
        return _frame(source, wanted, connection)
    if isinstance(source, DataStream):
        if source.kind == "csv":  # before a long stream is stored
            wanted.check_present(source.header().names, listed=False)
        source = source.store(folder)
    if source.kind == "parquet":
        scan = _scan_table(describe_columns(source, connection, folder), _parquet(source), wanted)
        counts = f"SELECT CAST(sum(num_rows) AS BIGINT) FROM parquet_file_metadata({_listed(list(file_names(source)))})"
        ((rows,),) = connection.execute(counts).fetchall()
        return replace(scan, shown=file_names(source), rows=rows)
    if source.kind == "csv":
        header, paths = common_header(source)
        wanted.check_present(header.names, listed=False)
        return _csv(header, file_names(replace(source, paths=tuple(paths))), wanted)
    wanted.check_present(field_names(source), listed=False)
    return _json(source, wanted)


def file_names(source: object) -> dict[Path, str]:
    """Return the names of the files of a source that the user passed, by the path that DuckDB reads."""
    if not isinstance(source, Files):
        return {}
    return {path.absolute(): source.name or repr(str(path)) for path in source.paths}


class _ForeignColumn(Column):
    """A column of a user's database, whose texts may have a collation, and may not be UTF-8 (see `in_utf8`).

    DuckDB does not validate texts from Arrow; in a sort, one with the byte FF may then equal another one.
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


def _text_columns(names: Iterable[str]) -> list[Column]:
    return [Column(name, quoted(name), "VARCHAR") for name in names]


def _scan_table(columns: list[Column], text: str, wanted: Columns) -> Scan:
    wanted.check_present([column.name for column in columns], listed=True)
    return Scan(text, {column.name: column for column in columns})


def _frame(source: Frame, wanted: Columns, connection: Any) -> Scan:
    wanted.check_present(source.names(), listed=True)
    data, table = source.take(wanted.names), None
    # DuckDB ignores the case of names, and truncates them at a NUL.
    plain = [f"c{i}" for i in range(len(wanted.names))]
    if isinstance(data, pa.Table):
        data = table = pa.table([in_utf8(data.column(name)) for name in wanted.names], names=plain)
    else:
        data = _batches_in_utf8(data, wanted.names, plain)
    connection.register(VIEW, data)
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
    return f"read_parquet({_listed(list(file_names(source)))}, {_NO_FOLDERS})"


def _csv(header: Header, shown: dict[Path, str], wanted: Columns) -> Scan:
    """Return the scan of CSV files, with columns c0, c1, ...: a header may contain any name."""
    types = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(header.names)))
    options = (
        f"auto_detect = false, header = {str(header.in_file).lower()}, delim = {literal(header.separator)}, "
        f"quote = '\"', escape = '\"', columns = {{{types}}}, {_NO_FOLDERS}"
    )
    columns = {name: Column(name, f"c{header.names.index(name)}", "VARCHAR") for name in wanted.names}
    return Scan(f"read_csv({_listed(list(shown))}, {options})", columns, shown)


def _json(source: Files, wanted: Columns) -> Scan:
    types = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in wanted.names)
    options = f"format = 'newline_delimited', columns = {{{types}}}, {_NO_FOLDERS}"
    shown = file_names(source)
    columns = {column.name: column for column in _text_columns(wanted.names)}
    return Scan(f"read_json({_listed(list(shown))}, {options})", columns, shown)


def _listed(paths: list[Path]) -> str:
    """Return a list of paths in SQL, without special characters of patterns."""
    return f"[{', '.join(literal(glob.escape(str(path))) for path in paths)}]"


@dataclass(frozen=True)
class Job:
    """A task, the data on its connection, and the public keys as the data would write them."""

    task: Aggregation
    source: Source
    connection: Any
    scan: Scan
    listed: pa.Table | None

    @property
    def known(self) -> str | None:
        """The text of the table of public keys."""
        if self.listed is None:
            return None
        # Keys are compared by their bytes, also under the default collation of a user's connection.
        texts = [field.name for field in self.listed.schema if pa.types.is_string(field.type)]
        names = [f'{name} COLLATE "C" AS {name}' if name in texts else name for name in self.listed.column_names]
        return f"(SELECT {', '.join(names)} FROM {KNOWN})"

    def ask(self, text: str) -> pa.Table:
        """Run a query over the scan, and refuse null units."""
        source, connection = self.source, self.connection
        relation = source.relation.query(VIEW, text) if isinstance(source, Foreign) else connection.sql(text)
        return check_units(self.task, relation.to_arrow_table())


class Cursors:
    """A connection whose rows are read in parts, each on a cursor of its own, which an interrupt reaches, too."""

    def __init__(self, connection: Any) -> None:
        self.connection, self.parts, self.read, self._open = connection, 1, 0, list[Any]()

    def query_progress(self) -> float:
        """Return the mean of the parts: the number of rows that came here shows how many have a key."""
        shares = [tried(cursor.query_progress)[0] or 0.0 for cursor in list(self._open)]  # None where it was closed
        return (100.0 * self.read + sum(max(0.0, share) for share in shares)) / self.parts

    def interrupt(self) -> None:
        for cursor in [self.connection, *self._open]:
            tried(cursor.interrupt)  # it may be closed

    def stream(self, query: str, tables: Mapping[str, pa.Table], rows: int) -> Generator[pa.RecordBatch, None, None]:
        """Yield the answer to a query about these tables and files, in batches of this number of rows."""
        cursor = self.connection.cursor()
        self._open.append(cursor)
        try:
            with contextlib.suppress(duckdb.Error):  # a notebook without ipywidgets refuses the bar
                cursor.execute(f"SET streaming_buffer_size = '{_AHEAD}'; {_BAR}")
            for name, table in tables.items():
                cursor.register(name, table)
            yield from cursor.sql(query).to_arrow_reader(rows)
        finally:
            self._open.remove(cursor)
            cursor.close()


def split(job: Job, most: int) -> list[tuple[str, dict[str, pa.Table]]]:
    """Return FROM clauses that divide the rows into about this number of parts, each with the tables it is about.

    Every row is in one part, whatever a file says of itself: that has an influence on the sizes of parts alone.
    """
    scan, listed = job.scan.base or job.scan, {} if job.listed is None else {KNOWN: job.listed}
    if scan.table is not None:
        edges = np.linspace(0, len(scan.table), most + 1).astype(np.int64).tolist()
        return [(job.scan.of_part(VIEW), {VIEW: scan.table.slice(a, b - a), **listed}) for a, b in pairwise(edges)]
    conditions, files = ["true"], list(scan.shown)
    if most > 1 and files and not {name.lower() for name in scan.columns} & {"file_index", "file_row_number"}:
        conditions = _between("file_index", [len(files) * i // most for i in range(most)])
        if len(files) < most:
            each = -(-most // len(files))
            rows = [_between("file_row_number", _starts(job.connection, path, each)) for path in files]
            conditions = [f"file_index = {i} AND {text}" for i, texts in enumerate(rows) for text in texts]
    return [(job.scan.of_part(f"(SELECT * FROM {scan.text} WHERE {text})"), listed) for text in conditions]


def _between(name: str, starts: Any) -> list[str]:
    """Return conditions for consecutive ranges that begin at these starts; each number meets exactly one."""
    lower, upper = ([f"{name} {sign} {start}" for start in starts[1:]] for sign in (">=", "<"))
    return [f"{low} AND {high}" for low, high in zip(["true", *lower], [*upper, "true"], strict=True)]


def _starts(connection: Any, path: Path, parts: int) -> Any:
    """Return the first rows of parts of a Parquet file; these are of row groups, which DuckDB reads as a whole."""
    file = _listed([path])
    about = f"SELECT num_rows, num_row_groups FROM parquet_file_metadata({file})"
    ((rows, groups),) = connection.execute(about).fetchall()
    wanted = np.arange(parts) * rows // parts
    if groups > _MANY_GROUPS * parts:  # the question below takes long, and few of them are read twice
        return np.unique(wanted)
    about = f"SELECT row_group_num_rows FROM parquet_metadata({file}) WHERE column_id = 0 ORDER BY row_group_id"
    starts = np.cumsum([0, *(size for (size,) in connection.execute(about).fetchall())])[: max(1, groups)]
    return np.unique(starts[np.searchsorted(starts, wanted).clip(max=len(starts) - 1)])


class Limits(NamedTuple):
    """How many threads compiled loops may use, how many bytes, and the cursors for these threads."""

    threads: int
    memory: int
    cursors: Cursors


def count_by_sql(job: Job) -> Counted:
    """Return keys with their counts or sums of weights."""
    answer = job.ask(bounded_query(job.scan.text, job.scan.columns, job.task, job.known))
    return decode_counts(job.task, job.listed, answer)


def pairs_by_sql(job: Job) -> Pairs:
    """Return the keys of each unit."""
    answer = job.ask(pairs_query(job.scan.text, job.scan.columns, job.task, job.known))
    return decode_pairs(job.task, job.listed, answer)


def keep_places(job: Job) -> Ints:
    """Create a table of the number of units that have each key as their first, second, ... choice; it may be on disk.

    Return the number of units with 0, 1, ... keys; the last one counts all with at least as many as the bound.
    """
    places = places_query(job.scan.text, job.scan.columns, job.task)
    job.connection.execute(f"CREATE TEMP TABLE {_PLACES} AS {places}")
    if job.connection.execute(f"SELECT 1 FROM {_PLACES} WHERE k0 IS NULL LIMIT 1").fetchall():
        raise null_units(job.task)
    sums = job.ask(f"SELECT place, CAST(sum(n) AS BIGINT) AS n FROM {_PLACES} GROUP BY place")
    return units_by_place(as_numpy(sums.column(0)), as_numpy(sums.column(1)), job.task.contribution.keys)


def count_under(connection: Any, task: Aggregation, keys: int) -> Counted:
    """Return the counts from the table of `keep_places`, where a unit keeps at most this number of keys."""
    names = ", ".join(f"k{i}" for i in range(len(task.columns.key)))
    counts = ["n", *amount_names(task.columns.totals)]
    shown = ", ".join(f"CAST({call('sum', name)} AS BIGINT) AS {name}" for name in counts)
    sums = f"SELECT {names}, {shown} FROM {_PLACES} WHERE place <= {int(keys)} GROUP BY {names}"
    return decode_counts(task, None, connection.sql(sums).to_arrow_table())


def read_numbers(job: Job) -> NumberRows:
    """Return rows of numbers; those of a unit are contiguous."""
    table = job.ask(number_query(job.scan.text, job.scan.columns, job.task))
    columns, starts = [column.combine_chunks() for column in table.columns], np.arange(len(table) + 1)
    if pa.types.is_list(table.schema.types[0]) or pa.types.is_large_list(table.schema.types[0]):
        starts = np.append(0, np.cumsum(as_numpy(columns[0].value_lengths())))
        columns = [column.flatten() for column in columns]
    return NumberRows(np.column_stack([as_numpy(column) for column in columns]), starts.astype(np.int64))


def guard(act: Callable[[], _T], shown: Mapping[Path, str]) -> _T:
    """Return the result of `act`, and translate DuckDB's errors; `shown` has the names of the files."""
    return translate_errors(act, partial(_explain, shown))


def _explain(shown: Mapping[Path, str], error: Exception) -> DpsieveError | KeyboardInterrupt:
    if is_interrupt(error):  # Ctrl-C in the thread that runs the query
        return KeyboardInterrupt()
    message = str(error)
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError):
        hint = "Pass a larger memory_limit, fewer threads, or a temp_folder on a disk with more space."
        return InvalidValue(f"memory_limit is too small for this table. {hint}", argument="memory_limit")
    full = isinstance(error, duckdb.IOException) and ("No space left" in message or "temp_directory" in message)
    if full or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return InvalidValue("temp_folder has no space left. Pass one on a larger disk.", argument="temp_folder")
    if line := _CSV.match(message):
        needs = "the header's number of columns, closed quotes, and UTF-8"
        return _bad_row(_mentioned_file(message, shown), int(line[1]), needs)
    if start := _JSON.match(message):
        return _explain_json(message[start.end() :], shown)
    kind = type(error).__name__
    if isinstance(error, duckdb.NotImplementedException | duckdb.InvalidTypeException | TypeError):
        return InvalidType(f"data has a column that cannot be read ({kind}). Turn it into text.", argument="data")
    if shown:
        hint = "Check that the files are complete, have the same columns, and are what they are read as."
        return UnreadableData(f"{_mentioned_file(message, shown)} cannot be read ({kind}). {hint}")
    return UnreadableData(f"data cannot be read ({kind}). Check that a query that shows its first rows works.")


def _bad_row(name: str, line: int | None, needs: str) -> UnreadableData:
    where = name if line is None else f"line {line} of {name}"
    return UnreadableData(f"{where} cannot be read. Each row needs {needs}. Fix or remove it.")


def _explain_json(rest: str, shown: Mapping[Path, str]) -> UnreadableData:
    needs = "one JSON object on one line, with each field once, in UTF-8"
    for path, name in shown.items():
        if rest.startswith(str(path)) and (line := _JSON_LINE.match(rest[len(str(path)) :])):
            return _bad_row(name, int(line[2]) - (line[1] is not None), needs)  # what is not JSON is on the line before
    return _bad_row(_mentioned_file(rest, shown), None, needs)


def _mentioned_file(message: str, shown: Mapping[Path, str]) -> str:
    """Return the name of the file that the message mentions last; only names that the user passed are returned."""
    if len(shown) == 1:
        return next(iter(shown.values()))
    last = max(shown, key=lambda path: (message.rfind(str(path)), len(str(path))))
    return shown[last] if str(last) in message else "a file of data"


def open_rows(source: Source, wanted: Columns, connection: Any, folder: Path) -> Scan:
    """Return the scan of the wanted columns, some of which may be derived; see `read.open_scan`."""
    scan = open_scan(source, wanted.of_table, connection, folder)
    if wanted.rows is None:
        return scan
    made = partial(derive, wanted, scan.columns.values())
    text, columns = made(scan.text)
    return replace(scan, text=text, columns=columns, table=None, base=scan, of_part=lambda part: made(part)[0])


def derive(wanted: Columns, present: Iterable[Column], scan: str) -> tuple[str, dict[str, Column]]:
    """Return the text of a table with the wanted columns, from one with the present columns; and these columns."""
    from dpsieve.engines.sql.row_writer import write_rows

    table = {column.name: column for column in present}
    assert wanted.rows is not None
    where, derived = write_rows("duckdb", wanted.rows, table)
    model = table[wanted.of_table.names[0]]  # of a user's connection, or not
    columns, shown = {}, []
    for i, name in enumerate(wanted.names):
        if name in derived:
            sql, kind = derived[name]
            columns[name] = replace(model, name=name, sql=f"d{i}", type=kind)
        else:
            sql = table[name].sql
            columns[name] = replace(table[name], sql=f"d{i}")
        shown.append(f"{sql} AS d{i}")
    condition = f" WHERE {where}" if where else ""
    return f"(SELECT {', '.join(shown)} FROM {scan}{condition})", columns
