"""Mechanisms: a guarantee, what it spends, a certificate, and a saved form; their outcomes, and their composition."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, TypeVar, cast

from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.composition import Composition, repeated_delta
from dpsieve.accounting.products import steepest
from dpsieve.accounting.spends import Approximate, Spend
from dpsieve.codec import decode, encode, register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, lower, upper
from dpsieve.privacy.certificate import Certificate, Method, Part, whole_unit
from dpsieve.privacy.guarantee import Contribution, Guarantee
from dpsieve.types import Floats, Ints
from dpsieve.validate import Checked, Delta, Epsilon, are, is_a, is_whole

Drawn = Mapping[str, int | float]
"""Public numbers that were drawn beside the tokens, by name."""
_Number = TypeVar("_Number", int, float)
_PROMISED = ("epsilon", "delta", "delta_", "neighbours", "unit")  # `delta_`, where `delta` is a method
_MOST_USES = 16
_USES = "Pass mechanisms, each with how often it is used: (Use(channel, 3),)."


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a draw produced: a token for each key, an int64, and public numbers beside them, such as a noisy total.

    `sums` has a row of noisy centred sums, int64, for each of the mechanism's totals.
    """

    tokens: Ints
    drawn: Drawn = field(default_factory=dict)
    sums: Ints | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """Estimates of the true frequencies behind tokens; see `dpsieve.Release`."""

    count: Ints
    low: Ints
    high: Ints
    weight: Floats


