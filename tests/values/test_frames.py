"""Columns of pandas: their dtype decides how keys are published, and no value does."""

import datetime as dt
import enum
import uuid
from decimal import Decimal, localcontext

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.counting import count

import dpsieve as ds
from dpsieve.engines import DuckDB
from dpsieve.values.columns import arrow_column

BUDGET = {"epsilon": 5.0, "delta": 1e-6}
RARE = [Decimal("123456.789"), 2.5, 2**70, b"\xff", "text", dt.date(2024, 1, 1), True, uuid.UUID(int=1)]


def released(keys, dtype=object):
    """The release of a frame in which each row is a unit."""
    frame = pd.DataFrame({"unit": range(len(keys)), "key": pd.Series(list(keys), dtype=dtype)})
    return ds.release(frame, key="key", privacy_unit="unit", **BUDGET).table


@pytest.mark.parametrize("rare", RARE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("common", [Decimal("1.5"), 2, "tea"], ids=lambda value: type(value).__name__)
def test_one_rare_value_does_not_change_the_type_of_the_others(common, rare):
    """Its unit is protected, so nobody may see that it was there."""
    without, with_it = released([common] * 200), released([common] * 200 + [rare])
    assert without.schema == with_it.schema and without.schema.field("key").type == pa.string()
    assert without.column("key").to_pylist() == with_it.column("key").to_pylist() == [str(common)]


def test_equal_whole_numbers_are_one_unit():
    """Otherwise a person could count twice by two spellings of one number."""
    units = pd.Series([1, 1.0, Decimal("1.00"), np.int64(1), np.float32(1), 2], dtype=object)
    frame = pd.DataFrame({"unit": units, "key": ["a"] * 6})
    counted = count(DuckDB(), frame)
    assert counted.frequencies.tolist() == [2]


def test_bytes_of_different_units_stay_different():
    texts = arrow_column(pd.Series([b"a", b"\xff", b"\\xff", b"\\", b"\\\\", b""], dtype=object)).to_pylist()
    assert texts[0] == "a" and len(set(texts)) == 6


COLUMNS = {
    "missing values": (pd.Series(["a", None, np.nan, pd.NA, pd.NaT], dtype=object), ["a"] + [None] * 4),
    "numbers": (pd.Series([-0.0, 1e2, 0.5, Decimal("1E+2"), 10**20], dtype=object), f"0 100 0.5 100 {10**20}".split()),
    "dates": (pd.Series([dt.date(2024, 1, 1)]), ["2024-01-01"]),
    "truth": (pd.Series([True, None, False], dtype=object), ["True", None, "False"]),
    "periods": (pd.Series(pd.period_range("2024-01", periods=2, freq="M")), ["2024-01", "2024-02"]),
    "intervals": (pd.Series(pd.interval_range(0, 2)), ["(0, 1]", "(1, 2]"]),
    "categories of intervals": (pd.Series(pd.cut([1, 9], [0, 5, 10])), ["(0, 5]", "(5, 10]"]),
    "categories of periods": (pd.Series(pd.Categorical(pd.period_range("2024", periods=1, freq="Y"))), ["2024"]),
    "categories of objects": (pd.Series(pd.Categorical([1, "a", None])), ["1", "a", None]),
}  # fmt: skip


@pytest.mark.parametrize("case", COLUMNS)
def test_what_becomes_text(case):
    column, texts = COLUMNS[case]
    assert arrow_column(column).to_pylist() == texts
    assert arrow_column(column.head(0)).type == arrow_column(column).type == pa.large_string()
    assert DuckDB().columns(pd.DataFrame({"key": column})) == [("key", "VARCHAR")]


def test_other_dtypes_keep_their_type():
    assert released([1, 2] * 100, "int64").schema.field("key").type == pa.int64()
    assert released([1, None] * 100, "Int64").column("key").to_pylist() == [1]
    assert released(["a"] * 100, "category").column("key").to_pylist() == ["a"]
    assert released([0.5, np.nan] * 100, "float64").column("key").to_pylist() == [0.5]


def test_times_with_a_zone_come_out_in_utc(monkeypatch):
    when = pd.Timestamp("2024-01-01", tz="Asia/Tokyo")
    for unit in ("us", "ns"):
        table = released([when] * 100, pd.DatetimeTZDtype(unit, "Asia/Tokyo"))
        assert table.schema.field("key").type == pa.timestamp(unit, "UTC")
        assert table.column("key").to_pandas().tolist() == [when]


def test_durations_and_complex_numbers_are_refused_by_their_type():
    with pytest.raises(ds.errors.InvalidType, match="INTERVAL, which cannot be a key"):
        released([pd.Timedelta(days=1)], "timedelta64[ns]")
    with pytest.raises(ds.errors.UnreadableData, match="cannot be read as a table"):
        released([1j], "complex128")


def test_a_broken_object_is_refused_without_its_words():
    class Broken:
        def __str__(self):
            raise ValueError("marked-secret")

    with pytest.raises(ds.errors.UnreadableData) as caught:
        released([Broken()])
    assert "marked" not in str(caught.value) and caught.value.__context__ is None


class Drink(str, enum.Enum):  # noqa: UP042
    """A text that `str` writes in another way."""

    TEA = "tea"


def test_one_rare_value_does_not_change_how_others_are_spelled():
    for dtype in (object, "category"):
        for rare in ([], [1]):
            assert released([Drink.TEA] * 200 + rare, dtype).column("key").to_pylist() == ["tea"]


class Person:
    """Equal by its number, and written by its place in memory."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    def __hash__(self):
        return hash(self.number)


@pytest.mark.parametrize("one", [lambda i: Person(1), lambda i: frozenset("abc"), lambda i: {"a": 1}, lambda i: [1]])
def test_objects_that_may_be_written_in_two_ways_are_refused(one):
    """Otherwise one unit would count as many."""
    frame = pd.DataFrame({"unit": pd.Series([one(i) for i in range(240)], dtype=object), "key": ["secret"] * 240})
    with pytest.raises(ds.errors.UnreadableData):
        ds.release(frame, key="key", privacy_unit="unit", **BUDGET)


def test_one_instant_in_two_zones_is_one_unit():
    zones = [dt.timezone(dt.timedelta(hours=hours)) for hours in (0, 1)]
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=zones[0])
    moved = pd.Series([noon, noon.astimezone(zones[1])], dtype=object)
    counted = count(DuckDB(), pd.DataFrame({"unit": moved, "key": ["a", "a"]}))
    assert counted.frequencies.tolist() == [1]


def test_numbers_keep_all_digits_in_any_decimal_context():
    """Rounded to four digits, three units would be one."""
    values = [Decimal("123.451"), Decimal("123.452"), Decimal("1.50"), Decimal("1." + "1" * 40), 10**400, 10**5000]
    values.append(Decimal("1E+400"))
    with localcontext() as context:
        context.prec = 4
        texts = arrow_column(pd.Series(values, dtype=object)).to_pylist()
    assert texts == ["123.451", "123.452", "1.5", "1." + "1" * 40, "1E+400", "1E+5000", "1E+400"]
