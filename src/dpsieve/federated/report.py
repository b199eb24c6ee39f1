"""What a client sends: its value, and a random number by which a repeated report is recognised.

On the wire a report is JSON in UTF-8: {"version":1,"value":"tea","nonce":"9f86d081884c7d659a2feaa0c55ad015"}.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.randomness.source import Source, uniform_bits
from dpsieve.values.columns import not_unicode, too_large

VERSION = 1
NONCE_BITS = 128
_FIELDS = {"version", "value", "nonce"}
_HINT = "Pass what Report.to_json or Report.to_bytes returned."


@dataclass(frozen=True, repr=False)
class Report:
    """The value of one client that was sampled. It is secret until it has gone through a threshold with others.

    Attributes:
        value: text, or a whole number of 64 bits.
        nonce: 32 hexadecimal digits, drawn anew for each report and sent again with each retry; '' for none.
    """

    value: str | int
    nonce: str = ""

    def __repr__(self) -> str:
        return "<Report of a client, not to be published>"

    def __post_init__(self) -> None:
        if not isinstance(self.value, str | int) or isinstance(self.value, bool):
            raise InvalidType("value of a report must be text or a whole number. Pass a str or an int.")
        if isinstance(self.value, int):
            if not -(2**63) <= self.value < 2**63:
                raise too_large("value of a report")
        elif not _is_unicode(self.value):
            raise not_unicode("value of a report")
        if not is_nonce(self.nonce):
            raise InvalidValue("nonce of a report must be 32 hexadecimal digits, or ''. Let client_report draw one.")

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return {"version": VERSION, "value": self.value, "nonce": self.nonce}

    def to_bytes(self) -> bytes:
        """Return the report as it is sent."""
        return json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: Any) -> "Report":
        """Make a report from `to_json`; anything else is refused, without a word about what it held."""
        if not isinstance(data, Mapping) or set(data) != _FIELDS or data["version"] is not VERSION:
            raise InvalidValue(f"data is no report of version {VERSION}. {_HINT}")
        return cls(data["value"], data["nonce"])

    @classmethod
    def from_bytes(cls, data: bytes) -> "Report":
        """Make a report from `to_bytes`; anything else is refused.

        >>> Report.from_bytes(Report("tea").to_bytes()).value
        'tea'
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidType(f"data must be bytes, not {type(data).__name__}. {_HINT}")
        try:
            fields = json.loads(bytes(data).decode())
        except (ValueError, RecursionError):
            fields = None
        return cls.from_json(fields)


def new_nonce(source: Source) -> str:
    """Return 128 random bits in hexadecimal."""
    return f"{uniform_bits(source, NONCE_BITS):032x}"


def is_nonce(nonce: object) -> bool:
    """Return whether this is a nonce, or '' for none."""
    return isinstance(nonce, str) and (nonce == "" or (len(nonce) == 32 and set(nonce) <= set("0123456789abcdef")))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
