"""`dpsieve stream`, as a user types it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
import typer

import dpsieve as ds
from dpsieve.cli.stream import stream
from dpsieve.sketches import sketch_from_bytes

COMMAND = Path(sys.executable).with_name("dpsieve")
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
LINES = "".join(f"common {i % 3}\n" for i in range(3000)) + "".join(f"rare {i}\n" for i in range(200))


def run(*arguments, **options):
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [COMMAND, "stream", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        **options,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "lines.txt").write_text(LINES)
    (tmp_path / "log.csv").write_text("user,query\n" + "".join(f"{i},tea\n" for i in range(500)))
    return tmp_path


def test_from_a_pipe_to_the_screen_and_a_folder(folder):
    done = run("--counters", 64, *BUDGET, "--out", "published", "-", input=LINES, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert all(f"common {i}" in done.stdout for i in range(3)) and "rare" not in done.stdout
    assert "(1, 1e-06)-differential privacy when one item is added or removed." in done.stdout
    assert len(ds.Release.load(folder / "published")) == 3


def test_files_columns_and_json(folder):
    done = run("log.csv", "--column", "query", *BUDGET, "--json", cwd=folder)
    record = json.loads(done.stdout)
    assert [row["key"] for row in record["keys"]] == ["tea"] and record["notes"]["threshold"] == 17


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


def test_a_file_that_breaks_off_leaves_the_state_as_it_was(folder):
    run("lines.txt", "--state", "sketch", cwd=folder)
    before = (folder / "sketch").read_bytes()
    (folder / "broken.txt").write_bytes(b"fine\n" * 100 + b"\xff\n")
    done = run("lines.txt", "broken.txt", "--state", "sketch", cwd=folder)
    assert done.returncode == 2 and "line 101" in done.stderr
    after = sketch_from_bytes((folder / "sketch").read_bytes())
    assert after.items == 2 * sketch_from_bytes(before).items  # the first file, whole


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
    assert spent.returncode == 2 and "run again without" in spent.stderr
    other = run("lines.txt", "--state", "sketch", "--counters", 8, cwd=folder)
    assert other.returncode == 2 and "size of the state" in other.stderr


def test_an_interrupted_pipe_keeps_what_it_has_read(folder, monkeypatch):
    """A pipe cannot be read again, so an interrupt ends the reading, and what was read is kept."""

    def interrupted(*_):
        yield pa.array(["tea"] * 70)
        raise KeyboardInterrupt

    monkeypatch.setattr("dpsieve.engines.items.item_batches", interrupted)
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
    for delay in (0.2, 0.6, 1.0, 1.4):
        with subprocess.Popen([COMMAND, "stream", "lines.txt", "--state", "sketch"], cwd=folder, stdout=-3) as process:
            time.sleep(delay)
            process.kill()
        assert sketch_from_bytes((folder / "sketch").read_bytes()).items % size == 0


def test_states_are_merged(folder):
    for name in ("a", "b"):
        run("lines.txt", "--state", name, "--counters", 64, cwd=folder)
    done = run("--merge", "a", "--merge", "b", *BUDGET, "--json", cwd=folder)
    record = json.loads(done.stdout)
    assert len(record["keys"]) == 3 and record["notes"]["mechanism"] == "misra_gries_sum"
    kept = run("--merge", "a", "--merge", "b", "--state", "both", cwd=folder)
    assert kept.returncode == 0 and sketch_from_bytes((folder / "both").read_bytes()).sources == 2
    twice = run("--merge", "a", "--merge", "./a", *BUDGET, cwd=folder)
    assert twice.returncode == 2 and "count twice" in twice.stderr
    wrong = run("lines.txt", "--state", "both", *BUDGET, cwd=folder)
    assert wrong.returncode == 2 and "no more items" in wrong.stderr


def test_a_universe_and_a_ledger(folder):
    (folder / "universe.txt").write_text("".join(f"common {i}\n" for i in range(100)))
    ledger = ds.Ledger(folder / "budget", epsilon=1.0, delta=1e-6, unit="one query")
    command = [
        "lines.txt",
        "--epsilon",
        1,
        "--universe",
        "universe.txt",
        "--unit",
        "query",
        "--ledger",
        "budget",
        "--json",
    ]
    done = run(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert {"common 0", "common 1", "common 2"} <= {row["key"] for row in json.loads(done.stdout)["keys"]}
    again = run(*command, cwd=folder)
    assert again.returncode == 2 and "left" in again.stderr and len(ledger) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to read"),
        (["lines.txt"], "--epsilon"),
        (["missing.txt", *BUDGET], "cannot be read"),
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
