"""The main job: one call turns raw events into a private release, and one says beforehand what it would do.

The order is fixed: check the arguments and the columns, bound and count, write the spend down, draw. So a wrong
argument or a file that cannot be read costs no budget, and nothing is drawn that was not paid for.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dpsieve.channels import private_scheme
from dpsieve.engines import Engine, choose
from dpsieve.jobs.bounds import before_choice, for_rarer_keys, histogram_for, in_words, with_bound
from dpsieve.jobs.plan import SHARE_FOR_SIZE, behind, make_plan, sampled
from dpsieve.jobs.preview import Preview
from dpsieve.jobs.request import ReleaseRequest
from dpsieve.privacy.ledger import Ledger, charge, opened
from dpsieve.publication.release import Release, release_of
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.sampling.schemes import Scheme


def release(
    data: Any,
    *,
    key: str | Sequence[str],
    epsilon: float,
    delta: float,
    privacy_unit: str | None = None,
    max_keys_per_unit: int | Literal["auto"] = 1,
    max_rows_per_key: int = 1,
    scheme: Scheme | None = None,
    sample_size: int | None = None,
    mechanism: str = "auto",
    known_keys: Any = None,
    keys_only: bool = False,
    tell_kept: bool = False,
    allow_null_units: bool = False,
    engine: Engine | None = None,
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
            DuckDB relation, or a connection and a table name; a Spark DataFrame, which Spark counts and draws from.
        key: the column to publish, or several. Rows with a null key are left out.
        epsilon, delta: the budget of this release.
        privacy_unit: the column that says who is protected; without it, each row is its own unit.
        max_keys_per_unit: how many keys a unit may add; 'auto' chooses it privately such that most keys are found, for
            2 % of epsilon.
        max_rows_per_key: how many rows of a unit count in one key.
        scheme: a sampling scheme such as `dpsieve.ppswor(0.01)`.
        sample_size: about how many keys to sample; 5 % of epsilon buys the private total that sets the rate.
        mechanism: 'auto', or one of 'optimal', 'simple', 'truncated_geometric', 'stability', 'gaussian',
            'report_then_count'; with known keys, 'laplace' or 'gaussian'.
        known_keys: a public list of keys: each of them is answered, with noise and no threshold, and nothing else is.
            Other rows are left out before anything is bounded. With them delta may be 0.
        keys_only: publish the keys without counts.
        tell_kept: say which share of all pairs of a unit and a key the bound keeps, for 1 % of epsilon; 'auto' always
            says it.
        allow_null_units: leave out rows whose unit is null, instead of refusing them.
        engine: where to count; chosen from the data by default.
        ledger: the budget to charge, or the path of its file; the spend is durable before anything is drawn.
        note: what this release is for, kept in the ledger.
        progress: True shows the scan in a notebook or a terminal; a function is called with the fraction that is done.
        source: randomness for tests; the release then says that it is unsafe to publish.
    """
    request = ReleaseRequest.of(locals())
    plan, book = make_plan(request), opened(ledger, note)
    if book is not None:
        book.check(plan.mechanism, note)
    where, contribution, histogram = choose(data, engine), str(request.contribution), histogram_for(request)
    how: dict[str, Any] = {"allow_null_units": request.allow_null_units, "progress": progress}
    source = resolve(source)
    how["salt"] = uniform_bits(source, 63)
    if histogram is None:
        counted = where.aggregate(data, request.columns, request.contribution, known=request.known_keys, **how)
    else:
        units = where.by_bound(data, request.columns, **how)
    plan.mechanism.certify()
    charge(book, plan.mechanism, note)
    if histogram is not None:
        sizes = histogram.draw_counted(units.units, source)
        chosen = with_bound(request, sizes, plan.each.guarantee.epsilon)
        plan, bound = behind(histogram, chosen), chosen.contribution.keys
        counted = units.under(bound)
        contribution = in_words(chosen, sizes.kept(bound), chosen=request.chooses_bound)
    if request.sample_size is not None:
        found = private_scheme(
            counted.summands,
            request.sample_size,
            epsilon=request.epsilon * SHARE_FOR_SIZE,
            max_keys=request.contribution.keys,
            source=source,
        )
        plan = sampled(request, found)
    return release_of(
        plan.mechanism,
        *counted.drawn(plan.mechanism, source),
        keys_only=request.keys_only,
        contribution=contribution,
        reason=plan.reason,
        source=source,
    )


def preview(
    data: Any = None,
    *,
    key: str | Sequence[str] = "key",
    epsilon: float,
    delta: float,
    privacy_unit: str | None = None,
    max_keys_per_unit: int | Literal["auto"] = 1,
    max_rows_per_key: int = 1,
    scheme: Scheme | None = None,
    sample_size: int | None = None,
    mechanism: str = "auto",
    known_keys: Any = None,
    keys_only: bool = False,
    tell_kept: bool = False,
    allow_null_units: bool = False,
    engine: Engine | None = None,
    ledger: Ledger | str | os.PathLike[str] | None = None,
    note: str = "",
    progress: Callable[[float], None] | bool | None = None,
    source: Source | None = None,
) -> Preview:
    """Say what `release` would do with the same arguments; spends nothing, and reads no more of data than its schema.

    A ledger is asked whether the release would fit, and refuses here what it would refuse then; `note`, `progress` and
    `source` change nothing.

    >>> print(preview(epsilon=1.0, delta=1e-8, privacy_unit="user_id").half)
    19
    """
    request = ReleaseRequest.of(locals())
    plan, book = make_plan(request), opened(ledger, note)
    if book is not None:
        book.check(plan.mechanism, note)
    if data is not None:
        choose(data, engine).check(data, request.columns)
    if request.chooses_bound:
        left = plan.each.guarantee.epsilon
        return Preview.before_choice(plan.guarantee, left, before_choice(request, left))
    return Preview.of(plan, str(request.contribution), for_rarer_keys(request))
