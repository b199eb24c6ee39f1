"""Forecasts for planning: how much of a distribution is reported, how far estimated sums are off, Zipf's law."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import ReportedCounts, checked_frequencies
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.estimators import Estimator, check_channel
from dpsieve.types import Floats, Ints

_MOST_KEYS = 10**7


@dataclass(frozen=True)
class Forecast:
    """What a channel reports on average.

    Attributes:
        keys: the number of keys that occur.
        mass: the sum of their true frequencies.
        reported_keys: the expected number of reported keys.
        reported_mass: the expected sum of the true frequencies of reported keys.
        spread: the standard deviation of the number of reported keys.
    """

    keys: float
    mass: float
    reported_keys: float
    reported_mass: float
    spread: float

    @property
    def key_fraction(self) -> float:
        """The expected share of keys that are reported."""
        return self.reported_keys / self.keys

    @property
    def mass_fraction(self) -> float:
        """The expected share of all mass that belongs to reported keys."""
        return self.reported_mass / self.mass

    def __repr__(self) -> str:
        keys = f"{self.reported_keys:,.1f} (give or take {self.spread:,.1f}) of {self.keys:,.0f} keys"
        return f"<Forecast: {keys}, {self.key_fraction:.1%} of keys and {self.mass_fraction:.1%} of mass>"


def forecast(channel: ReportedCounts, frequencies: ArrayLike, counts: ArrayLike | None = None) -> Forecast:
    """Return how much a channel is expected to report of `counts[t]` keys of true frequency `frequencies[t]`.

    With n_i keys of frequency i and pi_i the reporting probability:

        reported_keys = sum_i n_i pi_i,   reported_mass = sum_i n_i i pi_i,   spread^2 = sum_i n_i pi_i (1 - pi_i).

    Without counts each frequency is that of one key. What is computed from sensitive frequencies is itself sensitive:
    plan on public or synthetic ones, such as `zipf`.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> forecast(optimal(1.0, 1e-8), [1, 18, 100], [900, 90, 10])
    <Forecast: 44.4 (give or take 4.6) of 1,000 keys, 4.4% of keys and 46.0% of mass>
    """
    channel = check_channel(channel)
    rows, keys = histogram(frequencies, counts)
    reported = channel.rows.reported(rows)
    expected = keys * reported
    return Forecast(
        keys=float(keys.sum()),
        mass=float(keys @ rows),
        reported_keys=float(expected.sum()),
        reported_mass=float(expected @ rows),
        spread=float(np.sqrt(expected @ (1 - reported))),
    )


@dataclass(frozen=True)
class SumError:
    """The exact error of an estimated sum: `nrmse` is sqrt(mse) / true, and mse = variance + bias^2."""

    true: float
    expected: float
    bias: float
    variance: float
    mse: float
    nrmse: float

    def __repr__(self) -> str:
        return f"<SumError: {self.expected:,.6g} expected for {self.true:,.6g}, NRMSE {self.nrmse:.3g}>"


def sum_error(estimator: Estimator, frequencies: ArrayLike, counts: ArrayLike | None = None) -> SumError:
    """Return the error of the estimated sum of g(w) over keys: `counts[t]` keys of true frequency `frequencies[t]`.

    Keys pass through the channel one by one, so with n_i keys of frequency i (Cohen, Geri, Sarlos, Stemmer 2021, 7.1):

        s = sum_i n_i g(i),   bias = sum_i n_i Bias_i,   variance = sum_i n_i Var_i,   mse = variance + bias^2.

    Frequencies and counts are as for `forecast`, and what is computed from sensitive ones is itself sensitive.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> from dpsieve.estimation import estimator
    >>> sum_error(estimator(optimal(1.0, 1e-8)), [10, 50, 1000], [500, 200, 3])
    <SumError: ...>
    """
    given: object = estimator
    if not isinstance(given, Estimator):
        hint = "Make one with dpsieve.estimation.estimator(channel)."
        raise InvalidType(f"estimator must be an Estimator, not {type(given).__name__}. {hint}")
    rows, keys = histogram(frequencies, counts)
    moments = estimator.moments(rows)
    true = float(keys @ estimator.target(rows))
    if true == 0:
        raise InvalidValue("frequencies sum to zero under g, so no error is relative to that. Add larger ones.")
    bias, variance = float(keys @ moments.bias), float(keys @ moments.variance)
    mse = variance + bias**2
    return SumError(true, float(keys @ moments.expectation), bias, variance, mse, float(np.sqrt(mse)) / true)


def zipf(alpha: float, keys: int, *, total: int | None = None, largest: int | None = None) -> tuple[Ints, Ints]:
    """Return (frequencies, counts) of Zipf's law: the r-th most frequent of `keys` keys has frequency c r^-alpha.

    The scale c is `largest`, or such that all frequencies add up to `total`; pass one of the two. Frequencies are made
    whole by rounding their running sum, so that no mass is lost: the first is `largest`, or their sum is `total`. In
    the tail, where c r^-alpha is below one, that share of the keys occurs once and the others not at all, so the counts
    may add up to less than `keys`.

    >>> frequencies, counts = zipf(1.0, 1000, largest=100)
    >>> frequencies[-3:].tolist(), counts[:3].tolist()
    ([33, 50, 100], [261, 29, 12])
    >>> frequencies, counts = zipf(1.0, 1000, total=5000)
    >>> int(frequencies @ counts)
    5000
    """
    alpha = validate.between("alpha", alpha, 0.0, 20.0, hint="Pass the exponent of the law, such as alpha=1.0.")
    keys = validate.whole("keys", keys, low=1, high=_MOST_KEYS, hint="Pass how many keys there are.")
    hint = "Pass either total=, the sum of all frequencies, or largest=, the first one."
    if (total is None) == (largest is None):
        raise InvalidValue(f"total and largest cannot be both given or both left out. {hint}")
    shares = np.arange(1, keys + 1) ** -alpha
    sums = np.cumsum(shares)
    if total is not None:
        total = validate.whole("total", total, low=1, high=LARGEST_FREQUENCY, hint=hint)
        sums = sums / sums[-1] * total
    else:
        sums *= validate.whole("largest", largest, low=1, high=LARGEST_FREQUENCY, hint=hint)
    frequencies = np.diff(np.floor(np.append(0.0, sums) + 0.5)).astype(np.int64)
    distinct, counts = np.unique(frequencies[frequencies > 0], return_counts=True)
    return np.asarray(distinct, dtype=np.int64), counts.astype(np.int64)


def histogram(frequencies: ArrayLike, counts: ArrayLike | None) -> tuple[Ints, Floats]:
    """Return increasing distinct frequencies and the number of keys of each; without counts, one key per entry.

    Counts may be fractions, as in an expected histogram. Frequencies without keys are dropped.

    >>> [part.tolist() for part in histogram([7, 3, 7, 9], [1, 4, 2, 0])]
    [[3, 7], [4.0, 3.0]]
    """
    rows = checked_frequencies(frequencies)
    hint = "Pass the number of keys for each frequency: zero or more, and some above zero."
    try:
        keys = np.ones(len(rows)) if counts is None else np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidType(f"counts must be numbers. {hint}") from None
    if keys.shape != rows.shape:
        raise InvalidValue(f"counts and frequencies differ in length. {hint}")
    if not (np.isfinite(keys) & (keys >= 0)).all() or not keys.any():
        raise InvalidValue(f"counts holds a number that is negative or not finite, or no key at all. {hint}")
    distinct, place = np.unique(rows[keys > 0], return_inverse=True)
    return distinct, np.bincount(place, weights=keys[keys > 0]).astype(np.float64)
