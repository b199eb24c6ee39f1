"""The certificate kernel: it decides whether a table of integer probabilities keeps its promise.

This page is what a reader has to trust, so it imports nothing from the rest of dpsieve.

A table has a row for each frequency i = 0, 1, 2, ... Row i is a distribution over 'nothing' and integer tokens, in
units of 2^-128: `high * 2^64 + low` is the mass of *each* integer from edges[t] to edges[t+1]-1 (a point token is a
cell of width one), and 'nothing' holds the rest, so every row sums to one. Row 0 is 'nothing' with certainty and is
not stored. Rows come in blocks that share their edges. After the last row the table may continue without end; each
row is the previous one shifted up by `shift` tokens. Tokens below `floor` are announced as 'nothing'; rows may have
them all the same, and the tail shifts the row as it is stored. (Two shifted rows have the divergence of the first two,
and joining tokens to 'nothing' can only lower it, so one pair stands for the whole tail.)

Promise: for every two adjacent rows P, Q, in both orders, the sum over outputs of max(0, P - e^epsilon Q) <= delta.

Each pair is first bounded from above in floating point with the errors counted in; a pair that this cannot clear is
decided with exact integers, and e^epsilon is rounded down, which can only enlarge the sum. So no table passes that
should not, and none is refused whose sum is below delta by more than one part in 2^128.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

GRID, GUARD, PART = 128, 192, 12_000
WORD, HALF, MASK = 64, np.uint64(32), np.uint64(0xFFFF_FFFF)


@dataclass(frozen=True)
class Block:
    """Consecutive rows over shared cells of integer tokens; see the head of this module."""

    edges: NDArray[np.int64]  # (cells + 1,) increasing
    high: NDArray[np.uint64]  # (rows, cells)
    low: NDArray[np.uint64]  # (rows, cells)


@dataclass(frozen=True)
class Verdict:
    """`accepted`, or the `reason` why not; `worst` is a proven upper bound on the divergence of the pairs checked."""

    accepted: bool
    rows: int
    worst: float
    reason: str = ""


def examine(
    stacks: Iterable[Block],
    epsilon: float,
    delta: float,
    shift: int | None = None,
    floor: int | None = None,
    before: Block | None = None,
) -> Verdict:
    """Check rows 1, 2, ... (and the tail, unless shift is None) against the promise; never raises on a bad table.

    With `before`, a single row, the rows follow that one instead of 'nothing'.
    """
    count, worst, last, held = 0, 0.0, before, None
    try:
        if not (0 <= epsilon <= 500 and 0 <= delta < 1 and (shift is None or 0 <= shift <= 2**30)):
            raise _Broken("epsilon, delta or shift is out of range")
        factor, allowed = exp_floor(epsilon), math.floor(Fraction(delta) * 2 ** (GRID + GUARD))
        for stack in stacks:
            _well_formed(stack)
            reported = stack if floor is None else _cut(stack, floor)
            start = Block(reported.edges[:2], *np.zeros((2, 1, 1), np.uint64))
            worst = max(worst, _check(_join(last or start, _row(reported, 0)), factor, allowed, count))
            for k, part in _parts(reported):
                worst = max(worst, _check(part, factor, allowed, count + 1 + k))
            if floor is not None:  # what is cut away must not be more than there is, either
                for k, part in _parts(stack):
                    _silent(part, count + 1 + k)
            last, held, count = _row(reported, -1), _row(stack, -1), count + len(reported.high)
        if held is None:
            raise _Broken("there are no rows")
        if shift is not None:
            moved = Block(held.edges + shift, held.high, held.low)
            worst = max(worst, _check(_join(held, moved), factor, allowed, count))
    except _Broken as broken:
        return Verdict(False, count, math.inf, str(broken))
    return Verdict(True, count, min(worst, delta))


def exp_floor(epsilon: float) -> int:
    """Return an integer at most 2^GUARD e^epsilon: its Taylor series, whose terms are positive, each rounded down."""
    x, total, term, k = Fraction(epsilon), 0, 1 << (GUARD + 64), 0
    while term:
        total, k = total + term, k + 1
        term = term * x.numerator // (x.denominator * k)
    return total >> 64


class _Broken(Exception):
    pass


def _parts(rows: Block) -> Iterator[tuple[int, Block]]:
    """Yield a stack in parts that stay in the cache, each beginning with the last row of the one before."""
    step = max(32, PART // len(rows.edges))
    for k in range(0, max(1, len(rows.high) - 1), step):
        yield k, Block(rows.edges, rows.high[k : k + step + 1], rows.low[k : k + step + 1])


def _row(rows: Block, k: int) -> Block:
    """Return a copy of one row: the caller may use its arrays again for the next stack."""
    return Block(rows.edges.copy(), rows.high[[k]], rows.low[[k]])


def _well_formed(rows: Block) -> None:
    if not isinstance(rows, Block) or not all(type(a) is np.ndarray for a in (rows.edges, rows.high, rows.low)):
        raise _Broken("a stack of rows is made of plain arrays")
    edges, shape = rows.edges, (rows.high.shape[0] if rows.high.ndim else 0, rows.edges.size - 1)
    if rows.high.shape != shape or rows.low.shape != shape or edges.ndim != 1 or min(shape) < 1:
        raise _Broken("the arrays of a stack of rows do not fit together")
    if rows.high.dtype != np.uint64 or rows.low.dtype != np.uint64 or edges.dtype != np.int64:
        raise _Broken("edges must be int64 and masses uint64 words")
    if (edges[1:] <= edges[:-1]).any():
        raise _Broken("edges must increase")
    if int(edges[-1]) - int(edges[0]) >= 2**31:  # so that the sums of 32-bit limbs below fit 64 bits
        raise _Broken("a stack of rows spans 2^31 tokens or more")


def _cut(rows: Block, floor: int) -> Block:
    """Drop the tokens below floor, so that 'nothing' gains what they hold."""
    start = int(np.searchsorted(rows.edges, floor, "right")) - 1
    if start < 0:
        return rows
    if start >= len(rows.edges) - 1:  # nothing is left: keep one empty cell
        empty = np.zeros((len(rows.high), 1), np.uint64)
        return Block(np.array([floor, floor + 1]), empty, empty)
    edges = rows.edges[start:].copy()
    edges[0] = floor
    return Block(edges, rows.high[:, start:], rows.low[:, start:])


def _join(first: Block, second: Block) -> Block:
    """Stack two single rows over the union of their edges."""
    edges = np.union1d(first.edges, second.edges)
    high, low = np.zeros((2, 2, len(edges) - 1), np.uint64)
    for k, row in enumerate((first, second)):
        cell = np.searchsorted(row.edges, edges[:-1], "right") - 1
        inside = (cell >= 0) & (cell < len(row.edges) - 1)
        high[k, inside], low[k, inside] = row.high[0, cell[inside]], row.low[0, cell[inside]]
    return Block(edges, high, low)


def _check(rows: Block, factor: int, allowed: int, first: int) -> float:
    """Check every adjacent pair of a stack; return the largest divergence, as an upper bound."""
    _well_formed(rows)
    width, cells = np.diff(rows.edges), len(rows.edges) - 1
    silent = _silent(rows, first)
    if len(rows.high) < 2:
        return 0.0
    # Masses as floats are right to 2^-51, so `slope` is e^epsilon lowered by more than all relative errors of
    # q - slope * p, and `margin` covers those of the sum of at most cells + 1 terms, none of them negative.
    mass = np.column_stack((rows.high * 2.0**WORD + rows.low, silent))
    size = np.append(width, 1).astype(float)
    slope = factor * (1 - 2.0**-48) / 2**GUARD
    margin = (1 + (cells + 64) * 2.0**-51) / 2.0**GRID
    low, up = mass[:-1], mass[1:]
    bounds = [np.maximum(q - slope * p, 0.0) @ size * margin for p, q in ((low, up), (up, low))]
    limit = math.nextafter(allowed / 2 ** (GRID + GUARD), 0.0)
    for k in np.flatnonzero((bounds[0] > limit) | (bounds[1] > limit)).tolist():
        exact = _exact(rows, k, factor)
        if exact > allowed:
            excess = f"{exact / 2 ** (GRID + GUARD):.17g} > {allowed / 2 ** (GRID + GUARD):.17g}"
            raise _Broken(f"rows {first + k} and {first + k + 1} diverge by more than delta: {excess}")
        bounds[0][k] = bounds[1][k] = math.nextafter(exact / 2 ** (GRID + GUARD), 1.0)
    return float(max(bounds[0].max(), bounds[1].max()))


def _silent(rows: Block, first: int) -> NDArray[np.float64]:
    """Return the mass of 'nothing' in each row, subtracted exactly and then rounded to a float."""
    # Sums of 32-bit limbs over less than 2^21 tokens stay below 2^53, so floats hold them exactly, and faster.
    kind = np.float64 if int(rows.edges[-1]) - int(rows.edges[0]) < 2**21 else np.uint64
    w = np.diff(rows.edges).astype(kind)
    carry: NDArray[np.uint64] = np.zeros(len(rows.high), np.uint64)
    limbs: list[NDArray[np.uint64]] = []
    for limb in (rows.low & MASK, rows.low >> HALF, rows.high & MASK, rows.high >> HALF):
        total: NDArray[np.uint64] = (limb.astype(kind, copy=False) @ w).astype(np.uint64) + carry
        limbs.append(total & MASK)
        carry = total >> HALF
    high, low = limbs[3] << HALF | limbs[2], limbs[1] << HALF | limbs[0]
    zero = (high | low) == 0
    if ((carry > 1) | ((carry == 1) & ~zero)).any():
        raise _Broken(f"a row at or above {first} sums to more than one")
    rest = (~high + (low == 0)) * 2.0**WORD + (~low + np.uint64(1))
    return np.where(zero, np.where(carry == 1, 0.0, 2.0**GRID), rest)


def _exact(rows: Block, k: int, factor: int) -> int:
    """Return the larger divergence of rows k and k + 1 of a stack, in units of 2^-(GRID + GUARD)."""
    width = [int(w) for w in np.diff(rows.edges)] + [1]
    p, q = ([int(h) << WORD | int(m) for h, m in zip(rows.high[r], rows.low[r], strict=True)] for r in (k, k + 1))
    for row in (p, q):
        row.append(2**GRID - sum(w * m for w, m in zip(width, row, strict=False)))
    up = sum(w * max(0, (b << GUARD) - factor * a) for w, a, b in zip(width, p, q, strict=True))
    down = sum(w * max(0, (a << GUARD) - factor * b) for w, a, b in zip(width, p, q, strict=True))
    return max(up, down)
