"""`dpsieve stream`, as a user types it."""

import json
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from helpers import command

import dpsieve as ds
from dpsieve.cli.stream import stream
from dpsieve.cli.stream_files import load, save
from dpsieve.engines.inputs import items as stream_items
from dpsieve.errors import UnreadableData
from dpsieve.sketches import sketch_from_bytes

COMMAND = Path(sys.executable).with_name("dpsieve")
BUDGET = ["--epsilon", "1", "--delta", "1e-12"]  # one of 200 rare lines shows once in 10^9 runs
LINES = "".join(f"common {i % 3}\n" for i in range(3000)) + "".join(f"rare {i}\n" for i in range(200))


def run(*arguments, **options):
    return command.run("stream", *arguments, **options)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lines.txt").write_text(LINES)
    (tmp_path / "log.csv").write_text("user,query\n" + "".join(f"{i},tea\n" for i in range(500)))
    return tmp_path


def test_from_a_pipe_to_the_screen_and_a_folder(folder):
    done = run("--counters", 64, *BUDGET, "--out", "published", "-", input=LINES, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert all(f"common {i}" in done.stdout for i in range(3)) and "rare" not in done.stdout
    assert "(1, 1e-12)-differential privacy when one item is added or removed." in done.stdout
    assert len(ds.Release.load(folder / "published")) == 3


def test_files_columns_and_json(folder):
    done = run("log.csv", "--column", "query", *BUDGET, "--json", cwd=folder)
    record = json.loads(done.stdout)
    assert [row["key"] for row in record["keys"]] == ["tea"] and "a threshold of 32" in record["notes"]["reason"]


def test_a_state_is_kept_and_gone_on_with(folder):
    first = run("lines.txt", "--state", "sketch", "--counters", 64, cwd=folder)
    assert first.returncode == 0 and "guard it like the data" in first.stdout
    assert (folder / "sketch").stat().st_mode & 0o077 == 0
    assert run("lines.txt", "--state", "sketch", cwd=folder).returncode == 0
    once, twice = len(LINES.splitlines()), sketch_from_bytes((folder / "sketch").read_bytes())
    assert twice.items == 2 * once and twice.counters == 64
    release = run("--state", "sketch", *BUDGET, "--json", cwd=folder)
    assert {row["key"] for row in json.loads(release.stdout)["keys"]} == {f"common {i}" for i in range(3)}
    assert sorted(path.name for path in folder.iterdir()) == ["lines.txt", "log.csv", "sketch"]


def test_of_several_files_all_count_or_none(folder):
    """So the same command, run again once the bad file is mended, counts no file twice."""
    run("lines.txt", "--state", "sketch", cwd=folder)
    before = (folder / "sketch").read_bytes()
    (folder / "broken.txt").write_bytes(b"fine\n" * 100 + b"\xff\n")
    done = run("lines.txt", "broken.txt", "--state", "sketch", cwd=folder)
    assert done.returncode == 2 and "line 101" in done.stderr and "is unchanged" in done.stderr
    assert (folder / "sketch").read_bytes() == before
    (folder / "broken.txt").write_bytes(b"mended\n" * 101)
    done = run("lines.txt", "broken.txt", "--state", "sketch", cwd=folder)
    assert done.returncode == 0 and "now holds 'lines.txt', 'broken.txt'" in done.stderr
    assert sketch_from_bytes((folder / "sketch").read_bytes()).items == 2 * len(LINES.splitlines()) + 101


def test_a_pipe_keeps_what_was_read_before_it_broke(folder):
    """It cannot be read again. Before the first item there is nothing to keep."""
    for inputs in (["-", "lines.txt"], ["-", "-"]):
        done = run(*inputs, "--state", "sketch", cwd=folder, input=LINES)
        assert done.returncode == 2 and "standard input cannot be read again" in done.stderr
    done = run("-", "--state", "sketch", "--format", "csv", cwd=folder, input=LINES)
    assert done.returncode == 2 and "is unchanged" in done.stderr and not (folder / "sketch").exists()
    done = run("-", "lines.txt", *BUDGET, "--json", cwd=folder, input=LINES)  # without a state they may be mixed
    assert len(json.loads(done.stdout)["keys"]) == 3


def test_a_broken_pipe_is_told_of(folder, monkeypatch, capsys):
    def broken(*_, **__):
        yield pa.array(["tea"] * 70)
        raise UnreadableData("line 71 is broken.")

    monkeypatch.setattr("dpsieve.engines.inputs.items.item_batches", broken)
    monkeypatch.chdir(folder)
    with pytest.raises(UnreadableData, match="line 71"):
        stream(["-"], counters=8, state=Path("sketch"))
    assert sketch_from_bytes(Path("sketch").read_bytes()).items == 70
    assert "holds what was read" in capsys.readouterr().err


def test_one_process_at_a_time_writes_a_state(folder):
    """The second one is refused at once; reading is always possible; a killed process leaves no lock behind."""
    run("lines.txt", "--state", "sketch", cwd=folder)
    command = [COMMAND, "stream", "-", "--state", "sketch"]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as first:
        until = time.monotonic() + 120
        while not (folder / ".sketch.lock").exists() and time.monotonic() < until:
            time.sleep(0.05)
        second = run("lines.txt", "--state", "sketch", cwd=folder)
        assert second.returncode == 2 and "in use by another" in second.stderr
        assert run("--state", "sketch", *BUDGET, cwd=folder).returncode == 0
        first.kill()
    assert run("lines.txt", "--state", "sketch", cwd=folder).returncode == 0
    assert sketch_from_bytes((folder / "sketch").read_bytes()).items == 2 * len(LINES.splitlines())
    assert not (folder / ".sketch.lock").exists()


def test_a_link_is_followed_and_its_target_replaced(folder):
    (folder / "disk").mkdir()
    (folder / "link").symlink_to("disk/sketch")
    for times in (1, 2):
        assert run("lines.txt", "--state", "link", cwd=folder).returncode == 0
        assert (folder / "link").is_symlink() and (folder / "disk/sketch").stat().st_mode & 0o777 == 0o600
        assert sketch_from_bytes((folder / "disk/sketch").read_bytes()).items == times * len(LINES.splitlines())


def test_a_state_that_cannot_be_written_or_read(folder, monkeypatch):
    for wrong in ("no/folder", "missing"):
        done = run(*(["lines.txt"] if wrong == "no/folder" else []), "--state", wrong, *BUDGET, cwd=folder)
        assert done.returncode == 2 and "No such file" in done.stderr, done.stderr
    tracemalloc.start()
    with pytest.raises(UnreadableData, match="not a saved"):
        load(Path("/dev/zero"))  # without end: only its beginning is read
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    monkeypatch.chdir(folder)
    save(ds.MisraGries(2), Path("full"))

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(UnreadableData, match=r"No space.*last saved"):
        patch.setattr("os.fsync", full)
        save(ds.MisraGries(3), Path("full"))
    assert load(Path("full")).counters == 2 and not list(folder.glob(".full*"))


def test_what_is_wrong_is_found_before_a_file_is_read(folder):
    """Else the file would be in the state, and count twice when the corrected command runs."""
    (folder / "twice.txt").write_text("a\na\n")
    for wrong in (
        ["--epsilon", 1],
        ["--epsilon", -1, "--delta", "1e-6"],
        [*BUDGET, "--out", "no/folder"],
        ["--epsilon", 1, "--universe", "twice.txt"],
        [*BUDGET, "--universe", "lines.txt"],
        [*BUDGET, "--counters", 0],
    ):
        assert run("lines.txt", "--state", "sketch", *wrong, cwd=folder).returncode == 2
        assert not (folder / "sketch").exists()
    ds.Ledger(folder / "budget", epsilon=0.5, delta=1e-6, unit="one item")
    spent = run("lines.txt", "--state", "sketch", *BUDGET, "--ledger", "budget", cwd=folder)
    assert spent.returncode == 2 and "does not fit the budget" in spent.stderr
    assert not (folder / "sketch").exists()
    assert run("lines.txt", "--state", "sketch", cwd=folder).returncode == 0
    other = run("lines.txt", "--state", "sketch", "--counters", 8, cwd=folder)
    assert other.returncode == 2 and "size of the state" in other.stderr


def test_an_interrupted_pipe_keeps_what_it_has_read(folder, monkeypatch):
    """A pipe cannot be read again, so an interrupt ends the reading, and what was read is kept."""

    def interrupted(*_, **__):
        yield pa.array(["tea"] * 70)
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsieve.engines.inputs.items.item_batches", interrupted)
    monkeypatch.chdir(folder)
    with pytest.raises(typer.Exit):
        stream(["-"], counters=8, state=Path("sketch"), epsilon=1.0, delta=1e-6)
    assert sketch_from_bytes(Path("sketch").read_bytes()).items == 70
    with pytest.raises(KeyboardInterrupt):  # a file can: it counts whole or not at all
        stream(["lines.txt"], counters=8, state=Path("sketch"))
    assert sketch_from_bytes(Path("sketch").read_bytes()).items == 70


def test_a_process_killed_at_any_time_leaves_a_whole_state(folder):
    run("lines.txt", "--state", "sketch", cwd=folder)
    size = len(LINES.splitlines())
    for delay in (0.4, 0.8, 1.2):
        with subprocess.Popen([COMMAND, "stream", "lines.txt", "--state", "sketch"], cwd=folder, stdout=-3) as process:
            time.sleep(delay)
            process.kill()
        assert sketch_from_bytes((folder / "sketch").read_bytes()).items % size == 0


def test_states_are_merged(folder):
    for name in ("a", "b"):
        run("lines.txt", "--state", name, "--counters", 64, cwd=folder)
    done = run("--merge", "a", "--merge", "b", *BUDGET, "--json", cwd=folder)
    record = json.loads(done.stdout)
    assert len(record["keys"]) == 3 and record["mechanism"]["kind"] == "misra_gries_rounded_sum"
    kept = run("--merge", "a", "--merge", "b", "--state", "both", cwd=folder)
    assert kept.returncode == 0 and sketch_from_bytes((folder / "both").read_bytes()).sources == 2
    twice = run("--merge", "a", "--merge", "./a", *BUDGET, cwd=folder)
    assert twice.returncode == 2 and "count twice" in twice.stderr
    many = run("--state", "both", *BUDGET, "--items-per-unit", 2, cwd=folder)
    assert many.returncode == 2 and "merged" in many.stderr
    assert run("--merge", "a", "--state", "copy", cwd=folder).returncode == 0 and (folder / "copy").exists()
    wrong = run("lines.txt", "--state", "both", *BUDGET, cwd=folder)
    assert wrong.returncode == 2 and "no more items" in wrong.stderr


def test_a_universe_and_a_ledger(folder):
    (folder / "universe.txt").write_text("".join(f"common {i}\n" for i in range(100)))
    ledger = ds.Ledger(folder / "budget", epsilon=1.0, delta=1e-6, unit="one item")
    command = ["lines.txt", "--epsilon", 1, "--universe", "universe.txt", "--ledger", "budget", "--json"]
    done = run(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {"common 0", "common 1", "common 2"} <= {row["key"] for row in json.loads(done.stdout)["keys"]}
    again = run(*command, cwd=folder)
    assert again.returncode == 2 and "left" in again.stderr and len(ledger) == 1


def test_the_guarantee_says_what_is_protected_and_a_ledger_must_agree(folder):
    """A sketch counts rows: of users with many rows it protects a row, or as many as were paid for."""
    ds.Ledger(folder / "users", epsilon=1.0, delta=1e-6, unit="one user")
    done = run("log.csv", "--column", "query", *BUDGET, "--ledger", "users", "--state", "sketch", cwd=folder)
    assert done.returncode == 2 and "--unit 'item'" in done.stderr and not (folder / "sketch").exists()
    assert run("log.csv", "--column", "query", *BUDGET, "--unit", "user", cwd=folder).returncode == 2
    create = ["ledger", "create", "fives", *BUDGET, "--unit", "unit with at most 5 items"]
    subprocess.run([COMMAND, *create], cwd=folder, check=True, capture_output=True)
    done = run("lines.txt", *BUDGET, "--items-per-unit", 5, "--ledger", "fives", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "when one unit with at most 5 items is added or removed." in " ".join(done.stdout.split())
    assert len(ds.Ledger.open(folder / "fives")) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to read"),
        (["lines.txt"], "--epsilon"),
        (["missing.txt", *BUDGET], "does not exist"),
        (["lines.txt", "--epsilon", "1"], "delta"),
        (["log.csv", *BUDGET], "--column"),
        (["lines.txt", "--counters", "0", *BUDGET], "counters"),
        (["--merge", "lines.txt", *BUDGET], "not a saved"),
        (["lines.txt", "--state", "log.csv"], "not a saved"),
    ],
)
def test_mistakes_are_answered_with_the_fix(folder, arguments, said):
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2 and said in done.stderr.replace("\n", " ")


def test_what_a_killed_process_left_beside_a_state_is_removed(folder):
    (folder / ".sketch.partial").write_text("marked-secret")
    assert run("lines.txt", "--state", "sketch", cwd=folder).returncode == 0
    assert not (folder / ".sketch.partial").exists()
    assert sketch_from_bytes((folder / "sketch").read_bytes()).items > 0


def test_files_named_twice_or_missing_are_refused_before_the_first_is_read(folder):
    (folder / "link").hardlink_to(folder / "lines.txt")
    again = [folder / "lines.txt", "link"]
    for files, why in (*((["lines.txt", one], "named twice") for one in again), (["lines.txt", "typo"], "not exist")):
        done = run(*files, "--state", "sketch", cwd=folder)
        assert done.returncode == 2 and why in done.stderr and not (folder / "sketch").exists()


@pytest.mark.parametrize("form", ["lines", "csv", "jsonl"])
def test_a_pipe_that_falls_silent_is_counted_so_far(form):
    """What came before a pause is not held back until the next piece, or, for CSV, only the last piece is."""
    piece = {"lines": b"tea\n", "csv": b"tea\n", "jsonl": b'{"q": "tea"}\n'}[form]
    end, start = os.pipe()
    column = None if form == "lines" else "q"
    with os.fdopen(end, "rb") as pipe, os.fdopen(start, "wb", buffering=0) as writer:
        reader = {
            "lines": lambda: stream_items._lines(pipe, "p"),
            "jsonl": lambda: stream_items._jsonl(pipe, "p", column),
        }.get(form, lambda: stream_items._csv(pipe, "p", column))()
        writer.write((b"q\n" if form == "csv" else b"") + piece * 100)
        if form == "csv":
            threading.Timer(1.0, lambda: writer.write(piece)).start()
        assert len(next(reader)) >= 99
        writer.close()
        reader.close()
