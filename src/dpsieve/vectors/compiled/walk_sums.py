"""Chances of random walks of whole steps: `up` with probability `chance`, else `down`; arrays have one a step."""

import numpy as np

from dpsieve.exact.jit import jit


@jit(nogil=True)
def climbs(chance, up, down, steps, begin):
    """Return P[height after t steps is x, above 0 in all of them] for all t and x, from these chances at the beginning.

    All steps are of one kind. What is above the highest x of `begin` is left out.
    """
    highest = len(begin) - 1
    out = np.zeros((steps + 1, highest + 1))
    out[0] = begin
    for t in range(steps):
        for x in range(highest + 1):
            mass = out[t, x]
            if mass == 0.0:
                continue
            if x + up <= highest:
                out[t + 1, x + up] += mass * chance
            if x > down:
                out[t + 1, x - down] += mass * (1 - chance)
    return out


@jit(nogil=True)
def returns(chance, up, down, start, deepest):
    """Return P[height after t steps is 0, never above 0] for all t, with the steps from `start` on."""
    steps = len(chance) - start
    out = np.zeros(steps + 1)
    here, there = np.zeros(deepest + 1), np.zeros(deepest + 1)
    here[0] = out[0] = 1.0
    for t in range(steps):
        i = start + t
        there[:] = 0.0
        for x in range(deepest + 1):  # x below 0
            mass = here[x]
            if mass == 0.0:
                continue
            if x >= up[i]:
                there[x - up[i]] += mass * chance[i]
            if x + down[i] <= deepest:
                there[x + down[i]] += mass * (1 - chance[i])
        here, there = there, here
        out[t + 1] = here[0]
    return out


@jit(nogil=True)
def stays(chance, up, down, deepest):
    """Return P[below 0 in all steps from t on] for all t. What is below `deepest` is taken to stay below 0."""
    steps = len(chance)
    out = np.ones(steps + 1)
    later, now = np.ones(deepest + 1), np.ones(deepest + 1)
    for t in range(steps - 1, -1, -1):
        out[t] = (1 - chance[t]) * (later[down[t]] if down[t] <= deepest else 1.0)
        for x in range(1, deepest + 1):
            risen = later[x - up[t]] if x > up[t] else 0.0
            fallen = later[x + down[t]] if x + down[t] <= deepest else 1.0
            now[x] = chance[t] * risen + (1 - chance[t]) * fallen
        later, now = now, later
    return out


@jit(nogil=True)
def spread(weights, back, stay, out):
    """Add the chance that the first highest point is f and the last one l to out[f + l]; return the sums over l.

    It is weights[f] times P[back at that height at l, never above it] times P[below it after l]; the sums are without
    the weights. `back` has a row for each f, or a single one if all are alike.
    """
    steps = len(stay)
    ends = np.zeros(steps)
    for f in range(steps):
        row = back[f] if len(back) > 1 else back[0]
        for last in range(f, steps):
            mass = row[last - f] * stay[last]
            ends[f] += mass
            out[f + last] += weights[f] * mass
    return ends
