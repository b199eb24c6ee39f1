"""Memory, disk, progress and interrupts: whatever happens, nothing is left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import duckdb
import pyarrow as pa
import pytest
from helpers.counting import count

from dpsieve.engines import DuckDB
from dpsieve.engines.answers import run_query
from dpsieve.engines.duckdb.compiled import pairs
from dpsieve.errors import InvalidValue, UnreadableData
from dpsieve.locks import private_folder


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """800,000 rows of 400,000 units; the pairs alone need more than the limit below."""
    path = tmp_path_factory.mktemp("large") / "rows.parquet"
    unit, key = "CAST(hash(i) % 400000 AS BIGINT)", "'a key with quite a long name, number ' || hash(i + 1) % 350000"
    text = f"SELECT {unit} AS unit, {key} AS key"
    duckdb.connect().execute(f"COPY (SELECT * FROM ({text} FROM range(800000) AS t(i))) TO '{path}'")
    return path


@pytest.mark.parametrize("max_keys", [1, 3])
def test_what_does_not_fit_into_memory_goes_to_disk_and_leaves_nothing(large, tmp_path, max_keys):
    seen = []

    def watch(share):
        folders = list(tmp_path.iterdir())
        assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700]
        seen.extend(file.name for file in folders[0].iterdir())

    small = DuckDB(memory_limit="50MB", threads=1, temp_folder=tmp_path)
    counted = count(small, large, max_keys=max_keys, progress=lambda share: watch(share) if share < 1 else None)
    assert seen, "nothing was spilled: make the table larger"
    assert list(tmp_path.iterdir()) == []
    plain = count(DuckDB(), large, max_keys=max_keys)
    assert counted.frequencies.sum() == plain.frequencies.sum()
    assert counted.keys.num_rows == plain.keys.num_rows


def test_too_little_memory_is_said(large, tmp_path):
    with pytest.raises(InvalidValue, match="memory_limit is too small"):
        count(DuckDB(memory_limit="2MB", temp_folder=tmp_path), large, max_keys=5)
    assert list(tmp_path.iterdir()) == []


def test_errors_leave_nothing(tmp_path):
    bad = tmp_path / "rows.csv"
    bad.write_text("unit,key\n1\n")
    spare = tmp_path / "spare"
    spare.mkdir()
    with pytest.raises(UnreadableData):
        count(DuckDB(temp_folder=spare), bad)
    assert list(spare.iterdir()) == []


def test_progress_grows_to_one(large):
    shares = []
    count(DuckDB(threads=1), large, max_keys=3, progress=shares.append)
    assert shares == sorted(shares) and shares[-1] == 1.0 and shares[0] >= 0
    assert len(set(shares)) > 2


def test_what_progress_raises_stops_the_count(large, tmp_path):
    class Enough(Exception):
        pass

    def stop(share):
        raise Enough

    with pytest.raises(Enough):
        count(DuckDB(threads=1, temp_folder=tmp_path), large, max_keys=3, progress=stop)
    assert list(tmp_path.iterdir()) == []


ENDLESS = {
    "own": "DuckDB(temp_folder=sys.argv[1]).aggregate(Endless(), task)",
    "relation": "DuckDB(temp_folder=sys.argv[1]).aggregate(duckdb.sql(query), task)",
}
SCRIPT = """
import sys, duckdb, pyarrow as pa
from dpsieve.engines import Columns, DuckDB
from dpsieve.engines.engine import Aggregation
from dpsieve.privacy.guarantee import Contribution
query = "SELECT i % 7 AS unit, 'k' AS key FROM range(1000000000000) t(i)"
task = Aggregation(Columns(("key",), "unit"), Contribution())
def batches():
    while True:
        yield pa.record_batch({"unit": [1] * 1000, "key": ["k"] * 1000})
class Endless:
    def __arrow_c_stream__(self, schema=None):
        types = pa.schema({"unit": pa.int64(), "key": pa.string()})
        return pa.RecordBatchReader.from_batches(types, batches()).__arrow_c_stream__(schema)
