"""The aggregator's side: reports come in, those of no use are left out, and one release comes out.

What is in a tally is secret: the counts of all values, and how many reports were left out and why. The release has
none of it but the counts that reached the threshold.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.federated.buckets import Buckets
from dpsieve.federated.plan import Plan
from dpsieve.federated.report import Report
from dpsieve.privacy.ledger import Ledger
from dpsieve.publication import Release
from dpsieve.randomness.source import Source, resolve

_ENVELOPE = 512  # bytes of a report around its value, and more than enough for a number


@dataclass(repr=False)
class Ignored:
    """How many reports were left out, and why: numbers for the aggregator alone, which no release may tell.

    Attributes:
        malformed: not a report, or with a value of the wrong kind.
        unknown: a value outside the public list.
        too_long: a text of too many bytes.
        repeated: a report whose nonce was seen before.
    """

    malformed: int = 0
    unknown: int = 0
    too_long: int = 0
    repeated: int = 0

    def __repr__(self) -> str:
        return "<Ignored: private numbers of reports left out>"


class Tally:
    """Counts reports until one release is made from them; see `dpsieve.federated.Histogram.tally`."""

    def __init__(self, plan: Plan, buckets: Buckets) -> None:
        self._plan, self._buckets = plan, buckets
        self._counted = pa.table({"value": pa.array([], buckets.type), "count": pa.array([], pa.int64())})
        self._waiting: list[pa.Table] = []
        self._seen: set[str] = set()
        self._open = True
        self.ignored = Ignored()

    def __repr__(self) -> str:
        return f"<Tally of reports, not to be published, {'open' if self._open else 'released'}>"

    def add(self, reports: Any) -> "Tally":
        """Count reports; those that cannot be counted are left out and added up in `ignored`. Returns the tally.

        Args:
            reports: a list or another iterable of reports (`Report`, or what its `to_json` or `to_bytes` returned), or,
                for many at once, an Arrow or NumPy array of reported values as `client_reports` returns them, which
                have no nonce. Plain values in a list are no reports.
        """
        self._check_open()
        if isinstance(reports, pa.Array | pa.ChunkedArray | np.ndarray) or hasattr(reports, "to_numpy"):
            values = self._buckets.column("reports", reports)
            self.ignored.malformed += values.null_count
            self._count(values.drop_null())
        elif isinstance(reports, Iterable) and not isinstance(reports, str | bytes | dict | Report):
            self._count(
                pa.array([value for report in list(reports) for value in self._read(report)], self._buckets.type)
            )
        else:
            raise InvalidType("reports must be a list of reports, or an array of values. Wrap a single one: [report].")
        return self

    def release(self, *, ledger: Ledger | None = None, note: str = "", source: Source | None = None) -> Release:
        """Return the values that reached the threshold. A tally is released once, as the guarantee is for one release.

        Args:
            ledger: the budget to charge; the spend is durable before anything is looked at.
            note: what this release is for, kept in the ledger.
            source: the test source that drew the reports, if one did; the release then says that it is unsafe.
        """
        self._check_open()
        source, channel = resolve(source), self._plan.channel
        channel.certify()
        if ledger is not None:
            charged(ledger).spend(self._plan.guarantee, note)
        self._open = False
        self._merge()
        counts = self._counted.column("count").to_numpy()
        keys = self._counted.column("value").combine_chunks()
        made = channel.release(keys, counts, already_sampled=True, source=source)
        return replace(made, notes=notes(self._plan, self._buckets))

    def _read(self, report: Any) -> list[str | int]:
        """Return the value of one report, or nothing where it does not count."""
        if isinstance(report, bytearray | memoryview):
            report = bytes(report)
        if isinstance(report, bytes) and len(report) > 6 * self._buckets.longest + _ENVELOPE:  # \\u1234 is 6 bytes
            self.ignored.too_long += 1
            return []
        try:
            if not isinstance(report, Report):
                report = Report.from_bytes(report) if isinstance(report, bytes) else Report.from_json(report)
        except DpsieveError:
            report = None
        if report is None or isinstance(report.value, int) != (self._buckets.kind == "integers"):
            self.ignored.malformed += 1
            return []
        if report.nonce in self._seen:
            self.ignored.repeated += 1
            return []
        if report.nonce:
            self._seen.add(report.nonce)
        return [report.value]

    def _count(self, values: pa.Array) -> None:
        found = pa.Table.from_arrays(pc.value_counts(values).flatten(), names=["value", "count"])
        known = self._buckets.among(found.column("value"))
        left_out = int(pc.sum(found.filter(pc.invert(known)).column("count")).as_py() or 0)
        if self._buckets.listed is None:
            self.ignored.too_long += left_out
        else:
            self.ignored.unknown += left_out
        self._waiting.append(found.filter(known))
        if sum(part.num_rows for part in self._waiting) > self._counted.num_rows + (1 << 16):
            self._merge()

    def _merge(self) -> None:
        if self._waiting:
            whole = pa.concat_tables([self._counted, *self._waiting])
            summed = whole.group_by("value").aggregate([("count", "sum")])
            self._counted = summed.select(["value", "count_sum"]).rename_columns(["value", "count"])
            self._waiting = []

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidValue("this tally has made its release. Start another one, with a fresh sample of clients.")


def charged(ledger: Ledger) -> Ledger:
    """Return the ledger, or raise when it is none."""
    if not isinstance(ledger, Ledger):
        raise InvalidType(f"ledger must be a dpsieve.Ledger, not {type(ledger).__name__}. Pass Ledger(path).")
    return ledger


def notes(plan: Plan, buckets: Buckets) -> dict[str, Any]:
    """Return how a collection was made, in public numbers."""
    listed = "any" if buckets.listed is None else f"{len(buckets.listed):,} of a public list"
    return {
        "collection": "sample and threshold",
        "rate": plan.rate,
        "threshold": plan.threshold,
        "neighbours": plan.guarantee.neighbours,
        "values": listed,
    }
