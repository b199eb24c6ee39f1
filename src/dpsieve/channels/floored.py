"""A hard floor: a key that fewer than `min_units` units hold is never reported, in any draw.

A mechanism sees max(0, n - shift) in place of each count n, where shift = (min_units - 1) * max_rows is the largest
count that fewer units can make, and what it reports is read as n again. So row n is row n - shift of the mechanism,
moved up by shift, and rows 0 to shift are 'nothing'. The guarantee is that of the mechanism. Proofs:
docs/background/rows.md#a-hard-floor.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Annotated, Any

import numpy as np

from dpsieve.accounting.spends import Spend
from dpsieve.channels.channel import Channel, ReportedCounts
from dpsieve.channels.law import LARGEST_FREQUENCY, TokenLaw
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, certify
from dpsieve.privacy.guarantee import Contribution, Guarantee
from dpsieve.privacy.kernel import Block
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.validate import is_a, is_whole

LARGEST_FLOOR = 10**6
HINT = "Pass the least number of units of a reported key, such as min_units=10."
_NOTHING = Block(np.array([1, 2]), np.zeros((1, 1), np.uint64), np.zeros((1, 1), np.uint64))


class FlooredLaw(TokenLaw):
    """The rows of a law, moved up by `shift`, and its tokens with them; rows up to `shift` are 'nothing'."""

    def __init__(self, law: TokenLaw, shift: int) -> None:
        self.law, self.shift = law, shift
        self.resolution, self.spread = law.resolution, law.spread
        self.last = None if law.last is None else law.last + shift

    @property
    def _tokens(self) -> int:
        return self.shift * self.resolution

    def reported(self, frequencies: Ints) -> Floats:
        return np.where(frequencies > self.shift, self.law.reported(self._moved(frequencies)), 0.0)

    def withheld(self, frequencies: Ints) -> Floats:
        return np.where(frequencies > self.shift, self.law.withheld(self._moved(frequencies)), 1.0)

    def cell_edges(self, low: int, high: int) -> Ints:
        """Return token edges between which every row is even; see `TokenLaw.cell_edges`. Below the floor is nothing."""
        if high <= self.shift:
            return np.array([low, high]) * self.resolution
        above = self.law.cell_edges(max(low - self.shift, 0), high - self.shift) + self._tokens
        return above if low >= self.shift else np.append(low * self.resolution, above)

    def cell_probabilities(self, frequencies: Ints, edges: Ints) -> Floats:
        above = np.flatnonzero(edges >= self._tokens)
        mass = np.zeros((len(frequencies), len(edges) - 1))
        reported = np.flatnonzero(frequencies > self.shift)
        if len(reported) and len(above) > 1:
            inner = self.law.cell_probabilities(frequencies[reported] - self.shift, edges[above] - self._tokens)
            mass[np.ix_(reported, np.arange(above[0], len(edges) - 1))] = inner
        return mass

    def likeliest(self, tokens: Ints) -> tuple[Ints, Floats]:
        frequencies, probability = self.law.likeliest(np.maximum(tokens - self._tokens, 1))
        return frequencies + self.shift, np.where(tokens > self._tokens, probability, 0.0)

    def interval(self, tokens: Ints, level: float) -> tuple[Ints, Ints]:
        low, high = self.law.interval(np.maximum(tokens - self._tokens, 1), level)
        return low + self.shift, high + self.shift

    def draw(self, frequencies: Ints, source: Source, *, already_sampled: bool = False) -> Ints:
        """Return a token for each frequency, 0 for 'nothing'; up to `shift` it is always 0."""
        tokens = np.zeros(len(frequencies), np.int64)
        above = np.flatnonzero(frequencies > self.shift)
        drawn = self.law.draw(frequencies[above] - self.shift, source, already_sampled=already_sampled)
        tokens[above] = np.where(drawn > 0, drawn + self._tokens, 0)
        return tokens

    def _moved(self, frequencies: Ints) -> Ints:
        return np.maximum(frequencies - self.shift, 1)


def floored(mechanism: ReportedCounts, min_units: int) -> ReportedCounts:
    """Return a mechanism that reports as this one does, but no key of fewer than `min_units` units.

    The guarantee is that of the mechanism, for the same neighbours.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> channel = floored(optimal(1.0, 1e-8), 10)
    >>> channel.reporting_probability([9, 10, 28]).tolist() == [0.0, *optimal(1.0, 1e-8).reporting_probability([1, 19])]
    True
    """
    if min_units == 1:
        return mechanism
    return Floored(mechanism.guarantee.epsilon, mechanism.guarantee.delta, mechanism, min_units, unit=mechanism.unit)


@register("floored")
@dataclass(frozen=True, repr=False)
class Floored(ReportedCounts):
    """See `floored`.

    Attributes:
        mechanism: reports keys and counts, without a floor and without a scheme.
        min_units: the least number of units of a reported key.
    """

    mechanism: Annotated[ReportedCounts, is_a(ReportedCounts, "Pass a channel, or another mechanism that reports.")]
    min_units: Annotated[int, is_whole(2, LARGEST_FLOOR, HINT)]
    _: KW_ONLY

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.mechanism, Floored) or self.mechanism.scheme is not None:
            raise InvalidValue("mechanism has a floor or a scheme. Pass one without.", argument="mechanism")
        if self.mechanism.guarantee != Guarantee(self.epsilon, self.delta_, unit=self.unit):
            raise InvalidValue("epsilon, delta and unit are not those of the mechanism. Use `floored`.")
        if self.shift > LARGEST_FREQUENCY // 2:
            raise InvalidValue(f"min_units={self.min_units} is more than any key has. {HINT}", argument="min_units")

    @property
    def shift(self) -> int:
        """The largest count that fewer units can make."""
        return (self.min_units - 1) * self.max_rows

    @property
    def max_keys(self) -> int:
        """The number of keys per unit."""
        return self.mechanism.contribution.keys

    @property
    def max_rows(self) -> int:
        """The number of rows of a unit that count in one key."""
        return self.mechanism.contribution.rows

    @property
    def contribution(self) -> Contribution:
        return self.mechanism.contribution

    @cached_property
    def rows(self) -> FlooredLaw:
        return FlooredLaw(self.mechanism.rows, self.shift)

    @property
    def each_key(self) -> Guarantee:
        return self.mechanism.each_key

    @property
    def table_rows(self) -> int | None:
        return self.mechanism.table_rows

    @property
    def least_count(self) -> int:
        return self.shift + 1

    def __repr__(self) -> str:
        return (
            f"<{self.mechanism.name.replace('_', ' ')} of keys of at least {self.min_units:,} units, {self.guarantee}>"
        )

    def spends(self) -> tuple[Spend, ...]:
        return self.mechanism.spends()

    @cached_property
    def _certificate(self) -> Certificate:
        """The certificate of the moved table: tokens count from the floor, and one row stands for all up to it."""
        floor = f"counts up to {self.shift:,} report nothing, and higher ones as without a floor"
        made = self.mechanism.certify()
        if isinstance(self.mechanism, Channel):
            chains = self.mechanism.rows.chains()
            verdicts = [
                certify(chain((_NOTHING,), each.blocks), self.guarantee, shift=each.shift, floor=each.floor)
                for each in chains
            ]
            made = max(verdicts, key=lambda certificate: certificate.worst)
        parts: Any = tuple(replace(part, covers=f"{part.covers}; {floor}") for part in made.parts)
        return Certificate(self.guarantee, parts)
