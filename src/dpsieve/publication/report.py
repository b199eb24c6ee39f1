"""A publication as one HTML page that works offline, from released and public numbers alone.

The page is report.html with report.css, parts.js (shared with the explorer) and report.js inside; data is JSON in a
block that no browser runs. Its policy allows this one script and this one style by their digests, and nothing from
outside.
"""

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pyarrow as pa

import dpsieve
from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.display import format_number, has_only_upper_end, printable, shorten
from dpsieve.errors import InvalidValue
from dpsieve.noise.totals import describe_rest, table_names
from dpsieve.privacy.certificate import NOT_COVERED, Certificate
from dpsieve.privacy.guarantee import Guarantee, rounded_up, shown
from dpsieve.publication.files import write_file
from dpsieve.publication.publication import UNSAFE, WITHOUT_KEYS, Publication, as_text, plain_rows
from dpsieve.publication.rank_plot import by_count, shown_ranks
from dpsieve.publication.release import Release
from dpsieve.values.keys import key_names

_MOST_ROWS = 200_000
_POINTS = 200  # of a curve
_WEAK = 4.0  # odds may move by more than 50
_SMALL = 0.01  # a delta below which is shown with its odds
_NAMES = 4  # listed in the title
_OF = {"sum": "of ", "mean": "of ", "quantile": ""}
_LINES = 40  # of parameters
_EXACT = 2**53  # whole numbers of a script are exact up to here
_WEIGHTS = "The weight of a key is its part in an estimate of the total."
_COUNTERS = "The counter is the noisy counter of the sketch; the count adds what counters may have lost."

# Labels of notes; others are listed by the name of their field. Some have a place of their own.
_NOTES = {
    "contribution": "a unit adds", "entry": "entry in the ledger", "purpose": "purpose", "date": "date of the release",
    "left": "left in the ledger for one more release", "where": "rows count where", "derived": "derived keys",
}  # fmt: skip
_PLACED = ("coverage", "statistic", "single", "rarer", "bounds")


def write_report(made: Publication, path: str | os.PathLike[str]) -> Path:
    """Write the page of a publication atomically, and return its path; see `Publication.report`."""
    if isinstance(path, str | os.PathLike) and (Path(path).parent / "release.json").exists():
        raise InvalidValue("path is inside the folder of a release, which would no longer load. Pass another place.")
    return write_file(path, report_page(made).encode())


def report_page(made: Publication) -> str:
    """Return the page of a publication."""
    home = files("dpsieve.publication")
    names = ("report.css", "parts.js", "report.js", "report.html")
    style, parts, own, page = (home.joinpath(name).read_text("utf-8") for name in names)
    script = f'"use strict";\n{{\n{parts}{own}}}\n'
    notes, curve, counts_of = made.notes.to_json(), _reporting(made), _counts_of(made) if len(made) else ""
    if made.notes.contribution and made.notes.contribution in counts_of:
        del notes["contribution"]  # which is long: once is enough
    reason = [("why this mechanism", notes.pop("reason"))] if notes.get("reason") else []
    notes = {name: value for name, value in notes.items() if value is not None and name not in _PLACED}
    data = {**table_data(made), "reporting": curve}
    return Template(page).substitute(
        policy=f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=style,
        script=script,
        data=_inside(data),
        title=escape(title(made)),
        unsafe=f'<p class="unsafe" role="alert">{escape(UNSAFE)}</p>' if made.unsafe_to_publish else "",
        guarantee=_prose(str(made.guarantee)),
        meaning=_prose(_meaning(made.guarantee)),
        facts=_list(_facts(made, curve)),
        promised=_items(_promised(made.guarantee)),
        not_promised=_items(_not_promised(made)),
        kept=_kept(made),
        what=escape(_what(made)),
        empty="" if len(made) else f"<p>{escape(_empty(made, curve))}</p>",
        hide_table="" if len(made) else "hidden",
        counts_of=escape(counts_of),
        read_out=escape(printable(_read_out(made))),
        today=datetime.now(UTC).date().isoformat(),
        weights=_column_words(made) if len(made) else "",
        hide_ranks="" if data["ranks"] else "hidden",
        hide_reporting="" if curve else "hidden",
        reporting=f"Keys of frequency {curve['half']:,} are reported half of the time."
        if curve and curve["half"]
        else "",
        certificate=_certificate(made.certificate),
        not_covered=escape(NOT_COVERED),
        made=_list([(_NOTES.get(name, name.replace("_", " ")), value) for name, value in _flat(notes) if value != ""]),
        parameters=_list(reason + _parameters(made)),
        version=escape(dpsieve.__version__),
    )


