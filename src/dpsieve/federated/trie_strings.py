"""Which strings a trie is over, and their prefixes: one by one on a client, or whole Arrow columns at once."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.level_plans import MOST_LEVELS
from dpsieve.values.columns import column_of, not_unicode
from dpsieve.values.items import sound

Symbols = str | bytes
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Strings:
    """Strings of min_length to max_length symbols.

    Attributes:
        max_length, min_length: how many symbols a string may have.
        alphabet: None for any text; a str of the characters that may occur; or bytes, for byte strings of these bytes
            (`bytes(range(256))` for all of them).

    >>> words = Strings(5, alphabet="abcdefghijklmnopqrstuvwxyz")
    >>> words.accepts("sieve"), words.accepts("Sieve"), words.accepts("sieves"), words.accepts(b"sieve")
    (True, False, False, False)
    """

    max_length: int
    min_length: int = 0
    alphabet: Symbols | None = None

    def __post_init__(self) -> None:
        hint = "Pass how long strings may be, such as max_length=20."
        most = validate.whole("max_length", self.max_length, low=1, high=MOST_LEVELS, hint=hint)
        hint = "Pass the length of the shortest string, 0 or more."
        object.__setattr__(self, "max_length", most)
        object.__setattr__(self, "min_length", validate.whole("min_length", self.min_length, high=most, hint=hint))
        if self.alphabet is None:
            return
        hint = "Pass distinct characters as a str, distinct bytes, or None for any text."
        if not isinstance(self.alphabet, str | bytes):
            raise InvalidType(f"alphabet must be str, bytes or None, not {type(self.alphabet).__name__}. {hint}")
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet) or not _is_text(self.alphabet):
            raise InvalidValue(f"alphabet is empty, repeats a symbol or has a lone surrogate. {hint}")

    @property
    def empty(self) -> Symbols:
        """The string without symbols."""
        return b"" if self.of_bytes else ""

    @property
    def of_bytes(self) -> bool:
        """Whether strings are bytes."""
        return isinstance(self.alphabet, bytes)

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of a column of them."""
        return pa.large_binary() if self.of_bytes else pa.large_string()

    @cached_property
    def _allowed(self) -> frozenset[Any] | None:
        return None if self.alphabet is None else frozenset(self.alphabet)

    def accepts(self, string: object) -> bool:
        """Return whether this is one of these strings; anything at all may be asked about."""
        return self.fits(string) and self.min_length <= len(string)  # type: ignore[arg-type]

    def fits(self, prefix: object) -> bool:
        """Return whether this is the beginning of one of these strings."""
        if not isinstance(prefix, bytes if self.of_bytes else str) or len(prefix) > self.max_length:
            return False
        return _is_text(prefix) and (self._allowed is None or self._allowed.issuperset(prefix))

    def column(self, values: Any) -> pa.Array:
        """Return values as one Arrow column of these strings, nulls and all; other types are refused."""
        hint = f"Pass {'bytes' if self.of_bytes else 'text'}, as an Arrow array or a list."
        array = column_of("strings", values, hint, self.type)
        kinds = (pa.binary(), pa.large_binary()) if self.of_bytes else (pa.string(), pa.large_string())
        if array.type not in kinds and not pa.types.is_null(array.type):
            raise InvalidType(f"strings has the type {array.type}. {hint}")
        if not sound(array):
            raise not_unicode("strings")
        return array.cast(self.type)

    def accepted(self, column: pa.Array) -> Bools:
        """Return which entries of a column are such strings; nulls are not."""
        lengths = self.lengths(column)
        fine = (lengths >= self.min_length) & (lengths <= self.max_length) & ~_bools(pc.is_null(column))
        return fine & self._spelled(column)

    def lengths(self, column: pa.Array) -> NDArray[np.int64]:
        """Return the number of symbols of each entry, 0 for null."""
        count = pc.binary_length if self.of_bytes else pc.utf8_length
        return np.asarray(pc.fill_null(count(column), 0).cast(pa.int64()).to_numpy(zero_copy_only=False))

    def prefixes(self, column: pa.Array, length: int) -> pa.Array:
        """Return the first symbols of each entry, all of a shorter one."""
        cut = pc.binary_slice if self.of_bytes else pc.utf8_slice_codeunits
        return cut(column, 0, length)

    def _spelled(self, column: pa.Array) -> Bools:
        """Return which entries have no symbol but those of the alphabet; nulls count as such."""
        if self.alphabet is None or (len(self.alphabet) == 256 and self.of_bytes):
            return np.ones(len(column), np.bool_)
        if isinstance(self.alphabet, str):  # what is left after trimming has a foreign symbol at each end
            rest = pc.utf8_length(pc.utf8_trim(column, characters=self.alphabet))
            return _bools(pc.equal(pc.fill_null(rest, 0), 0))
        foreign = np.ones(256, np.bool_)
        foreign[np.frombuffer(self.alphabet, np.uint8)] = False
        whole = pa.concat_arrays([pc.fill_null(column, b"")])
        _, offsets, data = whole.buffers()
        edges = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1] if offsets else [0]
        seen = np.cumsum(np.append(False, foreign[np.frombuffer(data or b"", np.uint8)]))
        return np.asarray(np.diff(seen[edges]) == 0)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; bytes are in hexadecimal."""
        return {
            "of": "bytes" if self.of_bytes else "text",
            "alphabet": None if self.alphabet is None else self.write(self.alphabet),
            "max_length": self.max_length,
            "min_length": self.min_length,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Strings":
        """Rebuild what `to_json` returned; anything else is refused."""
        hint = "Pass what to_json returned."
        if not isinstance(data, dict) or set(data) != {"of", "alphabet", "max_length", "min_length"}:
            raise InvalidValue(f"data does not describe strings. {hint}")
        alphabet = data["alphabet"]
        if data["of"] == "bytes":
            alphabet = _from_hex(alphabet)
        elif data["of"] != "text":
            raise InvalidValue(f"data describes neither text nor bytes. {hint}")
        return cls(data["max_length"], data["min_length"], alphabet)

    def write(self, string: Symbols) -> str:
        """Return a string as JSON text: itself, or bytes in hexadecimal."""
        return string.hex() if isinstance(string, bytes) else string

    def read(self, text: str) -> Symbols:
        """Return the string that `write` wrote."""
        return _from_hex(text) if self.of_bytes else text


def _from_hex(text: object) -> bytes:
    try:
        return bytes.fromhex(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidValue("data holds bytes that are not in hexadecimal. Pass what to_json returned.") from None


def _is_text(symbols: Symbols) -> bool:
    """Return whether symbols are bytes, or text without lone surrogates, which no encoding can carry."""
    return isinstance(symbols, bytes) or symbols.isascii() or not any("\ud800" <= c <= "\udfff" for c in symbols)


def _bools(column: pa.Array) -> Bools:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.bool_)
