"""What compiled loops return is checked before anything is charged: a fault in a loop costs time, not the bound."""

import logging

import pyarrow as pa
import pytest
from helpers.counting import count
from numba.core.errors import LoweringError

from dpsieve.compiled.jit import callback
from dpsieve.engines import DuckDB
from dpsieve.engines.duckdb.compiled import database as own_database
from dpsieve.engines.duckdb.compiled import pair_loops, pairs
from dpsieve.engines.duckdb.compiled.chunks import FIELDS, answer, end, frame_of, rows_of
from dpsieve.engines.duckdb.compiled.numbering import Memory
from dpsieve.engines.true_data import Pairs

COMPILED, SQL = DuckDB(compiled_from=0, threads=2), DuckDB(compiled_from=None)
UNITS = 400
ROWS = pa.table({"unit": [i % UNITS for i in range(4 * UNITS)], "key": [f"key {i * i % 83}" for i in range(4 * UNITS)]})
TEXTS = ROWS.set_column(0, "unit", ROWS["unit"].cast(pa.string()))


def counts(table, engine, max_keys=1):
    counted = count(engine, table, salt=5, max_keys=max_keys)
    return dict(zip(counted.keys.column("key").to_pylist(), counted.frequencies.tolist(), strict=True))


def sql_counted(caplog, rule):
    return any(rule in record.message and "SQL counts instead" in record.message for record in caplog.records)


@pytest.mark.parametrize(("fault", "most"), [("bound", 2), ("twice", 2), ("again", 2), ("bound", 1), ("twice", 1)])
@pytest.mark.parametrize("table", [ROWS, TEXTS], ids=["numbers", "texts"])
def test_a_unit_that_keeps_too_much(table, fault, most, monkeypatch, caplog):
    real = pair_loops.settle

    def faulty(part, chains, parts, unit_side, key_side, bound, salt, scratch):
        sides = part, chains, parts, unit_side, key_side
        kept, found = real(*sides, bound + 1 if fault == "bound" else bound, salt, scratch)
        units, keys, orders, sizes = scratch[:4]
        if fault == "twice" and found > 1:  # the second unit is the first one again
            units[1] = units[0]
        if fault == "again" and sizes[0] > 1:  # a key of the first unit counts twice
            keys[1], orders[1] = keys[0], orders[0]
        return kept, found

    expected = counts(table, SQL, max_keys=most)
    assert counts(table, COMPILED, max_keys=most) == expected
    assert not caplog.records
    monkeypatch.setattr(pair_loops, "settle", faulty)
    assert counts(table, COMPILED, max_keys=most) == expected
    assert sql_counted(caplog, "more keys than its bound")


def test_sums_that_count_a_pair_twice(monkeypatch, caplog):
    real = Pairs.counts

    def faulty(pairs, most=None):
        counts = real(pairs, most)
        counts[0] += 1
        return counts

    expected = counts(ROWS, SQL, max_keys=2)
    monkeypatch.setattr(Pairs, "counts", faulty)
    assert counts(ROWS, COMPILED, max_keys=2) == expected
    assert sql_counted(caplog, "sums of keys")


@callback("void(int64, int64, int64)")
def skips_a_row(info, chunk, result):
    frame = frame_of(info, FIELDS)
    answer(result, rows_of(chunk))
    end(frame, rows_of(chunk) - 1)


def test_rows_that_no_loop_has_seen(caplog):
    part = pairs._Collected(None, None, [0, 0], 1, 5, Memory(1 << 30), 1)
    with own_database.OwnDatabase({}).opened() as database, pytest.raises(own_database.Unavailable):
        database.visit("SELECT range AS u FROM range(5)", {"u": "BIGINT"}, skips_a_row.address, [part])
    assert sql_counted(caplog, "not every row")


@pytest.mark.parametrize("max_keys", [1, 2])
def test_a_failure_of_compiled_code_does_not_blame_the_data(max_keys, monkeypatch, caplog):
    """Whatever numba or llvmlite raise, SQL answers."""
    expected = counts(ROWS, SQL, max_keys=max_keys)

    def fail(*_):
        raise LoweringError("llvm")

    monkeypatch.setattr(pair_loops, "settle", fail)
    with caplog.at_level(logging.WARNING, "dpsieve"):
        assert counts(ROWS, COMPILED, max_keys=max_keys) == expected
    assert sql_counted(caplog, "LoweringError")
    assert "llvm" not in caplog.text
