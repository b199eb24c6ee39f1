"""Spends: which mechanism ran and how often, as values that are checked, compared, stored and composed.

A spend answers for itself: its kind defines the bounds on one run that ledgers and `Composition` add up. Formulas and
proofs: docs/background/composition.md#kinds-of-spends.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, ClassVar, TypeAlias, cast

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import DISTANCE, SIGMA, range_divergence
from dpsieve.codec import decode, encode, register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import Ball, ball, upper
from dpsieve.types import Floats
from dpsieve.validate import Checked, Delta, Epsilon, are, is_between, is_positive, is_whole

_MOST_ORDERS = 256
_RANGE = "Pass the range of the privacy loss, such as epsilon=0.1."
# Up to this sensitivity * sqrt(count) a discrete Laplace has its own lattice of losses; beyond it counts as pure.
_LATTICE = 1000

_ORDERS = "Pass increasing orders above 1, such as orders=[2, 8, 32]."
_TAUS = "Pass a bound on the divergence of each order, such as taus=[0.1, 0.4, 1.6]."

Count = Annotated[int, is_whole(1, 10**6, "Pass how often it ran, such as count=1.")]
"""The number of runs of a spend."""
Orders = Annotated[Sequence[float], are(is_between(1.0, 1e9, _ORDERS), 1, _MOST_ORDERS, _ORDERS)]
Taus = Annotated[Sequence[float], are(is_between(0.0, 1e9, _TAUS), 1, _MOST_ORDERS, _TAUS)]


@dataclass(frozen=True)
class _Spend(Checked):
    """What all kinds share. A new kind overrides the bounds that it has; all are for one run of `count`."""

    name: ClassVar[str]
    is_concentrated: ClassVar[bool] = False
    """Whether only Renyi divergences are known, and no distribution of the privacy loss."""

    @property
    def pure_epsilon(self) -> float:
        """The epsilon of one run beside its leak, rounded up; infinity where there is none."""
        return math.inf

    @property
    def leak(self) -> float:
        """The probability that one run leaks everything."""
        return 0.0

    @property
    def loss_range(self) -> float:
        """The length of an interval that contains all losses of one run."""
        return 2 * self.pure_epsilon

    @property
    def lattice(self) -> tuple[float, int] | None:
        """(1/scale, sensitivity) of discrete Laplace noise that dominates one run, if any; here randomised response."""
        return (self.pure_epsilon, 1) if 0 < self.pure_epsilon < math.inf else None

    def gaussian_square(self) -> Ball:
        """Return the square of mu of the Gaussian noise that this spend is; zero for other kinds."""
        return ball(0)

    def dominating_square(self) -> float:
        """Return the square of a mu whose Gaussian noise dominates one run, rounded up, or infinity."""
        width = self.loss_range
        return width if width == math.inf else upper(lambda: ball(width) ** 2 * ball(1).atan() / 2)

    def rho_bound(self) -> Ball:
        """Return the rho of one run as zCDP; not defined for a list of orders."""
        return ball(self.loss_range) ** 2 / 8

    def renyi(self, order: float) -> Ball:
        """Return a bound on the Renyi divergence of one run at an order above 1.

        By default that of randomised response, or of zCDP where there is no epsilon.
        """
        if self.pure_epsilon == math.inf:
            return ball(order) * self.rho_bound()
        # cosh(x + e/2) / cosh(e/2), so that a small divergence keeps its digits.
        e = ball(self.pure_epsilon)
        x = (ball(order) - 1) * e
        return (2 * (x / 2).sinh() ** 2 + x.sinh() * (e / 2).tanh()).log1p() / (ball(order) - 1)

    def divergence(self, order: float) -> float:
        """Return a bound on the Renyi divergence of one run beside its leak, rounded up; infinity above a list."""
        most = self.pure_epsilon
        return most if most == 0 else max(0.0, min(most, upper(lambda: self.renyi(order))))

    def moments(self, orders: Floats) -> Floats:
        """Return (order - 1) times the divergence at each order, roughly: floats that guide the choice of an order."""
        t = orders - 1
        return np.minimum(t * orders * min(1e200, upper(self.rho_bound)), t * self.pure_epsilon)

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values, with the kind of the spend."""
        return cast(dict[str, Any], encode(self))

    def words(self) -> str:
        """Return a readable description."""
        numbers = ", ".join(f"{name} {value}" for name, value in self.numbers().items())
        words, count = f"{self.name.replace('_', ' ')}: {numbers}", self.to_json()["count"]
        return words if count == 1 else f"{count:,} times {words}"

    def numbers(self) -> dict[str, str]:
        """Return the numbers of one run by name, with six digits; of a list, the first and the last."""

        def digits(value: Any) -> str:
            if not isinstance(value, list):
                return f"{value:.6g}"
            return f"{value[0]:.6g}" if len(value) == 1 else f"{value[0]:.6g}..{value[-1]:.6g}"

        return {name: digits(value) for name, value in self.to_json().items() if name not in ("kind", "count")}


