"""Sampling schemes, and samplers of counted keys. Samples are not private: they go on to a channel."""

from dpsieve.sampling.samplers import NonPrivateSample, bottom_k, threshold_sample
from dpsieve.sampling.schemes import Scheme, custom, everything, ppswor, priority, scheme_from_json

__all__ = [
    "NonPrivateSample",
    "Scheme",
    "bottom_k",
    "custom",
    "everything",
    "ppswor",
    "priority",
    "scheme_from_json",
    "threshold_sample",
]
