"""Spark: what is not released never leaves its executors, and what is released is drawn once.

Bounding and counting run as one SQL text. The counts are computed once, and cut off from the data (`localCheckpoint`,
on a cluster with two copies of each block): a lost block that is computed again from data that has changed since would
mix old and new rows of a unit. Where both copies are lost, the draw fails. Data with random columns is refused for the
same reason: a repeated task would read other rows.

After the charge, each executor draws for its own keys (`draw_batches`), and the last stage writes what is reported as
Parquet: of tasks that run more than once, the committer takes one. Only what is written is read. The salt is in a table
of one row, so it is in no text of a query, no plan and no event log.
"""

import importlib
import os
import re
import secrets
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

import dpsieve
from dpsieve.display import silence_loggers
from dpsieve.engines.answers import cast_known_keys, null_units, translate_errors
from dpsieve.engines.engine import Aggregation, Columns, Engine
from dpsieve.engines.inputs.files import Files, common_header, field_names, is_text
from dpsieve.engines.inputs.frames import is_spark, open_source, unchanged
from dpsieve.engines.sql.columns import Column
from dpsieve.engines.sql.dialects import BUILTIN, columns_for, query_for
from dpsieve.engines.sql.queries import bounded_query, places_query
from dpsieve.engines.sql.totals import amount_names
from dpsieve.engines.true_data import Counted, CountedByBound, units_by_place
from dpsieve.errors import InvalidType, InvalidValue, UnreadableData
from dpsieve.locks import private_folder
from dpsieve.privacy.guarantee import Weight
from dpsieve.privacy.mechanism import Mechanism, Outcome, totals_of
from dpsieve.publication.release import draw_keys
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Ints
from dpsieve.values.columns import ESCAPE, ESCAPED
from dpsieve.values.keys import declared, order_of

_T = TypeVar("_T")
_ENCRYPTED = "spark.io.encryption.enabled"
_LARGEST = 10**12  # frequency
_CHECKED: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()  # executors that can draw, by session
_FEW = 1_000_000  # public keys, that fit into the memory of each executor
# A task's files go to their place when the job is committed, not when the task is, and a mark says that it was.
_COMMIT = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
_UNREAD = (
    "data cannot be read or counted by Spark",
    "Check that a query that counts its rows works, and that executors can write to the folder of the engine.",
)
_LOST = (
    "The Spark job failed after the budget was charged; the charge is not refunded",
    "Check that executors have this version of dpsieve, and that they can write to the folder of the engine.",
)
_UNABLE = (
    "Spark's executors cannot draw",
    f"Install dpsieve {dpsieve.__version__} there, and set PYSPARK_PYTHON to the Python that has it.",
)
_CERTIFIED: dict[str, Mechanism] = {}


