"""Two rounds of Renyi selection: a noisy first look, which is not published, tells units where their weight counts.

Round one adds discrete Gaussian noise of standard deviation sigma to the sum of weights of every key, with the weights
of one-round selection. In round two each unit divides its weight anew: nothing for keys that looked hopeless, less for
keys that looked safe. A key is then published with the probability p(h) of its sum h of round two.

Proof of privacy. Round one: one unit moves the vector of the sums of all keys of the universe by at most 2^bits in l2
norm, so its Renyi divergence of any order is at most order 4^bits / (2 sigma^2) (Canonne, Kamath and Steinke 2020,
Theorem 4); the noise of keys that nobody holds touches nobody, so it need not be drawn. Round two, given any outcome of
round one: what a unit adds depends on its own keys and that outcome alone, so one unit more changes the coins of its
own keys and no other, each by a step w of at most `heaviest`, and its w^2 sum to at most 4^bits. The table allows every
whole step, so this round is leak-approximately (order, tau_2)-Renyi private as in `renyi_selection`. The divergences of
an adaptive sequence add up, and tau is the sum of both; forgetting the outcome of round one is post-processing. So the
guarantee covers the noisy sums of round one too, where a later step wants to use them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsieve import validate
from dpsieve.channels.makers import most_keys, unknown_domain
from dpsieve.channels.reporting.reporting_tables import Promise
from dpsieve.discovery.incidence import Incidence
from dpsieve.discovery.renyi_budgets import finest_bits
from dpsieve.discovery.renyi_selection import RenyiSelector, checked_typical, chosen_budget, fitting
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, lower, upper
from dpsieve.privacy.registry import register
from dpsieve.randomness import discrete_gaussian
from dpsieve.randomness.source import Source
from dpsieve.types import Bools, Ints

FIRST = 0.2
"""The part of tau that round one spends."""

_FULL = 1000  # the largest importance
_ALMOST_SURE = 0.8
_FEWER = 32  # from experiments with real and made sets of 3 to 34 keys a unit


def two_rounds(
    epsilon: float,
    delta: float,
    max_keys: int,
    *,
    typical_keys: float | None = None,
    share: float = 1.0,
    order: float | None = None,
    unit: str = "one row",
) -> "TwoRounds":
    """Return the selector that publishes most keys where units hold some 2 to 40 keys; arguments as `renyi_selection`.

    It looks at whole units twice, so an engine that only adds up weights cannot run it.

    >>> two_rounds(1.0, 1e-5, 100, typical_keys=8)
    <renyi_two_rounds selector of at most 100 keys a unit, (1, 1e-05)-differential privacy when ...>
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    max_keys = most_keys(max_keys)
    typical = min(max_keys, checked_typical(typical_keys))
    # In round two a unit has fewer keys that matter, so its weights may be larger than in one round.
    least = max(1, round(min(typical, typical**2 / _FEWER)))

    def made(least: int) -> TwoRounds:
        budget = chosen_budget(epsilon, delta, share, 1 - FIRST, None, least, order)
        bits, tau = finest_bits(budget.half, least, max_keys, every=True), budget.tau * share
        sigma = upper(lambda: (ball(budget.order) * 4**bits / (2 * ball(FIRST) * ball(tau))).sqrt())
        return TwoRounds(epsilon, delta, max_keys, budget.order, tau, budget.leak, bits, least, sigma, unit=unit)

    return fitting(made, least)


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
        if not self.second_tau > 0:
            raise InvalidValue("sigma leaves nothing of tau for round two. Pass those that were saved.")

    @cached_property
    def noise_rho(self) -> float:
        """What round one costs as zCDP, rounded up."""
        return upper(lambda: ball(4**self.bits) / (2 * ball(self.sigma) ** 2))

    @cached_property
    def second_tau(self) -> float:
        """What round one leaves of tau, rounded down."""
        return lower(lambda: ball(self.tau) - ball(self.order) * 4**self.bits / (2 * ball(self.sigma) ** 2))

    @property
    def promise(self) -> Promise:
        """What the table of round two must keep, for steps of every size."""
        return Promise(self.order, self.second_tau, self.leak, self.bits, tuple(range(1, self.heaviest + 1)))

    @property
    def covers(self) -> str:
        """What adds up to the cost of a unit, in words."""
        first = f"discrete Gaussian noise of sigma {self.sigma:.4g} on all sums"
        return f"{first}, then units whose squared weights sum to one, both at order {self.order:.4g}"

    def select(self, held: Incidence, source: Source) -> Bools:
        """Return which keys are published."""
        return self.looks(held, source)[0]

    def looks(self, held: Incidence, source: Source) -> tuple[Bools, Ints]:
        """Return which keys are published, and the noisy sums of all keys, on which more may be built."""
        first = self.sums(held, np.ones(held.keys.num_rows, np.int64))
        noisy = first + discrete_gaussian(self.sigma, len(first), source=source)
        return self.table.select(self.sums(held, self.importance(noisy)), source), noisy

    def sums(self, held: Incidence, importance: Ints) -> Ints:
        """Return the sum of weights of each key, where units divide their weight by importance."""
        from dpsieve.discovery.compiled.shared_weights import add_weights

        sums, room = np.zeros(held.keys.num_rows, np.int64), np.empty(held.sizes.max(initial=0), np.int64)
        add_weights(held.starts, held.held, importance, self.bits, self.heaviest, room, sums)
        return sums

    def importance(self, noisy: Ints) -> Ints:
        """Return the importance, from 0 to 1,000, of keys whose sum looked like this in round one.

        With X the sum that is published with probability 0.8, it rises from 0 at -X/5 to 1,000 at 2X/5, and falls like
        X / sum from X on, to no less than 100. Every rule is private; this one did well on baskets, places and lines.
        """
        enough = self._almost_sure
        noisy = np.clip(noisy, -enough, 10 * enough)
        rising = np.clip((5 * noisy + enough) * _FULL // (3 * enough), 0, _FULL)
        return np.asarray(np.minimum(rising, _FULL * enough // np.maximum(noisy, enough)))

    @cached_property
    def _almost_sure(self) -> int:
        return round(self.table.crossing(_ALMOST_SURE))
