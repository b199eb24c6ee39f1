"""Selectors decide which keys are published, and nothing else about them; `choose_selector` decides on a selector."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from dpsieve import validate
from dpsieve.accounting.products import raised_by_range, steepest
from dpsieve.codec import register
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.composed import Composed, Use, remaining
from dpsieve.privacy.contribution import Weight
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.noise import laplace_scale
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import SMALLEST_DELTA, SMALLEST_EPSILON, check_budget, check_max_keys

SHARE_FOR_SIZE = 0.01  # of epsilon, for the private median
_FEW, _MANY = 2, 16  # typical numbers of keys per unit
# Per name: the module and name of the maker, and whether it accepts `typical_keys` and `share`.
_MAKERS = {
    "greedy": ("discovery.greedy", "greedy", False),
    "one_key": ("discovery.greedy", "one_key", False),
    "policy_gaussian": ("papers.missing_mass.policies", "policy_gaussian", False),
    "policy_greedy": ("papers.missing_mass.policies", "policy_greedy", False),
    "renyi": ("discovery.renyi", "renyi_selection", True),
    "renyi_two_rounds": ("discovery.renyi", "two_rounds", True),
    "repeated_rounds": ("papers.missing_mass.repeated_rounds", "repeated_rounds", False),
    "weighted_gaussian": ("discovery.weighted_gaussian", "weighted_gaussian", False),
}
MECHANISMS = ("auto", *_MAKERS)


@dataclass(frozen=True, repr=False)
class Selector(Mechanism):
    """A mechanism that selects keys: a frozen dataclass that adds its own public numbers to these fields.

    Neighbours are add/remove of one unit with all its keys, of which it keeps at most `max_keys`; the guarantee covers
    the whole unit. A key that no unit holds is never selected.

    Attributes:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys that a unit keeps.
        unit: the protected unit, as text.
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

    def draw(self, weights: Ints, *, source: Source) -> Floats:
        """Return the tokens of keys with these sums of weights: 1 for a published key, 0 for any other."""
        return self.select_by_weights(weights, source).astype(np.float64)


