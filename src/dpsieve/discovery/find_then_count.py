"""Counts, and totals, in two steps: a part of the budget selects the keys, the rest measures them, without a threshold.

Step one is two rounds of Renyi selection (`discovery.renyi`), whose noisy round one also ranks the selected keys. Step
two keeps at most m of the selected keys per unit, those that rank highest first, and adds Gaussian noise to the counts.
So the most common keys, which rank first, lose least to the bound.

How many keys, m. Let K be the number of selected keys, at most 100, and d the number of the K highest in a unit. Under
the bound m it loses d - m of them, so the mean error of these K counts is about

    loss(m) / K + sqrt(2 / pi) sigma sqrt(m),    loss(m) = sum over units of min(max(d - m, 0), 20),

with sigma sqrt(m) the standard deviation of the noise. One more unit raises each loss(m) by 0 to 20, so one pick of the
least error by the exponential mechanism at choice_epsilon is choice_epsilon-bounded-range, as scores all change in one
direction (`accounting.exponential_picks`). Cutting the loss of a unit at 20 keys makes the noise of the choice five
times smaller, and hides the loss only where it is much too large anyway.

Proof of privacy. What a unit keeps depends on its own keys and on the selected keys with their ranks, which are outputs
of step one (ties are in the order of keys). So given those, one more unit changes at most m counts, each by one: a
Gaussian of distance 1/sigma, whatever m is, as the noise has the variance m sigma^2 and is only rounded. The choice has
losses in a range of choice_epsilon, and the histogram of kept pairs is kept_epsilon-private: both are Gaussian private
of a distance `pure_mu` (`accounting.products`). Distances of an adaptive sequence add up in squares, so step two is
stage three of one account with the selection, with one law whatever step one showed.

**Totals** (`FindThenMeasure`). Step two has k centred sums beside each count (`noise.totals`). One more unit is
measured in at most m keys. In each it adds 1 to the count and a number from -1 to 1, in half widths of the bounds, to
each centred sum: the vector of all counts and sums moves by at most sqrt(m (1 + k)) in l2 norm. Each gets Gaussian
noise of variance m sigma^2, so step two is a Gaussian of distance sqrt(1 + k)/sigma, whatever m is and whatever step
one showed; rounding to the grid is post-processing, as the sums are whole numbers on it. Both steps are stages of one
account, as without sums.

All noises are alike: in half widths each coordinate has sensitivity 1, where Lemma 4.8 of chapter 4 of the thesis
splits evenly. In the units of the columns they form an ellipse.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import ndtr

from dpsieve import validate
from dpsieve.accounting.products import gaussian_number, largest_mu, pure_mu
from dpsieve.codec import register
from dpsieve.discovery.after_selection import AfterSelection
from dpsieve.discovery.renyi import TwoRounds, two_rounds
from dpsieve.engines.true_data import Counted, Pairs
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import Ball, ball, upper
from dpsieve.noise.keys_per_unit import KINDS_OF_KEYS, MOST, Coverage, KeysPerUnit, units_by_size
from dpsieve.noise.known_keys import GaussianReader, NoisyCounts
from dpsieve.noise.totals import GRID, MOST_TOTALS, Total, centred, name_sums
from dpsieve.numbers.noise import NORMAL_95
from dpsieve.privacy.guarantee import Contribution
from dpsieve.privacy.mechanism import Drawn, Outcome, only_number
from dpsieve.randomness import rounded_gaussian
from dpsieve.randomness.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Floats, Ints
from dpsieve.validate import check_max_keys, store
from dpsieve.values.columns import as_arrow, as_numpy
from dpsieve.values.keys import order_of, published

CANDIDATES = (1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 50, 70, 100)
SHARE_FOR_KEYS = 0.43  # of a unit's weight
SHARE_FOR_CHOICE = 0.05  # of epsilon, which is far less of the weight
_HIGHEST, _LONGEST_LOSS = 100, 20


class Found(NamedTuple):
    """Selected keys, their noisy counts with the chosen bound, that bound, its coverage, and where they are in all."""

    keys: pa.Table
    outcome: Outcome
    keys_per_unit: int
    kept: Coverage | None
    selected: Bools


def find_then_count(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    keys: int | None = None,
    kept_epsilon: float = 0.0,
    typical_keys: float | None = None,
    share: float = SHARE_FOR_KEYS,
    min_units: int = 1,
    unit: str = "one row",
) -> "FindThenCount":
    """Return the mechanism that selects keys and counts them.

    Args:
        epsilon, delta: the guarantee of one unit.
        max_keys: the number of keys per unit that step one sees.
        keys: the number of selected keys in which a unit is counted; chosen privately by default.
        kept_epsilon: the budget of the share of (unit, selected key) pairs that step two keeps; 0: not reported.
        typical_keys: the typical number of keys per unit, a public or private number.
        share: the part of a unit's weight that selects keys.
        min_units: no key of fewer units is selected.
        unit: the protected unit, as text.

    >>> find_then_count(1.0, 1e-8, 100, typical_keys=8)
    <find_then_count after renyi_two_rounds selection, (1, 1e-08)-differential privacy when ...>
    """
    selector = two_rounds(epsilon, delta, max_keys, typical_keys=typical_keys, share=share, unit=unit)
    selector = replace(selector, min_units=min_units)
    choice = 0.0 if keys is not None else SHARE_FOR_CHOICE * epsilon
    before = _distance(choice, kept_epsilon)
    most = largest_mu(selector.rest, 1 - selector.share, epsilon, selector.power)
    if not most > before * (1 + 1e-6):
        raise InvalidValue(f"epsilon={epsilon:g} leaves nothing to count with. Raise epsilon or delta.")
    sigma = max(SMALLEST_SCALE, (1 + 1e-9) / math.sqrt(most**2 - before**2))
    return FindThenCount(epsilon, delta, sigma, choice, kept_epsilon, keys, selector=selector)


@register("find_then_count")
@dataclass(frozen=True, repr=False)
class FindThenCount(AfterSelection, NoisyCounts):
    """See `find_then_count`, and the head of this module for the proof.

    Attributes:
        sigma: the standard deviation of the noise where a unit is counted in one key.
        choice_epsilon: the range of the choice of `keys`; 0 if they are not chosen privately.
        kept_epsilon: the budget of the share of kept pairs; 0 if it is not reported.
        keys: the number of selected keys in which a unit is counted; None if it is chosen privately, and drawn.
    """

    withholds = True  # keys that are not selected

    sigma: float
    choice_epsilon: float = 0.0
    kept_epsilon: float = 0.0
    keys: int | None = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the saved one."
        if not isinstance(self.selector, TwoRounds):
            raise InvalidType("selector must be one that ranks keys. Pass two_rounds(...).")
        sigma = validate.between("sigma", self.sigma, SMALLEST_SCALE, LARGEST_SCALE / 1000, hint=hint)
        choice = validate.between("choice_epsilon", self.choice_epsilon, 0.0, 100.0, hint=hint)
        kept = validate.between("kept_epsilon", self.kept_epsilon, 0.0, 100.0, hint=hint)
        keys = None if self.keys is None else check_max_keys(self.keys, "keys")
        if (keys is None) != (choice > 0):
            raise InvalidValue("keys must be None where choice_epsilon pays for their choice, and only there.")
        validate.store(self, sigma=sigma, choice_epsilon=choice, kept_epsilon=kept, keys=keys)
        self._together  # noqa: B018  # raises if the fields break the guarantee

    def __repr__(self) -> str:
        return f"<{self.name} after {self.selector.name} selection, {self.guarantee}>"

    def scale(self, keys: int) -> float:
        """Return the standard deviation of the noise on each count, where a unit is counted in this number of keys."""
        return upper(lambda: ball(self.sigma) * ball(keys).sqrt())

    @property
    def reports_coverage(self) -> bool:  # type: ignore[override]
        """Whether the budget includes the coverage estimate."""
        return self.kept_epsilon > 0

    @property
    def contribution(self) -> Contribution:
        """A unit is counted in at most this number of selected keys: where it is chosen, in the largest candidate."""
        return Contribution(self.keys or CANDIDATES[-1], after="two_steps")

    def contribution_given(self, drawn: Drawn) -> Contribution:
        """Return the number of selected keys in which a unit is counted."""
        return Contribution(self._keys_given(drawn), after="two_steps")

    def reader(self, drawn: Drawn) -> GaussianReader:
        """Return what reads counts with the noise for the number of keys, which may have been drawn."""
        return GaussianReader(self.scale(self._keys_given(drawn)), least=1)

    def _keys_given(self, drawn: Drawn) -> int:
        if self.keys is not None:
            super().reader(drawn)  # raises where anything was drawn
            return self.keys
        keys = only_number(drawn, "keys", CANDIDATES[0], CANDIDATES[-1])
        if keys not in CANDIDATES:
            raise InvalidValue(f"drawn has a number of keys that is no candidate. Pass one of {CANDIDATES}.")
        return keys

    def find(self, pairs: Pairs, source: Source) -> Found:
        """Return the selected keys with noisy counts, from all pairs of units and keys."""
        assert isinstance(self.selector, TwoRounds)
        selected, sums = self.selector.select_and_rank(pairs.bound(self.max_keys), source)
        places = np.flatnonzero(selected)
        places = places[as_numpy(order_of(published(pairs.keys.take(as_arrow(places)))))]
        ranked = pairs.rank(places[np.argsort(-sums[places], kind="stable")])
        keys = self.keys or (self._choose_keys(ranked, source) if len(places) else CANDIDATES[0])
        kept = self._draw_kept(ranked, keys, source) if self.kept_epsilon else None
        outcome = self._measure(ranked.bound(keys).count_all(), keys, source)
        return Found(ranked.keys, replace(outcome, drawn={} if self.keys else {"keys": keys}), keys, kept, selected)

    def _measure(self, counted: Counted, keys: int, source: Source) -> Outcome:
        """Return noisy counts of the selected keys, where units are counted in this number of them."""
        counts = counted.frequencies
        return Outcome(counts + rounded_gaussian(self.scale(keys), len(counts), source=source))

    @property
    def measured(self) -> int:
        """The number of noisy numbers per key; each of them is a distance of 1/sigma."""
        return 1

    def losses(self, ranked: Pairs) -> Ints:
        """Return the loss of each candidate; see the head of this module."""
        sizes = replace(ranked, amounts=None).filter(ranked.key_numbers < _HIGHEST).sizes
        units = np.bincount(sizes, minlength=1)
        over = np.arange(len(units)) - np.array(CANDIDATES)[:, None]
        return np.asarray(np.clip(over, 0, _LONGEST_LOSS) @ units)

    def _choose_keys(self, ranked: Pairs, source: Source) -> int:
        """Return the number of keys in which a unit is counted, by the exponential mechanism."""
        highest = min(_HIGHEST, ranked.keys.num_rows)
        noise = math.sqrt(2 / math.pi) * self.sigma * highest * np.sqrt(CANDIDATES)
        scale = upper(lambda: _LONGEST_LOSS / ball(self.choice_epsilon))
        scores = -self.losses(ranked) - np.rint(noise).astype(np.int64)
        return CANDIDATES[int(noisy_top(scores, 1, scale=scale, source=source)[0])]

    def _draw_kept(self, ranked: Pairs, keys: int, source: Source) -> Coverage | None:
        """Return the share of (unit, selected key) pairs that are counted; None if noise hides it."""
        histogram = KeysPerUnit(self.kept_epsilon, min(keys, MOST), unit=self.unit)
        kept = histogram.draw(units_by_size(ranked.sizes), source).kept(histogram.bound)
        return None if kept is None else replace(kept, key=KINDS_OF_KEYS[1])

    @property
    def _description(self) -> str:
        private = {"a choice": self.choice_epsilon, "a histogram": self.kept_epsilon}
        before = [f"{name} with epsilon {epsilon:.4g}" for name, epsilon in private.items() if epsilon]
        noise = f"Gaussian noise of sigma {self.sigma:.4g} times the root of the number of keys a unit is counted in"
        return ", ".join([*before, noise])

    @cached_property
    def distance(self) -> float:
        """The distance, in deviations, of Gaussians that step two is no easier to distinguish than, rounded up."""
        return upper(
            lambda: (
                ball(_distance(self.choice_epsilon, self.kept_epsilon)) ** 2 + self.measured / ball(self.sigma) ** 2
            ).sqrt()
        )

    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        return gaussian_number(self.distance, share, epsilon, power), 0.0

    def _divergence(self, order: float) -> float:
        def cost() -> Ball:
            before = ball(self.choice_epsilon) ** 2 / 8 + ball(self.kept_epsilon) ** 2 / 2
            return ball(order) * (before + self.measured / ball(self.sigma) ** 2 / 2)

        return upper(cost)

    def _delta_after(self, epsilon: float) -> float:
        return 1.0  # only one account is possible


def _distance(choice_epsilon: float, kept_epsilon: float) -> float:
    """Return the distance of the choice and the histogram together, rounded up."""
    return math.hypot(pure_mu(choice_epsilon), pure_mu(2 * kept_epsilon)) * (1 + 1e-12)


def find_then_measure(
    epsilon: float, delta: float, max_keys: int, totals: tuple[Total, ...], **options: Any
) -> "FindThenMeasure":
    """Return the mechanism that selects keys, and measures their counts and totals.

    Args:
        epsilon, delta, max_keys: as in `find_then_count`.
        totals: what is added up.
        options: further arguments of `find_then_count`.
    """
    counting = find_then_count(epsilon, delta, max_keys, **options)
    sigma = math.sqrt(1 + len(totals)) * counting.sigma * (1 + 1e-12)
    return FindThenMeasure(
        epsilon, delta, sigma, counting.choice_epsilon, counting.kept_epsilon, counting.keys, totals,
        selector=counting.selector,
    )  # fmt: skip


@dataclass(frozen=True)
class MeasuredReader(GaussianReader):
    """Reads counts, and centred sums with Gaussian noise of the same scale per unit."""

    def half_width_of(self, of_sum: Floats, of_count: Floats) -> Floats:
        """Return the 95 % half-width of the noise of a Y + b N, in steps; that of the rounded count is a bit wider."""
        return np.asarray(NORMAL_95 * self._deviation(of_sum, of_count))

    def noise_beyond(self, of_sum: float, of_count: float, distance: float) -> float:
        """Return P[|noise of a Y + b N| > distance], for a distance in steps."""
        return float(2 * ndtr(-distance / self._deviation(np.float64(of_sum), np.float64(of_count))))

    def _deviation(self, of_sum: Any, of_count: Any) -> Any:
        count = math.hypot(self.scale, 12**-0.5)
        return GRID * np.hypot(self.scale * of_sum, count * of_count)


@register("find_then_measure")
@dataclass(frozen=True, repr=False)
class FindThenMeasure(FindThenCount):
    """See `find_then_measure`, and the head of this module for the proof.

    Attributes:
        totals: what is added up beside the counts.
    """

    totals: tuple[Total, ...] = ()

    def __post_init__(self) -> None:
        given: Any = self.totals
        if not isinstance(given, tuple | list) or not all(isinstance(total, Total) for total in given):
            raise InvalidType("totals must be a tuple of totals. Pass the saved one.")
        if not 1 <= len(given) <= MOST_TOTALS:
            raise InvalidValue(f"totals must be from 1 to {MOST_TOTALS}. Pass the saved one.")
        store(self, totals=tuple(given))
        super().__post_init__()
        if not SMALLEST_SCALE <= self.scale(self.keys or self.contribution.keys) * GRID <= LARGEST_SCALE:
            raise InvalidValue(
                f"epsilon={self.epsilon:g} is too small to measure totals in two steps. Pass a larger one."
            )

    @property
    def measured(self) -> int:
        return 1 + len(self.totals)

    def reader(self, drawn: Drawn) -> MeasuredReader:
        return MeasuredReader(super().reader(drawn).scale, least=1)

    def _measure(self, counted: Counted, keys: int, source: Source) -> Outcome:
        assert counted.sums is not None
        moved = centred(counted.frequencies, counted.sums)
        scale = upper(lambda: ball(self.scale(keys)) * GRID)
        noise = rounded_gaussian(scale, moved.size, source=source).reshape(moved.shape)
        return replace(super()._measure(counted, keys, source), sums=moved + noise)

    @cached_property
    def _description(self) -> str:
        return f"{super()._description}, on a count and {name_sums(self.totals)}"
