"""The views of the page; those that plan answer from public numbers alone."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.channels.unknown_keys import optimal
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.explore.answers import Answer, Json, View, budget_inputs, curves_of, line_of, plot_of, side_by_side, texts
from dpsieve.explore.inputs import Input, command_line, label, of, python_call, spell
from dpsieve.explore.planning import EPSILONS, Reach, least_epsilon, reach, zipf
from dpsieve.explore.saved import BUDGET, PUBLISHED, Files
from dpsieve.jobs.collect import plan_histogram
from dpsieve.jobs.number_request import HistogramRequest
from dpsieve.jobs.preview import Preview, check_plan
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.privacy.guarantee import warn_of_large_delta

_DATA = "What the data may look like"
_NAMES = "Names in the code"
_MORE = "More"
_STEPS = EPSILONS[4::3]  # of a curve over epsilon
_METHODS = ("auto", "optimal", "simple", "truncated_geometric", "stability", "gaussian", "report_then_count")


def _release_inputs(*, has_epsilon: bool = True) -> list[Input]:
    keys = texts((1, 2, 3, 5, 10, 20, 50, 100, 200))
    most = "The number of keys that a unit may add: more keep more of the data, and share the budget."
    return [
        *budget_inputs(ReleaseRequest)[not has_epsilon :],
        of(ReleaseRequest, "max_keys_per_unit", "whole", "10", stops=keys, help=most),
        of(ReleaseRequest, "method", default="auto", choices=_METHODS),
    ]


def _half_width(preview: Preview) -> int:
    assert preview.width is not None
    return preview.width // 2


def _of_units(frequency: int | None) -> str:
    return "never" if frequency is None else f"{frequency:,} units"


def _names() -> list[Input]:
    return [of(ReleaseRequest, name, default=default, group=_NAMES) for name, default in
            (("key", "query"), ("privacy_unit", "user_id"))]  # fmt: skip


# Plan


def _plan_inputs(files: Files) -> list[Input]:
    sizes, lists = (texts(tuple(10.0**power for power in range(*ends))) for ends in ((3, 9), (2, 7)))
    against = "Another method, to compare; 'none' shows one alone."
    text = "A public list of counts, one per line or the last column of a CSV file, to use in place of a Zipf law."
    return [
        *_release_inputs(),
        Input("against", against, default="stability", choices=("none", *_METHODS)),
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
    by_rank = [line_of(name, (ranks, one.channel.reporting_probability(frequencies))) for name, one in both]
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
        [plot_of("Does a key appear?", "units that hold it", "probability that the key appears",
               curves_of(both, Reach.curve), percent=True),
         plot_of("How exact are counts?", "units that hold it", f"typical error, {share}",
               curves_of(both, Reach.errors), percent=True, xLog=True,
               note="Root mean square error of the published count; a key that does not appear counts as 0."),
         plot_of("Which ranks appear?", "rank of the key", "probability that the key appears", by_rank, percent=True,
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
            return _half_width(found.preview)
        return frequency_at(found.channel, values["probability"]) or 10**9

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
    return Answer(
        f"Epsilon {best:g} is enough: {goal}.", *_calls(wanted, {}),
        [("epsilon", f"{best:g}", ""), ("appears half of the time", _of_units(found.preview.half), ""),
         ("error of common counts (95 %)", f"± {_half_width(found.preview):,}", "")],
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
    "clients": View("Clients", "Collect from clients, each of which reports at random.", _clients_inputs, _clients),
    "published": PUBLISHED,
}
