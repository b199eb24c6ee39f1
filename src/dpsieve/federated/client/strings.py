"""The strings of a trie, numbers as strings of digits, and the JSON form of messages."""

import math
import numbers
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue, not_unicode, too_large
from dpsieve.validate import Checked, is_choice, is_whole

Symbols = str | bytes

MOST_LEVELS = 1000
_MOST_CELLS = 2**40


class Message:
    """Named fields that servers and clients send as JSON.

    Attributes:
        head: constants that precede the fields.
    """

    __match_args__: Any  # the names of the fields
    head: ClassVar[dict[str, Any]] = {}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; bytes are in hexadecimal."""
        return {**self.head, **{name: _plain(getattr(self, name)) for name in self.__match_args__}}

    @classmethod
    def _read_fields(cls, data: object) -> dict[str, Any]:
        """Return the fields that `to_json` wrote; the error does not quote data."""
        names, head = set(cls.__match_args__), cls.head
        if not isinstance(data, dict) or set(data) != names | set(head) or any(data[n] is not head[n] for n in head):
            kind = cls.__name__
            raise InvalidValue(f"data is not a {kind}. Pass what {kind}.to_json returned.", argument="data")
        return {name: data[name] for name in cls.__match_args__}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Rebuild what `to_json` returned; anything else is refused, and the error does not quote it."""
        return cls(**cls._read_fields(data))


def _check_alphabet(alphabet: Any, name: str) -> Symbols | None:
    hint = "Pass distinct characters as a str, distinct bytes, or None for any text."
    if not isinstance(alphabet, str | bytes | None):
        raise InvalidType(f"{name} must be str, bytes or None, not {type(alphabet).__name__}. {hint}", argument=name)
    if alphabet is not None and (not alphabet or len(set(alphabet)) != len(alphabet) or not _is_text(alphabet)):
        raise InvalidValue(f"{name} is empty, repeats a symbol or has a lone surrogate. {hint}", argument=name)
    return alphabet


@dataclass(frozen=True)
class Strings(Checked, Message):
    """Strings of min_length to max_length symbols.

    Attributes:
        max_length, min_length: the number of symbols of a string.
        alphabet: None for any text; a str of the characters that may occur; or bytes, for byte strings of these bytes
            (`bytes(range(256))` for all of them).

    >>> words = Strings(5, alphabet="abcdefghijklmnopqrstuvwxyz")
    >>> words.accepts("sieve"), words.accepts("Sieve"), words.accepts("sieves"), words.accepts(b"sieve")
    (True, False, False, False)
    """

    max_length: Annotated[int, is_whole(1, MOST_LEVELS, "Pass how long strings may be, such as max_length=20.")]
    min_length: int = 0
    alphabet: Annotated[Symbols | None, _check_alphabet] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the length of the shortest string, 0 or more."
        least = validate.whole("min_length", self.min_length, high=self.max_length, hint=hint)
        validate.store(self, min_length=least)

    @property
    def empty(self) -> Symbols:
        """The string without symbols."""
        return b"" if self.of_bytes else ""

    @property
    def of_bytes(self) -> bool:
        """Whether strings are bytes."""
        return isinstance(self.alphabet, bytes)

    @cached_property
    def _allowed(self) -> frozenset[Any] | None:
        return None if self.alphabet is None else frozenset(self.alphabet)

    def accepts(self, string: object) -> bool:
        """Return whether this is one of these strings; any object may be passed."""
        return self.fits(string) and self.min_length <= len(string)  # type: ignore[arg-type]

    def fits(self, prefix: object) -> bool:
        """Return whether this is the beginning of one of these strings."""
        if not isinstance(prefix, bytes if self.of_bytes else str) or len(prefix) > self.max_length:
            return False
        return _is_text(prefix) and (self._allowed is None or self._allowed.issuperset(prefix))

    def to_json(self) -> dict[str, Any]:
        return {"of": "bytes" if self.of_bytes else "text", **super().to_json()}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        if not isinstance(data, dict) or data.get("of") not in ("text", "bytes"):
            raise InvalidValue("data describes neither text nor bytes. Pass what to_json returned.", argument="data")
        fields = cls._read_fields({name: value for name, value in data.items() if name != "of"})
        if data["of"] == "bytes":
            fields["alphabet"] = _from_hex(fields["alphabet"])
        return cls(**fields)

    def read(self, text: str) -> Symbols:
        """Return a string from its JSON text; bytes are in hexadecimal."""
        return _from_hex(text) if self.of_bytes else text


