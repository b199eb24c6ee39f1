"""How the state of a sketch lies in memory: records that Python and the compiled loops share.

A counter c is stored as c + decrements, so that lowering all counters is one addition to `decrements`.
"""

import numpy as np

MOST_COUNTERS = 2**24

# `zeros` lists the keys whose counters were zero after the last decrement, in order: `waiting` of them. Those before
# `cursor` have left the sketch or been counted since. `used` is the filled part of the arena of texts.
STATE = np.dtype([(name, np.int64) for name in ("items", "decrements", "held", "cursor", "waiting", "used")])

# A slot of the table of integers. `stored` is 0 in an empty slot, and one more than said above in others.
SLOT = np.dtype([("key", np.int64), ("stored", np.int64)])

# A text: `length` bytes of the arena from `start` on, with their salted hash. Entry 0 is never used: 0 means none.
ENTRY = np.dtype([("stored", np.int64), ("start", np.int64), ("length", np.int64), ("hash", np.uint64)])


def table_size(counters: int) -> int:
    """Return how many slots a table has: a power of two, at most a quarter full while it fits the cache, then half."""
    return 1 << ((4 if counters <= 2**16 else 2) * counters - 1).bit_length()
