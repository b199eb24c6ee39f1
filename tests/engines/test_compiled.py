"""Compiled loops in place of SQL: the same counts, whatever grows, collides, or does not fit."""

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import uuid
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import count, named
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.engines import DuckDB
from dpsieve.engines.answers import run_query
from dpsieve.engines.duckdb.compiled import numbering as text_blocks
from dpsieve.engines.duckdb.compiled import pairs
from dpsieve.engines.duckdb.compiled.numbering import Blocks, Memory
from dpsieve.engines.duckdb.compiled.numbering_loops import comes_before
from dpsieve.errors import InvalidValue, UnreadableData

pytestmark = pytest.mark.usefixtures("one_database")

SOME_UNITS = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1, None])
KEYS = st.sampled_from(["", "a", "eight by", "nine byte", "🫖", "x" * 40, "x" * 40 + "y"]) | st.none()
COMPILED = DuckDB(compiled_from=0, threads=2)
SQL = DuckDB(compiled_from=None)


def table_of(rows, text_units=False):
    units = pa.array([r[0] for r in rows], pa.int64())
    return pa.table({"unit": units.cast(pa.string()) if text_units else units, "key": pa.array([r[1] for r in rows])})


def counts(table, engine=COMPILED, salt=1, **more):
    counted = count(engine, table, salt=salt, **more)
    assert counted.keys.schema.field("key").type == pa.string()
    return dict(zip(counted.keys.column("key").to_pylist(), counted.frequencies.tolist(), strict=True))


