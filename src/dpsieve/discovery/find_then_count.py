"""Counts in two steps: a part of the budget finds the keys, the rest counts the found ones, without a threshold.

Step one is two rounds of Renyi selection (`discovery.two_rounds`), whose noisy first look also ranks the keys it finds.
Step two keeps of each unit at most m of the found keys, those that rank highest first, and adds Gaussian noise to the
counts. So the most common keys, which rank first, lose least to the bound.

How many keys, m. Let K be the number of found keys, at most 100, and d the number of the K highest that a unit holds.
Under the bound m it loses d - m of them, so the mean error of these K counts is about

    loss(m) / K + sqrt(2 / pi) sigma sqrt(m),    loss(m) = sum over units of min(max(d - m, 0), 20),

with sigma sqrt(m) the standard deviation of the noise. One unit more raises each loss(m) by 0 to 20, so one pick of the
least error by the exponential mechanism at choice_epsilon is choice_epsilon-bounded-range, as scores all change in one
direction (`privacy.curves.picks`). Cutting the loss of a unit at 20 keys makes the noise of the choice five times
smaller, and hides the loss only where it is far too large anyway.

Proof of privacy. What a unit keeps depends on its own keys and on the found keys with their ranks, which are outputs of
step one (keys that look alike stand in their own order). So given those, one unit more changes at most m counts, each
by one: a Gaussian of distance 1/sigma, whatever m is, as the noise has the variance m sigma^2 and is only rounded. The
choice has losses in a range of choice_epsilon, and the histogram of kept pairs is kept_epsilon-private: both are
Gaussian private of a distance `pure_mu` (`privacy.stages`). Distances of an adaptive sequence add up in squares, so
step two is stage three of one account with the selection, with one law whatever step one showed.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dpsieve import validate
from dpsieve.accounting.stages import gaussian_number, largest_mu, pure_mu
from dpsieve.channels.budget import check_max_keys
from dpsieve.discovery.after_selection import AfterSelection
from dpsieve.discovery.renyi_two_rounds import TwoRounds, two_rounds
from dpsieve.engines.true_data import Pairs
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import Ball, ball, upper
from dpsieve.noise.keys_per_unit import KINDS_OF_KEYS, MOST, Kept, KeysPerUnit, units_by_size
from dpsieve.noise.known_keys import NoisyCounts, gaussian_deviation, gaussian_half_width
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.registry import register
from dpsieve.randomness import rounded_gaussian
from dpsieve.randomness.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints
from dpsieve.values.keys import order_of, published

CANDIDATES = (1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 50, 70, 100)
SHARE_FOR_KEYS = 0.4  # of a unit's weight
SHARE_FOR_CHOICE = 0.05  # of epsilon, which is far less of the weight
_HIGHEST, _LONGEST_LOSS = 100, 20


class Found(NamedTuple):
    """Keys that were found, their noisy counts, the mechanism with the bound that was chosen, and what that kept."""

    keys: pa.Table
    tokens: Floats
    mechanism: "FindThenCount"
    kept: Kept | None


def find_then_count(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    keys: int | None = None,
    kept_epsilon: float = 0.0,
    typical_keys: float | None = None,
    unit: str = "one row",
) -> "FindThenCount":
    """Return the mechanism that finds keys and counts those it found.

    Args:
        epsilon, delta: what is promised to one unit.
        max_keys: how many keys of a unit step one sees.
        keys: how many of the found keys a unit is counted in; left out, that is chosen privately.
        kept_epsilon: what is paid for the share of the pairs of units and found keys that step two keeps; 0: not told.
        typical_keys: how many keys a typical unit has, a public or private number.
        unit: who is protected, in words.

    >>> find_then_count(1.0, 1e-8, 100, typical_keys=8)
    <find_then_count after renyi_two_rounds selection, (1, 1e-08)-differential privacy when ...>
    """
    selector = two_rounds(epsilon, delta, max_keys, typical_keys=typical_keys, share=SHARE_FOR_KEYS, unit=unit)
    choice = 0.0 if keys is not None else SHARE_FOR_CHOICE * epsilon
    told = _told(choice, kept_epsilon)
    most = largest_mu(selector.rest, 1 - selector.share, epsilon, selector.power)
    if not most > told * (1 + 1e-6):
        raise InvalidValue(f"epsilon={epsilon:g} leaves nothing to count with. Raise epsilon or delta.")
    sigma = max(SMALLEST_SCALE, (1 + 1e-9) / math.sqrt(most**2 - told**2))
    return FindThenCount(epsilon, delta, sigma, choice, kept_epsilon, keys or 1, selector=selector)


@register("find_then_count")
@dataclass(frozen=True, repr=False)
class FindThenCount(AfterSelection, NoisyCounts):
    """See `find_then_count`, and the head of this module for the proof.

    Attributes:
        sigma: the standard deviation of the noise where a unit is counted in one key.
        choice_epsilon: the range of the choice of `keys`; 0 where nothing is chosen.
        kept_epsilon: the budget of what is told about kept pairs; 0 where nothing is told.
        keys: how many of the found keys a unit is counted in.
    """

    withholds = True  # what is not found

    sigma: float
    choice_epsilon: float = 0.0
    kept_epsilon: float = 0.0
    keys: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the saved one."
        if not isinstance(self.selector, TwoRounds):
            raise InvalidType("selector must be one that ranks keys. Pass two_rounds(...).")
        sigma = validate.between("sigma", self.sigma, SMALLEST_SCALE, LARGEST_SCALE / 1000, hint=hint)
        choice = validate.between("choice_epsilon", self.choice_epsilon, 0.0, 100.0, hint=hint)
        kept = validate.between("kept_epsilon", self.kept_epsilon, 0.0, 100.0, hint=hint)
        validate.store(
            self, sigma=sigma, choice_epsilon=choice, kept_epsilon=kept, keys=check_max_keys(self.keys, "keys")
        )
        self._together  # noqa: B018  # raises where the fields do not keep the promise

    def __repr__(self) -> str:
        return f"<{self.name} after {self.selector.name} selection, {self.guarantee}>"

    @cached_property
    def scale(self) -> float:
        """The standard deviation of the noise on each count."""
        return upper(lambda: ball(self.sigma) * ball(self.keys).sqrt())

    @property
    def tells_kept(self) -> bool:  # type: ignore[override]
        """Whether it pays for telling what bounding kept."""
        return self.kept_epsilon > 0

    @property
    def contribution(self) -> Contribution:
        """A unit is counted in some of the keys that were found."""
        return Contribution(self.keys)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on each count, as it is drawn: in whole numbers."""
        return gaussian_deviation(self.scale)

    def half_width(self, level: float) -> int:
        """Return the least h such that the noise is within -h to h with at least this probability."""
        return gaussian_half_width(self.scale, level)

    def find(self, held: Pairs, source: Source) -> Found:
        """Return the found keys with noisy counts; `held` has all keys of units."""
        assert isinstance(self.selector, TwoRounds)
        selected, looks = self.selector.looks(held.bound(self.max_keys), source)
        places = np.flatnonzero(selected)
        places = places[order_of(published(held.keys.take(pa.array(places)))).to_numpy()]
        ranked = held.rank(places[np.argsort(-looks[places], kind="stable")])
        made = replace(self, keys=self._chosen(ranked, source)) if self.choice_epsilon and len(places) else self
        kept = made._kept(ranked, source) if self.kept_epsilon else None
        return Found(ranked.keys, made._noisy(ranked.bound(made.keys).counts(), source), made, kept)

    def _noisy(self, counts: Ints, source: Source) -> Floats:
        return (counts + rounded_gaussian(self.scale, len(counts), source=source)).astype(np.float64)

    def losses(self, ranked: Pairs) -> Ints:
        """Return the loss of each candidate; see the head of this module."""
        sizes = ranked.filter(ranked.key_numbers < _HIGHEST).sizes
        units = np.bincount(sizes, minlength=1)
        over = np.arange(len(units)) - np.array(CANDIDATES)[:, None]
        return np.asarray(np.clip(over, 0, _LONGEST_LOSS) @ units)

    def _chosen(self, ranked: Pairs, source: Source) -> int:
        """Return how many keys a unit is counted in, by the exponential mechanism."""
        highest = min(_HIGHEST, ranked.keys.num_rows)
        noise = math.sqrt(2 / math.pi) * self.sigma * highest * np.sqrt(CANDIDATES)
        scale = upper(lambda: _LONGEST_LOSS / ball(self.choice_epsilon))
        scores = -self.losses(ranked) - np.rint(noise).astype(np.int64)
        return CANDIDATES[int(noisy_top(scores, 1, scale=scale, source=source)[0])]

    def _kept(self, ranked: Pairs, source: Source) -> Kept | None:
        """Return which share of all pairs of a unit and a found key is counted; None where that cannot be told."""
        told = KeysPerUnit(self.kept_epsilon, min(self.keys, MOST), unit=self.unit)
        kept = told.draw(units_by_size(ranked.sizes), source).kept(told.bound)
        return None if kept is None else kept._replace(key=KINDS_OF_KEYS[1])

    @property
    def _words(self) -> str:
        private = {"a choice": self.choice_epsilon, "a histogram": self.kept_epsilon}
        before = [f"{name} with epsilon {epsilon:.4g}" for name, epsilon in private.items() if epsilon]
        noise = f"Gaussian noise of sigma {self.scale:.4g} on counts of at most {self.keys:,} keys a unit"
        return ", ".join([*before, noise])

    @cached_property
    def distance(self) -> float:
        """The distance, in deviations, of the Gaussians that step two is no easier to tell apart than, rounded up."""
        return upper(
            lambda: (ball(_told(self.choice_epsilon, self.kept_epsilon)) ** 2 + 1 / ball(self.sigma) ** 2).sqrt()
        )

    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        return gaussian_number(self.distance, share, epsilon, power), 0.0

    def _divergence(self, order: float) -> float:
        def cost() -> Ball:
            told = ball(self.choice_epsilon) ** 2 / 8 + ball(self.kept_epsilon) ** 2 / 2
            return ball(order) * (told + 1 / ball(self.sigma) ** 2 / 2)

        return upper(cost)

    def _delta_after(self, epsilon: float) -> float:
        return 1.0  # there is no other way to add it up than in one account


def _told(choice_epsilon: float, kept_epsilon: float) -> float:
    """Return the distance of the choice and of the histogram together, rounded up."""
    return math.hypot(pure_mu(choice_epsilon), pure_mu(2 * kept_epsilon)) * (1 + 1e-12)
