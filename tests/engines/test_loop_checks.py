"""What compiled loops return is checked before anything is charged: a fault in a loop costs time, not the bound."""

import logging
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from helpers.counting import count
from numba.core.errors import LoweringError

from dpsieve.engines import DuckDB
from dpsieve.engines.duckdb.compiled import pair_loops
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

    def faulty(part, chains, parts, unit_side, key_side, bound, salt, totals, scratch):
        sides = part, chains, parts, unit_side, key_side
        kept, found = real(*sides, bound + 1 if fault == "bound" else bound, salt, totals, scratch)
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


@pytest.mark.parametrize("row", [0, 1], ids=["count", "sum"])
@pytest.mark.parametrize("most", [None, 2], ids=["all", "bounded"])
def test_numbers_of_keys_that_are_not_those_of_the_units(row, most, monkeypatch, caplog):
    """The loops that add up by key count a pair twice: numpy counts instead, also under a bound that was chosen."""
    real = pair_loops.count_keys

    def faulty(starts, key_numbers, added, most, begin, stop, numbers):
        real(starts, key_numbers, added, most, begin, stop, numbers)
        if stop:
            numbers[row, 0] += begin == 0

    pairs = replace(Pairs.of([[1, 2, 3], [2, 3], [3]]), amounts=np.array([[1.0, 2, 4, 8, 16, 32]]))
    expected = pairs.count(most)
    monkeypatch.setattr("dpsieve.engines.true_data._COMPILED_FROM", 0)
    assert_same = lambda: assert_counted(pairs.count(most), expected)  # noqa: E731
    assert_same()
    assert not caplog.records
    monkeypatch.setattr(pair_loops, "count_keys", faulty)
    assert_same()
    assert "sums of keys" in caplog.text


def assert_counted(found, expected):
    assert found.frequencies.tolist() == expected.frequencies.tolist()
    assert found.sums.tolist() == expected.sums.tolist()


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
