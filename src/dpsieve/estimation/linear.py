"""Sums over keys: how far the estimate of a linear statistic is from the truth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.base import Estimator
from dpsieve.estimation.checks import histogram


@dataclass(frozen=True)
class SumError:
    """The exact error of an estimated sum: `nrmse` is sqrt(mse) / true, and mse = variance + bias^2."""

    true: float
    expected: float
    bias: float
    variance: float
    mse: float
    nrmse: float

    def __repr__(self) -> str:
        return f"<SumError: {self.expected:,.6g} expected for {self.true:,.6g}, NRMSE {self.nrmse:.3g}>"


def sum_error(estimator: Estimator, frequencies: ArrayLike, counts: ArrayLike | None = None) -> SumError:
    """Return the error of the estimated sum of g(w) over keys: `counts[t]` keys of true frequency `frequencies[t]`.

    Keys pass through the channel one by one, so with n_i keys of frequency i (Cohen, Geri, Sarlos, Stemmer 2021, 7.1):

        s = sum_i n_i g(i),   bias = sum_i n_i Bias_i,   variance = sum_i n_i Var_i,   mse = variance + bias^2.

    Without counts each frequency is that of one key. What is computed from sensitive frequencies is itself sensitive:
    use this to plan, on public or made-up data.

    >>> from dpsieve.channels import optimal
    >>> from dpsieve.estimation import estimator
    >>> sum_error(estimator(optimal(1.0, 1e-8)), [10, 50, 1000], [500, 200, 3])
    <SumError: ...>
    """
    estimator = _an_estimator(estimator)
    rows, keys = histogram(frequencies, counts)
    moments = estimator.moments(rows)
    true = float(keys @ estimator.target(rows))
    if true == 0:
        raise InvalidValue("frequencies sum to zero under g, so no error is relative to that. Add larger ones.")
    bias, variance = float(keys @ moments.bias), float(keys @ moments.variance)
    mse = variance + bias**2
    return SumError(true, float(keys @ moments.expectation), bias, variance, mse, float(np.sqrt(mse)) / true)


def _an_estimator(value: object) -> Estimator:
    if not isinstance(value, Estimator):
        hint = "Make one with dpsieve.estimation.estimator(channel)."
        raise InvalidType(f"estimator must be an Estimator, not {type(value).__name__}. {hint}")
    return value
