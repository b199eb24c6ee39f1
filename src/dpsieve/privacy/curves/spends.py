"""Spends: which mechanism was run, and how often. Values that can be checked, compared and stored."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeAlias, get_args

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy.curves.gaussian import checked_noise


@dataclass(frozen=True)
class _Spend:
    """What all spends share: plain checked values, and JSON."""

    kind: ClassVar[str]

    def _set(self, *, count: int, **checked: float) -> None:
        count = validate.whole("count", count, low=1, high=10**6, hint="Pass how often it ran, such as count=1.")
        for name, value in {**checked, "count": count}.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values, with the kind of the spend; `spend_from_json` reads it back exactly."""
        return {"kind": self.kind, **asdict(self)}

    def words(self) -> str:
        """Return the spend for people."""
        values = asdict(self)
        kind, count = self.kind.replace("_", " "), values.pop("count")
        numbers = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
        return f"{kind}: {numbers}" if count == 1 else f"{count:,} times {kind}: {numbers}"


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
class ZeroConcentrated(_Spend):
    """`count` mechanisms of which nothing is known but that each is rho-zCDP."""

    kind = "zero_concentrated"
    rho: float
    count: int = 1

    def __post_init__(self) -> None:
        rho = validate.between("rho", self.rho, 1e-300, 1e6, hint="Pass a zCDP budget such as rho=0.1.")
        self._set(count=self.count, rho=rho)


Spend: TypeAlias = Approximate | Gaussian | DiscreteLaplace | ZeroConcentrated
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

    Only spends with one epsilon have such a sum, `Approximate` and `DiscreteLaplace`; others are refused. Where the
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


def epsilon_of(spend: Approximate | DiscreteLaplace) -> float:
    """Return the epsilon of one run, rounded up."""
    if isinstance(spend, Approximate):
        return spend.epsilon
    return upper(lambda: ball(spend.sensitivity) / ball(spend.scale))


def sum_of_epsilons(spends: tuple[Spend, ...]) -> float:
    """Return the sum of the epsilons of all spends, rounded up, or infinity where a spend has none."""
    pairs = [(epsilon_of(spend), spend.count) for spend in spends if isinstance(spend, Approximate | DiscreteLaplace)]
    if len(pairs) < len(spends):
        return math.inf
    return upper(lambda: sum((ball(epsilon) * count for epsilon, count in pairs), ball(0)))


def checked_spends(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    """Return the spends as a tuple; anything else is refused."""
    hint = "Pass a list of Approximate, Gaussian, DiscreteLaplace or ZeroConcentrated."
    if not isinstance(spends, Iterable):
        raise InvalidType(f"spends must be a list, not {type(spends).__name__}. {hint}")
    parts = tuple(spends)
    for part in parts:
        if not isinstance(part, Spend):
            raise InvalidType(f"spends must hold spends, not {type(part).__name__}. {hint}")
    return parts
