"""Channels for unknown keys: the optimal ones, which report most keys and order them best, and the usual baselines.

All protect one unit more or less (add/remove). Baselines add noise and have a threshold. Each is a distribution of the
lag: token = frequency - lag is above zero exactly when the mechanism reports, and the noisy count is the token plus a
constant. `papers.weighted_sampling.sampled_stability` samples by the noisy count.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal

from flint import arb

from dpsieve import validate
from dpsieve.channels.channel import UnknownKeysChannel
from dpsieve.channels.lag import Lag, LagRows, optimal_lag
from dpsieve.channels.rows import ONE, Rows, Steps
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact.balls import floor_bounds, precision
from dpsieve.sampling.schemes import Scheme
from dpsieve.validate import SMALLEST_EPSILON, check_max_rows

ThresholdKind = Literal["fair", "paper"]
_BITS = 320


def optimal(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> "Optimal":
    """Return the channel with the largest reporting probability for every frequency, and the best order of keys.

    Algorithm 5 of Cohen, Geri, Sarlos and Stemmer (2021), corrected. With a scheme that samples a key of frequency i
    with probability q_i (none: q = 1), it is reported with probability
    pi_i = min(q_i, e^epsilon pi_(i-1) + delta, 1 - e^-epsilon (1 - pi_(i-1) - delta)), pi_0 = 0: the largest that any
    (epsilon, delta)-private mechanism allows. Any pair of keys is ranked correctly with the largest probability:
    without a scheme among all private channels, with a scheme among those with the same reporting probabilities. At
    small sampling rates the table follows a staircase below the scheme, and pi_i is up to 0.1 % lower: see `loss`.

    Args:
        epsilon: the budget, from 0.001 to 50.
        delta: the largest probability of reporting a key that one unit alone holds, from 1e-20.
        scheme: a sampling scheme such as `dpsieve.ppswor(0.01)`.
        unit: the privacy unit, as named in the guarantee.

    >>> channel = optimal(1.0, 1e-8)
    >>> channel.reporting_probability([1, 10, 20, 40]).round(8).tolist()
    [1e-08, 0.00012818, 0.91637981, 1.0]
    """
    return Optimal(epsilon, delta, scheme, unit=unit)


def simple(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> "Simple":
    """Return the channel with the same reporting probabilities as `optimal` and the tokens 1 to the frequency.

    Algorithm 4 of Cohen, Geri, Sarlos and Stemmer (2021): easier to read, slightly worse at ranking keys.

    >>> simple(0.5, 0.01).row(3).right.tolist()
    [1, 2, 3]
    """
    return Simple(epsilon, delta, scheme, unit=unit)


def rows_of_units(epsilon: float, delta: float, max_rows: int, *, unit: str = "one row") -> "RowsOfUnits":
    """Return the channel for frequencies that one unit changes by up to `max_rows`, in one key.

    It is `simple` with units of `max_rows` rows, its lag spread evenly over each unit. A change by 1 to max_rows moves
    at most delta in and out, and multiplies no probability by more than e^epsilon; the kernel checks every step.

    >>> rows_of_units(1.0, 1e-6, max_rows=10).reporting_probability([10, 300]).round(7).tolist()
    [1e-06, 1.0]
    """
    return RowsOfUnits(epsilon, delta, max_rows, unit=unit)


@dataclass(frozen=True, repr=False)
class _Weighted(UnknownKeysChannel):
    """Algorithms 4 and 5, in closed form without sampling."""

    scheme: Scheme | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scheme is not None:
            hint = "Pass a smaller one; with a sampling scheme it may be 40 at most."
            validate.between("epsilon", self.epsilon, SMALLEST_EPSILON, 40.0, hint=hint)

    @property
    def _parts(self) -> int:
        return 1

    @cached_property
    def rows(self) -> Rows:
        """The rows of a lag; with a scheme, rows computed step by step."""
        if self.scheme is None:
            return LagRows(self._parts, lambda: optimal_lag(self.epsilon, self.delta_, self._parts))
        return self._sampled(_units(self.epsilon, self.delta_), self.scheme)

    def _sampled(self, spread: int, scheme: Scheme) -> Rows:
        """Return the rows with a scheme."""
        from dpsieve.channels.stepwise import StepRows

        return StepRows(Steps(self.epsilon, self.delta_), self._parts, spread, scheme)


@register("simple")
@dataclass(frozen=True, repr=False)
class Simple(_Weighted):
    """See `simple`."""


@register("optimal")
@dataclass(frozen=True, repr=False)
class Optimal(_Weighted):
    """See `optimal`."""

    @property
    def _parts(self) -> int:
        """The parts of a unit: masses have at least 46 bits, and a row stays below 2^30 parts."""
        room = 30 - math.log2(_units(self.epsilon, self.delta_))
        return 1 << max(0, min(20, math.floor(math.log2(self.delta_) + 128 - 46), math.floor(room)))

    @property
    def loss(self) -> float:
        """The largest relative shortfall of a reporting probability from the largest possible one.

        It is 0 (below 1e-9) without a scheme and for tables of up to 2^19 cells. Beyond, it is measured on the table:
        mostly at most 0.001, more at epsilons below 0.01 or above 7, and for schemes that jump (see `channels.ladder`).
        """
        return self.rows.loss

    def _sampled(self, spread: int, scheme: Scheme) -> Rows:
        from dpsieve.channels.ladder import sampled_rows

        return sampled_rows(self.epsilon, self.delta_, self._parts, spread, scheme)


@register("rows_of_units")
@dataclass(frozen=True, repr=False)
class RowsOfUnits(UnknownKeysChannel):
    """See `rows_of_units`."""

    max_rows: Annotated[int, check_max_rows]

    @cached_property
    def rows(self) -> Rows:
        return LagRows(1, self._lag, step=self.max_rows)

    def _lag(self) -> Lag:
        lag, rows = optimal_lag(self.epsilon, self.delta_, 1), self.max_rows
        return Lag(tuple(edge * rows for edge in lag.edges), tuple(mass // rows for mass in lag.masses))


def _units(epsilon: float, delta: float) -> int:
    """Return an upper bound on the units that a row spreads over.

    That is 2 L + 1 (L as in Lemma 4.2 of the paper) while delta may vanish at each step. It may not while 'nothing'
    itself shrinks by e^-epsilon, which happens at most ln(1/delta)/epsilon times.
    """
    return math.ceil(3 / epsilon * math.log1p(math.expm1(epsilon) / delta)) + 4


def stability_lag(epsilon: float, delta: float, *, paper: bool) -> Lag:
    """Return the lag of frequency + Lap(1/epsilon) >= T: token s stands for noisy values in [T + s - 1, T + s).

    So no report is lost. Masses are rounded down; tails below 2^-128 go to 'nothing'.
    """
    with precision(_BITS):
        e, half = laplace_threshold(epsilon, delta, paper=paper)
        first = -math.ceil(128 * math.log(2) / epsilon)
        last = math.ceil(float(half)) + 1 - first
        sums = [laplace_cdf(half + 1 - lag, e) for lag in range(first, last + 2)]
        return trim_lag(first, [max(0, floor_bounds((a - b) * ONE)[0]) for a, b in pairwise(sums)])


def laplace_threshold(epsilon: float, delta: float, *, paper: bool) -> tuple[arb, arb]:
    """Return the tightened epsilon (see `channels.rows`) and T - 1, for T = 1 + ln(1/(2 delta)) / epsilon.

    The paper's T = 1 + ln(1/delta) / epsilon reports a key of frequency one with probability delta / 2 only.
    """
    steps = Steps(epsilon, delta)
    e, d = (arb(steps.factor) / arb(2) ** 192).log(), arb(steps.delta) / arb(2) ** 128
    return e, -((d if paper else 2 * d).log()) / e


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


def laplace_cdf(x: arb, e: arb) -> arb:
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
    def rows(self) -> LagRows:
        return LagRows(1, lambda: stability_lag(self.epsilon, self.delta_, paper=self.threshold == "paper"))


@register("truncated_geometric")
@dataclass(frozen=True, repr=False)
class TruncatedGeometric(UnknownKeysChannel):
    """See `truncated_geometric`."""

    @cached_property
    def rows(self) -> LagRows:
        return LagRows(1, lambda: geometric_lag(self.epsilon, self.delta_))
