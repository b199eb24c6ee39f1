"""What one unit adds is bounded, fair, and decided by its own rows alone."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from helpers.statistical import assert_follows

from dpsieve.engines.sql.queries import DUCKDB

pytestmark = pytest.mark.usefixtures("one_database")


@pytest.mark.parametrize("max_keys", [1, 5, 1000, 5000])
def test_a_unit_with_a_thousand_keys(frequencies, max_keys):
    table = pa.table({"unit": [7] * 3000, "key": list(range(1000)) * 3})
    found = frequencies(table, max_keys=max_keys)
    assert len(found) == min(max_keys, 1000) and set(found.values()) == {1}
    assert set(frequencies(table, max_keys=max_keys, max_rows=2).values()) == {2}


@pytest.mark.parametrize("max_rows", [1, 3])
def test_a_unit_with_a_million_rows_of_one_key(frequencies, max_rows):
    table = pa.table({"unit": np.zeros(10**6, np.int64), "key": np.zeros(10**6, np.int64)})
    assert frequencies(table, max_keys=2, max_rows=max_rows) == {0: max_rows}
    assert frequencies(table, max_keys=1, max_rows=max_rows) == {0: max_rows}


def test_each_key_of_a_unit_is_as_likely_over_salts():
    """One unit, one query over many salts. A hash without the outer mixing would fail this."""
    connection = duckdb.connect()
    names = [f"key number {i}" for i in range(11)]
    connection.execute("CREATE TABLE keys AS SELECT unnest(?) AS k", [names])
    for unit in ("42", "'ann'"):
        start = fresh() >> 2
        salts = f"range({start}, {start + 50_000}) AS t(s)"
        text = f"SELECT arg_min(k, {DUCKDB.choice('s', [unit], ['k'])}) FROM keys, {salts} GROUP BY s"
        drawn = [names.index(row[0]) for row in connection.execute(text).fetchall()]
        assert_follows(drawn, range(11), np.full(11, 1 / 11))


def fresh():
    return int(np.random.default_rng().integers(2**64, dtype=np.uint64))
