"""Selectors: mechanisms that decide which keys are published, and publish nothing else about them."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from dpsieve.channels.budget import check_budget, check_max_keys
from dpsieve.engines.true_data import Pairs
from dpsieve.privacy.contribution import Weight
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints


@dataclass(frozen=True, repr=False)
class Selector(Mechanism):
    """A mechanism that selects keys: a frozen dataclass that adds its own public numbers to these fields.

    Neighbours are add/remove of one unit with all its keys, of which it keeps at most `max_keys`; the guarantee is for
    the whole unit. A key that no unit holds is never selected.

    Attributes:
        epsilon, delta: what is promised to one unit.
        max_keys: how many keys a unit keeps.
        unit: who is protected, in words.
    """

    selects_keys = True
    reports_all = False

    epsilon: float
    delta: float
    max_keys: int
    _: KW_ONLY
    unit: str = "one row"

    def __post_init__(self) -> None:
        epsilon, delta = check_budget(self.epsilon, self.delta)
        self._set(epsilon=epsilon, delta=delta, max_keys=check_max_keys(self.max_keys), unit=self.guarantee.unit)

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit."""
        return Guarantee(self.epsilon, self.delta, unit=self.unit)

    def __repr__(self) -> str:
        return f"<{self.name} selector of at most {self.max_keys:,} keys a unit, {self.guarantee}>"

    def check(self, held: Pairs) -> None:
        """Refuse data that this selector cannot take, before it is paid for; most take any."""

    @abstractmethod
    def select(self, held: Pairs, source: Source) -> Bools:
        """Return which keys are published. No unit of `held` has more than `max_keys` keys."""


@dataclass(frozen=True, repr=False)
class WeightSelector(Selector):
    """A selector that looks at the sum of weights of each key alone, which an engine can compute."""

    @property
    @abstractmethod
    def weight(self) -> Weight:
        """What a unit adds to each of its keys."""

    @abstractmethod
    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys are published, given the sum of weights of each; a sum of zero is never published."""

    def select(self, held: Pairs, source: Source) -> Bools:
        """Return which keys are published."""
        return self.select_by_weights(held.weights(self.weight), source)

    def draw(self, weights: Ints, *, source: Source) -> Floats:
        """Return 1 for each key that is published and 0 for others, as tokens of a mechanism that has no others."""
        return self.select_by_weights(weights, source).astype(np.float64)
