"""`dpsieve sum`, `mean` and `quantile`, as a user types them."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from helpers.command import run

import dpsieve as ds

pytestmark = pytest.mark.usefixtures("one_database")
COMMAND = Path(sys.executable).with_name("dpsieve")
COLUMN = ["--column", "price", "--bounds", "0,100", "--unit", "user"]
COMMANDS = {"sum": [], "mean": [], "quantile": ["--quantile", "0.25,0.75"]}
by_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sales")
    sales = pa.table({
        "user": [i // 2 for i in range(4_000)], "price": [i % 101 for i in range(4_000)],
        "items": [i % 4 - 1 for i in range(4_000)], "name": ["tea"] * 4_000,
    })  # fmt: skip
    csv.write_csv(sales, place / "sales.csv")
    pq.write_table(sales, place / "sales.parquet")
    return place


@by_command
def test_to_the_screen_and_to_a_folder(command, folder):
    out, more = f"published {command}", COMMANDS[command]
    done = run(command, "sales.csv", *COLUMN, *more, "--max-rows-per-unit", 2, "--epsilon", 1, "--out", out, cwd=folder)
    assert done.returncode == 0, done.stderr
    relation = "replaced by another" if command == "mean" else "added or removed"
    assert f"Guarantee: 1-differential privacy when one user is {relation}." in done.stdout
    assert "value" in done.stdout and f"Saved to {out}" in done.stdout
    assert ("95 % interval" in done.stdout) == (command != "quantile")
    assert ("rank error," in done.stdout) == (command == "quantile")
    assert ("of the bounded sum" in done.stdout) == (command == "sum")
    loaded = ds.Estimate.load(folder / out)
    assert loaded.table["name"].to_pylist() == (["0.25", "0.75"] if command == "quantile" else ["price"])
    again = run(command, "sales.csv", *COLUMN, *more, "--epsilon", 1, "--out", out, cwd=folder)
    assert again.returncode == 2 and "exists already" in again.stderr


def test_several_columns_as_json(folder):
    options = [
        "--column",
        "price",
        "--bounds",
        "0,100",
        "--column",
        "items",
        "--bounds",
        "-1,2",
        "--json",
        "--rho",
        0.5,
        "--unit",
        "row",
    ]
    for command, expected in {"sum": [200_000, 2_000], "mean": [50, 0.5]}.items():
        done = run(command, "sales.parquet", *options, cwd=folder)
        record = json.loads(done.stdout)
        assert [row["name"] for row in record["numbers"]] == ["price", "items"]
        for row, true in zip(record["numbers"], expected, strict=True):
            assert abs(row["value"] - true) < 8 * row["deviation"] + 0.02 * true
        assert record["certificate"]["parts"] and not record["unsafe_to_publish"]


def test_one_pair_of_bounds_serves_all_columns(folder):
    both = ["--column", "price", "--column", "items", "--bounds", "0,100", "--unit", "row"]
    done = run("sum", "sales.csv", *both, "--epsilon", 1, cwd=folder)
    assert done.returncode == 0 and "items" in done.stdout
    done = run("sum", "sales.csv", *both, "--bounds", "0,1", "--bounds", "0,1", "--epsilon", 1, cwd=folder)
    assert done.returncode == 2 and "one for each column" in done.stderr


@by_command
@pytest.mark.parametrize(("wrong", "message"), [
    (["--column", "prise", "--bounds", "0,1", "--epsilon", 1], "Did you mean 'price'?"),
    (["--column", "name", "--bounds", "0,1", "--epsilon", 1], "which is not a number"),
    (["--column", "price", "--bounds", "0:1", "--epsilon", 1], "--bounds is not numbers"),
    (["--column", "price", "--bounds", "9,1", "--epsilon", 1], "--bounds has a pair whose low is not below its high"),
    (["--column", "price", "--bounds", "9,1", "--epsilon", 1], "such as --bounds 0,100, or a pair"),
    (["--column", "price", "--bounds", "0,nan", "--epsilon", 1], "not finite"),
    (["--column", "price", "--bounds", "0,1"], "epsilon"),
    (["--column", "price", "--bounds", "0,1", "--epsilon", 1, "--rho", 1], "rho"),
    (["--column", "price", "--bounds", "0,1", "--epsilon", 1, "--max-rows-per-unit", 2],
     "--max-rows-per-unit needs a --privacy-unit other than 'row'"),
    (["--column", "price", "--epsilon", 1], "--bounds"),
])  # fmt: skip
def test_what_is_wrong_is_said(command, wrong, message, folder):
    done = run(command, "sales.parquet", *wrong, "--unit", "row", *COMMANDS[command], cwd=folder)
    assert done.returncode == 2 and message in done.stderr.replace("\n", " "), done.stderr


def test_zeros_and_ones_have_means_without_bounds(folder):
    csv.write_csv(pa.table({"clicked": [int(i % 4 == 0) for i in range(4_000)]}), folder / "clicks.csv")
    options = ["clicks.csv", "--column", "clicked", "--unit", "row", "--kind", "binary", "--json"]
    for budget in (["--epsilon", 2], ["--rho", 0.5, "--method", "plan"]):
        record = json.loads(run("mean", *options, *budget, cwd=folder).stdout)
        assert record["numbers"][0]["value"] == pytest.approx(0.25, abs=0.02)
    done = run("mean", *options, "--bounds", "0,1", "--epsilon", 1, cwd=folder)
    assert done.returncode == 2 and "--bounds are 0 and 1 for --kind binary. Leave" in done.stderr
    done = run("mean", *options[:5], "--epsilon", 1, cwd=folder)
    assert done.returncode == 2 and "--bounds are missing. Pass public bounds" in done.stderr


def test_bad_quantiles(folder):
    for wrong, said in {"2": "--quantile 2 is not between", "0.123456789": "--quantile 0.123456789 is no"}.items():
        asked = [*COLUMN, "--max-rows-per-unit", 2, "--epsilon", 1]
        done = run("quantile", "sales.csv", *asked, "--quantile", wrong, cwd=folder)
        assert done.returncode == 2 and said in done.stderr
    done = run("quantile", "sales.csv", *COLUMN, "--quantile", "half", "--epsilon", 1, cwd=folder)
    assert done.returncode == 2 and "Pass --quantile 0.5,0.9." in done.stderr


@by_command
def test_hostile_names(command, folder):
    for name in ('x"; DROP TABLE t; --', "--bounds", "a,b", "price:0:100", "[red]price[/red]", "café"):
        pq.write_table(pa.table({name: [1.0, 2.0]}), folder / "hostile.parquet")
        options = ["--column", name, "--bounds", "-5,5", "--unit", "row", *COMMANDS[command], "--epsilon", 1]
        done = run(command, "hostile.parquet", *options, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert command == "quantile" or name in done.stdout


def test_standard_input(folder):
    done = run(
        "sum",
        "-",
        "--column",
        "x",
        "--bounds",
        "0,10",
        "--unit",
        "row",
        "--epsilon",
        400,
        "--json",
        input="x\n1\n2\n\n7\n",
    )
    assert json.loads(done.stdout)["numbers"][0]["value"] == pytest.approx(10, abs=2)


@by_command
def test_help_shows_an_example(command):
    done = run(command, "--help")
    assert f"Example: dpsieve {command} " in done.stdout and "--bounds" in done.stdout


def test_means_of_a_private_number_of_units(folder):
    """With next to no budget the number of units is lost in its noise, and no interval is stated."""
    options = ["sales.csv", *COLUMN, "--neighbours", "add_remove"]
    done = run("mean", *options, "--epsilon", 1, cwd=folder)
    assert "Guarantee: 1-differential privacy when one user is added or removed." in done.stdout
    assert "not stated" not in done.stdout
    for _ in range(40):  # the count is above its own noise with a chance of at most a half, each time
        if "not stated" in run("mean", *options, "--epsilon", 1e-6, cwd=folder).stdout:
            break
    else:
        raise AssertionError
    done = run("mean", *options, "--method", "plan", "--rho", 1, cwd=folder)
    assert done.returncode == 2 and "--neighbours" in done.stderr
