"""What units add to totals is the same on every engine, down to the last digit, and depends on no other unit."""

import math
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from test_every_engine import SALT, place  # noqa: F401  # the fixture

import dpsieve as ds
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.noise.totals import GRID, RawTotal, Total
from dpsieve.privacy.guarantee import Contribution

TOTALS = (Total("price", "sum", 0, 200), Total("rating", "mean", 1, 5), Total("price", "mean", -30, 70))
HOSTILE = [1e18, -1e18, 1e300, -1e300, 5e-324, math.nan, math.inf, -math.inf, None, 0.0, -0.0, 0.1, 199.999, -55.5]


def rows_of(seed, units=60, keys=7):
    """Rows of units with several keys, some of whose numbers are hostile."""
    rng = np.random.default_rng(seed)
    rows = []
    for unit in range(units):
        for _ in range(rng.integers(1, 12)):
            price = HOSTILE[rng.integers(len(HOSTILE))] if rng.random() < 0.4 else round(float(rng.gamma(2, 20)), 2)
            rating = None if rng.random() < 0.2 else int(rng.integers(1, 6))
            rows.append((unit, f"{unit}:{rng.integers(keys)}", price, rating))
    return rows


def table_of(rows):
    unit, key, price, rating = zip(*rows, strict=True)
    return pa.table(
        {"unit": unit, "key": key, "price": pa.array(price, pa.float64()), "rating": pa.array(rating, pa.int32())}
    )


def on_grid(values, total):
    """What a unit adds, from its rows of one key, by the formulas of `noise.totals`."""
    numbers = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not numbers:
        return total.missing
    steps = [
        math.floor(min(max(v, -total.largest_row), total.largest_row) * total.steps_per_unit + 0.5) for v in numbers
    ]
    x = float(sum(steps)) / (len(steps) if total.statistic == "mean" else 1)
    moved = (x - total.low * total.steps_per_unit) * total.per_step
    return math.floor(min(max(moved, 0.0), float(GRID)) + 0.5)


def expected(rows, totals):
    """Return what each key gets where a key belongs to one unit and no unit is bounded."""
    own = defaultdict(list)
    for _, key, price, rating in rows:
        own[key].append({"price": price, "rating": rating})
    return {key: [on_grid([row[t.column] for row in mine], t) for t in totals] for key, mine in own.items()}


def task_of(totals, keys, **options):
    return Aggregation(Columns(("key",), ("unit",), totals), Contribution(keys), salt=SALT, **options)


def read(counted):
    """Return the sums of each key, from counts that are here or in Spark."""
    try:
        keys, sums = counted.keys.column(0).to_pylist(), counted.sums
    except InvalidType:
        table = counted._all_counts().toArrow()
        keys = table.column("k0").to_pylist()
        sums = [table.column(name).to_pylist() for name in table.column_names if name.startswith("a")]
    return dict(zip(keys, np.array(sums).T.tolist(), strict=True))


def test_every_engine_adds_up_alike(place):  # noqa: F811
    """With a bound that drops nothing, what a key gets follows from its rows: so all engines agree."""
    rows = rows_of(1)
    wanted = expected(rows, TOTALS)
    data = place.load(table_of(rows))
    assert read(place.engine.aggregate(data, task_of(TOTALS, 50))) == wanted
    with place.engine.read_by_bound(data, task_of(TOTALS, 1000)) as counts:
        assert read(counts.under(50)) == wanted
    if place.engine.supports_pairs:
        pairs = place.engine.read_pairs(data, task_of(TOTALS, 10**12))
        assert read(pairs.count()) == wanted
        raw = place.engine.read_pairs(data, task_of((RawTotal("price", "sum"),), 10**12))
        assert np.isnan(raw.amounts).any() and np.nanmax(np.abs(raw.amounts)) <= 11 * 2.0**58


