"""The views of the page; those that plan answer from public numbers alone."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from dpsieve.channels.channel import ReportedCounts
from dpsieve.channels.unknown_keys import optimal
from dpsieve.discovery.find_then_count import FindThenMeasure
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.explore.answers import Answer, Json, View, budget_inputs, curves_of, line_of, plot_of, side_by_side, texts
from dpsieve.explore.inputs import Input, command_line, label, of, python_call, spell
from dpsieve.explore.planning import EPSILONS, Reach, TotalsReach, least_epsilon, reach, zipf
from dpsieve.explore.saved import BUDGET, PUBLISHED, Files
from dpsieve.jobs.collect import plan_histogram
from dpsieve.jobs.number_request import HistogramRequest
from dpsieve.jobs.preview import check_plan
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.jobs.table_request import TableRequest
from dpsieve.privacy.guarantee import warn_of_large_delta

_DATA = "What the data may look like"
_TOTALS = "Totals, floor and rest"
_NAMES = "Names in the code"
_MORE = "More"
_STEPS = EPSILONS[4::3]  # of a curve over epsilon
_EXAMPLE = 1_000  # units of the key whose mean is shown
_MOST_LINES = 4  # of the plot of totals
_METHODS = ("auto", "optimal", "simple", "truncated_geometric", "stability", "gaussian", "report_then_count")


def _release_inputs(*, has_epsilon: bool = True) -> list[Input]:
    keys = texts((1, 2, 3, 5, 10, 20, 50, 100, 200))
    most = "The number of keys that a unit may add: more keep more of the data, and share the budget."
    return [
        *budget_inputs(ReleaseRequest)[not has_epsilon :],
        of(ReleaseRequest, "max_keys_per_unit", "whole", "10", stops=keys, help=most),
        of(ReleaseRequest, "method", default="auto", choices=_METHODS),
    ]


def _of_units(frequency: int | None) -> str:
    return "never" if frequency is None else f"{frequency:,} units"


def _names() -> list[Input]:
    return [of(ReleaseRequest, name, default=default, group=_NAMES) for name, default in
            (("key", "query"), ("privacy_unit", "user_id"))]  # fmt: skip


def _least_units() -> Input:
    return of(TableRequest, "min_units", "whole", "1", stops=texts((1, 5, 10, 20, 50, 100, 200, 500)), group=_TOTALS)


# Plan


def _plan_inputs(files: Files) -> list[Input]:
    sizes, lists = (texts(tuple(10.0**power for power in range(*ends))) for ends in ((3, 9), (2, 7)))
    against = "Another method, to compare; 'none' shows one alone. With totals: the same release without them."
    add = "Columns to {} per key, with the bounds of what one unit {}, such as {}. Commas separate several."
    sums, means = add.format("add up", "adds to one key", "price:0:200"), add.format("average", "has", "rating:1:5")
    text = "A public list of counts, one per line or the last column of a CSV file, to use in place of a Zipf law."
    return [
        *_release_inputs(),
        Input("against", against, default="stability", choices=("none", *_METHODS)),
        of(TableRequest, "sums", "bounds", help=sums, group=_TOTALS),
        of(TableRequest, "means", "bounds", help=means, group=_TOTALS),
        _least_units(),
        of(TableRequest, "rest", default="no", choices=("no", "yes"), group=_TOTALS),
        Input("units", "The number of units.", "whole", "100000", tuple(f"{float(s):.0f}" for s in sizes), group=_DATA),
        Input("keys_of_a_unit", "The number of distinct keys that a unit holds.", "whole", "10",
              texts((1, 2, 5, 10, 20, 50, 100, 200)), group=_DATA),
        Input("distinct_keys", "The number of distinct keys in all.", "whole", "100000",
              tuple(f"{float(s):.0f}" for s in lists), group=_DATA),
        Input("exponent", "Of the Zipf law: the key of rank r has a share of the pairs near 1 / r^exponent.", "number",
              "1", texts((0.0, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)), group=_DATA),
        Input("histogram", text, "file", group=_DATA),
        *_names(),
    ]  # fmt: skip


_ASKED = ("epsilon", "delta", "max_keys_per_unit", "method")


def _asked(values: Json, **changes: Any) -> Json:
    """Return the arguments of a release; those of the page's other inputs that it has are left at their defaults."""
    asked = {name: values[name] for name in ("key", "privacy_unit", *_ASKED)}
    more = {"min_units": values.get("min_units", 1), "rest": values.get("rest") == "yes"}
    return asked | more | {name: values.get(name) or () for name in ("sums", "means")} | changes


