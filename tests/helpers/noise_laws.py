"""The exact distribution of what noise on a grid makes of one value, written down anew for tests."""

import math

import numpy as np


def rounded(noise, value):
    """Return the grid points that a value is rounded to, with probabilities."""
    scaled = abs(value) * 2**noise.digits
    low, share = int(scaled), scaled - int(scaled)
    sign = -1 if value < 0 else 1
    return [(sign * low, 1 - share), (sign * (low + 1), share)]


def tail(noise, least):
    """Return P[X >= least], for one number or many."""
    p = math.exp(-1 / noise.scale)
    outer = p ** np.maximum(least, 1 - least) / (1 + p)
    return np.where(least > 0, outer, 1 - outer)


def cells(noise, value, edges):
    """Return the probabilities that the noisy value is below the first edge, between two, and above the last."""
    above = sum(weight * tail(noise, edges - at) for at, weight in rounded(noise, value))
    return np.append(-np.diff(np.append(1.0, above)), above[-1])


def loss(noise, one, other):
    """Return the largest ln(P[out | one] / P[out | other]) over all outputs: constant outside of both values."""
    points = [at for value in (one, other) for at, _ in rounded(noise, value)]
    outs = np.arange(min(points) - 2, max(points) + 3)
    p = math.exp(-1 / noise.scale)
    weights = [sum(w * p ** np.abs(outs - at) for at, w in rounded(noise, value)) for value in (one, other)]
    return float(np.log(weights[0] / weights[1]).max())


def divergence(ones, others, epsilon):
    """Return sum max(0, P - e^epsilon Q) over all outputs of independent parts, P and Q."""
    p, q = np.ones(1), np.ones(1)
    for one, other in zip(ones, others, strict=True):
        p, q = np.outer(p, one).ravel(), np.outer(q, other).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
