"""How rows concentrate, and errors in Mahalanobis distance."""

import math

import numpy as np
import pytest

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.papers.thesis import definition_5_6, lemma_5_8, mahalanobis_error

RNG = np.random.default_rng(3)


def test_one_normal_column_has_the_tail_of_a_chi_square_variable():
    """P[chi^2 > t] = erfc(sqrt(t / 2)), within six standard errors; one column is its own scale."""
    found = definition_5_6(RNG.normal(5.0, 3.0, (200_000, 1)), t=(1, 2, 4))
    assert found.plain == found.scaled
    for t, share in zip(found.t, found.plain, strict=True):
        exact = math.erfc(math.sqrt(t / 2))
        assert share == pytest.approx(exact, abs=6 * math.sqrt(exact / 200_000))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_both_sums_are_those_of_the_definition(p):
    rows = RNG.normal(0.0, [1.0, 10.0, 0.1], (2_000, 3))
    away = np.abs(rows - rows.mean(axis=0))
    sigma = (away**p).mean(axis=0) ** (1 / p)
    plain = (away**p).sum(axis=1) > 2 * (sigma**p).sum()
    scaled = (away**2 / sigma ** (4 / (p + 2))).sum(axis=1) > 2 * (sigma ** (2 * p / (p + 2))).sum()
    found = definition_5_6(rows, p, [2])
    assert found.plain == [plain.mean()] and found.scaled == [scaled.mean()]
    stretched = definition_5_6(1000 * rows, p, [2])  # both conditions are free of units
    assert (stretched.plain, stretched.scaled) == (found.plain, found.scaled)


def test_normal_rows_keep_lemma_5_8_however_dependent():
    for shared in (0.0, 0.9, 1.0):
        rows = shared * RNG.normal(size=(20_000, 1)) + (1 - shared) * RNG.normal(size=(20_000, 50))
        levels = np.array([2.5, 3.0, 4.0])
        found = definition_5_6(rows, t=levels * math.log(50))
        bounds = [lemma_5_8(50, t) for t in levels]
        assert all(share <= bound for share, bound in zip(found.plain, bounds, strict=True))
        assert all(share <= bound for share, bound in zip(found.scaled, bounds, strict=True))


def test_moments_alone_give_no_exponential_tail():
    """Lemma 5.7 does not hold as stated: Student's t with 5 degrees of freedom has the moments of order 2."""
    normal, student = (definition_5_6(rows, t=[20]).plain[0]
                       for rows in (RNG.normal(size=(200_000, 1)), RNG.standard_t(5, (200_000, 1))))  # fmt: skip
    assert normal < 2e-4 < 5e-4 < student


def test_mahalanobis_distance_does_not_depend_on_the_coordinates():
    away, mixing = np.array([1.0, -2.0, 0.5]), RNG.normal(size=(3, 3))
    assert mahalanobis_error(away, np.zeros(3), np.ones(3)) == pytest.approx(np.linalg.norm(away))
    assert mahalanobis_error(mixing @ away, np.zeros(3), mixing @ mixing.T) == pytest.approx(np.linalg.norm(away))
    assert mahalanobis_error(3.0, 1.0, [4.0]) == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: definition_5_6([1.0, 2.0]), "rows are no table"),
        (lambda: definition_5_6([[1.0], [1.0]]), "rows are all equal"),
        (lambda: definition_5_6([["a"]]), "rows must be a number or an array"),
        (lambda: mahalanobis_error([1.0], [1.0, 2.0], [1.0]), "differ in shape"),
        (lambda: mahalanobis_error([1.0], [1.0], [1.0, 2.0]), "covariance does not fit"),
        (lambda: mahalanobis_error([1.0, 1.0], [1.0, 2.0], [[1.0, 2.0], [2.0, 1.0]]), "not positive definite"),
        (lambda: lemma_5_8(1, 4.0), "columns"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises((InvalidType, InvalidValue), match=message):
        call()
