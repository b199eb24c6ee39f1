"""Numba: rows of the corrected Algorithm 5 on integers, and work on blocks of them: common cells, draws, windows.

With one part per unit this is Algorithm 4. The algorithms are those of Cohen, Geri, Sarlos and Stemmer (2021). Row i is
made from row i - 1 for the largest reporting probability pi_i that the scheme and privacy allow, and its mass is pushed
to the highest tokens: docs/background/channels.md#rows-step-by-step. Rounding is on the safe side everywhere: products
with e^eps are rounded down, with e^-eps up, so each adjacent pair of rows keeps the promise on the integers themselves.
The kernel checks that. A mass is two words, (high, low). `parameters` are e^eps as a mantissa and a shift, e^-eps times
2^64, delta in two words, and the parts of a unit.
"""

import numpy as np

from dpsieve.compiled.jit import jit
from dpsieve.compiled.words import add, divide, less, mul, mul_shift_down, mul_word_up, sub
from dpsieve.privacy.ladder_kernel import first_above

_ZERO, _ONE = np.uint64(0), np.uint64(1)


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
        if row != at:  # cumulative masses at the right ends of the cells of this row
            at, count = row, starts[row + 1] - first
            sum_high, sum_low = _ZERO, _ZERO
            for t in range(count):
                width = np.uint64(right[first + t] - left[first + t])
                _, mass_high, mass_low = mul(high[first + t], low[first + t], width)
                sum_high, sum_low = add(sum_high, sum_low, mass_high, mass_low)
                end_high[t], end_low[t] = sum_high, sum_low
        a, b = 0, count - 1  # the first cell whose end is above the number
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
    """Update the largest mass so far of each sorted token, and its frequency."""
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
    """Fill the shortest window of tokens, as lags, that holds `level` of the reported mass of each row."""
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
        # Windows that begin at a left edge, then, mirrored, windows that end at a right edge.
        lefts, rights, masses = left[a:stop], right[a:stop], density[a:stop]
        first, last = _narrowest(lefts, rights, masses, level * total)
        low, high = _narrowest(-rights[::-1], -lefts[::-1], masses[::-1].copy(), level * total)
        if high - low < last - first:
            first, last = -high, -low
        nearest[r], farthest[r] = own - last, own - first - 1


@jit()
def _narrowest(left, right, density, need):
    """Return the ends of the shortest window that begins at a left edge and holds the needed mass."""
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
def interval_ends(tokens, reach, starts, first, nearest, farthest, parts, low, high):
    """Fill the lowest and the highest frequency, up to its reach, whose window holds each token.

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


@jit()
def advance(
    parameters, edges, high, low, numbers, total, limits, starts, out_left, out_right, out_high, out_low, reported
):
    """Compute a row per limit, its cells and its reported mass; the state arrays end at the last row.

    Return False if a row has more cells than the arrays hold.
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
        room_high, room_low = pi_high, pi_low  # the mass beyond the least of every old token
        left = edges[0]
        for t in range(cells):
            _, mass_high, mass_low = mul(masses[2, t], masses[3, t], np.uint64(right[t] - left))
            left = right[t]
            if less(room_high, room_low, mass_high, mass_low):
                room_high, room_low = _ZERO, _ZERO
            else:
                room_high, room_low = sub(room_high, room_low, mass_high, mass_low)
        # The new unit gets at most delta, in equal parts; the old cells share the remainder, from the right.
        new_high, new_low = parameters[3], parameters[4]
        if less(room_high, room_low, new_high, new_low):
            new_high, new_low = room_high, room_low
        new_high, new_low = _over(new_high, new_low, parts)
        _, mass_high, mass_low = mul(new_high, new_low, parts)
        room_high, room_low = sub(room_high, room_low, mass_high, mass_low)
        used = _raise(parameters, edges[0], cells, right, masses, room_high, room_low, edges, high, low)
        if used == 0:
            edges[0] = np.int64(parts) * (row - 1)
        if new_high != _ZERO or new_low != _ZERO:
            edges[used + 1], high[used], low[used] = np.int64(parts) * row, new_high, new_low
            used += 1
        numbers[0], numbers[1] = row, used
        total[0], total[1] = _ZERO, _ZERO
        place = starts[r]
        for t in range(used):
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
            width = np.uint64(end - left)
            _, mass_high, mass_low = mul(high[t], low[t], width)
            if less(free_high, free_low, mass_high, mass_low):
                width = divide(free_high, free_low, high[t], low[t])
                _, mass_high, mass_low = mul(high[t], low[t], width)
            free_high, free_low = sub(free_high, free_low, mass_high, mass_low)
            if width != _ZERO:
                left += np.int64(width)
                cells = _put(right, masses, cells, left, high[t], low[t], _ZERO, _ZERO)
            if left < end:
                left += 1
                least_high, least_low = sub(high[t], low[t], free_high, free_low)
                least_high, least_low = mul_word_up(least_high, least_low, parameters[2])
                cells = _put(right, masses, cells, left, high[t], low[t], least_high, least_low)
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
                    raised = divide(room_high, room_low, gain_high, gain_low)
                    if raised != _ZERO:
                        place -= 1
                        high[place], low[place], edges[place + 1] = most_high, most_low, end
                        end -= np.int64(raised)
                        _, mass_high, mass_low = mul(gain_high, gain_low, raised)
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
    used = len(high) - place
    edges[0] = end
    for t in range(used):
        edges[t + 1], high[t], low[t] = edges[place + t + 1], high[place + t], low[place + t]
    return used


@jit()
def _over(high, low, parts):
    """Return floor(a / parts) for a power of two."""
    while parts > _ONE:
        low = (low >> _ONE) | (high << np.uint64(63))
        high >>= _ONE
        parts >>= _ONE
    return high, low
