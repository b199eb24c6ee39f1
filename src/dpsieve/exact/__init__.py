"""Exact arithmetic: balls, searches that round to the safe side, binomial tails; and, here, 128-bit words.

A number of 128 bits is two arrays of words, high and low; a probability is such a number over 2^128.
"""

from collections.abc import Sequence

import numpy as np

from dpsieve.types import Bools, Floats, Ints, Words


def below(high: Words, low: Words, limit_high: Words, limit_low: Words) -> Bools:
    """Return whether each two-word number is below its limit."""
    return np.asarray((high < limit_high) | ((high == limit_high) & (low < limit_low)))


def floor_words(probabilities: Floats) -> tuple[Words, Words]:
    """Return floor(p 2^128) for each p in [0, 1], at most 2^128 - 1. Each step is exact in floating point."""
    scaled = np.minimum(probabilities, 1.0) * 2.0**64
    sure = scaled >= 2.0**64
    integral = np.floor(np.where(sure, 0.0, scaled))
    high, low = integral.astype(np.uint64), ((np.where(sure, 0.0, scaled) - integral) * 2.0**64).astype(np.uint64)
    return np.where(sure, ~np.uint64(0), high), np.where(sure, ~np.uint64(0), low)


def exact_sum(values: Ints) -> int:
    """Return the exact sum of non-negative 64-bit integers."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def split_words(numbers: Sequence[int]) -> tuple[Words, Words]:
    """Split 128-bit integers into their high and low words."""
    raw = b"".join(number.to_bytes(16, "little") for number in numbers)
    pairs = np.frombuffer(raw, dtype="<u8").reshape(-1, 2)
    return pairs[:, 1].astype(np.uint64), pairs[:, 0].astype(np.uint64)


def join_words(high: Words, low: Words) -> list[int]:
    """Return two-word numbers as Python integers."""
    return [a << 64 | b for a, b in zip(high.tolist(), low.tolist(), strict=True)]


def fraction(high: Words, low: Words) -> Floats:
    """Return high and low words as probabilities."""
    return np.asarray(high * 2.0**-64 + low * 2.0**-128)