@register("typical_size")
@dataclass(frozen=True)
class TypicalSize(Mechanism):
    """The median number of keys per unit, from 1 to `max_keys`, by the exponential mechanism.

    A size x has the score -max(number of units with fewer keys, number of units with more). One more unit lowers each
    score by 1 or leaves it, so all change in one direction and by at most 1. Picking x with probability proportional to
    e^(epsilon score) is therefore epsilon-private (McSherry and Talwar 2007; monotone scores need no factor 2), and its
    losses lie in a range of epsilon (Durfee and Rogers 2019). Neighbours are add/remove of one unit.
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
        """Return the delta for what follows, such that both together are (epsilon, delta)-private.

        That holds for every mechanism at epsilon that is not steeper than `steepest(epsilon, delta)`, and for any at
        the remaining epsilon: its curve is at most its delta over the whole range of the median's losses.
        """
        return delta / self.raises_delta(steepest(epsilon, delta)) * (1 - 1e-9)

    def certify(self) -> Certificate:
        """Return the certificate: the order of scores with Gumbel noise is exact, and its scale rounded up."""
        return formula(self.guarantee, 0.0, "balls", "one pick by the exponential mechanism, of monotone scores")

    def draw(self, sizes: Ints, source: Source) -> int:
        """Return the noisy median of the numbers of keys of all units."""
        units = np.bincount(np.minimum(sizes, self.max_keys), minlength=self.max_keys + 1)[: self.max_keys + 1]
        upto = np.cumsum(units)
        fewer, more = upto[:-1], upto[-1] - upto[1:]
        return 1 + int(noisy_top(-np.maximum(fewer, more), 1, scale=laplace_scale(self.epsilon, 1), source=source)[0])


class Selection(NamedTuple):
    """A selector, the mechanism of all stages up to it (the selector itself if it is the only one), and the reason."""

    selector: Selector
    mechanism: Mechanism
    reason: str


def choose_selector(
    method: str,
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: int | None = None,
    unit: str = "one row",
    share: float = 1.0,
    sums_from: str = "",
) -> Selection | None:
    """Return the selector of a request; None where a private median decides (`choose_by_median`).

    Args:
        method: a name of `MECHANISMS`.
        epsilon, delta: the budget of the request.
        max_keys: the number of keys that a unit keeps.
        typical_keys: the typical number of keys per unit, if that is public.
        unit: the protected unit, as text.
        share: below 1, the selector leaves budget for picks: a Renyi selector has this share of a unit's weight, any
            other half of epsilon and delta. 'auto' is then one round of Renyi selection.
        sums_from: the name of an engine that computes sums of weights only; empty for one that reads units.

    >>> choose_selector("auto", 1.0, 1e-5, 100, typical_keys=9).reason
    'units typically hold 9 keys'
    """
    reason = "requested by the caller"
    if method == "auto" and share < 1:
        method, reason = "renyi", "picks share its budget"
    elif method == "auto" and max_keys == 1:
        method, reason = "one_key", "no private mechanism reports keys of units with one key more often"
    elif method == "auto" and sums_from:
        method, reason = "renyi", f"{sums_from} gives sums of weights"
    elif method == "auto" and typical_keys is not None:
        method, reason = recommend(typical_keys)
    elif method == "auto" and epsilon * (1 - SHARE_FOR_SIZE) < SMALLEST_EPSILON * 1.001:
        method, reason = "renyi", "epsilon is too small to pay for the typical number of keys"
    elif method == "auto":
        return None
    if share == 1:
        selector = make_selector(method, epsilon, delta, max_keys, typical_keys=typical_keys, unit=unit)
    else:
        selector = _make_first_stage(method, epsilon, delta, max_keys, typical_keys, unit, share)
    if sums_from and not isinstance(selector, WeightSelector):
        fix = "Choose 'auto', 'renyi' or 'weighted_gaussian', or 'one_key' for one key per unit."
        raise InvalidValue(f"method={method!r} needs the keys of each unit, which {sums_from} does not give. {fix}")
    return Selection(selector, selector, reason)


def choose_by_median(
    epsilon: float, delta: float, max_keys: int, sizes: Ints, source: Source, *, unit: str = "one row"
) -> Selection:
    """Draw the typical number of keys per unit for a part of epsilon, and return the selector for it.

    The median is an output, by which an adversary could choose among selectors. Each of them is for a smaller delta,
    and either for all of epsilon and not steeper than `accounting.products.steepest`, or for the remaining epsilon.

    Args:
        epsilon, delta: the budget of the request.
        max_keys: the number of keys that a unit keeps.
        sizes: the number of keys of each unit.
        source: of randomness.
        unit: the protected unit, as text.
    """
    median = TypicalSize.within(epsilon, max_keys, unit=unit)
    typical, smaller = median.draw(sizes, source), median.delta_left(epsilon, delta)
    left = remaining(epsilon, median.epsilon)

    def make(name: str, epsilon: float) -> Selector:
        return make_selector(name, epsilon, smaller, max_keys, typical_keys=typical, unit=unit)

    name, reason = recommend(typical)
    try:
        selector = make(name, left if name == "greedy" else epsilon)
        if selector.steepness > steepest(epsilon, delta):
            selector = make(name, left)
    except InvalidValue:  # the median is paid for: take what serves every budget
        selector = make("greedy", left)
        reason = f"no {name} table fits this budget, chosen"
    return Selection(selector, Composed(epsilon, delta, (Use(median), Use(selector))), f"{reason}, by a private median")


def recommend(typical_keys: int) -> tuple[str, str]:
    """Return the name of a selector for units that typically hold this number of keys, and the reason as text.

    From experiments on eight data sets. With one key per unit, greedy selection with the optimal channel publishes most
    keys; with some, two rounds of Renyi selection; with many, where a first round is expensive for what it reveals, one
    round.

    >>> recommend(9)
    ('renyi_two_rounds', 'units typically hold 9 keys')
    """
    name = "greedy" if typical_keys < _FEW else "renyi_two_rounds" if typical_keys < _MANY else "renyi"
    return name, f"units typically hold {typical_keys:,} {'key' if typical_keys == 1 else 'keys'}"


def make_selector(
    name: str, epsilon: float, delta: float, max_keys: int, *, typical_keys: int | None, unit: str, **options: Any
) -> Selector:
    """Return the selector of this name; `typical_keys`, a public number, shapes those that support it."""
    if not isinstance(name, str) or name not in _MAKERS:
        raise InvalidValue(f"method is not known. Choose one of {', '.join(MECHANISMS)}.")
    home, maker, shaped = _MAKERS[name]
    make: Callable[..., Selector] = getattr(import_module(f"dpsieve.{home}"), maker)
    shape: dict[str, Any] = {"typical_keys": typical_keys} if shaped else {}
    return make(epsilon, delta, max_keys, unit=unit, **shape, **options)


def _make_first_stage(
    name: str, epsilon: float, delta: float, max_keys: int, typical_keys: int | None, unit: str, share: float
) -> Selector:
    if name in _MAKERS and _MAKERS[name][2]:
        return make_selector(name, epsilon, delta, max_keys, typical_keys=typical_keys, unit=unit, share=share)
    if name in _MAKERS and (epsilon / 2 < SMALLEST_EPSILON or delta / 2 < SMALLEST_DELTA):
        fix = "Pass more, or use method='auto'."
        raise InvalidValue(f"epsilon={epsilon:g} and delta={delta:g} are too small to be halved for {name}. {fix}")
    return make_selector(name, epsilon / 2, delta / 2, max_keys, typical_keys=typical_keys, unit=unit)
