"""The thesis: merges and error bounds of sketches, an untrusted aggregator, its mean estimator and rank search."""

from dpsieve.papers.thesis.alp_decoders import decode_vector
from dpsieve.papers.thesis.bounded_merge import release_bounded_merge
from dpsieve.papers.thesis.sketch_accuracy import aggregation_errors, mean_squared_bound, mean_squared_error
from dpsieve.papers.thesis.untrusted_aggregator import merge_releases

__all__ = [
    "aggregation_errors",
    "decode_vector",
    "mean_squared_bound",
    "mean_squared_error",
    "merge_releases",
    "release_bounded_merge",
]
