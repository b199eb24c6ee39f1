"""What can be known before the scan costs no budget, and what was paid for is not lost."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.command import run

import dpsieve as ds
from dpsieve.cli.output import save_paid as keep
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidType
from dpsieve.publication.files import Reserved

COMMAND = Path(sys.executable).with_name("dpsieve")
ASKED = ["release", "rows.parquet", "--key", "query", "--unit", "user", "--epsilon", "1", "--delta", "1e-6"]


@pytest.fixture
def folder(tmp_path):
    pq.write_table(pa.table({"user": list(range(500)), "query": ["tea"] * 500}), tmp_path / "rows.parquet")
    ds.Ledger(tmp_path / "budget.ledger", 1.5, 1e-5, unit="one user")
    return tmp_path


def started(folder, *arguments):
    """The real command, with a bound of one key, which loads no compiled code."""
    command = [COMMAND, *ASKED, "--max-keys", "1", *arguments]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def spends(folder):
    return len(ds.Ledger.open(folder / "budget.ledger").history())


WRONG = ["rows.parquet", "missing/x", "rows.parquet/x", "x" * 300, "missing/x.csv", "rows.parquet/x.csv", "x.tsv"]


@pytest.mark.parametrize("out", [*WRONG, "x" * 300 + ".csv"])
def test_an_out_that_cannot_be_written_costs_nothing(folder, out):
    done = run(*ASKED, "--out", out, "--ledger", "budget.ledger", cwd=folder)
    assert done.returncode == 2 and "error: --out" in done.stderr
    assert spends(folder) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["budget.ledger", "rows.parquet"]


def test_two_processes_with_one_out_pay_once(folder):
    running = [started(folder, "--out", "x", "--ledger", "budget.ledger") for _ in range(2)]
    results = [(process.communicate(), process.returncode)[1] for process in running]
    assert sorted(results) == [0, 2]
    assert spends(folder) == 1 and len(ds.Release.load(folder / "x")) == 1


def test_two_processes_with_one_file_pay_once(folder):
    running = [started(folder, "--out", "x.csv", "--ledger", "budget.ledger") for _ in range(2)]
    results = [(process.communicate(), process.returncode)[1] for process in running]
    assert sorted(results) == [0, 2] and spends(folder) == 1
    assert (folder / "x.csv").read_text().startswith('"query","count","low","high","weight","bound"\n"tea",')
    assert sorted(path.name for path in folder.iterdir()) == ["budget.ledger", "rows.parquet", "x.csv"]


def no_rows():
    def batches():
        raise AssertionError("the data was read")
        yield

    return pa.RecordBatchReader.from_batches(pa.schema({"user": pa.int64(), "query": pa.string()}), batches())


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("more", [[], ["--json"], ["--out", "x"]], ids=["table", "json", "out"])
def test_a_release_that_cannot_be_printed_says_that_it_was_charged(folder, more):
    command = [COMMAND, *ASKED, "--max-keys", "1", "--ledger", "budget.ledger", *more]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=folder, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    there = "It is in x." if "--out" in more else "It is in dpsieve-release-1."
    charged = "The ledger was charged before this: entry 1 stays spent."
    saved = "" if "--out" in more else "Saved to dpsieve-release-1. Pass --out to choose the place.\n"
    assert done.stderr == f"{saved}error: the release is made and cannot be printed. {there} {charged}\n"
    assert done.returncode == 1 and spends(folder) == 1 and (folder / "x").exists() == ("--out" in more)
    assert len(ds.Release.load(folder / ("x" if more == ["--out", "x"] else "dpsieve-release-1"))) == 1


@pytest.mark.skipif(os.name != "posix", reason="descriptors of POSIX")
def test_a_closed_standard_output_says_that_the_release_was_charged(folder):
    asked = shlex.join([str(COMMAND), *ASKED, "--max-keys", "1", "--ledger", "budget.ledger"])
    done = subprocess.run(f"{asked} >&-", shell=True, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.endswith("The ledger was charged before this: entry 1 stays spent.\n") and spends(folder) == 1
    assert done.returncode == 1


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_process_that_is_ended_after_the_charge_says_so(folder):
    code = """
import os, signal, sys
from dpsieve import __main__
from dpsieve.jobs import release
calls, publish = [], release.release_of

def end_at_the_second_call(*arguments, **options):  # the first one is the rehearsal, before the charge
    calls.append(1)
    return publish(*arguments, **options) if len(calls) == 1 else os.kill(os.getpid(), signal.SIGTERM)

