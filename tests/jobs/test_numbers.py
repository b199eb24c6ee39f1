"""Sums, quantiles and means of columns of a table."""

import itertools
import math
import pickle
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.charged_draws import crashing
from helpers.counting import aggregation
from helpers.statistical import assert_counts, binomial_band
from scipy import sparse

import dpsieve as ds
from dpsieve.engines import DuckDB
from dpsieve.engines.engine import NumberColumns
from dpsieve.engines.inputs.files import DataStream
from dpsieve.engines.sql import queries as number_query
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidType, InvalidValue, NotCertified
from dpsieve.numbers import quantiles as gap_quantiles
from dpsieve.numbers.box import UnitMeans, best_noise
from dpsieve.numbers.noise import ScaledNoise
from dpsieve.numbers.quantiles import GapQuantiles
from dpsieve.numbers.search import QuantileSearch
from dpsieve.privacy.guarantee import Contribution
from dpsieve.randomness.picks import shuffled
from dpsieve.randomness.source import SystemSource
from dpsieve.testing import insecure_source

pytestmark = pytest.mark.usefixtures("one_database")

SALES = pa.table({
    "customer": [1, 1, 1, 2, 2, 3, 4],
    "price": [10.0, 20.0, 90.0, 40.0, None, 1e9, float("nan")],
    "items": [1, 2, 3, 4, 5, 6, 7],
})  # fmt: skip
CUSTOMERS = {"privacy_unit": "customer", "max_rows_per_unit": 3}
LARGE = {"epsilon": 500.0}
CALLS = {
    "sum": ds.sum,
    "mean": ds.mean,
    "quantile": lambda data, **more: ds.quantile(data, quantile=0.5, **more),
}
by_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
by_relation = pytest.mark.parametrize("neighbours", ["add_remove", "replace"])


def kept(data, most=2, salt=7, columns=("x",), engine=None, **more):
    """The kept rows of all units, in one order."""
    rows = (engine or DuckDB()).read_numbers(
        data, aggregation(NumberColumns(columns, "u"), Contribution(rows=most), salt=salt, **more)
    )
    return sorted(rows.values.tolist())


# The numbers


def test_sums_of_columns():
    """Row 5 has no price and row 7 a NaN, so they are left out; 1e9 counts as 100."""
    total = ds.sum(SALES, column=["price", "items"], bounds=[(0, 100), (0, 10)], **CUSTOMERS, **LARGE)
    assert total.table["name"].to_pylist() == ["price", "items"]
    np.testing.assert_allclose(total.value, [260, 16], atol=30)
    assert total.notes.contribution == "at most 3 rows of numbers within public bounds"
    assert str(total.guarantee) == "500-differential privacy when one customer is added or removed."
    one = ds.sum(SALES, column="price", bounds=(0, 100), privacy_unit="row", **LARGE)
    assert one.value == pytest.approx(260, abs=10) and one.guarantee.unit == "one row"


@by_relation
def test_a_replaced_unit_with_more_rows(neighbours):
    """Bounds far from zero: the offsets of 'replace' need one row of each unit."""
    options = {"column": "items", "bounds": (5, 10), "neighbours": neighbours, **LARGE}
    assert ds.sum(SALES, **CUSTOMERS, **options).value == pytest.approx(5 * 5 + 6 + 7, abs=3)
    single = ds.sum(SALES, privacy_unit="row", **options)
    assert single.value == pytest.approx(38, abs=1) and single.mechanism.changes[0] > 0
    widths = {"add_remove": 10, "replace": 5}  # beside 30 for three rows of a unit, under both
    assert single.mechanism.deviations[0] * 500 == pytest.approx(2**0.5 * widths[neighbours], rel=0.05)


@by_relation
def test_quantiles_of_a_column(neighbours):
    table = pa.table({"u": np.arange(20_000) % 10_000, "x": np.arange(20_000)})
    options = {"column": "x", "bounds": (0, 1e6), "neighbours": neighbours, "epsilon": 1.0}
    half = ds.quantile(table, quantile=0.5, privacy_unit="row", **options)
    assert half.value == pytest.approx(10_000, abs=300) and half.notes.single
    of_units = ds.quantile(table, quantile=[0.1, 0.9], privacy_unit="u", max_rows_per_unit=2, **options)
    np.testing.assert_allclose(of_units.value, [2_000, 18_000], atol=1_500)
    once, twice = (ds.quantile(table, quantile=0.5, privacy_unit="u", max_rows_per_unit=m, **options) for m in (1, 2))
    errors = [one.table["rank_error"][0].as_py() for one in (once, twice)]
    assert errors[1] == pytest.approx(2 * errors[0], abs=1)


