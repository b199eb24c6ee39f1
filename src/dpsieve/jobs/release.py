"""The main job: one call turns raw events into a private release, and one says beforehand what it would do.

The order is fixed: check the arguments and the columns, bound and count, rehearse the draw on an invented key, write
the spend down, draw. So a wrong argument, a file that cannot be read or code that cannot be loaded costs no budget, and
nothing is drawn that was not paid for.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from dpsieve.channels.budget import check_budget
from dpsieve.channels.channel import ReportedCounts, frequency_at
from dpsieve.discovery.key_sets import KeySet
from dpsieve.engines import Engine, choose, locate_data
from dpsieve.engines.true_data import Counted, CountedByBound, FromPairs, Pairs
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.jobs.bounds import (
    REHEARSED,
    TOO_FEW,
    before_choice,
    for_rarer_keys,
    histogram_for,
    told_of_rarer_keys,
    with_bound,
)
from dpsieve.jobs.discover import ALL_KEYS, discover
from dpsieve.jobs.plan import SHARE_FOR_SIZE, Plan, behind, make_plan, sampled
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import MANY, ReleaseRequest
from dpsieve.jobs.two_steps import TWO_STEPS, before_counting, count_found
from dpsieve.noise.keys_per_unit import KeysPerUnit
from dpsieve.noise.private_total import private_scheme
from dpsieve.privacy import Guarantee
from dpsieve.privacy.composed import Composed
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.guarantee import warn_of_large_delta
from dpsieve.privacy.ledger import Ledger, charge, opened
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.sampling.schemes import Scheme


def release(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | Literal["auto"] | None = None,
    max_rows_per_key: int = 1,
    goal: str = "keys",
    scheme: Scheme | None = None,
    sample_size: int | None = None,
    mechanism: str = "auto",
    known_keys: Any = None,
    keys_only: bool = False,
    tell_kept: bool | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    note: str = "",
    progress: Callable[[float], None] | bool | None = None,
    source: Source | None = None,
) -> Release:
    """Release which keys occur in a table, and how often, with (epsilon, delta)-differential privacy.

    Neighbours are add/remove of one privacy unit with all its rows. Each unit keeps at most `max_keys_per_unit` of its
    distinct keys, chosen by a hash with a fresh secret salt, and counts once in each (or for up to `max_rows_per_key`
    of its rows). The counts go through a certified channel; see `dpsieve.jobs.plan` for the choice of the mechanism.

    Args:
        data: a path, glob or list of Parquet, CSV or JSON-lines files; a pandas or Polars frame; an Arrow table; a
            DuckDB relation, or a connection and a table name; the URL of a PostgreSQL database, with `table`; a
            Spark DataFrame, which Spark counts and draws from.
        key: the column to publish, or several. Rows with a null key are left out.
        epsilon, delta: the budget of this release.
        privacy_unit: the column that says who is protected, or several: then a unit is one combination of their values,
            such as a tenant and a user_id. Without it, each row is its own unit.
        max_keys_per_unit: how many keys a unit may add; 'auto' chooses it privately, for 2 % of epsilon. That is the
            default where there is a privacy unit, and else, or with known keys, a scheme, a sample size, another
            mechanism or `max_rows_per_key`, it is 1.
        max_rows_per_key: how many rows of a unit count in one key.
        goal: what a bound that is chosen shall serve. 'keys' finds most of them. 'counts' makes the mean error of the
            100 most common keys small: keys are found first, and what is left of the budget counts those that were
            found, without a threshold; fewer keys come out than with 'keys'.
        scheme: a sampling scheme such as `dpsieve.ppswor(0.01)`.
        sample_size: about how many keys to sample; 5 % of epsilon buys the private total that sets the rate.
        mechanism: 'auto', or one of 'optimal', 'simple', 'truncated_geometric', 'stability', 'gaussian',
            'report_then_count'; with known keys, 'laplace' or 'gaussian'.
        known_keys: a public list of keys: each of them is answered, with noise and no threshold, and nothing else is.
            Other rows are left out before anything is bounded. With them delta may be 0.
        keys_only: publish the keys without counts; with 'auto', as `dpsieve.discover` finds them.
        tell_kept: say which share of all pairs of a unit and a key the bound keeps, with its interval, for 1 % of
            epsilon, or from the histogram that chose the bound. That is the default where it is possible.
        allow_null_units: leave out rows whose unit is null, instead of refusing them.
        engine: where to count; chosen from the data by default.
        table: the table or view of a database to read, such as 'shop.orders'.
        ledger: the budget to charge, or the path of its file; the spend is durable before anything is drawn.
        note: what this release is for, kept in the ledger.
        progress: True shows the scan in a notebook or a terminal; a function is called with the fraction that is done.
        source: randomness for tests; the release then says that it is unsafe to publish.
    """
    request = ReleaseRequest.of(locals())
    data, engine = locate_data(data, table, engine)
    how: dict[str, Any]
    if request.discovers:
        how = {"engine": engine, "ledger": ledger, "note": note, "progress": progress, "source": source}
        return _keys_of(discover(data, **_asked(request), **how))
    plan, book = make_plan(request), opened(ledger, note)
    # What is spent must not depend on what is found, so there the whole guarantee is.
    cost = plan.guarantee if request.two_steps else plan.mechanism
    if book is not None:
        book.check(cost, note)
    plan.mechanism.certify()
    where, source = choose(data, engine), resolve(source)
    how = {"allow_null_units": request.allow_null_units, "progress": progress}
    how["salt"] = uniform_bits(source, 63)
    finish: Callable[[Any, Source], Release] = partial(_finish, request, plan)
    found: Any
    with ExitStack() as held:
        if request.two_steps:
            _check_steps(where)
            finish, found = partial(count_found, request), where.read_pairs(data, request.columns, ALL_KEYS, **how)
        elif histogram_for(request) is not None:
            found = held.enter_context(where.read_by_bound(data, request.columns, **how))
        else:
            found = where.aggregate(data, request.columns, request.contribution, known=request.known_keys, **how)
        with charge(book, cost, note, partial(_rehearse, request, finish, found)) as entry:
            made = told_of_rarer_keys(finish(found, source), request)
    return replace(made, notes=replace(made.notes, entry=entry))


def _finish(request: ReleaseRequest, plan: Plan, found: Counted | CountedByBound, source: Source) -> Release:
    """Return what a request publishes of true counts that are paid for."""
    notes = Notes(str(request.contribution) if request.privacy_unit else "", plan.reason)
    if (histogram := histogram_for(request)) is not None:
        assert isinstance(found, CountedByBound)
        sizes = histogram.draw(found.units, source)
        plan, contribution = _chosen(request, histogram, with_bound(request, sizes, plan.each.guarantee.epsilon))
        words = f"{contribution}{', chosen privately' if request.chooses_bound else ''}"
        kept = sizes.kept(contribution.keys) if request.tell_kept else None
        words += TOO_FEW if request.tell_kept and kept is None else ""
        notes = Notes(words, plan.reason, kept=kept)
        found = found.under(contribution.keys)
    assert isinstance(found, Counted)
    if request.sample_size is not None:
        scheme = private_scheme(
            found.summands,
            request.sample_size,
            epsilon=request.epsilon * SHARE_FOR_SIZE,
            max_keys=request.contribution.keys,
            source=source,
        )
        plan = sampled(request, scheme)
    keys, tokens = found.draw(plan.mechanism, source)
    return release_of(plan.mechanism, keys, tokens, keys_only=request.keys_only, notes=notes, source=source)


def _chosen(request: ReleaseRequest, histogram: KeysPerUnit, bounded: ReleaseRequest) -> tuple[Plan, Contribution]:
    """Return the plan for a chosen bound, and the bound; one key where public numbers allow no plan for it."""
    try:
        plan = behind(histogram, bounded)
        plan.mechanism.certify()
    except DpsieveError:
        if not request.chooses_bound:
            raise
        bounded = replace(request, max_keys_per_unit=1)  # which is certified before the charge
        plan = behind(histogram, bounded)
    return plan, bounded.contribution


def _rehearse(request: ReleaseRequest, finish: Callable[[Any, Source], Release], found: Any) -> None:
    """Do with one invented key of one unit what a request does; where it chooses a bound, also with several keys."""
    held, source = found.pairs if isinstance(found, FromPairs) else found, resolve(None)
    invented = held.make_dummy() if isinstance(held, Pairs) else Pairs.of([["a key"]])
    counted, histogram = invented.count(), histogram_for(request)
    finish(invented if request.two_steps else counted if histogram is None else FromPairs(invented), source)
    if histogram is not None and request.chooses_bound:
        for keys in REHEARSED:
            counted.draw(_chosen(request, histogram, replace(request, max_keys_per_unit=keys))[0].mechanism, source)


def _asked(request: ReleaseRequest) -> dict[str, Any]:
    """Return the arguments of `discover` for a release of keys alone."""
    names = ("key", "epsilon", "delta", "privacy_unit", "allow_null_units")
    return {name: getattr(request, name) for name in names}


def _keys_of(found: KeySet) -> Release:
    """Return discovered keys as a release."""
    return Release(found.table, found.mechanism, unsafe_to_publish=found.unsafe_to_publish, notes=found.notes)  # type: ignore[arg-type]


def preview(
    data: Any = None,
    *,
    key: str | Sequence[str] = "key",
    epsilon: float,
    delta: float,
    privacy_unit: str | Sequence[str] | None = None,
    max_keys_per_unit: int | Literal["auto"] | None = None,
    max_rows_per_key: int = 1,
    goal: str = "keys",
    scheme: Scheme | None = None,
    sample_size: int | None = None,
    mechanism: str = "auto",
    known_keys: Any = None,
    keys_only: bool = False,
    tell_kept: bool | None = None,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    table: str | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    note: str = "",
    progress: Callable[[float], None] | bool | None = None,
    source: Source | None = None,
) -> Preview:
    """Say what `release` would do with the same arguments; spends nothing, and reads no more of data than its schema.

    A ledger is asked whether the release would fit, and refuses here what it would refuse then; `note`, `progress` and
    `source` change nothing.

    >>> preview(epsilon=1.0, delta=1e-8).half
    19
    """
    request = ReleaseRequest.of(locals())
    data, engine = locate_data(data, table, engine)
    book = opened(ledger, note)
    if request.discovers:
        promise = Guarantee(request.epsilon, request.delta, unit=request.unit)
        check_budget(request.epsilon, request.delta)
        why = "as dpsieve.discover finds keys, by how many a unit typically holds"
        seen = Preview.before_choice(promise, request.epsilon, f"at most {MANY} keys", why)
        cost: Guarantee | Mechanism = promise
    else:
        plan = make_plan(request)
        cost = plan.guarantee if request.two_steps else plan.mechanism
        seen = _of_plan(request, plan)
    warn_of_large_delta(request.delta)
    if book is not None:
        book.check(cost, note)
    if data is not None:
        where = choose(data, engine)
        if request.two_steps:
            _check_steps(where)
        where.check(data, request.columns)
    return seen


def _check_steps(engine: Engine) -> None:
    """Refuse counts in two steps where the engine does not tell what these need."""
    if not engine.supports_pairs:
        why = f"needs to know which units hold which keys, which {type(engine).__name__} does not tell"
        raise InvalidValue(f"goal='counts' {why}. Leave goal out, or pass max_keys_per_unit=1 with it.")


def _of_plan(request: ReleaseRequest, plan: Plan) -> Preview:
    left = plan.each.guarantee.epsilon
    if request.two_steps:
        assert isinstance(plan.mechanism, Composed)
        return Preview.before_choice(plan.guarantee, left, before_counting(request, plan.mechanism), TWO_STEPS)
    if request.chooses_bound:
        return Preview.before_choice(plan.guarantee, left, before_choice(request, left))
    half = frequency_at(plan.each, 0.5) if isinstance(plan.each, ReportedCounts) else None
    return Preview.of(plan, str(request.contribution), for_rarer_keys(request, half))