def table_data(made: Publication) -> dict[str, Any]:
    """Return the table of a publication and the ranks to plot, as parts.js shows them."""
    return {"columns": _columns(made), "rows": len(made), "ranks": _ranks(made)}


def title(made: Publication) -> str:
    """Return what a publication is, in a few words."""
    names, statistic = _key_names(made), getattr(made.notes, "statistic", "")
    if statistic:
        of = made.table.column("name").to_pylist()
        shown = f"{len(of):,} columns" if len(of) > _NAMES else ", ".join(of)
        what = f"{statistic.capitalize()}{'s' if len(of) > 1 else ''}"
        return printable(f"{what} {_OF[statistic]}{shown}")
    if made.kind in ("top_k", "hitting_set") and len(made):
        keys = "1 key" if len(made) == 1 else f"{len(made):,} keys"
        which = f"most common {keys}" if made.kind == "top_k" else f"{keys} that reach most units"
        return printable(f"The {which}: {', '.join(names)}")
    rows = {"estimate": "private number", "distribution": "range"}.get(made.kind, "entry" if not names else "key")
    several = "entries" if rows == "entry" else f"{rows}s"
    what = f"1 {rows}" if len(made) == 1 else f"{len(made):,} {several}" if len(made) else f"No {several}"
    return printable(f"{what} of {', '.join(names)}" if names and names != ["key"] else what)


def _read_out(made: Publication) -> str:
    """Return a sentence that reads one row."""
    if not len(made):
        return ""
    if made.kind in ("top_k", "hitting_set"):
        order = "by the number of units that hold them, the most common key first"
        reach = "by how many more units each reaches, the key that reaches most units first"
        return f"Rows are in order: {order if made.kind == 'top_k' else reach}."
    first = plain_rows(made.head(1))[0]
    statistic = getattr(made.notes, "statistic", "")
    if statistic:
        value, name = format_number(first["value"]), shorten(first["name"])
        what = f"the {name} quantile" if statistic == "quantile" else f"the {statistic} of {name}"
        low, high = first.get("low"), first.get("high", 0.0)
        ends = "" if low is None else f" ({format_number(low)} to {format_number(high)} with 95 % confidence)"
        return f"Read the first row as: {what} is about {value}{ends}."
    if not isinstance(made, Release) or first.get("count") is None or "low" not in first:
        return ""
    key = ", ".join(shorten(first[name]) for name in _key_names(made))
    about = f"about {first['count']:,} ({first['low']:,} to {first['high']:,} with 95 % confidence)"
    keys, _, rows = re.split("[:;]", made.notes.contribution)[0].partition(", ")
    each = f", counting {keys} per unit" if keys.startswith("at most") else ""
    each += f", {rows.partition(', ')[0]}" if each and "rows each" in rows else ""
    return f"Read a row as: the count of {key!r} is {about}{each}."


def _what(made: Publication) -> str:
    return {"estimate": "Numbers", "distribution": "Ranges", "sparse_vector": "Entries by name"}.get(made.kind, "Keys")


def _empty(made: Publication, curve: dict[str, Any] | None) -> str:
    if made.kind == "sparse_vector":
        return "No entry is listed by name. The saved vector answers for any index."
    half = (
        f" A key of frequency {curve['half']:,} would be reported half of the time." if curve and curve["half"] else ""
    )
    return f"Nothing is reported.{half}"


def _meaning(promise: Guarantee) -> str:
    change = "Adding or removing" if promise.neighbours == "add_remove" else "Replacing"
    more = f", and beyond that by at most {_share(promise.delta)}" if promise.delta else ""
    factor = f"by a factor of at most {_factor(promise)}{more}"
    return f"{change} {promise.unit} changes the probability of any result {factor}."


def _share(delta: float) -> str:
    """Return delta with the odds that it is.

    >>> _share(1e-8)
    '1e-08 (1 in 100,000,000)'
    """
    return f"{shown(delta)} (1 in {math.floor(1 / delta):,})" if delta < _SMALL else shown(delta)


def _factor(promise: Guarantee) -> str:
    """Return e^epsilon with three digits, rounded up."""
    return rounded_up(math.exp(promise.epsilon) * (1 + 1e-12), 3)


