"""The short audit of every public path: it passes, and the same runs refute smaller claims."""

import pytest
from paths import AUDITS, LEVEL, ENGINE

import dpsieve as ds
from dpsieve.auditing.inputs import JOBS, job_inputs

OPTIONS = {
    "release": {"max_keys_per_unit": 5},
    "top-k": {"k": 20, "max_keys_per_unit": 5},
    "hitting-set": {"k": 20, "max_keys_per_unit": 5},
    "discover": {"max_keys_per_unit": 5},
    "sum": {"max_rows_per_unit": 2},
    "quantile": {"quantile": 0.5, "max_rows_per_unit": 2},
    "collect heavy-hitters": {"max_length": 2},
}


@pytest.mark.parametrize("name", AUDITS)
def test_a_path_keeps_its_promise_and_smaller_ones_are_refuted(name):
    """The source is fixed, so nothing is left to chance; the claim is tested at one in a million."""
    path = AUDITS[name]
    found = path.audit()
    assert found.passed and found.lower <= path.epsilon
    assert found.lower_at(path.share * path.delta) > path.share * path.epsilon
