"""What the record of a saved release says, beside its tables: the promise, its certificate, and how it was made."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpsieve
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidType, InvalidValue
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.privacy.uses import ONCE, Uses
from dpsieve.publication.again import from_json
from dpsieve.publication.bounded import LARGEST_RECORD, is_deep
from dpsieve.publication.folders import incomplete

# What a folder may hold, and what reads it.
_READERS = {
    "release": "dpsieve.Release.load",
    "heavy_hitters": "dpsieve.Release.load",
    "distribution": "dpsieve.federated.Distribution.load",
}
_OF_FOLDER = {"format", "library", "table_sha256", "more_sha256", "seal"}

# What reading values of the wrong kind may raise.
ODD_VALUES = (DpsieveError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Record:
    """A record; see `dpsieve.Release` for most of it. `kind` is what the folder holds, `keys` the rows of its table.

    What is false is refused: a promise that the mechanism does not keep, or a certificate that it does not have.
    """

    kind: str
    guarantee: Guarantee
    certificate: Certificate
    mechanism: Mechanism
    notes: dict[str, Any]
    unsafe_to_publish: bool
    keys: int
    uses: Uses = ONCE

    def __post_init__(self) -> None:
        fix = "Save the release as it was made."
        if not isinstance(self.notes, dict) or not isinstance(self.unsafe_to_publish, bool):
            raise InvalidType(f"notes must be a dict, and unsafe_to_publish True or False. {fix}")
        if not self.uses.keep(self.mechanism.guarantee, self.guarantee):
            raise InvalidValue(f"guarantee promises more than the mechanism keeps with {self.uses}. {fix}")
        rows = getattr(self.mechanism, "last_row", None) if self.certificate.rows > 1 else None
        if rows not in (None, self.certificate.rows) or self.mechanism.certify() != self.certificate:
            raise InvalidValue(f"certificate is not that of the mechanism. {fix}")
        if is_deep(self.to_json()) or len(_text(self.to_json())) > LARGEST_RECORD - 4096:  # digests come on top
            raise InvalidValue("notes or mechanism are too large or too deeply nested to be saved. Use shorter ones.")

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return {
            "kind": self.kind,
            "library": dpsieve.__version__,
            "unsafe_to_publish": self.unsafe_to_publish,
            "guarantee": self.guarantee.to_json(),
            "uses": self.uses.to_json(),
            "certificate": self.certificate.to_json(),
            "mechanism": self.mechanism.to_json(),
            "notes": self.notes,
            "keys": self.keys,
        }


def checked_record(source: Path, data: Mapping[str, Any], *kinds: str) -> Record:
    """Return the record of a folder: of one of these kinds, with its mechanism made again and certified anew."""
    data = {"kind": "release", "uses": ONCE.to_json(), **data}
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in _READERS:
        raise CorruptRelease(f"{source} holds a kind of release that this version does not read.")
    if kind not in kinds:
        raise InvalidValue(f"folder={str(source)!r} holds another kind of release. Use {_READERS[kind]}.")
    try:
        guarantee, certificate = Guarantee.from_json(data["guarantee"]), Certificate.from_json(data["certificate"])
        mechanism, uses = from_json(data["mechanism"]), Uses.from_json(data["uses"])
        values = data["notes"], data["unsafe_to_publish"], data["keys"]
    except ODD_VALUES:
        raise incomplete(source) from None
    try:
        made = Record(kind, guarantee, certificate, mechanism, *values, uses)
        said = {name: value for name, value in data.items() if name not in _OF_FOLDER}
        same = _text(said) == _text({name: value for name, value in made.to_json().items() if name != "library"})
    except ODD_VALUES:
        same = False
    if not same:
        raise CorruptRelease(f"{source} says something else than its mechanism. Get a fresh copy.")
    return made


def _text(values: Mapping[str, Any]) -> str:
    """Return the one text for these values: True, 1 and 1.0 differ."""
    try:
        return json.dumps(values, sort_keys=True, allow_nan=False, indent=1)
    except (TypeError, ValueError, RecursionError):
        raise InvalidType("notes must hold plain JSON values: finite numbers, texts, lists and dicts.") from None
