"""Audits of jobs by name: each passes on the job as it is, and finds a planted fault of known size."""

import numpy as np
import pytest
from typer.testing import CliRunner

import dpsieve as ds
from dpsieve.auditing.inputs import job_inputs
from dpsieve.auditing.outputs import statements
from dpsieve.channels.floored import FlooredLaw
from dpsieve.cli import app
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.noise import rest_and_bounds
from dpsieve.noise.key_totals import KeyTotals
from dpsieve.noise.totals import centred

LEVEL, ONE_KEY, FAULT = 1 - 1e-6, {"max_keys_per_unit": 1}, 0.3
PRICE = {"price": (0, 50)}
# A job, its arguments, and the share of epsilon that its canaries refute.
CANARIES = {
    "sums": ("release", ONE_KEY | {"sums": PRICE}, 0.4),
    "sums on both sides of zero": ("release", ONE_KEY | {"sums": {"price": (-50, 50)}}, 0.4),
    "sums with bounds chosen": ("release", ONE_KEY | {"sums": {"price": "auto"}}, 0.3),
    "means": ("release", ONE_KEY | {"means": {"rating": (1, 5)}}, 0.4),
    "sums, means and the rest": ("release", ONE_KEY | {"sums": PRICE, "means": PRICE, "rest": True}, 0.3),
    "min_units": ("release", ONE_KEY | {"min_units": 40}, 0.5),
    "counts": ("release_counts", {}, 0.5),
    "stream, several items": ("MisraGries", {"items_per_unit": 2, "counters": 1000}, 0.6),
    "vector": ("SparseVector", {"sparsity": 1000}, 0.2),
    "vector of texts": ("SparseVector", {"dimension": "text", "sparsity": 1000}, 0.5),
    "short vector, l1": ("SparseVector", {"neighbours": "l1", "dimension": 1000}, 0.5),
}


def seeded():
    return ds.testing.insecure_source(1)


def audits(job, arguments, epsilon=1.0, delta=1e-9, canaries=1000):
    """Return the inputs of a job by name, with this budget."""
    made = job_inputs(job, {"epsilon": epsilon, "delta": delta, **arguments}, canaries, seeded())
    return {each.name: each for each in made}


def canaries_of(job, arguments, noise=1.0, name="canaries in one run"):
    """Audit a job with canaries, with `noise` times the noise that is claimed."""
    return audits(job, arguments, epsilon=1 / noise)[name].audit(1.0, 1e-9, LEVEL, source=seeded())


@pytest.mark.parametrize("name", CANARIES)
def test_canaries_pass_refute_a_smaller_claim_and_find_too_little_noise(name):
    job, arguments, share = CANARIES[name]
    found = canaries_of(job, arguments)
    assert found.passed and found.lower_at(level=0.95) > share
    assert not canaries_of(job, arguments, noise=FAULT).passed


def test_too_little_noise_on_totals_alone_is_found(monkeypatch):
    honest = KeyTotals.draw

    def draw(self, frequencies, *, sums, source=None):
        drawn = honest(self, frequencies, sums=sums, source=source)
        true = np.array([centred(np.asarray(frequencies), each) for each in sums]) * (drawn.tokens > 0)
        drawn.sums[:] = true + (drawn.sums - true) * FAULT
        return drawn

    job, arguments, _ = CANARIES["sums on both sides of zero"]
    found = canaries_of(job, arguments, name="canaries in totals")
    assert found.passed and found.lower_at(level=0.95) > 0.2
    monkeypatch.setattr(KeyTotals, "draw", draw)
    assert not canaries_of(job, arguments, name="canaries in totals").passed


def test_a_rest_without_noise_is_found(monkeypatch):
    """Its noise is paid for by 2 % of epsilon, so less noise shows only where there is hardly any."""
    audited = audits("release", ONE_KEY | {"rest": True}, delta=0.01)["a key of one unit"]
    monkeypatch.setattr(rest_and_bounds, "within_cubes", lambda radii, source: np.zeros(len(radii), np.int64))
    found = audited.audit(1.0, 0.01, 0.999, 48, source=seeded())
    assert not found.passed and "rest" in found.event


def test_what_is_chosen_privately_is_not_replayed_with_one_unit_more():
    """It may follow from counts under the same words, which is no violation."""
    asked = ONE_KEY | {"sums": {"price": "auto"}}
    assert "one unit more in a known key" not in audits("release", asked)
    assert "one unit more in a known key" in audits("release", ONE_KEY | {"sums": PRICE})


@pytest.mark.parametrize("job", ["release", "release_counts"])
def test_a_floor_that_is_ignored_is_found(job, monkeypatch):
    audited = audits(job, ONE_KEY | {"min_units": 40}, delta=0.01)["a key below min_units"]
    assert audited.audit(1.0, 0.01, LEVEL, source=seeded()).passed
    monkeypatch.setattr(
        FlooredLaw, "draw", lambda self, frequencies, *given, **more: self.law.draw(frequencies, *given, **more)
    )
    assert not audited.audit(1.0, 0.01, LEVEL, source=seeded()).passed


