"""What the page may open: ledgers named at the start, releases inside of one folder, and histograms that it was sent.

A path is resolved, links and all, before it is compared with the folder; what lies outside is refused, whether it is
there or not.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpsieve
from dpsieve import validate
from dpsieve.channels.channel import checked_frequencies
from dpsieve.display import has_only_upper_end
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.explore.planning import Law
from dpsieve.privacy.guarantee import shown
from dpsieve.privacy.ledger import Ledger
from dpsieve.publication.publication import UNSAFE, Publication, as_text
from dpsieve.publication.release import Release
from dpsieve.publication.report import table_data, title
from dpsieve.values.keys import key_names

_LISTED = 200  # releases that are suggested
_KEPT = 4  # histograms and releases in memory
_LONGEST = 4096  # characters of a path
_COMPARED = 200_000  # rows


@dataclass
class Files:
    """The files that the page may open.

    Attributes:
        root: the folder of releases; None if none was given.
        ledgers: by the names that the page shows.
    """

    root: Path | None = None
    ledgers: Mapping[str, Path] = field(default_factory=dict)
    _laws: dict[str, Law] = field(default_factory=dict)
    _opened: dict[tuple[Path, int], Publication] = field(default_factory=dict)

    def ledger(self, name: str | None) -> Ledger:
        """Return a ledger that was given at the start."""
        if name not in self.ledgers:
            fix = "Start the explorer with one: dpsieve explore --ledger budget.ledger."
            raise InvalidValue(f"ledger is none of those given at the start. {fix}", argument="ledger")
        return Ledger.open(self.ledgers[name])

    def releases(self) -> list[str]:
        """Return the releases in the folder, and in its folders, by their names in it."""
        if self.root is None:
            return []
        found = [self.root, *sorted(path.parent for path in self.root.glob("*/release.json")),
                 *sorted(path.parent for path in self.root.glob("*/*/release.json"))]  # fmt: skip
        names = [str(path.relative_to(self.root)) for path in found if (path / "release.json").is_file()]
        return [name for name in names if name.isprintable()][:_LISTED]

    def place(self, name: str, argument: str = "release") -> Path:
        """Return the path of a name inside of the folder."""
        if self.root is None:
            fix = "Start the explorer with one: dpsieve explore FOLDER."
            raise InvalidValue(f"{argument} needs a folder of releases. {fix}", argument=argument)
        fix = f"Pass a folder inside of it, such as {argument}='published'."
        name = validate.text(argument, name, hint=fix)
        if len(name) > _LONGEST:
            raise InvalidValue(f"{argument} is longer than any path. {fix}", argument=argument)
        path = Path(self.root, name).resolve()
        if not path.is_relative_to(self.root.resolve()):
            raise InvalidValue(f"{argument} is outside of the folder of the explorer. {fix}", argument=argument)
        return path

    def release(self, name: str | None, argument: str) -> Publication:
        """Return a saved publication, verified when it is first opened."""
        if not name and self.root is not None:
            raise InvalidValue(
                f"{argument} is missing: the folder holds none. Pass one inside of it.", argument=argument
            )
        path = self.place(name or "", argument)
        key = (path, 0)
        with suppress(OSError):
            key = (path, (path / "release.json").stat().st_mtime_ns)
        if key not in self._opened:
            _keep(self._opened, key, Publication.load(path))
        return self._opened[key]

    def add_histogram(self, text: str) -> str:
        """Keep a public histogram, given as text, and return its name.

        The last field of each line is a count; a first line without one is a header.
        """
        fields = [line.rsplit(",", 1)[-1].strip().strip('"') for line in text.splitlines() if line.strip()]
        counts = fields[1:] if fields and not fields[0].isdecimal() else fields
        hint = "Pass one whole number per line, from 1 to 10^12."
        if not counts or not all(count.isdecimal() and len(count) < 14 for count in counts):
            raise InvalidValue(
                f"histogram has a line that does not end in a whole number. {hint}", argument="histogram"
            )
        numbers = checked_frequencies([int(count) for count in counts], "histogram", hint, least=0)
        if not numbers.any():
            raise InvalidValue(f"histogram has no count above zero. {hint}", argument="histogram")
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        _keep(self._laws, name, Law.of(numbers))
        return name

    def histogram(self, name: str) -> Law:
        """Return a histogram that the page has sent."""
        if name not in self._laws:
            raise InvalidValue("histogram is not in memory any more. Choose its file again.", argument="histogram")
        return self._laws[name]


def _keep(kept: dict[Any, Any], name: Any, value: Any) -> None:
    kept[name] = value
    while len(kept) > _KEPT:
        del kept[next(iter(kept))]


@dataclass(frozen=True)
class Parts:
    """What is shown of a publication; see `dpsieve.explore.views.Answer`."""

    headline: str
    loader: str
    tiles: list[tuple[str, str, str]]
    facts: list[list[str]]
    table: dict[str, Any] | None
    certificate: list[dict[str, str]]
    notes: list[str]


def published_parts(made: Publication, name: str) -> Parts:
    """Return what is shown of a publication that is called `name`."""
    promise, notes = made.guarantee, made.notes
    kind = type(made).__name__
    facts = [["", name], ["what", title(made)], ["guarantee", str(promise)], ["protects", promise.unit],
             ["a unit adds", notes.contribution], ["mechanism", f"{made.mechanism.last.name}: {notes.reason}"],
             ["purpose", notes.purpose], ["date", notes.date],
             ["ledger entry", "" if notes.entry is None else f"{notes.entry:,}"]]  # fmt: skip
    certificate = [
        {"promise": f"For {scope}: epsilon {epsilon}, delta {delta}", "covers": covers,
         "how": how + (f"; found: delta at most {worst}" if float(worst) else "")}
        for scope, covers, epsilon, delta, worst, how in made.certificate.lines()
    ]  # fmt: skip
    tiles = [("epsilon", shown(promise.epsilon), ""), ("delta", shown(promise.delta), ""), ("protects", promise.unit, ""),
             ("rows", f"{len(made):,}", "")]  # fmt: skip
    warnings = [UNSAFE] if made.unsafe_to_publish else []
    table = {"title": title(made), **table_data(made), "order": "count"} if len(made) else None
    return Parts(
        f"{title(made)}. {promise}",
        f"ds.{kind}" if kind in dpsieve.__all__ else f"ds.federated.{kind}",
        tiles,
        [row for row in facts if row[1] or not row[0]],
        table,
        certificate,
        [*warnings, *filter(None, [made.unprotected, made.bounded, made.hint])],
    )


def compare(first: Publication, second: Publication) -> dict[str, Any]:
    """Return the counts of two releases side by side, for every key of either."""
    for made, argument in ((first, "release"), (second, "other")):
        if not isinstance(made, Release) or "count" not in made.table.column_names:
            raise InvalidType(f"{argument} has no counts. Pass two releases with counts.", argument=argument)
    names = key_names(first.table.column_names)
    if names != key_names(second.table.column_names):
        raise InvalidValue("other has other key columns. Pass a release of the same keys.", argument="other")
    left, right = (made.table.select(names).append_column(place, pa.array(np.arange(len(made))))
                   for made, place in ((first, "i"), (second, "j")))  # fmt: skip
    try:
        joined = left.join(right, names, join_type="full outer").slice(0, _COMPARED)
    except pa.ArrowInvalid:
        raise InvalidType(
            "other has keys of another type. Pass a release of the same keys.", argument="other"
        ) from None
    columns = [{"name": name, "kind": "text", "values": [str(value) for value in as_text(joined.column(name)).to_pylist()]}
               for name in names]  # fmt: skip
    ends = []
    for made, place, words in ((first, "i", ""), (second, "j", " of the other")):
        rows = made.table.take(joined.column(place))
        low, high, count = (rows.column(name).to_pylist() for name in ("low", "high", "count"))
        ends.append((low, high))
        lows = [
            None if a is None or has_only_upper_end(a, b, made.least) else a for a, b in zip(low, high, strict=True)
        ]
        columns += [{"name": f"count{words}", "kind": "number", "values": count},
                    {"name": f"95 % interval{words}", "kind": "interval", "values": lows, "highs": high}]  # fmt: skip
    apart = [_apart(*pair) for pair in zip(*ends[0], *ends[1], strict=True)]
    columns.append({"name": "intervals", "kind": "text", "values": apart})
    return {"title": "Both releases", "columns": columns, "rows": len(joined), "ranks": [], "order": "count"}


def _apart(low: int | None, high: int | None, low_of_other: int | None, high_of_other: int | None) -> str:
    if low is None or high is None:
        return "only in the other"
    if low_of_other is None or high_of_other is None:
        return "only in the first"
    return "apart" if high < low_of_other or high_of_other < low else "overlap"
