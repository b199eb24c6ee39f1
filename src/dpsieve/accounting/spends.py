"""Spends: which mechanism was run, and how often. Values that can be checked, compared and stored."""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, dataclass, fields
from itertools import islice, pairwise
from typing import Any, ClassVar, TypeAlias, get_args

from dpsieve import validate
from dpsieve.accounting.gaussian import checked_noise
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import ball, upper

_MOST_ORDERS = 256
_RANGE = "Pass the range of the privacy loss, such as epsilon=0.1."


@dataclass(frozen=True)
class _Spend:
    """What all spends share: plain checked values, and JSON."""

    kind: ClassVar[str]

    def _set(self, *, count: int, **checked: object) -> None:
        count = validate.whole("count", count, low=1, high=10**6, hint="Pass how often it ran, such as count=1.")
        for name, value in {**checked, "count": count}.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values, with the kind of the spend; `spend_from_json` reads it back exactly."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"kind": self.kind, **plain}

    def words(self) -> str:
        """Return the spend for people."""
        numbers = ", ".join(f"{name} {value}" for name, value in self.numbers().items())
        words, count = f"{self.kind.replace('_', ' ')}: {numbers}", self.to_json()["count"]
        return words if count == 1 else f"{count:,} times {words}"

    def numbers(self) -> dict[str, str]:
        """Return the numbers of one run by name, with six digits; of a list, the first and the last."""

        def digits(value: Any) -> str:
            if not isinstance(value, list | tuple):
                return f"{value:.6g}"
            return f"{value[0]:.6g}" if len(value) == 1 else f"{value[0]:.6g}..{value[-1]:.6g}"

        return {name: digits(value) for name, value in self.to_json().items() if name not in ("kind", "count")}


@dataclass(frozen=True)
class Approximate(_Spend):
    """`count` mechanisms of which nothing is known but that each is (epsilon, delta)-DP.

    >>> Approximate(0.5, 1e-9).to_json()
    {'kind': 'approximate', 'epsilon': 0.5, 'delta': 1e-09, 'count': 1}
    """

    kind = "approximate"
    epsilon: float
    delta: float = 0.0
    count: int = 1

    def __post_init__(self) -> None:
        self._set(count=self.count, epsilon=validate.epsilon(self.epsilon), delta=validate.delta(self.delta))


@dataclass(frozen=True)
class Gaussian(_Spend):
    """`count` vectors with noise N(0, sigma^2) on each coordinate and this L2 sensitivity."""

    kind = "gaussian"
    sigma: float
    sensitivity: float = 1.0
    count: int = 1

    def __post_init__(self) -> None:
        sigma, sensitivity = checked_noise(self.sigma, self.sensitivity)
        self._set(count=self.count, sigma=sigma, sensitivity=sensitivity)


@dataclass(frozen=True)
class DiscreteLaplace(_Spend):
    """`count` integers that change by at most `sensitivity`, each with noise of mass (1 - r)/(1 + r) r^|z| at z.

    Here r = e^(-1/scale). Each is (sensitivity/scale)-DP, and better than that below this epsilon when the
    sensitivity is above one. The sensitivity is of one integer; it is not the L1 norm of a vector.
    """

    kind = "discrete_laplace"
    scale: float
    sensitivity: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        scale = validate.positive("scale", self.scale, hint="Pass a noise scale such as scale=2.0.")
        hint = "Pass a whole number such as sensitivity=1."
        sensitivity = validate.whole("sensitivity", self.sensitivity, low=1, high=10**9, hint=hint)
        if not sensitivity <= 500 * scale:
            raise InvalidValue(f"scale={scale:g} gives an epsilon above 500. Pass at least sensitivity / 500.")
        self._set(count=self.count, scale=scale, sensitivity=sensitivity)


@dataclass(frozen=True)
class BoundedRange(_Spend):
    """`count` mechanisms whose privacy loss, over all outputs, lies in an interval of length epsilon each.

    For a pair of neighbours, ln P(o)/Q(o) differs by at most epsilon between any two outputs o, as for one pick by the
    exponential mechanism (a private median, for instance). Each is epsilon-DP, and epsilon^2/8-zCDP, a quarter of
    what epsilon-DP alone costs (Durfee and Rogers 2019; Cesar and Rogers 2021).
    """

    kind = "bounded_range"
    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        self._set(count=self.count, epsilon=validate.positive("epsilon", validate.epsilon(self.epsilon), hint=_RANGE))


@dataclass(frozen=True)
class ZeroConcentrated(_Spend):
    """`count` mechanisms of which nothing is known but that each is rho-zCDP."""

    kind = "zero_concentrated"
    rho: float
    count: int = 1

    def __post_init__(self) -> None:
        rho = validate.between("rho", self.rho, 1e-300, 1e6, hint="Pass a zCDP budget such as rho=0.1.")
        self._set(count=self.count, rho=rho)


