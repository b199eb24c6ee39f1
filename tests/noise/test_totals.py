"""Totals: what units add, in whole numbers, and what is published of noisy sums."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.noise.totals import GRID, RawTotal, Total, centred, check_totals, columns_of, table_names


def test_what_units_add_is_on_a_grid_between_the_bounds():
    price = Total("price", "sum", 0, 200)
    amounts = np.array([-1e30, 0, 50, 100, 200, 1e30, np.nan]) * price.steps_per_unit
    assert price.on_grid(amounts).tolist() == [0, 0, GRID // 4, GRID // 2, GRID, GRID, 0]
    rating = Total("rating", "mean", 1, 5)
    assert rating.on_grid(np.array([1, 3, 5, np.nan]) * rating.steps_per_unit).tolist() == [
        0,
        GRID // 2,
        GRID,
        GRID // 2,
    ]
    assert Total("gain", "sum", -10, 30).missing == GRID // 4  # a sum of nothing is 0
    assert Total("gain", "sum", 10, 30).missing == 0  # and is clipped


def test_a_unit_changes_a_centred_sum_by_at_most_half_the_width():
    for amount in (0, 1, GRID // 2, GRID):
        before, after = centred(np.array([7]), np.array([123])), centred(np.array([8]), np.array([123 + amount]))
        assert abs(int(after[0] - before[0])) <= GRID


def test_published_numbers_without_noise_are_the_true_ones():
    totals = (Total("p", "sum", -50, 150), Total("r", "mean", 1, 5))
    counts = np.array([4, 10]) * GRID
    amounts = np.array([[4 * GRID // 2, 10 * GRID // 4], [4 * GRID, 10 * GRID // 2]])  # of p: 50 and 0; of r: 5 and 3
    sums = centred(np.array([4, 10]), amounts)
    columns = columns_of(totals, ("key",), counts, sums, lambda a, b: 0.0 * a, np.zeros(2, bool))
    assert columns["p_sum"].to_pylist() == pytest.approx([200.0, 0.0])
    assert columns["r_mean"].to_pylist() == pytest.approx([5.0, 3.0])
    assert columns["r_low"].to_pylist() == pytest.approx([5.0, 3.0], abs=1e-6)


def test_a_mean_whose_interval_holds_its_bounds_is_null():
    """And so is every total of a key of which only an upper end is known."""
    totals = (Total("p", "sum", 0, 1), Total("r", "mean", 1, 5))
    counts, sums = np.array([1, 100, 100]) * GRID, np.zeros((2, 3), np.int64)
    width = lambda a, b: 5.0 * GRID * (np.abs(a) + np.abs(b))  # noqa: E731
    columns = columns_of(totals, (), counts, sums, width, np.array([False, False, True]))
    assert [value is None for value in columns["r_mean"].to_pylist()] == [True, False, True]
    assert [value is None for value in columns["p_sum"].to_pylist()] == [False, False, True]
    low, high = columns["r_low"][1].as_py(), columns["r_high"][1].as_py()
    assert (low, high) == pytest.approx((3 - 2 * 5 / 95, 3 + 2 * 5 / 95), abs=1e-6)


def test_names_of_columns():
    one = [Total("p", "sum", 0, 1), Total("r", "mean", 0, 1)]
    assert table_names(one) == [("p_sum", "p_low", "p_high"), ("r_mean", "r_low", "r_high")]
    for columns, keys in (([Total("p", "sum", 0, 1)], ("p_sum",)), ([Total("p", "sum", 0, 1)], ("a", "p_high"))):
        with pytest.raises(InvalidValue, match="would be that of two columns") as caught:
            table_names(columns, keys)
        assert caught.value.argument == "sums"
    clash = [Total("p", "sum", 0, 1), Total("p", "mean", 0, 1), Total("p_sum", "mean", 0, 1)]
    with pytest.raises(InvalidValue, match="p_sum_low"):
        table_names(clash)
    assert table_names([Total("count", "sum", 0, 1)]) == [("count_sum", "count_low", "count_high")]


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((5, 5), "are equal"), ((5, 1), "wrong order"), ((0, math.inf), "not finite"), ((math.nan, 1), "not finite"),
        ((0, 1e16), "not between"), ((1e9, 1e9 + 1), "too close"), ((0, 1e-13), "too close"),
    ],
)  # fmt: skip
def test_bounds_that_make_no_sense(bounds, words):
    for argument in ("sums", "means"):
        with pytest.raises(DpsieveError, match=words) as caught:
            check_totals(**{"sums": None, "means": None, argument: {"price": bounds}})
        assert caught.value.argument == argument and "price" in str(caught.value)


def test_arguments_that_are_no_columns_with_bounds():
    for given in (
        "price",
        ["price"],
        {"price": 5},
        {"price": (1, 2, 3)},
        {"price": "some"},
        {3: (0, 1)},
        {"price": ("a", "b")},
    ):
        with pytest.raises(InvalidType) as caught:
            check_totals(given, None)
        assert caught.value.argument in ("sums", None)
    with pytest.raises(InvalidValue, match="sums is empty"):
        check_totals({}, None)
    assert check_totals({"p": "auto"}, {"r": [1, 5]}) == (RawTotal("p", "sum"), Total("r", "mean", 1.0, 5.0))
    with pytest.raises(InvalidValue, match="more than 16"):
        check_totals({f"c{i}": (0, 1) for i in range(17)}, None)


def test_columns_are_arrow_arrays_of_doubles():
    total = Total("p", "sum", 0, 1)
    columns = columns_of((total,), (), np.array([GRID]), np.zeros((1, 1), np.int64), lambda a, b: a, np.zeros(1, bool))
    assert all(column.type == pa.float64() for column in columns.values())
