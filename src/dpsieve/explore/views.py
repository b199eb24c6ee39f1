"""The views of the page. Each answers from public numbers, a ledger that is read, or what is published already."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.channels.optimal_channels import optimal
from dpsieve.display import shorten
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.explore.inputs import Input, command_line, label, of, python_call, spell
from dpsieve.explore.planning import EPSILONS, Reach, least_epsilon, reach, zipf
from dpsieve.explore.saved import Files, compare, published_parts
from dpsieve.jobs.collect import plan_histogram
from dpsieve.jobs.number_request import HistogramRequest
from dpsieve.jobs.preview import Preview, check_plan
from dpsieve.jobs.request import ReleaseRequest, Request
from dpsieve.privacy.certificate import NOT_COVERED
from dpsieve.privacy.guarantee import Guarantee, warn_of_large_delta

Json = dict[str, Any]
_DATA = "What the data may look like"
_NAMES = "Names in the code"
_MORE = "More"
_STEPS = EPSILONS[4::3]  # of a curve over epsilon
_METHODS = ("auto", "optimal", "simple", "truncated_geometric", "stability", "gaussian", "report_then_count")
_ENTRIES = 500  # of a ledger that are shown


@dataclass(frozen=True)
class Answer:
    """What a view shows.

    Attributes:
        headline: the answer in one sentence.
        python, command: what gives the same in Python and on the command line.
        tiles: the main numbers: name, value, and what it compares with.
        facts: rows of a small table, the first one its head.
        plots: what `linePlot` of parts.js draws.
        table: of a publication or a ledger, sortable.
        parts, not_covered: of a certificate.
        notes: what else to know.
        ahead: what sliders may ask for next.
    """

    headline: str
    python: str
    command: str
    tiles: list[tuple[str, str, str]] = field(default_factory=list)
    facts: list[list[str]] = field(default_factory=list)
    plots: list[Json] = field(default_factory=list)
    table: Json | None = None
    parts: list[Json] = field(default_factory=list)
    not_covered: str = ""
    notes: list[str] = field(default_factory=list)
    ahead: list[Callable[[], object]] = field(default_factory=list)


@dataclass(frozen=True)
class View:
    """A view: its title, what it is for, its inputs, and its answer to their values."""

    title: str
    intro: str
    inputs: Callable[[Files], list[Input]]
    answer: Callable[[Files, Json], Answer]


def _texts(numbers: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"{number:g}" for number in numbers)


def _budget(request: type[Request], **more: Any) -> list[Input]:
    deltas = _texts(tuple(10.0**power for power in range(-12, -3)))
    return [
        of(request, "epsilon", "number", "1", stops=_texts(EPSILONS), **more),
        of(request, "delta", "number", "1e-08", stops=deltas, **more),
    ]


def _release_inputs(*, has_epsilon: bool = True) -> list[Input]:
    keys = _texts((1, 2, 3, 5, 10, 20, 50, 100, 200))
    most = "The number of keys that a unit may add: more keep more of the data, and share the budget."
    return [
        *_budget(ReleaseRequest)[not has_epsilon :],
        of(ReleaseRequest, "max_keys_per_unit", "whole", "10", stops=keys, help=most),
        of(ReleaseRequest, "method", default="auto", choices=_METHODS),
    ]


def _names() -> list[Input]:
    return [of(ReleaseRequest, name, default=default, group=_NAMES) for name, default in
            (("key", "query"), ("privacy_unit", "user_id"))]  # fmt: skip


def _line(name: str, curve: tuple[Any, Any]) -> Json:
    return {"name": name, "x": curve[0].tolist(), "y": curve[1].tolist()}


def _curves(named: list[tuple[str, Reach]], what: Callable[[Reach, Any], tuple[Any, Any]]) -> list[Json]:
    """Return the curves of mechanisms, each drawn as far as the farthest."""
    end = max(int(what(one, None)[0][-1]) for _, one in named)
    return [_line(name, what(one, end)) for name, one in named]


def _plot(title: str, x: str, y: str, lines: list[Json], **more: Any) -> Json:
    return {"title": title, "xName": x, "xWord": x[:1].upper() + x[1:], "yName": y, "lines": lines, **more}


def _facts(*columns: tuple[str, Preview]) -> list[list[str]]:
    """Return the lines of previews side by side."""
    found = [dict(preview.lines()) for _, preview in columns]
    names = list(dict.fromkeys(name for lines in found for name in lines))
    return [
        ["", *(name for name, _ in columns)],
        *([name, *(lines.get(name, "") for lines in found)] for name in names),
    ]


def _half_width(preview: Preview) -> int:
    assert preview.width is not None
    return preview.width // 2


def _of_units(frequency: int | None) -> str:
    return "never" if frequency is None else f"{frequency:,} units"


# Plan


def _plan_inputs(files: Files) -> list[Input]:
    sizes, lists = (_texts(tuple(10.0**power for power in range(*ends))) for ends in ((3, 9), (2, 7)))
    against = "Another method, to compare; 'none' shows one alone."
    text = "A public list of counts, one per line or the last column of a CSV file, to use in place of a Zipf law."
    return [
        *_release_inputs(),
        Input("against", against, default="stability", choices=("none", *_METHODS)),
        Input("units", "The number of units.", "whole", "100000", tuple(f"{float(s):.0f}" for s in sizes), group=_DATA),
        Input("keys_of_a_unit", "The number of distinct keys that a unit holds.", "whole", "10",
              _texts((1, 2, 5, 10, 20, 50, 100, 200)), group=_DATA),
        Input("distinct_keys", "The number of distinct keys in all.", "whole", "100000",
              tuple(f"{float(s):.0f}" for s in lists), group=_DATA),
        Input("exponent", "Of the Zipf law: the key of rank r has a share of the pairs near 1 / r^exponent.", "number",
              "1", _texts((0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)), group=_DATA),
        Input("histogram", text, "file", group=_DATA),
        *_names(),
    ]  # fmt: skip


_ASKED = ("epsilon", "delta", "max_keys_per_unit", "method")


def _reach(values: Json, **changes: Any) -> Reach:
    asked = {name: values[name] for name in (*_ASKED, "privacy_unit", "key")} | changes
    return reach(**asked)


def _warn(values: Json) -> None:
    """Issue the warnings of a request, which a stored answer would not repeat."""
    ReleaseRequest.of({name: values[name] for name in (*_ASKED, "privacy_unit", "key")})
    warn_of_large_delta(values["delta"])


def _calls(values: Json, *changes: Json) -> tuple[str, str]:
    """Return the previews of a release in Python and on the command line."""
    asked = {name: values[name] for name in ("key", "privacy_unit", *_ASKED)}
    each = [{name: v for name, v in (asked | change).items() if (name, v) != ("method", "auto")} for change in changes]
    python = ["import dpsieve as ds", *(python_call("ds.preview", **arguments) for arguments in each)]
    return "\n".join(python), "\n".join(command_line(["preview"], **arguments) for arguments in each)


def _named(method: str, found: Reach) -> str:
    return label(found.name) if method in ("auto", found.name) else label(method)


def _plan(files: Files, values: Json) -> Answer:
    _warn(values)
    ours, notes, other = _reach(values), [], None
    if values["against"] not in ("none", values["method"]):
        try:
            other = _reach(values, method=values["against"])
        except DpsieveError as error:
            notes.append(f"{label(values['against'])}: {spell(str(error), _ASKED)}")
    law = files.histogram(values["histogram"]) if values["histogram"] else _zipf(values)
    both = [(_named(values["method"], ours), ours)]
    both += [(_named(values["against"], other), other)] if other is not None else []
    if len(both) > 1 and both[0][0] == both[1][0]:
        both[0] = (f"auto: {both[0][0]}", ours)
    ranks, frequencies = law.by_rank
    by_rank = [_line(name, (ranks, one.channel.reporting_probability(frequencies))) for name, one in both]
    expected = [one.expected(law) for _, one in both]
    keys = [f"{count:,.0f}" for count, _ in expected]
    facts = _facts(*((name, one.preview) for name, one in both))
    facts += [
        [f"expected keys, of {law.total:,}", *keys],
        ["their share of all pairs", *(f"{s:.1%}" for _, s in expected)],
    ]
    compared = [f"{both[1][0]}: {{}}".format] if other is not None else []

    def tile(name: str, words: Callable[[Reach, str], str]) -> tuple[str, str, str]:
        return name, words(ours, keys[0]), compared[0](words(other, keys[1])) if other is not None else ""

    python, command = _calls(values, {}, *([{"method": values["against"]}] if other is not None else []))
    share = "share of its count"
    return Answer(
        f"A key of {_of_units(ours.preview.half)} appears half of the time, and {keys[0]} of {law.total:,} keys are "
        "expected to appear.",
        python, command,
        [tile("appears half of the time", lambda one, _: _of_units(one.preview.half)),
         tile("error of common counts (95 %)", lambda one, _: f"± {_half_width(one.preview):,}"),
         tile("expected keys", lambda _, count: count)],
        facts,
        [_plot("Does a key appear?", "units that hold it", "probability that the key appears",
               _curves(both, Reach.curve), percent=True),
         _plot("How exact are counts?", "units that hold it", f"typical error, {share}",
               _curves(both, Reach.errors), percent=True, xLog=True,
               note="Root mean square error of the published count; a key that does not appear counts as 0."),
         _plot("Which ranks appear?", "rank of the key", "probability that the key appears", by_rank, percent=True,
               xLog=True, note="Under the law or the histogram of the data, after bounding.")],
        notes=notes,
        ahead=_neighbours(values),
    )  # fmt: skip


def _zipf(values: Json) -> Any:
    sizes = (("units", 10**10), ("distinct_keys", 10**7), ("keys_of_a_unit", 10**6))
    for name, most in sizes:
        if not 1 <= values[name] <= most:
            fix = f"Pass one such as {name}=100."
            raise InvalidValue(f"{name}={values[name]} is not between 1 and {most}. {fix}", argument=name)
    if not 0 <= values["exponent"] <= 5:
        raise InvalidValue("exponent is not between 0 and 5. Pass one such as exponent=1.", argument="exponent")
    return zipf(
        *(values[name] for name in ("units", "distinct_keys", "keys_of_a_unit", "exponent", "max_keys_per_unit"))
    )


def _neighbours(values: Json) -> list[Callable[[], object]]:
    """Return what makes the tables of other stops of the sliders, the nearest first."""

    def make(name: str, value: Any) -> Callable[[], object]:
        def made() -> None:
            for method in {values["method"], values["against"]} - {"none"}:
                found = _reach(values, method=method, **{name: value})
                found.curve(), found.errors()

        return made

    tasks = []
    for one in _release_inputs()[:3]:
        stops = [one.read(stop) for stop in one.stops]
        near = sorted(
            (abs(place - int(np.searchsorted(stops, values[one.name]))), stop) for place, stop in enumerate(stops)
        )
        tasks.append([make(one.name, stop) for _, stop in near])
    return [task for tier in zip_longest(*tasks) for task in tier if task is not None]


# Backwards


def _backwards_inputs(files: Files) -> list[Input]:
    return [
        Input("goal", "'key appears': a key of so many units appears with this probability. 'exact counts': 95 % "
              "intervals of common keys are within this error.", default="key appears",
              choices=("key appears", "exact counts")),
        Input("frequency", "How many units hold the key.", "whole", "50", _texts((5, 10, 20, 50, 100, 200, 500, 1000)),
              when=("goal", "key appears")),
        Input("probability", "With which it appears.", "number", "0.9", _texts((0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)),
              when=("goal", "key appears")),
        Input("error", "How far counts may be off.", "whole", "20", _texts((2, 5, 10, 20, 50, 100, 200)),
              when=("goal", "exact counts")),
        *_release_inputs(has_epsilon=False),
        *_names(),
    ]  # fmt: skip


def _backwards(files: Files, values: Json) -> Answer:
    exact, asked = values["goal"] == "exact counts", values | {"epsilon": EPSILONS[-1]}
    if not 0 < values["probability"] < 1:
        fix = "Pass one such as probability=0.9."
        raise InvalidValue("probability is not between 0 and 1. " + fix, argument="probability")
    _warn(asked)

    def at(epsilon: float, method: str = values["method"]) -> Reach:
        return _reach(asked, epsilon=epsilon, method=method)

    def needed(found: Reach) -> int:
        if exact:
            return _half_width(found.preview)
        return frequency_at(found.channel, values["probability"]) or 10**9

    def by_method_of(stop: float) -> Callable[[float], bool]:
        name = at(stop).name
        return lambda epsilon: needed(at(epsilon, name)) <= target

    target = values["error"] if exact else values["frequency"]
    _at_least_one("error" if exact else "frequency", target)
    best = least_epsilon(lambda epsilon: needed(at(epsilon)) <= target, by_method_of)
    steps = [step for step in _STEPS if _has(lambda step=step: at(step))]
    y = "error of common counts (95 %)" if exact else f"units needed for {values['probability']:.4g}"
    lines = [{"name": "units needed", "x": steps, "y": [max(1, needed(at(step))) for step in steps]}]
    plot = _plot("What each epsilon gives", "epsilon", y, lines, xLog=True, yLog=True)
    if best is None:
        why = f"No epsilon up to {EPSILONS[-1]:g} is enough. Allow more, use a larger delta, or bound units to fewer keys."
        return Answer(why, *_calls(asked, {}), plots=[plot], notes=[why])
    found, wanted = at(best), asked | {"epsilon": best}
    goal = f"counts of common keys are within {target:,}" if exact else (
        f"a key of {_of_units(target)} appears with probability {values['probability']:g} or more"
    )  # fmt: skip
    return Answer(
        f"Epsilon {best:g} is enough: {goal}.", *_calls(wanted, {}),
        [("epsilon", f"{best:g}", ""), ("appears half of the time", _of_units(found.preview.half), ""),
         ("error of common counts (95 %)", f"± {_half_width(found.preview):,}", "")],
        _facts((_named(values["method"], found), found.preview)), [plot | {"mark": [best, max(1, needed(found))]}],
    )  # fmt: skip


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise InvalidValue(f"{name}={value} is not at least 1. Pass one such as {name}=20.", argument=name)


def _has(make: Callable[[], object]) -> bool:
    try:
        make()
    except DpsieveError:
        return False
    return True


# Clients

_CLIENTS = ("epsilon", "delta", "goal", "frequency", "neighbours", "rate", "threshold", "contacted", "population", "hostile")  # fmt: skip # noqa: E501


def _clients_inputs(files: Files) -> list[Input]:
    kinds = {"frequency": "whole", "rate": "number", "threshold": "whole", "contacted": "whole", "population": "whole"}
    plain: dict[str, Any] = {"goal": "reach", "neighbours": "add_remove"}
    asked: list[Input] = [of(HistogramRequest, name, default=text) for name, text in plain.items()]
    asked += [of(HistogramRequest, name, kind, group=_MORE) for name, kind in kinds.items()]  # type: ignore[arg-type]
    hostile = of(HistogramRequest, "hostile", "whole", "0", group=_MORE)
    names = (("column", "query"), ("privacy_unit", "user_id"))
    columns = [of(HistogramRequest, name, default=default, group=_NAMES) for name, default in names]
    epsilon, delta = _budget(HistogramRequest)
    return [epsilon, delta, *asked, hostile, *columns]


def _clients(files: Files, values: Json) -> Answer:
    request = HistogramRequest.of(values)
    plan = plan_histogram(request, None)
    preview, mechanism = check_plan(plan), plan.cost
    assert isinstance(mechanism, ReportedCounts)
    ours = Reach("by sample-and-threshold", mechanism, preview)
    lines = [("sampled clients", ours)]
    if values["neighbours"] == "add_remove" and mechanism.guarantee.delta > 0:
        central = optimal(mechanism.guarantee.epsilon, mechanism.guarantee.delta)
        lines.append(("one trusted server", Reach("optimal", central, preview)))
    defaults = {"goal": "reach", "neighbours": "add_remove", "hostile": 0}
    given = {name: values[name] for name in ("column", "privacy_unit", *_CLIENTS)
             if values[name] is not None and values[name] != defaults.get(name)}  # fmt: skip
    rate: Any = mechanism
    return Answer(
        f"Each client reports with probability {rate.rate:.4g}; a value appears with {rate.threshold:,} reports or more.",
        f"import dpsieve as ds\n{python_call('ds.preview', job='collect_histogram', **given)}",
        f"{command_line(['collect', 'histogram', 'events.parquet'], **given)} --dry-run",
        [("rate", f"{rate.rate:.4g}", ""), ("threshold", f"{rate.threshold:,} reports", ""),
         ("appears half of the time", f"{preview.half:,} clients" if preview.half else "never", "")],
        _facts(("plan", preview)),
        [_plot("Does a value appear?", "clients that have it", "probability that the value appears",
               _curves(lines, Reach.curve), percent=True),
         _plot("How exact are counts?", "clients that have it", "typical error, share of its count",
               _curves(lines, Reach.errors), percent=True, xLog=True,
               note="Root mean square error of the published count; a value that does not appear counts as 0.")],
    )  # fmt: skip


# Budget


def _budget_inputs(files: Files) -> list[Input]:
    names = tuple(files.ledgers)
    text = "A ledger that was given when the explorer was started. It is read, never written."
    next_one = "of one more release"
    return [
        Input("ledger", text, default=names[0] if names else "", choices=names),
        *(replace(one, help=f"{one.name.capitalize()} {next_one}.") for one in _budget(ReleaseRequest)),
    ]


def _budget_view(files: Files, values: Json) -> Answer:
    ledger = files.ledger(values["ledger"])
    left, spent, entries = ledger.remaining(), ledger.spent(), ledger.history()
    shown = left is not None
    asked = Guarantee(values["epsilon"], values["delta"], neighbours=ledger.budget.neighbours, unit=ledger.budget.unit)
    room = ledger.room_for(asked)
    after = ledger.left_after_each() if len(entries) <= _ENTRIES else []
    one_more = f"epsilon {values['epsilon']:g} and delta {values['delta']:g}"
    columns = [
        {"name": "entry", "kind": "number", "values": [entry.number for entry in entries[-_ENTRIES:]]},
        {"name": "time (UTC)", "kind": "text", "values": [entry.time[:16].replace("T", " ") for entry in entries[-_ENTRIES:]]},
        {"name": "spent", "kind": "text", "values": [entry.words() for entry in entries[-_ENTRIES:]]},
        {"name": "note", "kind": "text", "values": [entry.note for entry in entries[-_ENTRIES:]]},
    ]  # fmt: skip
    steps = [_line("left", (np.arange(len(after)), np.array(after)))] if len(after) > 1 else []
    several = "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"
    return Answer(
        f"{room:,} more {'release' if room == 1 else 'releases'} of {one_more} would fit."
        if room else f"A release of {one_more} does not fit.",
        f"import dpsieve as ds\n{python_call('ds.Ledger.open', str(values['ledger']))}.remaining()",
        command_line(["ledger", "show", str(values["ledger"])]),
        [("left for one release", f"epsilon {left.epsilon:.6g}" if left else "nothing",
          f"at delta {left.delta:.3g}, by {left.rule}" if left else ""),
         ("spent", f"epsilon {spent:.6g}", f"in {several}"), ("would fit", f"{room:,} more", f"of {one_more}")],
        [["", "ledger"], ["budget", str(ledger.budget)], ["left", str(left) if shown else "nothing"],
         ["spent", f"epsilon {spent:.6g} at the budget's delta if all amounts were fixed in advance, in {several}"],
         ["head", ledger.head]],
        [_plot("What was left", "entries", "epsilon of one more release", steps, step=True)] if steps else [],
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
    parts = published_parts(made, shorten(values["release"]))
    facts = parts.facts
    if other is not None:
        theirs = dict(map(tuple, published_parts(other, shorten(values["other"])).facts))  # type: ignore[arg-type]
        facts = [[*row, theirs.get(row[0], "")] for row in facts]
    opened = [files.place(name) for name in (values["release"], values["other"]) if name]
    python = ["import dpsieve as ds", *(python_call(f"{parts.loader}.load", str(place)) for place in opened)]
    reports = [command_line(["report", str(place)], out=f"{place.name}.html") for place in opened]
    return Answer(
        parts.headline, "\n".join(python), "\n".join(reports), parts.tiles, facts,
        table=parts.table if other is None else compare(made, other), parts=parts.certificate, not_covered=NOT_COVERED,
        notes=parts.notes,
    )  # fmt: skip


VIEWS: Mapping[str, View] = {
    "plan": View("Plan", "What a release would publish, before anything is spent.", _plan_inputs, _plan),
    "backwards": View("Backwards", "From the accuracy that you need to its epsilon.", _backwards_inputs, _backwards),
    "budget": View("Budget", "What a ledger has spent, and what still fits.", _budget_inputs, _budget_view),
    "clients": View("Clients", "Collect from clients, each of which reports at random.", _clients_inputs, _clients),
    "published": View("Published", "Look at a saved release, or compare two.", _published_inputs, _published),
}
