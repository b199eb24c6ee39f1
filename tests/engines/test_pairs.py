"""Which units keep which keys: the same bounding as `aggregate`, in an order that no other unit can change."""

import io
import itertools
from collections import defaultdict

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import EVERY_BOUND, aggregation, count, found
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.duckdb.compiled import numbering as text_blocks
from dpsieve.engines.duckdb.compiled import pairs
from dpsieve.engines.inputs.files import DataStream
from dpsieve.engines.sql.queries import DUCKDB
from dpsieve.engines.true_data import FromPairs
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Contribution, Weight

pytestmark = pytest.mark.usefixtures("one_database")

TIED = ("4vxs1mbpawq40olg", "f8eiydc9[LuSPw'%")  # equal hashes, as units and as keys, for every salt
UNITS, KEYS = [*TIED, "ann", "bob", None], [*TIED, "a", "b", "zz", None]
ROWS = st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from(KEYS)), max_size=40)
SALT, MOST = st.integers(0, 2**64 - 1), st.sampled_from([1, 2, 3, 10**12])
SQL, LOOPS = DuckDB(threads=2, compiled_from=None), DuckDB(threads=2, compiled_from=0)
WAYS = pytest.mark.parametrize("engine", [SQL, LOOPS], ids=["SQL", "loops"])


def table_of(rows):
    return pa.table({"unit": pa.array([u for u, _ in rows], "str"), "key": pa.array([k for _, k in rows], "str")})


def read_pairs(engine, data, key=("key",), unit="unit", max_keys=10**12, salt=1, **more):
    return engine.read_pairs(data, aggregation(Columns(key, unit), Contribution(max_keys), salt=salt, **more))


def lists(engine, data, **how):
    """The keys of each unit, in order."""
    held = read_pairs(engine, data, **how)
    assert held.starts.dtype == np.int64 and held.key_numbers.dtype == np.int32
    columns = [column.to_pylist() for column in held.keys.columns]
    names = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    assert len(set(map(repr, names))) == len(names)
    return [[names[number] for number in held.key_numbers[a:b]] for a, b in itertools.pairwise(held.starts)]


def hashes(salt, *columns):
    """The number that orders rows of values, by row."""
    written = [", ".join("'" + value.replace("'", "''") + "'" for value in row) for row in columns]
    texts = [DUCKDB.choice(salt, [row], []) for row in written]
    return dict(zip(columns, duckdb.sql(f"SELECT {', '.join(texts)}").fetchall()[0], strict=True))


def reference(rows, max_keys, salt):
    """Units in the order of their hash, then of their value; the keys of each likewise, and the first of them kept."""
    own = defaultdict(set)
    for unit, key in rows:
        if unit is not None and key is not None:
            own[unit].add(key)
    order = hashes(salt, *((unit,) for unit in own), *((unit, key) for unit in own for key in own[unit])) if own else {}
    units = sorted(own, key=lambda unit: (order[unit,], unit))
    return [sorted(own[unit], key=lambda key, unit=unit: (order[unit, key], key))[:max_keys] for unit in units]


def test_the_two_texts_tie_as_units_and_as_keys():
    """Otherwise the tests below would test nothing of ties."""
    order = hashes(5, *((t,) for t in TIED), *(("ann", t) for t in TIED))
    assert len(set(order.values())) == 2


@settings(max_examples=20, deadline=None)
@given(data=st.data(), rows=ROWS, max_keys=MOST, salt=SALT)
def test_it_is_the_reference_in_any_order_and_layout(tmp_path_factory, data, rows, max_keys, salt):
    how = {"max_keys": max_keys, "salt": salt, "allow_null_units": True}
    expected = reference(rows, max_keys, salt)
    table = table_of(data.draw(st.permutations(rows)))
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pa.parquet.write_table(table, path, row_group_size=3)
    for engine in (SQL, LOOPS):
        assert lists(engine, table, **how) == lists(engine, path, **how) == expected


@settings(max_examples=8, deadline=None)
@given(rows=ROWS, salt=SALT, known=st.booleans(), max_keys=st.integers(1, 3), least=st.integers(1, 5))
def test_counts_and_weights_are_those_of_the_aggregate(rows, salt, known, max_keys, least):
    """Also those of a public list of keys."""
    how = {"max_keys": max_keys, "salt": salt, "allow_null_units": True}
    how |= {"known": pa.table({"key": ["zz", "not there", *TIED]})} if known else {}
    for engine in (SQL, LOOPS):
        held = read_pairs(engine, table_of(rows), **how)
        names = held.keys.column("key").to_pylist()
        if known:
            assert names == ["zz", "not there", *TIED]
        for measure, numbers in (("count", held.counts()), (Weight(9, least), held.weights(Weight(9, least)))):
            aggregate = found(engine, table_of(rows), measure=measure, **how)
            assert dict(zip(names, numbers.tolist(), strict=True)) == aggregate


