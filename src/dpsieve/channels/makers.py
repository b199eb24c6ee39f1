"""The channels by name. All protect one unit more or less (add/remove neighbours)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

from dpsieve import validate
from dpsieve.channels.channel import Channel
from dpsieve.channels.grid import Steps
from dpsieve.channels.lag.baselines import LaplaceCut, geometric_lag
from dpsieve.channels.lag.optimal import Lag, optimal_lag
from dpsieve.channels.lag.rows import LagRows
from dpsieve.channels.rows import Rows
from dpsieve.channels.stepwise.sampled import SampledRows
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy import Approximate, Certificate, Guarantee, Spend, gaussian_sigma
from dpsieve.privacy import Gaussian as GaussianSpend
from dpsieve.privacy.certificate import whole_unit
from dpsieve.privacy.registry import register
from dpsieve.sampling.schemes import DataDependent, Scheme, everything, scheme_from_json

SMALLEST_EPSILON, LARGEST_EPSILON, SMALLEST_DELTA = 1e-3, 50.0, 1e-20
MOST_KEYS, MOST_ROWS = 10_000, 1_000
_FOR_GRID = 1e-6  # of delta, for rounding the masses
_SAVED = "Pass the saved one."


def optimal(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> "Optimal":
    """Return the channel that reports every key as often as any private channel may, and orders keys best.

    Algorithm 5 of Cohen, Geri, Sarlos and Stemmer (2021), corrected. With a scheme that samples a key of frequency i
    with probability q_i (none: q = 1), it is reported with probability
    pi_i = min(q_i, e^epsilon pi_(i-1) + delta, 1 - e^-epsilon (1 - pi_(i-1) - delta)), pi_0 = 0: the largest that any
    (epsilon, delta)-private mechanism allows. Any two keys come out in their true order with the largest probability:
    without a scheme among all private channels, with one among those with the same reporting probabilities (another may
    order one pair better by reporting the lower key less). At small sampling rates the table is made on stairs a little
    below the scheme, and pi_i is up to 0.1 % lower: `loss` says how much.

    Args:
        epsilon: the budget, from 0.001 to 50.
        delta: the probability with which a key of one unit may show, from 1e-20.
        scheme: a sampling scheme such as `dpsieve.ppswor(0.01)`.
        unit: who is protected, in words, for the guarantee.

    >>> channel = optimal(1.0, 1e-8)
    >>> channel.reporting_probability([1, 10, 20, 40]).round(8).tolist()
    [1e-08, 0.00012818, 0.91637981, 1.0]
    """
    return Optimal(epsilon, delta, scheme, unit=unit)


def simple(epsilon: float, delta: float, scheme: Scheme | None = None, *, unit: str = "one row") -> "Simple":
    """Return the channel with the same reporting probabilities as `optimal` and whole tokens from 1 to the frequency.

    Algorithm 4 of Cohen, Geri, Sarlos and Stemmer (2021): easier to read, slightly worse at telling keys apart.

    >>> simple(0.5, 0.01).row(3).right.tolist()
    [1.0, 2.0, 3.0]
    """
    return Simple(epsilon, delta, scheme, unit=unit)


def stability(
    epsilon: float, delta: float, scheme: Scheme | None = None, *, threshold: str = "fair", unit: str = "one row"
) -> "Stability":
    """Return the stability histogram, the usual baseline: Laplace noise, and nothing below a threshold T.

    A key is reported when frequency + Lap(1/epsilon) >= T (Korolova et al. 2009; Bun, Nissim and Stemmer 2019), with
    T = 1 + ln(1/(2 delta))/epsilon for threshold='fair', which uses all of delta, and T = 1 + ln(1/delta)/epsilon for
    threshold='paper', which leaves half of it unused. The token counts whole units above T. With a scheme, a reported
    key of noisy count x is kept with probability q(x) (sampled SbH): a key of frequency i is reported with probability

        phi_i = integral over x >= T of q(x) epsilon/2 e^(-epsilon |x - i|)

    (Cohen, Geri, Sarlos and Stemmer 2020, appendix E), to 1e-9 for smooth schemes and tables, and the token tells x to
    half a unit or so (see `channels.lag.sampled_stability`). For delta above 1/2 use another channel.
    """
    return Stability(epsilon, delta, scheme, threshold=threshold, unit=unit)


def truncated_geometric(epsilon: float, delta: float, *, unit: str = "one row") -> "TruncatedGeometric":
    """Return selection by geometric noise that is cut to [-k, k], and reported when it is above k.

    Near optimal; exactly so only when the ceiling in k is tight (Desfontaines, Voss, Gipson and Mandayam, PoPETs 2022).
    """
    return TruncatedGeometric(epsilon, delta, unit=unit)


def rows_of_units(epsilon: float, delta: float, max_rows: int, *, unit: str = "one row") -> "RowsOfUnits":
    """Return the channel for frequencies that one unit changes by up to `max_rows`, in one key.

    It is `simple` with units of `max_rows` rows, its lag spread evenly over each unit. So any change by 1 to max_rows
    moves delta at most in and out, and multiplies no probability by more than e^epsilon: the kernel checks every step.

    >>> rows_of_units(1.0, 1e-6, max_rows=10).reporting_probability([10, 300]).round(7).tolist()
    [1e-06, 1.0]
    """
    return RowsOfUnits(epsilon, delta, max_rows, unit=unit)


def gaussian(
    epsilon: float, delta: float, max_keys: int = 1, max_rows: int = 1, *, unit: str = "one row"
) -> "Gaussian":
    """Return Gaussian noise with a threshold, for units of at most `max_keys` keys with `max_rows` rows each.

    The guarantee is for a whole unit, added or removed: the exact one of `channels.lag.gaussian_threshold`. Among all
    (sigma, threshold) that keep it, those with the lowest threshold are taken.

    >>> channel = gaussian(1.0, 1e-5, max_keys=10)
    >>> round(channel.threshold, 2)
    57.08
    """
    from dpsieve.channels.lag.gaussian_threshold import gaussian_threshold

    epsilon, delta = unknown_domain(epsilon, delta)
    keys, rows = most_keys(max_keys), most_rows(max_rows)
    sigma, gap = gaussian_threshold(epsilon, delta * (1 - _FOR_GRID), keys)
    return Gaussian(epsilon, delta, keys, rows, sigma * rows, (1 + gap) * rows, unit=unit)


def _scheme(data: Any) -> Scheme | None:
    return None if data is None else scheme_from_json(data)


@dataclass(frozen=True, repr=False)
class _Made(Channel):
    """Checks the budget, and a scheme if there is one."""

    readers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"scheme": _scheme}

    def __post_init__(self) -> None:
        unknown_domain(self.epsilon, self.delta_)
        super().__post_init__()
        if self.scheme is not None:
            self._set(scheme=None if self.scheme == everything() else checked_scheme(self.scheme))

    def to_json(self) -> dict[str, Any]:
        """Return the name and the fields; a scheme made from a function is named as one that cannot be saved."""
        try:
            return super().to_json()
        except InvalidType:
            plain: dict[str, Any] = replace(self, scheme=None).to_json()  # type: ignore[call-arg]
            return {**plain, "scheme": "a function, which cannot be saved"}

    @cached_property
    def _steps(self) -> Steps:
        return Steps(self.epsilon, self.delta_)


@dataclass(frozen=True, repr=False)
class _Weighted(_Made):
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
        """The rows: of a lag, or made step by step with a scheme."""
        if self.scheme is None:
            return LagRows(self._parts, lambda: optimal_lag(self._steps, self._parts))
        return self._sampled(_units(self.epsilon, self.delta_), self.scheme)

    def _sampled(self, spread: int, scheme: Scheme) -> SampledRows:
        """Return the rows with a scheme."""
        from dpsieve.channels.stepwise.rows import StepRows

        return StepRows(self._steps, self._parts, spread, scheme)


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
        """How many parts a unit is cut into: the masses keep 46 bits, and a row stays below 2^30 parts."""
        room = 30 - math.log2(_units(self.epsilon, self.delta_))
        return 1 << max(0, min(20, math.floor(math.log2(self.delta_) + 128 - 46), math.floor(room)))

    @property
    def loss(self) -> float:
        """How much less often than it might a key is reported, at most, relatively: 0 without a scheme.

        With one it is 0 for tables of up to 2^19 cells and mostly at most 0.001 beyond, measured on the table, and
        more at epsilons below 0.01 or above 7, and for schemes that jump (see `channels.ladder.rows`). A loss of 0
        stands for less than 1e-9.
        """
        return self.rows.loss if isinstance(self.rows, SampledRows) else 0.0

    def _sampled(self, spread: int, scheme: Scheme) -> SampledRows:
        from dpsieve.channels.ladder.rows import sampled_rows

        return sampled_rows(self.epsilon, self.delta_, self._parts, spread, scheme)


@register("stability")
@dataclass(frozen=True, repr=False)
class Stability(_Made):
    """See `stability`."""

    scheme: Scheme | None = None
    threshold: str = field(default="fair", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold not in ("fair", "paper"):
            hint = "Pass threshold='fair', or 'paper' to check a figure."
            raise InvalidValue(f"threshold is neither 'fair' nor 'paper'. {hint}")
        if self.delta_ > 0.5:
            why = "is above 1/2, where a stability histogram has no threshold. Use optimal."
            raise InvalidValue(f"delta={self.delta_:g} {why}")

    @cached_property
    def rows(self) -> Rows:
        """The rows: of a lag, thinned if there is a scheme."""
        split = self.scheme is not None
        cut = LaplaceCut.of(self.epsilon, self.delta_, paper=self.threshold == "paper", split=split)
        if self.scheme is None:
            return LagRows(1, lambda: cut.lag)
        from dpsieve.channels.lag.sampled_stability import ThinnedRows

        return ThinnedRows(self._steps, cut, self.scheme)


@register("truncated_geometric")
@dataclass(frozen=True, repr=False)
class TruncatedGeometric(_Made):
    """See `truncated_geometric`."""

    @cached_property
    def rows(self) -> Rows:
        """The rows of a lag."""
        return LagRows(1, lambda: geometric_lag(self.epsilon, self.delta_))


@register("rows_of_units")
@dataclass(frozen=True, repr=False)
class RowsOfUnits(_Made):
    """See `rows_of_units`."""

    max_rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(max_rows=most_rows(self.max_rows))

    @cached_property
    def rows(self) -> Rows:
        """The rows of a lag that is spread over the rows of a unit."""
        return LagRows(1, self._lag, step=self.max_rows)

    def _lag(self) -> Lag:
        whole, rows = optimal_lag(self._steps, 1), self.max_rows
        return Lag([edge * rows for edge in whole.edges], [mass // rows for mass in whole.masses])


@register("gaussian")
@dataclass(frozen=True, repr=False)
class Gaussian(_Made):
    """See `gaussian`.

    What it spends. A unit holds C keys, of which nobody else holds j. Whether these j show is one part of the output,
    and the noisy counts of the others, a Gaussian vector whose mean moves by sqrt(C - j) at most, are the other; both
    are independent. The first pair is 'nothing' against 'nothing' with probability 1 - d_j and something shown with
    d_j = 1 - Phi(gap/sigma)^j. In either order it is dominated, at every epsilon, by the pair of a mechanism that leaks
    everything with probability d_j, and that one by the pair for d_C; the Gaussian is dominated by that of sqrt(C). So
    every pair of neighbours is dominated by the composition of (0, d_C)-privacy and a Gaussian of sqrt(C).
    """

    max_keys: int
    max_rows: int
    sigma: float
    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        keys, rows = most_keys(self.max_keys), most_rows(self.max_rows)
        most = 2.01 * gaussian_sigma(self.epsilon, self.delta_ / 1.001, count=keys) * rows  # what is searched
        sigma = validate.between("sigma", self.sigma, 1e-9, most, hint=_SAVED)
        threshold = validate.between("threshold", self.threshold, 0.0, 61 * sigma + rows, hint=_SAVED)
        self._set(max_keys=keys, max_rows=rows, sigma=sigma, threshold=threshold)
        if self._grid_loss > _FOR_GRID / 2 * self.delta_:
            raise InvalidValue(
                f"epsilon={self.epsilon:g} is too large for Gaussian noise at this delta. Pass a smaller epsilon."
            )
        if self._delta(self.epsilon, keys) > self.delta_:
            raise InvalidValue("sigma and threshold do not keep epsilon and delta. Pass those that were saved.")

    @cached_property
    def rows(self) -> Rows:
        """The rows of a lag."""
        from dpsieve.channels.lag.gaussian_threshold import GaussianRows

        return GaussianRows(self.sigma, self.threshold, self.max_rows)

    @property
    def each_key(self) -> Guarantee:
        """What is promised for one key of a unit, which the kernel checks."""
        return replace(self.guarantee, delta=self._delta(self.epsilon, 1))

    @cached_property
    def _certificate(self) -> Certificate:
        covers = f"Gaussian noise with a threshold, for units of at most {self.max_keys:,} keys"
        whole = whole_unit(self.guarantee, self._delta(self.epsilon, self.max_keys), "formula", covers)
        return self.rows.certify(self.each_key).within(whole, self.guarantee)

    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return the exact delta of a whole unit, rounded up."""
        if validate.neighbours(neighbours) == "replace":
            hint = "Use channel.guarantee.for_replacement()."
            raise InvalidValue(f"neighbours='replace' has no exact curve for units with several keys or rows. {hint}")
        return min(1.0, self._delta(validate.epsilon(epsilon), self.max_keys))

    def spends(self) -> tuple[Spend, ...]:
        """Return the Gaussian curve of the noise, and the probability that a key which only one unit holds shows."""
        keys, rows, gap = self.max_keys, self.max_rows, self._gap
        shown = upper(lambda: 1 - ((-ball(gap) / ball(self.sigma / rows) / ball(2).sqrt()).erfc() / 2) ** keys)
        leak = math.nextafter(shown * (1 + 1e-9) + self._grid_loss, 1.0)
        sensitivity = upper(lambda: ball(keys).sqrt() * rows)
        return GaussianSpend(self.sigma, sensitivity), Approximate(0.0, leak)

    @property
    def _gap(self) -> float:
        return self.threshold / self.max_rows - 1

    @property
    def _grid_loss(self) -> float:
        """A bound on what rounding the masses of all lags to the 2^-128 grid can add to delta."""
        tokens = 28 * self.sigma + self._gap * self.max_rows + 4
        return self.max_keys * tokens * 2.0**-127 * (1 + math.exp(self.epsilon))

    def _delta(self, epsilon: float, keys: int) -> float:
        """Return the delta of a unit with this number of keys, and what rounding to the grid adds."""
        from dpsieve.channels.lag.gaussian_threshold import gaussian_threshold_delta

        exact = gaussian_threshold_delta(epsilon, self.sigma / self.max_rows, self._gap, keys)
        return exact + self._grid_loss


