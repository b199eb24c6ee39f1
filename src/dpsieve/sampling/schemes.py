"""Sampling schemes: the probability q_i that a key of frequency i enters the sample.

A scheme is a non-decreasing sequence q_0 = 0 <= q_1 <= q_2 <= ... <= 1, and each key is sampled independently (Private
Weighted Sampling, section 3.1). Non-decreasing holds for the floating-point numbers themselves: they do not decrease
in the last bit either, and what is returned for a frequency depends on that frequency alone (see `sampling.monotone`).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.codec import decode, encode, register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.balls import first_whole
from dpsieve.sampling.monotone import LARGEST, one_minus_exp, raise_to_power
from dpsieve.types import Floats
from dpsieve.validate import Checked, is_positive

SMALLEST_POWER, LARGEST_POWER = 0.001, 10.0  # or 0, which treats all keys alike
_CHUNK = 1 << 15  # frequencies evaluated at a time: their arrays stay in the processor's cache
_LONGEST_RANGE = 1 << 28
_SHOWN = 4
_FREQUENCIES = "Pass finite numbers from 0 to 2^53, one for each key."
_POWER = "Pass a power such as power=1.0, or 0 to sample all keys alike."
_CUSTOM = "Pass a sequence of probabilities q_1 <= q_2 <= ... in [0, 1]."


class Scheme(ABC):
    """How likely a key of each frequency is to be sampled: 0 at frequency 0, non-decreasing, at most 1.

    Schemes are values: frozen, hashable, equal when their parameters are, and saved by `to_json`.
    """

    def inclusion(self, frequencies: ArrayLike) -> Floats:
        """Return the inclusion probability q of each frequency, in the shape given.

        Frequencies are whole or real numbers from 0 to 2^53. For any i <= j, q_i <= q_j holds exactly.

        >>> priority(0.25).inclusion([0, 1, 2.5, 4, 10**12]).tolist()
        [0.0, 0.25, 0.625, 1.0, 1.0]
        """
        checked = check_frequencies(frequencies).astype(np.float64, copy=False)
        return self._evaluate(checked.ravel()).reshape(checked.shape)

    def inclusion_range(self, first: int, last: int) -> Floats:
        """Return q for the whole frequencies first, first + 1, ..., last: the values that `inclusion` gives each.

        >>> everything().inclusion_range(0, 3).tolist()
        [0.0, 1.0, 1.0, 1.0]
        """
        hint = "Pass the first and the last frequency, such as inclusion_range(1, 1000)."
        first = validate.whole("first", first, high=int(LARGEST), hint=hint)
        last = validate.whole("last", last, low=first, high=int(LARGEST), hint=hint)
        if last - first >= _LONGEST_RANGE:
            raise InvalidValue("last is too far from first. Ask for at most 2^28 frequencies at a time.")
        return self._evaluate(np.arange(first, last + 1, dtype=np.float64))

    @abstractmethod
    def constant_from(self) -> int | None:
        """Return the least whole frequency from which on `inclusion` returns one and the same number.

        None when that is not reached up to 2^53, the largest frequency accepted, or not known.
        """

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, from which `scheme_from_json` rebuilds an equal scheme."""
        return cast(dict[str, Any], encode(self))

    @abstractmethod
    def _evaluate(self, frequencies: Floats) -> Floats:
        """Return q for a flat array of frequencies in [0, 2^53]."""


@dataclass(frozen=True, repr=False)
class Threshold(Checked, Scheme):
    """A scheme that compares a random number with tau i^power."""

    tau: Annotated[float, is_positive("Pass a sampling rate above zero such as tau=0.01.")]
    power: Annotated[float, lambda power, name: _check_power(power, name)] = 1.0

    name: ClassVar[str]

    def __repr__(self) -> str:
        return f"{self.name}(tau={self.tau!r}, power={self.power!r})"

    def constant_from(self) -> int | None:
        if self.power == 0:
            return 1
        most = self.saturate(np.array([np.inf]))[0]
        if self.inclusion(LARGEST) < most:
            return None
        return first_whole(lambda frequency: bool(self.inclusion(frequency) == most), 1, int(LARGEST))

    def _evaluate(self, frequencies: Floats) -> Floats:
        out = np.empty(len(frequencies))
        with np.errstate(over="ignore"):
            for start in range(0, len(out), _CHUNK):
                rate = self.tau * raise_to_power(frequencies[start : start + _CHUNK], self.power)
                out[start : start + _CHUNK] = self.saturate(rate)
        return out

    @staticmethod
    @abstractmethod
    def saturate(rate: Floats) -> Floats:
        """Return the probability that the random number is below `rate`."""


@register("ppswor")
class _Ppswor(Threshold):
    @staticmethod
    def saturate(rate: Floats) -> Floats:
        return one_minus_exp(rate)


@register("priority")
class _Priority(Threshold):
    @staticmethod
    def saturate(rate: Floats) -> Floats:
        return np.minimum(rate, 1.0)


@register("everything")
@dataclass(frozen=True)
class _Everything(Scheme):
    def __repr__(self) -> str:
        return "everything()"

    def constant_from(self) -> int:
        return 1

    def _evaluate(self, frequencies: Floats) -> Floats:
        return (frequencies > 0).astype(np.float64)


