"""Keys and units of every type: nulls, odd texts, bytes, numbers, times."""

import datetime as dt
import decimal
import math
import uuid

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.counting import count

from dpsieve.errors import InvalidType, InvalidValue

pytestmark = pytest.mark.usefixtures("one_database")

TEXTS = [
    "",
    " ",
    "a",
    "A",
    "ä",
    "a\u0308",
    "🫖",
    "👩‍👩‍👧",
    "\x00",
    "a\x00b",
    "a",
    "\u202e",
    "\\N",
    "NULL",
    "'; --",
    '"',
    "x" * 100_000,
]


def one_each(keys, type_=None):
    return pa.table({"unit": range(len(keys)), "key": pa.array(keys, type_)})


def test_texts_are_told_apart_by_their_bytes(frequencies):
    assert frequencies(one_each(TEXTS)) == {text: TEXTS.count(text) for text in TEXTS}
    assert frequencies(one_each(TEXTS), max_keys=2) == {text: TEXTS.count(text) for text in TEXTS}


def test_texts_of_a_frame_survive(frequencies, tmp_path):
    for frame in (pl.from_arrow(one_each(TEXTS)), one_each(TEXTS).to_pandas()):
        assert frequencies(frame) == {text: TEXTS.count(text) for text in TEXTS}


@pytest.mark.parametrize(
    "keys",
    [
        [True, False],
        [-(2**63), 2**63 - 1],
        [b"", b"\x00", b"\xff\xfe", b"\x00\x00"],
        [decimal.Decimal("1.50"), decimal.Decimal("-2.25")],
        [dt.date(1970, 1, 1), dt.date(2262, 4, 12)],
        [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, microsecond=1)],
        [dt.time(0, 0), dt.time(23, 59, 59, 999_999)],
        [1.5, math.inf, -math.inf, 5e-324],
    ],
    ids=lambda keys: type(keys[0]).__name__,
)
def test_types_that_group(frequencies, keys):
    table = one_each([*keys, keys[0]])
    for bounds in ({}, {"max_keys": 2}, {"unit": None}):
        assert frequencies(table, **bounds) == {key: 1 + (key == keys[0]) for key in keys}


def test_large_numbers_and_identifiers(frequencies):
    connection = duckdb.connect()
    text = "SELECT 2::HUGEINT ** 100 AS h, uuid '00000000-0000-0000-0000-000000000001' AS u, 18446744073709551615 AS b"
    connection.execute(
        f"CREATE TABLE t AS {text.replace('2::HUGEINT ** 100', '1267650600228229401496703205376::HUGEINT')}"
    )
    key = ("h", "u", "b")
    assert frequencies((connection, "t"), key=key, unit=None) == {
        (str(2**100), str(uuid.UUID(int=1)), str(2**64 - 1)): 1
    }


def test_equal_numbers_are_one_key_and_written_in_one_way(frequencies):
    table = one_each([-0.0, 0.0, -0.0, math.nan, -math.nan])
    for bounds in ({}, {"max_keys": 3}):
        found = frequencies(table, **bounds)
        assert sorted(map(str, found)) == ["0.0", "nan"] and sorted(found.values()) == [2, 3]
    assert frequencies(pa.table({"unit": [1, 1], "key": [-0.0, 0.0]}), max_keys=2, max_rows=2) == {0.0: 2}


def test_missing_values_of_pandas_are_nulls(frequencies):
    frame = pd.DataFrame(
        {"unit": [1, 2, 3], "key": [1.5, np.nan, np.nan], "text": pd.array(["a", None, pd.NA], "object")}
    )
    assert frequencies(frame) == {1.5: 1}
    assert frequencies(frame, key="text") == {"a": 1}


