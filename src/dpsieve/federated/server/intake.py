"""The intake of reports: messages are decoded and checked, dummies and repeats are dropped, and the others counted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dpsieve.errors import DpsieveError
from dpsieve.federated.client.answers import decode, is_dummy

_ENVELOPE = 512  # bytes of a message around its longest field
_MOST_WAITING = 1 << 16  # rows beyond those of the table


@dataclass(repr=False)
class Ignored:
    """How many reports were left out, by reason: private numbers. No release contains them.

    Attributes:
        malformed: not a report, of the wrong kind, or no answer to the question.
        unknown: a value outside the public list.
        too_long: a text or a message of too many bytes.
        repeated: a report whose nonce was received before.
        silent: dummies of silent clients.
    """

    malformed: int = 0
    unknown: int = 0
    too_long: int = 0
    repeated: int = 0
    silent: int = 0

    def add(self, reason: str, count: int = 1) -> None:
        """Count reports that are left out for a reason."""
        setattr(self, reason, getattr(self, reason) + count)

    @property
    def total(self) -> int:
        """All of them except dummies."""
        return self.malformed + self.unknown + self.too_long + self.repeated

    def __repr__(self) -> str:
        return "<Ignored: private numbers of reports left out>"


class Intake:
    """Reads reports from untrusted messages, each nonce once.

    Args:
        parse: returns the report, with its `nonce`, of a decoded message; None, or an error, where there is none.
    """

    def __init__(self, parse: Callable[[Any], Any]) -> None:
        self.ignored, self._parse = Ignored(), parse
        self._nonces: set[str] = set()

    def forget_nonces(self) -> None:
        """Start the reports of another question."""
        self._nonces = set()

    def read(self, messages: Iterable[Any], longest: int) -> list[Any]:
        """Return the reports of those messages that count; their longest field has this many bytes at most."""
        reports = (self._read(message, longest + _ENVELOPE) for message in list(messages))
        return [report for report in reports if report is not None]

    def _read(self, message: Any, most_bytes: int) -> Any:
        if isinstance(message, bytes | bytearray | memoryview):
            message = bytes(message)
            if len(message) > most_bytes:
                return self.ignored.add("too_long")
            message = decode(message)
        try:
            report = self._parse(message)
        except DpsieveError:
            report = None
        if report is None:
            return self.ignored.add("silent" if is_dummy(message) else "malformed")
        if report.nonce in self._nonces:
            return self.ignored.add("repeated")
        if report.nonce:
            self._nonces.add(report.nonce)
        return report


class CountTable:
    """Counts by key columns. Batches wait until they outgrow the table, so few of them group its rows again.

    Args:
        keys: the key columns; a column `count` follows them.
    """

    def __init__(self, keys: pa.Schema) -> None:
        self._keys = keys.names
        self._table = keys.append(pa.field("count", pa.int64())).empty_table()
        self._batches: list[pa.Table] = []
        self._waiting = 0

    def add(self, batch: pa.Table) -> None:
        self._batches.append(batch.cast(self._table.schema))
        self._waiting += batch.num_rows
        if self._waiting > self._table.num_rows + _MOST_WAITING:
            self.total()

    def total(self) -> pa.Table:
        if self._batches:
            rows = pa.concat_tables([self._table, *self._batches])
            summed = rows.group_by(self._keys).aggregate([("count", "sum")])
            self._table = summed.select([*self._keys, "count_sum"]).rename_columns([*self._keys, "count"])
            self._batches, self._waiting = [], 0
        return self._table