def test_values_do_not_change_which_keys_a_unit_keeps(place):  # noqa: F811
    """Bounding looks at the salt, the unit and the key alone."""
    rows = rows_of(2)
    other = [(unit, key, 1e18 if price is None else None, 5) for unit, key, price, _ in rows]
    kept = [read(place.engine.aggregate(place.load(table_of(each)), task_of(TOTALS, 2))) for each in (rows, other)]
    assert kept[0].keys() == kept[1].keys() and kept[0] != kept[1]
    assert all(numbers == expected(rows, TOTALS)[key] for key, numbers in kept[0].items())


def test_other_units_do_not_change_what_a_unit_adds(place):  # noqa: F811
    rows = rows_of(3)
    whole = read(place.engine.aggregate(place.load(table_of(rows[::-1])), task_of(TOTALS, 3)))
    part = read(place.engine.aggregate(place.load(table_of([row for row in rows if row[0] % 2])), task_of(TOTALS, 3)))
    assert part == {key: numbers for key, numbers in whole.items() if int(key.partition(":")[0]) % 2}


def test_known_keys_that_do_not_occur_get_nothing(place):  # noqa: F811
    known = pa.table({"key": ["0:1", "0:2", "nobody's"]})
    task = task_of(TOTALS, 50, known=known)
    data = place.load(table_of(rows_of(1)))
    release = ds.release(
        data, key="key", privacy_unit="unit", known_keys=known, max_keys_per_unit=1, epsilon=50.0, delta=0.0,
        sums={"price": (0, 200)}, means={"rating": (1, 5)}, engine=place.engine,
    )  # fmt: skip
    assert release.table.column("key").to_pylist() == ["0:1", "0:2", "nobody's"]
    if not hasattr(place, "session"):
        counted = place.engine.aggregate(data, task)
        gone = counted.keys.column(0).to_pylist().index("nobody's")
        assert counted.frequencies[gone] == 0 and not counted.sums[:, gone].any()


def test_a_release_on_every_engine(place):  # noqa: F811
    """The published numbers are near the true ones."""
    rng = np.random.default_rng(5)
    units = np.arange(3000)
    table = pa.table({
        "unit": units, "key": np.where(units % 3, "tea", "milk"), "price": np.where(units % 3, 10.0, 50.0),
        "rating": np.where(rng.random(3000) < 0.5, 5, 4).astype(np.int32),
    })  # fmt: skip
    for keys in (1, "auto"):
        release = ds.release(
            place.load(table), key="key", privacy_unit="unit", max_keys_per_unit=keys, epsilon=2.0, delta=1e-6,
            sums={"price": (0, 100)}, means={"rating": (1, 5)}, engine=place.engine,
        )  # fmt: skip
        rows = {row["key"]: row for row in release}
        assert rows["tea"]["price_sum"] == pytest.approx(20_000, abs=8_000) and len(rows) == 2
        assert rows["milk"]["price_sum"] == pytest.approx(50_000, abs=8_000)
        assert rows["tea"]["rating_mean"] == pytest.approx(4.5, abs=0.3)


def test_columns_of_text_are_refused_where_they_have_a_type(place):  # noqa: F811
    if not place.in_schema:
        return
    data = place.load(pa.table({"unit": [1, 2], "key": ["a", "b"], "price": ["1", "2"]}))
    for argument in ("sums", "means"):
        with pytest.raises(DpsieveError, match=f"{argument}='price' has the type") as caught:
            ds.release(
                data,
                key="key",
                privacy_unit="unit",
                epsilon=1.0,
                delta=1e-8,
                engine=place.engine,
                **{argument: {"price": (0, 1)}},
            )
        assert caught.value.argument == argument
    with pytest.raises(InvalidValue, match="sums='prise' is not a column"):
        ds.release(
            data, key="key", privacy_unit="unit", epsilon=1.0, delta=1e-8, engine=place.engine, sums={"prise": (0, 1)}
        )


