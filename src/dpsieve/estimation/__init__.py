"""Estimation of sums of true frequencies from tokens, with exact errors, for any channel."""

from dpsieve.estimation.estimators import Estimator, Moments, estimator, likely_errors, reported_sum_interval

__all__ = ["Estimator", "Moments", "estimator", "likely_errors", "reported_sum_interval"]
