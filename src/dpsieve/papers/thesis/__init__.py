"""C. J. Lebeda, "Differentially Private Release of Sparse and Skewed Data", thesis, IT University of Copenhagen, 2023.

Its printed bounds, standard sketches, the bounded merge and the errors of its sketches, the untrusted aggregator,
decoders of sparse vectors, sums with any split of the noise, private variances, its mean estimator as printed, and how
rows concentrate.
"""

from dpsieve.papers.thesis.alp_decoders import decode_vector
from dpsieve.papers.thesis.bounded_merge import release_bounded_merge
from dpsieve.papers.thesis.concentration import definition_5_6, lemma_5_8, mahalanobis_error
from dpsieve.papers.thesis.mean_plans import preview_mean, private_mean
from dpsieve.papers.thesis.sketch_accuracy import aggregation_errors, mean_squared_bound, mean_squared_error
from dpsieve.papers.thesis.standard_sketches import release_counters, thresholds_for_users
from dpsieve.papers.thesis.sums import lemma_4_2, preview_sum, private_sum
from dpsieve.papers.thesis.untrusted_aggregator import merge_releases
from dpsieve.papers.thesis.variances import lemma_5_14, preview_variances, private_variances
from dpsieve.papers.thesis.vector_variants import preview_vector, private_vector

from dpsieve.papers.thesis.bounds import (  # isort: skip
    algorithm_13_threshold, fact_1_3, fact_1_5, hockey_stick, lemma_2_10, lemma_2_14, lemma_2_20, lemma_2_32, lemma_5_5,
    theorem_3_1,
)  # fmt: skip

__all__ = [
    "aggregation_errors", "algorithm_13_threshold", "decode_vector", "definition_5_6", "fact_1_3", "fact_1_5",
    "hockey_stick", "lemma_2_10", "lemma_2_14", "lemma_2_20", "lemma_2_32", "lemma_4_2", "lemma_5_5", "lemma_5_8",
    "lemma_5_14", "mahalanobis_error", "mean_squared_bound", "mean_squared_error", "merge_releases", "preview_mean",
    "preview_sum", "preview_variances", "preview_vector", "private_mean", "private_sum", "private_variances",
    "private_vector", "release_bounded_merge", "release_counters", "theorem_3_1", "thresholds_for_users",
]  # fmt: skip
