"""Mechanisms that treat each key alone: its true frequency becomes 'nothing' or a token.

A `Channel` is such a mechanism with certified rows. A new channel is a new way to make rows, and nothing else: see
docs/background/write_your_own_channel.md.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.law import LARGEST_FREQUENCY, Row, TokenLaw
from dpsieve.channels.rows import Rows
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.guarantee import Guarantee, Unit, warn_of_large_delta
from dpsieve.privacy.mechanism import Counting, Outcome, Reader, Reading, check_tokens
from dpsieve.randomness.source import Source, resolve
from dpsieve.sampling.sample import Sample
from dpsieve.sampling.schemes import Scheme, check_scheme, everything
from dpsieve.types import Floats, Ints
from dpsieve.validate import Delta, Epsilon, Neighbours, check_budget

if TYPE_CHECKING:
    from dpsieve.estimation import Estimator
    from dpsieve.publication import Release

_FREQUENCIES = "Pass one whole number for each key, from 1 to 10^12; leave out keys that do not occur."
_G = "Pass a non-decreasing function of a float array with g(0) = 0, such as numpy.sqrt."


@dataclass(frozen=True, repr=False)
class ReportedCounts(Counting, Reader):
    """A distribution over 'nothing' and ordered tokens for each true frequency i = 0, 1, 2, ...; row 0 is 'nothing'.

    Subclasses are frozen dataclasses that provide `rows`; this class checks arguments and delegates to the rows. Tokens
    are integers, in units of 1/resolution of a frequency; 0 stands for 'nothing'.

    Attributes:
        epsilon, delta_: the promise; a method `delta` is the curve.
        unit: the privacy unit, as named in the guarantee.
    """

    epsilon: Epsilon
    delta_: Delta
    _: KW_ONLY
    unit: Unit = "one row"

    @property
    def scheme(self) -> Scheme | None:
        """The sampling scheme, if keys are sampled."""
        return None

    @property
    @abstractmethod
    def rows(self) -> TokenLaw:
        """The distribution for each frequency: a cached property."""

    @property
    def sampling_rate(self) -> float:
        """The probability that a unit is counted; tokens are near sampling_rate * frequency."""
        return 1.0

    def certify(self) -> Certificate:
        """Return the certificate; computed once."""
        return self._certificate

    @property
    @abstractmethod
    def _certificate(self) -> Certificate:
        """The certificate: a cached property."""

    @property
    def each_key(self) -> Guarantee:
        """The promise for one key of a unit."""
        return self.guarantee

    @cached_property
    def half(self) -> int | None:
        """The lowest frequency that is reported half of the time; None where none up to 10^12 is."""
        return frequency_at(self, 0.5)

    @property
    def resolution(self) -> int:
        return self.rows.resolution

    @property
    def largest_token(self) -> int:
        """An upper bound on the tokens of all frequencies."""
        return (LARGEST_FREQUENCY + self.rows.spread) * self.resolution

    def __repr__(self) -> str:
        promise = f"epsilon={self.guarantee.epsilon:g}, delta={self.guarantee.delta:g}"
        scheme = "" if self.scheme is None else f", {self.scheme!r}"
        return f"<{self.name.replace('_', ' ')} channel, {promise}{scheme}>"

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def row(self, frequency: int) -> Row:
        """Return the row of one true frequency; see `Row`."""
        hint = "Pass a true frequency, such as row(20)."
        return self.rows.row(validate.whole("frequency", frequency, high=LARGEST_FREQUENCY, hint=hint))

    def reporting_probability(self, frequencies: ArrayLike) -> Floats:
        """Return the probability that a key of each true frequency is reported."""
        return self.rows.reported(checked_frequencies(frequencies))

    def likeliest(self, tokens: ArrayLike) -> Ints:
        """Return the true frequency under which each token has its largest probability."""
        return self._likeliest(reported_tokens(self, tokens))

    def _likeliest(self, tokens: Ints) -> Ints:
        frequencies, probability = self.rows.likeliest(tokens)
        if not (probability > 0).all():
            raise InvalidValue("tokens holds one that no frequency leads to. Pass tokens drawn from this channel.")
        return frequencies

    def interval(self, tokens: ArrayLike, level: float = 0.95) -> tuple[Ints, Ints]:
        """Return a confidence interval (low, high) for the true frequency behind each token.

        For every true frequency the coverage, given a report, is at least `level`; see `channels.law.Windows`.
        """
        level = validate.between("level", level, 0.0, 1.0, hint="Pass a confidence level such as level=0.95.")
        return self.rows.interval(reported_tokens(self, tokens), max(level, 1e-6))

    def read(self, tokens: ArrayLike) -> Reading:
        """Return the likeliest frequency, its interval, and the count divided by its probability of being reported."""
        checked = reported_tokens(self, tokens)
        count = np.minimum(self._likeliest(checked), LARGEST_FREQUENCY)
        return Reading(count, *self.rows.interval(checked, 0.95), count / self.rows.reported(count))

    def terms(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None = None) -> Floats:
        """Return the maximum-likelihood estimates g(i) / pi_i, for the likeliest i (Cohen et al. 2021, Section 7)."""
        target, frequencies = Target(g), np.minimum(self.likeliest(tokens), LARGEST_FREQUENCY)
        return target(frequencies) / self.rows.reported(frequencies)

    def errors(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None = None
    ) -> tuple[float, float]:
        """Return the bias and variance of a sum from the rows; see `dpsieve.estimation.likely_errors`."""
        from dpsieve.estimation import likely_errors

        return likely_errors(self.estimator(g), tokens, weights)

    def sum_interval(
        self, tokens: ArrayLike, weights: Floats, g: Callable[[Floats], Floats] | None, level: float
    ) -> tuple[float, float] | None:
        """Return the interval of a sum from the rows; see `dpsieve.estimation.estimators`."""
        from dpsieve.estimation import reported_sum_interval

        return reported_sum_interval(self, tokens, weights, g, level)

    def possible(self, tokens: Ints) -> bool:
        """Return whether some row has each of these tokens."""
        if not len(tokens):
            return True
        in_range = tokens.min() >= 1 and int(tokens.max()) <= self.largest_token
        return bool(in_range and (self.rows.likeliest(tokens)[1] > 0).all())

    def estimator(self, g: Callable[[Floats], Floats] | None = None) -> "Estimator":
        """Return the estimator of g(true frequency) from tokens; see `dpsieve.estimation.estimator`."""
        from dpsieve.estimation import estimator

        return estimator(self, g)

    def draw(self, frequencies: ArrayLike, *, already_sampled: bool = False, source: Source | None = None) -> Outcome:
        """Draw a token for each true frequency, 0 for 'nothing', with exactly the probabilities of its row.

        With `already_sampled`, each key was drawn with the probability of the scheme, and the token comes from the row
        conditional on that.
        """
        true = checked_frequencies(frequencies)
        return Outcome(self.rows.draw(true, resolve(source), already_sampled=already_sampled))

    def release(
        self,
        keys: "ArrayLike | Sample",
        frequencies: ArrayLike | None = None,
        *,
        already_sampled: bool = False,
        keys_only: bool = False,
        source: Source | None = None,
    ) -> "Release":
        """Draw a token for each key and return the release of the reported keys.

        Args:
            keys: distinct keys without nulls: an Arrow array, or any sequence that Arrow can read, such as the keys()
                of a dict of counts. Or a `dpsieve.Sample` by the scheme of this channel, alone; that uses up its salt.
            frequencies: the true frequency of each key, a whole number from 1 to 10^12, such as its values().
            already_sampled: the keys are a sample drawn with the probabilities of the scheme.
            keys_only: publish the keys without tokens, under the same guarantee.
            source: randomness for tests; the release is then marked as unsafe to publish.
        """
        from dpsieve.publication.release import draw_release

        if isinstance(keys, Sample):
            if frequencies is not None:
                raise InvalidType("frequencies are in the sample. Pass the sample alone.")
            self.certify()  # before the salt is used up
            (keys, frequencies), already_sampled = keys.for_release(self.scheme), True
        if frequencies is None:
            hint = "For a dict or a Counter, pass release(counts.keys(), counts.values())."
            raise InvalidType(f"frequencies is missing: one per key. {hint}")
        warn_of_large_delta(self.guarantee.delta)
        return draw_release(
            self, keys, frequencies, already_sampled=already_sampled, keys_only=keys_only, source=source
        )


@dataclass(frozen=True, repr=False)
class Channel(ReportedCounts):
    """A mechanism whose rows are integers that the kernel certifies and tokens are drawn from.

    Neighbours are add/remove: one unit more or less changes the frequency of one key by one, so the guarantee is the
    largest divergence of adjacent rows.
    """

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """The rows: a cached property."""

    @property
    def table_rows(self) -> int | None:
        return self.rows.table_rows

    def delta(self, epsilon: float, neighbours: Neighbours = "add_remove") -> float:
        """Return the least delta for which this channel is (epsilon, delta)-private; raise if it is not computable."""
        return self.rows.delta(validate.epsilon(epsilon), validate.neighbours(neighbours))

    @cached_property
    def _certificate(self) -> Certificate:
        return self.rows.certify(self.guarantee)


@dataclass(frozen=True, repr=False)
class UnknownKeys(ReportedCounts):
    """Counts of keys that are not listed in advance: the budget is checked, and the scheme if there is one."""

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta_)
        super().__post_init__()
        if self.scheme is not None and check_scheme(self.scheme) == everything():
            validate.store(self, scheme=None)


@dataclass(frozen=True, repr=False)
class UnknownKeysChannel(UnknownKeys, Channel):
    """A channel for unknown keys."""


def frequency_at(channel: ReportedCounts, probability: float) -> int | None:
    """Return the lowest frequency reported with at least this probability; None where none up to 10^12 is.

    >>> from dpsieve.channels.unknown_keys import optimal
    >>> [frequency_at(optimal(1.0, 1e-8), probability) for probability in (0.01, 0.5, 0.99)]
    [15, 19, 23]
    """
    hint = "Pass a probability such as 0.5."
    probability = validate.between("probability", probability, 0.0, 1.0, hint=hint)

    def enough(frequency: int) -> bool:
        return bool(channel.rows.reported(np.array([frequency]))[0] >= probability)

    frequency = first_whole(enough, 1, LARGEST_FREQUENCY)
    return frequency if frequency < LARGEST_FREQUENCY or enough(frequency) else None


def reported_tokens(channel: ReportedCounts, tokens: ArrayLike, *, nothing: bool = False) -> Ints:
    """Return tokens as integers in the range of the channel; zeros only if `nothing` is allowed."""
    checked = check_tokens(tokens)
    least, largest = 0 if nothing else 1, channel.largest_token
    if len(checked) and not least <= int(checked.min()) <= int(checked.max()) <= largest:
        hint = f"Pass tokens as `draw` returns them, {'zero or more' if nothing else 'above zero'}."
        raise InvalidValue(f"tokens holds a number that is not reported. {hint}", argument="tokens")
    return checked


def checked_frequencies(
    values: ArrayLike, name: str = "frequencies", hint: str = _FREQUENCIES, *, least: int = 1
) -> Ints:
    """Return frequencies as int64 in [least, 10^12]; messages never name the key or value."""
    frequencies = validate.integers(name, values, hint=hint)
    if len(frequencies) and not least <= int(frequencies.min()) <= int(frequencies.max()) <= LARGEST_FREQUENCY:
        raise InvalidValue(f"{name} holds a number below {least} or above 10^12. {hint}", argument=name)
    return frequencies


class Target:
    """A non-decreasing function g of the frequency with g(0) = 0; without one, g(w) = w.

    >>> Target(np.sqrt)(np.array([4, 9])).tolist()
    [2.0, 3.0]
    """

    def __init__(self, g: Callable[[Floats], Floats] | None) -> None:
        if g is not None and not callable(g):
            raise InvalidType(f"g must be a function, not {type(g).__name__}. {_G}")
        self._g = g
        if g is not None and _evaluate(g, np.zeros(1))[0] != 0:
            raise InvalidValue(f"g(0) is not zero: a key that does not occur must add nothing. {_G}")

    def __call__(self, frequencies: Ints) -> Floats:
        """Return g of each frequency."""
        if self._g is None:
            return frequencies.astype(np.float64)
        points, place = np.unique(frequencies, return_inverse=True)
        values = _evaluate(self._g, points.astype(np.float64))
        if len(values) and (values[0] < 0 or (np.diff(values) < 0).any()):
            raise InvalidValue(f"g decreases somewhere. {_G}")
        return values[place]


def _evaluate(g: Callable[[Floats], Floats], points: Floats) -> Floats:
    try:
        values = np.asarray(g(points.copy()))
    except Exception as error:
        raise InvalidType(f"g failed on an array of floats with {type(error).__name__}. {_G}") from None
    if values.dtype.kind not in "fiub":
        raise InvalidType(f"g does not return real numbers. {_G}")
    values = values.astype(np.float64)
    if values.shape != points.shape:
        raise InvalidType(f"g does not return one number for each frequency. {_G}")
    if not np.isfinite(values).all():
        raise InvalidValue(f"g is not finite somewhere. {_G}")
    return values
