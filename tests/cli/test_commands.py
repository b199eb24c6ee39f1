"""The real command, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from helpers.command import run as run_command
from rich.console import Console

import dpsieve as ds
from dpsieve.cli.output import show_rows
from dpsieve.synthetic import query_log

pytestmark = pytest.mark.usefixtures("one_database")
COMMAND = Path(sys.executable).with_name("dpsieve")
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]


def real(*arguments, cwd=None, **options):
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=cwd,
        **options,
    )


def run(*arguments, **options):
    """Run a command, with rows as units unless it names others."""
    rows = ["--unit", "row"] if arguments[0] in ("release", "preview") and "--unit" not in arguments else []
    return run_command(*arguments, *rows, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    log = query_log(20_000, 4_000)
    pq.write_table(log, place / "log.parquet")
    csv.write_csv(log, place / "log.csv")
    return place


def test_release_to_the_screen_and_to_a_folder(folder):
    done = real(
        "release", "log.parquet", "--key", "query", "--unit", "user_id", *BUDGET, "--out", "published", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "cheap bicycle reviews near me" in done.stdout and "95 % interval" in done.stdout
    assert "(1, 1e-06)-differential privacy when one user_id is added or removed." in done.stdout
    assert len(ds.Release.load(folder / "published")) > 5
    again = run("release", "log.parquet", "--key", "query", *BUDGET, "--out", "published", cwd=folder)
    assert again.returncode == 2 and "exists already" in again.stderr


def test_known_keys_from_a_file(folder):
    (folder / "list.txt").write_text("cheap bicycle reviews near me\nnobody asks this\n\n")
    command = ["release", "log.parquet", "--key", "query", "--epsilon", 2, "--delta", 0, "--known-keys"]
    done = run(*command, "list.txt", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [row["query"] for row in json.loads(done.stdout)["keys"]] == [
        "cheap bicycle reviews near me",
        "nobody asks this",
    ]
    (folder / "list.csv").write_text("query,why\nnobody asks this,test\n")
    assert "nobody asks this" in run(*command, "list.csv", cwd=folder).stdout
    for name, said in [("missing.txt", "cannot be read"), ("log.parquet", "more than once")]:
        wrong = run(*command, name, cwd=folder)
        assert wrong.returncode == 2 and said in wrong.stderr
    assert "every key of the list" in run("preview", *command[2:], "list.txt", cwd=folder).stdout


def test_standard_input_and_json(folder):
    text = (folder / "log.csv").read_text()
    done = run("release", "-", "--key", "query", "--unit", "user_id", *BUDGET, "--max-keys", 3, "--json", input=text)
    record = json.loads(done.stdout)
    assert record["guarantee"]["unit"] == "one user_id" and (
        "A unit adds at most 3 keys, once each" in record["bounded"]
    )
    assert {"query", "count", "low", "high", "weight", "bound"} == set(record["keys"][0])


def test_the_next_release_of_a_series_reuses_the_bound_of_a_folder(folder):
    asked = ("release", "log.csv", "--key", "query", "--unit", "user_id", *BUDGET)
    first = run(*asked, "--out", "week1", cwd=folder)
    assert first.returncode == 0, first.stderr
    second = run(*asked, "--max-keys-per-unit", "week1", "--out", "week2", cwd=folder)
    one, two = (ds.Release.load(folder / name).contribution for name in ("week1", "week2"))
    assert second.returncode == 0 and not two.describe_change(one), second.stderr
    (folder / "nothing").mkdir()
    for wrong, said in [("weak1", "the folder of an earlier release"), ("nothing", "cannot be read")]:
        refused = run(*asked, "--max-keys-per-unit", wrong, cwd=folder)
        assert refused.returncode == 2 and said in " ".join(refused.stderr.split())


def test_a_ledger_from_creation_to_exhaustion(folder):
    made = run("ledger", "create", "budget", "--epsilon", 1.5, "--delta", "1e-5", "--unit", "user_id", cwd=folder)
    assert made.returncode == 0, made.stderr
    order = (
        "release",
        "log.csv",
        "--key",
        "query",
        "--unit",
        "user_id",
        *BUDGET,
        "--ledger",
        "budget",
        "--note",
        "weekly",
    )
    assert run(*order, cwd=folder).returncode == 0
    refused = run(*order, cwd=folder)
    assert refused.returncode == 2 and "left" in refused.stderr and "SELECT" not in refused.stderr
    assert "in 1 entry" in run("ledger", "show", "budget", cwd=folder).stdout
    assert json.loads(run("ledger", "show", "budget", "--json", cwd=folder).stdout)["budget"]["epsilon"] == 1.5
    assert "weekly" in run("ledger", "history", "budget", cwd=folder).stdout
    assert run("ledger", "create", "budget", *BUDGET, "--unit", "user_id", cwd=folder).returncode == 2


def test_an_interval_from_one_on_has_an_upper_end_only(capsys):
    rows = pa.table({"query": ["tea", "mate"], "count": [400, 88], "low": [367, 1], "high": [433, 120]})
    show_rows("Two keys", rows, Console(width=80))
    shown = capsys.readouterr().out
    assert "367 to 433" in shown and "at most 120" in shown and "1 to 120" not in shown


def test_a_long_key_is_cut_on_the_screen(capsys):
    show_rows("One key", pa.table({"query": ["<" * 5_000]}), Console(width=80))
    shown = capsys.readouterr().out
    assert shown.count("<") == 200 and "(5,000 characters)" in shown.replace("\n", "")


def test_preview_spends_and_reads_nothing(folder):
    done = run("preview", "--key", "query", "--unit", "user_id", *BUDGET, "--max-keys", 5)
    assert done.returncode == 0 and "a key of frequency" in done.stdout
    assert json.loads(run("preview", "--key", "query", *BUDGET, "--json").stdout)["half"] == 14


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["log.parquet", "--key", "qery", *BUDGET], "Did you mean 'query'"),
        (["log.csv", "--key", "query", "--unit", "userid", *BUDGET], "check the spelling in the file"),
        (["missing.csv", "--key", "query", *BUDGET], "missing.csv"),
        (["log.csv", "--key", "query", "--epsilon", "0", "--delta", "1e-6"], "epsilon"),
        (["log.csv", "--key", "query", "--epsilon", "1", "--delta", "0"], "delta"),
        (["log.csv", "--key", "query", *BUDGET, "--ledger", "missing.ledger"], "missing.ledger"),
        (["log.csv", "--key", "query", *BUDGET, "--method", "magic"], "--method is not known"),
    ],
)
def test_mistakes_are_answered_with_the_fix(folder, arguments, said):
    done = run("release", *arguments, cwd=folder)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_an_unreadable_row_names_file_and_line(folder):
    (folder / "bad.csv").write_text("user_id,query\n1,a\n2,SECRET,too,many\n3,c\n")
    done = run("release", "bad.csv", "--key", "query", *BUDGET, cwd=folder)
    assert done.returncode == 2 and "bad.csv" in done.stderr and "3" in done.stderr
    assert "SECRET" not in done.stderr + done.stdout


def test_a_large_delta_is_warned_of(folder):
    done = run("release", "log.csv", "--key", "query", "--epsilon", "1", "--delta", "0.01", cwd=folder)
    assert done.returncode == 0 and "for about 100 of 10,000 such units" in done.stderr
    assert done.stderr.count("warning: ") == 1


def test_keys_cannot_steer_the_terminal(tmp_path):
    rows = "".join(f"{n},\x1b[31mred\x1b[0m [bold]x[/bold]\n" for n in range(200))
    (tmp_path / "hostile.csv").write_text("user,key\n" + rows)
    done = run("release", "hostile.csv", "--key", "key", "--unit", "user", *BUDGET, cwd=tmp_path)
    assert done.returncode == 0 and "\x1b" not in done.stdout and "[bold]x[/bold]" in done.stdout


def test_help_shows_an_example_for_every_command():
    for command in (
        ["release"],
        ["preview"],
        ["demo"],
        ["ledger", "create"],
        ["ledger", "show"],
        ["ledger", "history"],
    ):
        assert "Example: dpsieve" in run(*command, "--help").stdout
    assert run("--version").stdout.startswith("dpsieve ")


def test_demo(tmp_path):
    done = run("demo", "--rows", 20_000, "--users", 5_000, cwd=tmp_path)
    assert done.returncode == 0 and "Guarantee" in done.stdout and "True number of users" in done.stdout
    assert run("demo", "--rows", 0).returncode == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["events.parquet", "events.csv", "events.jsonl"])
def test_demo_writes_events_that_a_release_reads(tmp_path, name):
    done = run("demo", "--rows", 20_000, "--users", 5_000, "--out", name, cwd=tmp_path)
    assert done.stdout == f"Wrote 20,000 made-up events of 5,000 users to {name}.\n"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    shown = run("release", name, "--key", "query", "--unit", "user_id", *BUDGET, cwd=tmp_path).stdout
    assert "cheap bicycle reviews near me" in shown


def test_demo_replaces_no_file_and_refuses_a_folder(tmp_path):
    (tmp_path / "events.csv").write_text("mine")
    for name in ("events.csv", "events"):
        done = run("demo", "--rows", 20, "--users", 5, "--out", name, cwd=tmp_path)
        assert done.returncode == 2 and "--out" in done.stderr
    assert (tmp_path / "events.csv").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("unit", ["user[id]", "[/b]"])
def test_names_with_brackets_are_printed_as_they_are(tmp_path, unit):
    (tmp_path / "log.csv").write_text(f"{unit},query\n" + "".join(f"{i},tea\n" for i in range(500)))
    asked = ["--key", "query", "--unit", unit, *BUDGET]
    done = run("release", "log.csv", *asked, "--out", "o_[x]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"when one {unit} is added" in done.stdout and "Saved to o_[x]." in done.stdout
    assert f"one {unit}" in run("preview", *asked).stdout


def test_a_preview_takes_the_options_of_a_release_and_writes_nothing(folder):
    order = ("log.csv", "--key", "query", "--unit", "user_id", *BUDGET, "--ledger", "other", "--note", "weekly")
    assert run("ledger", "create", "other", *BUDGET, "--unit", "one user_id", cwd=folder).returncode == 0
    assert run("preview", *order, "--out", "shown", cwd=folder).returncode == 0
    assert not (folder / "shown").exists() and "in 0 entries" in run("ledger", "show", "other", cwd=folder).stdout
    assert run("release", *order, "--out", "shown", cwd=folder).returncode == 0
    assert run("preview", *order[:-4], "--out", "shown", cwd=folder).returncode == 2


def test_keys_only_are_shown_and_kept(tmp_path):
    """Keys without counts, on the screen, in a folder and in a file."""
    rows = "".join(f"{user},{drink}\n" for user in range(300) for drink in ("tea", "milk"))
    (tmp_path / "log.csv").write_text("user,drink\n" + rows)
    asked = ["discover", "log.csv", "--key", "drink", "--unit", "user", "--epsilon", 2, "--delta", "1e-6"]
    done = run(*asked, "--out", "keys", cwd=tmp_path)
    assert done.returncode == 0 and "of 2 keys, alphabetically" in done.stdout and "milk" in done.stdout
    made = ds.KeySet.load(tmp_path / "keys")
    assert made.table.to_pylist() == [{"drink": "milk"}, {"drink": "tea"}]
    assert run("report", "keys", cwd=tmp_path).returncode == 0
