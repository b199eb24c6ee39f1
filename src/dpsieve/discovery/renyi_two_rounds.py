"""Two rounds of selection by coins: a noisy first look, which is not published, tells units where their weight counts.

Round one adds Gaussian noise of standard deviation sigma, rounded to integers, to the sum of weights of every key, with
the weights of one-round selection. In round two each unit divides its weight anew: nothing for keys that looked
hopeless, less for keys that looked safe. A key is then published with the probability p(h) of its sum h of round two.

Proof of privacy. Round one: one unit moves the vector of the sums of all keys of the universe by at most 2^bits in l2
norm. Sums are integers, so rounding the noise is rounding the noisy sum: post-processing of a Gaussian mechanism of
distance mu = 2^bits / sigma. The noise of keys that nobody holds touches nobody, so it need not be drawn. Round two,
given any outcome of round one: what a unit adds depends on its own keys and that outcome alone, so one unit more
changes the coins of its own keys and no other, each by a step w of at most `heaviest`, and its w^2 sum to at most
4^bits. The table allows every whole step, so this is stage two of `privacy.stages` after a stage one of distance mu,
and delta is at most the exposure of leak and rest. Forgetting the outcome of round one is post-processing. So the
guarantee covers the noisy sums of round one too, where a later step wants to use them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.accounting.gaussian import gaussian_sigma
from dpsieve.accounting.stages import split
from dpsieve.channels.budget import check_budget, check_max_keys
from dpsieve.discovery.renyi import RenyiSelector, checked_typical, chosen_power, finest_bits, fitting
from dpsieve.engines.true_data import Pairs
from dpsieve.exact.balls import ball, upper
from dpsieve.privacy.registry import register
from dpsieve.randomness import rounded_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Ints

FIRST = 0.1
"""The part that round one has of 1/sigma^2 of a Gaussian mechanism of the same share, epsilon and delta."""

_FULL = 1000  # the largest importance
_ALMOST_SURE = 0.8
_FEWER = 28  # from experiments with real and made sets of 3 to 34 keys per unit


def two_rounds(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: float | None = None,
    share: float = 1.0,
    power: float | None = None,
    unit: str = "one row",
) -> "TwoRounds":
    """Return the selector that publishes most keys where units hold some 2 to 15 keys; arguments as `renyi_selection`.

    It looks at whole units twice, so an engine that only adds up weights cannot run it.

    >>> two_rounds(1.0, 1e-5, 100, typical_keys=8)
    <renyi_two_rounds selector of at most 100 keys a unit, (1, 1e-05)-differential privacy when ...>
    """
    epsilon, delta = check_budget(epsilon, delta)
    max_keys = check_max_keys(max_keys)
    typical = min(max_keys, checked_typical(typical_keys))
    # In round two a unit has fewer keys that matter, so its weights may be larger than in one round.
    least = max(1, round(min(typical, typical**2 / _FEWER)))

    def make(least: int) -> TwoRounds:
        mu = (FIRST * share) ** 0.5 / gaussian_sigma(epsilon, delta)
        chosen, half = chosen_power(epsilon, delta, share, mu, 0.0, least, power)
        bits = finest_bits(half, least, max_keys, every=True)
        sigma = 2**bits / mu * (1 + 1e-12)
        limits = split(chosen, delta, mu, share)
        return TwoRounds(epsilon, delta, max_keys, chosen, *limits, share, bits, least, sigma, unit=unit)

    return fitting(make, least)


@register("renyi_two_rounds")
@dataclass(frozen=True, repr=False)
class TwoRounds(RenyiSelector):
    """See `two_rounds`, and the head of this module for the proof.

    Attributes:
        sigma: the standard deviation of the noise of round one, in units of 2^-bits.
    """

    sigma: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(sigma=validate.between("sigma", self.sigma, 1.0, 1e9, hint="Pass the saved one."))
        self._check_cost()

    @cached_property
    def look_mu(self) -> float:
        """The distance, in deviations, by which a unit moves the noisy sums of round one, rounded up."""
        return upper(lambda: ball(2**self.bits) / ball(self.sigma))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Every whole weight."""
        return tuple(range(1, self.heaviest + 1))

    @property
    def covers(self) -> str:
        """What adds up to the cost of a unit, in words."""
        first = f"rounded Gaussian noise of sigma {self.sigma:.4g} on all sums"
        return f"{first}, then units whose squared weights sum to {self.share:.4g}"

    def select(self, held: Pairs, source: Source) -> Bools:
        """Return which keys are published."""
        return self.looks(held, source)[0]

    def looks(self, held: Pairs, source: Source) -> tuple[Bools, Ints]:
        """Return which keys are published, and the noisy sums of all keys, on which more may be built."""
        first = self.sums(held, np.ones(held.keys.num_rows, np.int64))
        noisy = first + rounded_gaussian(self.sigma, len(first), source=source)
        return self.table.select(self.sums(held, self.importance(noisy)), source), noisy

    def sums(self, held: Pairs, importance: Ints) -> Ints:
        """Return the sum of weights of each key, where units divide their weight by importance."""
        from dpsieve.discovery.loops import add_weights

        sums, room = np.zeros(held.keys.num_rows, np.int64), np.empty(held.sizes.max(initial=0), np.int64)
        add_weights(held.starts, held.key_numbers, importance, self.bits, self.heaviest, room, sums)
        return sums

    def importance(self, noisy: Ints) -> Ints:
        """Return the importance, from 0 to 1,000, of keys whose sum looked like this in round one.

        With X the sum that is published with probability 0.8, and s the deviation of the noise, it rises from 0 at
        -0.8 s to 1,000 at 0.5 s, and falls like 1 / sum from 0.3 X + s on, to no less than 30. Every rule is private;
        this one did well on baskets, places and lines.
        """
        low, high = -0.8 * self.sigma, 0.5 * self.sigma
        safe = 0.3 * self._almost_sure + self.sigma
        rising = np.clip((noisy - low) / (high - low), 0.0, 1.0)
        falling = np.clip(safe / np.maximum(noisy, safe), 0.03, 1.0)
        return np.asarray(np.rint(_FULL * np.minimum(rising, falling)), np.int64)

    @cached_property
    def _almost_sure(self) -> int:
        return round(self.table.crossing(_ALMOST_SURE))
