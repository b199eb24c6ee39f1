"""The code from the value of a key to a content of b bits: private in each step of the value, uniform for the value 0.

Outcomes are the integers o from `low` to `high`. Each owns M_o >= 1 of the 2^b codes, and the content of a key is a
uniform code of its outcome. For a value v the outcome has the probability

    P_v(o) = (sum of g(z) over |z| <= Z where v + z, clamped to [low, high], is o) + r(o),

with whole numbers g and r in units of 2^-128: g is nearly geometric, and r(o) = M_o 2^(128-b) - G_0(o), where G_v(o) is
the sum above. So P_0(o) = M_o / 2^b: the content of a key of value 0 is distributed as that of an absent key. Far from
0, where g does not reach, an outcome has one code: r(o) = 2^(128-b). Let E <= e^epsilon. If for all z from -Z to Z - 1

    (a) g(z) <= E g(z+1) and g(z+1) <= E g(z),        (b) g(-Z) <= (E - 1) r(o) and g(Z) <= (E - 1) r(o) for all o,

then P_v <= E P_w for all o and |v - w| = 1 (docs/background/vectors.md#proof-retrieval-tables). The check needs (a),
(b), r > 0 and that the codes are 2^b in all: O(Z) steps on whole numbers, for any range.

Noise g(0), then g(z) = ceil(g(z-1) / E) on both sides, ends at the first Z with g(Z) <= (E - 1) 2^(128-b) / 16, and M_o
is the least number that leaves r(o) >= 2^(128-b) / 16; g(0) is about the largest for which the codes suffice. What is
left over goes to outcome 0. It is part of what a saved table means, and must not change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from flint import arb

from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.privacy.kernel import GRID, GUARD, exp_floor
from dpsieve.randomness.picks import uniform_integers
from dpsieve.randomness.source import Source
from dpsieve.randomness.tables import LARGEST, ExactTable
from dpsieve.sparse.embedding import Errors
from dpsieve.types import Floats, Ints, Words

_WHOLE = 1 << GRID
_LONGEST = LARGEST // 2 - 2  # so that the tables that are drawn from are not too large


@dataclass(frozen=True, eq=False)
class ContentCode:
    """The whole numbers g and M of the head of this module, and what is drawn from them.

    Attributes:
        epsilon: what one step of the value costs.
        low, high: the least and the largest outcome, with low <= 0 < high.
        bits: b, of a content.
        noise: g(-Z), ..., g(Z).
        codes: M_o of the outcomes from max(low, -Z) to min(high, Z); each other outcome has one code.
    """

    epsilon: float
    low: int
    high: int
    bits: int
    noise: tuple[int, ...]
    codes: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Z, the largest noise."""
        return len(self.noise) // 2

    @property
    def first(self) -> int:
        """The least outcome that noise reaches from 0."""
        return max(self.low, -self.reach)

    @property
    def last(self) -> int:
        """The largest outcome that noise reaches from 0."""
        return min(self.high, self.reach)

    @property
    def far(self) -> int:
        """How many outcomes noise does not reach from 0."""
        return self.high - self.low + 1 - len(self.codes)

    @property
    def unit(self) -> int:
        """The mass of one code: 2^(128-b)."""
        return 1 << (GRID - self.bits)

    @cached_property
    def rest(self) -> tuple[int, ...]:
        """The masses r(o) of the outcomes that noise reaches from 0; it is `unit` for all others."""
        middle = self.reach
        reached = list(self.noise[middle + self.first : middle + self.last + 1])
        reached[0] += sum(self.noise[: middle + self.first])
        reached[-1] += sum(self.noise[middle + self.last + 1 :])
        return tuple(count * self.unit - mass for count, mass in zip(self.codes, reached, strict=True))

    def check(self) -> None:
        """Raise NotCertified unless each step of the value keeps the promise and a value of 0 is uniform, exactly."""
        factor, one = exp_floor(self.epsilon), 1 << GUARD
        sizes = len(self.noise) % 2 == 1 and len(self.codes) == self.last - self.first + 1
        if not sizes or min(self.codes) < 1 or sum(self.codes) + self.far != 1 << self.bits:
            raise NotCertified("the codes of the outcomes are not all codes")
        least = min(*self.rest, self.unit) if self.far else min(self.rest)
        if min(*self.noise, least) <= 0:
            raise NotCertified("the masses of contents are not those of a distribution")
        for one_mass, next_mass in zip(self.noise, self.noise[1:], strict=False):
            if max(one_mass, next_mass) * one > factor * min(one_mass, next_mass):
                raise NotCertified("neighbouring masses of the noise differ by more than e^epsilon")
        if max(self.noise[0], self.noise[-1]) * one > (factor - one) * least:
            raise NotCertified("the last mass of the noise is too large")

    def draw(self, values: Ints, source: Source) -> Words:
        """Return an independent content for each value; values outside the range are clamped."""
        step = self._noise_table.draw(len(values), source)
        outcomes = np.clip(np.clip(values, self.low, self.high) + step, self.low, self.high)
        other = np.flatnonzero(step > self._widest)
        outcomes[other] = self._draw_rest(len(other), source)
        place = self._place(outcomes)
        near = np.minimum(place, len(self.codes))
        return self._edges[near] + (place - near).view(np.uint64) + self._below(near, source)

    def read(self, contents: Words) -> Floats:
        """Return the outcomes of contents."""
        near = np.searchsorted(self._edges[1:], contents, side="right")
        beyond = (contents - self._edges[near]).view(np.int64)
        return self._outcome(np.where(near < len(self.codes), near, near + beyond)).astype(np.float64)

    def errors(self, value: float, cells: int = 1 << 18) -> Errors:
        """Return how outcome - value is distributed, from the masses themselves.

        Where more outcomes than `cells` lie far from 0 and on one side of the value, neighbours among them are joined
        at their middle, which leaves the mean absolute error what it is.
        """
        v = int(np.clip(np.floor(value), self.low, self.high))
        noisy = np.clip(np.arange(-self.reach, self.reach + 1) + v, self.low, self.high)
        parts: list[tuple[Floats, Floats]] = [(noisy.astype(np.float64), _shares(self.noise))]
        parts.append((np.arange(self.first, self.last + 1, dtype=np.float64), _shares(self.rest)))
        for start, stop in ((self.low, self.first), (self.last + 1, self.high + 1)):
            cut = min(max(start, v), stop)
            parts += [self._joined(*ends, cells) for ends in ((start, cut), (cut, stop))]
        outcomes, masses = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Errors.of(outcomes - value, masses)

    def _joined(self, start: int, stop: int, cells: int) -> tuple[Floats, Floats]:
        count = min(stop - start, cells)
        edges = start + (stop - start) * np.arange(count + 1) // max(count, 1)
        return (edges[:-1] + edges[1:] - 1) / 2, np.diff(edges) * 2.0**-self.bits

    @property
    def _widest(self) -> int:
        """The largest step that is not always clamped."""
        return min(self.reach, self.high - self.low)

    @cached_property
    def _noise_table(self) -> ExactTable:
        """Draw z with mass g(z), clamped to steps that matter; one more than the largest stands for r."""
        widest, middle = self._widest, self.reach
        sums = _sums(self.noise)

        def cdf(z: int) -> arb:
            if z < -widest or z > widest:
                return arb(int(z > 0))
            return arb(sums[middle + z] if z < widest else sums[-1]) / arb(_WHOLE)

        return ExactTable(cdf)

    @cached_property
    def _rest_table(self) -> ExactTable:
        """Draw the place of an outcome from r; the place after the last stands for all that are far."""
        sums = _sums((*self.rest, self.far * self.unit))
        return ExactTable(lambda k: arb(0) if k < 0 else arb(sums[min(k, len(sums) - 1)]) / arb(sums[-1]))

    def _draw_rest(self, count: int, source: Source) -> Ints:
        place = self._rest_table.draw(count, source)
        far = np.flatnonzero(place == len(self.codes))
        place[far] += uniform_integers(len(far), max(self.far, 1), source)
        return self._outcome(place)

    def _place(self, outcomes: Ints) -> Ints:
        """Number the outcomes: those that noise reaches from 0 upwards, then those above, then those below."""
        return np.where(outcomes >= self.first, outcomes - self.first, self.high - outcomes)

    def _outcome(self, places: Ints) -> Ints:
        upwards = places + self.first
        return np.where(upwards <= self.high, upwards, self.high - places)

    @cached_property
    def _edges(self) -> Words:
        """The first code of each outcome that noise reaches from 0, and the first one after them."""
        return np.array([0, *_sums(self.codes)], np.uint64)

    def _below(self, near: Ints, source: Source) -> Words:
        """Return a uniform number below M of each place, by rejection of bits."""
        counts = np.array([*self.codes, 1], np.uint64)
        spare = np.array([64 - max(1, (count - 1).bit_length()) for count in (*self.codes, 1)], np.uint64)
        numbers, open_ = np.zeros(len(near), np.uint64), np.flatnonzero(counts[near] > 1)
        while len(open_):
            numbers[open_] = source.words(len(open_)) >> spare[near[open_]]
            open_ = open_[numbers[open_] >= counts[near[open_]]]
        return numbers


