"""Samples that merge: the random number of each key comes from a keyed hash, so parts of the data agree on it.

Key x of frequency w and number u (128 bits, uniform) is in the sample when u < q(w), for the scheme's q rounded down to
multiples of 2^-128 (Private Weighted Sampling, Algorithm 1). With the same salt, what is sampled depends on x and w
alone. So the union of the samples of parts without common keys is the sample of the union, bit by bit. Parts with
common keys take two rounds, by `candidates`.

The number of a key is its AES-256-CBC-MAC under the salt. The first block holds the kind of the key and, for integers,
the integer itself; for text and bytes, their length, and the bytes follow in further blocks, padded with zeros.
Without the salt the numbers of different keys are uniform and independent; with the salt they are known. So it is a
secret, and for one release. Proofs: docs/background/sampling.md#how-they-agree and #what-is-promised.

Nothing here is private: keys and frequencies are true. `Channel.release` makes a sample private, with the guarantee of
the channel.
"""

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.exact import below, floor_words
from dpsieve.randomness.source import resolve
from dpsieve.sampling.schemes import Scheme, check_scheme, everything
from dpsieve.sampling.schemes import scheme_from_json as read_scheme
from dpsieve.types import Bytes, Ints, Words
from dpsieve.values.columns import Kind, kind_of_type, plain_items
from dpsieve.values.keys import refuse_set
from dpsieve.values.saved_bytes import KINDS, ByteReader, keys_to_bytes, numbers_to_bytes, refuse, sealed

if TYPE_CHECKING:
    from dpsieve.estimation.estimated_sums import EstimatedSum

MARK = 16
_SALT, _BLOCK, _CHUNK = 32, 16, 1 << 15
_TAGS: dict[Kind, int] = {"integers": 1, "text": 2, "bytes": 3}
_HINT = "Make one with dpsieve.sampling.new_salt(), and pass it to every part."
MOST = 10**12  # the largest frequency
_MOST_PARTS = 8192
_NAME, _FORMAT = b"dpsieve sample", 2
_KEYS = "Pass distinct keys without nulls: integers, text or bytes, as an Arrow array or a list."
_COUNTS = "Pass one whole number for each key, from 0 to 10^12."

_released: set[bytes] = set()
_lock = threading.Lock()


def new_salt() -> bytes:
    """Return 32 secret random bytes, to be shared by the samplers of one release only.

    >>> len(new_salt())
    32
    """
    return resolve(None).words(_SALT // 8).tobytes()


def check_salt(salt: object) -> bytes:
    """Return a salt of 32 bytes."""
    if not isinstance(salt, bytes):
        raise InvalidType(f"salt must be bytes, not {type(salt).__name__}. {_HINT}", argument="salt")
    if len(salt) != _SALT:
        raise InvalidValue(f"salt must have 32 bytes. {_HINT}", argument="salt")
    return salt


def mark_of(salt: bytes) -> bytes:
    """Return a 16-byte fingerprint that identifies the salt without revealing it."""
    return hashlib.sha256(b"dpsieve mark of a salt" + salt).digest()[:MARK]


def keyed_words(salt: bytes, keys: pa.Array) -> tuple[Words, Words]:
    """Return the high and the low words of the numbers of keys: a column of int64, large_string or large_binary."""
    state = np.empty((len(keys), 2), "<u8")
    for start in range(0, len(keys), _CHUNK):
        part = keys[start : start + _CHUNK]
        state[start : start + len(part)] = _macs(salt, part).view("<u8")
    return state[:, 1].astype(np.uint64), state[:, 0].astype(np.uint64)


def _macs(salt: bytes, keys: pa.Array) -> Bytes:
    """Return the MAC of each key, a row of 16 bytes."""
    kind = kind_of_type(keys.type)
    assert kind is not None
    first = np.zeros((len(keys), 2), "<i8")
    first[:, 0] = _TAGS[kind]
    if kind == "integers":
        first[:, 1] = keys.to_numpy()
        return _encrypt(salt, first.view(np.uint8))
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, 8 * keys.offset)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    first[:, 1] = np.diff(offsets)
    state = _encrypt(salt, first.view(np.uint8))
    for done in range(0, int(first[:, 1].max(initial=0)), _BLOCK):
        left = np.flatnonzero(first[:, 1] > done)
        state[left] = _encrypt(salt, state[left] ^ _blocks(data, offsets[left] + done, offsets[left + 1]))
    return state


def _blocks(data: Bytes, starts: Ints, ends: Ints) -> Bytes:
    """Return the 16 bytes from each start on, with zeros from its end on."""
    places = starts[:, None] + np.arange(_BLOCK)
    inside = places < ends[:, None]
    return np.where(inside, data[np.where(inside, places, starts[:, None])], np.uint8(0))


def _encrypt(salt: bytes, blocks: Bytes) -> Bytes:
    """Encrypt each block separately by AES-256: ECB is right for distinct states of a MAC."""
    cipher = Cipher(AES256(salt), ECB()).encryptor()  # noqa: S305
    return np.frombuffer(bytearray(cipher.update(np.ascontiguousarray(blocks).tobytes())), np.uint8).reshape(-1, _BLOCK)


