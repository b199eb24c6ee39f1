"""Texts and numbers that someone chose for their hashes cost what others cost, and are counted as others are.

DuckDB's hash of a text of 16 bytes is a one-to-one function of ((start ^ first) * M ^ second) * M, with a public start
and multiplier: for any first half there is a second one that leads to the same hash.
"""

import time
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from helpers.counting import aggregation, count, found, task

from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.duckdb.compiled import pairs as compiled_pairs
from dpsieve.engines.engine import NumberColumns
from dpsieve.engines.sql.columns import Column
from dpsieve.engines.sql.queries import DUCKDB, bounded_query, number_query, pairs_query, places_query
from dpsieve.privacy.guarantee import Contribution, Weight

pytestmark = pytest.mark.usefixtures("one_database")

MULTIPLIER = 0xD6E8FEB86659FD93
SQL, COMPILED = DuckDB(compiled_from=None, threads=2), DuckDB(compiled_from=0, threads=2)
COLUMNS = Columns(("key",), ("unit",))
MANY = 20_000


@cache
def texts_of_one_hash(count):
    """Return texts of ASCII characters that DuckDB hashes to one number."""
    made, goal = [], None
    with np.errstate(over="ignore"):
        start = np.uint64(0xE17A1465 ^ 16 * 0xC6A4A7935BD1E995 & 2**64 - 1)
        random = np.random.default_rng(0)
        while len(made) < count:
            letters = random.integers(32, 127, (1 << 20, 8)).astype(np.uint8)
            first = letters.view(np.uint64).ravel()
            state = (start ^ first) * np.uint64(MULTIPLIER)
            goal = state[0] ^ first[0] if goal is None else goal
            second = state ^ goal
            fits = second & np.uint64(0x8080808080808080) == 0
            made += [pair.tobytes().decode() for pair in np.stack([first[fits], second[fits]], axis=1)]
            made = sorted(set(made))
    return made[:count]


@cache
def numbers_of_one_slot(count):
    """Return whole numbers whose hashes agree in the lower 40 bits, which choose where tables are searched."""
    hashes = np.arange(count, dtype=np.uint64) << np.uint64(40) | np.uint64(0x1234567890)
    with np.errstate(over="ignore"):
        for _ in range(2):
            hashes ^= hashes >> np.uint64(32)
            hashes *= np.uint64(pow(MULTIPLIER, -1, 2**64))
    return (hashes ^ hashes >> np.uint64(32)).view(np.int64)


@cache
def plain_texts(count):
    return [bytes(row).decode() for row in np.random.default_rng(7).integers(32, 127, (count, 16)).astype(np.uint8)]


def of_one_unit(keys, unit=1):
    return pa.table({"unit": np.full(len(keys), unit), "key": keys})


def shuffled(table, seed=0):
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def seconds(act):
    """Return the processor time of the better of two rounds."""
    rounds = []
    for _ in range(2):
        start = time.process_time()
        act()
        rounds.append(time.process_time() - start)
    return min(rounds)


def hashes(expression, values):
    connection = duckdb.connect()
    connection.register("given", pa.table({"k0": values}))
    return connection.execute(
        f"SELECT count(DISTINCT h), count(*) FROM (SELECT {expression} AS h FROM given)"
    ).fetchall()


def test_the_values_are_what_they_are_said_to_be():
    """Otherwise the tests below would test nothing."""
    assert hashes("hash(k0)", texts_of_one_hash(MANY)) == [(1, MANY)]
    assert hashes("hash(k0) & (2**40 - 1)::UBIGINT", numbers_of_one_slot(MANY)) == [(1, MANY)]
    assert hashes(DUCKDB.choice(5, ["7"], ["k0"]), texts_of_one_hash(MANY)) == [(1, MANY)]


