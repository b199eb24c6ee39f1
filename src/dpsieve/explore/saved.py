"""What the page may open, and the views of it: ledgers named at the start, and releases inside of one folder.

A path is resolved, links and all, before it is compared with the folder; what lies outside is refused, whether it is
there or not.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dpsieve
from dpsieve import validate
from dpsieve.channels.channel import checked_frequencies
from dpsieve.display import has_only_upper_end, shorten
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.explore.answers import Answer, Json, View, budget_inputs, line_of, plot_of
from dpsieve.explore.inputs import Input, command_line, python_call
from dpsieve.explore.planning import Law
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.privacy.certificate import NOT_COVERED
from dpsieve.privacy.guarantee import Guarantee, shown
from dpsieve.privacy.ledger import Ledger
from dpsieve.publication.publication import UNSAFE, Publication, as_text
from dpsieve.publication.release import Release
from dpsieve.publication.report import table_data, title
from dpsieve.values.keys import key_names

_LISTED = 200  # releases that are suggested
_KEPT = 4  # histograms and releases in memory
_LONGEST = 4096  # characters of a path
_COMPARED = 200_000  # rows
_ENTRIES = 500  # of a ledger that are shown


@dataclass
class Files:
    """The files that the page may open.

    Attributes:
        root: the folder of releases; None if none was given.
        ledgers: by the names that the page shows.
    """

    root: Path | None = None
    ledgers: dict[str, Path] = field(default_factory=dict)
    _laws: dict[str, Law] = field(default_factory=dict)
    _opened: dict[tuple[Path, int], Publication] = field(default_factory=dict)

    def ledger(self, name: str | None) -> Ledger:
        """Return a ledger that was given at the start."""
        if name is None or name not in self.ledgers:
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
            raise InvalidValue(f"{argument} is missing: the folder holds none. Pass one inside it.", argument=argument)
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
            raise InvalidValue(f"histogram has a line that does not end in an integer. {hint}", argument="histogram")
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
    keys = {name: as_text(joined.column(name)).to_pylist() for name in names}
    columns: list[Json] = [{"name": name, "kind": "text", "values": [*map(str, keys[name])]} for name in names]
    ends = []
    for made, place, words in ((first, "i", ""), (second, "j", " of the other")):
        rows = made.table.take(joined.column(place))
        low, high, count = (rows.column(name).to_pylist() for name in ("low", "high", "count"))
        ends.append((low, high))
        least = made.least if isinstance(made, Release) else 1
        lows = [None if a is None or has_only_upper_end(a, b, least) else a for a, b in zip(low, high, strict=True)]
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


# Budget


def _budget_inputs(files: Files) -> list[Input]:
    names = tuple(files.ledgers)
    text = "A ledger that was given when the explorer was started. It is read, never written."
    return [Input("ledger", text, default=names[0] if names else "", choices=names), *budget_inputs(ReleaseRequest)]


def _budget_view(files: Files, values: Json) -> Answer:
    ledger = files.ledger(values["ledger"])
    left, spent, entries = ledger.remaining(), ledger.spent(), ledger.history()
    asked = Guarantee(values["epsilon"], values["delta"], neighbours=ledger.budget.neighbours, unit=ledger.budget.unit)
    room = ledger.room_for(asked)
    after = ledger.left_after_each() if len(entries) <= _ENTRIES else []
    one_more = f"epsilon {values['epsilon']:g} and delta {values['delta']:g}"
    listed = entries[-_ENTRIES:]
    rows = [(entry.number, entry.time[:16].replace("T", " "), entry.words(), entry.note) for entry in listed]
    columns = [
        {"name": name, "kind": "text" if place else "number", "values": [row[place] for row in rows]}
        for place, name in enumerate(("entry", "time (UTC)", "spent", "note"))
    ]
    steps = [line_of("left", (np.arange(len(after)), np.array(after)))] if len(after) > 1 else []
    several = "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"
    return Answer(
        f"{room:,} more {'release' if room == 1 else 'releases'} of {one_more} would fit."
        if room else f"A release of {one_more} does not fit.",
        f"import dpsieve as ds\n{python_call('ds.Ledger.open', str(values['ledger']))}.remaining()",
        command_line(["ledger", "show", str(values["ledger"])]),
        [("left for one release", f"epsilon {left.epsilon:.6g}" if left else "nothing",
          f"at delta {left.delta:.3g}, by {left.rule}" if left else ""),
         ("spent", f"epsilon {spent:.6g}", f"in {several}"), ("would fit", f"{room:,} more", f"of {one_more}")],
        [["", "ledger"], ["budget", str(ledger.budget)], ["left", str(left) if left else "nothing"],
         ["spent", f"epsilon {spent:.6g} at the budget's delta if all amounts were fixed in advance, in {several}"],
         ["head", ledger.head]],
        [plot_of("What was left", "entries", "epsilon of one more release", steps, step=True)] if steps else [],
        table={"title": "Entries", "columns": columns, "rows": len(entries), "order": "entry"} if entries else None,
    )  # fmt: skip


# Published


def _published_inputs(files: Files) -> list[Input]:
    found = tuple(files.releases())
    place = "a folder that another command wrote with --out, inside of the folder that the explorer was started with"
    return [
        Input("release", f"The saved release: {place}.", default=found[0] if found else "", suggestions=found),
        Input("other", "Another one, to compare; may be left out.", suggestions=found),
    ]


def _published(files: Files, values: Json) -> Answer:
    made = files.release(values["release"], "release")
    other = files.release(values["other"], "other") if values["other"] else None
    about = _about(made, shorten(values["release"]))
    if other is not None:
        theirs = {row[0]: row[1] for row in _about(other, shorten(values["other"]))}
        about = [[*row, theirs[row[0]]] for row in about]
    python, reports = ["import dpsieve as ds"], []
    for one, name in ((made, values["release"]), (other, values["other"])):
        if one is not None:
            kind, place = type(one).__name__, files.place(name)
            owner = "ds" if kind in dpsieve.__all__ else "ds.federated"
            python.append(python_call(f"{owner}.{kind}.load", str(place)))
            reports.append(command_line(["report", str(place)], out=f"{place.name}.html"))
    promise, table = made.guarantee, None
    if len(made):
        table = {"title": title(made), **table_data(made), "order": "count"} if other is None else compare(made, other)
    parts = [
        {"promise": f"For {scope}: epsilon {epsilon}, delta {delta}", "covers": covers,
         "how": how + (f"; found: delta at most {worst}" if float(worst) else "")}
        for scope, covers, epsilon, delta, worst, how in made.certificate.lines()
    ]  # fmt: skip
    return Answer(
        f"{title(made)}. {promise}", "\n".join(python), "\n".join(reports),
        [("epsilon", shown(promise.epsilon), ""), ("delta", shown(promise.delta), ""), ("protects", promise.unit, ""),
         ("rows", f"{len(made):,}", "")],
        [row for row in about if any(row[1:])], table=table, parts=parts, not_covered=NOT_COVERED,
        notes=[*([UNSAFE] if any(one is not None and one.unsafe_to_publish for one in (made, other)) else []),
               *filter(None, [made.unprotected, made.bounded, made.hint])],
    )  # fmt: skip


def _about(made: Publication, name: str) -> list[list[str]]:
    promise, notes = made.guarantee, made.notes
    return [
        ["", name], ["what", title(made)], ["guarantee", str(promise)], ["protects", promise.unit],
        ["a unit adds", notes.contribution], ["mechanism", f"{made.mechanism.last.name}: {notes.reason}"],
        ["purpose", notes.purpose], ["date", notes.date],
        ["ledger entry", "" if notes.entry is None else f"{notes.entry:,}"],
    ]  # fmt: skip


BUDGET = View("Budget", "What a ledger has spent, and what still fits.", _budget_inputs, _budget_view)
PUBLISHED = View("Published", "Look at a saved release, or compare two.", _published_inputs, _published)
