"""Random numbers of keys: with the same salt, a key has the same 128 bits everywhere.

The number of a key is its AES-256-CBC-MAC under the salt: with blocks m_0, m_1, ... of 16 bytes,

    c_0 = AES(m_0),    c_j = AES(c_(j-1) xor m_j),    and the last c_j is the number.

m_0 holds the kind of the key and, for integers, the integer itself; for text and bytes, their length, and the bytes
follow in further blocks, padded with zeros. So no encoding is a prefix of another one, and then a CBC-MAC is
indistinguishable from a random function if AES-256 is from a random permutation, up to (number of all
blocks)^2 / 2^128 (Bellare, Kilian and Rogaway 2000; Petrank and Rackoff 2000): 1e-18 for a billion keys of 160
bytes. That is the assumption under every other random number here too. Without the salt the numbers of
different keys are uniform and independent; with the salt they are known. So it is a secret, and for one release.
"""

import hashlib

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.randomness.source import resolve
from dpsieve.types import Bytes, Ints, Words
from dpsieve.values.columns import Kind, kind_of_type

MARK = 16
_SALT, _BLOCK, _CHUNK = 32, 16, 1 << 15
_TAGS: dict[Kind, int] = {"integers": 1, "text": 2, "bytes": 3}
_HINT = "Make one with dpsieve.sampling.new_salt(), and pass it to every part."


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