class Spark(Engine):
    """Aggregates and draws with Spark, classic or Connect; executors must have this version of dpsieve installed.

    Data is a Spark DataFrame, or files that all executors can read. A DataFrame must give the same rows each time it is
    computed; one with random columns is refused.

    Args:
        session: where files are read; default the active session, or a new one that encrypts its files.
        folder: where executors write what is released, in a new folder that stays: a path that all of them share, or
            an address such as 's3a://bucket/folder'; default a private temporary folder of this machine.
    """

    supports_pairs = False

    def __init__(self, session: Any = None, folder: str | os.PathLike[str] | None = None) -> None:
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise InvalidType(f"folder must be a path, not {type(folder).__name__}. Pass one.", argument="folder")
        self.session, self.folder = session, None if folder is None else os.fspath(folder).rstrip("/")
        if self.folder is not None and "://" not in self.folder:
            self.folder = str(Path(self.folder).absolute())

    def __repr__(self) -> str:
        return f"Spark({'' if self.folder is None else f'folder={self.folder!r}'})"

    def columns(self, data: Any) -> list[tuple[str, str]]:
        return _types(self._frame(data))

    def check(self, data: Any, columns: Columns) -> None:
        self._open(data, columns)

    def _open(self, data: Any, columns: Columns) -> tuple[Any, dict[str, Column]]:
        """Return data as a DataFrame, and the columns as the query writes them."""
        frame = self._frame(data)
        types = _types(frame)
        texts = not is_spark(data) and is_text(open_source(data))
        columns.check_present([name for name, _ in types], listed=not texts)
        if columns.rows is not None:
            from dpsieve.engines.sql.row_writer import derive

            frame = _guard(lambda: derive(frame, dict(types), columns))
            types = _types(frame)
        return frame, columns_for("spark", dict(types), columns, texts=texts)

    def aggregate(self, data: Any, task: Aggregation) -> Counted:
        counts, listed = self._count(data, task, bounded_query)
        return SparkCounted(counts, counts.frame, task.columns, listed)

    def read_by_bound(self, data: Any, task: Aggregation) -> CountedByBound:
        counts, _ = self._count(data, task, places_query)
        names, numbers = [f"k{i}" for i in range(len(task.columns.key))], number_names(task.columns)
        sums = _guard(lambda: _sum(counts.frame, ["place"]).toArrow())

        def under(keys: int) -> Counted:
            return SparkCounted(counts, _sum(counts.frame.where(f"place <= {int(keys)}"), names, numbers), task.columns)

        units = units_by_place(sums.column(0).to_numpy(), sums.column(1).to_numpy(), task.contribution.keys)
        return CountedByBound(units, under)

    def read_pairs(self, data: Any, task: Aggregation) -> NoReturn:
        raise InvalidType("Spark does not return pairs of units and keys, which this needs. Use release or discover.")

    def read_numbers(self, data: Any, task: Aggregation) -> NoReturn:
        raise InvalidType("Spark does not read numbers yet. Use release or discover.")

    def _count(self, data: Any, task: Aggregation, query: Callable[..., str]) -> tuple["_Counts", pa.Table | None]:
        """Count, and refuse null units and sums that do not fit; return the counts in Spark, and the public keys."""
        any_null = [_builtin(f"max({name} IS NULL)") for name in ("k0", "n")]
        with unchanged(None if is_spark(data) else open_source(data)):
            frame, columns = self._open(data, task.columns)
            key = [columns[name] for name in task.columns.key]
            listed = None if task.known is None else cast_known_keys(task.known, key)
            _guard(partial(_check_executors, frame.sparkSession), _UNABLE)
            counts = _guard(lambda: _Counts(frame, self.folder, task, query, listed))
            nulls, wide = _guard(lambda: counts.frame.selectExpr(*any_null).first())
        if nulls:
            raise null_units(task)
        if wide and isinstance(task.measure, Weight):
            raise task.measure.too_wide()
        task.report(1.0)
        return counts, listed

    def _frame(self, data: Any) -> Any:
        if is_spark(data):
            return data
        source = open_source(data)
        if not isinstance(source, Files):
            raise InvalidType("data is not read by Spark. Pass a Spark DataFrame or files.", argument="data")
        return _guard(lambda: _read(self.session or _session(), source))


class _Counts:
    """Counts that Spark stores during the lifetime of this object; `frame` has k0, k1, ..., and n."""

    def __init__(
        self, data: Any, folder: str | None, task: Aggregation, query: Callable[..., str], known: pa.Table | None
    ) -> None:
        self.session, self._folder, self._name = data.sparkSession, folder, f"dpsieve-{secrets.token_hex(8)}"
        _check_session(self.session, folder)
        if folder is not None:  # that it can be written to is known before anything is paid for
            self._write(self.session.range(0), f"{folder}/{self._name}")
        views = {part: f"dpsieve_{part}_{secrets.token_hex(8)}" for part in ("data", "salt", "known")}
        wanted, fields = task.columns.names, data.schema.fields
        # Spark ignores the case of names: columns that are not wanted get new names.
        plain = data.toDF(*(field.name if field.name in wanted else f"dpsieve_{i}" for i, field in enumerate(fields)))
        plain = plain.selectExpr(*(_in_utf8(field, task.columns) for field in plain.schema.fields))
        tables = {"data": plain, "salt": self.session.createDataFrame(pa.table({"s": [str(task.salt)]}))}
        if known is not None:
            # To send a table to all executors, the driver collects it: that may be the public list, and never the data.
            tables["known"] = self.session.createDataFrame(known).hint("broadcast" if len(known) < _FEW else "merge")
        frames: list[Any] = []
        weakref.finalize(self, _release, self.session, frames, [views[part] for part in tables]).atexit = False
        for part, table in tables.items():
            table.createTempView(views[part])
        _check_deterministic(self.session, views["data"])
        place = None if known is None else (views["known"],)
        text = query_for("spark", (views["data"],), dict(_types(plain)), task, place, query, views["salt"])
        self.frame = _compute_once(self.session.sql(text))
        frames.append(self.frame)

    def draw(self, counts: Any, mechanism: Mechanism) -> pa.Table:
        """Draw in the executors, write what is reported, and read it."""
        from pyspark.sql.types import LongType, StructField, StructType

        totals, fields = len(totals_of(mechanism)), counts.schema.fields
        added = [StructField(name, LongType(), False) for name in ("token", *map("sum{}".format, range(totals)))]
        schema = StructType([*fields[: len(fields) - len(added)], *added])
        draw = partial(draw_batches, mechanism, secrets.token_hex(8), dpsieve.__version__)
        with private_folder() if self._folder is None else nullcontext(self._folder) as folder:
            path = f"{folder}/{self._name}"
            self._write(counts.mapInArrow(draw, schema), path)
            return self.session.read.schema(schema).parquet(path if "://" in path else _as_uri(Path(path))).toArrow()

    def _write(self, frame: Any, path: str) -> None:
        frame.write.options(**_COMMIT).mode("overwrite").parquet(path if "://" in path else f"file://{path}")
        if Path(path).is_dir() and not Path(path, "_SUCCESS").is_file():  # where it can be seen from here
            raise FileNotFoundError


