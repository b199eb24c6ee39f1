"""Samples that merge: the random number of each key comes from a keyed hash, so parts of the data agree on it.

Key x of frequency w and number u (128 bits, uniform; see `randomness.keyed_hash`) is in a **threshold** sample when
u < q(w), for the scheme's q rounded down to multiples of 2^-128 (Private Weighted Sampling, Algorithm 1). With the same
salt, what is sampled depends on x and w alone. So:

- Parts without common keys. The union of their samples is the sample of the union of the data, bit by bit.
- Parts with common keys. Two samples are not enough: w = w_1 + w_2 may be sampled where neither w_1 nor w_2 was. It
  takes two rounds. Each of m parts reports its `candidates`: keys with u < q(m w_j). As q does not decrease and w is at
  most m times its largest part, every key with u < q(w) is a candidate of some part. The second round adds up
  the counts of all candidates, and `Sample.of` these is the sample of the union, bit by bit.

A **bottom-k** sample has the k keys of lowest rank: Exp(1) / w^p for ppswor, Uniform(0, 1) / w^p for priority, both
increasing functions of u (Rosén 1997; Ohlsson 1990; Duffield, Lund, Thorup 2007). Its threshold is the (k+1)-st lowest
rank. For parts without common keys, the k+1 lowest ranks of the union are among the k+1 lowest ranks of the parts, so
bottom-k samples merge too, with their thresholds.

Nothing here is private: keys and frequencies are true. `Channel.release` makes a threshold sample private, with
the guarantee of the channel, because without the salt the numbers u of different keys are uniform and independent.
Two releases with one salt share these numbers. The guarantee of each holds and that of both together does not:
docs/background/sampling.md has the numbers. So a salt is for one release.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.exact import below, floor_words
from dpsieve.randomness.keyed_hash import MARK, check_salt, keyed_words, mark_of
from dpsieve.sampling.monotone import raise_to_power
from dpsieve.sampling.schemes import DataDependent, Scheme, check_scheme, everything, ppswor, priority
from dpsieve.sampling.schemes import scheme_from_json as read_scheme
from dpsieve.types import Floats, Ints, Words
from dpsieve.values.columns import kind_of_type, plain_items
from dpsieve.values.keys import refuse_set
from dpsieve.values.saved_bytes import KINDS, ByteReader, keys_to_bytes, numbers_to_bytes, refuse, sealed

if TYPE_CHECKING:
    from dpsieve.estimation.estimated_sums import EstimatedSum

MOST = 10**12  # the largest frequency
Method = Literal["ppswor", "priority"]
_MOST_PARTS = 8192
_NAME, _FORMAT = b"dpsieve sample", 1
_KEYS = "Pass distinct keys without nulls: integers, text or bytes, as an Arrow array or a list."
_COUNTS = "Pass one whole number for each key, from 0 to 10^12."
_LOG_2, _TERMS = 0.6931471805599453, 18  # 3^-37 / 37 is below 2^-60

_released: set[bytes] = set()
_lock = threading.Lock()


@dataclass(frozen=True, eq=False, repr=False)
class Sample:
    """A weighted sample of counted keys that merges with others of the same salt. It is NOT private.

    Make a threshold sample with `Sample.of`, one of a given size with `Sample.bottom_k`.

    Attributes:
        keys: the sampled keys, sorted.
        frequencies: their true frequencies.
        sampler: the scheme; of a bottom-k sample its method and power, with a tau of 1.
        size: k of a bottom-k sample, None for a threshold sample.
        threshold: the (k+1)-st lowest rank of a bottom-k sample, infinite where there are no more than k keys.
        high, low: the words of the random number of each key.
        mark: a fingerprint of the salt.

    >>> from dpsieve.sampling import new_salt, priority
    >>> salt = new_salt()
    >>> drinks = Sample.of(["tea", "milk"], [900, 500], priority(0.002), salt=salt)
    >>> spices = Sample.of(["salt"], [700], priority(0.002), salt=salt)
    >>> both = drinks.merge(spices)
    >>> both.keys.to_pylist(), both.estimate(where=[True, False, True]), both.estimate().variance
    (['milk', 'salt', 'tea'], 1400.0, 0.0)
    """

    keys: pa.Array
    frequencies: Ints
    sampler: Scheme
    size: int | None
    threshold: float
    high: Words
    low: Words
    mark: bytes

    @classmethod
    def of(cls, keys: Any, frequencies: ArrayLike, scheme: Scheme, *, salt: bytes) -> "Sample":
        """Return the threshold sample of counted keys: each enters with probability q(w), by its number.

        Args:
            keys: distinct keys without nulls: integers, text or bytes.
            frequencies: the true frequency of each key, from 0 to 10^12; a key of frequency 0 is never sampled.
            scheme: ppswor, priority, everything or custom values, with a rate that does not come from the data.
            salt: of `new_salt`; the same for all parts of one release.
        """
        if isinstance(check_scheme(scheme), DataDependent):
            raise InvalidValue("scheme has a rate that was read off the data. Pass one such as ppswor(0.01).")
        scheme.to_json()  # refuses what cannot be saved
        all_keys = _number_keys(keys, frequencies, scheme, None, salt)
        return all_keys._take(np.flatnonzero(all_keys._enters(scheme)))

    @classmethod
    def bottom_k(
        cls, keys: Any, frequencies: ArrayLike, k: int, *, method: Method = "ppswor", power: float = 1.0, salt: bytes
    ) -> "Sample":
        """Return the k keys of lowest rank, for comparison: no channel takes them, as the data decide the rate.

        Args:
            keys, frequencies, salt: as for `Sample.of`.
            k: the size of the sample; with k or fewer keys, all are in it.
            method: 'ppswor' or 'priority'.
            power: frequencies count as w^power.
        """
        k = validate.whole("k", k, low=1, high=MOST, hint="Pass the size of the sample, such as k=1000.")
        if method not in ("ppswor", "priority"):
            raise InvalidValue("method is not a known way to sample. Choose 'ppswor' or 'priority'.")
        sampler = (ppswor if method == "ppswor" else priority)(1.0, power)
        return _number_keys(keys, frequencies, sampler, k, salt)._take_lowest(k, [])

    @property
    def scheme(self) -> Scheme:
        """The inclusion probabilities: of a bottom-k sample those given its threshold, which no channel takes."""
        if self.size is None:
            return self.sampler
        if self.threshold == np.inf:
            return DataDependent(everything())
        return DataDependent(read_scheme({**self.sampler.to_json(), "tau": self.threshold}))

    def __len__(self) -> int:
        return len(self.frequencies)

    def __repr__(self) -> str:
        how = f"{self.sampler!r}" if self.size is None else f"the {self.size:,} lowest ranks of {self.sampler!r}"
        return f"<Sample by {how}: not to be published>"

    def merge(self, other: "Sample") -> "Sample":
        """Return the sample of both parts together, for parts of the data without common keys.

        Both must have one salt and one scheme; of two bottom-k samples the result has the smaller k. A key in both
        samples is refused. A common key of the parts that is in at most one sample is not noticed, and the result is
        then too low: for such parts, see `candidates`.
        """
        if not isinstance(other, Sample):
            raise InvalidType(f"other must be a Sample, not {type(other).__name__}.")
        if other.mark != self.mark:
            raise InvalidValue("other was sampled with another salt. Pass the same salt to all parts.")
        if other.sampler != self.sampler or (other.size is None) != (self.size is None):
            raise InvalidValue("other was sampled by another scheme. Pass the same one to all parts.")
        parts = [part for part in (self, other) if len(part)] or [self]
        if len({part.keys.type for part in parts}) > 1:
            raise InvalidType("other holds another kind of keys. Sample each kind on its own.")
        keys = pa.concat_arrays([part.keys for part in parts])
        if len(pc.unique(keys)) < len(keys):
            fix = "Merge parts without common keys, or use dpsieve.sampling.candidates."
            raise InvalidValue(f"other holds a key of this sample. {fix}")
        frequencies, high, low = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("frequencies", "high", "low")
        )
        both = replace(self, keys=keys, frequencies=frequencies, high=high, low=low)
        if self.size is None or other.size is None:
            return both._take(np.arange(len(keys)))
        return both._take_lowest(min(self.size, other.size), [self.threshold, other.threshold])

    def thinned(self, tau: float) -> "Sample":
        """Return the threshold sample at a lower rate: the one that `Sample.of` would have drawn with this tau."""
        data = self.sampler.to_json()
        if self.size is not None or data["kind"] not in ("ppswor", "priority"):
            raise InvalidValue("tau is for threshold samples by ppswor or priority. Sample the data again.")
        lower = read_scheme({**data, "tau": validate.positive("tau", tau, hint="Pass a rate such as tau=0.001.")})
        if lower.to_json()["tau"] > data["tau"]:
            raise InvalidValue("tau is above the rate of this sample, which lacks the further keys. Pass a lower one.")
        return replace(self._take(np.flatnonzero(self._enters(lower))), sampler=lower)

    def estimate(
        self,
        where: ArrayLike | Callable[[Any], ArrayLike] | None = None,
        g: Callable[[NDArray[Any]], ArrayLike] | None = None,
        weights: ArrayLike | Callable[[Any], ArrayLike] | None = None,
    ) -> "EstimatedSum":
        """Return an unbiased estimate of the sum of L(x) g(w) over all keys, with its variance. It is NOT private.

        See `estimation.estimated_sums.horvitz_thompson`. Arguments are as for `Release.estimate`, and g may be any
        function of frequencies.
        """
        from dpsieve.estimation.estimated_sums import horvitz_thompson, row_weights

        return horvitz_thompson(self.frequencies, self.scheme, g, row_weights(self.keys, len(self), where, weights))

    def for_release(self, scheme: Scheme | None) -> tuple[pa.Array, Ints]:
        """Return keys and frequencies for a channel with this scheme, once: a salt is for one release.

        The process remembers which salts were released; it cannot see releases of other processes with the same salt.
        """
        if self.size is not None:
            fix = "Pass Sample.of(...) with a fixed rate, or use dpsieve.channels.release_sample."
            raise InvalidValue(f"sample is a bottom-k sample, whose rate was read off the data. {fix}")
        if self.sampler != (everything() if scheme is None else scheme):
            fix = "Make the channel with sample.scheme, such as dpsieve.channels.optimal(1.0, 1e-8, sample.scheme)."
            raise InvalidValue(f"sample was drawn by another scheme than that of the channel. {fix}")
        with _lock:
            if self.mark in _released:
                why = "was released with its salt before, and two releases must not share their random numbers"
                raise InvalidValue(f"sample {why}. Sample again with a new salt.")
            _released.add(self.mark)
        return self.keys, self.frequencies

    def to_bytes(self) -> bytes:
        """Return the whole sample, true keys and frequencies included, without the salt: keep it as safe as the data.

        In the form of `values.saved_bytes`: name, format and kind of keys; rows, k (or 0) and length of the scheme,
        8 bytes each; threshold; scheme as JSON; mark; frequencies; words of the numbers; keys; checksum.
        """
        kind, scheme = kind_of_type(self.keys.type) if len(self) else None, json.dumps(self.sampler.to_json()).encode()
        body = [
            _NAME + bytes([_FORMAT, KINDS.index(kind)]),
            np.array([len(self), self.size or 0, len(scheme)], "<u8").tobytes(),
            np.array([self.threshold], "<f8").tobytes() + scheme + self.mark,
            numbers_to_bytes(self.frequencies),
            np.array([self.high, self.low], "<u8").tobytes(),
            keys_to_bytes(kind, self.keys),
        ]
        return sealed(b"".join(body), "this sample is too long to be saved in 512 MB. Sample at a lower rate.")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Sample":
        """Return the sample that `to_bytes` saved; bytes that are damaged, or describe no sample, are refused."""
        reader = ByteReader(data, _NAME, _FORMAT, "sample")
        kind, (rows, size, length) = reader.kind(), reader.words(3)
        threshold = float(np.frombuffer(reader.take(8), "<f8")[0])
        try:
            sampler = read_scheme(json.loads(bytes(reader.take(length))))
        except (DpsieveError, ValueError, RecursionError):
            refuse("have an unknown scheme")
        mark, frequencies = bytes(reader.take(MARK)), reader.numbers(rows)
        high, low = np.frombuffer(reader.take(16 * rows), "<u8").astype(np.uint64).reshape(2, rows)
        keys = reader.keys(kind, rows)
        reader.end()
        keys = keys if rows else pa.array([], pa.large_string())
        sample = cls(keys, frequencies, sampler, size or None, threshold, high, low, mark)
        if not sample._is_possible() or sample.to_bytes() != bytes(data):
            refuse("describe a sample that no data leads to")
        return sample

    def _is_possible(self) -> bool:
        """Return whether every key has a frequency, and a number with which it is sampled."""
        if len(self) and not 1 <= self.frequencies.min() <= self.frequencies.max() <= MOST:
            return False
        if self.size is None:
            return self.threshold == np.inf and bool(self._enters(self.sampler).all())
        data, full = self.sampler.to_json(), self.threshold < np.inf
        if data["kind"] not in ("ppswor", "priority") or data["tau"] != 1.0 or not self.threshold > 0:
            return False
        fits = len(self) == self.size if full else len(self) <= self.size
        return fits and self.size <= MOST and bool((self._ranks() <= self.threshold).all())

    def _enters(self, scheme: Scheme) -> NDArray[np.bool_]:
        """Return whether the number of each key is below its q."""
        return below(self.high, self.low, *floor_words(scheme.inclusion(self.frequencies)))

    def _ranks(self) -> Floats:
        """Return the rank of each key, above zero. Sums, products and quotients only: the same on every machine."""
        uniform = (self.high.astype(np.float64) + (self.low.astype(np.float64) + 0.5) / 2.0**64) / 2.0**64
        uniform = np.minimum(uniform, np.nextafter(1.0, 0.0))
        data = self.sampler.to_json()
        scores = _exponential(uniform) if data["kind"] == "ppswor" else uniform
        return scores / raise_to_power(self.frequencies.astype(np.float64), data["power"])

    def _take_lowest(self, k: int, thresholds: list[float]) -> "Sample":
        """Return the k keys of lowest rank, with the next rank, of a key or of these, as threshold."""
        ranks = self._ranks()
        order = np.lexsort((self.low, self.high, ranks))
        limit = np.sort(np.concatenate([ranks, np.array(thresholds), [np.inf] * (k + 1)]))[k]
        return replace(self._take(order[:k]), size=k, threshold=float(limit))

    def _take(self, places: Ints) -> "Sample":
        """Return the keys at these places, sorted."""
        order = places[pc.sort_indices(self.keys.take(pa.array(places))).to_numpy()]
        columns = {name: getattr(self, name)[order] for name in ("frequencies", "high", "low")}
        return replace(self, keys=self.keys.take(pa.array(order)), **columns)


def candidates(keys: Any, frequencies: ArrayLike, scheme: Scheme, parts: int, *, salt: bytes) -> pa.Array:
    """Return the keys of one of `parts` parts of the data that a sample of all of it may hold. NOT private.

    It is the first round for parts that share keys; see the head of this module. The candidates of a part with counts
    w_j are about sum of q(parts w_j), for ppswor and priority with a power p at most tau parts^p sum of w_j^p.

    Args:
        keys, frequencies, scheme, salt: as for `Sample.of`; frequencies are those in this part.
        parts: in how many parts a key may occur, from 1 to 8,192.

    >>> from dpsieve.sampling import everything, new_salt
    >>> candidates(["tea", "milk"], [3, 0], everything(), 2, salt=new_salt()).to_pylist()
    ['tea']
    """
    parts = validate.whole("parts", parts, low=1, high=_MOST_PARTS, hint="Pass in how many parts a key may occur.")
    part = _number_keys(keys, frequencies, check_scheme(scheme), None, salt)
    most = replace(part, frequencies=part.frequencies * parts)  # at most 2^53
    return part._take(np.flatnonzero(most._enters(scheme))).keys


def _number_keys(keys: Any, frequencies: ArrayLike, sampler: Scheme, size: int | None, salt: bytes) -> Sample:
    """Return all keys that occur, each with its number."""
    salt = check_salt(salt)
    counts = validate.integers("frequencies", frequencies, hint=_COUNTS)
    column = plain_items(refuse_set(keys), "keys", _KEYS, nulls=False)
    if len(column) != len(counts):
        raise InvalidValue("keys and frequencies differ in length. Pass one frequency for each key.")
    if len(counts) and not 0 <= counts.min() <= counts.max() <= MOST:
        raise InvalidValue(f"frequencies holds a number below 0 or above 10^12. {_COUNTS}")
    if len(pc.unique(column)) < len(column):
        raise InvalidValue("keys holds a key more than once. Add up the frequencies of equal keys first.")
    present = np.flatnonzero(counts)
    column, counts = column.take(pa.array(present)), counts[present]
    return Sample(column, counts, sampler, size, np.inf, *keyed_words(salt, column), mark_of(salt))


def _exponential(uniform: Floats) -> Floats:
    """Return -ln(1 - u), right to some units in the last place, also for tiny u.

    For u <= 1/2 it is 2 artanh(u / (2 - u)), a series in z <= 1/3. Else 1 - u = m 2^e with 1/2 <= m < 1, and it is
    -e ln 2 + 2 artanh((1 - m) / (1 + m)).
    """
    m, e = np.frexp(1.0 - uniform)
    small = uniform <= 0.5
    z = np.where(small, uniform / (2.0 - uniform), (1.0 - m) / (1.0 + m))
    square, series = z * z, np.zeros_like(z)
    for k in range(_TERMS, -1, -1):
        series = series * square + 1.0 / (2 * k + 1)
    return np.where(small, 0.0, -_LOG_2 * e) + 2.0 * z * series
