"""Collect from the rows of a table by sample-and-threshold: what clients would have sent, drawn at once.

Each privacy unit is a client: it keeps one of its values, by a hash with a fresh secret salt, and counts once. With
`privacy_unit="row"` each row is one. The guarantee names the unit.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from dpsieve.channels.channel import frequency_at
from dpsieve.channels.law import LARGEST_FREQUENCY
from dpsieve.engines.engine import Engine, Progress
from dpsieve.engines.true_data import Counted, NumberRows
from dpsieve.errors import InvalidType
from dpsieve.exact.balls import first_whole
from dpsieve.federated.plans.histogram import plan as plan_sample
from dpsieve.federated.plans.levels import LevelPlan
from dpsieve.federated.server.distribution import Distribution, Quantiles
from dpsieve.federated.server.histogram import Histogram, contribution, reason
from dpsieve.federated.server.simulated_clients import string_type
from dpsieve.federated.server.trie import TrieHeavyHitters, TrieRelease, describe_levels
from dpsieve.jobs.key_columns import read_known_keys
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import document
from dpsieve.jobs.run import Plan, run
from dpsieve.jobs.table import Table, check_columns
from dpsieve.privacy.guarantee import Contribution
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, draw_release
from dpsieve.randomness.source import Source
from dpsieve.validate import Neighbours

from dpsieve.jobs.number_request import (  # isort: skip
    CollectRequest, DistributionRequest, HeavyHittersRequest, HistogramRequest, Protocol,
)  # fmt: skip


@document(HistogramRequest)
def collect_histogram(
    data: Any,
    *,
    column: str,
    epsilon: float,
    delta: float | None = None,
    privacy_unit: str | Sequence[str] | None = None,
    known_keys: Any = None,
    rate: float | None = None,
    threshold: int | None = None,
    neighbours: Neighbours = "add_remove",
    goal: Literal["reach", "error"] = "reach",
    frequency: int | None = None,
    contacted: int | None = None,
    population: int | None = None,
    hostile: int = 0,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress | bool | None = None,
    source: Source | None = None,
) -> Release:
    """Release the values in a table by sample-and-threshold, as if each client had tossed its own coin.

    The sampled count of a value that w clients have is drawn exactly as Binomial(w, rate), that of w coins.
    The rate and the threshold are those of `dpsieve.federated.plan`, and so is the guarantee.

    [arguments]

    >>> import pyarrow as pa
    >>> sales = pa.table({"drink": ["tea"] * 600 + ["secret"] * 5})
    >>> found = collect_histogram(sales, column="drink", privacy_unit="row", epsilon=1.0, delta=1e-8)
    >>> found.table.column("drink").to_pylist()
    ['tea']
    """
    request = HistogramRequest.of(locals())
    plan = plan_histogram(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source)


@document(HeavyHittersRequest)
def collect_heavy_hitters(
    data: Any,
    *,
    column: str,
    epsilon: float,
    delta: float,
    max_length: int,
    min_length: int = 0,
    alphabet: str | bytes | None = None,
    step: int = 1,
    privacy_unit: str | Sequence[str] | None = None,
    protocol: Protocol = "rounds",
    coin: float | None = None,
    threshold: int | None = None,
    neighbours: Neighbours = "add_remove",
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress | bool | None = None,
    source: Source | None = None,
) -> TrieRelease:
    """Find the heavy strings of a table, as if each client had answered the questions of a server (TrieHH++).

    Whole numbers are taken as their digits; a client whose value is no string of this alphabet and length stays silent.
    See `dpsieve.federated.TrieHeavyHitters`.

    [arguments]

    >>> import pyarrow as pa
    >>> words = pa.table({"word": ["sieve"] * 900 + ["secret"] * 5})
    >>> budget = {"privacy_unit": "row", "epsilon": 1.0, "delta": 1e-8}
    >>> collect_heavy_hitters(words, column="word", max_length=6, step=3, **budget).table.column("key").to_pylist()
    ['sieve']
    """
    request = HeavyHittersRequest.of(locals())
    plan = plan_heavy_hitters(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source)


@document(DistributionRequest)
def collect_quantiles(
    data: Any,
    *,
    column: str,
    bounds: Sequence[float],
    epsilon: float,
    delta: float,
    branching: int = 4,
    depth: int = 5,
    outside: Literal["clip", "silent"] = "clip",
    level: float = 0.95,
    privacy_unit: str | Sequence[str] | None = None,
    protocol: Protocol = "rounds",
    coin: float | None = None,
    threshold: int | None = None,
    neighbours: Neighbours = "add_remove",
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    progress: Progress | bool | None = None,
    source: Source | None = None,
) -> Distribution:
    """Find the distribution of the numbers of a table, as if each client had answered the questions of a server.

    Rows without a number (null or NaN; in a text file, a text that is not a number) are left out. See
    `dpsieve.federated.Quantiles`.

    [arguments]

    >>> import pyarrow as pa
    >>> ages = pa.table({"age": [i % 100 for i in range(50_000)]})
    >>> budget = {"privacy_unit": "row", "epsilon": 1.0, "delta": 1e-8}
    >>> found = collect_quantiles(ages, column="age", bounds=(0, 100), depth=3, **budget)
    >>> 40 < found.quantile(0.5).value < 60
    True
    """
    request = DistributionRequest.of(locals())
    plan = plan_distribution(request, Table.of(data, table, engine, request.allow_null_units, progress))
    return run(plan, ledger=ledger, note=note, source=source)


def plan_histogram(request: HistogramRequest, table: Table | None) -> Plan[Any, Release]:
    """Return the plan of a histogram; without a table it can only be previewed."""
    names = ("epsilon", "delta", "rate", "threshold", "neighbours", "goal", "frequency", "contacted", "population")
    chosen: Any = {name: getattr(request, name) for name in (*names, "hostile")}
    mechanism = plan_sample(unit=request.unit, **chosen)
    listed = request.known_keys
    known = None if listed is None else read_known_keys(listed, (request.column,))
    histogram = Histogram(mechanism, None if known is None else known.column(0))

    def finish(counted: Counted, source: Source) -> Release:
        present = np.flatnonzero(counted.frequencies)
        keys, frequencies = counted.keys.take(present), counted.frequencies[present]
        notes = Notes(contribution(histogram), reason(mechanism))
        return draw_release(mechanism, keys, frequencies, notes=notes, source=source)

    def rehearse(_: Counted, source: Source) -> None:
        draw_release(mechanism, ["a key"], [1], source=source)

    def describe() -> Preview:
        rarely, half, surely = (frequency_at(mechanism, share) for share in (0.05, 0.5, 0.95))
        return _preview(mechanism, reason(mechanism), contribution(histogram), mechanism.rate, (rarely, half, surely))

    read = _read_counts(request, table, known)
    return Plan(mechanism, read, finish, rehearse, check_columns(request, table), describe)


def plan_heavy_hitters(request: HeavyHittersRequest, table: Table | None) -> Plan[Any, TrieRelease]:
    """Return the plan of heavy hitters; without a table it can only be previewed."""

    def new_server() -> TrieHeavyHitters:
        names = ("max_length", "min_length", "alphabet", "step")
        strings: Any = {name: getattr(request, name) for name in names}
        return TrieHeavyHitters(request.epsilon, request.delta, **strings, **request.options)

    server = new_server()

    def read(source: Source) -> pa.Array:
        counted = _read_counts(request, table, None)(source)
        return _client_strings(server, counted, request.column)

    def finish(strings: pa.Array, source: Source) -> TrieRelease:
        return new_server().run(strings, source=source)

    def rehearse(strings: pa.Array, source: Source) -> None:
        symbol = (request.alphabet or "a")[:1]
        finish(pa.array([symbol * request.max_length], strings.type), source)

    return Plan(
        server.plan, read, finish, rehearse, check_columns(request, table), lambda: _describe_levels(server.plan)
    )


def plan_distribution(request: DistributionRequest, table: Table | None) -> Plan[Any, Distribution]:
    """Return the plan of a distribution; without a table it can only be previewed."""

    def new_server() -> Quantiles:
        cells: Any = {name: getattr(request, name) for name in ("epsilon", "delta", "branching", "depth", "outside")}
        low, high = request.bounds
        options: Any = request.options
        return Quantiles(low, high, **cells, **options)

    server = new_server()

    def read(source: Source) -> NumberRows:
        assert table is not None
        return table.numbers(request.columns, 1, source)  # type: ignore[arg-type]

    def finish(rows: NumberRows, source: Source) -> Distribution:
        asked = new_server()
        asked.run(np.ascontiguousarray(rows.values[:, 0]), source=source)
        return asked.release(confidence=request.level)

    def rehearse(_: NumberRows, source: Source) -> None:
        new_server().run(np.zeros(1), source=source)

    return Plan(
        server.plan, read, finish, rehearse, check_columns(request, table), lambda: _describe_levels(server.plan)
    )


def _read_counts(request: CollectRequest, table: Table | None, known: pa.Table | None) -> Callable[[Source], Counted]:
    """Return the function that reads the values that clients have, one each, and how many have them."""

    def read(source: Source) -> Counted:
        assert table is not None
        return table.counts(request.columns, Contribution(), source, known=known)

    return read


def _client_strings(server: TrieHeavyHitters, counted: Counted, column: str) -> pa.Array:
    """Return the string of each client."""
    distinct = counted.keys.column(0).combine_chunks()
    wide = string_type(server.strings)  # all clients together may exceed 2 GB
    short = pa.binary() if server.strings.of_bytes else pa.string()
    if distinct.type not in (wide, short) and (server.strings.of_bytes or not types.is_integer(distinct.type)):
        wanted = "bytes" if server.strings.of_bytes else "text or whole numbers"
        fix = f"Name a column of {wanted}, as the alphabet is, or convert it first."
        raise InvalidType(f"column={column!r} has the type {distinct.type}. {fix}")
    distinct = distinct.cast(short).cast(wide)
    return distinct.take(pa.array(np.repeat(np.arange(len(distinct)), counted.frequencies)))


def _describe_levels(plan: LevelPlan) -> Preview:
    def needed(share: float) -> int | None:
        """Return how many clients a string needs to be found with this probability; None if no number is enough."""
        enough = lambda count: float(plan.reporting_probability([count])[0]) >= share  # noqa: E731
        found = first_whole(enough, plan.threshold, LARGEST_FREQUENCY)
        return found if found < LARGEST_FREQUENCY else None

    shares = (needed(0.05), needed(0.5), needed(0.95))
    return _preview(plan, describe_levels(plan), "one value", plan.reports, shares, plan.exposure)


def _preview(
    mechanism: Any,
    how: str,
    adds: str,
    reports: float,
    needed: tuple[int | None, ...],
    exposure: float | None = None,
) -> Preview:
    promise = mechanism.guarantee
    charged = f"epsilon {promise.epsilon:g}, delta {promise.delta:g}, exposure {exposure or reports:.3g}"
    words = ["no number of clients" if number is None else f"{number:,} clients" for number in needed]
    details = [("reports per client, on average", f"{reports:.3g}"), ("charged by a device's budget", charged)]
    details += [(f"found with probability {p}", word) for p, word in zip(("0.05", "0.5", "0.95"), words, strict=True)]
    rarely, half, surely = needed
    found: Any = {"rarely": rarely, "half": half, "surely": surely}
    return Preview(promise, mechanism.name, how, adds, details=tuple(details), **found)
