"""Estimation: what tokens tell about sums and ranks of true frequencies, with exact errors, for any channel."""

from dpsieve.estimation.concordant_sets import KeysAbove, key_concordance, keys_above, subset_concordance
from dpsieve.estimation.estimators import Estimator, Moments
from dpsieve.estimation.forecasts import Forecast, SumError, forecast, sum_error, zipf
from dpsieve.estimation.kinds import estimator
from dpsieve.estimation.minimax import Minimax
from dpsieve.estimation.ranking import concordance, frequency_quantiles, kendall_tau, top_k_recall
from dpsieve.estimation.sum_errors import likely_errors, reported_sum_interval

__all__ = [
    "Estimator", "Forecast", "KeysAbove", "Minimax", "Moments", "SumError", "concordance", "estimator", "forecast",
    "frequency_quantiles", "kendall_tau", "key_concordance", "keys_above", "likely_errors", "reported_sum_interval",
    "subset_concordance",
    "sum_error", "top_k_recall", "zipf",
]  # fmt: skip
