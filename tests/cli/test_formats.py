"""Tables in and out of the real command, in every format that it reads and writes."""

import json
import os
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

pytestmark = pytest.mark.usefixtures("one_database")
COMMAND = Path(sys.executable).with_name("dpsieve")
BUDGET = ["--epsilon", "4", "--delta", "1e-5"]
NUMBERS = ["rows.parquet", "--column", "user", "--unit", "row", "--bounds", "0,300", "--epsilon", 1]
KEYS = ["--key", "query", "--unit", "user", *BUDGET]
STRINGS = ["--column", "query", "--unit", "row", "--max-length", 4, "--step", 2, *BUDGET]
PRICES = ["--column", "user", "--unit", "row", "--bounds", "0,300", "--depth", 2, *BUDGET]
ROWS = [(user, query) for user in range(300) for query in ("tea", "=1+1", "mate")[: 1 + user % 3]]


@pytest.fixture
def folder(tmp_path):
    pq.write_table(pa.table({"user": [u for u, _ in ROWS], "query": [q for _, q in ROWS]}), tmp_path / "rows.parquet")
    (tmp_path / "lines.txt").write_text("".join(f"{query}\n" for _, query in ROWS))
    ds.Ledger(tmp_path / "budget.ledger", 100, 1e-2, unit="one user")
    return tmp_path