def test_means_of_units():
    """A unit counts once, with the mean of its rows: 40 (of 10, 20 and 90), 40 and 100."""
    mean = ds.mean(SALES, column="price", bounds=(0, 100), **CUSTOMERS, **LARGE)
    assert mean.value == pytest.approx(60, abs=5)
    assert str(mean.guarantee) == "500-differential privacy when one customer is replaced by another."
    assert mean.notes.contribution == "the mean of at most 3 rows of numbers within 0 to 100"
    many = ds.mean(SALES, column=["price", "items"], bounds=[(0, 100), (5, 10)], **CUSTOMERS, **LARGE)
    np.testing.assert_allclose(many.value, [60, (5 + 5 + 6) / 3], atol=10)


def test_the_noise_of_a_mean_is_that_of_a_sum():
    options = {"column": "price", "bounds": (0, 100), "privacy_unit": "customer", "rho": 0.5}
    one, two = (ds.mean(SALES, max_rows_per_unit=m, **options) for m in (1, 3))
    assert one.mechanism.deviations[0] == two.mechanism.deviations[0] == pytest.approx(100 / 3, rel=1e-3)
    assert one.mechanism.rho == pytest.approx(0.5)


ADDED = {"column": "price", "bounds": (0, 100), "neighbours": "add_remove", **CUSTOMERS}


def test_means_of_a_private_number_of_units():
    mean = ds.mean(SALES, **ADDED, **LARGE)
    assert mean.value == pytest.approx(60, abs=5) and mean.drawn["units"] == pytest.approx(3, abs=0.5)
    assert str(mean.guarantee) == "500-differential privacy when one customer is added or removed."
    assert mean.notes.contribution == "the mean of at most 3 rows of numbers within 0 to 100"
    many = ds.mean(SALES, **{**ADDED, "column": ["price", "items"], "bounds": [(0, 100), (5, 10)]}, **LARGE)
    np.testing.assert_allclose(many.value, [60, (5 + 5 + 6) / 3], atol=10)
    none = ds.mean(SALES.slice(0, 0), **ADDED, epsilon=1.0)
    assert 0 <= none.value <= 100, "whether there are units is private"
    with pytest.raises(InvalidValue, match="public number of units"):
        ds.mean(SALES, **{**ADDED, "method": "plan"}, rho=1.0)


def test_one_ledger_for_counts_sums_quantiles_and_means(tmp_path):
    book = ds.Ledger(tmp_path / "budget", epsilon=4.0, delta=1e-6, unit="one customer", neighbours="add_remove")
    options = {"column": "price", "bounds": (0, 100), "privacy_unit": "customer", "ledger": book, "epsilon": 0.5}
    ds.sum(SALES, max_rows_per_unit=1, **options)
    ds.quantile(SALES, quantile=0.5, max_rows_per_unit=1, **options)
    ds.mean(SALES, neighbours="add_remove", **options)
    ds.release(SALES, key="items", privacy_unit="customer", max_keys_per_unit=1, epsilon=0.5, delta=1e-7,
               ledger=book)  # fmt: skip
    assert len(book) == 4


def test_the_ledger_is_charged_before_units_are_counted(tmp_path, monkeypatch):
    book = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6, unit="one customer", neighbours="add_remove")

    source = insecure_source(1)
    monkeypatch.setattr(UnitMeans, "draw", crashing(UnitMeans.draw, book, source))
    with pytest.raises(KeyboardInterrupt):
        ds.mean(SALES, **ADDED, epsilon=0.75, ledger=book, source=source)
    with pytest.raises(BudgetExceeded):  # before the data is looked at
        ds.mean("nowhere.parquet", **ADDED, epsilon=0.75, ledger=book)


