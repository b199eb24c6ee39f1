"""Top-k over keys that nobody listed: discovery, then picks with Gumbel noise (peeling), then counts on request.

Algorithms 2 and 3 of Dick, Joseph and Raman, "Missing Mass for Differentially Private Domain Discovery" (2026), with a
tighter account. The counts are of all units that hold a found key, whatever the selector saw of them; one unit more
raises some of them by one and lowers none, so a pick is e0-bounded-range with e0 = 1 / scale (`privacy.curves.picks`).
The k largest of the counts with Gumbel noise, drawn once, are distributed like k picks one after the other (Durfee and
Rogers 2019).

In one account with the selector the picks enter by the law of losses of their exact curve (`privacy.stages`), which
begins with the curve of the noise on their counts where there is some (`privacy.adaptive`).

Counts of the chosen keys. One unit raises up to k of them by one. Let n be the number of units, S and G_1, ..., G_k
independent Gaussian noise, rounded to integers. Publish n + S and 2 count_i - n + G_i for each i: one unit moves the
first by 1, and each of the others by 1 or by -1. So this costs a/2 (1/var(S) + k/var(G)) in Renyi terms at order a;
rounding is post-processing. What is really published are the sums of the first with each of the others, halved,
count_i + (S + G_i)/2, in which n is gone. With var(S) = 4 sigma^2 / (sqrt k + 1) and var(G) = 4 sigma^2 sqrt k /
(sqrt k + 1) each count has the standard deviation sigma, for mu = (sqrt k + 1) / (2 sigma): about half the noise of
independent noise, which has sqrt k / sigma (Lebeda, "Better Gaussian Mechanism using Correlated Noise", SOSA 2025).
Whatever was picked, neighbours are no easier to tell apart than Gaussians of this distance.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.exponential_picks import (
    checked_picks,
    lemma_epsilon,
    picks_delta,
    picks_epsilon,
    picks_law,
    picks_renyi,
)
from dpsieve.accounting.products import largest_mu
from dpsieve.discovery.after_selection import (
    TOP,
    KeyPicker,
    checked_analysis,
    chosen_selector,
    largest_pick,
    rest_needed,
)
from dpsieve.discovery.renyi import RenyiSelector, renyi_selection
from dpsieve.discovery.selector import Selector
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import ball, upper
from dpsieve.privacy.registry import register
from dpsieve.randomness import rounded_gaussian
from dpsieve.randomness.noise import LARGEST_SCALE, SMALLEST_SCALE
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source
from dpsieve.types import Floats, Ints


def top_keys(
    epsilon: float,
    delta: float,
    max_keys: int,
    k: int,
    *,
    selector: Selector | None = None,
    typical_keys: float | None = None,
    share: float = 0.15,
    count_share: float = 0.0,
    analysis: str = "best",
    unit: str = "one row",
) -> "TopKeys":
    """Return the mechanism that finds keys and picks the k most frequent of them.

    Args:
        epsilon, delta: what is promised to one unit.
        max_keys: how many keys of a unit the selector sees; the picks count all of them.
        k: how many keys to pick.
        selector: finds the keys; left out, Renyi selection with a `share` of the weight. A Renyi selector for the
            whole (epsilon, delta) with a share below 1 leaves the rest for the picks; any other selector must be for a
            part of epsilon and delta.
        typical_keys: how many keys a typical unit has, a public number, for the default selector.
        share: the part of a unit's weight for the default selector.
        count_share: the part of what the selector leaves that pays for counts of the picked keys.
        analysis: 'paper' takes the closed form for the epsilon of a pick, to check figures.
        unit: who is protected, in words, for the default selector.

    >>> from dpsieve.randomness import SystemSource
    >>> mechanism = top_keys(1.0, 1e-5, 10, k=20)
    >>> mechanism.pick(np.array([0, 90_000, 50_000]), SystemSource()).tolist()[:2]
    [1, 2]
    """
    k, paper = checked_picks(k), checked_analysis(analysis) == "paper"
    count_share = validate.between("count_share", count_share, 0.0, 0.99, hint="Pass a part such as count_share=0.2.")
    chosen = chosen_selector(
        selector,
        max_keys,
        lambda: renyi_selection(epsilon, delta, max_keys, typical_keys=typical_keys, share=share, unit=unit),
    )
    sigma = 0.0
    if count_share:
        if paper or not isinstance(chosen, RenyiSelector) or chosen.share == 1:
            raise InvalidValue("count_share needs a Renyi selector that leaves some weight. Pass one with share=0.25.")
        part = (1 - chosen.share) * count_share
        sigma = (math.sqrt(k) + 1) / (2 * largest_mu(chosen.rest, part, chosen.epsilon, chosen.power))

    def after(selector: RenyiSelector, each: float) -> float:
        law = picks_law(k, each, TOP * epsilon, _counts_mu(sigma, k))
        return rest_needed(selector, law.number(1 - selector.share, selector.epsilon, selector.power), law.leak)

    by_parts = lemma_epsilon if paper else (lambda *_: 0.0) if count_share else picks_epsilon
    each = largest_pick(chosen, epsilon, delta, k=k, after=None if paper else after, by_parts=by_parts)
    return TopKeys(epsilon, delta, k, each, count_sigma=sigma, selector=chosen)


@register("top_k")
@dataclass(frozen=True, repr=False)
class TopKeys(KeyPicker):
    """See `top_keys`, `KeyPicker` for the guarantee, and the head of this module for the counts.

    Attributes:
        count_sigma: the standard deviation of the noise on the counts of picked keys; 0 for no counts.
    """

    count_sigma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma = validate.between("count_sigma", self.count_sigma, 0.0, LARGEST_SCALE / 4, hint="Pass the saved one.")
        if 0 < sigma < SMALLEST_SCALE * math.sqrt(self.k):
            raise InvalidValue("count_sigma is too small to be drawn. Pass the saved one.")
        validate.store(self, count_sigma=sigma)
        self._together  # noqa: B018  # raises where the fields do not keep the promise

    def pick(self, counts: ArrayLike, source: Source) -> Ints:
        """Return the places of the picked keys in noisy order, given how many units hold each key that was found."""
        return noisy_top(counts, self.k, scale=self.scale, source=source)

    def noisy_counts(self, counts: ArrayLike, source: Source) -> Floats:
        """Return the counts of the picked keys with noise, in halves; negative ones are possible."""
        true = validate.integers("counts", counts, hint="Pass the counts of the picked keys.")
        if not self.count_sigma:
            raise InvalidValue("count_sigma is 0: counts were not paid for. Make the mechanism with a count_share.")
        if len(true) > self.k:
            raise InvalidValue(f"counts holds more than k={self.k} keys. Pass the counts of the picked keys.")
        shared, own = _deviations(self.count_sigma, self.k)
        return np.asarray(
            true + (rounded_gaussian(shared, 1, source=source) + rounded_gaussian(own, len(true), source=source)) / 2
        )

    def half_width(self, level: float = 0.95) -> float:
        """Return h such that a true count is within h of its noisy one with at least this probability."""
        from scipy.special import ndtri

        return float(-ndtri((1 - level) / 2)) * self.count_sigma * (1 + 1e-9) + 0.5

    def _number(self, share: float, epsilon: float, power: float) -> tuple[float, float]:
        law = picks_law(self.k, self.each_epsilon, TOP * epsilon, _counts_mu(self.count_sigma, self.k))
        return law.number(share, epsilon, power), law.leak

    def _divergence(self, order: float) -> float:
        picks, mu = picks_renyi(order, self.each_epsilon, self.k), _counts_mu(self.count_sigma, self.k)
        return upper(lambda: ball(picks) + ball(order) * ball(mu) ** 2 / 2)

    def _delta_after(self, epsilon: float) -> float:
        return 1.0 if self.count_sigma else picks_delta(self.k, epsilon, each_epsilon=self.each_epsilon)


def _deviations(sigma: float, k: int) -> tuple[float, float]:
    """Return the standard deviations of the shared noise and of each key's own, both in halves of a count."""
    root = math.sqrt(k)
    return 2 * sigma / math.sqrt(root + 1), 2 * sigma * math.sqrt(root / (root + 1))


def _counts_mu(sigma: float, k: int) -> float:
    """Return the distance, in deviations, by which a unit moves noisy counts of k keys, rounded up; 0: none."""
    if not sigma:
        return 0.0
    shared, own = _deviations(sigma, k)
    return upper(lambda: (1 / ball(shared) ** 2 + k / ball(own) ** 2).sqrt())
