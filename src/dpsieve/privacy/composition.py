"""Different guarantees together: what a list of spends costs, always as an upper bound.

A spend says which mechanism was run, how often; a `Composition` turns a list of them into a curve delta(epsilon). The
spends may be chosen adaptively, one after the other, and must share one relation of neighbours and one privacy unit: the
curve inherits them. Every spend but zCDP has a privacy loss distribution: the distribution of the loss L = ln P(o)/Q(o)
at an output o drawn from P, for the worst pair of neighbours P, Q. Losses of independent outputs add, and

    delta(epsilon) = E[max(0, 1 - e^(epsilon - L))].

How the curve is made, and why it is never too low:

1. (epsilon, delta)-DP is leaking everything with probability delta, else randomised response, loss +-epsilon (Kairouz, Oh
   and Viswanath 2015). The leaks together are 1 - prod(1 - delta). A discrete Laplace of sensitivity s and scale b has the
   losses (s - 2j)/b for j = 0..s.
2. A dominating pair for each part is one for the whole (Zhu, Dong and Wang, AISTATS 2022, Theorem 10).
3. Equal spends are convolved on their own lattice of losses; different lattices meet on a common grid. A loss between two
   grid points is split over both so that its mass under P and under Q stays the same. That spreads Q/P and keeps its
   mean, so by convexity delta grows at every epsilon, and by the square of the step only (Doroshenko et al.,
   "Connect the Dots", PETS 2022).
4. Convolutions are plain sums of positive products, never differences or Fourier transforms, so small probabilities
   keep their digits. Bounds on all roundings are added up and given back.
5. Gaussians are one Gaussian, their mu = sensitivity/sigma adding in squares (Dong, Roth and Su 2022). Its exact curve
   is averaged over the other losses; it never touches the grid.
6. rho-zCDP has no worst pair, and a Gaussian of the same rho does not dominate it. Its rhos add up; the sum is combined with
   the rest in two sound ways, of which the better counts. (a) All is concentrated: epsilon-DP is
   epsilon^2/2-zCDP, a Gaussian mu^2/2-zCDP, and leaks stay apart (Bun and Steinke, TCC 2016, Proposition 3.3 and
   Section 8). (b) The zCDP part is (e, d)-DP for every point of its own curve, so it may join the rest
   as such a spend; the best point is searched for.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.gaussian import gaussian_curve
from dpsieve.privacy.rigorous import ball, minimise, smallest_epsilon, upper
from dpsieve.privacy.zcdp import zcdp_delta

_Array: TypeAlias = NDArray[np.float64]

_ULP = 2.0**-52
# Mass that a convolution may move to an infinite loss; a curve is not told apart from zero below it.
_TAIL = 2.0**-120
# A sum of bounded losses leaves this many standard deviations (of the bounds) with less than _TAIL, by Hoeffding.
_REACH = 13.0
_GRID = 2**17
# Up to this sensitivity * sqrt(count) a discrete Laplace keeps its own losses; beyond it counts as epsilon-DP.
_LATTICE = 1000


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
        sigma = validate.positive("sigma", self.sigma, hint="Pass a standard deviation such as sigma=2.0.")
        hint = "Pass an L2 distance such as sensitivity=1.0."
        sensitivity = validate.positive("sensitivity", self.sensitivity, hint=hint)
        self._set(count=self.count, sigma=sigma, sensitivity=sensitivity)


@dataclass(frozen=True)
class DiscreteLaplace(_Spend):
    """`count` integers with noise of mass (1 - r)/(1 + r) r^|z| at z, r = e^(-1/scale), that change by at most `sensitivity`.

    Each is (sensitivity/scale)-DP, and better than that below this epsilon when the sensitivity is above one.
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
_KINDS: dict[str, type[Spend]] = {
    spend.kind: spend for spend in (Approximate, Gaussian, DiscreteLaplace, ZeroConcentrated)
}


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
        raise InvalidValue(
            f"data of kind '{kind}' does not fit. Give kind, {', '.join(sorted(names))} and nothing else."
        )
    return _KINDS[kind](**{name: data[name] for name in names})