class Reader(ABC):
    """Turns tokens into counts and intervals: a mechanism, or a mechanism with the numbers it has drawn."""

    @abstractmethod
    def read(self, tokens: ArrayLike) -> Reading:
        """Return the likeliest frequency behind each token, its 95 % interval, and its weight in a sum."""

    @abstractmethod
    def terms(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return what each token adds to an estimate of the sum of g(true frequency) over all keys."""

    @abstractmethod
    def errors(self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None) -> tuple[float, float]:
        """Return the bias and the variance of the sum of weights times `terms`, estimated from the tokens."""

    def sum_interval(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
    ) -> tuple[float, float] | None:
        """Return an interval that covers the sum of weights times g(true frequency) of these keys at this level.

        None where there is only the normal approximation, from `errors`.
        """
        return None


class Mechanism(Checked, ABC):
    """A public recipe that turns private input into something publishable. It holds public numbers only.

    What is drawn is an `Outcome`, never a field; `reader` turns it into counts.

    A mechanism is a frozen dataclass whose fields are those numbers, checked by their annotations (`validate.Checked`)
    and registered under a name (`dpsieve.codec`).

    Attributes:
        name: the name under which it is registered.
        selects_keys: whether it publishes keys and nothing else.
        adds_rest: whether it publishes a row about the keys that the mechanism before it withheld.
        reports_coverage: whether the budget includes the coverage estimate.
    """

    name: ClassVar[str]
    selects_keys: ClassVar[bool] = False
    adds_rest: ClassVar[bool] = False
    reports_coverage: bool = False

    @property
    def uses(self) -> "tuple[Use, ...]":
        """The mechanisms of a sequence and how often each is used; otherwise the mechanism itself, once."""
        return (Use(self),)

    @property
    def last(self) -> "Mechanism":
        """The mechanism whose output is published: itself, or the last of a sequence."""
        return self

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit: by the fields epsilon, delta, neighbours and unit that there are."""
        stated = {name.removesuffix("_"): value for name, value in vars(self).items() if name in _PROMISED}
        return Guarantee(**stated)

    @abstractmethod
    def certify(self) -> Certificate:
        """Return the certificate of what is drawn; raise NotCertified if it breaks the promise."""

    @property
    def table_rows(self) -> int | None:
        """How many rows of a table the kernel will check, where that is known before they are made."""
        return None

    @property
    def steepness(self) -> float:
        """The A for which delta is at most e^(A t) times as large at epsilon - t, for t >= 0; infinity if unknown."""
        return math.inf

    def raises_delta(self, steepness: float) -> float:
        """Return by which factor this mechanism raises the delta of any that follow it and are not steeper.

        See `accounting.products.raised_by_range`. Infinity stands for mechanisms whose losses have no bounded range.
        """
        return math.inf

    @property
    def contribution(self) -> Contribution:
        """What one unit may add to what is counted."""
        return Contribution(getattr(self, "max_keys", 1), getattr(self, "max_rows", 1))

    def contribution_given(self, drawn: Drawn) -> Contribution:
        """Return what one unit adds at most, given what was drawn."""
        return self.contribution

    def reader(self, drawn: Drawn) -> Any:
        """Return what reads an outcome with these drawn numbers; raise unless they are of this mechanism.

        That is the mechanism itself, where nothing is drawn beside the tokens.
        """
        if drawn:
            raise InvalidValue("drawn must be empty: only tokens are drawn here. Leave it out.", argument="drawn")
        return self

    def spends(self) -> tuple[Spend, ...]:
        """Return what one use costs, as privacy curves that compose: noise of known kinds, or (epsilon, delta).

        Many uses cost less by such curves than by the guarantee; a single one may cost a little more, where the exact
        analysis of the mechanism is better than the composition of its parts. So a ledger looks at both.
        """
        return (Approximate(self.guarantee.epsilon, self.guarantee.delta),)

    def to_json(self) -> dict[str, Any]:
        """Return the name and the fields as plain JSON values; `from_json` makes the mechanism again."""
        return cast(dict[str, Any], encode(self))


class Counting(Mechanism):
    """A mechanism that draws a token for each key it reports; its `reader` is a `Reader`.

    Tokens are integers, in units of 1/`resolution` of a frequency.
    """

    @property
    def resolution(self) -> int:
        """The tokens per unit of frequency."""
        return 1

    @property
    def reports_all(self) -> bool:
        """Whether every key is answered, so that a token of 0 is a value; else 0 means 'nothing'."""
        return False

    @property
    def withholds(self) -> bool:
        """Whether keys that occur may be left out."""
        return not self.reports_all

    @property
    def most_keys(self) -> int | None:
        """How many keys it can report at most; None where there is no bound."""
        return None

    @property
    def least_count(self) -> int:
        """The least count of a key that it reports, where it may withhold keys."""
        return 1

    @abstractmethod
    def possible(self, tokens: Ints) -> bool:
        """Return whether all of these tokens can be drawn, judged by public numbers."""


def totals_of(mechanism: Mechanism) -> tuple[Any, ...]:
    """Return the totals that a mechanism publishes beside a count per key; see `dpsieve.noise.totals`."""
    return getattr(mechanism.last, "totals", ())


def from_json(data: Any) -> Mechanism:
    """Make the mechanism again whose `to_json` is given; anything else is refused."""
    return decode(data, Mechanism)  # type: ignore[type-abstract]


def check_tokens(tokens: ArrayLike) -> Ints:
    """Return tokens as a flat array of integers."""
    return validate.integers("tokens", tokens, hint="Pass tokens as `draw` returns them.")


def only_number(drawn: Drawn, name: str, low: _Number, high: _Number) -> _Number:
    """Return the one drawn number; raise unless it has this name, the type of its bounds, and is between them.

    >>> only_number({"lost": 12}, "lost", -100, 100)
    12
    >>> only_number({"lost": 12.0}, "lost", -100, 100)
    Traceback (most recent call last):
    dpsieve.errors.InvalidValue: drawn must be lost, a number from -100 to 100, and nothing else. Pass what was drawn.
    """
    number = drawn[name] if isinstance(drawn, Mapping) and set(drawn) == {name} else None
    if type(number) is not type(low) or not low <= number <= high:
        reach = f"a number from {low:g} to {high:g}"
        raise InvalidValue(f"drawn must be {name}, {reach}, and nothing else. Pass what was drawn.", argument="drawn")
    return number


@register("use")
@dataclass(frozen=True)
class Use(Checked):
    """A mechanism, and how often one unit goes through it: once per key of the unit."""

    mechanism: Annotated[Mechanism, is_a(Mechanism, "Pass a mechanism.")]
    times: Annotated[int, is_whole(1, 10**6, "Pass how often a unit uses it, such as 1.")] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.mechanism, Composed):
            raise InvalidType("mechanism is itself a composition. Compose its parts.", argument="mechanism")


