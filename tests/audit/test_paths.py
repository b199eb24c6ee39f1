"""The short audit of every public path: it passes, and the same runs refute smaller claims."""

import math

import pytest
from page import OUTCOMES, PAGE, page, rows
from paths import AUDITS


@pytest.mark.parametrize("name", AUDITS)
def test_a_path_keeps_its_promise_and_smaller_ones_are_refuted(name):
    """The source is fixed, so nothing is left to chance; the claim is tested at one in a million."""
    path = AUDITS[name]
    found = path.audit()
    assert found.passed and found.lower <= path.epsilon
    assert found.detectable < math.inf, "otherwise it could not fail"
    assert found.lower_at(path.share * path.delta) > path.share * path.epsilon


def test_the_page_shows_the_stored_power():
    assert page() == PAGE.read_text(encoding="utf-8")
    assert {"contradicted", "missed"} <= {row["outcome"] for row in rows()} <= set(OUTCOMES)
