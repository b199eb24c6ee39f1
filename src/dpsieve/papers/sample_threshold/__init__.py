"""A. Bharadwaj and G. Cormode, "Sample-and-threshold differential privacy: histograms and applications" (AISTATS 2022).

What the paper states, to compare with: its bounds (Theorem 2, Lemmas 3, 5, 6 and 9), its search for one quantile
(Lemma 8), and the mechanisms of its figures, each calibrated as well as it can be. The mechanism itself, with its exact
delta, is `dpsieve.channels.sample_threshold`; collections from clients are in `dpsieve.federated`.
"""

from dpsieve.papers.sample_threshold.baselines import BernoulliNoise, HadamardResponse, SampledLaplace
from dpsieve.papers.sample_threshold.quantile_search import FoundQuantile, search_quantile

from dpsieve.papers.sample_threshold.bounds import (  # isort: skip
    EdgeError, edge_error, enough_clients, lemma_1_ratio, lemma_3_delta, lemma_4_invited, lemma_5_omission,
    lemma_6_reports, lemma_9_error, theorem_2_delta,
)  # fmt: skip

__all__ = [
    "BernoulliNoise", "EdgeError", "FoundQuantile", "HadamardResponse", "SampledLaplace", "edge_error",
    "enough_clients", "lemma_1_ratio", "lemma_3_delta", "lemma_4_invited", "lemma_5_omission",
    "lemma_6_reports", "lemma_9_error", "search_quantile", "theorem_2_delta",
]  # fmt: skip