def _reach(values: Json, **changes: Any) -> Reach:
    return reach(**_asked(values, **changes))


def _other(values: Json) -> tuple[str, Json] | None:
    """Return what a plan is compared with: its name, and the arguments that differ."""
    if values["against"] == "none" or not (values["sums"] or values["means"] or values["against"] != values["method"]):
        return None
    if values["sums"] or values["means"]:
        return "counts alone", {"sums": (), "means": ()}
    return values["against"], {"method": values["against"]}


def _warn(values: Json) -> None:
    """Issue the warnings of a request, which a stored answer would not repeat."""
    ReleaseRequest.of({name: values[name] for name in (*_ASKED, "privacy_unit", "key")})
    warn_of_large_delta(values["delta"])


def _calls(values: Json, *changes: Json) -> tuple[str, str]:
    """Return the previews of a release in Python and on the command line."""
    usual: Json = {"method": "auto", "min_units": 1, "rest": False, "sums": (), "means": ()}
    python, shell = ["import dpsieve as ds"], []
    for change in changes:
        asked = {name: v for name, v in _asked(values, **change).items() if v != usual.get(name)}
        columns = {name: asked.pop(name) for name in ("sums", "means") if name in asked}
        python.append(python_call("ds.preview", **asked, **{name: dict(bounds) for name, bounds in columns.items()}))
        typed = {name[:-1]: [f"{c}:{low}:{high}" for c, (low, high) in each] for name, each in columns.items()}
        shell.append(command_line(["preview"], **asked, **typed))
    return "\n".join(python), "\n".join(shell)


def _named(method: str, found: Reach) -> str:
    return label(found.name) if method in ("auto", found.name) else label(method)


def _plan(files: Files, values: Json) -> Answer:
    _warn(values)
    ours, notes, other, against = _reach(values), [], None, _other(values)
    if against is not None:
        try:
            other = _reach(values, **against[1])
        except DpsieveError as error:
            notes.append(f"{label(against[0])}: {spell(str(error), _ASKED)}")
    if against is not None and "sums" in against[1]:
        notes.append("With totals there is one method, so the plan is compared with counts alone.")
    if isinstance(ours.channel, FindThenMeasure):
        notes.append(
            "Probabilities are those of a key whose units hold as many keys as allowed; with fewer, it appears sooner."
        )
    law = files.histogram(values["histogram"]) if values["histogram"] else _zipf(values)
    both = [(_named(values["method"], ours), ours)]
    both += [(_named(against[0], other), other)] if against and other else []
    if len(both) > 1 and both[0][0] == both[1][0]:
        both[0] = (f"auto: {both[0][0]}", ours)
    ranks, frequencies = law.by_rank
    by_rank = [line_of(name, (ranks, one.reported(frequencies))) for name, one in both]
    expected = [one.expected(law) for _, one in both]
    keys = [f"{count:,.0f}" for count, _ in expected]
    facts = side_by_side(*((name, one.preview) for name, one in both))
    facts += [
        [f"expected keys, of {law.total:,}", *keys],
        ["their share of all pairs", *(f"{100 * s:.1f} %" for _, s in expected)],
    ]
    compared = [f"{both[1][0]}: {{}}".format] if other is not None else []

    def tile(name: str, words: Callable[[Reach, str], str]) -> tuple[str, str, str]:
        return name, words(ours, keys[0]), compared[0](words(other, keys[1])) if other is not None else ""

    python, command = _calls(values, {}, *([against[1]] if against and other else []))
    share = "share of its count"
    return Answer(
        f"A key of {_of_units(ours.half)} appears half of the time, and {keys[0]} of {law.total:,} keys are "
        "expected to appear.",
        python, command,
        [tile("appears half of the time", lambda one, _: _of_units(one.half)),
         tile("error of common counts (95 %)", lambda one, _: f"± {one.half_width:,}"),
         tile("expected keys", lambda _, count: count), *_total_tiles(ours)],
        facts,
        [plot_of("Does a key appear?", "units that hold it", "probability that the key appears",
               curves_of(both, Reach.curve), percent=True),
         plot_of("How exact are counts?", "units that hold it", f"typical error, {share}",
               curves_of(both, Reach.errors), percent=True, xLog=True,
               note="Root mean square error of the published count; a key that does not appear counts as 0."),
         plot_of("Which ranks appear?", "rank of the key", "probability that the key appears", by_rank, percent=True,
               xLog=True, note="Under the law or the histogram of the data, after bounding."),
         *_total_plots(ours)],
        notes=notes,
        ahead=neighbours(values),
    )  # fmt: skip


