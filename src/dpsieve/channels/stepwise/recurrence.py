"""Rows of a channel with a sampling scheme, in blocks: the state they are made from, and how to go on from it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsieve.channels.grid import FACTOR_BITS, Steps
from dpsieve.channels.stepwise import advance as compiled


@dataclass
class State:
    """The last row made: cells edges[:count + 1] with masses (high, low) per token, and the reported mass."""

    parameters: NDArray[np.uint64]  # e^eps mantissa and shift, e^-eps as a fraction of 2^64, delta (high, low), parts
    capacity: int
    edges: NDArray[np.int64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    numbers: NDArray[np.int64]  # the frequency of the row, the count of its cells
    reported: NDArray[np.uint64]  # high, low

    @classmethod
    def start(cls, steps: Steps, resolution: int, capacity: int) -> "State":
        """Return row 0: nothing is reported."""
        bits = steps.factor.bit_length() - 64
        mantissa, shift = steps.factor >> bits, FACTOR_BITS - bits
        inverse = -((-1 << 64 + FACTOR_BITS) // steps.factor) + 1
        numbers = [mantissa, shift, inverse, steps.delta >> 64, steps.delta & (2**64 - 1), resolution]
        return cls(
            np.array(numbers, dtype=np.uint64),
            capacity,
            np.zeros(1, np.int64),
            np.zeros(0, np.uint64),
            np.zeros(0, np.uint64),
            np.zeros(2, np.int64),
            np.zeros(2, np.uint64),
        )

    def trimmed(self) -> "State":
        """Return a state that holds no more than its row."""
        cells = int(self.numbers[1])
        kept = self.edges[: cells + 1].copy(), self.high[:cells].copy(), self.low[:cells].copy()
        return State(self.parameters, self.capacity, *kept, self.numbers.copy(), self.reported.copy())

    def resumed(self) -> "State":
        """Return a state that can go on, with room for its cells."""
        edges, high, low = np.zeros(self.capacity + 1, np.int64), *np.zeros((2, self.capacity), np.uint64)
        edges[: len(self.edges)], high[: len(self.high)], low[: len(self.low)] = self.edges, self.high, self.low
        return State(self.parameters, self.capacity, edges, high, low, self.numbers.copy(), self.reported.copy())


@dataclass(frozen=True)
class Block:
    """Consecutive rows: row first + r has cells starts[r]:starts[r+1], and cell t has tokens left[t]+1 to right[t]."""

    first: int
    starts: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    reported: NDArray[np.uint64]  # (rows, 2)

    def __len__(self) -> int:
        return len(self.starts) - 1


def advance(state: State, limits: NDArray[np.uint64]) -> Block:
    """Make the next rows, one for each (high, low) limit q_i on the reported mass, and leave `state` at the last."""
    rows, capacity = len(limits), len(state.high)
    first = int(state.numbers[0]) + 1
    starts, reported = np.zeros(rows + 1, np.int64), np.zeros((rows, 2), np.uint64)
    left, right = np.empty(rows * capacity, np.int64), np.empty(rows * capacity, np.int64)
    high, low = np.empty(rows * capacity, np.uint64), np.empty(rows * capacity, np.uint64)
    done = compiled.advance(
        state.parameters, state.edges, state.high, state.low, state.numbers, state.reported, limits,
        starts, left, right, high, low, reported,
    )  # fmt: skip
    if not done:
        raise MemoryError("a row has more cells than were set aside")
    end = starts[-1]
    return Block(first, starts, left[:end], right[:end], high[:end], low[:end], reported)
