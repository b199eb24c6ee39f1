"""Several mechanisms on the same units, and one for several keys of a unit: composition is a mechanism too."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from dpsieve import validate
from dpsieve.accounting.composition import Composition
from dpsieve.accounting.products import steepest
from dpsieve.accounting.repeated import repeated_delta
from dpsieve.accounting.spends import Approximate, Spend
from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, lower, upper
from dpsieve.privacy.certificate import Certificate, Method, Part, whole_unit
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Counting, Drawn, Mechanism
from dpsieve.types import Floats

_MOST_USES = 16


@register("use")
@dataclass(frozen=True)
class Use:
    """A mechanism, and how often one unit goes through it: once per key of the unit."""

    mechanism: Mechanism
    times: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism) or isinstance(self.mechanism, Composed):
            raise InvalidType("mechanism must be a mechanism that is not a composition. Compose its parts.")
        hint = "Pass how often a unit uses it, such as 1."
        validate.store(self, times=validate.whole("times", self.times, low=1, high=10**6, hint=hint))


@register("composed")
@dataclass(frozen=True)
class Composed(Counting):
    """Mechanisms used one after the other; the last one gives out what is published.

    All must be for the same neighbours and unit. The promise is checked: k uses that are each (e, d)-private compose
    optimally (Kairouz, Oh and Viswanath 2015), pure epsilons of other mechanisms are added to that; where several
    mechanisms have a delta, the composition of what they spend decides, or of their guarantees, where that is less.
    Where a choice of small range comes before a mechanism of known steepness for all of epsilon, it raises delta by a
    factor instead (`privacy.stages.raised_by_range`).

    >>> from dpsieve.channels.optimal_channels import simple
    >>> three = Composed(1.0, 1e-6, (Use(simple(0.333, 3.3e-7), 3),))
    >>> print(three.guarantee)
    (1, 1e-06)-differential privacy when one row is added or removed.
    >>> [part.scope for part in three.certify().parts]
    ['one key', 'one unit']
    """

    epsilon: float
    delta: float
    uses: tuple[Use, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.uses, tuple) or not self.uses or not all(isinstance(use, Use) for use in self.uses):
            raise InvalidType("uses must hold mechanisms, each with how often it is used. Pass (Use(channel, 3),).")
        if len(self.uses) > _MOST_USES:
            raise InvalidValue(f"uses holds more than {_MOST_USES} mechanisms. Compose fewer.")
        if len({(use.mechanism.guarantee.neighbours, use.mechanism.guarantee.unit) for use in self.uses}) > 1:
            raise InvalidValue("uses holds mechanisms for different neighbours or units. Compose those that agree.")
        object.__setattr__(self, "epsilon", self.guarantee.epsilon)
        object.__setattr__(self, "delta", self.guarantee.delta)
        self._together()

    @cached_property
    def guarantee(self) -> Guarantee:
        """What all uses together promise to one unit."""
        return replace(self.uses[-1].mechanism.guarantee, epsilon=self.epsilon, delta=self.delta)

    @property
    def last(self) -> Counting:
        """The mechanism that gives out what is published; where that is no counts, it cannot read tokens."""
        return cast(Counting, self.uses[-1].mechanism)

    def certify(self) -> Certificate:
        """Return the parts of all mechanisms, and what they compose to."""
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        every = [(use.times, part) for use in self.uses for part in use.mechanism.certify().parts]
        each = [part if times == 1 else replace(part, scope="one key") for times, part in every]
        whole = self._together()
        if any(part.method == "formula" for part in each):  # a whole is as sure as its parts
            whole = replace(whole, method="formula")
        return Certificate(self.guarantee, (*each, whole))

    def _together(self) -> Part:
        """Return what all uses compose to, or raise NotCertified."""
        raised = self._raised_cost()
        if raised <= self.delta:
            *choices, last = (use.mechanism.name for use in self.uses)
            covers = f"{', then '.join(choices)}, which raises delta of what follows by a factor, then {last}"
            return whole_unit(self.guarantee, raised, "formula", covers)
        names = ", then ".join(f"{use.mechanism.name} ({use.times:,} times)" for use in self.uses)
        several = sum(use.mechanism.guarantee.delta > 0 for use in self.uses) > 1
        method: Method = "formula" if several else "balls"
        return whole_unit(self.guarantee, self._cost(), method, f"{names}, composed")

    def _raised_cost(self) -> float:
        """Return the delta of the last mechanism times the factors of those before it; 1 where that is not known.

        Steepness is that of every mechanism that could have been chosen: a function of epsilon and delta alone. Whoever
        chooses privately must give all candidates the same smaller delta, also those that are not gentle and pay with
        epsilon: this certificate sees the one that was chosen.
        """
        *choices, last = self.uses
        promise = last.mechanism.guarantee
        if not choices or last.times > 1 or promise.epsilon > self.epsilon or not 0 < promise.delta <= self.delta:
            return 1.0
        if last.mechanism.steepness > (most := steepest(self.epsilon, self.delta)):
            return 1.0
        factors = [use.mechanism.raises_delta(most) ** use.times for use in choices]
        return min(1.0, math.prod(factors) * promise.delta * (1 + 1e-12))

    def _cost(self) -> float:
        """Return the delta of all uses at epsilon, rounded up."""
        pure = [use for use in self.uses if use.mechanism.guarantee.delta == 0]
        rest = [use for use in self.uses if use.mechanism.guarantee.delta > 0]
        if len(rest) > 1:
            promised = [(use.mechanism.guarantee, use.times) for use in self.uses]
            whole = [Approximate(promise.epsilon, promise.delta, times) for promise, times in promised]
            return min(Composition(spends).delta(self.epsilon) for spends in (self.spends(), whole))
        spent = upper(lambda: sum((ball(use.mechanism.guarantee.epsilon) * use.times for use in pure), ball(0)))
        if spent > self.epsilon:
            return 1.0
        if not rest:
            return 0.0
        promise, left = rest[0].mechanism.guarantee, remaining(self.epsilon, spent)
        return repeated_delta(rest[0].times, left, each_epsilon=promise.epsilon, each_delta=promise.delta)

    @property
    def contribution(self) -> Contribution:
        """What a unit may add to what the last mechanism counts: a key for each of its uses, or more at once."""
        return self._all_uses(self.last.contribution)

    def contribution_given(self, drawn: Drawn) -> Contribution:
        """Return what a unit may add to what the last mechanism counts, given what it has drawn."""
        return self._all_uses(self.last.contribution_given(drawn))

    def _all_uses(self, one: Contribution) -> Contribution:
        times = self.uses[-1].times
        return one if times == 1 else replace(one, keys=one.keys * times)

    def spends(self) -> tuple[Spend, ...]:
        """Return what all uses spend."""
        pairs = [(spend, use.times) for use in self.uses for spend in use.mechanism.spends()]
        return tuple(replace(spend, count=spend.count * times) for spend, times in pairs)

    @property
    def table_rows(self) -> int | None:
        """The rows of all mechanisms together."""
        return sum(use.mechanism.table_rows or 0 for use in self.uses) or None

    @property
    def reports_all(self) -> bool:
        """Whether the last mechanism answers every key."""
        return not self.last.selects_keys and self.last.reports_all

    @property
    def reports_coverage(self) -> bool:  # type: ignore[override]
        """Whether one of the mechanisms pays for telling what bounding kept."""
        return any(use.mechanism.reports_coverage for use in self.uses)

    @property
    def withholds(self) -> bool:
        """Whether the last mechanism may leave keys out."""
        return self.last.selects_keys or self.last.withholds

    @property
    def most_keys(self) -> int | None:
        """How many keys the last mechanism can report."""
        return self.last.most_keys

    def reader(self, drawn: Drawn) -> Any:
        """Return what reads an outcome of the last mechanism."""
        return self.last.reader(drawn)

    def possible(self, tokens: Floats) -> bool:
        """Return whether the last mechanism can give out these tokens."""
        return self.last.possible(tokens)


def remaining(epsilon: float, spent: float) -> float:
    """Return epsilon - spent, rounded down, so that both parts together are never more than epsilon."""
    return lower(lambda: ball(epsilon) - ball(spent))
