"""`dpsieve collect`, as a user types it."""

import json

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from helpers.command import run as run_command

import dpsieve as ds
from dpsieve.federated import Distribution, TrieRelease

pytestmark = pytest.mark.usefixtures("one_database")
BUDGET = ["--epsilon", 1, "--delta", "1e-8"]
HISTOGRAM = ["collect", "histogram", "log.parquet", "--column", "query", *BUDGET]
HITTERS = ["collect", "heavy-hitters", "log.parquet", "--column", "query", "--max-length", 4, "--step", 2, *BUDGET]
QUANTILES = ["collect", "quantiles", "log.csv", "--column", "age", "--bounds", "0,100", "--depth", 2, *BUDGET]
ALL = {"histogram": HISTOGRAM, "heavy-hitters": HITTERS, "quantiles": QUANTILES}


def run(*arguments, **options):
    """Run a command, with rows as units unless it names others."""
    rows = ["--unit", "row"] if arguments[0] in ("collect",) and "--unit" not in arguments else []
    return run_command(*arguments, *rows, **options)


@pytest.fixture
def folder(tmp_path):
    queries = ["tea"] * 900 + ["mate"] * 600 + ["rare"] * 3
    log = pa.table({"user": range(1503), "query": queries, "age": [i % 100 for i in range(1503)]})
    pq.write_table(log, tmp_path / "log.parquet")
    csv.write_csv(log, tmp_path / "log.csv")
    return tmp_path