COMMANDS = {
    "release": ["release", "rows.parquet", *KEYS, "--max-keys", 3],
    "discover": ["discover", "rows.parquet", *KEYS, "--max-keys", 3],
    "top-k": ["top-k", "rows.parquet", *KEYS, "--max-keys", 3, "--k", 2],
    "hitting-set": ["hitting-set", "rows.parquet", *KEYS, "--max-keys", 3, "--k", 2],
    "stream": ["stream", "lines.txt", *BUDGET],
    "collect histogram": ["collect", "histogram", "rows.parquet", "--column", "query", "--unit", "row", *BUDGET],
    "collect heavy-hitters": ["collect", "heavy-hitters", "rows.parquet", *STRINGS],
    "collect quantiles": ["collect", "quantiles", "rows.parquet", *PRICES],
    "sum": ["sum", *NUMBERS],
    "mean": ["mean", *NUMBERS],
    "quantile": [
        "quantile",
        "rows.parquet",
        "--column",
        "user",
        "--bounds",
        "0,300",
        "--unit",
        "row",
        "--quantile",
        "0.5",
        "--epsilon",
        1,
    ],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_out_takes_a_file(folder, command):
    done = run(*COMMANDS[command], "--out", "x.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Saved to x.csv." in done.stdout and "This file holds the table alone" in done.stdout
    written = (folder / "x.csv").read_text()
    again = run(*COMMANDS[command], "--out", "x.csv", cwd=folder)
    assert again.returncode == 2 and "--out x.csv exists already" in again.stderr
    assert (folder / "x.csv").read_text() == written and len(written.splitlines()) > 1
    assert not list(folder.glob(".*"))


def test_files_are_sorted_by_key_and_the_screen_by_count(folder):
    done = run(*COMMANDS["release"], "--out", "x.csv", cwd=folder)
    assert [line.split(",")[0] for line in (folder / "x.csv").read_text().splitlines()[1:]] == [
        '"=1+1"', '"mate"', '"tea"',
    ]  # fmt: skip
    assert done.stdout.index("tea") < done.stdout.index("=1+1") < done.stdout.index("mate")
    assert "1 text begins with =, +, - or @" in done.stderr
    for name in ("x.jsonl", "x.parquet"):
        done = run(*COMMANDS["release"], "--out", name, "--json", cwd=folder)
        rows = pq.read_table(folder / name).to_pylist() if name == "x.parquet" else None
        rows = rows or [json.loads(line) for line in (folder / name).read_text().splitlines()]
        assert rows == json.loads(done.stdout)["keys"] and [row["query"] for row in rows] == ["=1+1", "mate", "tea"]
        assert done.stderr == ""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_file_and_its_place_can_be_taken(folder, number):
    asked = ["release", "-", *KEYS, "--max-keys", "1", "--out", "x.csv", "--ledger", "budget.ledger"]
    with subprocess.Popen([COMMAND, *asked], cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"user,query\n1,tea\n")
        process.stdin.flush()
        while not (folder / ".x.csv.partial").exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.3)  # from making the folder to locking it
        busy = run(*COMMANDS["release"], "--out", "x.csv", cwd=folder)
        assert busy.returncode == 2 and "being written by another process" in busy.stderr
        process.send_signal(number)
        process.wait(timeout=120)
        process.stdin.close()
    assert not (folder / "x.csv").exists() and (number == signal.SIGKILL or not list(folder.glob(".x*")))
    assert ds.Ledger.open(folder / "budget.ledger").history() == []
    assert run(*COMMANDS["release"], "--out", "x.csv", cwd=folder).returncode == 0
    assert not list(folder.glob(".x*"))


TEXTS = {
    "csv": "user,query\n" + "".join(f"{user},{query}\n" for user, query in ROWS),
    "tsv": "user\tquery\n" + "".join(f"{user}\t{query}\n" for user, query in ROWS),
    "jsonl": "".join(json.dumps({"user": user, "query": query}) + "\n" for user, query in ROWS),
}


@pytest.mark.parametrize("name", [*TEXTS, "parquet"])
def test_the_format_of_standard_input_and_of_files_without_a_telling_name(folder, name):
    content = TEXTS[name].encode() if name in TEXTS else (folder / "rows.parquet").read_bytes()
    (folder / "rows.log").write_bytes(content)
    for data in ("-", "rows.log"):
        done = run("release", data, *KEYS, "--max-keys", 3, "--format", name, "--json", cwd=folder, input=content)
        assert done.returncode == 0, done.stderr
        assert [row["query"] for row in json.loads(done.stdout)["keys"]] == ["=1+1", "mate", "tea"]
    assert run("preview", "-", *KEYS, "--format", name, cwd=folder, input=content).returncode == 0
    wrong = run("release", "rows.log", *KEYS, cwd=folder)
    assert wrong.returncode == 2 and "Say what other files hold: --format csv." in wrong.stderr


def test_csv_without_a_header_line(folder):
    body = TEXTS["csv"].partition("\n")[2]
    (folder / "rows.csv").write_text(body)
    for data in ("-", "rows.csv"):
        asked = ["release", data, *KEYS, "--max-keys", 3, "--json"]
        done = run(*asked, "--header", "user,query", cwd=folder, input=body)
        assert done.returncode == 0, done.stderr
        assert [row["query"] for row in json.loads(done.stdout)["keys"]] == ["=1+1", "mate", "tea"]
        wrong = run(*asked, cwd=folder, input=body)
        assert wrong.returncode == 2 and "pass the names: --header user,query." in wrong.stderr
        wrong = run(*asked, "--header", "user,query,hour", cwd=folder, input=body)
        assert wrong.returncode == 2 and "line 1" in wrong.stderr and "tea" not in wrong.stderr
    for more, why in {
        ("--format", "xlsx"): "--format is not known.",
        ("--header", "a", "--format", "jsonl"): "--header is for CSV files",
        ("--header", ""): "--header is not a line of column names",
    }.items():
        done = run("release", "rows.csv", *KEYS, *more, cwd=folder)
        assert done.returncode == 2 and why in done.stderr
    done = run("stream", "rows.csv", "--header", "user,query", "--column", "query", *BUDGET, "--json", cwd=folder)
    assert [row["key"] for row in json.loads(done.stdout)["keys"]] == ["=1+1", "mate", "tea"]
    wrong = run("stream", "rows.csv", "--header", "", "--column", "query", *BUDGET, cwd=folder)
    assert wrong.returncode == 2 and "--header is not a line of column names" in wrong.stderr
    alone = run("preview", *KEYS, "--format", "csv")
    assert alone.returncode == 2 and "Pass files too" in alone.stderr


def test_the_real_command_reads_json_lines_from_a_pipe(folder):
    asked = ["release", "-", *KEYS, "--max-keys", "1", "--format", "jsonl", "--out", "x.csv"]
    done = subprocess.run(
        [COMMAND, *asked], cwd=folder, input=TEXTS["jsonl"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"tea",' in (folder / "x.csv").read_text()
