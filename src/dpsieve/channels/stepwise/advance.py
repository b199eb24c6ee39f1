"""The corrected Algorithm 5, row after row, on integers; with one part a unit, Algorithm 4.

The algorithms are those of Cohen, Geri, Sarlos and Stemmer (2021). Row i is made from row i - 1 for the largest
reporting probability pi_i that the scheme and privacy allow:

    pi_i = min(q_i, e^eps pi_(i-1) + delta, 1 - e^-eps (1 - pi_(i-1) - delta)),

and its mass is pushed to the highest tokens. Every old token gets between its least and e^eps times its mass; the least
is e^-eps times its mass, except for the lowest tokens, which may vanish together with at most
delta - max(0, silent_(i-1) - e^eps silent_i) (the factor e^eps on silent_i is the correction). From the right, tokens
get the most they may until the mass is used up; one token in between gets the rest. The new unit has min(pi_i, delta).

Rounding is on the safe side everywhere: products with e^eps are rounded down, with e^-eps up, so each adjacent pair of
rows keeps the promise on the integers themselves. The kernel checks that.
"""

import numpy as np

from dpsieve.exact.jit import jit
from dpsieve.exact.wide import add, divide, less, mul, mul_shift_down, mul_word_up, sub

_ZERO, _ONE = np.uint64(0), np.uint64(1)


@jit()
def advance(
    parameters, edges, high, low, numbers, total, limits, starts, out_left, out_right, out_high, out_low, reported
):
    """Make a row for each limit; write its cells and its reported mass; leave the state arrays at the last one.

    Return False when a row has more cells than the arrays hold.
    """
    parts = parameters[5]
    capacity = len(high)
    # The old cells, split at b: their right edges, and in four words their masses and the least they may have now.
    right, masses = np.empty(capacity + 4, np.int64), np.empty((4, capacity + 4), np.uint64)
    for r in range(len(limits)):
        row, count = numbers[0] + 1, numbers[1]
        if count + 8 > capacity:
            return False
        pi_high, pi_low = _reporting(parameters, total[0], total[1], limits[r, 0], limits[r, 1])
        free_high, free_low = _may_vanish(parameters, total[0], total[1], pi_high, pi_low)
        cells = _split(parameters, edges, high, low, count, free_high, free_low, right, masses)
        room_high, room_low = pi_high, pi_low
        left = edges[0]
        for t in range(cells):
            _, mass_high, mass_low = mul(masses[2, t], masses[3, t], np.uint64(right[t] - left))
            left = right[t]
            if less(room_high, room_low, mass_high, mass_low):
                room_high, room_low = _ZERO, _ZERO
            else:
                room_high, room_low = sub(room_high, room_low, mass_high, mass_low)
        # The new unit gets delta or what is left, in equal parts; the old cells share the rest, from the right.
        new_high, new_low = parameters[3], parameters[4]
        if less(room_high, room_low, new_high, new_low):
            new_high, new_low = room_high, room_low
        new_high, new_low = _over(new_high, new_low, parts)
        _, mass_high, mass_low = mul(new_high, new_low, parts)
        room_high, room_low = sub(room_high, room_low, mass_high, mass_low)
        kept = _raise(parameters, edges[0], cells, right, masses, room_high, room_low, edges, high, low)
        if kept == 0:
            edges[0] = np.int64(parts) * (row - 1)
        if new_high != _ZERO or new_low != _ZERO:
            edges[kept + 1], high[kept], low[kept] = np.int64(parts) * row, new_high, new_low
            kept += 1
        numbers[0], numbers[1] = row, kept
        total[0], total[1] = _ZERO, _ZERO
        place = starts[r]
        for t in range(kept):
            _, mass_high, mass_low = mul(high[t], low[t], np.uint64(edges[t + 1] - edges[t]))
            total[0], total[1] = add(total[0], total[1], mass_high, mass_low)
            out_left[place], out_right[place] = edges[t], edges[t + 1]
            out_high[place], out_low[place] = high[t], low[t]
            place += 1
        starts[r + 1] = place
        reported[r, 0], reported[r, 1] = total[0], total[1]
    return True


@jit()
def _reporting(parameters, old_high, old_low, limit_high, limit_low):
    """Return pi_i: the least of the scheme's limit and the two privacy bounds."""
    pi_high, pi_low = limit_high, limit_low
    up_high, up_low = mul_shift_down(old_high, old_low, parameters[0], parameters[1])
    sum_high, sum_low = add(up_high, up_low, parameters[3], parameters[4])
    if not less(sum_high, sum_low, up_high, up_low) and less(sum_high, sum_low, pi_high, pi_low):
        pi_high, pi_low = sum_high, sum_low
    # 'nothing' must keep e^-eps (silent - delta), where silent = 2^128 - pi = ~pi + 1.
    less_high, less_low = sub(parameters[3], parameters[4], _ZERO, _ONE)
    if less(less_high, less_low, ~old_high, ~old_low):
        keep_high, keep_low = sub(~old_high, ~old_low, less_high, less_low)
        keep_high, keep_low = mul_word_up(keep_high, keep_low, parameters[2])
        keep_high, keep_low = sub(keep_high, keep_low, _ZERO, _ONE)
        if less(~keep_high, ~keep_low, pi_high, pi_low):
            pi_high, pi_low = ~keep_high, ~keep_low
    return pi_high, pi_low