@register("composed")
@dataclass(frozen=True)
class Composed(Counting):
    """Mechanisms used one after the other; the output of the last one is published.

    All must be for the same neighbours and unit. The promise is checked: k uses that are each (e, d)-private compose
    optimally (Kairouz, Oh and Viswanath 2015), pure epsilons of other mechanisms are added to that; where several
    mechanisms have a delta, the composition of what they spend decides, or of their guarantees, where that is less.
    Where a choice of small range comes before a mechanism of known steepness for all of epsilon, it raises delta by a
    factor instead (`accounting.products.raised_by_range`).

    >>> from dpsieve.channels.unknown_keys import simple
    >>> three = Composed(1.0, 1e-6, (Use(simple(0.333, 3.3e-7), 3),))
    >>> print(three.guarantee)
    (1, 1e-06)-differential privacy when one row is added or removed.
    >>> [part.scope for part in three.certify().parts]
    ['one key', 'one unit']
    """

    epsilon: Epsilon
    delta: Delta
    uses: Annotated[tuple[Use, ...], are(is_a(Use, _USES), 1, _MOST_USES, _USES)] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({(use.mechanism.guarantee.neighbours, use.mechanism.guarantee.unit) for use in self.uses}) > 1:
            fix = "Compose those that agree."
            raise InvalidValue(f"uses holds mechanisms for different neighbours or units. {fix}", argument="uses")
        self._together  # noqa: B018 - raises NotCertified

    @cached_property
    def guarantee(self) -> Guarantee:
        return replace(self.uses[-1].mechanism.guarantee, epsilon=self.epsilon, delta=self.delta)

    @cached_property
    def last(self) -> Counting:
        """The mechanism whose output is published; where that is not counts, it cannot read tokens."""
        return cast(Counting, self._last_use.mechanism)

    @cached_property
    def _last_use(self) -> Use:
        return next((use for use in reversed(self.uses) if not use.mechanism.adds_rest), self.uses[-1])

    def certify(self) -> Certificate:
        return self._certificate

    @cached_property
    def _certificate(self) -> Certificate:
        every = [(use.times, part) for use in self.uses for part in use.mechanism.certify().parts]
        each = [part if times == 1 else replace(part, scope="one key") for times, part in every]
        together = self._together
        if any(part.method == "formula" for part in each):  # the weakest method of any part applies to the whole
            together = replace(together, method="formula")
        return Certificate(self.guarantee, (*each, together))

    @cached_property
    def _together(self) -> Part:
        """Return what all uses compose to, or raise NotCertified."""
        raised = self._raised_cost()
        if raised <= self.delta:
            *choices, last = (use.mechanism.name for use in self.uses)
            covers = f"{', then '.join(choices)}, which raises delta of what follows by a factor, then {last}"
            return whole_unit(self.guarantee, raised, "formula", covers)
        names = ", then ".join(
            use.mechanism.name + (f" ({use.times:,} times)" if use.times > 1 else "") for use in self.uses
        )
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
        approximate = [use for use in self.uses if use.mechanism.guarantee.delta > 0]
        if len(approximate) > 1:
            promised = [(use.mechanism.guarantee, use.times) for use in self.uses]
            guarantees = [Approximate(promise.epsilon, promise.delta, times) for promise, times in promised]
            return min(Composition(spends).delta(self.epsilon) for spends in (self.spends(), guarantees))
        spent = upper(lambda: sum((ball(use.mechanism.guarantee.epsilon) * use.times for use in pure), ball(0)))
        if spent > self.epsilon:
            return 1.0
        if not approximate:
            return 0.0
        promise, left = approximate[0].mechanism.guarantee, remaining(self.epsilon, spent)
        return repeated_delta(approximate[0].times, left, each_epsilon=promise.epsilon, each_delta=promise.delta)

    @property
    def contribution(self) -> Contribution:
        """What a unit may add to what the last mechanism counts: a key for each of its uses, or more at once."""
        return self._all_uses(self.last.contribution)

    def contribution_given(self, drawn: Drawn) -> Contribution:
        return self._all_uses(self.last.contribution_given(self._counting(drawn)))

    def _all_uses(self, one: Contribution) -> Contribution:
        times = self._last_use.times
        return one if times == 1 else replace(one, keys=one.keys * times)

    def spends(self) -> tuple[Spend, ...]:
        pairs = [(spend, use.times) for use in self.uses for spend in use.mechanism.spends()]
        return tuple(replace(spend, count=spend.count * times) for spend, times in pairs)

    @property
    def table_rows(self) -> int | None:
        return sum(use.mechanism.table_rows or 0 for use in self.uses) or None

    @property
    def rest(self) -> Mechanism | None:
        """What publishes a row about the keys that are withheld; None where nothing does."""
        return next((use.mechanism for use in self.uses if use.mechanism.adds_rest), None)

    def _counting(self, drawn: Drawn) -> Drawn:
        """Return the drawn numbers of the mechanism that counts keys; raise unless the others are of the rest."""
        if self.rest is None:
            return drawn
        return cast(Drawn, self.rest.reader(drawn).other)

    @property
    def reports_all(self) -> bool:
        return not self.last.selects_keys and self.last.reports_all

    @property
    def reports_coverage(self) -> bool:  # type: ignore[override]
        return any(use.mechanism.reports_coverage for use in self.uses)

    @property
    def withholds(self) -> bool:
        return self.last.selects_keys or self.last.withholds

    @property
    def most_keys(self) -> int | None:
        return self.last.most_keys

    @property
    def least_count(self) -> int:
        return getattr(self.last, "least_count", 1)  # a selector has no counts

    def reader(self, drawn: Drawn) -> Any:
        return self.last.reader(self._counting(drawn))

    def possible(self, tokens: Ints) -> bool:
        return self.last.possible(tokens)


@lru_cache(maxsize=64)
def remaining(epsilon: float, spent: float) -> float:
    """Return epsilon - spent, rounded down, so that both parts together are never more than epsilon."""
    return lower(lambda: ball(epsilon) - ball(spent))