UNITS_OF_TYPES = {
    "integers": pa.array([-(2**63), -1, 0, 2**63 - 1, 7, 7]),
    "short integers": pa.array([-128, -1, 0, 1, 127, 127], pa.int8()),
    "large integers": pa.array([2**64 - 1, 1, 2, 3, 4, 4], pa.uint64()),
    "floats": pa.array([float("nan"), 1.5, float("inf"), 0.25, 0.0, -0.0]),
    "bytes": pa.array([b"", b"\x00", b"\xff", b"\x00\x00", b"a", b"a"]),
    "texts": pa.array(["", "x" * 40, "x" * 40 + "y", "🫖", "ann", "ann"]),
    "lists": pa.array([[1], [], [1, 2], [2], [None], [None]]),
}


@WAYS
@pytest.mark.parametrize("units", UNITS_OF_TYPES.values(), ids=UNITS_OF_TYPES)
def test_the_order_of_two_units_depends_on_no_other(engine, units):
    """Each unit has a key of its own, so that it can be recognised; the last two rows are of one unit."""
    table = pa.table({"unit": units, "key": ["a", "b", "c", "d", "e", "f"]})
    whole = [set(keys) for keys in lists(engine, table, salt=5)]
    assert sorted(map(len, whole)) == [1, 1, 1, 1, 2]
    assert [set(keys) for keys in lists(SQL, table, salt=5)] == whole
    for without in (0, 3):
        rest = [i for i in (5, 3, 1, 4, 2, 0) if i != without]
        assert [set(keys) for keys in lists(engine, table.take(rest), salt=5)] == [
            keys for keys in whole if keys != {"abcdef"[without]}
        ]
    orders = {tuple(min(keys) for keys in lists(engine, table, salt=salt)) for salt in range(8)}
    assert len(orders) > 3


def test_units_that_a_collation_calls_equal_are_one_in_any_order():
    rows = [
        (name, key) for name in ("Ann", "ANN", "bob", "Bob", "cy") for key in (name[0].lower() + "1", name[0] + "2")
    ]
    seen = set()
    for salt in range(6):
        for order in (rows, rows[::-1], sorted(rows, key=lambda row: row[1])):
            connection = duckdb.connect()
            connection.execute("CREATE TABLE events (unit VARCHAR COLLATE NOCASE, key VARCHAR)")
            connection.executemany("INSERT INTO events VALUES (?, ?)", order)
            seen.add((salt, repr(lists(DuckDB(), (connection, "events"), salt=salt))))
            assert len(lists(DuckDB(), (connection, "events"), salt=salt, max_keys=1)) == 3
    assert len(seen) == 6


def test_without_a_unit_each_row_is_one(engine):
    table = pa.table({"key": ["a", "b", "a", None, "a"]})
    for max_keys in (1, 10**12):
        rows = lists(engine, table, unit=None, max_keys=max_keys)
        assert sorted(rows) == [["a"], ["a"], ["a"], ["b"]] and rows in (sorted(rows), sorted(rows)[::-1])
        assert lists(engine, table.take([4, 3, 2, 1, 0]), unit=None) == rows
    known = read_pairs(engine, table, unit=None, known=pa.table({"key": ["c", "b"]}))
    assert known.counts().tolist() == [0, 1] and known.starts.tolist() == [0, 1]


@WAYS
@pytest.mark.parametrize("kind", [pa.int8(), pa.uint32(), pa.int64(), pa.float64(), pa.date32(), pa.large_string()])
def test_keys_have_the_type_they_have_in_the_aggregate(engine, kind):
    values = pa.array([1, 2, 1]) if kind != pa.large_string() else pa.array(["1", "2", "1"])
    values = values.cast(pa.int32()).cast(kind) if kind == pa.date32() else values.cast(kind)
    table = pa.table({"unit": [1, 1, 2], "key": values})
    held = read_pairs(engine, table)
    assert held.keys.schema == count(SQL, table, max_keys=5).keys.schema == count(engine, table, max_keys=5).keys.schema
    assert sorted(held.counts()) == [1, 2]