@register("custom")
@dataclass(frozen=True, repr=False)
class _Table(Scheme):
    """The values q_1, q_2, ..., checked, without repetitions of the last one."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        values = _probabilities(self.values)
        length = int(np.searchsorted(values, values[-1], side="left")) + 1
        validate.store(self, values=tuple(values[:length].tolist()))

    def __repr__(self) -> str:
        more = f", ... {len(self.values)} values" if len(self.values) > _SHOWN else ""
        return f"custom([{', '.join(map(repr, self.values[:_SHOWN]))}{more}])"

    def constant_from(self) -> int:
        return len(self.values) if self.values[-1] else 0

    @cached_property
    def _rows(self) -> Floats:
        return np.array((0.0, *self.values))

    def _evaluate(self, frequencies: Floats) -> Floats:
        rows = np.minimum(frequencies, len(self.values)).astype(np.int64)
        return self._rows.take(rows)


def ppswor(tau: float, power: float = 1.0) -> Scheme:
    """Return the scheme of threshold sampling with probability proportional to size, without replacement.

    q_i = 1 - exp(-tau i^power): a key enters when an Exp(1) variable is below tau i^power (Rosén 1972; Private Weighted
    Sampling, equation 1). Small q are about tau i^power; large frequencies are all but certain to enter.

    Args:
        tau: the sampling rate, above zero.
        power: frequencies count as i^power, in [0.001, 10]; 1 samples by frequency, small powers treat keys alike. With
            0 every key that occurs has the same probability (distinct sampling).

    >>> scheme = ppswor(tau=0.1)
    >>> scheme.inclusion([0, 1, 10, 1000]).round(6).tolist()
    [0.0, 0.095163, 0.632121, 1.0]
    >>> scheme.constant_from()
    375
    >>> ppswor(tau=0.1, power=0).inclusion([0, 1, 1000]).round(6).tolist()
    [0.0, 0.095163, 0.095163]
    """
    return _Ppswor(tau, power)


def priority(tau: float, power: float = 1.0) -> Scheme:
    """Return the scheme of Poisson sampling with probability proportional to size.

    q_i = min(1, tau i^power): a key enters when a uniform variable is below tau i^power (Ohlsson 1990; Duffield, Lund,
    Thorup 2007). From i^power >= 1/tau on, every key enters.

    >>> scheme = priority(tau=0.1)
    >>> scheme.inclusion([0, 1, 5, 1000]).tolist()
    [0.0, 0.1, 0.5, 1.0]
    >>> scheme.constant_from()
    10
    """
    return _Priority(tau, power)


def everything() -> Scheme:
    """Return the scheme that samples every key: q_i = 1 for every frequency above zero.

    >>> everything().inclusion([0, 1, 7]).tolist()
    [0.0, 1.0, 1.0]
    """
    return _Everything()


def custom(probabilities: Sequence[float] | NDArray[np.floating[Any]]) -> Scheme:
    """Return the scheme with the non-decreasing probabilities q_1, q_2, ...; the last holds for larger frequencies.

    A real frequency is rounded down. For probabilities that never settle, derive a class from `Scheme`.

    >>> custom([0.1, 0.5, 1.0]).inclusion([0, 1, 2, 3, 4]).tolist()
    [0.0, 0.1, 0.5, 1.0, 1.0]
    """
    return _Table(probabilities)  # type: ignore[arg-type]  # checked there


def scheme_from_json(data: Any) -> Scheme:
    """Return the scheme that `Scheme.to_json` described; anything else is refused.

    >>> scheme_from_json({"kind": "priority", "tau": 0.5, "power": 1.0})
    priority(tau=0.5, power=1.0)
    """
    return decode(data, Scheme)  # type: ignore[type-abstract]


def _check_power(power: object, name: str) -> float:
    """Return the power of a scheme: 0, or from 0.001 to 10."""
    if validate.real(name, power, hint=_POWER) == 0:
        return 0.0
    return validate.between(name, power, SMALLEST_POWER, LARGEST_POWER, hint=_POWER)


def check_scheme(scheme: object) -> Scheme:
    """Return the scheme; raise InvalidType for anything else."""
    if not isinstance(scheme, Scheme):
        hint = "Pass one such as ppswor(0.01)."
        raise InvalidType(f"scheme must be a sampling scheme, not {type(scheme).__name__}. {hint}")
    return scheme


def check_frequencies(values: ArrayLike) -> NDArray[Any]:
    """Return frequencies as an array of int64 or float64; messages quote no value."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"frequencies cannot be read as an array. {_FREQUENCIES}") from None
    if array.size == 0:
        return array.astype(np.float64) if array.dtype.kind not in "iu" else array.astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise InvalidType(f"frequencies must be numbers. {_FREQUENCIES}")
    array = array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array
    if not 0 <= array.min() <= array.max() <= LARGEST:
        raise InvalidValue(f"frequencies holds a number that is negative, too large or not a number. {_FREQUENCIES}")
    return array if array.dtype.kind == "f" else array.astype(np.int64, copy=False)


def _probabilities(values: object) -> Floats:
    """Return non-decreasing probabilities as float64."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, object)
    if array.ndim == 1 and array.size == 0 and array.dtype.kind != "O":
        raise InvalidValue(f"probabilities is empty. {_CUSTOM}")
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise InvalidType(f"probabilities must be a flat sequence of numbers. {_CUSTOM}")
    array = array.astype(np.float64)
    if not 0 <= array.min() <= array.max() <= 1:
        raise InvalidValue(f"probabilities holds a value outside [0, 1] or not a number. {_CUSTOM}")
    if (array[1:] < array[:-1]).any():
        fix = "If the cause is rounding, pass np.maximum.accumulate(q)."
        raise InvalidValue(f"probabilities decreases. {_CUSTOM} {fix}")
    return array + 0.0
