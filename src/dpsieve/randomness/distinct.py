"""Distinct integers, every set of them equally likely."""

import numpy as np
from numpy.typing import NDArray

from dpsieve.randomness.source import Source

Integers = NDArray[np.int64]


def distinct(count: int, below: int, excluded: Integers, source: Source) -> Integers:
    """Return `count` distinct integers from [0, below) without the `excluded` ones, in no particular order.

    They are drawn one after another and those seen before left out, so every set is equally likely. Meant for counts
    that are small beside `below`.
    """
    found = np.unique(excluded)
    held = len(found)
    chosen = [np.empty(0, np.int64)]
    while (missing := count + held - len(found)) > 0:
        drawn = uniform_integers(missing + 16, below, source)
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
        fresh = drawn[~np.isin(drawn, found)][:missing]
        chosen.append(fresh)
        found = np.concatenate([found, fresh])
    return np.concatenate(chosen)


def uniform_integers(count: int, below: int, source: Source) -> Integers:
    """Return independent uniform integers from [0, below), by rejection of bits that are too large.

    >>> from dpsieve.randomness import SystemSource
    >>> set(uniform_integers(100, 3, SystemSource()).tolist()) <= {0, 1, 2}
    True
    """
    spare = np.uint64(64 - max(1, (below - 1).bit_length()))
    out = np.empty(0, np.int64)
    while len(out) < count:
        words = (source.words(2 * (count - len(out)) + 16) >> spare).view(np.int64)
        out = np.concatenate([out, words[words < below]])
    return out[:count]
