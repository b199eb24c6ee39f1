"""Keys by the optimal channel, where every unit counts in one key: its first, or the first below a cutoff."""

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.channels.floored import floored
from dpsieve.channels.unknown_keys import Optimal
from dpsieve.codec import register
from dpsieve.discovery.selector import Selector, WeightSelector
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, whole_unit
from dpsieve.privacy.guarantee import Weight
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Ints

_ENOUGH = 0.999
_BITS = 1


def one_key(epsilon: float, delta: float, max_keys: int = 1, *, unit: str = "one row") -> "OneKey":
    """Return the optimal channel on one key of each unit, whatever `max_keys` would allow.

    >>> one_key(1.0, 1e-5)
    <one_key selector of at most 1 keys per unit, (1, 1e-05)-differential privacy when one row is added or removed.>
    """
    return OneKey(epsilon, delta, 1, unit=unit)


def greedy(epsilon: float, delta: float, max_keys: int, *, unit: str = "one row") -> "Greedy":
    """Return the optimal channel on one key of each unit, where later units skip keys that are already full.

    >>> greedy(1.0, 1e-5, 100).cutoff
    18
    """
    return Greedy(epsilon, delta, max_keys, unit=unit)


@register("one_key")
@dataclass(frozen=True, repr=False)
class OneKey(WeightSelector):
    """Every unit counts in one key; the optimal channel decides which keys are published.

    Guarantee: (epsilon, delta) for add/remove of one unit. Proof: a unit changes one count by one, and
    `channels.optimal(epsilon, delta)` promises exactly that for one key; the kernel checks its rows.
    """

    supports_floor = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_keys != 1:
            raise InvalidValue(f"max_keys={self.max_keys} is not 1, and a unit counts in one key. Pass max_keys=1.")

    @cached_property
    def channel(self) -> ReportedCounts:
        """The channel of one key, above the floor."""
        return floored(Optimal(self.epsilon, self.delta, unit=self.unit), self.min_units)

    @property
    def weight(self) -> Weight:
        """The weight that a unit adds to its key: 2."""
        return Weight(_BITS)

    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys the channel reports."""
        return _draw_reports(self.channel, weights >> _BITS, source)

    def certify(self) -> Certificate:
        """Return the certificate of the channel, which the kernel checks."""
        return _certificate(self, self.channel, "a unit counts in one key")


@register("greedy")
@dataclass(frozen=True, repr=False)
class Greedy(Selector):
    """Units, in their order, count in the first of their keys that is below a cutoff; the optimal channel decides.

    The cutoff is the lowest frequency that the channel reports with probability 0.999: more units are of more use in
    other keys. A unit all of whose keys are full counts nowhere.

    Guarantee: (epsilon, delta) for add/remove of one unit. Proof: the order of units, and of the keys of each, depends
    on no other unit. Run both on neighbours, one of which has one more unit. By induction over units the counts of the
    larger are those of the smaller, or one more in one key k:

    - Before the additional unit they are equal; that unit adds one to one key, or to none.
    - If they are equal, the next unit picks the same key.
    - If they differ in k, keys other than k are below the cutoff in both or in neither. A unit that picks another key
      than k in the smaller run picks it in the larger one too, as what comes before it is full in both. If it picks k
      in the smaller, then in the larger it picks k too, and they still differ in k alone; or k has just become full
      there: then k is now full in both, and the unit adds one to a later key, or to none, in the larger run alone.

    So one unit changes one count by one at most, as with one key per unit. With more than one pick this fails.
    """

    supports_floor = True

    @cached_property
    def channel(self) -> ReportedCounts:
        """The channel of one key, above the floor."""
        return floored(Optimal(self.epsilon, self.delta, unit=self.unit), self.min_units)

    @cached_property
    def cutoff(self) -> int:
        """The lowest frequency reported with probability 0.999."""
        return cast(int, frequency_at(self.channel, _ENOUGH))  # the channel reports every key from some frequency on

    def counts(self, pairs: Pairs) -> Ints:
        """Return the number of units that count in each key; not private."""
        from dpsieve.discovery.loops import fill_first

        counts = np.zeros(pairs.keys.num_rows, np.int64)
        fill_first(pairs.starts, pairs.key_numbers, self.cutoff, counts)
        return counts

    def select(self, pairs: Pairs, source: Source) -> Bools:
        """Return which keys the channel reports."""
        return _draw_reports(self.channel, self.counts(pairs), source)

    def certify(self) -> Certificate:
        """Return the certificate of the channel, which the kernel checks."""
        return _certificate(self, self.channel, "a unit changes one count by one")


def _draw_reports(channel: ReportedCounts, counts: Ints, source: Source) -> Bools:
    selected = np.zeros(len(counts), np.bool_)
    present = np.flatnonzero(counts)
    selected[present] = channel.draw(counts[present], source=source).tokens > 0
    return selected


def _certificate(selector: Selector, channel: ReportedCounts, why: str) -> Certificate:
    each = channel.certify()
    return each.within(whole_unit(selector.guarantee, each.worst, "kernel", why), selector.guarantee)