def test_means_of_zeros_and_ones_need_no_bounds():
    """Numbers outside count as 0 or 1: 9 is a one, and -1 a zero."""
    draws = np.random.default_rng(1).random((3_000, 64)) < 0.05
    draws[:, 0] |= np.arange(3_000) < 1_500
    odd = np.where(draws, 9.0, -1.0)
    wide = pa.table({f"c{i}": column for i, column in enumerate(odd.T)})
    options = {"kind": "binary", "privacy_unit": "row", "rho": 0.5}
    few, many = (ds.mean(wide, column=wide.column_names[:d], **options) for d in (1, 64))
    assert [one.last.name for one in (few, many)] == ["scaled_noise", "mean_noise"]
    np.testing.assert_allclose(many.value, draws.mean(axis=0), atol=0.05)
    assert few.value == pytest.approx(draws[:, 0].mean(), abs=0.05)
    planned = ds.mean(wide, column="c0", method="plan", **options)
    assert "no row is clipped" in planned.notes.reason
    assert planned.value == pytest.approx(draws[:, 0].mean(), abs=0.01)
    for wrong, said in (({"bounds": (0, 1)}, "Leave out the bounds"), ({"kind": "real"}, "bounds are missing"),
                        ({"kind": "bits"}, "kind"), ({"kind": None}, "kind")):  # fmt: skip
        with pytest.raises(InvalidValue, match=said):
            ds.mean(wide, column="c0", **{**options, **wrong})