@pytest.mark.parametrize(
    ("job", "arguments", "name", "planted", "enough"),
    [
        ("UserMisraGries", {"counters": 4}, "a unit in every counter", {"epsilon": 10.0}, 200),
        ("UserMisraGries", {"counters": 4}, "a unit that lowers all counters", {"epsilon": 10.0}, 200),
        ("UserMisraGries", {"counters": 4}, "keys of one unit", {"delta": 0.9}, 400),
        ("SparseVector", {"sparsity": 40, "variant": "alp"}, "an entry of one", {"delta": 0.9}, 300),
        ("SparseVector", {"sparsity": 40, "variant": "alp"}, "an entry at the threshold", {"epsilon": 10.0}, 200),
    ],
)
def test_rates_pass_and_find_too_little_noise_or_too_large_a_delta(job, arguments, name, planted, enough):
    claim = {"epsilon": 1.0, "delta": 0.01}
    for budget, runs in ((claim, 30), (claim | planted, enough)):
        found = audits(job, arguments, **budget)[name].audit(*claim.values(), 0.999, runs, source=seeded())
        assert found.passed == (budget == claim), found


def test_a_job_is_audited_by_its_name():
    shares = []
    found = ds.audit(
        "SparseVector", arguments={"dimension": 300}, epsilon=1.0, runs=24, canaries=300, level=0.999,
        progress=shares.append, source=seeded(),
    )  # fmt: skip
    assert list(found) == ["an entry of one", "canaries in one run", "entries in another order"]
    assert all(each.passed and each.level == pytest.approx(1 - 0.001 / 3) for each in found.values())
    assert [each.runs for each in found.values()] == [48, 1, 15]
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_less_noise_is_found_by_name(monkeypatch):
    honest = ds.SparseVector.private
    monkeypatch.setattr(
        ds.SparseVector, "private", lambda *given, epsilon, **more: honest(*given, epsilon=epsilon / FAULT, **more)
    )
    found = ds.audit("SparseVector", arguments={"dimension": 1000}, epsilon=1.0, runs=24, source=seeded())
    assert not found["canaries in one run"].passed and found["entries in another order"].passed


def test_a_vector_is_compared_by_its_cells_too():
    """They hold what `get` estimates; the table has listed entries alone."""
    asked = {"neighbours": "one_entry", "dimension": 100, "epsilon": 1.0}
    cells = [dict(statements(ds.SparseVector.private([7], [v], **asked, source=seeded()), ()))["cells"] for v in (1, 9)]
    assert cells[0] != cells[1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"run": "releases"}, "run='releases' is not a job. Choose one of 'release', "),
        ({"arguments": {"known_keys": ["tea"]}}, "known_keys of arguments is set by the audit.* pass a function"),
        ({"arguments": {"epsilon": 2.0}}, "epsilon of arguments is set by the audit"),
        ({"arguments": {"max_key_per_unit": 1}}, "Did you mean max_keys_per_unit?"),
        ({"arguments": {"sums": {"price": (9, 0)}}}, "bounds of column 'price', 9 and 0, are in the wrong order"),
        ({"arguments": ONE_KEY | {"min_units": 5000}}, "no made-up key is published.* a smaller min_units"),
        ({"epsilon": None}, "epsilon is missing"),
        ({"data": [1]}, "data goes with a function as run"),
        ({"kind": "one_run"}, "kind goes with a function as run"),
        ({"canaries": 3}, "canaries=3 is not between 10"),
        ({"run": "SparseVector", "arguments": {"sparsity": 3}}, "allow only 3 entries"),
        ({"run": "SparseVector", "arguments": {"variant": "best"}}, "variant is not known"),
        ({"run": "UserMisraGries", "arguments": {"counters": 0}}, "counters=0"),
        ({"run": "release_counts", "arguments": {"max_keys_per_unit": "auto"}}, "Pass the bound of the counts"),
        ({"run": len, "data": [1]}, "arguments goes with the name of a job as run"),
    ],
)
def test_wrong_arguments_of_a_job_are_named_with_a_fix(changed, message):
    with pytest.raises((InvalidValue, InvalidType), match=message):
        ds.audit(**{"run": "release", "arguments": ONE_KEY, "epsilon": 1.0, "delta": 0.01, **changed})


def test_the_command_takes_totals_the_rest_and_the_floor(monkeypatch):
    seen = {}
    monkeypatch.setattr("dpsieve.auditing.audit.audit", lambda job, **given: seen.update(given, job=job) or {})
    options = ["--sum", "price:0:200", "--mean", "rating:1:5", "--min-units", "20", "--rest"]
    done = CliRunner().invoke(app, ["audit", "release", "--epsilon", "1", "--delta", "0.01", *options, "--json"])
    assert done.exit_code == 0, done.output
    assert (seen["job"], seen["epsilon"], seen["delta"]) == ("release", 1.0, 0.01)
    wanted = {"sums": {"price": (0.0, 200.0)}, "means": {"rating": (1.0, 5.0)}, "min_units": 20, "rest": True}
    assert {name: seen["arguments"][name] for name in wanted} == wanted
