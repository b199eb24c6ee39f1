"""Units on the command line: as in Python, and as in the ledger."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.command import run

import dpsieve as ds

pytestmark = pytest.mark.usefixtures("one_database")
BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
UNIT = ["--unit", "tenant", "--unit", "user_id"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("data")
    units = {"tenant": [f"t{i % 20}" for i in range(400)], "user_id": [i // 20 for i in range(400)]}
    table = pa.table({**units, "drink": ["tea"] * 400, "price": [5.0] * 400})
    pq.write_table(table, place / "log.parquet")
    holes = table.set_column(1, "user_id", pa.array([None, *range(399)]))
    pq.write_table(holes, place / "holes.parquet")
    return place


KEY, NUMBER = ["--key", "drink", *BUDGET], ["--column", "price", "--bounds", "0,10", "--epsilon", "1"]
COMMANDS = {
    "release": KEY, "discover": KEY, "top-k": [*KEY, "--k", "1"], "hitting-set": [*KEY, "--k", "1"],
    "sum": [*NUMBER, "--max-rows-per-unit", "2"],
    "quantile": [*NUMBER, "--max-rows-per-unit", "2", "--quantile", "0.5"],
}  # fmt: skip


@pytest.mark.parametrize("unit", [["--unit", "user_id"], UNIT], ids=["one column", "two columns"])
def test_the_unit_of_a_ledger_is_spelled_as_that_of_a_release(folder, unit, tmp_path):
    book = tmp_path / "budget.ledger"
    made = run("ledger", "create", book, "--epsilon", "9", "--delta", "1e-3", *unit)
    words = "one user_id" if unit != UNIT else "one (tenant, user_id)"
    assert made.returncode == 0 and f"when {words} is added or removed" in made.stdout
    for number, (command, options) in enumerate(COMMANDS.items(), 1):
        done = run(command, "log.parquet", *options, *unit, "--ledger", book, cwd=folder)
        assert done.returncode == 0, (command, done.stderr)
        assert words in done.stdout and len(ds.Ledger(book)) == number
    by_python = ["user_id"] if unit != UNIT else ["user_id", "tenant"]
    assert ds.Ledger(book, unit=by_python).budget.unit == words
    other = run("release", "log.parquet", *KEY, "--unit", "tenant", "--ledger", book, cwd=folder)
    assert other.returncode == 2 and f"the guarantee is for 'one tenant', the ledger for '{words}'" in other.stderr


def test_words_are_taken_as_they_are(tmp_path):
    for spelled in ("user_id", "one user_id"):
        made = run("ledger", "create", tmp_path / spelled, "--epsilon", "1", "--delta", "1e-6", "--unit", spelled)
        assert made.returncode == 0 and ds.Ledger(tmp_path / spelled).budget.unit == "one user_id"


def test_preview_and_no_unit_at_all(folder):
    seen = run("preview", *KEY, *UNIT)
    assert seen.returncode == 0 and "one (tenant, user_id)" in seen.stdout
    refused = run("release", "log.parquet", *KEY, cwd=folder)
    assert refused.returncode == 2 and "--privacy-unit is missing" in refused.stderr
    assert (
        "have the names of identifiers: 'user_id'. Pass --privacy-unit user_id, or --privacy-unit row" in refused.stderr
    )
    done = run("release", "log.parquet", *KEY, "--unit", "row", cwd=folder)
    assert "when one row is added" in done.stdout and "a person may have many rows" in done.stdout
    assert "note: this result is not saved" in done.stderr


def test_messages_name_the_option(folder):
    done = run("release", "holes.parquet", *KEY, *UNIT, cwd=folder)
    assert done.returncode == 2 and "--privacy-unit tenant --privacy-unit user_id contains nulls" in " ".join(
        done.stderr.split()
    )
    assert run("release", "holes.parquet", *KEY, *UNIT, "--allow-null-units", cwd=folder).returncode == 0
    done = run("release", "log.parquet", *KEY, "--unit", "a,b", cwd=folder)
    said = " ".join(done.stderr.split())
    assert "--privacy-unit a,b is not a column" in said and "one by one: --privacy-unit a --privacy-unit b." in said
    done = run("sum", "log.parquet", *NUMBER, "--unit", "tenant", "--unit", "tenant", cwd=folder)
    assert done.returncode == 2 and "--privacy-unit names a column twice" in done.stderr