def test_several_key_columns_and_the_unit_as_a_key(engine):
    table = pa.table({"unit": [1, 1, 2, 1], "key": ["a", "a", "a", "a"], "more": [1, 2, 1, 1]})
    assert sorted(map(sorted, lists(engine, table, key=("key", "more")))) == [[("a", 1)], [("a", 1), ("a", 2)]]
    assert sorted(lists(engine, table, key=("unit",))) == [[1], [2]]


@pytest.mark.parametrize("max_keys", [2, 10**12])
def test_where_memory_is_short_loops_give_up(monkeypatch, max_keys):
    """A unit with 200,000 rows and 30,000 keys, and many others."""
    rng = np.random.default_rng(1)
    units = np.concatenate([np.zeros(200_000, np.int64), rng.integers(1, 2_000, 200_000)])
    keys = np.concatenate([rng.integers(0, 30_000, 200_000), rng.integers(0, 20, 200_000)])
    table = pa.table({"unit": units, "key": pa.array(keys).cast("str")}).take(rng.permutation(len(units)))
    expected = lists(SQL, table, max_keys=max_keys)
    gave_up, real = [], pairs.read_pairs

    def read(job, limits):
        answer = real(job, limits._replace(memory=limits.memory // divisor))
        gave_up.append(answer is None)
        return answer

    monkeypatch.setattr(pairs, "read_pairs", read)
    monkeypatch.setattr(pairs, "_FIRST_VALUES", 1 << 4)
    monkeypatch.setattr(text_blocks, "_FIRST_BYTES", 1)
    monkeypatch.setattr(pairs, "_BLOCKS_AT_ONCE", 1 << 4)
    monkeypatch.setattr(pairs, "_PAIRS_OF_A_PART", 1 << 14)
    roomy = DuckDB(threads=1, compiled_from=0, memory_limit="1GiB")
    for divisor in (1, 1000):  # noqa: B007
        assert lists(roomy, table, max_keys=max_keys) == expected
    assert gave_up == [False, True]


@pytest.mark.parametrize("memory", [1 << 24, 1 << 22])
def test_one_unit_with_most_rows_is_bounded_within_the_memory(memory, monkeypatch):
    """All pairs of a unit are bounded by one thread, and SQL bounds too many."""
    keys = np.random.default_rng(2).permutation(60_000)
    table = pa.table({"unit": np.zeros(60_000, np.int64), "key": keys})
    how = {"known": pa.table({"key": np.arange(60_000)}), "max_keys": 50}
    gave_up, real = [], pairs.read_pairs

    def read(job, limits):
        answer = real(job, limits._replace(memory=memory))
        gave_up.append(answer is None)
        return answer

    monkeypatch.setattr(pairs, "_BLOCKS_AT_ONCE", 1 << 4)
    monkeypatch.setattr(pairs, "read_pairs", read)
    assert lists(DuckDB(threads=1, compiled_from=0), table, **how) == lists(SQL, table, **how)
    assert gave_up == [memory == 1 << 22]


@WAYS
def test_null_units_and_nothing_at_all(engine):
    table = pa.table({"unit": pa.array([1, None]), "key": ["a", "b"]})
    with pytest.raises(InvalidValue, match="privacy_unit='unit' contains nulls"):
        read_pairs(engine, table)
    assert lists(engine, table, allow_null_units=True) == [["a"]]
    for known in (None, pa.table({"key": ["a", "c"]})):
        empty = read_pairs(engine, table.slice(0, 0), known=known)
        assert empty.starts.tolist() == [0] and len(empty.key_numbers) == 0
        assert empty.keys.num_rows == (0 if known is None else 2) and empty.keys.column_names == ["key"]


def test_every_kind_of_input(kind, tmp_path):
    table = pa.table({"unit": ["1", "1", "2"], "key": ["a", "b", "a"]})
    assert lists(DuckDB(), kind(table, tmp_path)) == lists(SQL, table)


@WAYS
def test_progress_and_what_is_refused(engine):
    table = pa.table({"unit": np.arange(1000) % 7, "key": np.arange(1000) % 11})
    shares = []
    read_pairs(engine, table, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0
    with pytest.raises(InvalidType, match="progress must be"):
        read_pairs(engine, table, progress=1)
    with pytest.raises(InvalidValue, match="not a column"):
        read_pairs(engine, table, key=("keys",))
    assert "1" not in repr(read_pairs(engine, table))


def numbers(counted):
    return dict(zip(counted.keys["key"].to_pylist(), counted.frequencies.tolist(), strict=True))


@WAYS
@given(rows=ROWS, salt=SALT, most=st.sampled_from([1, 2, 1000]))
@settings(max_examples=25)
def test_counts_under_a_chosen_bound_are_those_of_aggregate(engine, rows, salt, most):
    """Whether all pairs are held in memory or the data is read twice: the sizes are the same, and counts are."""
    rows = [row for row in rows if row[0] is not None]
    table, columns = table_of(rows), Columns(("key",), "unit")
    plain = engine.aggregate(table, aggregation(columns, Contribution(most), salt=salt))
    sizes = [len({key for unit, key in rows if unit == u and key is not None}) for u in {u for u, _ in rows}]
    with engine.read_by_bound(table.slice(0, 0), aggregation(columns, EVERY_BOUND, salt=salt)) as nothing:
        most_pairs = nothing.most_pairs
    for large in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dpsieve.engines.duckdb.engine._is_large", lambda _, large=large: large)
            with engine.read_by_bound(table, aggregation(columns, EVERY_BOUND, salt=salt)) as several:
                assert isinstance(several, FromPairs) != large
                assert several.units.tolist() == np.bincount([size for size in sizes if size], minlength=1001).tolist()
                assert numbers(several.under(most)) == numbers(plain)
                assert numbers(several.read_pairs().bound(most).count()) == numbers(plain)
                assert several.most_pairs == most_pairs  # from settings, not from the data


def test_data_beyond_the_memory_is_read_once(tmp_path, monkeypatch):
    """64 bytes a row would be more than a quarter of the limit, so no pairs are held; a bound is chosen all the same.

    The file may be gone by then. What is kept is in a private folder, which goes with it, also where nobody closes it.
    """
    rows = pa.table({"unit": np.repeat(np.arange(60_000), 2), "key": np.tile(["a", "b"], 60_000)})
    pa.parquet.write_table(rows, tmp_path / "rows.parquet")
    spare = tmp_path / "spare"
    spare.mkdir()
    told, engine = [], DuckDB(memory_limit="20MB", threads=2, compiled_from=0, temp_folder=spare)
    for name in ("engine.pairs_by_sql", "compiled.pairs.pairs_by_loops"):
        monkeypatch.setattr(f"dpsieve.engines.duckdb.{name}", lambda *_: pytest.fail("pairs were held"))
    where = str(tmp_path / "rows.parquet")
    how = {"salt": 1, "progress": told.append}
    several = engine.read_by_bound(where, aggregation(Columns(("key",), "unit"), EVERY_BOUND, **how))
    (tmp_path / "rows.parquet").unlink()
    assert [folder.stat().st_mode & 0o777 for folder in spare.iterdir()] == [0o700]
    for most, each in ((2, [60_000] * 2), (1000, [60_000] * 2)):
        assert sorted(several.under(most).frequencies.tolist()) == each
    assert several.under(1).frequencies.sum() == 60_000 and told == sorted(told) and told[-1] == 1.0
    del several
    assert list(spare.iterdir()) == []


def test_a_stream_beyond_the_memory_is_read_once(monkeypatch):
    monkeypatch.setattr("dpsieve.engines.duckdb.engine._BYTES_OF_A_PAIR", 1 << 40)
    text = "unit,key\n" + "".join(f"{unit},{key}\n" for unit in range(50) for key in "ab")
    with DuckDB().read_by_bound(
        DataStream(io.StringIO(text)), aggregation(Columns(("key",), "unit"), EVERY_BOUND, salt=1)
    ) as several:
        assert not isinstance(several, FromPairs) and numbers(several.under(2)) == {"a": 50, "b": 50}


def test_a_progress_that_raises_while_counts_are_kept_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("dpsieve.engines.duckdb.engine._is_large", lambda _: True)
    with pytest.raises(ZeroDivisionError) as caught:
        DuckDB(temp_folder=tmp_path).read_by_bound(
            table_of([("ann", "a")]),
            aggregation(Columns(("key",), "unit"), EVERY_BOUND, salt=1, progress=lambda share: 1 / 0),
        )
    assert list(tmp_path.iterdir()) == [], caught


def test_null_units_are_refused_before_anything_is_chosen(monkeypatch):
    table = table_of([("ann", "a"), (None, "b")])
    for large in (False, True):
        monkeypatch.setattr("dpsieve.engines.duckdb.engine._is_large", lambda _, large=large: large)
        for engine in (SQL, LOOPS):
            with pytest.raises(InvalidValue, match="nulls"):
                engine.read_by_bound(table, aggregation(Columns(("key",), "unit"), EVERY_BOUND, salt=1))
