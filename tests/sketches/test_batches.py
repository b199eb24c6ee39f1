"""What can be counted: one stream in all the shapes in which people hold it, and clear words about the rest."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.sketches import MisraGries

WORDS = [
    "tea",
    "milk",
    "",
    "tea",
    "a word of more than twelve bytes",
    "né",
    "tea",
    "salt",
    "milk",
    "a word of more than",
]
NUMBERS = [3, -1, 3, 3, 7, 0, 100, 7, -128, 3]


def state(items, counters=3):
    sketch = MisraGries(counters)
    sketch.update(items)
    return sketch.kind, list(sketch), sketch.decrements, sketch.items


def with_nulls(values):
    return [None, *(part for value in values for part in (value, None))]


@pytest.mark.parametrize(
    "shape",
    [
        tuple,
        iter,
        lambda words: (word for word in words),
        np.array,
        lambda words: np.array(words, object),
        lambda words: np.array(words, np.dtypes.StringDType()),
        pa.array,
        lambda words: pa.array(words, pa.large_string()),
        lambda words: pa.array(words, pa.string_view()),
        lambda words: pa.array(words).dictionary_encode(),
        lambda words: pa.array(["no", *words, "no"])[1:-1],
        lambda words: pa.array(["no", *words, "no"], pa.string_view())[1:-1],
        lambda words: pa.array(["no", *words, "no"]).dictionary_encode()[1:-1],
        lambda words: pa.chunked_array([words[:4], [], words[4:5], words[5:]]),
        lambda words: pa.chunked_array([pa.array(part).dictionary_encode() for part in (words[:4], words[4:])]),
        pd.Series,
        pd.Index,
        lambda words: pd.Series(words, dtype="category"),
        lambda words: pd.Series(words, dtype=object)[::1],
        pl.Series,
        lambda words: pl.Series(words, dtype=pl.Categorical),
    ],
)
def test_text_in_many_shapes(shape):
    assert state(shape(WORDS)) == state(WORDS)


@pytest.mark.parametrize(
    "shape",
    [
        list,
        lambda words: np.array(words, object),
        pa.array,
        lambda words: pa.array(words, pa.string_view()),
        lambda words: pa.array(words).dictionary_encode(),
        lambda words: pa.DictionaryArray.from_arrays(pa.array(range(len(words))), pa.array(words)),
        lambda words: pa.DictionaryArray.from_arrays(
            pa.array(range(len(words))), pa.array([*words, "no"], pa.string_view())
        ),
        lambda words: pd.Series(words, dtype=object),
        lambda words: pd.Series(words, dtype="category"),
        lambda words: pl.Series(words),
    ],
)
def test_nulls_are_dropped(shape):
    assert state(shape(with_nulls(WORDS))) == state(WORDS)


@pytest.mark.parametrize(
    "shape",
    [
        np.array,
        lambda words: pa.array(words, pa.binary()),
        lambda words: pa.array(words, pa.large_binary()),
        lambda words: pa.array(words, pa.binary_view()),
        lambda words: pa.array(words).dictionary_encode(),
        pl.Series,
        lambda words: pd.Series(words, dtype=object),
    ],
)
def test_bytes_in_many_shapes(shape):
    words = [word.encode("latin-1") for word in WORDS]  # not UTF-8
    assert state(shape(words)) == state(words)


def test_bytes_of_a_fixed_size():
    words = [word[:2].ljust(2).encode("latin-1") for word in WORDS]
    assert state(pa.array(words, pa.binary(2))) == state(words)


@pytest.mark.parametrize(
    "shape",
    [
        lambda values: values,
        lambda values: np.repeat(values, 2)[::2],
        lambda values: values.astype(values.dtype.newbyteorder()),
        lambda values: np.ma.array(np.repeat(values, 2), mask=[False, True] * len(values)),
        lambda values: values.tolist(),
        list,
        pa.array,
        lambda values: pa.array([0, *values, 0], pa.from_numpy_dtype(values.dtype))[1:-1],
        lambda values: pa.array(with_nulls(values.tolist()), pa.from_numpy_dtype(values.dtype)),
        lambda values: pa.array(values).dictionary_encode(),
        lambda values: pa.chunked_array([values[:3], values[3:]]),
        pd.Series,
        lambda values: pd.Series(with_nulls(values.tolist()), dtype="Int64"),
        pl.Series,
    ],
)
def test_integers_in_many_shapes(shape):
    for kind in ("int8", "int16", "int32", "int64"):
        assert state(shape(np.array(NUMBERS, kind))) == state(NUMBERS), kind


def test_unsigned_integers():
    assert state(np.array([2**63 - 1, 5], np.uint64)) == state([2**63 - 1, 5])
    for items in (
        np.array([1, 2**63], np.uint64),
        pa.array([1, 2**63], pa.uint64()),
        [2**63],
        [-(2**63) - 1],
        [2**100],
        [np.uint64(2**63)],
    ):
        with pytest.raises(InvalidValue, match="64 bits"):
            state(items)


@pytest.mark.parametrize(
    "nothing",
    [
        [],
        (),
        [None, None],
        np.array([]),
        pa.array([]),
        pa.array([None], pa.string()),
        pa.chunked_array([], pa.string()),
        pa.array([None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array([None], pa.string())),
        pd.Series([], dtype=object),
        pl.Series([]),
    ],
)
def test_a_batch_without_items_settles_nothing(nothing):
    sketch = MisraGries(3)
    sketch.update(nothing)
    assert sketch.kind is None and sketch.items == 0
    sketch.update(["tea"])
    sketch.update(nothing)
    assert (sketch.kind, sketch.items) == ("text", 1)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ("tea", r"Wrap it in a list: \[item\]"),
        (b"tea", r"Wrap it in a list: \[item\]"),
        (5, "not int"),
        (None, "not NoneType"),
        ({"tea": 3}, "mapping"),
        (["tea", b"tea"], "mixes bytes and text"),
        (["tea", 5], "mixes integers and text"),
        (pd.Series(["tea", None, b"tea"], dtype=object), "mixes bytes and text"),
        (pd.Series(["tea", b"tea"], dtype="category"), "mixes bytes and text"),
        ([1, True], "bool"),
        ([True], "bool"),
        ([np.bool_(True)], "bool"),
        ([1.0], "float"),
        ([1, float("nan")], "float"),
        ([("a", "b")], "tuple"),
        ([decimal.Decimal(1)], "Decimal"),
        ([datetime.date(2020, 1, 1)], "date"),
        ([bytearray(b"x")], "bytearray"),
        (np.array([1.0]), "float64"),
        (np.array([True]), "bool"),
        (np.array(["2020-01-01"], "datetime64[ns]"), "datetime64"),
        (np.array([[1]]), "2 dimensions"),
        (np.array(1), "0 dimensions"),
        (pa.array([1.0]), "double"),
        (pa.array([True]), "bool"),
        (pa.array([["secret"]]), "nested"),
        (pa.array([datetime.date(2020, 1, 1)]), "date32"),
        (pa.array([1.0]).dictionary_encode(), "double"),
        (pa.table({"secret": ["tea"]}), "nested"),
        (pd.DataFrame({"secret": ["tea"]}), "nested"),
        (pd.Series([1.0, None]), "double"),
        (pl.Series([True]), "bool"),
    ],
)
def test_what_cannot_be_counted(items, said):
    with pytest.raises(InvalidType, match=said) as caught:
        state(items)
    assert "secret" not in str(caught.value)


def test_text_that_is_not_unicode():
    with pytest.raises(InvalidValue, match="surrogates"):
        state(["tea", "\ud800"])
    letters = pa.array([b"tea", b"\xff"], pa.binary())
    for broken in (letters.view(pa.string()), letters.view(pa.string()).dictionary_encode()):
        with pytest.raises(InvalidValue, match="UTF-8"):
            state(broken)
    with pytest.raises(InvalidValue, match="UTF-8"):
        state(pa.array([b"\xff" * 20], pa.binary_view()).view(pa.string_view()))
    assert state(letters)[0] == "bytes"


def test_broken_arrow_arrays_are_not_read():
    data = pa.py_buffer(b"abcdef")
    for offsets in ([0, 4, 2, 6], [0, 4, 1000, 6], [0, -9, 3, 6]):
        array = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(np.array(offsets, np.int32)), data])
        with pytest.raises(InvalidValue, match="broken"):
            state(array)
    array = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a"]), safe=False)
    with pytest.raises(InvalidValue, match="broken"):
        state(array)


def test_one_kind_for_all_batches_and_nothing_changes_when_one_fails():
    sketch = MisraGries(3)
    sketch.update(WORDS)
    before = sketch.to_bytes()
    for items, said in (
        ([1], "integers.* text"),
        ([b"tea"], "bytes.* text"),
        (["tea", 1], "mixes"),
        (["tea", "\ud800"], "surrogates"),
        (pa.chunked_array([pa.array(["tea"] * 100), pa.array([b"\xff"]).view(pa.string())]), "UTF-8"),
        ((word for word in ["tea", 5.0]), "float"),
    ):
        with pytest.raises((InvalidType, InvalidValue), match=said):
            sketch.update(items)
        assert sketch.to_bytes() == before
    sketch = MisraGries(3)
    with pytest.raises(InvalidType):
        sketch.update([1, "tea"])
    assert sketch.kind is None


def test_an_error_in_an_iterable_is_the_callers():
    def broken():
        yield "tea"
        raise ZeroDivisionError

    sketch = MisraGries(3)
    with pytest.raises(ZeroDivisionError):
        sketch.update(broken())
    assert sketch.items == 0


def test_a_broken_array_is_refused_before_it_is_read():
    """Offsets far beyond the data, under a null: dropping nulls first would read there."""
    offsets = np.array([0, 3, 2**30, 6], np.int32)
    buffers = [pa.py_buffer(b"\x06"), pa.py_buffer(offsets), pa.py_buffer(b"abcdef")]
    for kind in (pa.string(), pa.binary()):
        with pytest.raises(InvalidValue, match="broken"):
            MisraGries(3).update(pa.Array.from_buffers(kind, 3, buffers))


def test_counting_lets_other_threads_run():
    """Sketches of several files are updated at the same time: the compiled loops do not hold Python's lock."""
    from dpsieve.sketches import integer_loops as integers
    from dpsieve.sketches import text_loops as texts

    assert all(loop.targetoptions["nogil"] for loop in (integers.update, texts.update))