@pytest.mark.parametrize("salt", [0, 2**64 - 1])
def test_buckets_spread_them(salt):
    """As well as random numbers do: no two are expected to agree, and all places of a table to be used."""
    texts, numbers = texts_of_one_hash(MANY), numbers_of_one_slot(MANY)
    for values, kind in ((texts, "VARCHAR"), ([t.encode() for t in texts], "BLOB"), (numbers, "BIGINT")):
        bucket = DUCKDB.bucket(salt, ["k0"], [kind])
        assert hashes(bucket, values) == [(MANY, MANY)]
        ((lower, _),) = hashes(f"hash({bucket}) & 4095::UBIGINT", values)
        assert lower > 3900  # 4065 on average, with a standard deviation of 5
    exact = DUCKDB.bucket(salt, ["k0"], ["DECIMAL"])
    assert hashes(exact, pa.array(numbers.tolist(), pa.decimal128(38, 0))) == [(MANY, MANY)]
    assert DUCKDB.bucket(1, ["k0"], ["VARCHAR"]) != DUCKDB.bucket(2, ["k0"], ["VARCHAR"])


def test_a_bucket_is_grouped_by_in_every_query_that_one_unit_may_add_many_values_to():
    """DuckDB leaves out groups that it can compute from others, so its plans are looked at."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (unit BIGINT, key VARCHAR, more DOUBLE)")
    connection.execute("CREATE TABLE known (k0 VARCHAR, i BIGINT)")
    kinds = {"unit": "BIGINT", "key": "VARCHAR", "more": "DOUBLE"}
    columns = {name: Column(name, name, kind) for name, kind in kinds.items()}
    several = ({"max_keys": 2000}, {"max_keys": 2000, "max_rows": 2}, {"max_keys": 2000, "measure": Weight(20)})
    expected = []
    for bounds in several:
        pairs = "#0, #1, #2"
        expected.append((bounded_query("t", columns, task(**bounds)), [pairs, "#0, #1"]))
        expected.append((pairs_query("t", columns, task(max_keys=bounds["max_keys"])), [pairs, "#0, #1"]))
    expected.append((bounded_query("t", columns, task(max_keys=3)), ["#0, #1, #2", "#0"]))
    expected.append((places_query("t", columns, task(max_keys=2000)), ["#0, #1, #2", "#0, #1, #2"]))
    expected.append((number_query("t", columns, task(("more",), max_rows=3)), ["#0, #1, #2", "#0"]))
    for text, groups in expected:
        ((_, plan),) = connection.execute(f"EXPLAIN {text}").fetchall()
        shown = [line.strip("│ ").removeprefix("Groups: ") for line in plan.splitlines() if "Groups: " in line]
        assert shown[::-1] == groups, text
    ((_, plan),) = connection.execute(f"EXPLAIN {bounded_query('t', columns, task(), 'known')}").fetchall()
    assert "k0 = k0" in plan and "b = b" in plan


@pytest.mark.parametrize("keys", [texts_of_one_hash, numbers_of_one_slot], ids=["texts", "numbers"])
def test_a_unit_takes_no_longer_for_its_hashes(keys):
    """Chosen texts took a hundred times as long, and chosen numbers twenty times."""
    if keys is texts_of_one_hash:
        chosen, plain, public = keys(MANY), plain_texts(MANY), plain_texts(2 * MANY)
    else:
        chosen, plain, public = keys(2 * MANY), np.random.default_rng(1).integers(0, 2**62, 2 * MANY), range(3 * MANY)
    known = pa.table({"key": pa.array(public)})  # the longer side of a join
    jobs = [
        lambda table: count(SQL, table, max_keys=1000),
        lambda table: count(SQL, table, max_keys=10**6),
        lambda table: SQL.read_pairs(table, aggregation(COLUMNS, Contribution(10**6), salt=1)),
        lambda table: count(SQL, table, known=known),
        lambda table: count(COMPILED, table),
        lambda table: COMPILED.read_pairs(table, aggregation(COLUMNS, Contribution(10**6), salt=1)),
    ]
    for job in jobs:
        first, second = (seconds(lambda job=job, of=of: job(of_one_unit(of))) for of in (chosen, plain))
        assert first < 0.1 + 3 * second


def test_numbers_take_no_longer_for_their_hashes():
    rows = numbers_of_one_slot(2 * MANY).view(np.float64)
    rows = rows[np.isfinite(rows)]
    plain = np.random.default_rng(1).random(len(rows))

    def job(values):
        table = pa.table({"unit": np.ones(len(values), np.int64), "x": values})
        return lambda: SQL.read_numbers(
            table, aggregation(NumberColumns(("x",), ("unit",)), Contribution(rows=10), salt=1)
        )

    assert len(rows) > MANY and seconds(job(rows)) < 0.1 + 3 * seconds(job(plain))


@pytest.fixture
def no_fallback(monkeypatch):
    """Compiled loops that give up fail here."""
    real = compiled_pairs.read_pairs

    def checked(*given):
        made = real(*given)
        assert made is not None
        return made

    monkeypatch.setattr(compiled_pairs, "read_pairs", checked)


@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
@pytest.mark.parametrize("max_keys", [1, 2, 50, 1000])
def test_compiled_loops_do_not_give_up_and_choose_as_sql_does(text_units, max_keys, no_fallback):
    """Units that hold some of 300 texts of one hash, and some others, in any order of rows."""
    random, tied, others = np.random.default_rng(max_keys), texts_of_one_hash(300), plain_texts(50)
    units = random.integers(0, 40, 6000)
    keys = [tied[i] if i < 300 else others[i - 300] for i in random.integers(0, 350, 6000)]
    table = pa.table({"unit": units.astype(str) if text_units else units, "key": keys})
    for salt in (1, 2**63):
        one = found(SQL, table, max_keys=max_keys, salt=salt)
        for seed in (0, 1):
            assert found(COMPILED, shuffled(table, seed), max_keys=max_keys, salt=salt) == one
        made = [
            engine.read_pairs(table, aggregation(COLUMNS, Contribution(max_keys), salt=salt))
            for engine in (SQL, COMPILED)
        ]
        held = [(m.keys["key"].take(m.key_numbers).to_pylist(), m.starts.tolist()) for m in made]
        assert held[0] == held[1]
        alone = [found(SQL, table.filter(pa.array(units == u)), max_keys=max_keys, salt=salt) for u in range(40)]
        assert one == {key: total for key in one if (total := sum(each.get(key, 0) for each in alone))}


@pytest.mark.parametrize("order", ["rising", "falling", "pipe", "saw"])
def test_no_order_of_tied_keys_takes_long_to_sort(order):
    """Where a sort divides them is secret."""
    tied = texts_of_one_hash(MANY)
    orders = {
        "rising": tied,
        "falling": tied[::-1],
        "pipe": tied[::2] + tied[1::2][::-1],
        "saw": [tied[i] for i in sorted(range(MANY), key=lambda i: (i % 171, i))],
    }
    plain = seconds(
        lambda: COMPILED.read_pairs(of_one_unit(plain_texts(MANY)), aggregation(COLUMNS, Contribution(5), salt=1))
    )
    made = COMPILED.read_pairs(of_one_unit(orders[order]), aggregation(COLUMNS, Contribution(5), salt=1))
    assert sorted(made.keys["key"].to_pylist()) == tied[:5]
    taken = seconds(
        lambda: COMPILED.read_pairs(of_one_unit(orders[order]), aggregation(COLUMNS, Contribution(5), salt=1))
    )
    assert taken < 0.1 + 3 * plain


def test_several_key_columns_and_bytes():
    """Values of all columns are chosen; what is kept is the same in any order, and takes no longer."""
    tied = texts_of_one_hash(400)
    rows = [(1, a, b.encode()) for a in tied[:20] for b in tied[:20]]
    table = pa.table(dict(zip(("unit", "a", "b"), zip(*rows, strict=True), strict=True)))
    made = found(SQL, table, key=("a", "b"), max_keys=1000)
    assert len(made) == 400 and set(made.values()) == {1}
    few = found(SQL, table, key=("a", "b"), max_keys=7)
    assert few == found(SQL, shuffled(table), key=("a", "b"), max_keys=7)
    assert sorted(few) == sorted((a, b) for _, a, b in rows)[:7]  # all are tied
