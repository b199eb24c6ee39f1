"""How many keys a unit typically holds: a private median, which decides how keys are selected."""

from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.accounting.products import raised_by_range, steepest
from dpsieve.channels.budget import check_max_keys
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.privacy.registry import register
from dpsieve.randomness.noise import laplace_scale
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Ints

SHARE_FOR_SIZE = 0.01  # of epsilon


def median_first(epsilon: float, max_keys: int, *, unit: str) -> "TypicalSize":
    """Return the median for which an analysis with this epsilon pays first."""
    return TypicalSize(epsilon * SHARE_FOR_SIZE, max_keys, unit=unit)


@register("typical_size")
@dataclass(frozen=True)
class TypicalSize(Mechanism):
    """The median number of keys of a unit, from 1 to `max_keys`, by the exponential mechanism.

    A size x has the score -max(number of units with fewer keys, number of units with more). A unit more lowers each
    score by 1 or leaves it, so all change in one direction and by at most 1, and picking x with probability
    proportional to e^(epsilon score) is epsilon-private (McSherry and Talwar 2007; monotone scores need no factor 2),
    and its losses lie in a range of epsilon (Durfee and Rogers 2019). Neighbours are add/remove of one unit.
    """

    epsilon: float
    max_keys: int
    _: KW_ONLY
    unit: str = "one row"

    def __post_init__(self) -> None:
        hint = "Pass the part of the budget that buys the median, such as epsilon=0.02."
        epsilon = validate.between("epsilon", self.epsilon, 1e-9, 500.0, hint=hint)
        validate.store(self, epsilon=epsilon, max_keys=check_max_keys(self.max_keys), unit=self.guarantee.unit)

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised to one privacy unit."""
        return Guarantee(self.epsilon, unit=self.unit)

    def raises_delta(self, steepness: float) -> float:
        """Return by which factor the median raises the delta of what follows."""
        return raised_by_range(self.epsilon, steepness)

    def delta_left(self, epsilon: float, delta: float) -> float:
        """Return the delta for what follows, such that both together are (epsilon, delta)-private.

        That holds for every mechanism at epsilon that is not steeper than `steepest(epsilon, delta)`, and for any at
        what is left of epsilon: its curve is at most its delta over the whole range of the median's losses.
        """
        return delta / self.raises_delta(steepest(epsilon, delta)) * (1 - 1e-9)

    def certify(self) -> Certificate:
        """Return the certificate: the order of scores with Gumbel noise is exact, and its scale rounded up."""
        return formula(self.guarantee, 0.0, "balls", "one pick by the exponential mechanism, of monotone scores")

    def draw(self, sizes: Ints, source: Source) -> int:
        """Return the noisy median of the sizes of units."""
        held = np.bincount(np.minimum(sizes, self.max_keys), minlength=self.max_keys + 1)[: self.max_keys + 1]
        upto = np.cumsum(held)
        fewer, more = upto[:-1], upto[-1] - upto[1:]
        return 1 + int(noisy_top(-np.maximum(fewer, more), 1, scale=laplace_scale(self.epsilon, 1), source=source)[0])
