"""Similarity of two data sets from coordinated samples, as Section 2 (3 of the published version) mentions.

Two samples with one salt share the number u of each key. So a key of frequencies v and w is in both exactly if
u < min(q(v), q'(w)), which is the probability of that event. Nothing here is private: samples hold true frequencies.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.sampling.sample import Sample


class Similarity(NamedTuple):
    """Unbiased estimates of the sums over all keys of the smaller and of the larger frequency, and their ratio.

    Attributes:
        smaller: of sum over x of min(v_x, w_x).
        larger: of sum over x of max(v_x, w_x).
        jaccard: smaller / larger, the weighted Jaccard similarity; NaN for two empty samples.
    """

    smaller: float
    larger: float
    jaccard: float


def similarity(one: Sample, other: Sample) -> Similarity:
    """Return the weighted Jaccard similarity of two data sets from their coordinated samples. It is NOT private.

    Args:
        one, other: samples with the same salt, by schemes of any rate.

    >>> from dpsieve import Sample, priority
    >>> from dpsieve.sampling import new_salt
    >>> salt = new_salt()
    >>> may = Sample.of(["tea", "milk"], [900, 500], priority(0.01), salt=salt)
    >>> june = Sample.of(["tea", "mate"], [700, 400], priority(0.01), salt=salt)
    >>> similarity(may, june)
    Similarity(smaller=700.0, larger=1800.0, jaccard=0.3888888888888889)
    """
    for name, sample in (("one", one), ("other", other)):
        if not isinstance(sample, Sample):
            raise InvalidType(f"{name} must be a Sample, not {type(sample).__name__}.", argument=name)
    if one.mark != other.mark:
        raise InvalidValue("other was sampled with another salt. Pass the same salt to both.", argument="other")
    if len(one) and len(other) and one.keys.type != other.keys.type:
        raise InvalidType("other holds another kind of keys. Pass keys of one kind to both.", argument="other")
    if len(one) and len(other):
        places = pc.index_in(one.keys, value_set=other.keys)
        mine = np.flatnonzero(pc.is_valid(places).to_numpy(zero_copy_only=False))
        theirs = places.take(pa.array(mine)).to_numpy().astype(np.int64)
        least = np.minimum(one.frequencies[mine], other.frequencies[theirs])
        inclusion = np.minimum(
            one.scheme.inclusion(one.frequencies[mine]), other.scheme.inclusion(other.frequencies[theirs])
        )
        smaller = float((least / inclusion).sum())
    else:
        smaller = 0.0
    larger = float(one.estimate()) + float(other.estimate()) - smaller
    return Similarity(smaller, larger, smaller / larger if larger else float("nan"))
