"""Estimation: what tokens tell about sums and ranks of true frequencies, with exact errors, for any channel."""

from dpsieve.estimation.base import Estimator, Moments
from dpsieve.estimation.estimators import estimator
from dpsieve.estimation.forecast import Forecast, forecast
from dpsieve.estimation.linear import SumError, sum_error
from dpsieve.estimation.minimax import Minimax
from dpsieve.estimation.order import concordance, kendall_tau
from dpsieve.estimation.quantiles import frequency_quantiles
from dpsieve.estimation.top import top_k_recall
from dpsieve.estimation.zipf import zipf

__all__ = [
    "Estimator",
    "Forecast",
    "Minimax",
    "Moments",
    "SumError",
    "concordance",
    "estimator",
    "forecast",
    "frequency_quantiles",
    "kendall_tau",
    "sum_error",
    "top_k_recall",
    "zipf",
]
