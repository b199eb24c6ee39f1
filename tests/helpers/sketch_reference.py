"""Misra-Gries in ten lines, neighbouring streams, and forged states."""

import hashlib
import struct
from collections import Counter
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


def post_processed(k, stream):
    """max(0, c + gamma - n/(k+1)) in units of 1/(k+1), and n."""
    held, lowered = misra_gries(k, stream)
    values = {key: (c + lowered) * (k + 1) - len(stream) for key, c in held.items()}
    return Counter({key: v for key, v in values.items() if v > 0}), len(stream)


def neighbours(universe, longest):
    """All pairs of a stream and the same stream with one item less."""
    for length in range(1, longest + 1):
        for stream in product(universe, repeat=length):
            for i in range(length):
                yield stream, stream[:i] + stream[i + 1 :]


def forged(kind_of_sketch, kind, numbers, *tables):
    """Bytes with a right checksum, and whatever in them; a table is a list of values, and the bytes of its keys."""
    rows = [len(values) for values, _ in tables]
    body = kind_of_sketch(1).to_bytes()[:16] + struct.pack(f"<B{len(numbers) + len(rows)}Q", kind, *numbers, *rows)
    return sealed(body + b"".join(packed(values) + keys for values, keys in tables))


def packed(numbers):
    """Numbers of the least width, after one byte that tells it."""
    width = next(width for width in (1, 2, 4, 8) if max(numbers, default=0) < 256**width)
    return bytes([width]) + b"".join(number.to_bytes(width, "little") for number in numbers)


def integers(*keys):
    """The bytes of keys that are integers."""
    return struct.pack(f"<{len(keys)}q", *keys)


def texts(*keys):
    """The bytes of keys that are text or bytes."""
    return packed([len(key) for key in keys]) + b"".join(keys)


def sealed(body):
    """A body closed by its checksum."""
    return body + hashlib.sha256(body).digest()
