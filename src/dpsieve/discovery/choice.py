"""The choice of a selector, for every job that selects keys: by public numbers, or by private choices."""

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from dpsieve import validate
from dpsieve.accounting.products import raised_by_range, steepest
from dpsieve.codec import register
from dpsieve.discovery.after_selection import AfterSelection
from dpsieve.discovery.greedy import OneKey, TopTokens
from dpsieve.discovery.renyi import RenyiSelector
from dpsieve.discovery.selector import (
    SHARE_FOR_SIZE,
    Selector,
    TypicalSize,
    WeightSelector,
    check_method,
    delta_after_choices,
    is_shaped,
    make_first_stage,
    make_selector,
)
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Composed, Mechanism, Use, remaining
from dpsieve.randomness.noise import laplace_scale
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Ints
from dpsieve.validate import SMALLEST_DELTA, SMALLEST_EPSILON

SHARE_FOR_TOP = 0.02  # of epsilon, for whether the k-th most common key is common
_SHARE_BEFORE_PICKS = 0.02  # of epsilon, for the median, on which the k most common keys depend more than all keys
_FAR_ABOVE, _VERY_FAR_ABOVE = 2.0, 4.0  # times what is selected half of the time; the latter for units with one key
_FEW, _MANY = 2, 16  # typical numbers of keys per unit