@dataclass(frozen=True, eq=False, repr=False)
class Sample:
    """A weighted sample of counted keys that merges with others of the same salt. It is NOT private.

    Make one with `Sample.of`.

    Attributes:
        keys: the sampled keys, sorted.
        frequencies: their true frequencies.
        scheme: the inclusion probabilities.
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
    scheme: Scheme
    high: Words
    low: Words
    mark: bytes

    @classmethod
    def of(cls, keys: Any, frequencies: ArrayLike, scheme: Scheme, *, salt: bytes) -> "Sample":
        """Return the sample of counted keys: each enters with probability q(w), by its number.

        Args:
            keys: distinct keys without nulls: integers, text or bytes.
            frequencies: the true frequency of each key, from 0 to 10^12; a key of frequency 0 is never sampled.
            scheme: ppswor, priority, everything or custom values, with a rate that does not come from the data.
            salt: of `new_salt`; the same for all parts of one release.
        """
        check_scheme(scheme).to_json()  # refuses what cannot be saved
        all_keys = _number_keys(keys, frequencies, scheme, salt)
        return all_keys.take(np.flatnonzero(all_keys._enters(scheme)))

    def __len__(self) -> int:
        return len(self.frequencies)

    def __repr__(self) -> str:
        return f"<Sample by {self.scheme!r}: not to be published>"

    def merge(self, other: "Sample") -> "Sample":
        """Return the sample of both parts together, for parts of the data without common keys.

        Both must have one salt and one scheme. A key in both samples is refused. A common key of the parts that is in
        at most one sample is not noticed, and the result is then too low: for such parts, see `candidates`.
        """
        if not isinstance(other, Sample):
            raise InvalidType(f"other must be a Sample, not {type(other).__name__}.")
        if other.mark != self.mark:
            raise InvalidValue("other was sampled with another salt. Pass the same salt to all parts.")
        if other.scheme != self.scheme:
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
        return both.take(np.arange(len(keys)))

    def thinned(self, tau: float) -> "Sample":
        """Return the sample at a lower rate: the one that `Sample.of` would have drawn with this tau."""
        data = self.scheme.to_json()
        if data["kind"] not in ("ppswor", "priority"):
            raise InvalidValue("tau is for samples by ppswor or priority. Sample the data again.")
        lower = read_scheme({**data, "tau": validate.positive("tau", tau, hint="Pass a rate such as tau=0.001.")})
        if lower.to_json()["tau"] > data["tau"]:
            raise InvalidValue("tau is above the rate of this sample, which lacks the further keys. Pass a lower one.")
        return replace(self.take(np.flatnonzero(self._enters(lower))), scheme=lower)

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
        if self.scheme != (everything() if scheme is None else scheme):
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

        In the form of `values.saved_bytes`: name, format and kind of keys; rows and length of the scheme, 8 bytes each;
        scheme as JSON; mark; frequencies; words of the numbers; keys; checksum.
        """
        kind, scheme = kind_of_type(self.keys.type) if len(self) else None, json.dumps(self.scheme.to_json()).encode()
        body = [
            _NAME + bytes([_FORMAT, KINDS.index(kind)]),
            np.array([len(self), len(scheme)], "<u8").tobytes() + scheme + self.mark,
            numbers_to_bytes(self.frequencies),
            np.array([self.high, self.low], "<u8").tobytes(),
            keys_to_bytes(kind, self.keys),
        ]
        return sealed(b"".join(body), "this sample is too long to be saved in 512 MB. Sample at a lower rate.")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Sample":
        """Return the sample that `to_bytes` saved; bytes that are damaged, or describe no sample, are refused."""
        reader = ByteReader(data, _NAME, _FORMAT, "sample")
        kind, (rows, length) = reader.kind(), reader.words(2)
        try:
            scheme = read_scheme(json.loads(bytes(reader.take(length))))
        except (DpsieveError, ValueError, RecursionError):
            refuse("have an unknown scheme")
        mark, frequencies = bytes(reader.take(MARK)), reader.numbers(rows)
        high, low = np.frombuffer(reader.take(16 * rows), "<u8").astype(np.uint64).reshape(2, rows)
        keys = reader.keys(kind, rows)
        reader.end()
        keys = keys if rows else pa.array([], pa.large_string())
        sample = cls(keys, frequencies, scheme, high, low, mark)
        if not sample._is_possible() or sample.to_bytes() != bytes(data):
            refuse("describe a sample that no data leads to")
        return sample

    def _is_possible(self) -> bool:
        """Return whether every key has a frequency, and a number with which it is sampled."""
        if len(self) and not 1 <= self.frequencies.min() <= self.frequencies.max() <= MOST:
            return False
        return bool(self._enters(self.scheme).all())

    def _enters(self, scheme: Scheme) -> NDArray[np.bool_]:
        """Return whether the number of each key is below its q."""
        return below(self.high, self.low, *floor_words(scheme.inclusion(self.frequencies)))

    def take(self, places: Ints) -> "Sample":
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
    part = _number_keys(keys, frequencies, check_scheme(scheme), salt)
    most = replace(part, frequencies=part.frequencies * parts)  # at most 2^53
    return part.take(np.flatnonzero(most._enters(scheme))).keys


def _number_keys(keys: Any, frequencies: ArrayLike, scheme: Scheme, salt: bytes) -> Sample:
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
    return Sample(column, counts, scheme, *keyed_words(salt, column), mark_of(salt))
