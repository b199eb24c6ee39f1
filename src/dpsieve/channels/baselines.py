"""The usual baselines: noise and a threshold.

Each is a distribution of the lag: token = frequency - lag is above zero exactly when the mechanism reports. The noisy
count is the token plus a constant. `papers.weighted_sampling.sampled_stability` samples by the noisy count.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Literal

from flint import arb

from dpsieve.channels.channel import UnknownKeysChannel
from dpsieve.channels.lag import Lag, LagRows
from dpsieve.channels.rows import ONE, Steps
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import floor_bounds, precision

ThresholdKind = Literal["fair", "paper"]
_BITS = 320


@dataclass(frozen=True)
class LaplaceCut:
    """Where a stability histogram cuts: report when frequency + Lap(1/epsilon) >= T = 1 + ln(1/(2 delta)) / epsilon.

    The paper's T = 1 + ln(1/delta) / epsilon reports a key of frequency one with probability delta / 2 only. Parameters
    are tightened (see `channels.rows`): `rate` is that of the noise, `above` the least integer above the threshold.
    """

    rate: float
    threshold: float
    above: int
    lag: Lag

    @classmethod
    def of(cls, epsilon: float, delta: float, *, paper: bool, split: bool = False) -> "LaplaceCut":
        """Return the cut and its lag: token s stands for noisy values in [T + s - 1, T + s), so no report is lost.

        With `split` there are two tokens per unit, 2s - 1 below and 2s above the whole number in that range. Masses are
        rounded down; tails below 2^-128 go to 'nothing'.
        """
        with precision(_BITS):
            steps = Steps(epsilon, delta)
            e = (arb(steps.factor) / arb(2) ** 192).log()
            d = arb(steps.delta) / arb(2) ** 128
            half = -((d if paper else 2 * d).log()) / e  # T - 1
            above = floor_bounds(half)[0] + 2
            first = -math.ceil(128 * math.log(2) / epsilon)
            last = math.ceil(float(half)) + 1 - first
            ends = [end - lag for lag in range(first, last + 2) for end in ([half + 1, arb(above - 1)][: 1 + split])]
            sums = [_laplace_cdf(end, e) for end in ends]
            masses = [max(0, floor_bounds((a - b) * ONE)[0]) for a, b in pairwise(sums)]
            lag = trim_lag(first * (1 + split), masses)
            return cls(float(e), float(half) + 1, above, lag)


def geometric_lag(epsilon: float, delta: float) -> Lag:
    """Return the lag of frequency + X > k, with X two-sided geometric noise cut to [-k, k].

    k = ceil(ln((e^eps + 2 delta - 1) / ((e^eps + 1) delta)) / eps) (Desfontaines, Voss, Gipson and Mandayam, PoPETs
    2022, Section 4); token = frequency + X - k, so the lag is k - X, from 0 to 2k.
    """
    with precision(_BITS):
        steps = Steps(epsilon, delta)
        e, d = arb(steps.factor) / arb(2) ** 192, arb(steps.delta) / arb(2) ** 128
        k = max(1, 1 + floor_bounds(((e + 2 * d - 1) / ((e + 1) * d)).log() / e.log())[0])
        total = 1 + 2 * sum((e**-x for x in range(1, k + 1)), arb(0))
        masses = [floor_bounds(e ** -abs(k - lag) / total * ONE)[0] for lag in range(2 * k + 1)]
        return trim_lag(0, masses)


def _laplace_cdf(x: arb, e: arb) -> arb:
    """Enclose P[Lap(1/e) < x], from the side that keeps the digits of a difference."""
    return (e * x).exp() / 2 if x < 0 else 1 - (-e * x).exp() / 2


def trim_lag(first: int, masses: list[int]) -> Lag:
    """Return the lag distribution without zero masses at its ends."""
    while not masses[-1]:
        masses.pop()
    skip = next(k for k, mass in enumerate(masses) if mass)
    first, masses = first + skip, masses[skip:]
    return Lag(tuple(range(first, first + len(masses) + 1)), tuple(masses))


def stability(epsilon: float, delta: float, *, threshold: ThresholdKind = "fair", unit: str = "one row") -> "Stability":
    """Return the stability histogram, the usual baseline: Laplace noise and a threshold T.

    A key is reported when frequency + Lap(1/epsilon) >= T (Korolova et al. 2009; Bun, Nissim and Stemmer 2019), with
    T = 1 + ln(1/(2 delta))/epsilon for threshold='fair', which uses all of delta, and T = 1 + ln(1/delta)/epsilon for
    threshold='paper', which leaves half of it unused. The token counts whole units above T. A delta above 1/2 is
    refused.
    """
    return Stability(epsilon, delta, threshold=threshold, unit=unit)


def truncated_geometric(epsilon: float, delta: float, *, unit: str = "one row") -> "TruncatedGeometric":
    """Return selection by geometric noise truncated to [-k, k], with the threshold k.

    Near optimal; exactly optimal only if the ceiling in k is tight (Desfontaines, Voss, Gipson and Mandayam, PoPETs
    2022).
    """
    return TruncatedGeometric(epsilon, delta, unit=unit)


def check_threshold_kind(threshold: str, delta: float) -> None:
    """Raise unless a stability histogram has this threshold at this delta."""
    if threshold not in ("fair", "paper"):
        hint = "Pass threshold='fair', or 'paper' to check a figure."
        raise InvalidValue(f"threshold is neither 'fair' nor 'paper'. {hint}")
    if delta > 0.5:
        raise InvalidValue(f"delta={delta:g} is above 1/2, where a stability histogram has no threshold. Use optimal.")


@register("stability")
@dataclass(frozen=True, repr=False)
class Stability(UnknownKeysChannel):
    """See `stability`."""

    threshold: ThresholdKind = field(default="fair", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_threshold_kind(self.threshold, self.delta_)

    @cached_property
    def cut(self) -> LaplaceCut:
        """The noise and the threshold."""
        return LaplaceCut.of(self.epsilon, self.delta_, paper=self.threshold == "paper")

    @cached_property
    def rows(self) -> LagRows:
        """The rows of a lag."""
        return LagRows(1, lambda: self.cut.lag)


@register("truncated_geometric")
@dataclass(frozen=True, repr=False)
class TruncatedGeometric(UnknownKeysChannel):
    """See `truncated_geometric`."""

    @cached_property
    def rows(self) -> LagRows:
        """The rows of a lag."""
        return LagRows(1, lambda: geometric_lag(self.epsilon, self.delta_))
