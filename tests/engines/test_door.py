"""When compiled loops are used at all: versions, the switch, the cache, the self-test, and the kinds of columns."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.counting import found

from dpsieve.compiled import jit
from dpsieve.engines import DuckDB
from dpsieve.engines.duckdb import compiled, engine
from dpsieve.engines.duckdb.compiled import pair_loops, pairs
from dpsieve.errors import InvalidValue

LOOPS, SQL = DuckDB(compiled_from=0, threads=2), DuckDB(compiled_from=None)
TABLE = pa.table({"unit": [i % 50 for i in range(400)], "key": [f"key {i * i % 31}" for i in range(400)]})


@pytest.fixture
def runs(monkeypatch):
    """What compiled loops answered."""
    answers, real = [], pairs.read_pairs
    monkeypatch.setattr(pairs, "read_pairs", lambda *given: answers.append(real(*given)) or answers[-1])
    return answers


@pytest.fixture
def untested():
    compiled.passes_self_test.cache_clear()
    yield
    compiled.passes_self_test.cache_clear()


def test_loops_are_used_where_they_were_tested(runs):
    assert found(LOOPS, TABLE, max_keys=2) == found(SQL, TABLE, max_keys=2)
    assert len(runs) == 1 and runs[0] is not None


@pytest.mark.parametrize("reason", ["version", "switch"])
def test_another_version_and_the_switch_leave_all_to_sql(reason, runs, monkeypatch):
    if reason == "version":
        monkeypatch.setattr(compiled, "TESTED", ("1.0.0",))
    else:
        monkeypatch.setenv(jit.SWITCH, "off")
    assert found(LOOPS, TABLE, max_keys=2) == found(SQL, TABLE, max_keys=2)
    assert runs == []


def test_the_self_test_notices_another_choice(monkeypatch):
    """As if SQL ordered keys by another hash, as another version of DuckDB may."""
    assert compiled.agree_with_sql()
    real = engine.pairs_by_sql

    def other_choice(job):
        held = real(job)
        held.key_numbers[[0, 1]] = held.key_numbers[[1, 0]]
        return held

    monkeypatch.setattr(engine, "pairs_by_sql", other_choice)
    assert not compiled.agree_with_sql()


def test_where_the_self_test_fails_sql_counts(runs, monkeypatch, untested, caplog):
    monkeypatch.setattr(compiled, "agree_with_sql", lambda: False)
    monkeypatch.setattr(jit, "is_noted", lambda what: False)
    assert found(LOOPS, TABLE, max_keys=2) == found(SQL, TABLE, max_keys=2)
    assert runs == [] and "do not agree with SQL" in caplog.text


@pytest.mark.parametrize("error", [jit.NotCompiled, MemoryError])
def test_a_self_test_without_a_result_is_repeated(error, runs, monkeypatch, untested, caplog):
    """As while the process in the background has compiled some of the loops, but not all."""

    def fail(*_):
        raise error

    monkeypatch.setattr(jit, "is_noted", lambda what: False)
    with monkeypatch.context() as patch:
        patch.setattr(pair_loops, "settle", fail)
        assert found(LOOPS, TABLE, max_keys=2) == found(SQL, TABLE, max_keys=2)
    assert "do not agree" not in caplog.text
    assert compiled.load_loops() is not None


def test_an_error_of_the_self_test_is_not_one_of_the_call(runs, monkeypatch, untested):
    """It needs a folder for temporary files, which is not the one of the call."""

    def fail():
        raise InvalidValue("temp_folder has no space left. Pass one on a larger disk.")

    monkeypatch.setattr(compiled, "agree_with_sql", fail)
    monkeypatch.setattr(jit, "is_noted", lambda what: False)
    assert found(LOOPS, TABLE, max_keys=2) == found(SQL, TABLE, max_keys=2)
    assert runs == []


def test_a_self_test_that_passed_is_noted_in_the_cache(monkeypatch, untested):
    monkeypatch.setattr(compiled, "agree_with_sql", lambda: True)
    noted = []
    monkeypatch.setattr(jit, "is_noted", lambda what: what in noted)
    monkeypatch.setattr(jit, "note", noted.append)
    assert compiled.load_loops() is not None and len(noted) == 1
    compiled.passes_self_test.cache_clear()
    monkeypatch.setattr(compiled, "agree_with_sql", lambda: pytest.fail("it was noted"))
    assert compiled.load_loops() is not None


WITHOUT_CACHE = """
import pyarrow as pa
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.privacy.guarantee import Contribution
table = pa.table({"unit": [1, 1, 2], "key": ["a", "b", "a"]})
task = Aggregation(Columns(("key",), "unit"), Contribution(3))
print(sorted(DuckDB(compiled_from=0).aggregate(table, task).frequencies.tolist()))
from dpsieve.compiled import jit
print(jit.saved)
"""


def test_no_call_waits_for_a_compiler(tmp_path):
    """Nothing is in this cache, so SQL counts, and nothing is compiled."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), jit.SWITCH: "cached"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CACHE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[1, 2]", "0"]
    assert list(tmp_path.rglob("*.settle*")) == []


@pytest.mark.parametrize("dictionary", [True, False])
def test_columns_of_files_with_dictionaries_and_with_one_value(dictionary, tmp_path, runs):
    keys = ["a key that is repeated in many rows", "short", None, "a key that is repeated, and others"]
    table = pa.table({"unit": np.arange(40_000) // 4 % 3000, "key": [keys[i % 4] for i in range(40_000)],
                      "one": ["the same text in all the rows of this column"] * 40_000})  # fmt: skip
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(table, path, use_dictionary=dictionary)
    for columns in ({"key": ("key",), "unit": "unit"}, {"key": ("one",), "unit": "unit"},
                    {"key": ("unit",), "unit": "one"}, {"key": ("unit",), "unit": ("one", "unit")}):  # fmt: skip
        assert found(LOOPS, path, **columns, max_keys=2) == found(SQL, path, **columns, max_keys=2)
    assert len(runs) == 4 and None not in runs


def test_arrow_columns_of_every_kind(runs):
    """In chunks that begin anywhere, with nulls, as dictionaries, and as texts with long and short offsets."""
    texts = pa.array([None if i % 7 == 0 else f"key {i % 23} {'of more bytes' * (i % 2)}" for i in range(5000)])
    units = pa.array(np.arange(5000) % 611)
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        for unit in (pa.int16(), pa.uint32(), pa.int64(), pa.large_string()):
            keys, own = texts.cast(pa.string()), units.cast(unit)
            keys = keys.dictionary_encode() if pa.types.is_dictionary(kind) else keys.cast(kind)
            rows = pa.table({"unit": own, "key": keys})
            parts = pa.concat_tables([rows.slice(3, 1000), rows.slice(1003, 13), rows.slice(1016)])
            assert found(LOOPS, parts, max_keys=3) == found(SQL, parts, max_keys=3)
    assert len(runs) == 16 and None not in runs