def _total_tiles(ours: Reach) -> list[tuple[str, str, str]]:
    """Return how exact each total is."""
    if not isinstance(ours, TotalsReach):
        return []
    tiles = []
    for total, halves in ours.intervals(np.array([_EXAMPLE])):
        of_key = "of every key" if total.statistic == "sum" else f"of a key of {_EXAMPLE:,} units"
        known = "not stated" if np.isnan(halves[0]) else f"± {halves[0]:,{'.0f' if halves[0] >= 100 else '.3g'}}"
        tiles.append((f"{total.statistic} of {total.column} (95 %)", known, of_key))
    return tiles


def _total_plots(ours: Reach) -> list[Json]:
    """Return how exact totals are, by the number of units that hold the key."""
    if not isinstance(ours, TotalsReach):
        return []
    frequencies, _ = ours.errors()
    lines = []
    for total, halves in ours.intervals(frequencies)[:_MOST_LINES]:
        of_unit = frequencies if total.statistic == "sum" else 1
        shares = np.nan_to_num(halves / of_unit / (2 * total.half_width), nan=0.5)
        lines.append(line_of(f"{total.statistic} of {total.column}", (frequencies, np.minimum(shares, 1.0))))
    note = ("Half of the 95 % interval, for values in the middle of the bounds; a sum is divided by the units. "
            "At 50 %, a mean is not stated.")  # fmt: skip
    return [plot_of("How exact are totals?", "units that hold it", "error per unit (95 %), share of the bounds' width",
                    lines, percent=True, xLog=True, note=note)]  # fmt: skip


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


def neighbours(values: Json) -> list[Callable[[], object]]:
    """Return what makes the tables of other stops of the sliders, the nearest first."""

    def make(stop: Json) -> Callable[[], object]:
        def made() -> None:
            found = _reach(values, **stop)
            found.curve(), found.errors()

        return made

    tasks, against = [], _other(values)
    for one in (*_release_inputs()[:3], _least_units()):
        stops = [one.read(stop) for stop in one.stops]
        near = sorted(
            (abs(place - int(np.searchsorted(stops, values[one.name]))), stop) for place, stop in enumerate(stops)
        )
        ours = [{one.name: stop} for _, stop in near]
        tasks.append([make(stop | changes) for stop in ours for changes in ({}, *([against[1]] if against else []))])
    return [task for tier in zip_longest(*tasks) for task in tier if task is not None]


# Backwards


