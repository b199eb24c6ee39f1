"""Mechanisms: a guarantee, what it spends, a certificate, and a saved form; and their outcomes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

from numpy.typing import ArrayLike

from dpsieve.accounting.spends import Approximate, Spend
from dpsieve.codec import decode, encode
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.types import Floats, Ints

Drawn = Mapping[str, int | float]
"""Public numbers that were drawn beside the tokens, by name."""
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a draw produced: a token for each key, and public numbers beside them, such as a noisy total."""

    tokens: Floats
    drawn: Drawn = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reading:
    """What tokens tell about the true frequencies behind them; see `dpsieve.Release`."""

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
        """Return the bias and the variance of the sum of weights times `terms`, as far as the tokens tell them."""

    def sum_interval(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
    ) -> tuple[float, float] | None:
        """Return an interval that covers the sum of weights times g(true frequency) of these keys at this level.

        None where there is only the normal approximation, from `errors`.
        """
        return None


class Mechanism(ABC):
    """A public recipe that turns private input into something publishable. It holds public numbers only.

    What is drawn is an `Outcome`, never a field; `reader` turns it into counts.

    A mechanism is a frozen dataclass whose fields are those numbers, registered under a name (`dpsieve.codec`).

    Attributes:
        name: the name under which it is registered.
        selects_keys: whether it publishes keys and nothing else.
        reports_coverage: whether it pays for telling what bounding kept.
    """

    name: ClassVar[str]
    selects_keys: ClassVar[bool] = False
    reports_coverage: bool = False

    @property
    def last(self) -> "Mechanism":
        """The mechanism whose output is published: itself, or the last of a sequence."""
        return self

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit."""

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

        See `privacy.stages.raised_by_range`. Infinity stands for mechanisms whose losses have no bounded range.
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
            raise InvalidValue("drawn must be empty: this mechanism draws nothing beside its tokens. Leave it out.")
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
    """A mechanism that gives out a token for each key it reports; its `reader` is a `Reader`."""

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

    @abstractmethod
    def possible(self, tokens: Floats) -> bool:
        """Return whether finite tokens can all be given out, as far as public numbers tell."""


def from_json(data: Any) -> Mechanism:
    """Make the mechanism again whose `to_json` is given; anything else is refused."""
    return decode(data, Mechanism)  # type: ignore[type-abstract]


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
        raise InvalidValue(f"drawn must be {name}, {reach}, and nothing else. Pass what was drawn.")
    return number