@lru_cache(maxsize=16)
def content_code(epsilon: float, low: int, high: int, bits: int) -> ContentCode:
    """Return the code for outcomes from low to high; refuse bits that are too few for them."""
    factor, one, unit = exp_floor(epsilon), 1 << GUARD, 1 << (GRID - bits)
    least, top = unit >> 4, _WHOLE * (factor - one) // (factor + one)
    while top > 0:
        half = [top]  # g(0), g(1), ...
        while half[-1] * one > (factor - one) * least:
            if len(half) > _LONGEST:
                raise InvalidValue(f"epsilon={epsilon:g} is too small for contents of {bits} bits. Pass fewer bits.")
            half.append(-(-half[-1] * one // factor))
        noise = (*half[:0:-1], *half)
        first, last = max(low, 1 - len(half)), min(high, len(half) - 1)
        reached = [half[abs(o)] for o in range(first, last + 1)]
        reached[0] += sum(half[-first + 1 :])
        reached[-1] += sum(half[last + 1 :])
        codes = [-(-(mass + least) // unit) for mass in reached]
        missing = sum(codes) + (high - low + 1 - len(codes)) - (1 << bits)
        if missing <= 0:
            codes[-first] -= missing
            return ContentCode(epsilon, low, high, bits, noise, tuple(codes))
        # The mass of all noise is to shrink by what is missing; the part of g(0) in it is the same.
        top -= -(-top * missing * unit // sum(noise))
    raise InvalidValue(
        f"bits={bits} is too few for outcomes from {low} to {high}. Pass more bits or a lower max_value."
    )


def _sums(masses: Sequence[int]) -> list[int]:
    total, sums = 0, []
    for mass in masses:
        total += mass
        sums.append(total)
    return sums


def _shares(masses: Sequence[int]) -> Floats:
    return np.array([mass / _WHOLE for mass in masses])
