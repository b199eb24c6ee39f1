"""`dpsieve discover`, `top-k` and `hitting-set`, as a user types them."""

import json

import pyarrow as pa
import pyarrow.csv as csv
import pytest
from helpers.command import run

import dpsieve as ds

pytestmark = pytest.mark.usefixtures("one_database")
BUDGET = ["--epsilon", "1", "--delta", "1e-12"]  # one of 200 keys of one user each shows once in 10^9 runs
COLUMNS = ["--key", "drink", "--unit", "user"]
COMMANDS = {"discover": [], "top-k": ["--k", "2"], "hitting-set": ["--k", "2"]}
KINDS = {"discover": ds.KeySet, "top-k": ds.TopK, "hitting-set": ds.HittingSet}
by_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("drinks")
    drinks = {"water": range(2000), "tea": range(1500), **{f"own drink {u}": [u] for u in range(200)}}
    pairs = [(user, drink) for drink, users in drinks.items() for user in users]
    users, names = zip(*pairs, strict=True)
    csv.write_csv(pa.table({"user": users, "drink": names}), place / "drinks.csv")
    return place


@by_command
def test_to_the_screen_and_to_a_folder(command, folder):
    out = f"published {command}"
    done = run(command, "drinks.csv", *COLUMNS, *BUDGET, *COMMANDS[command], "--out", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "water" in done.stdout and "tea" in done.stdout and "own drink" not in done.stdout
    assert "(1, 1e-12)-differential privacy when one user is added or removed." in done.stdout
    assert len(KINDS[command].load(folder / out)) == 2
    again = run(command, "drinks.csv", *COLUMNS, *BUDGET, *COMMANDS[command], "--out", out, cwd=folder)
    assert again.returncode == 2 and "exists already" in again.stderr


@by_command
def test_as_json(command, folder):
    done = run(command, "drinks.csv", *COLUMNS, *BUDGET, *COMMANDS[command], "--json", cwd=folder)
    record = json.loads(done.stdout)
    assert {row["drink"] for row in record["keys"]} == {"tea", "water"} and record["guarantee"]["epsilon"] == 1
    assert record["certificate"]["parts"] and not record["unsafe_to_publish"]


def test_counts_of_the_top(folder):
    done = run("top-k", "drinks.csv", *COLUMNS, *BUDGET, "--k", "2", "--counts", "--json", cwd=folder)
    rows = json.loads(done.stdout)["keys"]
    assert [row["drink"] for row in rows] == ["water", "tea"]
    assert all(row["low"] < row["count"] < row["high"] for row in rows)


def test_counts_on_the_screen_say_what_they_are_of(folder):
    done = run("top-k", "drinks.csv", *COLUMNS, *BUDGET, "--k", "2", "--counts", "--max-keys", "3", cwd=folder)
    assert "of the bounded count" in done.stdout and "at most 3 keys" in done.stdout, done.stderr


@pytest.mark.parametrize("command", ["top-k", "hitting-set"])
def test_fewer_than_k_keys_are_explained_in_one_sentence(command, folder):
    done = run(command, "drinks.csv", *COLUMNS, *BUDGET, "--k", "9", cwd=folder)
    shown = " ".join(done.stdout.split())
    assert "For more keys, raise epsilon or delta, or add data: only 2 of 9 keys were selected, and a key" in shown


@by_command
def test_nothing_found(command, folder):
    (folder / "few.csv").write_text("user,drink\n1,water\n2,water\n")
    done = run(command, "few.csv", *COLUMNS, *BUDGET, *COMMANDS[command], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "No key is published" in done.stdout and "Guarantee" in done.stdout


@by_command
def test_a_ledger(command, folder, tmp_path):
    ledger = tmp_path / "budget"
    assert run("ledger", "create", ledger, *BUDGET, "--unit", "user").returncode == 0
    order = [command, "drinks.csv", *COLUMNS, *BUDGET, *COMMANDS[command], "--ledger", ledger, "--note", "drinks"]
    assert run(*order, cwd=folder).returncode == 0
    refused = run(*order, cwd=folder)
    assert refused.returncode == 2 and "left" in refused.stderr
    assert "in 1 entry\n" in run("ledger", "show", ledger).stdout


@by_command
def test_help_has_an_example(command):
    shown = run(command, "--help").stdout
    assert f"dpsieve {command} events.parquet" in " ".join(shown.split()) and "--typical-keys" in shown
