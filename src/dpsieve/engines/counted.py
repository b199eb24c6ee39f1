"""True counts of keys, and the one way out of them: through a mechanism."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpsieve.channels.keys_per_unit import units_by_size
from dpsieve.discovery.incidence import Incidence
from dpsieve.discovery.selector import WeightSelector
from dpsieve.privacy.composed import Composed
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Counted:
    """True aggregates. They are secret: they go through a mechanism and nowhere else.

    Attributes:
        keys: one row for each key that occurs (or, with a public list of keys, for each of the list), in no particular
            order, with the key columns under their own names; no row is null in any column and no two rows are equal.
        frequencies: the count or the sum of weights of each of them; 0 only for keys of a public list.
    """

    keys: pa.Table
    frequencies: Ints

    def __repr__(self) -> str:
        return "<Counted: true frequencies, not to be published>"

    @property
    def summands(self) -> Ints:
        """Whole numbers with the sum of the frequencies: these themselves, or few where these are elsewhere."""
        return self.frequencies

    def drawn(self, mechanism: Mechanism, source: Source) -> tuple[pa.Table, Floats]:
        """Return the keys that a mechanism reports, in no particular order, with their tokens; see `drawn`."""
        mechanism.certify()
        return drawn(mechanism, self.keys, self.frequencies, source)


def drawn(mechanism: Mechanism, keys: pa.Table, numbers: Ints, source: Source) -> tuple[pa.Table, Floats]:
    """Send true numbers through a mechanism that treats each key alone; return the reported keys and their tokens.

    It is a channel, noise for known keys, a composition that ends with one of these, or a selector by weights, whose
    tokens are ones.
    """
    last: Any = mechanism.last if isinstance(mechanism, Composed) else mechanism
    if isinstance(last, WeightSelector):
        tokens = last.select_by_weights(numbers, source).astype(np.float64)
    else:
        tokens = last.draw(numbers, source=source)
        if last.reports_all:
            return keys, tokens
    reported = np.flatnonzero(tokens)
    return keys.take(pa.array(reported)), tokens[reported]


class CountedByBound(ABC):
    """The true counts under every bound on the keys of a unit up to 1,000, each key once. They are secret.

    Attributes:
        units: how many units hold 1, 2, ..., 1,000 keys; those with more are among the last.
    """

    units: Ints

    @abstractmethod
    def under(self, keys: int) -> Counted:
        """Return the counts where each unit keeps at most this number of its keys."""


class FromIncidence(CountedByBound):
    """Counts from which units hold which keys."""

    def __init__(self, held: Incidence) -> None:
        self._held, self.units = held, units_by_size(held.sizes)

    def under(self, keys: int) -> Counted:
        """Return the counts where each unit keeps at most this number of its keys."""
        kept = self._held.bounded(keys)
        counts = kept.counts()
        some = np.flatnonzero(counts)
        return Counted(kept.keys.take(pa.array(some)), counts[some])
