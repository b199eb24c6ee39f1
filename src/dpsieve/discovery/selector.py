"""Selectors decide which keys are published, and nothing else about them; `discovery.choice` decides on a selector."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, cast, get_args

import numpy as np

from dpsieve import validate
from dpsieve.accounting.products import raised_by_range, steepest
from dpsieve.channels.floored import HINT, LARGEST_FLOOR
from dpsieve.codec import NOT_SAVED_BY_DEFAULT, register
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee, Weight
from dpsieve.privacy.mechanism import Mechanism, Outcome
from dpsieve.randomness.noise import laplace_scale
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Ints
from dpsieve.validate import SMALLEST_DELTA, SMALLEST_EPSILON, SelectorName, check_budget, check_max_keys

SHARE_FOR_SIZE = 0.01  # of epsilon, for the private median
_USUAL, _SPREAD = 5, 2.0  # of the prior of that median, log-normal
# Per name: the module and name of the maker, and whether it accepts `typical_keys` and `share`.
_MAKERS = {
    "greedy": ("discovery.greedy", "greedy", False),
    "one_key": ("discovery.greedy", "one_key", False),
    "policy_gaussian": ("papers.missing_mass.policies", "policy_gaussian", False),
    "policy_greedy": ("papers.missing_mass.policies", "policy_greedy", False),
    "renyi": ("discovery.renyi", "renyi_selection", True),
    "renyi_two_rounds": ("discovery.renyi", "two_rounds", True),
    "repeated_rounds": ("papers.missing_mass.repeated_rounds", "repeated_rounds", False),
    "weighted_gaussian": ("papers.missing_mass.weighted_gaussian", "weighted_gaussian", False),
}


@dataclass(frozen=True, repr=False)
class Selector(Mechanism):
    """A mechanism that selects keys: a frozen dataclass that adds its own public numbers to these fields.

    Neighbours are add/remove of one unit with all its keys, of which it keeps at most `max_keys`; the guarantee covers
    the whole unit. A key that no unit holds is never selected.

    Attributes:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys that a unit keeps.
        unit: the protected unit, as text.
        min_units: a key that fewer units hold is never selected; see `above_floor`.
        supports_floor: whether `min_units` may be above 1.
    """

    selects_keys = True
    reports_all = False
    supports_floor: ClassVar[bool] = False

    epsilon: float
    delta: float
    max_keys: int
    _: KW_ONLY
    unit: str = "one row"
    min_units: int = field(default=1, metadata=NOT_SAVED_BY_DEFAULT)

    def __post_init__(self) -> None:
        epsilon, delta = check_budget(self.epsilon, self.delta)
        floor = validate.whole("min_units", self.min_units, low=1, high=LARGEST_FLOOR, hint=HINT)
        if floor > 1 and not self.supports_floor:
            fix = "Use method='auto', or leave min_units out."
            raise InvalidValue(f"min_units does not work with method={self.name!r}. {fix}", argument="min_units")
        validate.store(
            self, epsilon=epsilon, delta=delta, max_keys=check_max_keys(self.max_keys), unit=self.guarantee.unit
        )

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of one privacy unit."""
        return Guarantee(self.epsilon, self.delta, unit=self.unit)

    def __repr__(self) -> str:
        return f"<{self.name} selector of at most {self.max_keys:,} keys per unit, {self.guarantee}>"

    def check(self, pairs: Pairs) -> None:
        """Raise before the budget is charged if the selector does not support this data; most support any."""

    def above_floor(self, sums: Ints, heaviest: int) -> Ints:
        """Return sums of weights less the largest sum of fewer than `min_units` units; zero where that is negative.

        One more unit with the weight w moves a result g, then, to g from max(0, g - w) or from nearer, as without a
        floor: the proof of privacy is that of the selector.
        """
        return sums if self.min_units == 1 else np.maximum(sums - (self.min_units - 1) * heaviest, 0)

    @abstractmethod
    def select(self, pairs: Pairs, source: Source) -> Bools:
        """Return which keys are published. No unit has more than `max_keys` keys."""


@dataclass(frozen=True, repr=False)
class WeightSelector(Selector):
    """A selector that needs only the sum of weights of each key, which an engine can compute."""

    @property
    @abstractmethod
    def weight(self) -> Weight:
        """The weight that a unit adds to each of its keys."""

    @abstractmethod
    def select_by_weights(self, weights: Ints, source: Source) -> Bools:
        """Return which keys are published, given the sum of weights of each; a sum of zero is never published."""

    def select(self, pairs: Pairs, source: Source) -> Bools:
        """Return which keys are published."""
        return self.select_by_weights(pairs.weights(self.weight), source)

    def draw(self, weights: Ints, *, source: Source) -> Outcome:
        """Draw the tokens of keys with these sums of weights: 1 for a published key, 0 for any other."""
        return Outcome(self.select_by_weights(weights, source).astype(np.int64))


