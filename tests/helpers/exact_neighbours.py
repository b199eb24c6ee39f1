"""The exact delta of neighbours whose keys are independent coins, by enumeration of all outputs."""

import itertools

import numpy as np


def rounded_delta(with_unit, without, epsilon):
    """Return the larger sum of max(0, P - e^epsilon Q) of both directions, for coins with these probabilities."""
    outputs = np.array(list(itertools.product([0, 1], repeat=len(with_unit))))
    p, q = (np.prod(np.where(outputs, coins, 1 - np.asarray(coins)), axis=1) for coins in (with_unit, without))
    return max(np.maximum(0, p - np.exp(epsilon) * q).sum(), np.maximum(0, q - np.exp(epsilon) * p).sum())


def climb(score, start, moved, rng, rounds):
    """Return the best score found by random moves from `start` that are kept where they do not lower it."""
    best, at = score(start), start
    for _ in range(rounds):
        other = moved(at, rng)
        found = score(other)
        if found >= best:
            best, at = found, other
    return best
