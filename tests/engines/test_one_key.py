"""Compiled loops in place of SQL: the same counts, whatever grows, collides, or does not fit."""

import contextlib
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
from concurrent.futures import ThreadPoolExecutor

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from counting import count, named
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.compiled.jit import callback
from dpsieve.engines import DuckDB
from dpsieve.engines.duckdb.compiled import database as own_database
from dpsieve.engines.duckdb.compiled import numbering as text_blocks
from dpsieve.engines.duckdb.compiled import one_key
from dpsieve.engines.duckdb.compiled.chunks import answer, rows_of
from dpsieve.engines.duckdb.compiled.numbering import Memory
from dpsieve.engines.duckdb.compiled.one_key_loops import SEEN, UNITS, WANTS, _part_and_angle, take_rows
from dpsieve.engines.duckdb.queries import run
from dpsieve.errors import InvalidValue, UnreadableData

pytestmark = pytest.mark.usefixtures("one_database")

SOME_UNITS = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1, None])
KEYS = st.sampled_from(["", "a", "eight by", "nine byte", "🫖", "x" * 40, "x" * 40 + "y"]) | st.none()
COMPILED = DuckDB(compiled_from=0, threads=2)
SQL = DuckDB(compiled_from=None)


def table_of(rows, text_units=False):
    units = pa.array([r[0] for r in rows], pa.int64())
    return pa.table({"unit": units.cast(pa.string()) if text_units else units, "key": pa.array([r[1] for r in rows])})


def vector(texts):
    """Texts as DuckDB lays them out: the length, and up to twelve bytes, or four of them and an address of all."""
    texts = [text.encode() for text in texts]
    buffer = np.frombuffer(b"".join(texts) or b"-", np.uint8)
    places = buffer.ctypes.data + np.cumsum([0, *map(len, texts)])
    cells = [
        len(text).to_bytes(4, "little")
        + (text.ljust(12, b"\0") if len(text) <= 12 else text[:4] + int(place).to_bytes(8, "little"))
        for text, place in zip(texts, places, strict=False)
    ]
    return np.frombuffer(b"".join(cells), np.uint8), buffer


def parts_of(count=1, salt=1, memory=1 << 30, text_units=False, rows=None):
    """Parts of the units, as for DuckDB; and what lets them grow, which has to stay alive."""
    common = one_key._Common(salt, memory, count, rows, text_units, text_keys=True)
    parts = [one_key._Part(common) for _ in range(count)]
    return parts, own_database._Visits(parts)


def given_to(part, units, keys, orders):
    """Give rows to a part, as a thread of DuckDB would; tell whether there was room for them."""
    units = vector(units) if isinstance(units[0], str) else [np.array(units)]
    keys, orders = vector(keys), np.array(orders, np.uint64)
    return take_rows(len(orders), units[0].ctypes.data, keys[0].ctypes.data, orders.ctypes.data, part.frame)


def counted(parts, threads=1):
    made = one_key._counted(parts, pa.string(), 1, threads)
    return dict(zip(made["k0"].to_pylist(), made["n"].to_pylist(), strict=True))


def counts(table, engine=COMPILED, salt=1, **more):
    counted = count(engine, table, salt=salt, **more)
    assert counted.keys.schema.field("key").type == pa.string()
    return dict(zip(counted.keys.column("key").to_pylist(), counted.frequencies.tolist(), strict=True))


