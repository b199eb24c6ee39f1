"""What compiled loops return is checked before anything is charged: a fault in a loop costs time, not the bound."""

import contextlib
import ctypes
import logging

import numpy as np
import pyarrow as pa
import pytest
from counting import count
from numba.core.errors import LoweringError

from dpsieve.compiled.jit import callback
from dpsieve.engines import DuckDB
from dpsieve.engines.duckdb.compiled import database as own_database
from dpsieve.engines.duckdb.compiled import one_key, one_key_loops, pair_loops
from dpsieve.engines.duckdb.compiled.chunks import answer, end, frame_of, rows_of
from dpsieve.engines.duckdb.compiled.one_key_loops import FIELDS, IS_TEXT, LINE, TABLE

COMPILED, SQL = DuckDB(compiled_from=0, threads=2), DuckDB(compiled_from=None)
UNITS = 400
ROWS = pa.table({"unit": [i % UNITS for i in range(4 * UNITS)], "key": [f"key {i * i % 83}" for i in range(4 * UNITS)]})
TEXTS = ROWS.set_column(0, "unit", ROWS["unit"].cast(pa.string()))


def counts(table, engine, max_keys=1):
    counted = count(engine, table, salt=5, max_keys=max_keys)
    return dict(zip(counted.keys.column("key").to_pylist(), counted.frequencies.tolist(), strict=True))


@pytest.fixture(autouse=True)
def small_tables(monkeypatch):
    monkeypatch.setattr(one_key, "_FIRST_CELLS", 1 << 8)


def sql_counted(caplog, rule):
    return any(rule in record.message and "SQL counts instead" in record.message for record in caplog.records)


@pytest.mark.parametrize("table", [ROWS, TEXTS], ids=["numbers", "texts"])
def test_a_unit_with_two_cells(table, monkeypatch, caplog):
    """The fault: the first unit of a part is also written to its last free cell, and counted."""
    real = one_key_loops.tally

    def twice(frame, part, numbers):
        cells = _cells(int(frame[TABLE]), 4 if frame[IS_TEXT] else 2)
        used, free = np.flatnonzero(cells[:, 0]), np.flatnonzero(cells[:, 0] == 0)
        cells[free[-1]] = cells[used[0]]
        frame[one_key_loops.UNITS] += 1
        return real(frame, part, numbers)

    expected = counts(table, SQL)
    assert counts(table, COMPILED) == expected
    assert not caplog.records, "no check fails without a fault"
    monkeypatch.setattr(one_key_loops, "tally", twice)
    assert counts(table, COMPILED) == expected
    assert sql_counted(caplog, "counted more than once")


def _cells(address, width):
    """Return the cells of a table where they lie."""
    count = ctypes.c_uint64.from_address(address).value
    words = (ctypes.c_uint64 * (count * width)).from_address(address + LINE)
    return np.frombuffer(words, np.uint64).reshape(count, width)


@pytest.mark.parametrize("fault", ["bound", "twice", "again"])
@pytest.mark.parametrize("table", [ROWS, TEXTS], ids=["numbers", "texts"])
def test_a_unit_that_keeps_too_much(table, fault, monkeypatch, caplog):
    real = pair_loops.settle

    def faulty(units, keys, orders, most, *more):
        kept, found = real(units, keys, orders, most + 1 if fault == "bound" else most, *more)
        sizes = more[3]
        if fault == "twice" and found > 1:  # the second unit is the first one again
            units[1] = units[0]
        if fault == "again" and sizes[0] > 1:  # a key of the first unit counts twice
            keys[1], orders[1] = keys[0], orders[0]
        return kept, found

    expected = counts(table, SQL, max_keys=2)
    assert counts(table, COMPILED, max_keys=2) == expected
    assert not caplog.records
    monkeypatch.setattr(pair_loops, "settle", faulty)
    assert counts(table, COMPILED, max_keys=2) == expected
    assert sql_counted(caplog, "more keys than its bound")


def test_sums_that_count_a_pair_twice(monkeypatch, caplog):
    real = pair_loops.sums

    def faulty(starts, keys, weights, totals, present):
        real(starts, keys, weights, totals, present)
        totals[keys[0]] += 1

    expected = counts(ROWS, SQL, max_keys=2)
    monkeypatch.setattr(pair_loops, "sums", faulty)
    assert counts(ROWS, COMPILED, max_keys=2) == expected
    assert sql_counted(caplog, "sums of keys")


@callback("void(int64, int64, int64)")
def skips_a_row(info, chunk, result):
    frame = frame_of(info, FIELDS)
    answer(result, rows_of(chunk))
    end(frame, rows_of(chunk) - 1)


def test_rows_that_no_loop_has_seen(caplog):
    common = one_key._Common(1, 1 << 30, 1, None, text_units=False, text_keys=True)
    part = one_key._Part(common)
    with contextlib.closing(own_database.OwnDatabase({})) as database, pytest.raises(own_database.Unavailable):
        database.visit("SELECT range AS u FROM range(5)", {"u": "BIGINT"}, skips_a_row.address, [part])
    assert sql_counted(caplog, "not every row")


@pytest.mark.parametrize("max_keys", [1, 2])
def test_a_failure_of_compiled_code_does_not_blame_the_data(max_keys, monkeypatch, caplog):
    """Whatever numba or llvmlite raise, SQL answers."""
    expected = counts(ROWS, SQL, max_keys=max_keys)

    def fail(*_):
        raise LoweringError("llvm")

    monkeypatch.setattr(one_key_loops, "tally", fail)
    monkeypatch.setattr(pair_loops, "settle", fail)
    with caplog.at_level(logging.WARNING, "dpsieve"):
        assert counts(ROWS, COMPILED, max_keys=max_keys) == expected
    assert sql_counted(caplog, "LoweringError")
    assert "llvm" not in caplog.text