@register("typical_size")
@dataclass(frozen=True)
class TypicalSize(Mechanism):
    """The median number of keys per unit, from 1 to `max_keys`, by the exponential mechanism.

    A size x has the score -max(number of units with fewer keys, number of units with more). One more unit lowers each
    score by 1 or leaves it, so all change in one direction and by at most 1. Picking x with probability proportional to
    e^(epsilon score) is therefore epsilon-private (McSherry and Talwar 2007; monotone scores need no factor 2), and its
    losses lie in a range of epsilon (Durfee and Rogers 2019). A public constant per size is added to its score, such
    that without data the size has a log-normal law of median 5: few units decide little by their scores, and would
    else get any size up to `max_keys`. Neighbours are add/remove of one unit.
    """

    epsilon: float
    max_keys: int
    _: KW_ONLY
    unit: str = "one row"

    def __post_init__(self) -> None:
        hint = "Pass the part of the budget for the median, such as epsilon=0.02."
        epsilon = validate.between("epsilon", self.epsilon, 1e-9, 500.0, hint=hint)
        validate.store(self, epsilon=epsilon, max_keys=check_max_keys(self.max_keys), unit=self.guarantee.unit)

    @classmethod
    def within(cls, epsilon: float, max_keys: int, *, unit: str) -> "TypicalSize":
        """Return the median that an analysis with this epsilon pays for first."""
        return cls(epsilon * SHARE_FOR_SIZE, max_keys, unit=unit)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of one privacy unit."""
        return Guarantee(self.epsilon, unit=self.unit)

    def raises_delta(self, steepness: float) -> float:
        """Return the factor by which the median raises the delta of what follows."""
        return raised_by_range(self.epsilon, steepness)

    def delta_left(self, epsilon: float, delta: float) -> float:
        """Return the delta for what follows, such that both together are (epsilon, delta)-private."""
        return delta_after_choices(epsilon, delta, (self.epsilon,))

    def certify(self) -> Certificate:
        """Return the certificate: the order of scores with Gumbel noise is exact, and its scale rounded up."""
        return formula(self.guarantee, 0.0, "balls", "one pick by the exponential mechanism, of monotone scores")

    def draw(self, sizes: Ints, source: Source) -> int:
        """Return the noisy median of the numbers of keys of all units."""
        units = np.bincount(np.minimum(sizes, self.max_keys), minlength=self.max_keys + 1)[: self.max_keys + 1]
        upto = np.cumsum(units)
        scores = self.prior - np.maximum(upto[:-1], upto[-1] - upto[1:])
        return 1 + int(noisy_top(scores, 1, scale=laplace_scale(self.epsilon, 1), source=source)[0])

    @property
    def prior(self) -> Ints:
        """The constants that are added to the scores of the sizes."""
        sizes = np.arange(1, self.max_keys + 1)
        usual = np.log(np.log1p(1 / (sizes - 0.5))) - (np.log(sizes / _USUAL) / _SPREAD) ** 2 / 2
        return np.asarray(np.rint((usual - usual.max()) / self.epsilon), np.int64)


def delta_after_choices(epsilon: float, delta: float, ranges: tuple[float, ...]) -> float:
    """Return the delta for what follows private choices of these ranges, such that all are (epsilon, delta)-private.

    That holds for every mechanism at epsilon that is not steeper than `steepest(epsilon, delta)`, and for any at the
    remaining epsilon: its curve is at most its delta over the whole range of the losses of the choices.
    """
    most = steepest(epsilon, delta)
    return delta / math.prod(raised_by_range(each, most) for each in ranges) * (1 - 1e-9)


def check_method(name: object) -> SelectorName:
    """Return the name of a selector, or 'auto'."""
    if not isinstance(name, str) or name not in get_args(SelectorName):
        raise InvalidValue(f"method is not known. Choose one of {', '.join(get_args(SelectorName))}.")
    return cast(SelectorName, name)


def is_shaped(name: str) -> bool:
    """Return whether the selector of this name depends on the typical number of keys per unit, and may leave budget."""
    return _MAKERS[name][2]


def make_selector(
    name: str,
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: int | None,
    unit: str,
    min_units: int = 1,
    **options: Any,
) -> Selector:
    """Return the selector of this name; `typical_keys`, a public number, shapes those that support it."""
    home, maker, shaped = _MAKERS[check_method(name)]
    make: Callable[..., Selector] = getattr(import_module(f"dpsieve.{home}"), maker)
    shape: dict[str, Any] = {"typical_keys": typical_keys} if shaped else {}
    selector = make(epsilon, delta, max_keys, unit=unit, **shape, **options)
    return selector if min_units == 1 else replace(selector, min_units=min_units)


def make_first_stage(
    name: str,
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: int | None,
    unit: str,
    min_units: int = 1,
    **options: Any,
) -> Selector:
    """Return a selector that leaves budget: a share of the weight where that is an option, else half of all."""
    if is_shaped(name):
        return make_selector(
            name, epsilon, delta, max_keys, typical_keys=typical_keys, unit=unit, min_units=min_units, **options
        )
    if epsilon / 2 < SMALLEST_EPSILON or delta / 2 < SMALLEST_DELTA:
        fix = "Pass more, or use method='auto'."
        raise InvalidValue(f"epsilon={epsilon:g} and delta={delta:g} are too small to be halved for {name}. {fix}")
    return make_selector(
        name, epsilon / 2, delta / 2, max_keys, typical_keys=typical_keys, unit=unit, min_units=min_units
    )