@dataclass(frozen=True)
class Grid(Checked, Message):
    r"""The interval [low, high] cut into branching^depth cells of equal width. It is public.

    Cell i is [edge(i), edge(i+1)); the last one includes `high`.

    Attributes:
        low, high: the interval.
        branching, depth: parts per level, and levels; at most 2^40 cells in all.
        outside: what clients do whose value is outside: 'clip' moves it to the nearer end, 'silent' leaves it out.

    >>> Grid(0.0, 1.0, branching=4, depth=2).string(1 / 3)  # in [1/4, 2/4), and there in [5/16, 6/16)
    b'\x01\x01'
    """

    low: float
    high: float
    branching: Annotated[int, is_whole(2, 256, "Pass 2 to 256, such as branching=4.")] = 4
    depth: Annotated[int, is_whole(1, 40, "Pass how many levels, such as depth=5.")] = 5
    outside: Annotated[Literal["clip", "silent"], is_choice("clip", "silent")] = "clip"

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass two finite numbers, low < high, such as low=0.0 and high=100.0."
        low, high = (validate.real(name, getattr(self, name), hint=hint) for name in ("low", "high"))
        if not 0 < high - low < math.inf:
            raise InvalidValue(f"low={low:g} is not below high={high:g}, or too far from it. {hint}", argument="low")
        validate.store(self, low=low, high=high)
        fix = "Pass fewer levels or a smaller branching."
        if self.cells > _MOST_CELLS:
            raise InvalidValue(f"depth={self.depth} makes more than 2^40 cells. {fix}", argument="depth")
        if not low + (high - low) / self.cells > low:
            raise InvalidValue(f"low and high are too close for that many cells. {fix}", argument="low")

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.branching**self.depth)

    def edge(self, cell: int) -> float:
        """Return where a cell begins; the edge after the last one is `high`."""
        return self.high if cell == self.cells else self.low + (self.high - self.low) * (cell / self.cells)

    def cell(self, value: float) -> int | None:
        """Return the cell of a value, or None if it is not counted: NaN, or outside where that is silent."""
        inside = min(max(value, self.low), self.high)
        if math.isnan(value) or (self.outside == "silent" and value != inside):
            return None
        cell = min(int((inside - self.low) / (self.high - self.low) * self.cells), self.cells - 1)
        cell -= inside < self.edge(cell) and cell > 0  # rounding may be one off at an edge
        cell += inside >= self.edge(cell + 1) and cell < self.cells - 1
        return cell

    def string(self, value: object) -> bytes | None:
        """Return the digits of a client's value, or None if it is not counted; any object may be passed."""
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return None
        try:
            cell = self.cell(float(value))
        except OverflowError:
            return None
        if cell is None:
            return None
        return bytes(cell // self.branching**place % self.branching for place in range(self.depth - 1, -1, -1))


def check_sendable(name: str, value: str | int) -> None:
    """Raise, without quoting the value, unless a report can carry it: Unicode, or a whole number of 64 bits."""
    if isinstance(value, str):
        if not _is_text(value):
            raise not_unicode(name)
    elif not -(2**63) <= value < 2**63:
        raise too_large(name)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value.hex() if isinstance(value, bytes) else value


def _from_hex(text: object) -> bytes:
    try:
        return bytes.fromhex(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        why = "data holds bytes that are not in hexadecimal"
        raise InvalidValue(f"{why}. Pass what to_json returned.", argument="data") from None


def _is_text(symbols: Symbols) -> bool:
    """Return whether symbols are bytes, or text without lone surrogates, which no encoding can carry."""
    return isinstance(symbols, bytes) or symbols.isascii() or not any("\ud800" <= c <= "\udfff" for c in symbols)
