"""Sampling schemes and samples of counted keys. Samples are not private: a channel makes them so."""

from dpsieve.sampling.sample import Sample, candidates, new_salt
from dpsieve.sampling.schemes import Scheme, custom, everything, ppswor, priority, scheme_from_json

__all__ = [
    "Sample", "Scheme", "candidates", "custom", "everything", "new_salt", "ppswor", "priority", "scheme_from_json",
]  # fmt: skip