def test_a_million_rows_of_one_unit_add_one_clipped_sum():
    table = pa.table({"unit": np.append(np.zeros(10**6, np.int64), 1), "key": ["a"] * (10**6 + 1),
                      "price": np.append(np.full(10**6, 1e18), 7.0)})  # fmt: skip
    total = Total("price", "sum", 0, 200)
    counted = DuckDB().aggregate(table, task_of((total,), 1))
    assert counted.frequencies.tolist() == [2]
    assert counted.sums.tolist() == [[GRID + on_grid([7.0], total)]]


RAW = (RawTotal("price", "sum"), RawTotal("price", "mean"))


@pytest.mark.parametrize("most", [1, 2, 5, 10**12])
@pytest.mark.parametrize("known", [None, pa.table({"key": ["key 3", "key 1", "nobody's"]})], ids=["all", "listed"])
@pytest.mark.parametrize("text_units", [False, True], ids=["numbers", "texts"])
def test_compiled_loops_add_up_as_sql_does(most, known, text_units, loops):
    """To the last digit, for every pair: also sums that need more than 64 bits, and numbers in steps without bounds."""
    rng = np.random.default_rng(most)
    rows = 20_000
    price = np.where(rng.random(rows) < 0.4, rng.choice(np.array(HOSTILE, float), rows), rng.gamma(2, 20, rows))
    price = np.where(rng.random(rows) < 0.1, -(2.0**38), price)
    units = pa.array(rng.integers(0, 300, rows))
    table = pa.table({
        "unit": units.cast(pa.string()) if text_units else units, "key": [f"key {k}" for k in rng.zipf(1.3, rows) % 30],
        "price": pa.array(price, mask=rng.random(rows) < 0.1), "rating": pa.array(rng.integers(0, 6, rows), pa.uint8()),
    })  # fmt: skip
    task = task_of(TOTALS + RAW, most, known=known, allow_null_units=True)
    found, expected = loops.read_pairs(table, task), DuckDB(compiled_from=None).read_pairs(table, task)
    assert found.starts.tolist() == expected.starts.tolist()
    names = [pairs.keys["key"].take(pa.array(pairs.key_numbers)) for pairs in (found, expected)]
    assert names[0].equals(names[1])
    np.testing.assert_array_equal(found.amounts, expected.amounts)
    task = task_of(TOTALS, most, known=known, allow_null_units=True)
    assert read(loops.aggregate(table, task)) == read(DuckDB(compiled_from=None).aggregate(table, task))
    with loops.read_by_bound(table, task_of(TOTALS, 1000)) as counts:
        assert read(counts.under(2)) == read(DuckDB(compiled_from=None).aggregate(table, task_of(TOTALS, 2)))


@pytest.fixture
def loops(monkeypatch):
    """DuckDB with compiled loops, which answer."""
    from dpsieve.engines.duckdb.compiled import pairs

    real, answers = pairs.read_pairs, []
    monkeypatch.setattr(pairs, "read_pairs", lambda *given: answers.append(real(*given)) or answers[-1])
    yield DuckDB(compiled_from=0, threads=2)
    assert answers and None not in answers


@pytest.mark.parametrize("value", [2.0**38, -(2.0**38), 1.0 - 2.0**-20, -0.75])
def test_sums_of_more_than_64_bits_are_those_of_sql(value, loops):
    """A million times the largest step; DuckDB's own way to make a double of it decides its last digit."""
    table = pa.table({"unit": np.zeros(100_003, np.int64), "key": ["a"] * 100_003, "price": np.full(100_003, value)})
    task = task_of(RAW, 1)
    expected = DuckDB(compiled_from=None).read_pairs(table, task).amounts
    assert loops.read_pairs(table, task).amounts.tolist() == expected.tolist()


def test_text_in_files_is_read_as_numbers(tmp_path):
    path = tmp_path / "orders.csv"
    path.write_text("unit,key,price\n1,1:a,5\n1,1:a,many\n1,1:a, 2.5\n2,2:a,\n3,3:a,nan\n")
    total = Total("price", "sum", -10, 10)
    found = read(DuckDB().aggregate(str(path), task_of((total,), 5)))
    assert found == {"1:a": [on_grid([5, 2.5], total)], "2:a": [total.missing], "3:a": [total.missing]}
