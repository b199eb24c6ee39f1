"""Discovery, then picks: what mechanisms share that first select keys and then pick k of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from dpsieve import validate
from dpsieve.discovery.after_selection import AfterSelection
from dpsieve.discovery.renyi_selection import RenyiSelector
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy.composed import remaining
from dpsieve.privacy.curves.picks import checked_picks, largest_each
from dpsieve.privacy.stages import largest_mu


@dataclass(frozen=True, repr=False)
class KeyPicker(AfterSelection):
    """A selector and k picks among the keys it found, by the exponential mechanism on counts of units.

    The picks see all keys of a unit among those found. A pick takes key i with probability proportional to
    e^(each_epsilon * count_i). See `AfterSelection` for what both cost.

    Attributes:
        k: how many keys are picked at most.
        each_epsilon: of one pick; the Gumbel noise has the scale 1 / each_epsilon.
    """

    k: int
    each_epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        each = validate.between("each_epsilon", self.each_epsilon, 1e-9, 100.0, hint="Pass the saved one.")
        validate.store(self, k=checked_picks(self.k), each_epsilon=each)

    @cached_property
    def scale(self) -> float:
        """The scale of the Gumbel noise, rounded up."""
        return upper(lambda: 1 / ball(self.each_epsilon))

    def __repr__(self) -> str:
        return f"<{self.name} of {self.k:,} keys after {self.selector.name} selection, {self.guarantee}>"

    @property
    def _words(self) -> str:
        return f"{self.k:,} picks of {self.each_epsilon:.4g} each"


def largest_pick(
    selector: Selector,
    epsilon: float,
    delta: float,
    *,
    k: int,
    after: Callable[[RenyiSelector, float], float] | None,
    by_parts: Callable[[float, float, int], float],
) -> float:
    """Return the largest epsilon of each of k picks that the selector leaves room for; refuse one that leaves none.

    `after` returns the rest that picks of some epsilon need in one account; `by_parts` finds the epsilon of a pick from
    an epsilon, a delta and k.
    """
    found = [0.0]
    if after and isinstance(selector, RenyiSelector) and selector.share < 1 and selector.cost <= delta:
        mu = largest_mu(selector.rest, 1 - selector.share, selector.epsilon, selector.power)  # k picks are nearly that
        found.append(largest_each(partial(after, selector), selector.rest, 1.8 * mu / math.sqrt(k)))
    left = remaining(epsilon, selector.guarantee.epsilon), remaining(delta, selector.guarantee.delta)
    if min(left) > 0:
        found.append(by_parts(*left, k))
    if not max(found):
        fix = "Pass one with a part of epsilon and delta, or a Renyi selector with a share below 1."
        raise InvalidValue(f"selector spends all of the budget. {fix}")
    return max(found)


def chosen_selector(selector: Selector | None, max_keys: int, default: Callable[[], Selector]) -> Selector:
    """Return the given selector, which must be for `max_keys`, or the default one."""
    chosen = default() if selector is None else selector
    if not isinstance(chosen, Selector):
        raise InvalidType(f"selector must be a selector, not {type(chosen).__name__}. Leave it out, or pass one.")
    if chosen.max_keys != max_keys:
        raise InvalidValue(f"max_keys={max_keys} is not that of the selector. Pass max_keys={chosen.max_keys}.")
    return chosen


def checked_analysis(analysis: str) -> str:
    """Return 'best' or 'paper'."""
    if not isinstance(analysis, str) or analysis not in ("best", "paper"):
        raise InvalidValue("analysis is not known. Choose 'best', or 'paper' to check a figure.")
    return analysis