def basic(spends: Iterable[Spend]) -> tuple[float, float]:
    """Return (sum of epsilons, sum of deltas), each rounded up: basic composition.

    Only spends with one epsilon have such a sum, `Approximate` and `DiscreteLaplace`; others are refused. Where the deltas
    add up to one or more, the delta is 1 - prod(1 - delta), which holds as well (Kairouz, Oh and Viswanath 2015).

    >>> basic([Approximate(0.5, 2.0**-20), Approximate(0.25, 0.0, count=2)]) == (1.0, 2.0**-20)
    True
    """
    parts = _checked(spends)
    if not all(isinstance(part, Approximate | DiscreteLaplace) for part in parts):
        raise InvalidValue("spends holds one without a single epsilon. Use Composition(spends) instead of basic.")
    plain = upper(
        lambda: sum((ball(part.delta) * part.count for part in parts if isinstance(part, Approximate)), ball(0))
    )
    return _sum_of_epsilons(parts), plain if plain < 1 else _leak(parts)


@dataclass(frozen=True)
class Composition:
    """All `spends` together, as a curve of (epsilon, delta) guarantees. An empty list spends nothing.

    `delta(epsilon)` and `epsilon(delta)` are upper bounds, never worse than `basic`. Epsilon has four correct digits or more
    (far more for few kinds of spends). Different spends cost about a millisecond each, equal ones are joined first; memory
    stays at some megabytes.

    >>> spends = Composition([Approximate(0.1, 1e-9, count=50), Gaussian(10.0), DiscreteLaplace(20.0, count=20)])
    >>> round(spends.epsilon(1e-6), 2), f"{spends.delta(4.0):.2g}"
    (3.83, '3.6e-07')
    """

    spends: tuple[Spend, ...]

    def __init__(self, spends: Iterable[Spend]) -> None:
        object.__setattr__(self, "spends", _checked(spends))

    def delta(self, epsilon: float) -> float:
        """Return a delta for which the composition is (epsilon, delta)-DP, rounded up; 1.0 promises nothing."""
        epsilon = validate.epsilon(epsilon)
        best = self._simple(epsilon)
        if self._rho == 0 or self._curve.empty:
            return best
        return min(best, self._joined(epsilon, self._best_point(epsilon)))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for which the composition is (epsilon, delta)-DP, rounded up.

        Infinity where no epsilon up to 500 is found, as for a delta below 1 - prod(1 - delta) of the spends.
        """
        delta = validate.delta(delta)
        best = smallest_epsilon(lambda epsilon: self._simple(epsilon) <= delta)
        while self._rho > 0 and not self._curve.empty:
            # A better epsilon exists only if some point of the zCDP curve serves at this one.
            point = self._best_point(min(best, 500.0))
            found = self._epsilon_at(point, delta)
            if not found < best * (1 - 1e-6):
                break
            best = found
        return best

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values; `from_json` reads it back exactly."""
        return {"spends": [spend.to_json() for spend in self.spends]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the composition that `to_json` described; anything else is refused."""
        if not isinstance(data, Mapping) or not isinstance(data.get("spends"), list):
            raise InvalidType("data must be a mapping with a list 'spends'. Pass the dict made by to_json.")
        return cls(spend_from_json(part) for part in data["spends"])

    @cached_property
    def _curve(self) -> "_Curve":
        return _Curve(self.spends)

    @cached_property
    def _rho(self) -> float:
        return upper(
            lambda: sum((ball(s.rho) * s.count for s in self.spends if isinstance(s, ZeroConcentrated)), ball(0))
        )

    @cached_property
    def _all_rho(self) -> float:
        curve = self._curve
        squares = [(_epsilon(s), s.count) for s in self.spends if isinstance(s, Approximate | DiscreteLaplace)]
        pure = upper(lambda: sum((ball(e) ** 2 / 2 * count for e, count in squares), ball(0)))
        return upper(lambda: ball(self._rho) + ball(pure) + ball(min(curve.mu, 1e100)) ** 2 / 2)

    @cached_property
    def _pure_epsilon(self) -> float:
        plain = all(isinstance(spend, Approximate | DiscreteLaplace) for spend in self.spends)
        return _sum_of_epsilons(self.spends) if plain else math.inf

    def _simple(self, epsilon: float) -> float:
        leak = self._curve.leak
        if epsilon >= self._pure_epsilon:
            return leak
        return self._curve.delta(epsilon) if self._rho == 0 else _either(leak, zcdp_delta(self._all_rho, epsilon))

    def _joined(self, epsilon: float, point: float) -> float:
        """Return delta where the zCDP part enters as (point, its delta at point)-DP."""
        truth = 1 / (1 + math.exp(-point))
        rest = truth * self._curve.delta(epsilon - point) + (1 - truth) * self._curve.delta(epsilon + point)
        return _either(zcdp_delta(self._rho, point), rest)

    def _epsilon_at(self, point: float, delta: float) -> float:
        return smallest_epsilon(lambda epsilon: self._joined(epsilon, point) <= delta)

    def _best_point(self, epsilon: float) -> float:
        return minimise(lambda point: self._joined(epsilon, point), 0.0, epsilon)


class _Curve:
    """delta(epsilon), for any real epsilon, of all spends but the zCDP ones."""

    def __init__(self, spends: tuple[Spend, ...]) -> None:
        self.leak = _leak(spends)
        gaussians = [spend for spend in spends if isinstance(spend, Gaussian)]
        squares = [(g.sensitivity, g.sigma, g.count) for g in gaussians]
        self.mu = upper(lambda: sum(((ball(s) / ball(b)) ** 2 * c for s, b, c in squares), ball(0)).sqrt())
        groups: Counter[tuple[float, int]] = Counter()
        for spend in spends:
            if isinstance(spend, Approximate) and spend.epsilon > 0:
                groups[(spend.epsilon, 1)] += spend.count
            elif isinstance(spend, DiscreteLaplace):
                fine = spend.sensitivity * math.sqrt(spend.count) <= _LATTICE
                groups[(1 / spend.scale, spend.sensitivity) if fine else (_epsilon(spend), 1)] += spend.count
        self.empty = not groups and self.mu == 0
        unit, self._losses = _compose(groups)
        at = (self._losses.first + np.arange(len(self._losses.mass))) * unit
        self._at: _Array = at + 4 * _ULP * np.abs(at)

    def delta(self, epsilon: float) -> float:
        # With mu above 40 no epsilon up to 500 keeps delta below 1 - 1e-13.
        if self.mu > 40:
            return 1.0
        if self.mu > 0:
            pure = float(self._losses.mass @ gaussian_curve(epsilon - self._at, self.mu))
        else:
            first = int(np.searchsorted(self._at, epsilon, side="right"))
            pure = float(self._losses.mass[first:] @ -np.expm1(epsilon - self._at[first:]))
        error = self._losses.error + (len(self._at) + 16) * _ULP
        return _either(self.leak, pure * (1 + 2 * error) + self._losses.lost)


@dataclass(frozen=True)
class _Losses:
    """A distribution of losses: `mass[i]` at (first + i) units, at most `lost` at infinity.

    Each mass is right up to the factor 1 + `error`.
    """

    first: int
    mass: _Array
    lost: float
    error: float

    def plus(self, other: "_Losses") -> "_Losses":
        """Return the distribution of the sum of two independent losses."""
        short, long = sorted((self, other), key=lambda losses: len(losses.mass))
        mass: _Array = np.zeros(len(long.mass) + len(short.mass) - 1)
        steps = np.flatnonzero(short.mass)
        for step in steps:
            mass[step : step + len(long.mass)] += short.mass[step] * long.mass
        # Rare small losses are rounded up to the first one kept, rare large ones to infinity.
        below = int(np.searchsorted(np.cumsum(mass), _TAIL))
        above = int(np.searchsorted(np.cumsum(mass[::-1]), _TAIL))
        kept = mass[below : len(mass) - above]
        kept[0] += _TAIL
        error = self.error + other.error + (len(steps) + 4) * _ULP
        return _Losses(self.first + other.first + below, kept, self.lost + other.lost + 2 * _TAIL, error)

    def times(self, count: int) -> "_Losses":
        """Return the distribution of the sum of `count` independent losses."""
        if count == 1:
            return self
        half = self.times(count // 2)
        both = half.plus(half)
        return both.plus(self) if count % 2 else both

    def on_grid(self, unit: float, step: float) -> "_Losses":
        """Return a dominating distribution on the multiples of `step`, a power of two."""
        some = np.flatnonzero(self.mass)
        at = (self.first + some) * unit
        at += 4 * _ULP * np.abs(at)
        cells = np.floor(at / step)
        upward = np.expm1(cells * step - at) / np.expm1(-step)
        first = int(cells[0])
        index = cells.astype(np.int64) - first
        mass: _Array = np.zeros(int(index[-1]) + 2)
        np.add.at(mass, index, self.mass[some] * (1 - upward))
        np.add.at(mass, index + 1, self.mass[some] * upward)
        return _Losses(first, mass, self.lost, self.error + (len(some) + 16) * _ULP)


def _compose(groups: Counter[tuple[float, int]]) -> tuple[float, _Losses]:
    """Return the unit and the distribution of the total loss; groups are (1/scale, sensitivity) and their counts."""
    if not groups:
        return 1.0, _Losses(0, np.ones(1), 0.0, 0.0)
    parts = [(unit, reach * unit * count, _single(unit, reach).times(count)) for (unit, reach), count in groups.items()]
    if len(parts) == 1:
        return parts[0][0], parts[0][2]
    spread = math.hypot(*(reach * unit * math.sqrt(count) for (unit, reach), count in groups.items()))
    width = 2 * min(sum(top for _, top, _ in parts), _REACH * spread)
    step = 2.0 ** max(-900, math.floor(math.log2(width / _GRID)))
    # The widest come last, so that most sums are short.
    total, *rest = (part.on_grid(unit, step) for unit, _, part in sorted(parts, key=lambda part: part[1]))
    for part in rest:
        total = total.plus(part)
    return step, total


def _single(unit: float, reach: int) -> _Losses:
    """Return the losses of a discrete Laplace of scale 1/unit and sensitivity `reach`; with 1, of randomised response."""
    mass: _Array = np.zeros(2 * reach + 1)
    steps = np.arange(reach + 1)
    mass[::-2] = np.exp(-steps * unit) / (1 + math.exp(-unit))
    mass[2:-2:2] *= -math.expm1(-unit)
    # e^(-500) loses up to 500 roundings of its exponent.
    return _Losses(-reach, mass, 0.0, 1024 * _ULP)


def _either(first: float, second: float) -> float:
    """Return 1 - (1 - first)(1 - second), rounded up, at most 1."""
    return min(1.0, (first + (1 - min(1.0, first)) * second) * (1 + 8 * _ULP))


def _leak(spends: tuple[Spend, ...]) -> float:
    deltas = [(spend.delta, spend.count) for spend in spends if isinstance(spend, Approximate)]
    return upper(lambda: -sum(((-ball(delta)).log1p() * count for delta, count in deltas), ball(0)).expm1())


def _epsilon(spend: Approximate | DiscreteLaplace) -> float:
    if isinstance(spend, Approximate):
        return spend.epsilon
    return upper(lambda: ball(spend.sensitivity) / ball(spend.scale))


def _sum_of_epsilons(spends: tuple[Spend, ...]) -> float:
    pairs = [(_epsilon(spend), spend.count) for spend in spends if isinstance(spend, Approximate | DiscreteLaplace)]
    return upper(lambda: sum((ball(epsilon) * count for epsilon, count in pairs), ball(0)))


def _checked(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    hint = "Pass a list of Approximate, Gaussian, DiscreteLaplace or ZeroConcentrated."
    if not isinstance(spends, Iterable):
        raise InvalidType(f"spends must be a list, not {type(spends).__name__}. {hint}")
    parts = tuple(spends)
    for part in parts:
        if not isinstance(part, Spend):
            raise InvalidType(f"spends must hold spends, not {type(part).__name__}. {hint}")
    return parts
