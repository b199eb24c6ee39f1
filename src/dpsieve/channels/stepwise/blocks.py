"""Compiled work on blocks of rows: laying them over common cells, drawing from them, reading tokens back."""

import numpy as np

from dpsieve.exact.jit import jit
from dpsieve.exact.wide import add, divide, less, mul, sub
from dpsieve.privacy.ladder_walk import first_above

_ZERO = np.uint64(0)


@jit()
def common_edges(starts, left, right):
    """Return the sorted union of the edges of all rows of a block."""
    union, merged = np.empty(len(left) + len(starts), np.int64), np.empty(len(left) + len(starts), np.int64)
    count = 0
    for r in range(len(starts) - 1):
        stop, a, n = starts[r + 1], 0, 0
        for b in range(starts[r], stop + (stop > starts[r])):
            edge = left[b] if b < stop else right[stop - 1]
            while a < count and union[a] < edge:
                merged[n] = union[a]
                a, n = a + 1, n + 1
            a += a < count and union[a] == edge
            merged[n] = edge
            n += 1
        while a < count:
            merged[n] = union[a]
            a, n = a + 1, n + 1
        union, merged, count = merged, union, n
    return union[:count].copy()


@jit()
def lay_over(starts, left, right, high, low, edges):
    """Return the masses of the rows of a block over the given edges, which contain all of theirs."""
    out_high = np.zeros((len(starts) - 1, len(edges) - 1), np.uint64)
    out_low = np.zeros((len(starts) - 1, len(edges) - 1), np.uint64)
    for r in range(len(starts) - 1):
        cell = 0
        for t in range(starts[r], starts[r + 1]):
            while edges[cell] < left[t]:
                cell += 1
            while cell < len(edges) - 1 and edges[cell] < right[t]:
                out_high[r, cell], out_low[r, cell] = high[t], low[t]
                cell += 1
    return out_high, out_low


@jit()
def draw(starts, left, right, high, low, reported, rows, draw_high, draw_low, tokens):
    """Fill tokens: the place in row rows[k] of the block on which the number draw[k] falls; none when it is above."""
    at = -1
    count = 0
    capacity = 1
    for r in range(len(starts) - 1):
        capacity = max(capacity, starts[r + 1] - starts[r])
    end_high, end_low = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
    for k in range(len(rows)):
        row = rows[k]
        if not less(draw_high[k], draw_low[k], reported[row, 0], reported[row, 1]):
            continue
        first = starts[row]
        if row != at:
            at, count = row, starts[row + 1] - first
            sum_high, sum_low = _ZERO, _ZERO
            for t in range(count):
                width = np.uint64(right[first + t] - left[first + t])
                _, mass_high, mass_low = mul(high[first + t], low[first + t], width)
                sum_high, sum_low = add(sum_high, sum_low, mass_high, mass_low)
                end_high[t], end_low[t] = sum_high, sum_low
        a, b = 0, count - 1
        while a < b:
            middle = (a + b) // 2
            if less(draw_high[k], draw_low[k], end_high[middle], end_low[middle]):
                b = middle
            else:
                a = middle + 1
        rest_high, rest_low = draw_high[k], draw_low[k]
        if a:
            rest_high, rest_low = sub(rest_high, rest_low, end_high[a - 1], end_low[a - 1])
        place = divide(rest_high, rest_low, high[first + a], low[first + a])
        tokens[k] = left[first + a] + np.int64(place) + 1


@jit()
def likeliest(starts, left, right, density, first_row, tokens, best, frequency):
    """Update, for sorted tokens, the largest mass seen and the frequency that has it."""
    for r in range(len(starts) - 1):
        if starts[r] == starts[r + 1]:
            continue
        k = np.searchsorted(tokens, left[starts[r]], side="right")
        for t in range(starts[r], starts[r + 1]):
            while k < len(tokens) and tokens[k] <= right[t]:
                if density[t] > best[k]:
                    best[k], frequency[k] = density[t], first_row + r
                k += 1


@jit()
def windows(starts, left, right, density, first_row, parts, level, nearest, farthest):
    """For each row, find the shortest window of tokens that holds `level` of its reported mass, as lags."""
    for r in range(len(starts) - 1):
        own, a, stop = (first_row + r) * parts, starts[r], starts[r + 1]
        total = 0.0
        for t in range(a, stop):
            total += density[t] * (right[t] - left[t])
        if total == 0.0:
            nearest[r], farthest[r] = own, -1
            continue
        if level >= 1.0:
            nearest[r], farthest[r] = own - right[stop - 1], own - left[a] - 1
            continue
        # Windows that begin at a left edge, then, in a mirror, windows that end at a right edge.
        lefts, rights, masses = left[a:stop], right[a:stop], density[a:stop]
        first, last = _narrowest(lefts, rights, masses, level * total)
        low, high = _narrowest(-rights[::-1], -lefts[::-1], masses[::-1].copy(), level * total)
        if high - low < last - first:
            first, last = -high, -low
        nearest[r], farthest[r] = own - last, own - first - 1


@jit()
def _narrowest(left, right, density, need):
    """Return the ends of the shortest window that begins at a left edge and holds the mass that is needed."""
    first, last, mass, b = left[0], right[-1], 0.0, 0
    for t in range(len(left)):
        while b < len(left) and mass < need:
            mass += density[b] * (right[b] - left[b])
            b += 1
        if mass < need * (1 - 1e-13):
            break
        spare = np.int64(max(0.0, (mass - need) / density[b - 1] - 1e-3))
        end = max(right[b - 1] - spare, left[b - 1] + 1)
        if t == 0 or end - left[t] < last - first:
            first, last = left[t], end
        mass -= density[t] * (right[t] - left[t])
    return first, last


@jit()
def decaying_sums(terms, decay, start):
    """Return s_0 = start, s_1, ..., with s_(k+1) = terms[k] + decay[k] s_k."""
    sums = np.empty(len(terms) + 1)
    sums[0] = start
    for k in range(len(terms)):
        sums[k + 1] = terms[k] + decay[k] * sums[k]
    return sums


@jit()
def interval_ends(tokens, reach, starts, first, nearest, farthest, parts, low, high):
    """Fill in the lowest and the highest frequency, up to its reach, whose window holds each token.

    Row r has the window of lags nearest[r] to farthest[r]. Stair k has the rows first[k] to first[k+1] - 1 for the
    frequencies from starts[k] on, the last of them for all that are left.
    """
    for t in range(len(tokens)):
        own = (tokens[t] + parts - 1) // parts
        stair = first_above(starts, own, len(starts)) - 1
        low[t] = high[t] = 0
        for frequency in range(own, reach[t] + 1):
            while stair + 1 < len(starts) and frequency >= starts[stair + 1]:
                stair += 1
            row = min(first[stair] + frequency - starts[stair], first[stair + 1] - 1)
            lag = frequency * parts - tokens[t]
            if low[t] == 0 and nearest[row] <= lag:
                low[t] = frequency
            if farthest[row] >= lag:
                high[t] = frequency
        low[t] = max(low[t], 1)
        high[t] = max(high[t], low[t])