def _backwards_inputs(files: Files) -> list[Input]:
    return [
        Input("goal", "'key appears': a key of so many units appears with this probability. 'exact counts': 95 % "
              "intervals of common keys are within this error.", default="key appears",
              choices=("key appears", "exact counts")),
        Input("frequency", "How many units hold the key.", "whole", "50", texts((5, 10, 20, 50, 100, 200, 500, 1000)),
              when=("goal", "key appears")),
        Input("probability", "With which it appears.", "number", "0.9", texts((0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)),
              when=("goal", "key appears")),
        Input("error", "How far counts may be off.", "whole", "20", texts((2, 5, 10, 20, 50, 100, 200)),
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
            return found.half_width
        return found.frequency_at(values["probability"]) or 10**9

    def by_method_of(stop: float) -> Callable[[float], bool]:
        name = at(stop).name

        def holds(epsilon: float) -> bool:
            return needed(at(epsilon, name)) <= target

        return holds

    target: int = values["error"] if exact else values["frequency"]
    _at_least_one("error" if exact else "frequency", target)
    best = least_epsilon(lambda epsilon: needed(at(epsilon)) <= target, by_method_of)
    steps = [step for step in _STEPS if _works(partial(at, step))]
    y = "error of common counts (95 %)" if exact else f"units needed for {values['probability']:.4g}"
    lines = [{"name": "units needed", "x": steps, "y": [max(1, needed(at(step))) for step in steps]}]
    plot = plot_of("What each epsilon gives", "epsilon", y, lines, xLog=True, yLog=True)
    if best is None:
        fix = "Allow more, use a larger delta, or bound units to fewer keys."
        return Answer(f"No epsilon up to {EPSILONS[-1]:g} is enough. {fix}", *_calls(asked, {}), plots=[plot])
    found, wanted = at(best), asked | {"epsilon": best}
    goal = f"counts of common keys are within {target:,}" if exact else (
        f"a key of {_of_units(target)} appears with probability {values['probability']:g} or more"
    )  # fmt: skip
    python, command = _calls(wanted, {})
    if not exact:
        asked = {name: wanted[name] for name in ("privacy_unit", "delta", "max_keys_per_unit", "method")}
        search = python_call("ds.choose_epsilon", appear=(target, values["probability"]), **asked)
        python += f"\n{search}.epsilon"
        command += "\n" + command_line(["plan"], appear=f"{target}:{values['probability']:g}", **asked)
    return Answer(
        f"Epsilon {best:g} is enough: {goal}.", python, command,
        [("epsilon", f"{best:g}", ""), ("appears half of the time", _of_units(found.half), ""),
         ("error of common counts (95 %)", f"± {found.half_width:,}", "")],
        side_by_side((_named(values["method"], found), found.preview)),
        [plot | {"mark": [best, max(1, needed(found))]}],
    )  # fmt: skip


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise InvalidValue(f"{name}={value} is not at least 1. Pass one such as {name}=20.", argument=name)


def _works(make: Callable[[], object]) -> bool:
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
    epsilon, delta = budget_inputs(HistogramRequest)
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
        f"Each client reports with probability {rate.rate:.4g}; a value appears from {rate.threshold:,} reports on.",
        f"import dpsieve as ds\n{python_call('ds.preview', job='collect_histogram', **given)}",
        f"{command_line(['collect', 'histogram', 'events.parquet'], **given)} --dry-run",
        [("rate", f"{rate.rate:.4g}", ""), ("threshold", f"{rate.threshold:,} reports", ""),
         ("appears half of the time", f"{preview.half:,} clients" if preview.half else "never", "")],
        side_by_side(("plan", preview)),
        [plot_of("Does a value appear?", "clients that have it", "probability that the value appears",
               curves_of(lines, Reach.curve), percent=True),
         plot_of("How exact are counts?", "clients that have it", "typical error, share of its count",
               curves_of(lines, Reach.errors), percent=True, xLog=True,
               note="Root mean square error of the published count; a value that does not appear counts as 0.")],
    )  # fmt: skip


VIEWS: Mapping[str, View] = {
    "plan": View("Plan", "What a release would publish, before anything is spent.", _plan_inputs, _plan),
    "backwards": View("Backwards", "From the accuracy that you need to its epsilon.", _backwards_inputs, _backwards),
    "budget": BUDGET,
    "clients": View("Clients", "Collect from clients that report at random.", _clients_inputs, _clients),
    "published": PUBLISHED,
}