release.release_of = end_at_the_second_call
sys.argv[0] = "dpsieve"
__main__.main()
"""
    command = [sys.executable, "-c", code, *ASKED, "--max-keys", "1", "--ledger", "budget.ledger"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM and spends(folder) == 1
    assert done.stderr == "The ledger was charged before this: entry 1 stays spent.\n"


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device"), KeyError("marked-secret")])
def test_a_failure_after_the_charge_says_so(folder, monkeypatch, error):
    from dpsieve.jobs.release import release_of

    def fail(*arguments, **options):
        if spends(folder):
            raise error
        return release_of(*arguments, **options)  # the rehearsal, before the charge

    monkeypatch.setattr("dpsieve.jobs.release.release_of", fail)
    done = run(*ASKED, "--max-keys", "1", "--ledger", "budget.ledger", cwd=folder)
    assert done.returncode == 1 and done.stderr.endswith("entry 1 stays spent.\n") and "marked" not in done.stderr
    assert spends(folder) == 1


def test_a_ledger_that_cannot_pay_is_known_before_the_scan(folder):
    asked = {"key": "query", "privacy_unit": "user", "epsilon": 2.0, "delta": 1e-6}
    with pytest.raises(BudgetExceeded):
        ds.release(no_rows(), **asked, ledger=ds.Ledger.open(folder / "budget.ledger"))
    with pytest.raises(DpsieveError, match="one household"):
        ds.release(no_rows(), **asked, ledger=ds.Ledger(folder / "other.ledger", 9, 1e-5, unit="one household"))
    with pytest.raises(InvalidType, match="engine must be an engine"):
        ds.release(no_rows(), **asked, engine="duckdb")


def test_a_release_that_cannot_be_saved_is_kept_elsewhere(folder, monkeypatch, capsys):
    release = ds.channels.optimal(1.0, 1e-8).release(["tea"], [500])
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with Reserved(folder / "x") as place:
        (folder / "x").mkdir()
        (folder / "x" / "in the way").touch()
        kept = keep(release, place, quiet=False)
    assert kept.name == "x" and kept != folder / "x" and len(ds.Release.load(kept)) == 1
    assert f"It is in {kept} instead" in capsys.readouterr().err
    with Reserved(folder / "x.csv") as place:
        (folder / "x.csv").write_text("of someone else")
        kept = keep(release, place, quiet=False)
    assert (folder / "x.csv").read_text() == "of someone else" and '"tea",' in kept.read_text()
    assert f"It is in {kept} instead" in capsys.readouterr().err
    with Reserved(folder / "y") as place:
        monkeypatch.setattr("tempfile.tempdir", "/nowhere")
        (folder / "y").touch()
        assert keep(release, place, quiet=False) is None
    assert json.loads(capsys.readouterr().out)["keys"][0]["key"] == "tea"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_piped_rows_do_not_outlive_the_command(folder, number):
    temporary = folder / "temporary"
    temporary.mkdir()
    command = [COMMAND, "release", "-", *ASKED[2:], "--out", "x"]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(b"user,query\n" + b"1,marked-secret\n" * 100_000)
        process.stdin.flush()
        until = time.monotonic() + 60
        while not list(temporary.rglob("stream.csv")) and time.monotonic() < until:
            time.sleep(0.05)
        assert list(temporary.rglob("stream.csv"))
        time.sleep(0.2)
        process.send_signal(number)
        process.wait(timeout=120)
        assert b"Traceback" not in process.stderr.read()
        process.stdin.close()
    assert process.returncode != 0
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["budget.ledger", "rows.parquet", "temporary"]


INTERRUPTED = """
import sys
from dpsieve.__main__ import main
class Interrupt:
    def find_spec(self, name, *_):
        if name == "dpsieve.cli.output":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
main()
"""


def test_an_interrupt_while_it_starts_is_quiet():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("more", [[], ["--unit", "user"]])
def test_a_table_without_a_header_is_not_shown(folder, more):
    (folder / "rows.csv").write_text("ann,divorce lawyer\nbob,tea\n")
    done = run("preview", "rows.csv", "--key", "query", *more, "--epsilon", "1", "--delta", "1e-6", cwd=folder)
    assert done.returncode == 2 and "divorce" not in done.stderr + done.stdout and "ann" not in done.stderr


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_whatever_the_key_a_release_that_is_paid_for_is_printed(folder, more):
    keys = {"late": pa.array([3_000_000] * 500, pa.int32()).cast(pa.date32()), "accent": pa.array(["\u00e9"] * 500)}
    for name, column in keys.items():
        pq.write_table(pa.table({"user": list(range(500)), "query": column}), folder / "rows.parquet")
        done = run(*ASKED, *more, cwd=folder, encoding="ascii")
        assert done.returncode == 0, done.stderr
        assert more or "1 released key\n" in done.stdout
        assert {"late": "10183", "accent": "xe9" if not more else "00e9"}[name] in done.stdout


def test_what_should_not_happen_prints_no_data(folder, monkeypatch, capsys):
    from dpsieve import cli

    def fail(**_):
        raise KeyError("marked-secret")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit):
        cli.main()
    message = capsys.readouterr().err
    assert "KeyError at" in message and "marked" not in message