@dataclass(frozen=True)
class Renyi(_Spend):
    """`count` mechanisms of which nothing is known but that each is (order, tau)-Renyi private for every pair listed.

    For each of the increasing `orders`, all above 1, the Renyi divergence of the outputs of neighbours is at most the
    tau at the same place of `taus`, in both directions. What leaks beside that is a spend of its own, such as
    `Approximate(0.0, 1e-9)`; it must be the same leak for all orders.

    >>> Renyi([2, 16], [0.04, 0.4], count=3)
    Renyi(orders=(2.0, 16.0), taus=(0.04, 0.4), count=3)
    """

    kind = "renyi"
    orders: tuple[float, ...]
    taus: tuple[float, ...]
    count: int = 1

    def __init__(self, orders: Iterable[float], taus: Iterable[float], count: int = 1) -> None:
        increasing = "Pass increasing orders above 1, such as orders=[2, 8, 32]."
        bounds = "Pass a bound on the divergence of each order, such as taus=[0.1, 0.4, 1.6]."
        checked = _numbers("orders", orders, increasing), _numbers("taus", taus, bounds)
        for order in checked[0]:
            validate.between("orders", order, 1.0, 1e9, hint=increasing)
        for tau in checked[1]:
            validate.between("taus", tau, 0.0, 1e9, hint=bounds)
        if checked[0][0] == 1 or any(low >= high for low, high in pairwise(checked[0])):
            raise InvalidValue(f"orders do not increase from above 1. {increasing}")
        if len(checked[0]) != len(checked[1]):
            raise InvalidValue(f"taus has {len(checked[1])} numbers for {len(checked[0])} orders. {bounds}")
        self._set(orders=checked[0], taus=checked[1], count=count)


Spend: TypeAlias = Approximate | Gaussian | DiscreteLaplace | BoundedRange | ZeroConcentrated | Renyi
_KINDS: dict[str, type[Spend]] = {kind.kind: kind for kind in get_args(Spend)}


def spend_from_json(data: Mapping[str, Any]) -> Spend:
    """Return the spend that `to_json` described; anything else is refused.

    >>> spend_from_json({"kind": "gaussian", "sigma": 2.0, "sensitivity": 1.0, "count": 3})
    Gaussian(sigma=2.0, sensitivity=1.0, count=3)
    """
    if not isinstance(data, Mapping):
        raise InvalidType("data must be a mapping made by to_json. Pass that dict.")
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidValue(f"data has no known 'kind' of spend. Use one of {', '.join(_KINDS)}.")
    names = {field.name for field in fields(_KINDS[kind])}
    if set(data) != names | {"kind"}:
        fix = f"Give kind, {', '.join(sorted(names))} and nothing else."
        raise InvalidValue(f"data of kind '{kind}' does not fit. {fix}")
    return _KINDS[kind](**{name: data[name] for name in names})


def basic(spends: Iterable[Spend]) -> tuple[float, float]:
    """Return (sum of epsilons, sum of deltas), each rounded up: basic composition.

    Only `Approximate`, `DiscreteLaplace` and `BoundedRange` have such a sum; others are refused. Where the
    deltas add up to one or more, the delta is 1 - prod(1 - delta), which holds as well (Kairouz et al. 2015).

    >>> basic([Approximate(0.5, 2.0**-20), Approximate(0.25, 0.0, count=2)]) == (1.0, 2.0**-20)
    True
    """
    parts = checked_spends(spends)
    epsilon, delta = sum_of_epsilons(parts), _sum_of_deltas(parts)
    if epsilon == math.inf:
        raise InvalidValue("spends holds one without a single epsilon. Use Composition(spends) instead of basic.")
    return epsilon, delta if delta < 1 else leak(parts)


def leak(spends: tuple[Spend, ...]) -> float:
    """Return the probability that any of the (epsilon, delta)-DP spends leaks everything, rounded up."""
    deltas = [(spend.delta, spend.count) for spend in spends if isinstance(spend, Approximate)]
    leak = upper(lambda: -sum(((-ball(delta)).log1p() * count for delta, count in deltas), ball(0)).expm1())
    # The sum is larger by its nature, and exact where the product is rounded, as for one spend.
    return min(1.0, leak, _sum_of_deltas(spends))


def _sum_of_deltas(spends: tuple[Spend, ...]) -> float:
    deltas = [(spend.delta, spend.count) for spend in spends if isinstance(spend, Approximate)]
    return upper(lambda: sum((ball(delta) * count for delta, count in deltas), ball(0)))


def epsilon_of(spend: Approximate | DiscreteLaplace | BoundedRange) -> float:
    """Return the epsilon of one run, rounded up."""
    if isinstance(spend, Approximate | BoundedRange):
        return spend.epsilon
    return upper(lambda: ball(spend.sensitivity) / ball(spend.scale))


def sum_of_epsilons(spends: tuple[Spend, ...]) -> float:
    """Return the sum of the epsilons of all spends, rounded up, or infinity where a spend has none."""
    pure = (spend for spend in spends if isinstance(spend, Approximate | DiscreteLaplace | BoundedRange))
    pairs = [(epsilon_of(spend), spend.count) for spend in pure]
    if len(pairs) < len(spends):
        return math.inf
    return upper(lambda: sum((ball(epsilon) * count for epsilon, count in pairs), ball(0)))


def checked_spends(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """Return the spends as a tuple; anything else is refused."""
    hint = "Pass a list of Approximate, Gaussian, DiscreteLaplace, BoundedRange, ZeroConcentrated or Renyi."
    if not isinstance(spends, Iterable):
        raise InvalidType(f"spends must be a list, not {type(spends).__name__}. {hint}")
    parts = tuple(spends)
    for part in parts:
        if not isinstance(part, Spend):
            raise InvalidType(f"spends must hold spends, not {type(part).__name__}. {hint}")
    return parts


def _numbers(name: str, values: Iterable[float], hint: str) -> tuple[float, ...]:
    """Return a list of numbers, some but not too many, as a tuple."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | Set):
        raise InvalidType(f"{name} must be a list of numbers, not {type(values).__name__}. {hint}")
    numbers = tuple(validate.real(name, value, hint=hint) for value in islice(values, _MOST_ORDERS + 1))
    if not 1 <= len(numbers) <= _MOST_ORDERS:
        raise InvalidValue(f"{name} must hold 1 to {_MOST_ORDERS} numbers. {hint}")
    return numbers
