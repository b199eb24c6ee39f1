"""What the analysis of PLAN assumes of rows, measured on rows at hand (Sections 5.2 and 5.4 of the thesis).

Nothing here is private: it is for data that is public, or made up.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.errors import InvalidValue

_ROWS = "Pass an array of rows of finite numbers."


class Tails(NamedTuple):
    """How often sums of a row exceed t times their scale.

    Attributes:
        t: the multiples.
        plain: the share of rows with sum |X_i - mu_i|^p > t ||sigma||_p^p (5.4; for p = 2 also 5.2).
        scaled: the share with sum (X_i - mu_i)^2 / sigma_i^(4/(p+2)) > t ||sigma^(p/(p+2))||_2^2 (5.5; for p = 2 also
            5.3).
    """

    t: list[float]
    plain: list[float]
    scaled: list[float]


def definition_5_6(rows: ArrayLike, p: float = 2.0, t: Iterable[float] = (2, 4, 8, 16)) -> Tails:
    """Return how the rows of a data set concentrate (Definitions 5.5 and 5.6): both shares should fall like e^-t.

    mu_i are the means of the columns, and sigma_i^p their p-th central moments. The definition also allows estimates
    of sigma that are too large, with which the scaled sums are smaller. Columns without any spread are left out.

    >>> rng = np.random.default_rng(1)
    >>> definition_5_6(rng.normal(0.0, [1.0, 5.0], (100_000, 2)), t=(2, 4, 8)).plain
    [0.15259, 0.04254, 0.00445]
    """
    values = validate.finite("rows", rows, hint=_ROWS)
    if values.ndim != 2 or not values.size:
        raise InvalidValue(f"rows are no table of numbers. {_ROWS}", argument="rows")
    p = validate.between("p", p, 1.0, 64.0, hint="Pass the norm of the error, such as p=2.")
    levels = np.sort(validate.finite("t", list(t), hint="Pass multiples of the scale, such as t=(2, 4, 8)."))
    away = np.abs(values - values.mean(axis=0))
    moments = (away**p).mean(axis=0)
    away, moments = away[:, moments > 0], moments[moments > 0]
    if not len(moments):
        raise InvalidValue("rows are all equal, and have no spread. Pass rows that differ.", argument="rows")
    plain = (away**p).sum(axis=1) / moments.sum()
    weights = moments ** (2 / (p + 2))  # ||sigma^(p/(p+2))||_2^2 is the sum of sigma_i^(2p/(p+2))
    scaled = (away**2 / moments ** (4 / (p * (p + 2)))).sum(axis=1) / weights.sum()
    return Tails(levels.tolist(), *([float((sums > level).mean()) for level in levels] for sums in (plain, scaled)))


def lemma_5_8(columns: int, t: float) -> float:
    """Return the bound of the proof of Lemma 5.8 on both shares at t ln(d), for normal rows of d columns: 2 d^(1-t/2).

    The columns may depend on each other. It is at most 1.

    >>> round(lemma_5_8(1000, 4.0), 6)
    0.002
    """
    columns = validate.whole("columns", columns, low=2, hint="Pass the number of columns, at least 2.")
    return min(1.0, 2.0 * math.exp((1 - t / 2) * math.log(columns)))


def mahalanobis_error(estimate: ArrayLike, mean: ArrayLike, covariance: ArrayLike) -> float:
    """Return the error of an estimated mean in Mahalanobis distance, ||Sigma^(-1/2) (estimate - mean)||_2 (Def. 5.4).

    Args:
        estimate: the estimated mean.
        mean: the mean of the distribution.
        covariance: its covariance matrix, or its variances where columns are independent.

    >>> mahalanobis_error([3.0, 8.0], [0.0, 0.0], [1.0, 4.0])
    5.0
    """
    hint = "Pass one finite number per column."
    found, true = (
        np.atleast_1d(validate.finite(*given, hint=hint)) for given in (("estimate", estimate), ("mean", mean))
    )
    if found.ndim != 1 or found.shape != true.shape:
        raise InvalidValue(f"estimate and mean differ in shape. {hint}", argument="estimate")
    away = found - true
    hint = "Pass a symmetric positive definite matrix of the size of the mean, or positive variances."
    matrix = validate.finite("covariance", covariance, hint=hint)
    matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
    if matrix.shape != (len(away), len(away)) or not np.allclose(matrix, matrix.T):
        raise InvalidValue(f"covariance does not fit. {hint}", argument="covariance")
    try:
        return float(np.linalg.norm(np.linalg.solve(np.linalg.cholesky(matrix), away)))
    except np.linalg.LinAlgError:
        raise InvalidValue(f"covariance is not positive definite. {hint}", argument="covariance") from None