def test_how_a_mean_is_made():
    """PLAN where the noise of the box would be large beside what the mean varies by itself."""
    draws = np.random.default_rng(1).normal(0, 1, (3_000, 64))
    wide = pa.table({f"c{i}": column for i, column in enumerate(draws.T)})
    options = {"bounds": (-50, 50), "privacy_unit": "row", "rho": 0.5}
    few, many = (ds.mean(wide, column=wide.column_names[:d], **options) for d in (1, 64))
    assert [one.last.name for one in (few, many)] == ["scaled_noise", "mean_noise"]
    np.testing.assert_allclose(many.value, draws.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(few.value, draws[:, 0].mean(), atol=0.3)
    planned = ds.mean(wide, column="c0", method="plan", **options)
    assert planned.last.name == "mean_noise" and planned.value == pytest.approx(draws[:, 0].mean(), abs=0.05)
    with pytest.raises(InvalidValue, match=r"needs [\d,]+ units"):
        ds.mean(wide.slice(0, 20), column="c0", method="plan", **options)
    with pytest.raises(InvalidValue, match="no row with a number"):
        ds.mean(wide.slice(0, 0), column="c0", **options)


ANY = {"neighbours": "replace", "rho": 1.0}


def test_a_random_order_is_uniform():
    source, orders = SystemSource(), list(itertools.permutations(range(4)))
    drawn = [tuple(shuffled(4, source).tolist()) for _ in range(24 * 100)]
    assert_counts(np.array([drawn.count(order) for order in orders], float), np.full(24, 100.0))
    assert shuffled(0, source).tolist() == []


# What a unit adds

ROWS = [(u, float(x)) for u in range(40) for x in np.random.default_rng(u).integers(0, 30, 1 + u % 9)]


def table_of(rows):
    units, values = zip(*rows, strict=True)
    return pa.table({"u": units, "x": values})


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_unit_keeps_some_of_its_rows_whatever_else_is_there(most, tmp_path):
    rows = [ROWS[i] for i in np.random.default_rng(5).permutation(len(ROWS))]
    expected = kept(table_of(ROWS), most)
    assert kept(table_of(rows), most) == expected
    for i, part in enumerate((rows[:50], rows[50:], rows[:1])):
        pq.write_table(table_of(part).slice(0, len(part) if i < 2 else 0), tmp_path / f"{i}.parquet", row_group_size=7)
    assert kept(tmp_path, most, engine=DuckDB(threads=1)) == kept(tmp_path, most, engine=DuckDB(threads=4)) == expected
    alone = [kept(table_of([row for row in ROWS if row[0] == u]), most) for u in range(40)]
    assert sorted(itertools.chain(*alone)) == expected
    assert [len(one) for one in alone] == [min(most, 1 + u % 9) for u in range(40)]


@pytest.mark.parametrize("most", [1, 2])
def test_where_hashes_are_equal_the_numbers_decide(most, monkeypatch):
    monkeypatch.setattr(number_query.DUCKDB, "choice", lambda *_: "0::UBIGINT")
    rows = [(1, 5.0), (1, 3.0), (1, 4.0), (1, 3.0)]
    found = [kept(table_of(order), most) for order in itertools.permutations(rows)]
    assert all(one == [[3.0], [3.0]][:most] for one in found)


def test_means_of_units_do_not_depend_on_the_order_of_rows():
    """Down to the last digit: floats that are added in another order would differ."""
    draws = np.random.default_rng(1).lognormal(0, 9, 3_000)
    rows = [(i % 50, x) for i, x in enumerate(draws)]
    found = []
    for seed in (1, 2):
        shuffled_rows = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
        made = DuckDB(threads=2).read_numbers(
            table_of(shuffled_rows), aggregation(NumberColumns(("x",), "u"), Contribution(rows=60), salt=3)
        )
        found.append(sorted(made.unit_means(np.array([0.0]), np.array([1e9]))[:, 0].tolist()))
    assert found[0] == found[1] and len(found[0]) == 50
    assert found[0] == pytest.approx(sorted(np.minimum(draws, 1e9).reshape(60, 50).mean(axis=0)))


def test_every_row_of_a_unit_is_as_likely_equal_ones_too():
    """Four rows of one value and one of another, for 3,000 units: the value is kept by four in five."""
    rows = [(u, x) for u in range(3_000) for x in (1.0, 1.0, 1.0, 1.0, 2.0)]
    low, high = binomial_band(3_000, 0.2)
    assert low <= sum(x for (x,) in kept(table_of(rows), 1, salt=11)) - 3_000 <= high
    low, high = binomial_band(3_000, 0.4)
    assert low <= sum(x for (x,) in kept(table_of(rows), 2, salt=11)) - 6_000 <= high


def test_units_under_a_collation_are_one():
    """Which spelling comes first depends on the order of rows; what the unit keeps does not."""
    rows = [(name, x) for x in (1.0, 2.0) for name in ("ann", "Ann", "ANN", "aNN")] + [("Bob", 4.0)]
    found = []
    for order in (rows, rows[::-1], rows[3:] + rows[:3]):
        connection = duckdb.connect()
        connection.execute("CREATE TABLE t (u VARCHAR COLLATE NOCASE, x DOUBLE)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", order)
        found.append([kept((connection, "t"), 1, salt) for salt in range(20)])
    assert found[0] == found[1] == found[2] and all(len(one) == 2 for one in found[0])


# What is read


def test_all_kinds_of_numbers():
    whole = [1, None, 3]
    for kind in (pa.int8(), pa.uint64(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 2)):
        column = pa.array([None if x is None else Decimal(x) for x in whole]) if "decimal" in str(kind) else whole
        data = pa.table({"u": [1, 2, 3], "x": pa.array(column).cast(kind)})
        assert kept(data) == [[1.0], [3.0]]
    flags = pa.table({"u": [1, 2, 3], "x": [True, None, False]})
    assert kept(flags) == [[0.0], [1.0]]
    assert kept(duckdb.sql("SELECT 1 AS u, 170141183460469231731687303715884105727::HUGEINT AS x")) == [[2.0**127]]
    assert kept(pa.table({"u": [1], "x": pa.nulls(1)})) == []
    zeros = pa.table({"u": [1, 1], "x": [0.0, -0.0]})
    assert all(math.copysign(1, x) == 1 for (x,) in kept(zeros))


def test_text_files_hold_texts(tmp_path):
    """Everything in them is text, so that one that is no number is left out, as a null is."""
    text = b"u,x\n1,1.5\n2,\n3,many\n4,2e1\n5,nan\n6,-inf\n"
    assert kept(DataStream(text_stream(text))) == [[-math.inf], [1.5], [20.0]]
    (tmp_path / "rows.jsonl").write_text('{"u": 1, "x": 1.5}\n{"u": 2, "x": null}\n{"u": 3, "x": "4"}\n{"u": 4}\n')
    assert kept(tmp_path / "rows.jsonl") == [[1.5], [4.0]]
    total = ds.sum(DataStream(text_stream(text)), column="x", bounds=(-10, 100), privacy_unit="row", **LARGE)
    assert total.value == pytest.approx(11.5, abs=3)


def text_stream(text):
    import io

    return io.BytesIO(text)


@by_call
def test_columns_that_are_not_numbers(call):
    table = SALES.append_column("name", pa.array(list("abcdefg"))).append_column("tags", pa.array([[1.0]] * 7))
    for column, message in [("name", "which is not a number"), ("tags", "which is not a number"),
                            ("prise", "Did you mean 'price'?"), ("customer", "privacy_unit is among")]:  # fmt: skip
        with pytest.raises(DpsieveError, match=message) as caught:
            call(table, column=column, bounds=(0, 1), privacy_unit="customer", max_rows_per_unit=1, epsilon=1.0)
        assert column in str(caught.value) or column == "customer"
    dates = duckdb.sql("SELECT DATE '2020-01-01' AS day, INTERVAL 1 DAY AS span")
    for column in ("day", "span"):
        with pytest.raises(InvalidType, match="column="):
            call(dates, column=column, bounds=(0, 1), privacy_unit="row", epsilon=1.0)


@by_call
def test_null_units(call):
    table = pa.table({"u": pa.array([1, None, 3]), "x": [1.0, 50.0, 1.0]})
    options = {"column": "x", "bounds": (0, 100), "privacy_unit": "u", **LARGE}
    for most in (1, 2):
        with pytest.raises(InvalidValue, match="privacy_unit='u' contains nulls"):
            call(table, max_rows_per_unit=most, **options)
    assert (
        call(table, max_rows_per_unit=1, allow_null_units=True, **options).value <= 12
    )  # noise of scale 0.2 around 2: above by e^-50


@by_call
def test_hostile_names(call):
    for name in ('x"; DROP TABLE t; --', "a,b", "k0", "u", "h", "café ☕", "[red]price[/red]", "price:0:100", "n"):
        table = pa.table({name: [1.0, 2.0, 3.0], "who are you?": ["a", "b", "c"]})
        made = call(table, column=name, bounds=(0, 3), privacy_unit="who are you?", max_rows_per_unit=1, **LARGE)
        assert made.value >= 0 and made.guarantee.unit == "one who are you?"


# Privacy


def unit_totals(grid, values, most):
    """The sums, in steps, of all units of at most `most` rows with these values."""
    rows = [grid.whole(np.full((1, len(grid.lows)), float(x)))[0] for x in values]
    for count in range(most + 1):
        for chosen in itertools.combinations_with_replacement(range(len(rows)), count):
            yield sum((rows[i] for i in chosen), np.zeros(len(grid.lows), np.int64))


@by_relation
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("bounds", [(0, 10), (-3, 10), (4, 10), (-10, -4)])
def test_how_far_a_unit_moves_a_sum(most, bounds, neighbours):
    """All units with up to m rows at the corners of the box, and beyond: the noise is for the farthest of them.

    With one row a unit, 'replace' takes the number of rows as public, so each unit has one.
    """
    lows, highs = (np.full(2, float(x)) for x in bounds)
    options = {"p": 2, "rho": None, "epsilon": 1.0, "delta": None, "noise": "auto", "shape": "best", "unit": "one user"}
    made, grid = best_noise(lows, highs, neighbours, rows_per_unit=most, **options)
    totals = list(unit_totals(grid, (*bounds, 0.0, -99.0, 99.0, sum(bounds) / 2), most))
    if neighbours == "replace":
        totals = totals[1:] if most == 1 else totals
        apart = np.array([a - b for a, b in itertools.product(totals, totals)])
    else:
        apart = np.array(totals)
    assert np.abs(apart).max(axis=0).tolist() == list(made.changes)
    assert made.certify() and Fraction(made.scale) * Fraction(made.epsilon) >= sum(made.changes)
    with pytest.raises(NotCertified):
        replace(made, changes=tuple(change + 1 + change // 10 for change in made.changes)).certify()


def points(made, rows, monkeypatch):
    """The exact distribution of a single pick, from the whole numbers that it is drawn by."""
    held = []

    def pick(lengths, falls, epsilon, divisor, _):
        held.append((lengths, falls * epsilon / divisor))
        return int(np.flatnonzero(lengths)[0])

    monkeypatch.setattr(gap_quantiles, "weighted_pick", pick)
    made.draw_sorted(np.array(sorted(rows), np.int64), insecure_source(1))
    starts, _, _ = gap_quantiles.segments(np.array(sorted(rows), np.int64), 0, made.grid.size - 1, made.shares[0])
    (lengths, falls), found = held.pop(), np.zeros(made.grid.size)
    for start, length, fall in zip(starts, lengths, falls, strict=True):
        found[start : start + length] = math.exp(-fall)
    return found / found.sum()


def units(size, most):
    return [c for m in range(most + 1) for c in itertools.combinations_with_replacement(range(size), m)]


@by_relation
@pytest.mark.parametrize("q", [0.5, 0.25, 1.0])
def test_a_quantile_keeps_its_promise_for_units_of_several_rows(q, neighbours, monkeypatch):
    """All tables of one unit of up to two rows beside some others, on a grid of four points."""
    made = GapQuantiles(1.0, (q,), 0.0, 3.0, steps=2, rows_per_unit=2, neighbours=neighbours)
    worst = 0.0
    for others in [(), (1,), (0, 3), (2, 2, 2), (0, 1, 2, 3)]:
        laws = [points(made, (*others, *own), monkeypatch) for own in units(made.grid.size, 2)]
        pairs = itertools.product(laws, laws) if neighbours == "replace" else itertools.product(laws[:1], laws)
        worst = max([worst, *(np.abs(np.log(a / b)).max() for a, b in pairs)])
    assert 0.4 < worst <= 1.0 + 1e-9
    once = replace(made, rows_per_unit=1)
    assert made.certify() and made.rank_errors[0] == pytest.approx(2 * once.rank_errors[0], abs=1)


@by_relation
@pytest.mark.parametrize("rho", [0.0, 0.01])
def test_a_search_compares_numbers_that_a_unit_moves_by_what_is_said(rho, neighbours):
    """Under 'replace' the number is a whole one, the part of #(rows <= k) - q N that is; its noise counts in rows."""
    made = QuantileSearch(1.0, (0.3,), 0.0, 4.0, delta=1e-6 * (rho > 0), rho=rho, steps=2, rows_per_unit=3,
                          neighbours=neighbours)  # fmt: skip
    share, most = made.shares[0], 0

    def compared(rows, point):
        number = share.denominator * sum(x <= point for x in rows) - share.numerator * len(rows)
        return number // share.denominator if neighbours == "replace" else number

    for others, point in itertools.product([(), (1,), (0, 3, 3)], range(made.grid.size)):
        found = [compared((*others, *own), point) for own in units(made.grid.size, 3)]
        most = max([most, *(abs(x - y) for x in (found if neighbours == "replace" else found[:1]) for y in found)])
    assert most == (3 if neighbours == "replace" else 3 * 7)
    spent = made.comparisons * (most / Fraction(made.noise_scales[0])) ** (2 if rho else 1) / (2 if rho else 1)
    assert 0.99 * (rho or 1.0) < spent <= Fraction(rho or 1.0)
    assert made.certify().parts and pickle.loads(pickle.dumps(made)) == made


# Ledgers, files, bad arguments


@by_call
def test_the_ledger_is_charged_before_anything_is_drawn(call, tmp_path, monkeypatch):
    book = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6, unit="one customer",
                     neighbours="replace" if call is ds.mean else "add_remove")  # fmt: skip
    options = {
        "column": "price",
        "bounds": (0, 100),
        "privacy_unit": "customer",
        "ledger": book,
        "max_rows_per_unit": 1,
    }

    source = ds.testing.insecure_source(1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for kind in (ScaledNoise, GapQuantiles, QuantileSearch):
            patch.setattr(kind, "draw", crashing(kind.draw, book, source))
        call(SALES, epsilon=0.75, note="first", source=source, **options)
    assert [entry.note for entry in book.history()] == ["first"]
    with pytest.raises(BudgetExceeded):  # before the data is looked at
        call("nowhere.parquet", epsilon=0.75, **options)
    with pytest.raises(DpsieveError):
        call("nowhere.parquet", epsilon=0.1, **options)
    call(SALES, epsilon=0.2, **options)
    assert len(book) == 2


@by_call
def test_saved_and_loaded(call, tmp_path):
    made = call(SALES, column="price", bounds=(0, 100), **CUSTOMERS, epsilon=1.0, delta=1e-6)
    made.save(tmp_path / "kept")
    again = ds.Estimate.load(tmp_path / "kept")
    assert again.value == made.value and again.guarantee == made.guarantee and again.notes == made.notes
    assert pickle.loads(pickle.dumps(again)).table.equals(made.table)


WRONG = [
    ({"column": []}, "column must be"),
    ({"column": 3}, "column must be"),
    ({"column": ["x", "x"]}, "column names a column twice|several columns"),
    ({"column": " "}, "column is blank"),
    ({"bounds": (1, 1)}, "low is not below its high"),
    ({"bounds": (2, 1)}, "low is not below its high"),
    ({"bounds": (0, math.inf)}, "bounds is not finite"),
    ({"bounds": 5}, "bounds must be one pair"),
    ({"bounds": "0,1"}, "bounds must be"),
    ({"bounds": [(0, 1), (0, 1)]}, "bounds must be one pair"),
    ({"max_rows_per_unit": 0}, "max_rows_per_unit=0"),
    ({"max_rows_per_unit": 2.0}, "max_rows_per_unit must be"),
    ({"max_rows_per_unit": 2, "privacy_unit": "row"}, "max_rows_per_unit needs a privacy_unit"),
    ({"privacy_unit": None}, "privacy_unit is missing"),
    ({"privacy_unit": 5}, "privacy_unit must be a column name"),
    ({"allow_null_units": 1}, "allow_null_units must be True or False"),
    ({"epsilon": None}, "epsilon"),
    ({"epsilon": 0}, "epsilon"),
    ({"rho": 1.0}, "rho"),
    ({"delta": 2}, "delta"),
    ({"note": "lost"}, "note is kept in a ledger"),
]


@by_call
def test_bad_arguments_are_refused_before_anything_is_read(call):
    for wrong, message in WRONG:
        options = {
            "column": "x",
            "bounds": (0, 1),
            "privacy_unit": "u",
            "max_rows_per_unit": 1,
            "epsilon": 1.0,
            **wrong,
        }
        with pytest.raises(DpsieveError, match=message):
            pytest.fail(f"{wrong} was taken: {call('nowhere.parquet', **options)}")


def test_bad_arguments_of_each():
    nowhere = {"data": "nowhere.parquet", "column": "x", "privacy_unit": "row", "bounds": (0, 1), "epsilon": 1.0}
    for call, wrong, message in [
        (ds.sum, {"neighbours": "both"}, "neighbours is not known"),
        (ds.sum, {"p": 0}, "p=0"),
        (ds.quantile, {"quantile": 2}, "quantile=2"),
        (ds.quantile, {"quantile": []}, "quantiles holds none"),
        (ds.quantile, {"quantile": 0.5, "method": "guess"}, "method is not known"),
        (ds.quantile, {"quantile": 0.5, "scale": "log"}, "log"),
        (ds.quantile, {"quantile": 0.5, "column": ["x", "y"]}, "quantiles are of one"),
        (ds.mean, {"method": "guess"}, "method is not known"),
        (ds.mean, {"method": "plan"}, "has no pure epsilon"),
    ]:
        with pytest.raises(DpsieveError, match=message):
            call(**{**nowhere, **wrong})


def test_true_numbers_are_not_shown():
    rows = DuckDB().read_numbers(
        SALES, aggregation(NumberColumns(("price",), "customer"), Contribution(rows=1), salt=1)
    )
    assert repr(rows) == "<NumberRows: true numbers, not to be published>"


def test_bounds_are_numbers_that_steps_can_be_made_of():
    table = pa.table({"x": [1.0, 2.0]})
    for job in (ds.sum, ds.mean):
        for bounds in ((0, 1.7e308), (0, 1e-300)):
            with pytest.raises(InvalidValue, match="bounds"):
                job(table, column="x", privacy_unit="row", bounds=bounds, rho=1.0)


def test_columns_in_different_units_of_measure_do_not_disturb_each_other():
    """With p they share one error, as columns in one unit of measure may."""
    table = pa.table({"clicks": [1.0, 2.0], "revenue": [1e5, 2e5]})
    options = {"column": ["clicks", "revenue"], "bounds": [(0, 10), (0, 1e6)], "privacy_unit": "row", "rho": 0.5}
    for job in (ds.sum, ds.mean):
        apart, together = (
            job(table, **options, **more).table.column("deviation").to_pylist() for more in ({}, {"p": 2})
        )
        assert apart[1] / apart[0] == pytest.approx(1e5, rel=1e-3) and together[0] > 10 * apart[0]


def test_too_many_columns_with_a_unit_are_refused():
    table = pa.table({f"c{i}": [1.0] for i in range(300)} | {"u": [1]})
    with pytest.raises(InvalidValue, match="256"):
        ds.sum(table, column=table.column_names[:-1], bounds=(0, 1), rho=1.0, privacy_unit="u", max_rows_per_unit=1)


# Arrays


def test_an_array_instead_of_a_table():
    rows = np.array([[1.0, 30.0], [2.0, 45.0], [9.0, 50.0]])
    total = ds.sum(rows, bounds=[(0, 4), (0, 100)], **LARGE)
    assert total.table["name"].to_pylist() == ["0", "1"] and total.guarantee.unit == "one row"
    np.testing.assert_allclose(total.value, [7, 125], atol=10)
    assert ds.sum([30, 41, math.inf], bounds=(0, 120), **LARGE).value == pytest.approx(191, abs=10)
    for table in (pa.table({"age": [30, 41, 52]}), "ages.csv"):
        with pytest.raises(InvalidValue, match="column is missing"):
            ds.mean(table, bounds=(0, 120), **LARGE)
    assert ds.mean([True, False] * 500, kind="binary", **LARGE).value == pytest.approx(0.5, abs=0.01)
    low, high = ds.quantile(range(10_001), quantile=np.array([0.1, 0.9]), bounds=(0, 2**14), epsilon=1.0).value
    assert low == pytest.approx(1_000, abs=150) and high == pytest.approx(9_000, abs=150)


def test_a_sparse_matrix_stays_sparse():
    rows = sparse.random(3_000, 40, density=0.1, random_state=1, format="csr")
    true = np.asarray(rows.sum(axis=0)).ravel()
    np.testing.assert_allclose(ds.sum(rows, bounds=(0, 1), rho=50.0).value, true, atol=20)
    np.testing.assert_allclose(ds.mean(rows, bounds=(0, 1), rho=50.0).value, true / 3_000, atol=0.01)
    for wrong in (
        lambda: ds.mean(rows, bounds=(0, 1), rho=1.0, neighbours="add_remove"),
        lambda: ds.quantile(rows[:, [0]], quantile=0.5, bounds=(0, 1), rho=1.0),
    ):
        with pytest.raises(InvalidType, match="data is a sparse matrix"):
            wrong()


@by_call
def test_arrays_that_are_refused_cost_nothing(call, tmp_path):
    book = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-6, neighbours="replace")
    bad = [[1.0, math.nan], np.ma.array([1.0, 2.0], mask=[0, 1]), ["a"], [1.0, None], None, 3,
           sparse.csr_matrix([[math.inf]])]  # fmt: skip
    for data in bad:
        with pytest.raises(DpsieveError, match="data "):
            call(data, bounds=(0, 1), epsilon=1.0, ledger=book)
    for wrong, message in (({"privacy_unit": "u"}, "column is missing"), ({"table": "t"}, "column is missing"),
                           ({"max_rows_per_unit": 2}, "needs a privacy_unit")):  # fmt: skip
        with pytest.raises(InvalidValue, match=message):
            call([1.0], bounds=(0, 1), epsilon=1.0, ledger=book, **wrong)
    assert len(book) == 0


@pytest.mark.parametrize("job", ["sum", "mean", "quantile"])
def test_a_preview_of_a_table_of_an_array_and_of_neither(job):
    asked = {"job": job, "bounds": (0, 100), "epsilon": 1.0, **({"quantile": 0.5} if job == "quantile" else {})}
    alone, array = ds.preview(**asked, privacy_unit="row"), ds.preview([1.0, 2.0], **asked)
    table = ds.preview(SALES, column="price", **CUSTOMERS, **asked)
    assert alone.guarantee == array.guarantee and table.guarantee.unit == "one customer"
    with pytest.raises(DpsieveError, match="prise"):
        ds.preview(SALES, column="prise", privacy_unit="row", **asked)
