"""Weighted samples of counted keys. They are NOT private: every key and frequency in them is true.

A sample is an intermediate result. One of `threshold_sample`, with a rate that is fixed or was made private, goes to
`Channel.release(..., already_sampled=True)` of a channel with the same scheme. The rate of a bottom-k sample is read
off the data, so no channel takes it: such a sample is for comparing what privacy costs. Never publish either.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.randomness.source import Source, resolve
from dpsieve.sampling.monotone import raised

from dpsieve.sampling.schemes import (  # isort: skip
    DataDependent, Scheme, a_scheme, checked_frequencies, checked_power, everything, ppswor, priority,
)  # fmt: skip
from dpsieve.types import Floats, Ints
from dpsieve.values.sums import EstimatedSum

Method = Literal["ppswor", "priority"]

_CHUNK = 1 << 15  # keys decided at a time: their arrays stay in the processor's cache
_WORD = 2.0**64
_TOP = np.nextafter(_WORD, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class NonPrivateSample:
    """A bottom-k sample with true frequencies. It is NOT private and must not be published.

    Attributes:
        keys: the sampled keys, in the order given.
        frequencies: their true frequencies.
        threshold: the (k+1)-st smallest rank, infinite if there are no more than k keys.
        scheme: the inclusion probability of each frequency, given the threshold: ppswor or priority with
            tau = threshold, or everything.
    """

    keys: pa.Array
    frequencies: NDArray[Any]
    threshold: float
    scheme: Scheme

    def __len__(self) -> int:
        return len(self.frequencies)

    def __repr__(self) -> str:
        return f"<NonPrivateSample of {len(self)} keys by {self.scheme!r}: not to be published>"

    def estimate(self, g: Callable[[NDArray[Any]], ArrayLike] | None = None) -> EstimatedSum:
        """Return an unbiased estimate of the sum of g(w) over all keys, with its variance: see `horvitz_thompson`.

        `g` is a function of an array of frequencies, g(w) = w by default.
        """
        return horvitz_thompson(self.frequencies, self.scheme, g)


def threshold_sample(
    keys: ArrayLike, frequencies: ArrayLike, scheme: Scheme, *, source: Source | None = None
) -> tuple[pa.Array, NDArray[Any]]:
    """Return the keys and true frequencies of a threshold sample. It is NOT private: never publish it.

    Each key of frequency i enters independently, with probability exactly `scheme.inclusion(i)` (Private Weighted
    Sampling, Algorithm 1): q is a dyadic rational, and 64 random bits are compared with its first 64 bits; in case of a
    tie, further bits are drawn and compared. The order of the keys is kept.

    Args:
        keys: distinct keys without nulls (distinctness is not checked): an Arrow array, or what Arrow can read as one.
        frequencies: the true frequency of each key, from 0 to 2^53; a key of frequency 0 is never sampled.
        scheme: ppswor, priority, everything or custom.
        source: randomness for tests.

    >>> from dpsieve.sampling import priority
    >>> keys, frequencies = threshold_sample(["tea", "milk", "salt"], [900, 500, 0], priority(tau=0.002))
    >>> keys.to_pylist(), frequencies.tolist()
    (['tea', 'milk'], [900, 500])
    """
    names, counts = _columns(keys, frequencies)
    chosen = decide(a_scheme(scheme).inclusion(counts), resolve(source))
    return _take(names, chosen), counts[chosen]


def bottom_k(
    keys: ArrayLike,
    frequencies: ArrayLike,
    k: int,
    *,
    method: Method = "ppswor",
    power: float = 1.0,
    source: Source | None = None,
) -> NonPrivateSample:
    """Return a weighted sample of k keys without replacement, for comparison. It is NOT private: never publish it.

    Each key draws a rank, Exp(1) / w^power (ppswor) or Uniform(0, 1) / w^power (priority), and the k smallest ranks are
    the sample (Rosén 1997; Ohlsson 1990; Duffield, Lund, Thorup 2007). Let tau be the (k+1)-st smallest rank. Given the
    ranks of all other keys, a sampled key was to enter exactly if its rank was below tau: with the probability

        q(w) = 1 - exp(-tau w^power)  (ppswor),    q(w) = min(1, tau w^power)  (priority),

    and the sum of g(w) / q(w) over the sample is an unbiased estimate of the sum of g(w) over all keys
    (Horvitz-Thompson with rank conditioning: Cohen, Kaplan 2007). Ranks are floating-point numbers made from 64 random
    bits each, so inclusion is not exact as in `threshold_sample`.

    Args:
        keys, frequencies, source: as for `threshold_sample`.
        k: the size of the sample; with k or fewer keys, all are returned and the threshold is infinite.
        method: 'ppswor' or 'priority' (sequential Poisson).
        power: frequencies count as w^power, in [0.001, 10].

    >>> sample = bottom_k(["tea", "milk", "salt"], [900, 500, 3], k=2)
    >>> len(sample), sample.threshold > 0
    (2, True)
    >>> bottom_k(["tea", "milk"], [900, 500], k=2).estimate()
    1400.0
    """
    names, counts = _columns(keys, frequencies)
    k = validate.whole("k", k, low=1, hint="Pass the size of the sample, such as k=1000.")
    method, exponent = checked_method(method), checked_power(power)
    ranks = _ranks(counts.astype(np.float64), method, exponent, resolve(source))
    present = np.flatnonzero(ranks < np.inf)
    if len(present) <= k:
        return NonPrivateSample(_take(names, present), counts[present], float("inf"), DataDependent(everything()))
    order = np.argpartition(ranks, k)
    chosen, threshold = np.sort(order[:k]), float(ranks[order[k]])
    scheme = ppswor(threshold, exponent) if method == "ppswor" else priority(threshold, exponent)
    return NonPrivateSample(_take(names, chosen), counts[chosen], threshold, DataDependent(scheme))


def horvitz_thompson(
    frequencies: NDArray[Any],
    scheme: Scheme,
    g: Callable[[NDArray[Any]], ArrayLike] | None = None,
    weights: Floats | None = None,
) -> EstimatedSum:
    """Return an unbiased estimate of the sum of L g(w) over all keys from the frequencies w and weights L of a sample.

    With q(w) the inclusion probabilities (Horvitz, Thompson 1952; Private Weighted Sampling, equation 7):

        estimate = sum over the sample of L g(w) / q(w),
        variance = sum over all keys of L^2 g(w)^2 (1 - q(w)) / q(w),  estimated without bias by
                   sum over the sample of L^2 g(w)^2 (1 - q(w)) / q(w)^2.

    For a bottom-k sample q is that given the (k+1)-st lowest rank. Both sums are unbiased then too, the second for
    k >= 2, as different keys have terms without correlation (Cohen, Kaplan 2007); for k = 1 it is too large.
    """
    hint = "Pass a function of an array of frequencies that returns a finite number for each, such as np.sqrt."
    if g is not None and not callable(g):
        raise InvalidType(f"g must be a function, not {type(g).__name__}. {hint}")
    values = np.asarray(frequencies if g is None else g(frequencies.copy()))
    if values.shape != frequencies.shape or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise InvalidValue(f"g did not return a finite number for each frequency. {hint}")
    q = scheme.inclusion(frequencies)
    terms = values / q if weights is None else values / q * weights
    return EstimatedSum(terms.sum(), (0.0, (terms**2 * (1 - q)).sum()))


def checked_method(method: object) -> Method:
    """Return the name of a way to draw ranks."""
    if method not in ("ppswor", "priority"):
        raise InvalidValue("method is not a known way to sample. Choose 'ppswor' or 'priority'.")
    return method


def _ranks(frequencies: Floats, method: Method, exponent: float, source: Source) -> Floats:
    """Return a rank for each key, infinite where the weight is zero."""
    ranks = np.empty(len(frequencies))
    with np.errstate(divide="ignore", over="ignore"):
        for start in range(0, len(ranks), _CHUNK):
            part = frequencies[start : start + _CHUNK]
            # Small uniforms keep all 64 bits, and none is 0 or 1, so every rank is positive and finite.
            uniform = np.minimum(source.words(len(part)).astype(np.float64) + 0.5, _TOP) / _WORD
            scores = -np.log1p(-uniform) if method == "ppswor" else uniform
            weights = raised(part, exponent)
            finite = np.minimum(scores / weights, np.finfo(np.float64).max)
            ranks[start : start + len(part)] = np.where(weights > 0, finite, np.inf)
    return ranks


def decide(q: Floats, source: Source) -> Ints:
    """Return the places where a uniform number is below q, exactly."""
    chosen = np.empty(len(q), np.bool_)
    for start in range(0, len(q), _CHUNK):
        part = q[start : start + _CHUNK]
        words = source.words(len(part))
        below = chosen[start : start + len(part)]
        scaled = part * _WORD  # exact: a change of exponent
        entries = np.minimum(scaled, _TOP).astype(np.uint64)
        np.less(words, entries, out=below)
        below |= part == 1.0
        for tie in np.flatnonzero((words == entries) & (part < 1.0)):
            below[tie] = _refine(float(scaled[tie]) % 1.0, source)
    return np.flatnonzero(chosen)


def _refine(q: float, source: Source) -> bool:
    """Return whether a uniform number is below q < 1, exactly."""
    while q:
        word, scaled = int(source.words(1)[0]), q * _WORD
        if word != int(scaled):
            return word < int(scaled)
        q = scaled % 1.0
    return False


def _columns(keys: Any, frequencies: ArrayLike) -> tuple[pa.Array, NDArray[Any]]:
    """Return keys and frequencies, checked."""
    hint = "Pass the distinct keys, without nulls, as an Arrow array or a list."
    if isinstance(keys, str | bytes | dict | set | frozenset):
        raise InvalidType(f"keys must be a column, not {type(keys).__name__}. {hint}")
    try:
        names = keys if isinstance(keys, pa.Array | pa.ChunkedArray) else pa.array(keys)
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidType(f"keys cannot be read as one column. {hint}") from None
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    if names.null_count:
        raise InvalidValue(f"keys holds nulls. {hint}")
    counts = checked_frequencies(frequencies)
    if counts.ndim != 1:
        raise InvalidType("frequencies must be a flat sequence. Pass one number for each key.")
    if len(names) != len(counts):
        raise InvalidValue("keys and frequencies differ in length. Pass one frequency for each key.")
    return names, counts


def _take(names: pa.Array, places: Ints) -> pa.Array:
    return names.take(pa.array(places))
