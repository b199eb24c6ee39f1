"""The loop over users' sets."""

import numpy as np

from dpsieve.exact.jit import jit


@jit()
def count_sets(codes, offsets, stored, held, counters):
    """Count sets of codes into `stored`, counters that are kept as counter + lowered; codes below `held` are held.

    Returns the codes that are held at the end, how often all counters were lowered, and how many items were counted.
    """
    room = held + len(codes)
    keep = np.empty(min(room, len(stored)), np.int64)
    for code in range(held):
        keep[code] = code
    seen = np.full(len(stored), -1, np.int64)
    lowered, counted = 0, 0
    for user in range(len(offsets) - 1):
        for place in range(offsets[user], offsets[user + 1]):
            code = codes[place]
            if seen[code] == user:
                continue
            seen[code] = user
            counted += 1
            if stored[code] > lowered:
                stored[code] += 1
            else:
                stored[code] = lowered + 1
                keep[held] = code
                held += 1
        if held > counters:
            lowered += 1
            left = 0
            for place in range(held):
                if stored[keep[place]] > lowered:
                    keep[left] = keep[place]
                    left += 1
            held = left
    return keep[:held].copy(), lowered, counted