@jit()
def _may_vanish(parameters, old_high, old_low, pi_high, pi_low):
    """Return delta - max(0, silent_(i-1) - e^eps silent_i), the old mass that may vanish; at least zero."""
    if pi_high == _ZERO and pi_low == _ZERO:
        return _ZERO, _ZERO
    now_high, now_low = add(~pi_high, ~pi_low, _ZERO, _ONE)
    up_high, up_low = mul_shift_down(now_high, now_low, parameters[0], parameters[1])
    if less(~old_high, ~old_low, up_high, up_low):
        return parameters[3], parameters[4]
    lost_high, lost_low = sub(~old_high, ~old_low, up_high, up_low)
    lost_high, lost_low = add(lost_high, lost_low, _ZERO, _ONE)
    if less(parameters[3], parameters[4], lost_high, lost_low):
        return _ZERO, _ZERO
    return sub(parameters[3], parameters[4], lost_high, lost_low)


@jit()
def _split(parameters, edges, high, low, count, free_high, free_low, right, masses):
    """Copy the cells with the least each token may have: zero left of b, a remainder at b, e^-eps times it after."""
    cells = 0
    for t in range(count):
        left, end = edges[t], edges[t + 1]
        if free_high != _ZERO or free_low != _ZERO:
            whole = np.uint64(end - left)
            _, mass_high, mass_low = mul(high[t], low[t], whole)
            if less(free_high, free_low, mass_high, mass_low):
                whole = divide(free_high, free_low, high[t], low[t])
                _, mass_high, mass_low = mul(high[t], low[t], whole)
            free_high, free_low = sub(free_high, free_low, mass_high, mass_low)
            if whole != _ZERO:
                left += np.int64(whole)
                cells = _put(right, masses, cells, left, high[t], low[t], _ZERO, _ZERO)
            if left < end:
                left += 1
                rest_high, rest_low = sub(high[t], low[t], free_high, free_low)
                rest_high, rest_low = mul_word_up(rest_high, rest_low, parameters[2])
                cells = _put(right, masses, cells, left, high[t], low[t], rest_high, rest_low)
                free_high, free_low = _ZERO, _ZERO
        if left < end:
            least_high, least_low = mul_word_up(high[t], low[t], parameters[2])
            cells = _put(right, masses, cells, end, high[t], low[t], least_high, least_low)
    return cells


@jit(forceinline=True)
def _put(right, masses, cells, end, high, low, least_high, least_low):
    right[cells] = end
    masses[0, cells], masses[1, cells], masses[2, cells], masses[3, cells] = high, low, least_high, least_low
    return cells + 1


@jit()
def _raise(parameters, base, cells, right, masses, room_high, room_low, edges, high, low):
    """Raise cells from the right to e^eps times their old mass while there is room; store the row, without zeros."""
    # From the end of the arrays to the left, as a cell may be split in three.
    place = len(high)
    end = right[cells - 1] if cells else base
    for t in range(cells - 1, -1, -1):
        start = right[t - 1] if t else base
        width = np.uint64(right[t] - start)
        new_high, new_low = masses[2, t], masses[3, t]
        if room_high != _ZERO or room_low != _ZERO:
            most_high, most_low = mul_shift_down(masses[0, t], masses[1, t], parameters[0], parameters[1])
            if less(new_high, new_low, most_high, most_low):
                gain_high, gain_low = sub(most_high, most_low, new_high, new_low)
                top, mass_high, mass_low = mul(gain_high, gain_low, width)
                if top == _ZERO and not less(room_high, room_low, mass_high, mass_low):
                    room_high, room_low = sub(room_high, room_low, mass_high, mass_low)
                    new_high, new_low = most_high, most_low
                else:
                    whole = divide(room_high, room_low, gain_high, gain_low)
                    if whole != _ZERO:
                        place -= 1
                        high[place], low[place], edges[place + 1] = most_high, most_low, end
                        end -= np.int64(whole)
                        _, mass_high, mass_low = mul(gain_high, gain_low, whole)
                        room_high, room_low = sub(room_high, room_low, mass_high, mass_low)
                    place -= 1
                    high[place], low[place] = add(new_high, new_low, room_high, room_low)
                    edges[place + 1] = end
                    end -= 1
                    room_high, room_low = _ZERO, _ZERO
        if end > start:
            if new_high == _ZERO and new_low == _ZERO:
                break
            if place == len(high) or high[place] != new_high or low[place] != new_low:
                place -= 1
                high[place], low[place], edges[place + 1] = new_high, new_low, end
            end = start
    kept = len(high) - place
    edges[0] = end
    for t in range(kept):
        edges[t + 1], high[t], low[t] = edges[place + t + 1], high[place + t], low[place + t]
    return kept


@jit()
def _over(high, low, parts):
    """Return floor(a / parts) for a power of two."""
    while parts > _ONE:
        low = (low >> _ONE) | (high << np.uint64(63))
        high >>= _ONE
        parts >>= _ONE
    return high, low
