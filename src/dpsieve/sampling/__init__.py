"""Sampling schemes, and samplers of counted keys and of streams. Samples are not private: a channel makes them so."""

from dpsieve.randomness.keyed import new_salt
from dpsieve.sampling.coordinated import Sample, candidates
from dpsieve.sampling.samples import NonPrivateSample, bottom_k, threshold_sample
from dpsieve.sampling.schemes import Scheme, custom, everything, ppswor, priority, scheme_from_json
from dpsieve.sampling.stream_samples import StreamSample

__all__ = [
    "NonPrivateSample", "Sample", "Scheme", "StreamSample", "bottom_k", "candidates", "custom", "everything",
    "new_salt", "ppswor", "priority", "scheme_from_json", "threshold_sample",
]  # fmt: skip