@register("common_top")
@dataclass(frozen=True)
class CommonTop(Mechanism):
    """Whether at least `units` units hold the k-th most common key, by the exponential mechanism on two answers.

    'Yes' has the score count - units, 'no' the score 0, where count is the k-th largest number of units of a key. One
    more unit raises every number by 0 or 1, and so the k-th largest. The log-odds of the answers change by at most
    epsilon, so the losses lie in a range of epsilon. Neighbours are add/remove of one unit.
    """

    epsilon: float
    k: int
    units: int
    _: KW_ONLY
    unit: str = "one row"

    def __post_init__(self) -> None:
        hint = "Pass the saved one."
        epsilon = validate.between("epsilon", self.epsilon, 1e-9, 500.0, hint=hint)
        k = validate.whole("k", self.k, low=1, high=10**6, hint=hint)
        units = validate.whole("units", self.units, low=1, high=10**12, hint=hint)
        validate.store(self, epsilon=epsilon, k=k, units=units, unit=self.guarantee.unit)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The guarantee of one privacy unit."""
        return Guarantee(self.epsilon, unit=self.unit)

    def raises_delta(self, steepness: float) -> float:
        """Return the factor by which the answer raises the delta of what follows."""
        return raised_by_range(self.epsilon, steepness)

    def certify(self) -> Certificate:
        """Return the certificate: the order of scores with Gumbel noise is exact, and its scale rounded up."""
        return formula(self.guarantee, 0.0, "balls", "one pick of two answers by the exponential mechanism")

    def draw(self, counts: Ints, source: Source) -> bool:
        """Return the noisy answer, given the number of units of each key."""
        kth = int(np.partition(counts, -self.k)[-self.k]) if len(counts) >= self.k else 0
        scores = np.array([0, kth - self.units])
        return bool(noisy_top(scores, 1, scale=laplace_scale(self.epsilon, 1), source=source)[0])


class Selection(NamedTuple):
    """The mechanism of all stages, the last of which selects keys or selects and picks them; and the reason for it."""

    mechanism: Mechanism
    reason: str


class Picks(NamedTuple):
    """What follows a selector and shares its budget.

    Attributes:
        k: the number of picks.
        shares: of a unit's weight, for the selector: where the k-th most common key is common, and where it is not. One
            share is for both.
        make: returns the mechanism of selector and picks, given a selector, epsilon and delta.
        lower: a factor for the power of one round of selection, see `renyi.renyi_selection`.
        one_key: whether 'auto' may count units in one key and take the largest tokens: `greedy.TopTokens`.
    """

    k: int
    shares: tuple[float, ...]
    make: Callable[[Selector, float, float], AfterSelection]
    lower: float = 1.0
    one_key: bool = False


@dataclass(frozen=True)
class SelectorChoice:
    """How a request gets its selector: by public numbers (`public`), or where these do not decide by private ones.

    A selector by coins is made for a typical number of keys per unit: a public number, or a private median. Before
    picks it has a share of the budget. A small one leaves the picks less noise, and is right if the k-th most common
    key is far above what is selected; else a large one is, as missing keys cost more than noise. `CommonTop` decides.
    Where units typically hold one key, all of the budget goes to the optimal channel on one key per unit, whose tokens
    are counts: nothing is selected at a lower frequency, and no picks are to be paid for. Common keys are picked there
    too, as the keys beyond the first one of some units count then.

    Private choices are outputs, by which an adversary could choose among mechanisms. Each of these is for a smaller
    delta, and either for all of epsilon and not steeper than `accounting.products.steepest`, or for the epsilon that
    remains.

    Attributes:
        method: a name of `validate.SelectorName`.
        epsilon, delta: the budget of the request.
        max_keys: the number of keys that a unit keeps.
        typical_keys: the typical number of keys per unit, if that is public.
        unit: the protected unit, as text.
        sums_from: the name of an engine that computes sums of weights only; empty for one that reads units.
        picks: what follows. 'auto' is then one round of Renyi selection; other kinds have half of epsilon and delta.
        min_units: no key of fewer units is selected.

    >>> SelectorChoice("auto", 1.0, 1e-5, 100, typical_keys=9).public.reason
    'units typically hold 9 keys'
    """

    method: str
    epsilon: float
    delta: float
    max_keys: int
    _: KW_ONLY
    typical_keys: int | None = None
    unit: str = "one row"
    sums_from: str = ""
    picks: Picks | None = None
    min_units: int = 1

    def __post_init__(self) -> None:
        check_method(self.method)
        if self.public is None:
            self._fallback()  # raises before the data is read if this budget has none

    @cached_property
    def public(self) -> Selection | None:
        """The selection that public numbers decide; None where private choices are needed."""
        if self._ranges:
            return None
        name, reason = self._recommend(self.typical_keys)
        mechanism = self._make(name, self.typical_keys, self._shares[-1], self.epsilon, self.delta)
        if self.sums_from and not isinstance(mechanism, WeightSelector):
            why = f"needs the keys of each unit, which {self.sums_from} does not give"
            fix = "Choose 'auto', 'renyi' or 'weighted_gaussian', or 'one_key' for one key per unit."
            raise InvalidValue(f"method={name!r} {why}. {fix}")
        return Selection(mechanism, reason)

    def draw(self, pairs: Pairs, source: Source) -> Selection:
        """Make the private choices, given at least `max_keys` keys of each unit that has them; return the selection."""
        choices: list[Mechanism] = []
        typical, privately = self.typical_keys, ""
        if self._buys_median:
            median = TypicalSize(self.epsilon * self._share_for_size, self.max_keys, unit=self.unit)
            typical, privately = median.draw(pairs.sizes, source), ", by a private median"
            choices.append(median)
        name, reason = self._recommend(typical, is_common=self._asks_top)
        mechanism = self._after_choices(name, typical, self._shares[0])
        if self._asks_top:
            top = self._common_top(mechanism, typical or 1)
            if not top.draw(pairs.counts(), source):
                name, reason = self._recommend(typical, is_common=False)
                mechanism = self._after_choices(name, typical, self._shares[-1])
            choices.append(top)
        uses = (*map(Use, choices), Use(mechanism))
        return Selection(Composed(self.epsilon, self.delta, uses), f"{reason}{privately}")

    def describe(self) -> str:
        """Return which private choices are made, as text."""
        words = ["a private median of keys per unit"] if self._buys_median else []
        words += ["whether the k-th most common key is common"] if self._asks_top else []
        return f"chosen after {' and '.join(words)}"

    def typical_mechanisms(self) -> Iterator[tuple[int, Mechanism]]:
        """Yield what private choices would give for units that typically hold 1, 10 and 100 keys."""
        for typical in (keys for keys in (1, 10, 100) if keys <= self.max_keys):
            yield typical, self._after_choices(self._recommend(typical)[0], typical, self._shares[-1])

    @property
    def _shares(self) -> tuple[float, ...]:
        return self.picks.shares if self.picks else (1.0,)

    @property
    def _by_coins(self) -> bool:
        return not self.sums_from and (self.method == "auto" or is_shaped(self.method))

    @property
    def _share_for_size(self) -> float:
        needed = self._by_coins and self.typical_keys is None and self.max_keys > 1
        return (_SHARE_BEFORE_PICKS if self.picks else SHARE_FOR_SIZE) if needed else 0.0

    @property
    def _share_for_top(self) -> float:
        one_key = self._recommend(self.typical_keys)[0] == "one_key" and self.max_keys == 1
        return SHARE_FOR_TOP if self._by_coins and len(self._shares) > 1 and not one_key else 0.0

    @property
    def _buys_median(self) -> bool:
        return bool(self._ranges) and self._share_for_size > 0

    @property
    def _asks_top(self) -> bool:
        return bool(self._ranges) and self._share_for_top > 0

    @cached_property
    def _ranges(self) -> tuple[float, ...]:
        """The ranges of the losses of all private choices; none where the budget is too small to pay for them."""
        ranges = tuple(share * self.epsilon for share in (self._share_for_size, self._share_for_top) if share)
        enough = self.epsilon - sum(ranges) > SMALLEST_EPSILON * 1.001
        delta = delta_after_choices(self.epsilon, self.delta, ranges)
        return ranges if enough and delta > SMALLEST_DELTA * 1.001 else ()

    def _recommend(self, typical: int | None, *, is_common: bool = False) -> tuple[str, str]:
        """Return the name of a selector, and the reason; `is_common` says that the k-th most common key may be so."""
        held = "" if typical is None else f"; {recommend(typical)[1]}"
        if self.method != "auto":
            return self.method, f"requested by the caller{held}"
        if self.picks and self.picks.one_key and typical == 1 and not is_common:
            return "one_key", f"which reports counts{held}"
        if self.picks:
            return "renyi", f"which shares their budget{held}"
        if self.max_keys == 1:
            return "one_key", "no private mechanism reports keys of units with one key more often"
        if self.sums_from:
            return "renyi", f"{self.sums_from} gives sums of weights"
        if typical is None:
            return "renyi", "the budget is too small to pay for the typical number of keys"
        return recommend(typical)

    def _make(self, name: str, typical: int | None, share: float, epsilon: float, delta: float) -> Mechanism:
        common: Any = {"typical_keys": typical, "unit": self.unit, "min_units": self.min_units}
        if self.picks is None:
            return make_selector(name, epsilon, delta, self.max_keys, **common)
        if name == "one_key":
            return TopTokens(cast(OneKey, make_selector(name, epsilon, delta, 1, **common)), self.picks.k)
        lower: Any = {"lower": self.picks.lower} if name == "renyi" else {}
        selector = make_first_stage(name, epsilon, delta, self.max_keys, share=share, **lower, **common)
        return self.picks.make(selector, epsilon, delta)

    def _gentle(self, name: str, typical: int | None, share: float) -> Mechanism:
        """Return a mechanism that may follow the private choices."""
        delta, left = delta_after_choices(self.epsilon, self.delta, self._ranges), self.epsilon
        for each in self._ranges:
            left = remaining(left, each)
        if is_shaped(name):
            mechanism = self._make(name, typical, share, self.epsilon, delta)
            if mechanism.steepness <= steepest(self.epsilon, self.delta):
                return mechanism
        return self._make(name, typical, share, left, delta)

    def _fallback(self) -> Mechanism:
        name = self.method if self.method != "auto" else "renyi" if self.picks else "greedy"
        return self._gentle(name, 1, self._shares[-1])

    def _after_choices(self, name: str, typical: int | None, share: float) -> Mechanism:
        """Return the mechanism for these choices; they are paid for, so take what serves every budget if it fails."""
        try:
            mechanism = self._gentle(name, typical, share)
            mechanism.certify()
        except (InvalidValue, NotCertified):
            return self._fallback()
        return mechanism

    def _common_top(self, mechanism: Mechanism, typical: int) -> CommonTop:
        assert self.picks is not None and isinstance(mechanism, AfterSelection)
        assert isinstance(mechanism.selector, RenyiSelector)
        far = _VERY_FAR_ABOVE if typical == 1 and self.picks.one_key else _FAR_ABOVE
        common = far * mechanism.selector.users_needed(min(typical, self.max_keys))
        units = max(1, math.ceil(min(common, 1e12)))
        return CommonTop(self.epsilon * SHARE_FOR_TOP, self.picks.k, units, unit=self.unit)


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
