"""Sampling schemes, and samplers of counted keys and of streams. Samples are not private: a channel makes them so."""

from dpsieve.sampling.samples import NonPrivateSample, bottom_k, threshold_sample
from dpsieve.sampling.schemes import Scheme, custom, everything, ppswor, priority, scheme_from_json
from dpsieve.sampling.stream_samples import StreamSample

__all__ = [
    "NonPrivateSample", "Scheme", "StreamSample", "bottom_k", "custom", "everything", "ppswor", "priority",
    "scheme_from_json", "threshold_sample",
]  # fmt: skip
