"""Digests and hashes of entries: each index or key becomes two words, and these as many random words as needed.

An index is its own digest. A key is written as bytes, which are read as a polynomial over the integers modulo 2^61 - 1
and evaluated at two random points. The words of an entry are AES-256 of its digest under a random key, which is drawn
for each vector before any entry is placed, and published with the cells. What that promises:
docs/background/vectors.md#digests-and-hashes.
"""

from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.types import Words
from dpsieve.values.columns import PLAIN, column_of, plain_items

Dimension = int | Literal["integers", "text", "bytes", "any"]
KINDS = ("integers", "text", "bytes", "any")
KEY_WORDS = 4
"""The words of a hash key, with which the cells begin."""
MOST_BYTES = 1 << 16
"""The longest text that can be a key."""
_PER_BLOCK = 2


def check_dimension(value: object, name: str = "dimension") -> Dimension:
    """Return how many indices there are, or the kind of keys."""
    hint = "Pass how many indices there are, such as dimension=2**40, or the kind of keys, such as dimension='text'."
    if isinstance(value, str):
        if value not in KINDS:
            raise InvalidValue(f"{name} is not a kind of keys. {hint}", argument=name)
        return value  # type: ignore[return-value]
    return validate.whole(name, value, low=1, high=2**64, hint=hint)


AnyDimension = Annotated[Dimension, check_dimension]


def read_items(values: Any, dimension: Dimension, name: str) -> pa.Array:
    """Return indices as uint64 below the dimension, or keys of its kind; raise for anything else."""
    if isinstance(dimension, str):
        hint = f"Pass a list of {dimension}, as dimension says."
        items = encode_keys(values, name) if dimension == "any" else _whole_column(values, name, hint)
        if not len(items):
            return pa.array([], column_type(dimension))
        if items.type != column_type(dimension):
            raise InvalidType(f"{name} holds another kind of keys than dimension={dimension!r}. {hint}", argument=name)
        if dimension != "integers" and int(np.diff(_offsets(items)).max()) > MOST_BYTES:
            raise InvalidValue(f"{name} holds a key of more than 2^16 bytes. Pass shorter keys.")
        return items
    hint = f"Pass whole numbers from 0 to {dimension - 1:,}."
    beyond = f"{name} holds a number that is not below the dimension. {hint}"
    if isinstance(values, list | tuple) and any(type(value) is int and value >= 2**64 for value in values):
        raise InvalidValue(beyond)
    array = _unsigned(values)
    if array is None:
        items = _whole_column(values, name, hint)
        if len(items) and not pa.types.is_integer(items.type):
            raise InvalidType(f"{name} must be whole numbers. {hint}")
        signed = items.to_numpy() if len(items) else np.empty(0, np.int64)
        if len(signed) and int(signed.min()) < 0:
            raise InvalidValue(f"{name} holds a number below 0. {hint}")
        array = signed.astype(np.uint64)
    if len(array) and int(array.max()) >= dimension:
        raise InvalidValue(beyond)
    return pa.array(array)


def column_type(dimension: Dimension) -> pa.DataType:
    """Return the Arrow type of indices or keys."""
    if not isinstance(dimension, str):
        return pa.uint64()
    return pa.large_binary() if dimension == "any" else PLAIN[dimension]


def encode_keys(values: Any, name: str) -> pa.Array:
    """Return Python keys as bytes: numbers, texts, bytes, None, and tuples and frozen sets of these.

    Keys that are equal in Python, such as 1, 1.0 and True, have equal bytes, on every machine.
    """
    if isinstance(values, str | bytes):
        raise InvalidType(f"{name} is one {type(values).__name__}. Wrap it in a list: [key].")
    try:
        keys = list(values)
    except TypeError:
        raise InvalidType(f"{name} must be a list of keys, not {type(values).__name__}.") from None
    return pa.array([_written(key, name) for key in keys], pa.large_binary())


def _written(key: Any, name: str) -> bytes:
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, bool | int) or (isinstance(key, float) and key.is_integer()):
        return b"i%d;" % int(key)
    if isinstance(key, float) and key == key:
        return b"f" + key.hex().encode() + b";"
    if key is None:
        return b"n;"
    if isinstance(key, str | bytes):
        encoded = key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key
        return b"%c%d:" % (b"b" if isinstance(key, bytes) else b"s", len(encoded)) + encoded
    if isinstance(key, tuple | frozenset):
        parts = [_written(part, name) for part in key]
        if isinstance(key, frozenset):
            parts.sort()
        return b"%c%d:" % (b"t" if isinstance(key, tuple) else b"u", len(parts)) + b"".join(parts)
    raise InvalidType(f"{name} holds keys of another type than numbers, texts, bytes, None and tuples of these.")


def digest_items(items: pa.Array, key: Words) -> Words:
    """Return two words for each item of `read_items`, distinct for different items except with tiny probability."""
    digests = np.zeros((len(items), 2), np.uint64)
    if not len(items):
        return digests
    if pa.types.is_integer(items.type):
        digests[:, 0] = items.to_numpy().view(np.uint64)
        return digests
    from dpsieve.sparse.loops import text_digests

    points = hash_words(key, np.full((1, 2), 2**61 - 1, np.uint64), 1)[0] >> np.uint64(3)
    offsets = _offsets(items)
    text_digests(int(items.buffers()[2].address), offsets, points[0], points[1], digests)
    return digests


def hash_words(key: Words, digests: Words, blocks: int) -> Words:
    """Return 2 * blocks pseudorandom words for each digest, under a random key of four words.

    There are at most 8 blocks, distinguished by the upper three bits of a digest, which are free.
    """
    cipher = Cipher(AES256(key.astype("<u8").tobytes()), ECB()).encryptor()  # noqa: S305 (a keyed hash, of distinct blocks)
    plain = np.empty((len(digests), blocks, _PER_BLOCK), "<u8")
    plain[:, :, 0] = digests[:, :1]
    plain[:, :, 1] = digests[:, 1:] ^ (np.arange(blocks, dtype=np.uint64) << np.uint64(61))
    out = np.empty(plain.nbytes + 15, np.uint8)
    cipher.update_into(plain.reshape(-1).view(np.uint8).data, out.data)
    return out[: plain.nbytes].view("<u8").reshape(len(digests), blocks * _PER_BLOCK).astype(np.uint64, copy=False)


def _unsigned(values: Any) -> Words | None:
    """Return values of unsigned types, or lists beyond the signed range, as words; None for others."""
    if isinstance(values, list | tuple) and any(type(value) is int and value >= 2**63 for value in values):
        if all(type(value) is int and 0 <= value < 2**64 for value in values):
            return np.array(values, np.uint64)
        return None
    if isinstance(values, np.ndarray):
        plain = values.dtype.kind == "u" and values.ndim == 1 and not isinstance(values, np.ma.MaskedArray)
        return values.astype(np.uint64) if plain else None
    if isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(values, "__arrow_c_stream__"):
        column = column_of("indices", values, "")
        if column.type == pa.uint64() and not column.null_count:
            return np.asarray(column.to_numpy())
    return None


def _whole_column(values: Any, name: str, hint: str) -> pa.Array:
    given = validate.listed(values)
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidType(f"{name} is a masked array. {hint}")
    items = plain_items(given, name, hint)
    if len(items) != len(given):
        raise InvalidValue(f"{name} holds nulls. {hint}")
    return items


def _offsets(items: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where each text of a large_string or large_binary column begins, and the last one ends."""
    offsets = np.frombuffer(items.buffers()[1], np.int64)
    return offsets[items.offset : items.offset + len(items) + 1]