def printed(folder, *arguments):
    done = run(*arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kind", ["histogram", "heavy-hitters"])
def test_values_that_enough_clients_report(folder, kind):
    record = printed(folder, *ALL[kind], "--unit", "user")
    assert sorted(row.get("query", row.get("key")) for row in record["keys"]) == ["mate", "tea"]
    assert record["guarantee"]["unit"] == "one user" and not record["unsafe_to_publish"]
    done = run(*ALL[kind], "--top", 1, cwd=folder)
    assert "1 most common of 2" in done.stdout and "rare" not in done.stdout
    assert "(1, 1e-08)-differential privacy when one row is added or removed." in " ".join(done.stdout.split())


def test_quantiles_that_were_asked_for(folder):
    record = printed(folder, *QUANTILES, "--quantile", "0.25,0.75", "--level", 0.9, "--out", "ages")
    first, second = record["answers"]
    for answer, true in ((first, 25), (second, 75)):  # a quarter of 1,503 clients report: a deviation of about 2.3
        assert abs(answer["value"] - true) < 20 and answer["low"] <= answer["value"] <= answer["high"]
    assert record["notes"]["confidence"] == 0.9 and record["ranges"][0]["level"] == 1
    whole = Distribution.load(folder / "ages")
    assert whole.quantile(0.25).value == first["value"]
    assert "Clients with a number: about" in run(*QUANTILES, cwd=folder).stdout


def test_quantiles_of_no_numbers_are_told_to_mean_nothing(folder):
    texts = [*QUANTILES[:4], "query", *QUANTILES[5:]]
    for more in ([], ["--json"]):
        done = run(*texts, *more, cwd=folder)
        assert done.returncode == 0 and "warning: the quantiles mean nothing: no client had a number" in done.stderr
        assert "warning" not in run(*QUANTILES, *more, cwd=folder).stderr


def test_folders_files_and_reports(folder):
    for kind, command in ALL.items():
        assert run(*command, "--out", kind, cwd=folder).returncode == 0
        assert run("report", kind, "--out", f"{kind}.html", cwd=folder).returncode == 0
        assert "differential privacy" in (folder / f"{kind}.html").read_text()
    assert isinstance(ds.Release.load(folder / "histogram"), ds.Release)
    assert TrieRelease.load(folder / "heavy-hitters").trie["prefix"].to_pylist()[0] == "ma"
    for name in ("ages.csv", "ages.jsonl", "ages.parquet"):
        assert run(*QUANTILES, "--quantile", "0.5", "--out", name, cwd=folder).returncode == 0
    assert (folder / "ages.csv").read_text().splitlines()[0] == '"quantile","value","low","high"'
    assert json.loads((folder / "ages.jsonl").read_text())["quantile"] == 0.5
    assert pq.read_table(folder / "ages.parquet").num_rows == 1


@pytest.mark.parametrize("kind", ALL)
def test_a_dry_run_spends_and_writes_nothing(folder, kind):
    ledger = ds.Ledger(folder / "budget", epsilon=1.5, delta=1e-6, unit="one row")
    paid = [*ALL[kind], "--ledger", "budget", "--note", "drinks", "--out", "published"]
    seen = printed(folder, *paid, "--dry-run")
    assert seen["guarantee"]["unit"] == "one row" and seen["rarely"] < seen["half"] < seen["surely"]
    shown = run(*paid, "--dry-run", cwd=folder).stdout
    assert "found with probability 0.5" in shown and seen["details"]["charged by a device's budget"] in " ".join(
        shown.split()
    )
    assert 0.2 < float(seen["details"]["charged by a device's budget"].split()[-1]) < 1
    assert len(ledger) == 0 and not (folder / "published").exists()
    assert run(*paid, cwd=folder).returncode == 0 and (folder / "published").exists()
    assert [entry.note for entry in ledger.history()] == ["drinks"]
    for more in (["--dry-run"], []):  # a second one does not fit, and the dry run says so too
        done = run(*paid[:-2], *more, cwd=folder)
        assert done.returncode == 2 and "does not fit the budget" in done.stderr
    assert len(ledger) == 1


def test_the_options_of_the_library(folder):
    (folder / "known").write_text("mate\ngin\n")
    record = printed(folder, *HISTOGRAM, "--known-keys", "known")
    assert [row["query"] for row in record["keys"]] == ["mate"]
    assert "a public list of 2" in record["notes"]["contribution"]
    exact = printed(folder, *HISTOGRAM[:5], "--epsilon", 1, "--rate", 0.3, "--threshold", 24)
    assert exact["guarantee"]["delta"] == pytest.approx(9.656612843e-09)
    assert printed(folder, *HISTOGRAM, "--contacted", 100, "--population", 1000)["mechanism"]["rate"] == 0.1
    safe = printed(folder, *HISTOGRAM, "--hostile", 5)["mechanism"]["threshold"]
    assert safe > printed(folder, *HISTOGRAM)["mechanism"]["threshold"]
    for protocol in ("rounds", "cohorts", "one_round"):
        made = printed(folder, *HITTERS, "--protocol", protocol, "--neighbours", "replace", "--alphabet", "aemt")
        assert made["mechanism"]["protocol"] == protocol and made["guarantee"]["neighbours"] == "replace"
    silent = printed(folder, *QUANTILES[:5], "--bounds", "0,50", "--outside", "silent", "--branching", 2, *BUDGET)
    assert silent["notes"]["grid"]["outside"] == "silent" and silent["answers"][-1]["high"] <= 50


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*HISTOGRAM[:3], "--column", "no", *BUDGET], "--column no is not a column"),
        ([*HISTOGRAM, "--unit", "query"], "--privacy-unit is also the column"),
        ([*HISTOGRAM, "--unit", "no"], "--privacy-unit no is not a column"),
        (HISTOGRAM[:7], "--delta is missing"),
        ([*HISTOGRAM, "--threshold", 0], "--threshold 0"),
        ([*HISTOGRAM, "--goal", "fame"], "--goal is not known"),
        ([*HISTOGRAM, "--out", "no/folder"], "does not exist"),
        ([*HITTERS, "--protocol", "fax"], "--protocol is not known"),
        ([*HITTERS[:-6], *BUDGET, "--step", 9], "--step 9"),
        (["collect", "heavy-hitters", "log.parquet", "--column", "query", *BUDGET], "--max-length is missing"),
        ([*QUANTILES, "--quantile", "2"], "--quantile 2 is not between 0 and 1"),
        ([*QUANTILES[:5], *BUDGET, "--bounds", "9,1"], "--bounds has a pair whose low"),
        ([*QUANTILES, "--level", 1], "--level 1"),
        ([*QUANTILES[:3], "--column", "query", "--bounds", "0,1", "--unit", "no", *BUDGET], "--privacy-unit no is not"),
        (["collect", "rumours", "log.csv"], "No such command"),
        ([*HISTOGRAM, "--goal", "error"], "--goal error needs a frequency too. For --goal error, pass"),
        ([*HISTOGRAM, "--contacted", 9], "--population is missing, which contacted needs. Pass both"),
        ([*HISTOGRAM, "--population", 9], "--contacted is missing, which population needs."),
        ([*HISTOGRAM[:2], "postgresql://h/db", *HISTOGRAM[3:]], "data is a database."),
    ],
)
def test_mistakes_are_answered_in_the_words_of_the_command_line(folder, arguments, said):
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "tea" not in done.stderr.replace("instead", "")