print("ready", flush=True)
try:
    CALL
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@contextlib.contextmanager
def started(call, folder):
    script = SCRIPT.replace("CALL", ENDLESS[call])
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            while call == "own" and not list(folder.iterdir()):
                time.sleep(0.01)
            time.sleep(0.3)
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("call", ENDLESS)
def test_an_interrupt_from_the_keyboard_ends_the_query_and_cleans_up(tmp_path, call):
    with started(call, tmp_path) as process:
        assert bool(list(tmp_path.iterdir())) == (call == "own")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0] == "interrupted\n"
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_what_a_killed_process_left_is_removed_by_the_next_count(tmp_path):
    with started("own", tmp_path) as process:
        (left,) = tmp_path.iterdir()
        (left / "spilled.tmp").write_text("marked-secret")
        table = pa.table({"unit": [1], "key": ["a"]})
        count(DuckDB(temp_folder=tmp_path), table)
        assert (left / "spilled.tmp").exists(), "it belongs to a process that runs"
        process.kill()
        process.wait()
    assert left.exists()
    count(DuckDB(temp_folder=tmp_path), table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_a_folder_whose_process_died_before_it_was_locked_is_removed_too(tmp_path):
    (tmp_path / "dpsieve-private-half").mkdir()
    (tmp_path / "dpsieve-private-half" / "spilled.tmp").write_text("marked-secret")
    with private_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("call", ENDLESS)
def test_a_signal_to_end_cleans_up_first(tmp_path, call, name):
    number = getattr(signal, name)
    with started(call, tmp_path) as process:
        process.send_signal(number)
        process.communicate(timeout=20)
    assert process.returncode == -number
    assert list(tmp_path.iterdir()) == []


def test_handlers_of_the_caller_stay(tmp_path):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with private_folder(tmp_path):
            signal.raise_signal(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("limit", ["99999999999999TB", 10**30])
def test_settings_that_duckdb_cannot_take(limit):
    with pytest.raises(InvalidValue, match="memory_limit"):
        DuckDB(memory_limit=limit).columns(pa.table({"a": [1]}))


def test_folders_of_others_are_left_alone(tmp_path):
    (tmp_path / "dpsieve-release-kept").mkdir()
    (tmp_path / "dpsieve-private-file").touch()
    (tmp_path / "dpsieve-private-link").symlink_to(tmp_path / "dpsieve-release-kept")
    before = sorted(tmp_path.iterdir())
    with private_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert sorted(tmp_path.iterdir()) == before


def test_counts_in_several_threads_at_once(tmp_path):
    table = pa.table({"unit": [1, 2, 2], "key": ["a", "a", "a"]})
    engine, totals = DuckDB(temp_folder=tmp_path), []
    work = [
        threading.Thread(target=lambda: totals.append(int(count(engine, table).frequencies.sum()))) for _ in range(4)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert totals == [2] * 4 and list(tmp_path.iterdir()) == []


def test_nothing_is_fetched_and_no_python_variable_is_read(monkeypatch):
    settings = {}
    real = duckdb.connect

    def connect(*arguments, **options):
        settings.update(options["config"])
        return real(*arguments, **options)

    monkeypatch.setattr(duckdb, "connect", connect)
    DuckDB().columns(pa.table({"a": [1]}))
    for name in ("autoinstall_known_extensions", "autoload_known_extensions", "python_enable_replacements"):
        assert settings[name] == "false"


BOTH_WAYS = pytest.mark.parametrize("compiled_from", [0, None], ids=["compiled", "sql"])


@BOTH_WAYS
def test_a_signal_while_the_thread_of_a_query_starts_waits_for_the_query(large, monkeypatch, compiled_from):
    """Else the database would be closed while it works."""
    real = threading.Thread.start

    def start(thread):
        real(thread)
        if thread.name == "dpsieve-count":
            time.sleep(0.05)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        count(DuckDB(compiled_from=compiled_from), large)
    for thread in threading.enumerate():  # what it has to do is done; it may be about to end
        if thread.name.startswith("dpsieve"):
            thread.join(1)
            assert not thread.is_alive()


def test_a_signal_before_the_thread_of_a_query_starts_ends_at_once(monkeypatch):
    def start(thread):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        run_query(lambda: None, duckdb.connect(), None)


@BOTH_WAYS
def test_where_no_thread_can_be_started_the_same_is_counted(large, monkeypatch, compiled_from):
    def start(thread):
        raise RuntimeError("can't start new thread")

    expected = count(DuckDB(), large, salt=3).frequencies.sum()
    monkeypatch.setattr(threading.Thread, "start", start)
    assert count(DuckDB(compiled_from=compiled_from), large, salt=3).frequencies.sum() == expected


@pytest.mark.parametrize("batches", [0, 3])
def test_a_stream_that_breaks_leaves_all_to_sql(large, monkeypatch, batches, caplog):
    """Whatever the reader raises in one of the threads. Rows may be the cause, so it is not logged."""
    read = []

    def append(part, batch):
        read.append(len(batch))
        if len(read) > batches:
            raise OSError("a row that is quoted")
        return real(part, batch)

    collected = pairs._Collected
    real = collected.append
    monkeypatch.setattr(collected, "append", append)
    counted = count(DuckDB(compiled_from=0, threads=2), large, salt=3).frequencies.sum()
    assert counted == count(DuckDB(compiled_from=None), large, salt=3).frequencies.sum()
    assert sum(read) < 800_000 and not caplog.text