def test_spelling_does_not_depend_on_a_collation(frequencies):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (unit INT, key VARCHAR COLLATE NOCASE)")
    connection.execute("INSERT INTO t VALUES (1, 'Tea'), (2, 'tea')")
    for bounds in ({}, {"max_keys": 2}, {"unit": None}):
        assert frequencies((connection, "t"), **bounds) == {"Tea": 1, "tea": 1}


def test_categories_that_do_not_occur_stay_behind(engine, frequencies):
    categories = pd.Categorical(["a", "a"], categories=["a", "marked-secret"])
    frames = [
        pd.DataFrame({"unit": [1, 2], "key": categories}),
        pl.DataFrame({"unit": [1, 2], "key": pl.Series(["a", "a"], dtype=pl.Enum(["a", "marked-secret"]))}),
        pa.table({"unit": [1, 2], "key": pa.DictionaryArray.from_arrays([0, 0], ["a", "marked-secret"])}),
    ]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT i AS unit, 'a'::ENUM('a', 'marked-secret') AS key FROM range(2) r(i)")
    for data in [*frames, (connection, "t")]:
        counted = count(engine, data)
        assert counted.keys.schema.field("key").type == pa.string()
        assert frequencies(data) == {"a": 2}


@pytest.mark.parametrize(
    "expression",
    [
        "{'a': 1}",
        "[1]",
        "map {1: 2}",
        "INTERVAL 1 MONTH",
        "'10:00:00+01'::TIMETZ",
        "'1'::BIT",
        "1::UHUGEINT",
        "['a'::ENUM('a')]",
    ],
)
def test_types_that_cannot_be_keys(engine, expression):
    relation = duckdb.connect().sql(f"SELECT 1 AS unit, {expression} AS key")
    with pytest.raises(InvalidType, match=r"key=.key. has the type .* cannot be a key"):
        count(engine, relation)
    counted = count(engine, relation, key=("unit",), unit="key")
    assert counted.frequencies.tolist() == [1]


def test_null_keys_are_dropped_before_keys_are_chosen(frequencies):
    table = pa.table({"unit": [1, 1, 1], "key": [None, "a", None], "more": [1, 2, 3]})
    for salt in range(5):
        assert frequencies(table, salt=salt) == {"a": 1}
        assert frequencies(table, key=("more", "key"), salt=salt) == {(2, "a"): 1}
    assert frequencies(table, unit=None) == {"a": 1}
    assert frequencies(pa.table({"unit": [1], "key": pa.nulls(1)})) == {}
    assert frequencies(pa.table({"unit": [1], "key": pa.nulls(1)}), max_keys=2) == {}


@pytest.mark.parametrize(
    "bounds", [{}, {"max_keys": 3}, {"max_rows": 2}, {"key": ("key", "more")}, {"max_keys": 2, "key": ("more", "key")}]
)
def test_null_units_are_refused_unless_allowed(frequencies, bounds):
    table = pa.table({"unit": [1, None, None], "key": ["a", "a", "b"], "more": ["x", "x", "x"]})
    with pytest.raises(InvalidValue, match="privacy_unit='unit' contains nulls") as caught:
        frequencies(table, **bounds)
    assert "2" not in str(caught.value)
    assert list(frequencies(table, allow_null_units=True, **bounds).values()) == [1]
    assert frequencies(table.slice(1), allow_null_units=True, **bounds) == {}


def test_a_null_unit_of_a_dropped_row_does_no_harm(frequencies):
    assert frequencies(pa.table({"unit": [1, None], "key": ["a", None]})) == {"a": 1}


def test_units_of_any_type(frequencies):
    for units in (
        ["x", "x", "y"],
        [1.5, 1.5, 2.5],
        [[1], [1], [2]],
        [{"a": 1}, {"a": 1}, {"a": None}],
        [b"", b"", b"\x00"],
    ):
        assert frequencies(pa.table({"unit": units, "key": ["k"] * 3})) == {"k": 2}
        assert frequencies(pa.table({"unit": units, "key": ["k"] * 3}), max_keys=3) == {"k": 2}