class SparkCounted(Counted):
    """True aggregates that stay in Spark."""

    _source: _Counts
    _counts: Any
    _columns: Columns
    _listed: pa.Table | None

    def __init__(self, source: _Counts, counts: Any, columns: Columns, listed: pa.Table | None = None) -> None:
        """Take counts with k0, k1, ..., n and sums a0, ...; with a public list, k0 is a place in it."""
        vars(self).update(_source=source, _counts=counts, _columns=columns, _listed=listed)

    @property
    def keys(self) -> NoReturn:
        raise InvalidType("true counts of Spark stay in its executors, and this needs them here. Use another engine.")

    frequencies = sums = keys

    @property
    def summands(self) -> Ints:
        total_or_zero = _builtin(f"coalesce({_builtin('sum(n)')}, 0L)")
        (total,) = _guard(lambda: self._counts.selectExpr(total_or_zero).first())
        return np.array([_LARGEST] * (total // _LARGEST) + [total % _LARGEST] * (total % _LARGEST > 0), np.int64)

    def draw(self, mechanism: Mechanism, source: Source) -> tuple[pa.Table, Outcome]:
        if not source.publishable:
            raise InvalidValue("source cannot be sent to the executors, where Spark draws.", argument="source")
        mechanism.certify()
        table = _guard(lambda: self._source.draw(self._all_counts(), mechanism), _LOST)
        names = [name for name in table.column_names if name.startswith("sum")]
        sums = np.array([table.column(name).to_numpy() for name in names], np.int64) if names else None
        keys = table.drop_columns(["token", *names])
        if self._listed is not None:
            keys = self._listed.drop_columns(["i"]).take(table.column("k0"))
        keys = declared(keys.rename_columns(list(self._columns.key)))
        return keys, Outcome(table.column("token").to_numpy(), sums=sums)

    def _all_counts(self) -> Any:
        """Return the counts, with zeros for what is listed and does not occur."""
        if self._listed is None:
            return self._counts
        zeros = self._source.session.createDataFrame(self._listed.select(["i"])).selectExpr(
            "i k0", *(f"0L {name}" for name in number_names(self._columns))
        )
        # A join might go through the driver.
        return _sum(self._counts.union(zeros), ["k0"], number_names(self._columns))


def _types(frame: Any) -> list[tuple[str, str]]:
    return _guard(lambda: [(field.name, field.dataType.simpleString()) for field in frame.schema])


def _builtin(call: str) -> str:
    """Return the call of a function of Spark, whatever functions of that name the session has."""
    return ".".join([*BUILTIN, call])


def number_names(columns: Columns) -> list[str]:
    """Return the names of the columns that are added up: n, and a0, ... of totals."""
    return ["n", *amount_names(columns.totals)]


def _sum(frame: Any, names: list[str], numbers: Sequence[str] = ("n",)) -> Any:
    where = "pyspark.sql.connect.functions" if ".connect." in type(frame).__module__ else "pyspark.sql.functions"
    expression = importlib.import_module(where).expr
    totals = [expression(_builtin(f"sum({number})")) for number in numbers]
    return frame.groupBy(*names).agg(*totals).toDF(*names, *numbers)


def _session() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise InvalidValue("engine Spark needs pip install '.[spark]' in the clone.", argument="engine") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dpsieve")
    if "SPARK_REMOTE" not in os.environ:
        builder = builder.config(_ENCRYPTED, "true").config("spark.ui.enabled", "false")
    return _guard(lambda: SparkSession.getActiveSession() or builder.getOrCreate())


def _check_session(session: Any, folder: str | None) -> None:
    """Refuse a session whose executors may not share a temporary folder, and warn where files are not encrypted."""
    elsewhere = ".connect." in type(session).__module__ and session.client.host not in ("localhost", "127.0.0.1", "::1")
    if folder is None and (elsewhere or not session.conf.get("spark.master", "").startswith("local")):
        hint = "Pass engine=dpsieve.engines.Spark(folder=...), a folder that all of them can write to."
        raise InvalidValue(f"Spark runs on other machines, which do not share a temporary folder. {hint}")
    if session.conf.get(_ENCRYPTED, "false").lower() != "true":
        why = f"Spark writes data that is sensitive to its local disks, and {_ENCRYPTED} is not set"
        warnings.warn(f"{why}. Start the session with it, unless these disks are encrypted.", stacklevel=2)


def _check_deterministic(session: Any, view: str) -> None:
    """Refuse data with expressions that Spark calls nondeterministic, anywhere in its plan; nothing is computed.

    Spark's analysis refuses an order by one, and a subquery is one where anything in it is: so in Connect too.
    """
    try:
        session.sql(f"SELECT 1 FROM (SELECT 1) ORDER BY (SELECT {_builtin('count(*)')} FROM {view})").schema  # noqa: B018
        return
    except Exception as error:
        if getattr(error, "getCondition", str)() != "INVALID_NON_DETERMINISTIC_EXPRESSIONS":
            raise
    why = "such as rand(), uuid() or monotonically_increasing_id(), which change where Spark runs a task again"
    raise InvalidValue(f"data has random columns or filters, {why}. Write it to a table first.", argument="data")


def _compute_once(frame: Any) -> Any:
    """Compute a frame, and keep the rows in executors, twice where there are several machines or processes."""
    from pyspark.storagelevel import StorageLevel

    alone = re.fullmatch(r"local(\[.*\])?", frame.sparkSession.conf.get("spark.master", ""))
    return frame.localCheckpoint(True, StorageLevel.MEMORY_AND_DISK if alone else StorageLevel.MEMORY_AND_DISK_2)


def _in_utf8(field: Any, columns: Columns) -> str:
    """Return the expression of a column, with keys in UTF-8 (see `values.columns`); units are bytes to Spark."""
    name, kind = f"`{field.name.replace('`', '``')}`", field.dataType.simpleString()
    if field.name not in columns.key or not kind.startswith(("string", "char", "varchar")):
        return name
    text, bytes_ = f"CAST({name} AS STRING)", f"CAST({name} AS BINARY)"
    is_escaped = _builtin(f"regexp_like({text}, r'^{ESCAPED}\\z')")
    usual = f"{_builtin(f'is_valid_utf8({text})')} AND NOT {is_escaped}"
    escaped = _builtin(f"concat('{ESCAPE}', {_builtin(f'hex({bytes_})')})")
    escaped = f"CAST({escaped} AS {kind if kind.startswith('string') else 'STRING'})"
    return f"CASE WHEN {name} IS NULL OR ({usual}) THEN {name} ELSE {escaped} END AS {name}"


def _check_executors(session: Any) -> None:
    """Run a task that needs what a draw needs, once for each session, before anything is counted or paid for."""
    if _CHECKED.get(session) != dpsieve.__version__:
        session.range(1).mapInArrow(partial(check_version, dpsieve.__version__), "id long").collect()
        _CHECKED[session] = dpsieve.__version__


def _read(session: Any, source: Files) -> Any:
    """Return files as a DataFrame; as everywhere, those of text hold text."""
    from pyspark.sql.types import StringType, StructField, StructType

    def texts(names: tuple[str, ...] | list[str]) -> Any:
        return StructType([StructField(name, StringType()) for name in names])

    reader = session.read.option("recursiveFileLookup", "true")  # no columns from the names of folders
    if source.kind == "parquet":
        return reader.parquet(*map(_as_uri, source.paths))
    reader = reader.option("mode", "FAILFAST")
    if source.kind == "json":
        return reader.json([_as_uri(path) for path in source.paths], schema=texts(field_names(source)))
    header, paths = common_header(source)
    inner = texts([f"c{i}" for i in range(len(header.names))])
    how = {"sep": header.separator, "quote": '"', "escape": '"', "header": header.in_file, "multiLine": True}
    return reader.csv([_as_uri(path) for path in paths], schema=inner, **how).toDF(*header.names)


def _as_uri(path: Path) -> str:
    """Return a name that is no pattern, whatever it holds."""
    return "file://" + re.sub(r"([\\*?\[\]{}])", r"\\\1", str(path.absolute()))


def _release(session: Any, frames: list[Any], views: list[str]) -> None:
    with suppress(Exception):  # a session that was stopped keeps nothing
        while frames:  # in Connect, the server removes one that no client refers to
            if plan := getattr(frames.pop(), "_jdf", None):
                plan.queryExecution().analyzed().rdd().unpersist(False)
        for view in views:
            session.catalog.dropTempView(view)


def _query_loggers() -> list[Any]:
    """Return the loggers of pyspark that write errors of queries, with all that they quote, to standard error."""
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:
        return []
    return [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]


def _guard(act: Callable[[], _T], words: tuple[str, str] = _UNREAD) -> _T:
    """Return the result of what Spark does; its errors may quote data, so only their kind is shown, between `words`."""

    def explain(error: Exception) -> UnreadableData:
        name = getattr(error, "getCondition", str)()
        kind = type(error).__name__ + (f": {name}" if name else "")
        return UnreadableData(f"{words[0]} ({kind}). {words[1]}")

    with silence_loggers(_query_loggers()):
        return translate_errors(act, explain)


def check_version(version: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the batches if this process, an executor, has the driver's version of dpsieve."""
    if version != dpsieve.__version__:
        raise RuntimeError(f"executors have dpsieve {dpsieve.__version__}, and the driver {version}")
    return batches


def draw_batches(
    mechanism: Mechanism, name: str, version: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Draw for one partition: its last column, n, is replaced by tokens, and rows that are not reported are dropped.

    With totals, so are the sums in the columns after n. This runs in executors. The mechanism has a new name in
    each draw, by which the tasks of one process share its tables. Randomness comes from a stream keyed by the
    operating system of the executor, one per process, so a repeated task makes new draws. The result is sorted by
    key. Only the kind of an error is reported.
    """
    batches = check_version(version, batches)

    def draw() -> list[pa.Table]:
        tables = []
        for batch in batches:
            place = batch.schema.names.index("n")
            keys, numbers = pa.Table.from_batches([batch]).select(batch.schema.names[:place]), batch.columns[place:]
            totals = {"sums": np.array([column.to_numpy() for column in numbers[1:]])} if numbers[1:] else {}
            true = numbers[0].to_numpy()
            shown, outcome = draw_keys(_certified(mechanism, name), keys, true, resolve(None), **totals)
            shown = shown.append_column("token", pa.array(outcome.tokens))
            for i, row in enumerate(() if outcome.sums is None else outcome.sums):
                shown = shown.append_column(f"sum{i}", pa.array(row))
            tables.append(shown)
        return tables

    if tables := translate_errors(draw, lambda error: RuntimeError(f"the draw failed with {type(error).__name__}")):
        table = pa.concat_tables(tables)
        keys = [name for name in table.column_names if name.startswith("k")]
        yield from table.take(order_of(table.select(keys))).to_batches()


def _certified(mechanism: Mechanism, name: str) -> Mechanism:
    """Return the mechanism, certified once per process for all of its tasks."""
    if name not in _CERTIFIED:
        mechanism.certify()
        _CERTIFIED.clear()
        _CERTIFIED[name] = mechanism
    return _CERTIFIED[name]