@pytest.fixture(autouse=True, scope="module")
def small_tables():
    """Most tables here are tiny."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_key, "_FIRST_CELLS", 1 << 10)
        patch.setattr(one_key, "_FIRST_KEYS", 1 << 4)
        patch.setattr(one_key, "_MANY_ROWS", 0)
        yield


@pytest.fixture
def compiled_runs(monkeypatch):
    """What the compiled loops answered: tables, or None where they gave up."""
    answers, real = [], one_key.run_compiled

    def watched(*arguments):
        answers.append(real(*arguments))
        return answers[-1]

    monkeypatch.setattr("dpsieve.engines.duckdb.compiled.one_key.run_compiled", watched)
    return answers


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
    monkeypatch.setattr(one_key, "_FIRST_CELLS", 1 << 20)
    roomy = counts(table)
    monkeypatch.setattr(one_key, "_FIRST_CELLS", 64)
    monkeypatch.setattr(text_blocks, "_FIRST_BYTES", 64)
    assert counts(table) == roomy
    assert sum(roomy.values()) == len(table.column("unit").unique())


@pytest.mark.parametrize("max_keys", [1, 3])
@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
def test_threads_that_share_the_rows_change_nothing(max_keys, text_units, monkeypatch):
    """What a unit keeps, and a key of several threads, is the same however many there are, also where tables grow."""
    monkeypatch.setattr(own_database, "_ROWS_OF_A_BATCH", 1 << 11)
    monkeypatch.setattr(one_key, "_FIRST_CELLS", 64)
    random = np.random.default_rng()
    rows = zip(random.integers(0, 5000, 40_000).tolist(), (f"key {k}" for k in random.zipf(1.3, 40_000)), strict=True)
    table = table_of(list(rows), text_units)
    expected = counts(table, SQL, max_keys=max_keys)
    for threads in (1, 2, 3, 8):
        assert counts(table, DuckDB(compiled_from=0, threads=threads), max_keys=max_keys) == expected


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    text_units=st.booleans(),
    threads=st.integers(1, 5),
    salt=st.integers(0, 2**64 - 1),
    in_order=st.booleans(),
)
def test_threads_look_at_tables_while_others_change_them(seed, text_units, threads, salt, in_order):
    """All threads meet units of all parts, and tables of four cells grow all the time; the result is as if in turn."""
    random, first = np.random.default_rng(seed), {}
    units = random.integers(-300, 300, 4000)
    units = np.sort(units) if in_order else units
    rows = list(
        zip(units.tolist(), random.zipf(1.3, 4000).tolist(), random.integers(0, 2**64, 4000, np.uint64), strict=True)
    )
    for unit, key, order in rows:
        first[unit] = min(first.get(unit, (2**64, 0)), (int(order), key))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_key, "_FIRST_CELLS", 4)
        parts, _visits = parts_of(threads, salt, text_units=text_units)

    def thread(number):
        for first_row in range(number * 100, 4000, 100 * threads):
            own = [
                (str(u) if text_units else u, f"the key {k}", order)
                for u, k, order in rows[first_row : first_row + 100]
            ]
            if not given_to(parts[number], *zip(*own, strict=True)):
                return False
        return True

    with ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(thread, range(threads)))
    assert counted(parts, threads) == Counter(f"the key {key}" for _, key in first.values())


def test_no_unit_is_lost_where_two_threads_want_one_cell(monkeypatch):
    """All units start at one line, so that both threads find the same empty cell again and again."""
    monkeypatch.setattr(one_key, "key_of_tables", lambda salt: np.array([0, 0, 0, 0, 0, 1, 0, 0], np.uint64))
    random, count, units = np.random.default_rng(), 500, 4000

    def thread(part, number):
        meeting.wait()
        return all(
            given_to(part, range(first, first + count), ["a"] * count, random.integers(0, 2**64, count, np.uint64))
            for first in range(number * count, units, 2 * count)
        )

    for _ in range(100):
        parts, _visits = parts_of(2)
        meeting = threading.Barrier(2)
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(thread, parts, range(2)))
        assert counted(parts) == {"a": units}


def test_of_keys_with_equal_hashes_the_smallest_is_kept():
    """By bytes, as SQL orders texts; all of a key counts, and a key before its own continuation."""
    for keys in itertools.permutations(["same beginning", "same beginning, more", "same beginnin\xff", "same b"]):
        parts, _visits = parts_of()
        for key in keys:
            assert given_to(parts[0], [1, 2, 1], [key, key, "z"], [7 << 28, 3 << 28, 7 << 28])
        assert counted(parts) == {"same b": 2}


def test_texts_whose_hashes_all_agree_are_told_apart():
    """Without a salt, texts of fewer than eight bytes have one hash: units and keys are compared by their bytes."""
    units, keys = [f"u{i}" for i in range(300)] * 2, [f"k{i % 7}" for i in range(300)] * 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_key, "key_of_tables", lambda salt: np.zeros(8, np.uint64))
        parts, _visits = parts_of(text_units=True)
    assert given_to(parts[0], units, keys, np.zeros(600))
    assert given_to(parts[0], units, keys, np.zeros(600))
    assert counted(parts) == Counter(keys[:300])


def test_keys_that_are_numbers(compiled_runs):
    random = np.random.default_rng()
    for kind in (pa.int8(), pa.uint32(), pa.int64()):
        keys = pa.array(random.integers(0, 100, 5000), kind)
        table = pa.table({"unit": random.integers(0, 900, 5000), "key": keys})
        one, other = (count(engine, table) for engine in (COMPILED, SQL))
        assert one.keys.schema == other.keys.schema and one.keys.schema.field("key").type == kind
        assert named(one) == named(other)
    assert len(compiled_runs) == 3 and None not in compiled_runs


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_two_threads_share_a_part_of_a_table_that_is_not_so_large(threads, compiled_runs, monkeypatch):
    monkeypatch.setattr(one_key, "_MANY_ROWS", 10**9)
    random = np.random.default_rng()
    table = table_of(list(zip(range(30_000), map(str, random.integers(0, 3000, 30_000)), strict=True)) * 2)
    assert counts(table, DuckDB(compiled_from=0, threads=threads)) == counts(table, SQL)
    assert len(compiled_runs) == 1 and None not in compiled_runs


@pytest.mark.parametrize("units", [3_000, 50_000, 2_000_000])
def test_how_many_units_there_will_be_is_foreseen(units):
    """After 100,000 rows of units that are equally likely; but a table grows at most sixteenfold at once."""
    parts, _visits = parts_of(2, rows=10**9)
    seen, common = 100_000, parts[0]._common
    for part in parts:
        part.frame[[SEEN, UNITS]] = seen // 2, round(units * -np.expm1(-seen / units)) // 2
    wanted = units / 0.6 / 2
    for held in (1000, 10_000, 100_000):
        assert common.cells(held) == pytest.approx(np.clip(wanted, 2 * held, 16 * held), rel=0.01)


def test_units_that_are_identifiers_or_short_numbers(tmp_path, compiled_runs):
    path, ids = tmp_path / "rows.parquet", [str(uuid.UUID(int=i)) for i in (1, 1, 2)]
    rows = ", ".join(f"('{id_}'::UUID, 'a')" for id_ in ids)
    duckdb.sql(f"COPY (FROM (VALUES {rows}) AS rows (unit, key)) TO '{path}'")
    assert counts(path) == {"a": 2}
    assert counts(pa.table({"unit": pa.array([255, 255, 0], pa.uint8()), "key": ["a", "a", "a"]})) == {"a": 2}
    assert len(compiled_runs) == 2 and None not in compiled_runs


def test_nulls():
    table = table_of([(1, "a"), (None, "a"), (2, None)])
    assert counts(table, allow_null_units=True) == {"a": 1}
    with pytest.raises(InvalidValue, match="privacy_unit='unit' holds nulls"):
        counts(table)
    assert counts(table_of([(1, "a"), (None, None)])) == {"a": 1}, "rows without a key are dropped first"


@pytest.mark.parametrize("rows", [[], [(1, None)]])
def test_nothing_to_count(rows):
    assert counts(table_of(rows).cast(pa.schema({"unit": pa.int64(), "key": pa.string()}))) == {}


@pytest.mark.parametrize("first", [1 << 10, 1 << 23], ids=["later", "at once"])
def test_where_memory_is_short_sql_takes_over(first, compiled_runs, tmp_path, monkeypatch):
    monkeypatch.setattr(one_key, "_FIRST_CELLS", first)
    asked, grow = [], one_key._Part.grow
    monkeypatch.setattr(one_key._Part, "grow", lambda part: asked.append(grow(part)) or asked[-1])
    random = np.random.default_rng()
    table = pa.table({"unit": random.permutation(2_000_000), "key": [f"key {i}" for i in range(1000)] * 2000})
    small = DuckDB(compiled_from=0, threads=2, memory_limit="150MB", temp_folder=tmp_path)
    assert counts(table, small) == {f"key {i}": 2000 for i in range(1000)}
    assert compiled_runs == [None] and list(tmp_path.iterdir()) == []
    assert asked == [] if first > 1 << 10 else asked[0] and not asked[-1]


class Watched(Memory):
    """Notes the most that was held."""

    most = 0

    def take(self, count):
        taken = super().take(count)
        self.most = max(self.most, self._held)
        return taken


@pytest.mark.parametrize("length", [10, 42, 1000])
def test_no_more_memory_is_held_than_allowed(length, monkeypatch):
    """Also by the result: the limit is what tables of just this size need, and all keys differ."""
    units, keys = list(range(49_000)), [str(i).zfill(length) for i in range(49_000)]
    monkeypatch.setattr(one_key, "Memory", Watched)

    def run(allowed):
        parts, _visits = parts_of(memory=allowed)
        done = all(
            given_to(parts[0], units[i : i + 1000], keys[i : i + 1000], range(1 << 40, (1 << 40) + 1000))
            for i in range(0, 49_000, 1000)
        )
        return parts[0]._common.room.most, one_key._counted(parts, pa.string(), 1, 1) if done else None

    most, _ = run(1 << 30)
    short, none = run(2 * most - 2)
    assert short < most and none is None
    tracemalloc.start()
    assert run(2 * most)[1].num_rows == 49_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= peak <= 2 * most + (4 << 20), "the rows of this test are in the peak, too"


@callback("void(int64, int64, int64)")
def ends_early(info, chunk, result):
    """Does what remains of a visit that an exception ends: DuckDB goes on."""
    answer(result, rows_of(chunk))


def test_a_call_that_fails_is_noticed():
    """An exception in compiled code, as where memory is short, does not reach DuckDB, and its rows would be missing."""
    parts, _visits = parts_of()
    with contextlib.closing(own_database.OwnDatabase({})) as database, pytest.raises(own_database.Unavailable):
        database.visit("SELECT range AS u FROM range(5)", {"u": "BIGINT"}, ends_early.address, parts)


def test_nothing_stays_in_memory_after_the_count():
    """DuckDB keeps the functions that it may call, and these must not keep the tables."""
    table, sizes = table_of([(i, f"key {i}") for i in range(50_000)]), []
    tracemalloc.start()
    for _ in range(3):
        counts(table)
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[2] - sizes[1] < 1 << 18


def test_units_that_lie_close_together_under_one_salt_lie_apart_under_another():
    """So nobody who does not know the salt can choose ids that are searched for ever longer."""
    one, other = one_key.key_of_tables(1), one_key.key_of_tables(2)
    close = [u for u in map(np.uint64, range(100_000)) if _part_and_angle(u, one, 1)[1] >> np.uint64(28) == 0]
    lines = Counter(int(_part_and_angle(u, other, 1)[1]) >> 28 for u in close)
    assert 5000 < len(close) < 7500 and min(lines.values()) > 250 and len(lines) == 16


def test_the_units_of_one_part_fill_its_table():
    """Each part is a quarter of the circle; in a quarter of its cells they would be searched for ever longer."""
    salt = one_key.key_of_tables(3)
    places = [_part_and_angle(np.uint64(unit), salt, 4) for unit in range(12_000)]
    for part in range(4):
        own = [int(angle) * 16 >> 32 for number, angle in places if number == part]
        assert 2500 < len(own) < 3500 and min(Counter(own).values()) > 100 and len(set(own)) == 16


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
        run(lambda: ended.append(stopped.wait(30)), connection, lambda share: None)
    assert ended == [True]


def test_a_key_of_many_megabytes_is_left_to_sql(compiled_runs):
    long = "x" * (1 << 24)
    assert counts(table_of([(1, long), (2, "a"), (3, long)])) == {long: 2, "a": 1}
    assert compiled_runs == [None]


def test_what_is_counted_by_sql(compiled_runs):
    several = {"key": ("key",), "unit": "unit", "max_keys": 2, "max_rows": 1, "salt": 1}
    table = table_of([(1, "a"), (1, "b")])
    for asked in ({}, {"max_rows": 2}, {"unit": None}, {"key": ("key", "unit")}, {"known": pa.table({"key": ["a"]})}):
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
    if switch == "memory":  # its tables must grow for the last unit
        monkeypatch.setattr(one_key, "_FIRST_CELLS", 4096)
        grow = one_key._Part.grow
        monkeypatch.setattr(one_key._Part, "grow", lambda part: part.frame[WANTS] != 0 and grow(part))
        rows = [(unit, f"key {k}") for unit, k in zip(range(3072), random.integers(0, 50, 3072), strict=True)]
        more = [*rows, (3072, "key 1")]
    one, other = (Counter(counts(table_of(data), engine)) for data in (rows, more))
    assert sum((other - one).values()) == len({u for u, _ in more} - {u for u, _ in rows}) and not one - other
    assert sorted(answer is None for answer in compiled_runs) == ([False] if switch == "rows" else [False, True])


def test_keys_that_are_too_long_for_one_column_are_left_to_sql(monkeypatch, compiled_runs):
    """The type of the released column must not depend on keys that are not released."""
    monkeypatch.setattr(text_blocks, "_LONGEST_COLUMN", 5)
    assert counts(table_of([(1, "abc"), (2, "def")])) == {"abc": 1, "def": 1}
    assert compiled_runs == [None]


def test_a_broken_file_is_explained_as_by_sql(tmp_path):
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


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_from_the_keyboard(tmp_path):
    script = """
import sys, numpy as np, pyarrow as pa
from dpsieve.engines import Columns, DuckDB
from dpsieve.privacy.contribution import Contribution
table = pa.table({"unit": np.arange(2_000_000), "key": pa.array(["a", "b"] * 1_000_000)})
print("ready", flush=True)
try:
    while True:
        DuckDB(compiled_from=0, threads=2, temp_folder=sys.argv[1]).aggregate(
            table, Columns(("key",), "unit"), Contribution(), salt=1)
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