@register("approximate")
@dataclass(frozen=True)
class Approximate(_Spend):
    """`count` mechanisms, each (epsilon, delta)-DP; nothing else is known about them.

    >>> Approximate(0.5, 1e-9).to_json()
    {'kind': 'approximate', 'epsilon': 0.5, 'delta': 1e-09, 'count': 1}
    """

    epsilon: Epsilon
    delta: Delta = 0.0
    count: Count = 1

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    @property
    def leak(self) -> float:
        return self.delta  # Kairouz, Oh and Viswanath 2015


@register("gaussian")
@dataclass(frozen=True)
class Gaussian(_Spend):
    """`count` vectors with noise N(0, sigma^2) on each coordinate and this L2 sensitivity."""

    sigma: Annotated[float, is_positive(SIGMA)]
    sensitivity: Annotated[float, is_positive(DISTANCE)] = 1.0
    count: Count = 1

    def gaussian_square(self) -> Ball:
        return (ball(self.sensitivity) / ball(self.sigma)) ** 2

    def dominating_square(self) -> float:
        return upper(self.gaussian_square)

    def rho_bound(self) -> Ball:
        return self.gaussian_square() / 2


@register("discrete_laplace")
@dataclass(frozen=True)
class DiscreteLaplace(_Spend):
    """`count` integers that change by at most `sensitivity`, each with noise of mass (1 - r)/(1 + r) r^|z| at z.

    Here r = e^(-1/scale). Each is (sensitivity/scale)-DP, and better than that below this epsilon when the
    sensitivity is above one. The sensitivity is of one integer; it is not the L1 norm of a vector.
    """

    scale: Annotated[float, is_positive("Pass a noise scale such as scale=2.0.")]
    sensitivity: Annotated[int, is_whole(1, 10**9, "Pass a whole number such as sensitivity=1.")] = 1
    count: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sensitivity <= 500 * self.scale:
            fix = "Pass at least sensitivity / 500."
            raise InvalidValue(f"scale={self.scale:g} gives an epsilon above 500. {fix}", argument="scale")

    @property
    def pure_epsilon(self) -> float:
        return upper(lambda: ball(self.sensitivity) / ball(self.scale))

    @property
    def lattice(self) -> tuple[float, int] | None:
        """Its own losses, or randomised response where they are too many."""
        fine = self.sensitivity * math.sqrt(self.count) <= _LATTICE
        return (1 / self.scale, self.sensitivity) if fine else (self.pure_epsilon, 1)

    def renyi(self, order: float) -> Ball:
        if self.sensitivity == 1:
            return super().renyi(order)
        s, rate, t = self.sensitivity, 1 / ball(self.scale), ball(order) - 1
        step = (1 + 2 * t) * rate  # by which r^j e^((s - 2j) t/b) falls
        between = (-rate).expm1() * ((-step).exp() * (-(s - 1) * step).expm1()) / -(-step).expm1()
        moment = (1 + (-s * step).exp() + between) / (1 + (-rate).exp())
        return s * rate + moment.log() / t


@register("bounded_range")
@dataclass(frozen=True)
class BoundedRange(_Spend):
    """`count` mechanisms whose privacy loss, over all outputs, lies in an interval of length epsilon each.

    For a pair of neighbours, ln P(o)/Q(o) differs by at most epsilon between any two outputs o, as for one pick by the
    exponential mechanism (a private median, for instance). Each is epsilon-DP, and epsilon^2/8-zCDP, a quarter of
    what epsilon-DP alone costs (Durfee and Rogers 2019; Cesar and Rogers 2021).
    """

    epsilon: Annotated[float, validate.epsilon, is_positive(_RANGE)]
    count: Count = 1

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    @property
    def loss_range(self) -> float:
        return self.epsilon

    def renyi(self, order: float) -> Ball:
        return range_divergence(order, self.epsilon)


@register("zero_concentrated")
@dataclass(frozen=True)
class ZeroConcentrated(_Spend):
    """`count` mechanisms, each rho-zCDP; nothing else is known about them."""

    is_concentrated = True
    rho: Annotated[float, is_between(1e-300, 1e6, "Pass a zCDP budget such as rho=0.1.")]
    count: Count = 1

    def rho_bound(self) -> Ball:
        return ball(self.rho)


