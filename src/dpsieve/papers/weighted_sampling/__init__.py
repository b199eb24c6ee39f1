"""What 'private weighted sampling' describes beyond the product: order statistics, forecasts, estimators, streams.

Edith Cohen, Ofir Geri, Tamas Sarlos, Uri Stemmer: Differentially Private Weighted Sampling, AISTATS 2021
(arXiv:2010.13048; some formulas are in its first version of 2020 only). The channels of the paper are in
`dpsieve.channels`, its sampling schemes and samples in `dpsieve.sampling`, its estimators in `dpsieve.estimation`.
"""

from dpsieve.papers.weighted_sampling.baseline_estimators import NoisyCount, Scaled, noisy_count, scaled
from dpsieve.papers.weighted_sampling.bottom_k import BottomK, bottom_k
from dpsieve.papers.weighted_sampling.coordinated import Similarity, similarity
from dpsieve.papers.weighted_sampling.forecasts import Forecast, SumError, forecast, sum_error, zipf
from dpsieve.papers.weighted_sampling.minimax import Minimax, minimax
from dpsieve.papers.weighted_sampling.order_statistics import (
    KeysAbove,
    concordance,
    frequency_quantiles,
    kendall_tau,
    key_concordance,
    keys_above,
    subset_concordance,
    top_k_recall,
)
from dpsieve.papers.weighted_sampling.other_estimators import BiasedDown, Unbiased, biased_down, unbiased
from dpsieve.papers.weighted_sampling.released_sums import estimate_sum
from dpsieve.papers.weighted_sampling.sampled_stability import SampledStability, sampled_stability
from dpsieve.papers.weighted_sampling.stream_samples import StreamSample

__all__ = [
    "BiasedDown", "BottomK", "Forecast", "KeysAbove", "Minimax", "NoisyCount", "SampledStability", "Scaled",
    "Similarity", "StreamSample", "SumError", "Unbiased", "biased_down", "bottom_k", "concordance", "estimate_sum",
    "forecast", "frequency_quantiles", "kendall_tau", "key_concordance", "keys_above", "minimax", "noisy_count",
    "sampled_stability", "scaled", "similarity", "subset_concordance", "sum_error", "top_k_recall", "unbiased",
    "zipf",
]  # fmt: skip