def _facts(made: Publication, curve: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the key facts."""
    promise, adds = made.guarantee, made.notes.contribution
    facts = [("epsilon", rounded_up(promise.epsilon)), ("delta", rounded_up(promise.delta)), ("protects", promise.unit)]
    facts += [("a unit adds", re.split("[:;]", adds)[0])] if adds else []
    bounds: tuple[tuple[float, float], ...] = getattr(made.notes, "bounds", ())
    shown_bounds = [f"{low:g} to {high:g}" for low, high in dict.fromkeys(bounds)]
    facts += [("numbers clipped to", ", ".join(shown_bounds))] if 0 < len(shown_bounds) <= _NAMES else []
    return facts + ([("reported half of the time", f"frequency {curve['half']:,}")] if curve and curve["half"] else [])


def _promised(promise: Guarantee) -> list[str]:
    among = "is in the data" if promise.neighbours == "add_remove" else "holds one thing or another"
    beyond = ", except with probability delta" if promise.delta else ""
    weak = " At this epsilon the guarantee is weak." if promise.epsilon > _WEAK else ""
    return [
        f"This page changes anyone's odds on whether {promise.unit} {among} by a factor of at most "
        f"{_factor(promise)}{beyond}, whatever else they know and compute.{weak}",
        f"In particular, {promise.describe_odds()}.",
        "The guarantee extends to everything that is computed from this page.",
        "The probabilities of the draw were verified: see the certificate.",
    ]


def _not_promised(made: Publication) -> list[str]:
    keyed = isinstance(made, Release)
    counts = made.notes.contribution if keyed and "count" in made.table.column_names else ""
    withheld = keyed and getattr(made.mechanism, "withholds", True)
    bounded = "Counts of all data: what a unit holds beyond its bound was left out before counting."
    return [
        *([made.unprotected] if made.unprotected else []),
        *(["Completeness: rare keys are withheld, so a key that is missing here may occur."] if withheld else []),
        *([bounded] if counts else []),
        "That nothing is learned about people: facts about many people can be learned with or without any one of them.",
        "The same protection for groups: for k units together, epsilon multiplies by k.",
        "Other releases of the same data: their budgets add up. A ledger keeps account.",
    ]


def _counts_of(made: Publication) -> str:
    """Return what the counts and intervals of a table measure."""
    if "count" not in made.table.column_names:
        return "Keys alone, without counts." if isinstance(made, Release) else ""
    adds, of = made.notes.contribution, "the true counts"
    of = "the bounded count" if made.notes.coverage else f"the bounded count. A unit adds {adds}" if adds else of
    return f"Counts and 95 % intervals are of {of}."


def _column_words(made: Publication) -> str:
    """Return descriptions of the columns beside the counts."""
    words = {"weight": _WEIGHTS, "counter": _COUNTERS}
    return " ".join(text for name, text in words.items() if name in _shown_names(made)[len(_key_names(made)) :])


def _shown_names(made: Publication) -> list[str]:
    """Return the columns to show: intervals show 'bound', and counts may be their weights."""
    keys, left_out = _key_names(made), {"bound"}
    if isinstance(made, Release) and {"count", "weight"} <= set(made.table.column_names):
        counts, weights = (made.table.column(name).to_numpy() for name in ("count", "weight"))
        left_out |= set() if (np.abs(weights - counts) > 0.5).any() else {"weight"}  # NaN where no count is known
    return [name for name in made.table.column_names if name not in left_out or name in keys]


def _key_names(made: Publication) -> list[str]:
    keyed = made.kind not in WITHOUT_KEYS
    return key_names(made.table.column_names) if keyed else []


def _columns(made: Publication) -> list[dict[str, Any]]:
    """Return the columns of the table, the rows with the largest counts if there are too many for a page."""
    table, keys = made.table, _key_names(made)
    if len(made) > _MOST_ROWS:
        rows = np.sort(by_count(table)[:_MOST_ROWS]) if "count" in table.column_names else np.arange(_MOST_ROWS)
        table = table.take(pa.array(rows))
    columns = [_column(name, table.column(name), name in keys) for name in _shown_names(made)]
    ends = {column["name"]: column for column in columns if column["kind"] == "number"}
    if isinstance(made, Release) and {"low", "high"} <= ends.keys():
        pairs = zip(ends["low"]["values"], ends["high"]["values"], strict=True)
        ends["low"]["values"] = [None if has_only_upper_end(low, high, made.least) else low for low, high in pairs]
    for value, low, high in table_names(made.totals, keys) if isinstance(made, Release) else ():
        if {low, high} <= ends.keys():
            name = f"95 % interval of {value}"
            ends[low] |= {"name": name, "kind": "interval", "highs": ends[high]["values"]}
            columns.remove(ends[high])
    return columns


def _column(name: str, column: pa.ChunkedArray, is_key: bool) -> dict[str, Any]:
    values, kind = as_text(column).to_pylist(), column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not is_key and numeric and all(value is None or abs(value) <= _EXACT or value != value for value in values):
        plain = values if pa.types.is_integer(kind) else [_short(value) for value in values]
        return {"name": name, "kind": "number", "values": plain}
    return {"name": name, "kind": "digits" if numeric else "text", "values": [str(value) for value in values]}


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _ranks(made: Publication) -> list[int]:
    """Return the ranks to plot."""
    plotted = {"count", "low", "high"} <= set(made.table.column_names) and len(made) > 0
    ranks: list[int] = shown_ranks(min(len(made), _MOST_ROWS)).tolist() if plotted else []
    return ranks


def _reporting(made: Publication) -> dict[str, Any] | None:
    """Return with which probability a key of each frequency is reported, from public numbers."""
    last = made.mechanism.last
    if not isinstance(made, Release) or not isinstance(last, ReportedCounts):
        return None
    end = max(10, 1.12 * (frequency_at(last, 0.99) or 10**6))
    frequencies = np.unique(np.linspace(1, end, _POINTS).round().astype(np.int64))
    reported = [float(f"{p:.4g}") for p in last.reporting_probability(frequencies)]
    return {"frequencies": frequencies.tolist(), "reported": reported, "half": frequency_at(last, 0.5)}


def _parameters(made: Publication) -> list[tuple[str, str]]:
    drawn = {"drawn": dict(made.drawn)} if made.drawn else {}
    lines = list(_flat({**made.mechanism.to_json(), **drawn}))
    more = [("more", "in release.json of the saved release")] if len(lines) > _LINES else []
    return [(name.replace("_", " "), value) for name, value in lines[:_LINES]] + more


def _flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each value within a JSON value; long lists by their length."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _flat(part, (*path, str(name)))
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        for number, part in enumerate(value, 1):
            yield from _flat(part, (*path, str(number)))
    else:
        yield " ".join(path), _words(value)


def _words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_words, value)) if len(value) <= 8 else f"{len(value):,} values"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return shown(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _certificate(certificate: Certificate) -> str:
    """Return the parts of a certificate as a list."""
    rows = []
    for scope, covers, epsilon, delta, worst, how in certificate.lines():
        found = f"; found: delta at most {worst}" if float(worst) else ""
        rows.append((f"For {scope}: epsilon {epsilon}, delta {delta}", covers, f"{how}{found}"))
    items = (f"<strong>{escape(a)}</strong><span>{escape(b)}</span><span>{escape(c)}</span>" for a, b, c in rows)
    return f'<ol class="parts">{"".join(f"<li>{item}</li>" for item in items)}</ol>'


def _kept(made: Publication) -> str:
    """Return the section on what is counted, where the coverage is reported."""
    if made.notes.coverage is None and not (isinstance(made, Release) and (made.totals or made.rest)):
        return ""
    rest = describe_rest(made.rest) if isinstance(made, Release) and made.rest else ""
    first = made.bounded.removesuffix(rest)
    return f"<section><h2>What is counted</h2><p>{escape(first)}</p><p>{escape(rest)}</p></section>"


def _prose(text: str) -> str:
    """Return text without line breaks within a number such as 1e-08."""
    return re.sub(r"[\d.]+e-\d+", r'<span class="whole">\g<0></span>', escape(printable(text)))


def _list(pairs: list[tuple[str, str]]) -> str:
    rows = "".join(f"<div><dt>{escape(printable(n))}</dt><dd>{escape(printable(v))}</dd></div>" for n, v in pairs)
    return f"<dl>{rows}</dl>" if rows else ""


def _items(lines: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(printable(line))}</li>' for line in lines)}</ul>"


def _inside(data: Any) -> str:
    """Return data as JSON that is safe in a script block: ASCII, without characters special to HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
