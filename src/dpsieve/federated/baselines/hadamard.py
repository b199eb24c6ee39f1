"""A baseline: Hadamard response, where each client randomises its own value and nobody needs to be trusted.

Values 0..k-1 are spread over B blocks of b - 1; b is a power of two, and value x owns the row r = 1 + x mod (b-1) of
the b x b Hadamard matrix H of its block. Let S_x be the s = b/2 columns of that block in which row r is +1. The client
sends a column y: each of S_x with probability e^epsilon / Z, each of the other B b - s with 1 / Z, where
Z = s e^epsilon + B b - s. So any two values give any output with probabilities within e^epsilon: epsilon-local privacy,
for a changed value.

Two rows of a block agree in half of their columns and blocks are disjoint. So the sum over all reports in the block of
H[r, y] has the mean n_x s (e^epsilon - 1) / Z, where n_x clients have x: a fast Walsh-Hadamard transform of the counts
of each block, times Z / (s (e^epsilon - 1)), is an unbiased estimate of all frequencies.

Reference: J. Acharya, Z. Sun and H. Zhang, "Hadamard response: estimating distributions privately, efficiently, and
with little communication", AISTATS 2019, with its choice of B: the largest power of two below min(e^epsilon, 2k).
"""

import math
from functools import cached_property

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.binomial.rows import LARGEST_RATE
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Guarantee
from dpsieve.randomness.coins import coins
from dpsieve.randomness.order import uniform_integers
from dpsieve.randomness.source import Source, resolve
from dpsieve.randomness.tables import ExactTable
from dpsieve.types import Floats, Ints

_OWN, _WRONG, _ELSEWHERE = 0, 1, 2  # in S_x, in its block but not in S_x, in another block


