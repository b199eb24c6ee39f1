"""Misra-Gries in ten lines, and neighbouring streams."""

from itertools import product


def misra_gries(k, stream, order=lambda key: key):
    """Algorithm 12: return the counters of the real keys, and how often all counters were lowered."""
    held = {("dummy", i): 0 for i in range(k)}
    lowered = 0
    for x in stream:
        if x in held:
            held[x] += 1
        elif all(held.values()):
            held = {key: c - 1 for key, c in held.items()}
            lowered += 1
        else:
            leaving = min(
                (key for key, c in held.items() if c == 0), key=lambda key: (isinstance(key, tuple), order(key))
            )
            del held[leaving]
            held[x] = 1
    return {key: c for key, c in held.items() if not isinstance(key, tuple)}, lowered


def neighbours(universe, longest):
    """All pairs of a stream and the same stream with one item less."""
    for length in range(1, longest + 1):
        for stream in product(universe, repeat=length):
            for i in range(length):
                yield stream, stream[:i] + stream[i + 1 :]
