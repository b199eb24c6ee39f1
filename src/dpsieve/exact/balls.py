"""Proven bounds as floats: ball arithmetic outside, ordinary floats inside.

A ball is a python-flint `arb`: a midpoint and a radius that enclose the true number, so a comparison of two balls that
returns True is a theorem. `upper` and `lower` evaluate an expression on balls, with more bits until the ball is
tight, and round to the safe side. `largest` and `smallest` invert a monotone statement exactly, over the floats
themselves, and `first_whole` over whole numbers; `minimise` finds good free parameters, where every value is sound.

The precision of python-flint is global to the process; a lock keeps our threads from changing it concurrently. A
precision set by another library could only make a ball wider, never wrong.

These are inner tools: they trust their input. flint is loaded on the first use.
"""

import math
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from flint import arb

    Ball: TypeAlias = arb
else:  # flint is loaded on the first use
    Ball = Any

_FIRST_BITS, _MOST_BITS = 128, 8192
_TIGHT = 64
_MOST_EPSILON = 500.0
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # a lock held by another thread would never be released in the child
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Compute with `bits` bits inside this block."""
    from flint import ctx

    with _LOCK, ctx.workprec(bits):
        yield


def floor_bounds(value: Ball) -> tuple[int, int]:
    """Return the floors of the lower and of the upper end of a ball."""
    low, high = value.lower().floor().lower(), value.upper().floor().upper()
    return int(low.fmpz()), int(high.fmpz())


def ball(number: float) -> Ball:
    """Return the ball that holds exactly `number`, an int or a finite float."""
    from flint import arb

    return arb(number)


def upper(expression: Callable[[], Ball]) -> float:
    """Return the float just above the value of `expression`: never below the true value.

    `expression` takes nothing and returns a ball; it is called again with more bits while its ball is loose, so it must
    compute all its numbers on each call. A value too large for a float gives infinity; a positive value too small for
    a float gives the smallest positive float.

    >>> upper(lambda: ball(1) / 3) > 1 / 3
    True
    """
    return _up(_edge(expression))


def lower(expression: Callable[[], Ball]) -> float:
    """Return the float just below the value of `expression`: never above the true value.

    >>> lower(lambda: ball(2).sqrt()) ** 2 < 2
    True
    """
    return -_up(_edge(lambda: -expression()))


def largest(
    holds: Callable[[float], bool], low: float, high: float, *, tolerance: float = 0.0, near: float | None = None
) -> float:
    """Return the largest float in [low, high] at which `holds`; `holds` is true first and false from some point on.

    `low` and `high` are not negative, and `holds(low)` is assumed. Where `holds` is inconsistent in its last digits,
    the answer is still a number at which it held, or `low`. At most 65 evaluations; with a relative `tolerance` the
    search stops early, at a number that still holds. An answer that is expected `near` a number is found in fewer.

    >>> largest(lambda x: x * x <= 2, 0.0, 2.0)
    1.414213562373095
    """
    if holds(high):
        return high
    good, bad = _rank(low), _rank(high)
    if near is not None and low < near < high:
        good, bad = _around(holds, _rank(near), good, bad)
    while bad - good > 1 and _unrank(good) <= (1 - tolerance) * _unrank(bad):
        good, bad = _halve(holds, good, bad)
    return _unrank(good)


def smallest(holds: Callable[[float], bool], low: float, high: float, *, tolerance: float = 0.0) -> float:
    """Return the smallest float in [low, high] at which `holds`; `holds` is false first and true from some point on.

    The mirror of `largest`: `holds(high)` is assumed. With a relative `tolerance` the search stops early, at a number
    that still holds.

    >>> smallest(lambda x: x * x >= 2, 0.0, 2.0)
    1.4142135623730951
    """
    if holds(low):
        return low
    bad, good = _rank(low), _rank(high)
    while good - bad > 1 and _unrank(bad) <= (1 - tolerance) * _unrank(good):
        good, bad = _halve(holds, good, bad)
    return _unrank(good)


def smallest_epsilon(holds: Callable[[float], bool], *, tolerance: float = 0.0) -> float:
    """Return the smallest epsilon at which `holds`, or infinity where none up to 500 (the largest accepted) does.

    >>> smallest_epsilon(lambda epsilon: epsilon >= 1.5), smallest_epsilon(lambda epsilon: False)
    (1.5, inf)
    """
    return smallest(holds, 0.0, _MOST_EPSILON, tolerance=tolerance) if holds(_MOST_EPSILON) else math.inf


def first_whole(holds: Callable[[int], bool], low: int, high: int, *, step: int = 1) -> int:
    """Return the first whole number in [low, high) at which `holds`, else `high`; once true, `holds` stays true.

    The search starts at `low` with steps that double, from `step` on: its cost grows with the distance of the answer.

    >>> first_whole(lambda n: n * n >= 50, 1, 10**9), first_whole(lambda n: False, 1, 10)
    (8, 10)
    """
    while low < high and not holds(at := min(low + step - 1, high - 1)):
        low, step = at + 1, 2 * step
    high = min(low + step - 1, high)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def minimise(function: Callable[[float], float], low: float, high: float, *, rounds: int = 24) -> float:
    """Return a point where `function` is small, by golden section; nothing is proven about it.

    >>> round(minimise(lambda x: (x - 1) ** 2, 0.0, 3.0), 3)
    1.0
    """
    ratio = (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(rounds):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return left if at_left <= at_right else right


def _edge(expression: Callable[[], Ball]) -> Ball:
    """Return an exact ball just above the value."""
    bits = _FIRST_BITS
    while True:
        with precision(bits):
            value = expression()
            tight = value.is_finite() and (value.is_exact() or value.rel_accuracy_bits() >= _TIGHT)
            # At the last precision a loose ball is still certain to hold the value.
            if tight or 2 * bits > _MOST_BITS:
                return value.upper()
        bits *= 2


def _up(edge: Ball) -> float:
    number = float(edge)
    if math.isnan(number):
        return math.inf
    # Comparing exact balls is exact; float() itself promises no direction.
    while number < math.inf and not edge <= ball(number):
        number = math.nextafter(number, math.inf)
    return number


def _halve(holds: Callable[[float], bool], good: int, bad: int) -> tuple[int, int]:
    middle = (good + bad) // 2
    return (middle, bad) if holds(_unrank(middle)) else (good, middle)


def _around(holds: Callable[[float], bool], near: int, good: int, bad: int) -> tuple[int, int]:
    """Return a narrow part of a bracket with the last rank that holds, by growing steps from a rank in it."""
    step, is_below = 1 << 10, holds(_unrank(near))
    good, bad = (near, bad) if is_below else (good, near)
    while bad - good > step:
        middle = good + step if is_below else bad - step
        if holds(_unrank(middle)) != is_below:
            return (good, middle) if is_below else (middle, bad)
        good, bad = (middle, bad) if is_below else (good, middle)
        step *= 16
    return good, bad


def _rank(number: float) -> int:
    # Floats that are not negative are ordered like their bit patterns.
    return int(struct.unpack("<q", struct.pack("<d", number + 0.0))[0])  # 0.0 for -0.0


def _unrank(rank: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", rank))[0])
