"""Previews: what a job would do, before any budget is spent, from public numbers alone."""

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from importlib import import_module
from typing import Any, Literal

import numpy as np

from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.channels.floored import Floored
from dpsieve.display import html_table
from dpsieve.engines.engine import Engine
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.key_columns import describe_rows
from dpsieve.jobs.mechanisms import Choice
from dpsieve.jobs.request import Request, unknown_argument
from dpsieve.jobs.run import Plan, open_ledger
from dpsieve.jobs.table import Table
from dpsieve.noise.known_keys import KnownKeys
from dpsieve.noise.report_then_count import ReportThenCount
from dpsieve.privacy.guarantee import Guarantee, warn_of_large_delta
from dpsieve.privacy.ledger import AnyLedger

Job = Literal[
    "release", "discover", "top_k", "hitting_set", "sum", "mean", "quantile", "collect_histogram",
    "collect_heavy_hitters", "collect_quantiles",
]  # fmt: skip
# For each job: its module, its request, and the function that plans it.
_JOBS = {
    "release": ("release", "TableRequest", "plan_release"),
    "discover": ("discover", "DiscoverRequest", "plan_discover"),
    "top_k": ("discover", "TopKRequest", "plan_top_k"),
    "hitting_set": ("discover", "HittingSetRequest", "plan_hitting_set"),
    "sum": ("numbers", "SumRequest", "plan_sum"),
    "mean": ("numbers", "MeanRequest", "plan_mean"),
    "quantile": ("numbers", "QuantileRequest", "plan_quantile"),
    "collect_histogram": ("collect", "HistogramRequest", "plan_histogram"),
    "collect_heavy_hitters": ("collect", "HeavyHittersRequest", "plan_heavy_hitters"),
    "collect_quantiles": ("collect", "DistributionRequest", "plan_distribution"),
}
_TYPICAL_BOUNDS = (1, 10, 50)
_WIDE = 500.0  # the sigma of Gaussian noise from which on intervals are as long as those of real noise, and a bit