def unknown_domain(epsilon: float, delta: float) -> tuple[float, float]:
    """Return checked parameters for reporting keys that nobody listed in advance."""
    hint = "Pass a budget such as epsilon=1.0."
    epsilon = validate.between("epsilon", epsilon, SMALLEST_EPSILON, LARGEST_EPSILON, hint=hint)
    delta = validate.delta(delta)
    if delta < SMALLEST_DELTA:
        why = "a key of one unit may be reported with probability delta at most, so with none no key could ever be"
        fix = "Pass one such as delta=1e-8; when all keys are known in advance, noise without a threshold needs none"
        raise InvalidValue(f"delta={delta:g} is below {SMALLEST_DELTA:g}: {why}. {fix}.")
    return epsilon, delta


def most_keys(value: int, name: str = "max_keys") -> int:
    """Return a checked bound on the keys of one unit."""
    hint = f"Pass how many keys a unit may add, up to {MOST_KEYS:,}."
    return validate.whole(name, value, low=1, high=MOST_KEYS, hint=hint)


def most_rows(value: int, name: str = "max_rows") -> int:
    """Return a checked bound on the rows of one unit in one key."""
    hint = f"Pass how many rows of a unit count in one key, up to {MOST_ROWS:,}."
    return validate.whole(name, value, low=1, high=MOST_ROWS, hint=hint)


def checked_scheme(scheme: object) -> Scheme:
    """Return a scheme whose rate does not come from the data."""
    if not isinstance(scheme, Scheme):
        hint = "Pass one such as dpsieve.ppswor(0.01), or leave it out."
        raise InvalidType(f"scheme must be a sampling scheme, not {type(scheme).__name__}. {hint}")
    if isinstance(scheme, DataDependent):
        raise InvalidValue(
            "scheme has a rate that was read off the data, which is not private. Use one with a fixed tau."
        )
    return scheme


def _units(epsilon: float, delta: float) -> int:
    """Return more units than any row spreads over.

    That is 2 L + 1 (L as in Lemma 4.2 of the paper) while delta may vanish at each step. It may not while 'nothing'
    itself shrinks by e^-epsilon, which can happen ln(1/delta)/epsilon times in all.
    """
    return math.ceil(3 / epsilon * math.log1p(math.expm1(epsilon) / delta)) + 4
