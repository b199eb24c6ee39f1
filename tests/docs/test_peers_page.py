"""The comparison with peers: the runner lists what fails, and the page shows what is stored."""

import csv
import importlib.util
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parents[2]
ANSWER = """
from measure import answer

def job(rows, keys):
    return {"tea": keys * 1.0}

answer(job, "numpy")
"""


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


run = load("peers_run", "benchmarks/peers/run.py")
page = load("peers_page", "docs/tools/peers_page.py")


@pytest.fixture
def script(tmp_path):
    pq.write_table(pa.table({"key": ["tea"]}), tmp_path / "rows.parquet")

    def result(text, seconds=60.0):
        (tmp_path / "job.py").write_text(text)
        return run.run_script(
            Path(sys.executable), tmp_path / "job.py", tmp_path / "rows.parquet", {"keys": 3}, seconds
        )

    return result


def test_a_script_is_run_several_times_and_measured(script):
    found = script(ANSWER)
    assert found["answers"] == [{"tea": 3.0}] * 20
    assert 0 <= found["seconds"] < 5 and 5 < found["memory_mib"] < 5000 and found["version"][0].isdigit()


def test_a_script_that_fails_has_one_line_without_paths(script, tmp_path):
    lost = "raise RuntimeError('no budget left in /home/someone/file.txt see https://example.org/x')"
    assert script(lost) == {"failure": "RuntimeError: no budget left in ... see ..."}
    assert script("import time; time.sleep(60)", seconds=0.5) == {"failure": "no result within 0.5 s"}
    assert script("pass") == {"failure": "the script wrote no answers"}
    assert run.run_script(tmp_path / "python", tmp_path / "job.py", tmp_path, {}) == {"failure": "not installed"}
    assert len(run.one_line("ValueError: " + "x" * 1000)) == 160
    assert run.one_line("Traceback\nmod.OddError:\n  the cause\nmore") == "mod.OddError: the cause"


def test_a_peer_that_is_not_installed_is_listed_with_the_error_of_its_installation(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "load_data", lambda folder: run._made_up(200, 50))
    (tmp_path / ".venv-peer-tumult").mkdir()
    (tmp_path / ".venv-peer-tumult/install.log").write_text("ERROR: No matching distribution found for x==1\n")
    rows = list(run.rows_of([("known", "tumult"), ("known", "opendp")], tmp_path))
    assert [row["failure"] for row in rows] == [
        "not installed: ERROR: No matching distribution found for x==1", "not installed",
    ]  # fmt: skip
    run.write_results(rows, tmp_path / "peers.csv")
    assert [row["tool"] for row in run.read_results(tmp_path / "peers.csv")] == ["opendp", "tumult"]


def test_errors_are_those_of_the_truth():
    rows = pa.table({"key": ["a"] * 150 + ["b"] * 3, "value": [1.0, 3.0] * 75 + [5.0] * 3})
    assert run.count_error([{"a": 140.0, "b": 3.0}, {"a": 150.0}], rows) == (10 + 0 + 0 + 3) / 4
    assert run.mean_error([{"a": 2.5, "b": 0.0}], rows) == 0.5  # too few rows of b
    assert run.mean_error([{}], rows) is None
    assert run.column_error([{"sum": 320.0}, {"sum": 310.0}], rows) == 5


def test_every_setting_has_a_script_and_every_script_a_setting():
    used = {
        f"{run.SCRIPTS.get((name, tool), job.script or name)}_{tool}.py"
        for name, job in run.JOBS.items()
        for tool in job.tools
    }
    assert used == {file.name for file in (run.PEERS / "jobs").glob("*.py")}
    assert all((run.PEERS / f"{home}.txt").exists() for home in run.TOOLS.values() if home)


def test_lines_are_counted_without_docstrings_and_comments(tmp_path):
    text = '"""One\n\ntwo."""\n\n# three\nx = 1  # four\n\ndef f():\n    """Five."""\n    return x\n'
    (tmp_path / "a.py").write_text(text)
    assert run.count_lines(tmp_path / "a.py") == 3


def test_the_page_shows_the_stored_results():
    rows, text = page.read_results(), page.PAGE.read_text()
    assert page.fill(text, rows) == text, "run docs/tools/peers_page.py"
    assert {row["job"] for row in rows} == set(run.JOBS)
    assert {row["tool"] for row in rows} == set(run.TOOLS)
    tried = {(name, tool) for name, job in run.JOBS.items() for tool in job.tools}
    assert {(row["job"], row["tool"]) for row in rows} == tried


def test_the_page_changes_with_the_results_and_lists_failures(tmp_path):
    rows = page.read_results()
    failed = {**rows[-1], "failure": "ValueError: a | b", "keys": "", "error": "", "seconds": ""}
    assert "failed: `ValueError: a   b`" in page.fill(page.PAGE.read_text(), [*rows[:-1], failed])
    best = page.best_first("counts", rows)
    assert float(best[0]["keys"]) == max(float(row["keys"]) for row in rows if row["job"] == "counts" and row["keys"])
    with pytest.raises(ValueError, match="machine"):
        page.fill("no place", rows)


def test_results_name_no_path_and_no_address():
    for row in csv.reader(page.RESULTS.read_text().splitlines()):
        assert not any("/" in cell.replace("n/a", "") or "://" in cell for cell in row), row
