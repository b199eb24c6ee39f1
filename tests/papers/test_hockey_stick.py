import math

import numpy as np
import pytest
from helpers.privacy_curves import divergence, least_epsilon
from hypothesis import given
from hypothesis import strategies as st

from dpsieve.errors import DpsieveError
from dpsieve.papers.thesis import hockey_stick

ROWS = st.integers(2, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 50), min_size=n, max_size=n).filter(any) for _ in range(2)])
)


def normal(row):
    return np.array(row) / sum(row)


def test_randomised_response_has_the_divergence_of_the_textbook():
    p, q = [0.75, 0.25], [0.25, 0.75]
    assert hockey_stick(p, q, 0.0) == pytest.approx(0.5)
    assert hockey_stick(p, q, math.log(3)) == pytest.approx(0.0, abs=1e-15)
    assert least_epsilon(p, q, 0.0) == pytest.approx(math.log(3))


def test_directions_differ_and_the_curve_takes_the_worse():
    silent, speaking = [1.0, 0.0], [0.9, 0.1]
    assert hockey_stick(speaking, silent, 1.0) == pytest.approx(0.1)
    assert hockey_stick(silent, speaking, 1.0) == 0.0
    assert divergence(silent, speaking, 1.0) == pytest.approx(0.1)
    assert least_epsilon(silent, speaking, 0.0999) == math.inf
    assert least_epsilon(silent, speaking, 0.11) == 0.0


@given(ROWS, st.floats(0.0, 0.9))
def test_epsilon_is_the_inverse_of_delta(rows, delta):
    p, q = map(normal, rows)
    epsilon = least_epsilon(p, q, delta)
    if epsilon < 400:
        assert divergence(p, q, epsilon) <= delta + 1e-12
    if 0 < epsilon < 400:
        assert divergence(p, q, epsilon * (1 - 1e-9)) >= delta - 1e-12
    if epsilon == math.inf:
        assert divergence(p, q, 400.0) > delta


@given(ROWS, st.floats(0.0, 5.0))
def test_it_is_the_worst_event(rows, epsilon):
    """The hockey stick is the largest P(T) - e^eps Q(T) over all sets of outputs T."""
    p, q = map(normal, rows)
    worst = max(
        sum(p[o] - math.exp(epsilon) * q[o] for o in range(len(p)) if mask >> o & 1) for mask in range(2 ** len(p))
    )
    assert hockey_stick(p, q, epsilon) == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize(
    "row",
    [
        [],
        [0.5],
        [0.5, 0.6],
        [-0.1, 1.1],
        [math.nan, 1.0],
        [math.inf, 0.0],
        "ab",
        [[0.5, 0.5]],
        [0.2, 0.3, 0.5],
        10**400,
        [1e308] * 10,
        ["0.5", "0.5"],
        [True, False],
        [[1], [1, 2]],
    ],
)
def test_bad_rows_are_refused(row):
    with pytest.raises(DpsieveError):
        hockey_stick(row, [0.5, 0.5], 1.0)
    with pytest.raises(DpsieveError):
        hockey_stick([0.5, 0.5], row, 1.0)


def test_other_bad_arguments():
    for epsilon in (-1.0, math.nan, "1", None):
        with pytest.raises(DpsieveError, match="epsilon"):
            hockey_stick([1.0], [1.0], epsilon)