@register("renyi")
@dataclass(frozen=True)
class Renyi(_Spend):
    """`count` mechanisms, each (order, tau)-Renyi private for every pair listed; nothing else is known about them.

    For each of the increasing `orders`, all above 1, the Renyi divergence of the outputs of neighbours is at most the
    tau at the same place of `taus`, in both directions. What leaks beside that is a spend of its own, such as
    `Approximate(0.0, 1e-9)`; it must be the same leak for all orders.

    >>> Renyi([2, 16], [0.04, 0.4], count=3)
    Renyi(orders=(2.0, 16.0), taus=(0.04, 0.4), count=3)
    """

    is_concentrated = True
    orders: Orders
    taus: Taus
    count: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.orders[0] == 1 or any(low >= high for low, high in pairwise(self.orders)):
            raise InvalidValue(f"orders do not increase from above 1. {_ORDERS}", argument="orders")
        if len(self.orders) != len(self.taus):
            words = f"taus has {len(self.taus)} numbers for {len(self.orders)} orders."
            raise InvalidValue(f"{words} {_TAUS}", argument="taus")

    def renyi(self, order: float) -> Ball:
        """Return the interpolated bound at an order up to the last one."""
        at = bisect_left(self.orders, order)
        if self.orders[at] == order or at == 0:
            return ball(self.taus[at])
        (a, below), (b, above) = ((ball(self.orders[i]), ball(self.taus[i])) for i in (at - 1, at))
        share = (ball(order) - a) / (b - a)
        return ((1 - share) * (a - 1) * below + share * (b - 1) * above) / (ball(order) - 1)

    def divergence(self, order: float) -> float:
        return math.inf if order > self.orders[-1] else super().divergence(order)

    def moments(self, orders: Floats) -> Floats:
        known = np.array([0.0, *self.orders]) - [0.0, *np.ones(len(self.orders))]
        return np.asarray(np.interp(orders - 1, known, known * [0.0, *self.taus]))


Spend: TypeAlias = Approximate | Gaussian | DiscreteLaplace | BoundedRange | ZeroConcentrated | Renyi


def spend_from_json(data: Mapping[str, Any]) -> Spend:
    """Return the spend that `to_json` described; anything else is refused.

    >>> spend_from_json({"kind": "gaussian", "sigma": 2.0, "sensitivity": 1.0, "count": 3})
    Gaussian(sigma=2.0, sensitivity=1.0, count=3)
    """
    return cast(Spend, decode(data, _Spend))


def total_leak(spends: Iterable[Spend]) -> float:
    """Return the probability that any of the spends leaks everything, rounded up."""
    deltas = [(spend.leak, spend.count) for spend in spends if spend.leak]
    product = upper(lambda: -sum(((-ball(delta)).log1p() * count for delta, count in deltas), ball(0)).expm1())
    # The sum is an upper bound, and exact for a single spend.
    return min(1.0, product, _sum(deltas))


def total_epsilon(spends: Iterable[Spend]) -> float:
    """Return the sum of the epsilons of all spends, rounded up, or infinity where a spend has none."""
    epsilons = [(spend.pure_epsilon, spend.count) for spend in spends]
    return math.inf if any(epsilon == math.inf for epsilon, _ in epsilons) else _sum(epsilons)


def total_divergence(spends: Iterable[Spend], order: float) -> float:
    """Return the sum of the divergences of all spends at one order, rounded up; infinity above a list."""
    taus = [(spend.divergence(order), spend.count) for spend in spends]
    return math.inf if any(tau == math.inf for tau, _ in taus) else _sum(taus)


def _sum(parts: list[tuple[float, int]]) -> float:
    """Return the sum of number * count, rounded up."""
    return upper(lambda: sum((ball(number) * count for number, count in parts), ball(0)))


def checked_spends(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """Return the spends as a tuple; anything else is refused."""
    hint = "Pass a list of Approximate, Gaussian, DiscreteLaplace, BoundedRange, ZeroConcentrated or Renyi."
    if not isinstance(spends, Iterable):
        raise InvalidType(f"spends must be a list, not {type(spends).__name__}. {hint}", argument="spends")
    parts = tuple(spends)
    for part in parts:
        if not isinstance(part, Spend):
            raise InvalidType(f"spends must hold spends, not {type(part).__name__}. {hint}", argument="spends")
    return parts
