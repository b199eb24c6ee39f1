"""What the record of a saved release says, beside its tables: the promise, its certificate, and how it was made."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpsieve
from dpsieve.channels.channel import Channel
from dpsieve.errors import CorruptRelease, DpsieveError, InvalidValue
from dpsieve.output.again import from_json
from dpsieve.output.folders import incomplete
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.mechanism import Mechanism

# What a folder may hold, and what reads it.
_READERS = {
    "release": "dpsieve.Release.load",
    "heavy_hitters": "dpsieve.Release.load",
    "distribution": "dpsieve.federated.Distribution.load",
}


@dataclass(frozen=True)
class Record:
    """A record; see `dpsieve.Release` for most of it. `kind` is what the folder holds, `keys` the rows of its table."""

    kind: str
    guarantee: Guarantee
    certificate: Certificate
    mechanism: Mechanism
    notes: dict[str, Any]
    unsafe_to_publish: bool
    keys: int

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        return {
            "kind": self.kind,
            "library": dpsieve.__version__,
            "unsafe_to_publish": self.unsafe_to_publish,
            "guarantee": self.guarantee.to_json(),
            "certificate": self.certificate.to_json(),
            "mechanism": self.mechanism.to_json(),
            "notes": self.notes,
            "keys": self.keys,
        }


def checked_record(source: Path, data: Mapping[str, Any], *kinds: str) -> Record:
    """Return the record of a folder: of one of these kinds, with its mechanism made again and certified anew."""
    kind = data.get("kind", "release")
    if not isinstance(kind, str) or kind not in _READERS:
        raise CorruptRelease(f"{source} holds a kind of release that this version does not read.")
    if kind not in kinds:
        raise InvalidValue(f"folder={str(source)!r} holds another kind of release. Use {_READERS[kind]}.")
    made = None
    try:
        guarantee, certificate = Guarantee.from_json(data["guarantee"]), Certificate.from_json(data["certificate"])
        mechanism, notes, unsafe = from_json(data["mechanism"]), data["notes"], data["unsafe_to_publish"]
        made = Record(kind, guarantee, certificate, mechanism, notes, unsafe, data["keys"])
    except (KeyError, TypeError, DpsieveError):
        pass
    if made is None:
        raise incomplete(source)
    # A channel may have a share of the budget only; others keep the whole promise.
    whole = isinstance(mechanism, Channel) or mechanism.guarantee == guarantee
    if not whole or not isinstance(notes, dict) or not isinstance(unsafe, bool):
        raise CorruptRelease(f"{source} says something else than its mechanism. Get a fresh copy.")
    if mechanism.certify() != certificate:
        raise CorruptRelease(f"{source} holds a certificate that its mechanism does not have.")
    return made
