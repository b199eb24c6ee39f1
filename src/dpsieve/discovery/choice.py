"""The choice of a selector, for every job that selects keys: by public numbers, or by a private median."""

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from dpsieve.accounting.products import steepest
from dpsieve.channels.floored import floored
from dpsieve.channels.unknown_keys import optimal
from dpsieve.discovery.after_selection import AfterSelection
from dpsieve.discovery.selector import (
    SHARE_FOR_SIZE,
    Selector,
    TypicalSize,
    WeightSelector,
    check_method,
    is_shaped,
    make_first_stage,
    make_selector,
)
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidValue, NotCertified
from dpsieve.privacy.mechanism import Composed, Mechanism, Use, remaining
from dpsieve.randomness.source import Source
from dpsieve.validate import SMALLEST_DELTA, SMALLEST_EPSILON

_SHARE_BEFORE_PICKS = 0.02  # of epsilon, for the median, on which the k most common keys depend more than all keys
_FEW, _MANY = 2, 16  # typical numbers of keys per unit


class Selection(NamedTuple):
    """The mechanism of all stages, the last of which selects, picks or counts keys; and the reason for it."""

    mechanism: Mechanism
    reason: str


class Picks(NamedTuple):
    """What follows a selector and shares its budget.

    Attributes:
        share: of a unit's weight, for the selector.
        make: returns the mechanism of selector and picks, given a selector, epsilon and delta.
        lower: a factor for the power of one round of selection, see `renyi.renyi_selection`.
    """

    share: float
    make: Callable[[Selector, float, float], AfterSelection]
    lower: float = 1.0


@dataclass(frozen=True)
class SelectorChoice:
    """How a request gets its selector: by public numbers (`public`), or where these do not decide by a private median.

    A selector by coins is made for a typical number of keys per unit: a public number, or a private median. Before
    picks it has a share of the budget. Where units typically hold one key, no picks are needed: all of the budget goes
    to the optimal channel on one key per unit, which reports the counts with the keys.

    The median is an output, by which an adversary could choose among mechanisms. Each of these is for a smaller delta,
    and either for all of epsilon and not steeper than `accounting.products.steepest`, or for the epsilon that remains.

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
        """The selection that public numbers decide; None where a private median is needed."""
        if self._median:
            return None
        name, reason = self._recommend(self.typical_keys)
        mechanism = self._make(name, self.typical_keys, self.epsilon, self.delta)
        if self.sums_from and not isinstance(mechanism, WeightSelector):
            why = f"needs the keys of each unit, which {self.sums_from} does not give"
            fix = "Choose 'auto', 'renyi' or 'weighted_gaussian', or 'one_key' for one key per unit."
            raise InvalidValue(f"method={name!r} {why}. {fix}")
        return Selection(mechanism, reason)

    def draw(self, pairs: Pairs, source: Source) -> Selection:
        """Draw the median, given at least `max_keys` keys of each unit that has them; return the selection."""
        assert self._median is not None
        typical = self._median.draw(pairs.sizes, source)
        name, reason = self._recommend(typical)
        uses = Use(self._median), Use(self._after_median(name, typical))
        return Selection(Composed(self.epsilon, self.delta, uses), f"{reason}, by a private median")

    def describe(self) -> str:
        """Return which private choice is made, as text."""
        return "chosen after a private median of keys per unit"

    def typical_mechanisms(self) -> Iterator[tuple[int, Mechanism]]:
        """Yield what the median would give for units that typically hold 1, 10 and 100 keys."""
        for typical in (keys for keys in (1, 10, 100) if keys <= self.max_keys):
            yield typical, self._after_median(self._recommend(typical)[0], typical)

    @cached_property
    def _median(self) -> TypicalSize | None:
        """What draws the median; None where none is needed, or the budget is too small to pay for it."""
        by_coins = not self.sums_from and (self.method == "auto" or is_shaped(self.method))
        if not by_coins or self.typical_keys is not None or self.max_keys == 1:
            return None
        share = _SHARE_BEFORE_PICKS if self.picks else SHARE_FOR_SIZE
        median = TypicalSize(self.epsilon * share, self.max_keys, unit=self.unit)
        enough = self.epsilon - median.epsilon > SMALLEST_EPSILON * 1.001
        return median if enough and self._delta_after(median) > SMALLEST_DELTA * 1.001 else None

    def _delta_after(self, median: TypicalSize) -> float:
        return median.delta_left(self.epsilon, self.delta)

    def _recommend(self, typical: int | None) -> tuple[str, str]:
        """Return the name of a selector, and the reason."""
        held = "" if typical is None else f"; {recommend(typical)[1]}"
        if self.method != "auto":
            return self.method, f"requested by the caller{held}"
        if self.picks and typical == 1:
            return "one_key", f"counts of units with one key need no picks{held}"
        if self.picks:
            return "renyi", f"which shares their budget{held}"
        if self.max_keys == 1:
            return "one_key", "no private mechanism reports keys of units with one key more often"
        if self.sums_from:
            return "renyi", f"{self.sums_from} gives sums of weights"
        if typical is None:
            return "renyi", "the budget is too small to pay for the typical number of keys"
        return recommend(typical)

    def _make(self, name: str, typical: int | None, epsilon: float, delta: float) -> Mechanism:
        common: Any = {"typical_keys": typical, "unit": self.unit, "min_units": self.min_units}
        if self.picks is None:
            return make_selector(name, epsilon, delta, self.max_keys, **common)
        if name == "one_key":
            return floored(optimal(epsilon, delta, unit=self.unit), self.min_units)
        lower: Any = {"lower": self.picks.lower} if name == "renyi" else {}
        selector = make_first_stage(name, epsilon, delta, self.max_keys, share=self.picks.share, **lower, **common)
        return self.picks.make(selector, epsilon, delta)

    def _gentle(self, name: str, typical: int | None) -> Mechanism:
        """Return a mechanism that may follow the median."""
        assert self._median is not None
        delta = self._delta_after(self._median)
        if is_shaped(name):
            mechanism = self._make(name, typical, self.epsilon, delta)
            if mechanism.steepness <= steepest(self.epsilon, self.delta):
                return mechanism
        return self._make(name, typical, remaining(self.epsilon, self._median.epsilon), delta)

    def _fallback(self) -> Mechanism:
        name = self.method if self.method != "auto" else "renyi" if self.picks else "greedy"
        return self._gentle(name, 1)

    def _after_median(self, name: str, typical: int) -> Mechanism:
        """Return the mechanism for this median; it is paid for, so take what serves every budget if it fails."""
        try:
            mechanism = self._gentle(name, typical)
            mechanism.certify()
        except (InvalidValue, NotCertified):
            return self._fallback()
        return mechanism


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
