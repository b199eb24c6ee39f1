"""The two rules of the room: no value decides a type, and errors quote no value."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.errors import DpsieveError
from dpsieve.values.columns import column_of, plain_items, tried
from dpsieve.values.keys import key_table, known_table, refuse_equal

SECRET = "marked-secret"
READERS = {
    "column_of": lambda values: column_of("values", values, "Pass a list."),
    "plain_items": lambda values: plain_items(values, "items", "Pass a list."),
    "key_table": lambda values: key_table(values).column(0),
    "known_table": lambda values: known_table(values, ("key",)).column(0),
}
FORMS = {
    "list": list,
    "tuple": tuple,
    "iterator": iter,
    "numpy": lambda texts: np.array(texts),
    "numpy objects": lambda texts: np.array(texts, dtype=object),
    "arrow": pa.array,
    "chunks": lambda texts: pa.chunked_array([texts[:1], texts[1:]]),
    "dictionary": lambda texts: pa.array(texts).dictionary_encode(),
    "views": lambda texts: pa.array(texts, pa.string_view()),
    "pandas": pd.Series,
    "categories": lambda texts: pd.Series(texts, dtype="category"),
    "polars": pl.Series,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_every_form_gives_the_same_values(read):
    for name, form in FORMS.items():
        assert read(form(["tea", "milk", "é"])).to_pylist() == ["tea", "milk", "é"], name


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize(
    "values",
    [SECRET, SECRET.encode(), {SECRET: 1}, [SECRET, 1], [SECRET + "\ud800"], [{SECRET}], [[SECRET], [1]], 5],
    ids=["text", "bytes", "mapping", "mixed", "surrogate", "set", "nested", "number"],
)
def test_what_is_refused_is_not_quoted(read, values):
    try:
        made = read(values)
    except DpsieveError as error:
        assert SECRET not in str(error) and error.__context__ is None and error.__cause__ is None
    else:  # column_of leaves nested types to those that call it
        assert pa.types.is_nested(made.type)


@pytest.mark.parametrize("rare", [Decimal("1.25"), 2.5, "text", b"\xff", dt.datetime(2024, 1, 1), True])
def test_a_key_that_is_not_released_does_not_change_the_type(rare):
    """A list of several types has none of its own, so that it is refused whatever the rare value is."""
    common = [1, 2, 3]
    assert key_table(common).column(0).type == pa.int64()
    with pytest.raises(DpsieveError, match="several types"):
        key_table([*common, rare])
    assert key_table([1, 2**62]).column(0).type == pa.int64()


def test_keys_are_sorted_without_nulls_and_once():
    for keys, said in ((["a", None], "nulls"), (pa.array([[1], [2]]), "cannot be sorted"), ({"a", "b"}, "set")):
        with pytest.raises(DpsieveError, match=said):
            key_table(keys)
    pairs = pa.StructArray.from_arrays([pa.array(["a", "a"]), pa.array([1, 2])], ["x", "y"])
    refuse_equal(key_table(pairs))
    assert key_table(pairs).column_names == ["x", "y"]
    with pytest.raises(DpsieveError, match="more than once"):
        refuse_equal(key_table(pairs.take([0, 0])))
    zoned = pa.array([0], pa.timestamp("us", "Europe/Berlin"))
    assert key_table(zoned).column(0).type == pa.timestamp("us", "UTC")


def test_a_failed_step_leaves_only_its_class():
    assert tried(lambda: 1) == (1, None)
    assert tried(lambda: int(SECRET)) == (None, ValueError)


@pytest.mark.parametrize("name", ["", "a\x1b[2J", "a\nb", "count"])
def test_names_of_key_columns_that_a_release_cannot_have(name):
    with pytest.raises(DpsieveError, match=r"^key"):
        key_table(pa.table({name: ["tea"]}))


@pytest.mark.parametrize("form", [np.asarray, pa.array, list, lambda values: pa.table({"key": values})])
def test_known_keys_of_half_precision_become_wider_ones(form):
    """Engines neither join nor sort float16; float32 holds all its values."""
    keys = known_table(form(np.array([1.0, 2.5, 0.1], np.float16)), ("key",))
    assert keys.schema.types == [pa.float32()] and keys["key"].to_pylist() == [1.0, 2.5, float(np.float16(0.1))]
    table = pa.table({"user": range(600), "key": [1.0, 2.5, 7.0] * 200})
    release = ds.release(
        table,
        key="key",
        privacy_unit="user",
        epsilon=1.0,
        delta=1e-6,
        known_keys=form(np.array([1.0, 9.0], np.float16)),
        max_keys_per_unit=1,
    )
    assert release.table["key"].to_pylist() == [1.0, 9.0] and release.table["count"][0].as_py() > 150