@pytest.fixture(autouse=True, scope="module")
def small_tables():
    """Most tables here are tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_FIRST_VALUES", 1 << 4)
        patch.setattr(pairs, "_BLOCKS_AT_ONCE", 1 << 4)
        yield


@pytest.fixture
def compiled_runs(monkeypatch):
    """What the compiled loops answered: pairs, or None where they gave up."""
    answers, real = [], pairs.read_pairs

    def watched(*arguments):
        answers.append(real(*arguments))
        return answers[-1]

    monkeypatch.setattr("dpsieve.engines.duckdb.compiled.pairs.read_pairs", watched)
    return answers


@pytest.mark.parametrize("size", [7, 300], ids=["many row groups", "few row groups"])
@pytest.mark.parametrize("files", [1, 2, 6])
@pytest.mark.parametrize("more", ["price", "FILE_row_number", "file_index"])
def test_every_row_is_in_one_of_the_parts_that_threads_read(more, files, size, tmp_path, compiled_runs):
    """Parts of Parquet are files or row groups; a column of the data may have the name by which DuckDB numbers them."""
    rows = 1000
    units, keys = [i % 90 for i in range(rows)], [f"key {i * i % 83}" for i in range(rows)]
    table = pa.table({"unit": units, "key": keys, more: [i % 3 for i in range(rows)]})
    edges = [0, *sorted(i * i * rows // files**2 for i in range(1, files)), rows]  # of unequal sizes
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        pyarrow.parquet.write_table(table[start:stop], tmp_path / f"{i}.parquet", row_group_size=size)
    pyarrow.parquet.write_table(table[:0], tmp_path / "empty.parquet")
    expected = counts(table, SQL, max_keys=3)
    for threads in (1, 2, 5):
        assert counts(str(tmp_path / "*.parquet"), DuckDB(compiled_from=0, threads=threads), max_keys=3) == expected
    assert len(compiled_runs) == 3 and None not in compiled_runs


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.tuples(SOME_UNITS, KEYS), max_size=60), text_units=st.booleans(), salt=st.integers(0, 2**64 - 1)
)
def test_the_whole_is_the_sum_of_its_units(rows, text_units, salt):
    """A unit adds one of its own keys, and its rows change nothing of what other units add."""
    total, more = Counter(), {"salt": salt, "allow_null_units": True}
    for unit in {unit for unit, _ in rows} - {None}:
        own = [row for row in rows if row[0] == unit]
        added = counts(table_of(own, text_units), **more)
        keys = {key for _, key in own if key is not None}
        assert set(added.values()) <= {1} and added.keys() <= keys and len(added) == min(1, len(keys))
        total.update(added)
    assert counts(table_of(rows, text_units), **more) == total
    assert counts(table_of(rows[::-1], text_units), **more) == total


@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
def test_units_of_one_key_each_are_counted_exactly(text_units, compiled_runs):
    """Nothing is left to choose, so both ways agree; lengths on all sides of the steps that hashes read in."""
    random = np.random.default_rng()
    unit = random.integers(-(10**6), 10**6, 100_000)
    rows = list(
        zip(unit.tolist(), ("é" * (u % 23) + "z" * (u % 5) + str(u % 1000) for u in unit.tolist()), strict=True)
    )
    table = table_of(rows, text_units)
    assert counts(table) == counts(table, SQL) == Counter(dict(rows).values())
    assert len(compiled_runs) == 1 and compiled_runs[0] is not None


@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
def test_tables_and_blocks_that_grow_change_nothing(monkeypatch, text_units):
    random = np.random.default_rng()
    rows = zip(
        random.integers(0, 20_000, 200_000).tolist(), (f"key {k}" for k in random.zipf(1.3, 200_000)), strict=True
    )
    table = table_of(list(rows), text_units)
    monkeypatch.setattr(pairs, "_FIRST_VALUES", 1 << 18)
    roomy = counts(table)
    monkeypatch.setattr(pairs, "_FIRST_VALUES", 16)
    monkeypatch.setattr(text_blocks, "_FIRST_BYTES", 64)
    assert counts(table) == roomy
    assert sum(roomy.values()) == len(table.column("unit").unique())


@pytest.mark.parametrize("max_keys", [1, 3])
@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
def test_threads_that_share_the_rows_change_nothing(max_keys, text_units, monkeypatch):
    """What a unit keeps, and a key of several threads, is the same however many there are, also where tables grow."""
    monkeypatch.setattr(text_blocks, "_MERGED_AT_ONCE", 1 << 6)
    random = np.random.default_rng()
    rows = zip(random.integers(0, 5000, 40_000).tolist(), (f"key {k}" for k in random.zipf(1.3, 40_000)), strict=True)
    table = table_of(list(rows), text_units)
    expected = counts(table, SQL, max_keys=max_keys)
    for threads in (1, 2, 3, 8):
        assert counts(table, DuckDB(compiled_from=0, threads=threads), max_keys=max_keys) == expected


@pytest.mark.parametrize("max_keys", [1, 3])
def test_texts_whose_hashes_all_agree_are_told_apart(max_keys, compiled_runs, monkeypatch):
    """Without a salt, texts of fewer than eight bytes have one hash: units and keys are compared by their bytes."""
    units, keys = [f"u{i}" for i in range(300)] * 2, [f"k{i % 7}" for i in range(300)] * 2
    monkeypatch.setattr(pairs.numbering, "key_of_tables", lambda salt: np.zeros(8, np.uint64))
    assert counts(pa.table({"unit": units, "key": keys}), max_keys=max_keys) == Counter(keys[:300])
    assert len(compiled_runs) == 1 and None not in compiled_runs


def test_texts_are_compared_by_all_their_bytes():
    """As SQL orders texts, which decides between keys with equal hashes; a text comes before its own continuation."""
    texts = sorted(map(str.encode, ["", "same b", "same beginning", "same beginning, more", "same beginnin\xff", "z"]))
    blocks, joined = Blocks(Memory(1 << 20)), b"".join(texts)
    ctypes.memmove(int(blocks.addresses[blocks.add(len(joined))]), joined, len(joined))
    starts = itertools.accumulate(map(len, texts), initial=0)
    words = [np.uint64(1 << 48 | start << 24 | len(text)) for start, text in zip(starts, texts, strict=False)]
    for (i, one), (j, other) in itertools.product(enumerate(words), repeat=2):
        assert comes_before(one, other, True, blocks.addresses) == (i < j)


def test_keys_that_are_numbers(compiled_runs):
    random = np.random.default_rng()
    for kind in (pa.int8(), pa.uint32(), pa.int64()):
        keys = pa.array(random.integers(0, 100, 5000), kind)
        table = pa.table({"unit": random.integers(0, 900, 5000), "key": keys})
        one, other = (count(engine, table) for engine in (COMPILED, SQL))
        assert one.keys.schema == other.keys.schema and one.keys.schema.field("key").type == kind
        assert named(one) == named(other)
    assert len(compiled_runs) == 3 and None not in compiled_runs


def test_units_that_are_identifiers_or_short_numbers(tmp_path, compiled_runs):
    path, ids = tmp_path / "rows.parquet", [str(uuid.UUID(int=i)) for i in (1, 1, 2)]
    rows = ", ".join(f"('{id_}'::UUID, 'a')" for id_ in ids)
    duckdb.sql(f"COPY (FROM (VALUES {rows}) AS rows (unit, key)) TO '{path}'")
    assert counts(path) == {"a": 2}
    assert counts(pa.table({"unit": pa.array([255, 255, 0], pa.uint8()), "key": ["a", "a", "a"]})) == {"a": 2}
    assert len(compiled_runs) == 2 and None not in compiled_runs


@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
def test_nulls(text_units):
    table = table_of([(1, "a"), (None, "a"), (2, None)], text_units)
    assert counts(table, allow_null_units=True) == {"a": 1}
    with pytest.raises(InvalidValue, match="privacy_unit='unit' contains nulls"):
        counts(table)
    assert counts(table_of([(1, "a"), (None, None)])) == {"a": 1}, "rows without a key are dropped first"


@pytest.mark.parametrize("rows", [[], [(1, None)]])
def test_nothing_to_count(rows):
    assert counts(table_of(rows).cast(pa.schema({"unit": pa.int64(), "key": pa.string()}))) == {}


def test_where_memory_is_short_sql_takes_over(compiled_runs, tmp_path):
    random = np.random.default_rng()
    table = pa.table({"unit": random.permutation(2_000_000), "key": [f"key {i}" for i in range(1000)] * 2000})
    small = DuckDB(compiled_from=0, threads=2, memory_limit="80MB", temp_folder=tmp_path)
    assert counts(table, small) == {f"key {i}": 2000 for i in range(1000)}
    assert compiled_runs == [None] and list(tmp_path.iterdir()) == []


def test_nothing_stays_in_memory_after_the_count():
    table, sizes = table_of([(i, f"key {i}") for i in range(50_000)]), []
    tracemalloc.start()
    for _ in range(3):
        counts(table)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[2] - sizes[1] < 1 << 18


@pytest.mark.parametrize("column", ["unit", "key"])
def test_texts_of_many_megabytes_among_several_keys_are_left_to_sql(column):
    """Also where the arena has room for them: their length would not fit into a reference."""
    length = 1 << 24
    texts = ["a" * (length - 1), "b" * (length - 1), "c" * (length - 1), "short", *["d" * length] * 3]
    table = pa.table({"unit": [str(i) for i in range(7)], "key": ["x"] * 7} | {column: texts})
    engine = DuckDB(compiled_from=0, threads=1)
    assert counts(table, engine, max_keys=2) == counts(table, SQL, max_keys=2)


def test_a_second_signal_does_not_leave_the_query_running():
    """Whatever is raised while it is stopped: the database is closed right after that."""

    class Connection:
        asked = 0

        def query_progress(self):
            raise SystemExit("the first signal")

        def interrupt(self):
            self.asked += 1
            if self.asked == 1:
                raise SystemExit("the second signal")
            stopped.set()

    stopped, ended, connection = threading.Event(), [], Connection()
    with pytest.raises(SystemExit, match="the second signal"):
        run_query(lambda: ended.append(stopped.wait(30)), connection, lambda share: None)
    assert ended == [True]


def test_a_key_of_many_megabytes_is_left_to_sql(compiled_runs):
    long = "x" * (1 << 24)
    assert counts(table_of([(1, long), (2, "a"), (3, long)])) == {long: 2, "a": 1}
    assert compiled_runs == [None]


def test_what_is_counted_by_sql(compiled_runs):
    several = {"key": ("key",), "unit": "unit", "max_keys": 2, "max_rows": 1, "salt": 1}
    table = table_of([(1, "a"), (1, "b")])
    for asked in ({"max_rows": 2}, {"unit": None}, {"key": ("key", "unit")}):
        count(COMPILED, table, **several | asked)
    count(DuckDB(threads=2), table, **several | {"max_keys": 1})
    numbers = pa.table({"unit": [0.0, -0.0], "key": [1, 2]})
    assert count(COMPILED, numbers, **several | {"max_keys": 1}).frequencies.tolist() == [1]
    assert compiled_runs == []


def test_progress_is_told_and_what_it_raises_stops_the_count(tmp_path):
    class Enough(Exception):
        pass

    def stop(share):
        raise Enough

    rows = 3_000_000
    table = pa.table({"unit": np.arange(rows), "key": pa.array([f"key {i}" for i in range(1000)] * (rows // 1000))})
    shares = []
    assert set(counts(table, progress=shares.append).values()) == {rows // 1000}
    assert shares == sorted(shares) and shares[-1] == 1.0
    with pytest.raises(Enough):
        counts(table, DuckDB(compiled_from=0, threads=2, temp_folder=tmp_path), progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_progress_does_not_show_how_many_rows_have_a_key(monkeypatch):
    """It ends at 100 % for each part that is read."""
    read, ends = pairs.read_pairs, []

    def read_and_look(job, limits):
        found = read(job, limits)
        ends.append(limits.cursors.query_progress())
        return found

    monkeypatch.setattr(pairs, "read_pairs", read_and_look)
    for keys in (["a", None, None, None], ["a", "b", "c", "d"]):
        count(COMPILED, pa.table({"unit": [1, 2, 3, 4] * 500, "key": keys * 500}))
    assert ends == [100.0, 100.0]


@settings(max_examples=25, deadline=None)
@given(text_units=st.booleans(), salt=st.integers(0, 2**64 - 1), seed=st.integers(0, 2**32), in_order=st.booleans())
def test_both_ways_choose_alike_for_every_salt(text_units, salt, seed, in_order):
    """So which way is taken, which size and memory decide, never shows. Else one unit could change many keys."""
    random = np.random.default_rng(seed)
    units = random.integers(-9, 300, 3000).tolist()
    rows = zip(sorted(units) if in_order else units, (f"key {k}" for k in random.zipf(1.2, 3000)), strict=True)
    table = table_of(list(rows), text_units)
    assert counts(table, salt=salt) == counts(table, SQL, salt=salt)


@pytest.mark.parametrize("switch", ["rows", "memory", "a long key"])
def test_one_unit_more_changes_one_key_across_every_switch(switch, compiled_runs, monkeypatch):
    random = np.random.default_rng()
    rows = list(zip((i // 4 for i in range(4000)), (f"key {k}" for k in random.integers(0, 50, 4000)), strict=True))
    more = [*rows, (10**6, "x" * (1 << 24) if switch == "a long key" else "key 1")]
    engine = DuckDB(compiled_from=len(more) if switch == "rows" else 0, threads=1)
    if switch == "memory":  # there is none for the last unit
        read = pairs.read_pairs

        def read_few(job, limits):
            return read(job, limits if job.scan.rows <= len(rows) else limits._replace(memory=0))

        monkeypatch.setattr(pairs, "read_pairs", read_few)
    one, other = (Counter(counts(table_of(data), engine)) for data in (rows, more))
    assert sum((other - one).values()) == len({u for u, _ in more} - {u for u, _ in rows}) and not one - other
    assert sorted(answer is None for answer in compiled_runs) == ([False] if switch == "rows" else [False, True])


def test_keys_that_are_too_long_for_one_column_are_left_to_sql(monkeypatch, compiled_runs):
    """The type of the released column must not depend on keys that are not released."""
    monkeypatch.setattr(text_blocks, "_LONGEST_COLUMN", 5)
    assert counts(table_of([(1, "abc"), (2, "def")])) == {"abc": 1, "def": 1}
    assert compiled_runs == [None]


def test_a_broken_file_is_explained_as_by_sql(tmp_path, caplog):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(table_of([(i, f"marked-secret {i}") for i in range(100_000)]), path, row_group_size=10_000)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 : len(whole) // 2 + 2000] = bytes(2000)
    path.write_bytes(whole)
    said = []
    for engine in (COMPILED, SQL):
        with pytest.raises(UnreadableData) as caught:
            counts(path, engine)
        said.append(str(caught.value))
    assert said[0] == said[1] and "rows.parquet" in said[0] and "secret" not in said[0]
    assert not caplog.records  # a record would show rows that SQL reads, such as long texts, too


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_from_the_keyboard(tmp_path):
    script = """
import sys, numpy as np, pyarrow as pa
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.privacy.guarantee import Contribution
table = pa.table({"unit": np.arange(2_000_000), "key": pa.array(["a", "b"] * 1_000_000)})
print("ready", flush=True)
try:
    while True:
        DuckDB(compiled_from=0, threads=2, temp_folder=sys.argv[1]).aggregate(
            table, Aggregation(Columns(("key",), "unit"), Contribution()))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted\n"
    assert process.returncode == 0 and list(tmp_path.iterdir()) == []


def test_arguments():
    assert DuckDB(compiled_from=None).compiled_from is None
    assert repr(COMPILED) == "DuckDB(threads='2', compiled_from=0)"
    with pytest.raises(InvalidValue, match="compiled_from"):
        DuckDB(compiled_from=-1)
