"""What is paid for is kept, and commands show what was charged and what is left."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.command import run

import dpsieve as ds

pytestmark = pytest.mark.usefixtures("one_database")
COMMAND = str(Path(sys.executable).with_name("dpsieve"))
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
ASKED = ["release", "rows.parquet", "--key", "query", "--unit", "user", "--max-keys", "1", *BUDGET]


@pytest.fixture
def folder(tmp_path):
    pq.write_table(pa.table({"user": list(range(500)), "query": ["tea"] * 500}), tmp_path / "rows.parquet")
    (tmp_path / "items.txt").write_text("tea\n" * 500)
    ds.Ledger(tmp_path / "budget.ledger", 9, 1e-3, unit="one user")
    ds.Ledger(tmp_path / "items.ledger", 9, 1e-3, unit="one item")
    return tmp_path


def entries(folder):
    return len(ds.Ledger.open(folder / "budget.ledger"))


def test_a_default_folder_is_new_each_time(folder):
    (folder / "dpsieve-release-2").touch()
    for number in (1, 3):
        done = run(*ASKED, "--ledger", "budget.ledger", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert done.stderr == f"Saved to dpsieve-release-{number}. Pass --out to choose the place.\n"
        assert len(ds.Release.load(folder / f"dpsieve-release-{number}")) == 1
    assert run(*ASKED, "--ledger", "budget.ledger", "--dry-run", cwd=folder).returncode == 0
    assert entries(folder) == 2 and not (folder / "dpsieve-release-4").exists() and not list(folder.glob(".*"))


def test_a_refused_release_leaves_no_folder(folder):
    wrong = [*ASKED[:2], "--key", "quarry", *ASKED[4:]]
    done = run(*wrong, "--ledger", "budget.ledger", cwd=folder)
    assert done.returncode == 2 and "Did you mean 'query'" in done.stderr
    assert not [path for path in folder.iterdir() if "release" in path.name] and entries(folder) == 0


def test_without_a_ledger_a_note_says_that_nothing_is_saved(folder):
    assert (
        run(*ASKED, cwd=folder).stderr
        == "note: this result is not saved. Pass --out, as in --out published, to keep one.\n"
    )
    for more in (["--json"], ["--out", "x"], ["--dry-run"]):
        assert run(*ASKED, *more, cwd=folder).stderr == ""


@pytest.mark.parametrize("command", [ASKED, ["stream", "items.txt", *BUDGET]], ids=["release", "stream"])
def test_what_is_charged_and_left_is_shown(folder, command):
    book = "items.ledger" if command[0] == "stream" else "budget.ledger"
    done = run(*command, "--ledger", book, cwd=folder)
    shown = " ".join(done.stdout.split())
    assert "Ledger: charged epsilon 1, delta 1e-06 as entry 1. Left for one more release: epsilon 8" in shown
    record = json.loads(run(*command, "--ledger", book, "--json", cwd=folder).stdout)["ledger"]
    assert record["entry"] == 2 and record["left"]["epsilon"] == pytest.approx(7) and "epsilon 1" in record["charged"]
    left = json.loads(run(*command, "--ledger", book, "--dry-run", "--json", cwd=folder).stdout)["left"]
    assert left["epsilon"] == pytest.approx(7)


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_what_a_pipe_does_not_take_is_kept(folder):
    full = " > /dev/full" if Path("/dev/full").exists() else " | true"
    for number, end in enumerate((" | head -c 20", full), 1):
        asked = shlex.join([COMMAND, *ASKED, "--json", "--ledger", "budget.ledger"])
        done = subprocess.run(asked + end, shell=True, cwd=folder, capture_output=True, text=True, check=False)
        assert f"dpsieve-release-{number}" in done.stderr and "Traceback" not in done.stderr
        assert len(ds.Release.load(folder / f"dpsieve-release-{number}")) == 1


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
@pytest.mark.parametrize("command", [
    [*ASKED[:1], "-", *ASKED[2:], "--header", "user,query"], ["stream", "-", *BUDGET],
], ids=["release", "stream"])  # fmt: skip
def test_a_pipe_without_a_byte_costs_nothing(folder, command):
    book = "items.ledger" if command[0] == "stream" else "budget.ledger"
    asked = [COMMAND, *command, "--ledger", book]
    done = subprocess.run(asked, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "standard input is empty: the command before a pipe failed" in done.stderr
    assert not len(ds.Ledger.open(folder / book)) and not list(folder.glob("*release-1"))


def test_a_table_without_rows_is_charged_like_any_other(folder):
    pq.write_table(
        pa.table({"user": pa.array([], pa.int64()), "query": pa.array([], pa.string())}), folder / "rows.parquet"
    )
    done = run(*ASKED, "--ledger", "budget.ledger", cwd=folder)
    assert done.returncode == 0 and entries(folder) == 1
    assert "Whether the data has any rows is not revealed." in " ".join(done.stdout.split())


def test_dry_runs_show_the_noise(folder):
    shown = {
        ("stream", "items.txt"): "standard deviation of the noise",
        ("discover", "rows.parquet", "--key", "query", "--unit", "user"): "a key is found half of the time",
        ("top-k", "rows.parquet", "--key", "query", "--unit", "user", "--k", "2"): "the 2 keys with the largest counts",
        ("release", "rows.parquet", "--key", "query", "--unit", "user"): "counts of common keys are within",
    }  # fmt: skip
    for command, words in shown.items():
        done = run(*command, *BUDGET, "--dry-run", cwd=folder)
        assert done.returncode == 0 and words in " ".join(done.stdout.replace("│", " ").split()), (command, done.stdout)