class HadamardResponse:
    """Epsilon-local privacy for values 0..buckets-1.

    Clients take part with probability `rate`, whatever their value; that neither helps nor harms the guarantee, as
    those who see the reports see who took part.

    >>> HadamardResponse(1.0, 100).guarantee.neighbours
    'replace'
    """

    def __init__(self, epsilon: float, buckets: int, *, rate: float = 1.0, unit: str = "one client") -> None:
        hint = "Pass a budget such as epsilon=1.0."
        epsilon = validate.positive("epsilon", validate.between("epsilon", epsilon, 0.0, 50.0, hint=hint), hint=hint)
        self.guarantee = Guarantee(epsilon, 0.0, "replace", unit)
        self.buckets = validate.whole("buckets", buckets, low=2, high=1 << 24, hint="Pass how many values there are.")
        self.rate = validate.between("rate", rate, 1e-9, 1.0, hint="Pass the share of clients that take part.")
        few = min(math.exp(epsilon), 2 * self.buckets)
        self.blocks = 1 << max(math.ceil(math.log2(few)) - 1, 0)
        rows = -(-self.buckets // self.blocks)
        self.block = 1 << rows.bit_length()  # a power of two above `rows`, as row 0 is not used

    @property
    def outputs(self) -> int:
        """How many different reports there are."""
        return self.blocks * self.block

    def respond(self, values: ArrayLike, *, source: Source | None = None) -> Ints:
        """Return the reports of clients that take part, drawn exactly; those of others are left out."""
        source, x = resolve(source), self._checked(values)
        if self.rate <= LARGEST_RATE:
            x = x[coins(len(x), self.rate, source=source)]
        block, row = self._place(x)
        kind = self._kinds.draw(len(x), source)
        column = (source.words(len(x)) & np.uint64(self.block - 1)).view(np.int64)
        odd = np.bitwise_count(column & row) & 1  # H[r, y] is +1 where r & y has an even number of ones
        flip = (kind != _ELSEWHERE) & (odd != (kind == _WRONG))
        column = np.where(flip, column ^ (row & -row), column)  # maps one half of the columns onto the other
        away = np.flatnonzero(kind == _ELSEWHERE)
        block[away] = (block[away] + 1 + uniform_integers(len(away), max(self.blocks - 1, 1), source)) % self.blocks
        return block * self.block + column

    def estimate(self, reports: ArrayLike) -> Floats:
        """Return unbiased estimates of how many clients have each value, by a fast Walsh-Hadamard transform."""
        seen = validate.integers("reports", reports, hint="Pass what respond returned.")
        if len(seen) and not 0 <= int(seen.min()) <= int(seen.max()) < self.outputs:
            raise InvalidValue("reports holds a number that no client sends. Pass what respond returned.")
        counts = np.bincount(seen, minlength=self.outputs).reshape(self.blocks, self.block)
        sums = walsh_hadamard(counts.astype(np.float64))
        block, row = self._place(np.arange(self.buckets))
        return np.asarray(sums[block, row] * self._lift / self.rate, dtype=np.float64)

    def variance(self, frequencies: ArrayLike) -> Floats:
        """Return the variances of the estimates, when these numbers of clients have each value.

        A report adds +-1 with probability s (e^epsilon + 1) / Z when its client's value is in the same block, and
        2 s / Z when it is not; its mean is not zero for the clients of the value itself.
        """
        n = np.asarray(frequencies, np.float64)
        if n.shape != (self.buckets,):
            raise InvalidValue("frequencies must have one number for each value. Pass 0 for those that nobody has.")
        block, _ = self._place(np.arange(self.buckets))
        same = np.bincount(block, n, self.blocks)[block]
        s, z, e = self.block / 2, self._z, math.exp(self.guarantee.epsilon)
        squares = (same * s * (e + 1) + (n.sum() - same) * 2 * s) / z
        return np.asarray(squares * self._lift**2 / self.rate - n, dtype=np.float64)

    def row(self, value: int) -> Floats:
        """Return the probability of each report of a client with this value that takes part, for checks."""
        block, row = self._place(self._checked([value]))
        odd = np.bitwise_count(np.arange(self.block) & row) & 1
        weights = np.ones((self.blocks, self.block))
        weights[block[0], odd == 0] = math.exp(self.guarantee.epsilon)
        return np.asarray(weights.ravel() / self._z, dtype=np.float64)

    @property
    def _z(self) -> float:
        return self.block / 2 * math.expm1(self.guarantee.epsilon) + self.outputs

    @property
    def _lift(self) -> float:
        return self._z / (self.block / 2 * math.expm1(self.guarantee.epsilon))

    @cached_property
    def _kinds(self) -> ExactTable:
        """The table of where a report falls: S_x, the rest of its block, another block, as e^epsilon : 1 : 2B - 2."""

        def cdf(k: int) -> arb:
            if k < _OWN or k >= _ELSEWHERE or (k == _WRONG and self.blocks == 1):
                return arb(0 if k < _OWN else 1)
            own = arb(self.guarantee.epsilon).exp()
            return (own + k) / (own + 2 * self.blocks - 1)

        return ExactTable(cdf)

    def _place(self, values: Ints) -> tuple[Ints, Ints]:
        """Return block and row of each value."""
        return values // (self.block - 1), values % (self.block - 1) + 1

    def _checked(self, values: ArrayLike) -> Ints:
        found = validate.integers("values", values, hint="Pass values as numbers from 0 on.")
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < self.buckets:
            raise InvalidValue("values holds one outside the buckets. Pass numbers from 0 to buckets - 1.")
        return found


def walsh_hadamard(rows: Floats) -> Floats:
    """Return sum_y (-1)^(number of ones in r & y) x_y for all r, for each row x of a power of two of numbers.

    >>> walsh_hadamard(np.array([[1.0, 0.0, 1.0, 0.0]])).tolist()
    [[2.0, 2.0, 0.0, 0.0]]
    """
    done, size = rows.copy(), rows.shape[-1]
    step = 1
    while step < size:
        pairs = done.reshape(-1, size // (2 * step), 2, step)
        done = np.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], axis=2)
        step *= 2
    return done.reshape(rows.shape)