@dataclass(frozen=True)
class Preview:
    """What a job would add, withhold and promise.

    Attributes:
        guarantee: what it would promise.
        mechanism, reason: the mechanism, and why it would be used.
        contribution: what a unit may add.
        each_key: the (epsilon, delta) that one key of a unit gets; None where keys have no share of their own.
        rarely, half, surely: the true frequency that is reported with probability 0.05, 0.5 and 0.95 (None: never, or
            not chosen yet; 0 with known keys, which are always answered).
        width: the widest 95 % interval of a key that is far above the threshold; None if not chosen yet.
        counts_from: with `report_then_count`, the frequency below which a reported key only has an upper bound.
        rarer: what would report rarer keys.
        details: further lines of the job, as pairs of a name and a value.
    """

    guarantee: Guarantee
    mechanism: str
    reason: str
    contribution: str
    each_key: tuple[float, float] | None = None
    rarely: int | None = None
    half: int | None = None
    surely: int | None = None
    width: int | None = None
    counts_from: int | None = None
    rarer: str = ""
    details: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, choice: Choice, contribution: str, rarer: str = "") -> "Preview":
        """Return the preview of a mechanism that reports keys with counts."""
        each = choice.mechanism.last
        inner, shift = (each.mechanism, each.shift) if isinstance(each, Floored) else (each, 0)
        per_key = each.each_key if isinstance(each, ReportedCounts) else each.guarantee
        rarely, half, surely = (
            frequency_at(each, share) if isinstance(each, ReportedCounts) else 0 for share in (0.05, 0.5, 0.95)
        )
        return cls(
            choice.mechanism.guarantee, choice.name, choice.reason, contribution, (per_key.epsilon, per_key.delta),
            rarely, half, surely, _width(each),
            inner.first * inner.max_rows + shift if isinstance(inner, ReportThenCount) else None, rarer,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values."""
        each_key = None if self.each_key is None else list(self.each_key)
        changed = {"guarantee": self.guarantee.to_json(), "each_key": each_key, "details": dict(self.details)}
        return {**self.__dict__, **changed}

    def lines(self) -> list[tuple[str, str]]:
        """Return what to show, as pairs of a name and a value."""
        lines = [("guarantee", str(self.guarantee)), ("odds", self.guarantee.describe_odds())]
        lines += [("mechanism", f"{self.mechanism}: {self.reason}")]
        lines.append(("a unit adds", self.contribution))
        if self.surely == 0:
            lines.append(("reported", "every key of the list, and no other"))
        elif self.width is not None and self.each_key is not None:
            shares = {"0.05": self.rarely, "0.5": self.half, "0.95": self.surely}
            lines.append(("each key gets", f"epsilon {self.each_key[0]:.4g}, delta {self.each_key[1]:.4g}"))
            lines += [(f"reported with probability {share}", _frequency(value)) for share, value in shares.items()]
        if self.counts_from:
            below = "; below that, only an upper bound is reported"
            lines.append(("counts begin at", f"frequency {self.counts_from:,}{below}"))
        if self.width is not None:
            lines.append(("95 % interval of a common key", f"at most {self.width:,} wide"))
        if self.rarer:
            lines.append(("for rarer keys", self.rarer))
        return [*lines, *self.details]

    def _repr_html_(self) -> str:
        """Return the same as a table, for a notebook."""
        return html_table(self.lines())

    def __str__(self) -> str:
        longest = max(len(name) for name, _ in self.lines())
        return "\n".join(f"{name:<{longest}}  {value}" for name, value in self.lines())


def _frequency(value: int | None) -> str:
    return "no frequency" if value is None else f"a key of frequency {value:,}"


def _width(each: object) -> int:
    """Return the widest interval among the tokens of a key far above the threshold."""
    if isinstance(each, KnownKeys):
        return 2 * each.half_width(0.95)
    assert isinstance(each, ReportedCounts)
    sigma: float = getattr(each.mechanism if isinstance(each, Floored) else each, "sigma", 0.0)
    if sigma > _WIDE:  # its table need not be made for this
        return math.ceil(2 * 1.9599640 * sigma * 1.001) + 2
    row = each.row(10**9)
    low, high = each.interval(row.right[row.mass > row.mass.max() * 1e-3], 0.95)
    return int(np.max(high - low))


def noise_by_bound(choose: Callable[[int], Choice]) -> tuple[tuple[str, str], ...]:
    """Return what would be reported, and how exactly, under some bounds on the keys per unit."""
    lines = []
    for keys in _TYPICAL_BOUNDS:
        try:
            each = choose(keys).mechanism.last
        except InvalidValue:  # this budget has no mechanism for it
            continue
        if isinstance(each, ReportedCounts):
            half = _frequency(frequency_at(each, 0.5))
            words = (
                f"{half} is reported half of the time; counts of common keys are within {_width(each) // 2:,} (95 %)"
            )
            lines.append((f"with at most {'1 key' if keys == 1 else f'{keys:,} keys'}", words))
    return tuple(lines)


def check_plan(plan: Plan[Any, Any], ledger: AnyLedger = None, note: str = "") -> Preview:
    """Return the preview of a plan; raise what `run` would raise before it reads rows."""
    book = open_ledger(ledger, note)
    warn_of_large_delta((plan.cost if isinstance(plan.cost, Guarantee) else plan.cost.guarantee).delta)
    if book is not None:
        book.check(plan.cost, note)
    if plan.check is not None:
        plan.check()
    assert plan.describe is not None
    seen: Preview = plan.describe()
    return seen


def describe_request(seen: Preview, request: Request) -> Preview:
    """Return the preview with lines about the rows that count, derived keys and the floor, where there are any."""
    least, rows = getattr(request, "min_units", 1), describe_rows(getattr(request, "rows", None))
    named = {"rows count where": rows.get("where"), "derived keys": rows.get("derived"),
             "never reported": f"a key of fewer than {least:,} units" if least > 1 else ""}  # fmt: skip
    return replace(seen, details=(*seen.details, *((name, words) for name, words in named.items() if words)))


def preview(
    data: Any = None,
    *,
    job: Job = "release",
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    **arguments: Any,
) -> Preview:
    """Return what a job would do with the same arguments; it spends nothing, and reads no more than the schema of data.

    A ledger refuses here what it would refuse then. Arguments of the job that only concern its run (`progress`,
    `source`) are accepted and change nothing.

    Args:
        data: the data of the job, to check its columns; left out, only public numbers are looked at.
        job: the name of the job: 'release', 'discover', 'top_k', 'hitting_set', 'sum', 'mean', 'quantile',
            'collect_histogram', 'collect_heavy_hitters' or 'collect_quantiles'.
        engine, table, ledger, note, arguments: those of the job.

    >>> preview(privacy_unit="row", epsilon=1.0, delta=1e-8).half
    19
    """
    if not isinstance(job, str) or job not in _JOBS:
        raise InvalidValue(f"job is not known. Choose one of {', '.join(map(repr, _JOBS))}.")
    module, kind, plan_for = _JOBS[job]
    home = import_module(f"dpsieve.jobs.{module}")
    request: type[Request] = getattr(home, kind)
    names = {field.name for field in fields(request)}
    for name in [name for name in ("key", "column") if data is None and name in names]:
        if arguments.get(name) is None:
            arguments[name] = f"any {name}"  # without data there is no column to name
    unknown = arguments.keys() - names - {"progress", "source"}
    if unknown:
        raise unknown_argument(job, min(unknown), sorted(names))
    missing = {f.name for f in fields(request) if f.default is MISSING} - arguments.keys()
    if missing:
        raise InvalidType(f"{min(missing)} is missing. Pass it as for {job}.")
    asked = request.of({**arguments, "data": data, "table": table, "engine": engine})
    where = None
    if data is not None and getattr(asked, "column", "") is None:
        asked, where = home.locate(asked, data, table, engine, None)  # an array
    elif data is not None:
        where = Table.of(data, table, engine, asked.allow_null_units)
    plan: Plan[Any, Any] = getattr(home, plan_for)(asked, where)
    return describe_request(check_plan(plan, ledger, note), asked)
