"""`dpsieve audit` through the real command, and the inputs that it makes."""

import json

import pytest
from helpers.command import run

import dpsieve as ds
from dpsieve.auditing.inputs import job_inputs

OPTIONS = {
    "release": {"max_keys_per_unit": 5, "delta": 0.01},
    "discover": {"max_keys_per_unit": 1, "delta": 0.01},
    "collect_histogram": {"delta": 0.01},
    "collect_heavy_hitters": {"max_length": 2, "delta": 0.01},
    "sum": {"max_rows_per_unit": 2},
    "mean": {"delta": 0.01},
    "quantile": {"quantile": 0.5, "max_rows_per_unit": 2},
    "collect_quantiles": {"depth": 2, "delta": 0.01},
}


@pytest.mark.parametrize("job", OPTIONS)
def test_no_job_depends_on_the_layout_of_rows_or_on_rows_of_others(job):
    """The replayed audits of each job, without the ones that need many runs."""
    audits = [each for each in job_inputs(job, {"epsilon": 1.0, **OPTIONS[job]}) if each.kind == "dependence"]
    assert audits
    for each in audits:
        found = each.audit(1.0, 0.0, 0.95, source=ds.testing.insecure_source(1))
        assert found.passed, (each.name, found)


def test_a_job_is_audited_on_inputs_that_hurt():
    done = run("audit", "stream", "--epsilon", "2", "--delta", "1e-6", "--runs", "60", "--canaries", "200", "--json")
    shown = json.loads(done.stdout)
    assert done.returncode == 0
    assert list(shown) == ["a key of one unit", "a key at the threshold", "canaries in one run"]
    assert all(each["passed"] for each in shown.values())
    assert shown["canaries in one run"]["counts"][:2] == [200, 200]


def test_a_table_shows_the_verdicts():
    options = ["--epsilon", "1", "--bounds", "0,10", "--max-rows-per-unit", "2", "--runs", "24"]
    done = run("audit", "sum", *options)
    assert done.returncode == 0, done.stderr
    assert "rows in another" in done.stdout and "No output contradicts the guarantee" in done.stdout


def test_options_are_those_of_the_job_without_what_describes_data():
    shown = run("audit", "release", "--help").stdout
    assert "--max-keys-per-unit" in shown and "--method" in shown and "--privacy-unit" not in shown
    assert "Example:" in shown
    wrong = run("audit", "release", "--epsilon", "-1", "--delta", "0.1")
    assert wrong.returncode == 2 and "--epsilon -1 is not between 0.001 and 50" in wrong.stderr


def test_a_contradicted_guarantee_has_exit_code_1(monkeypatch):
    from typer.testing import CliRunner

    from dpsieve.cli import app
    from dpsieve.sketches import MisraGries

    honest = MisraGries.release
    monkeypatch.setattr(MisraGries, "release", lambda self, epsilon, **given: honest(self, 6 * epsilon, **given))
    done = CliRunner().invoke(app, ["audit", "stream", "--epsilon", "1", "--delta", "1e-6", "--runs", "24"])
    assert done.exit_code == 1 and "The guarantee is contradicted on: canaries in one run." in done.stdout
