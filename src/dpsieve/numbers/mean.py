"""The mean of skewed vectors, in one call: PLAN (Lebeda's thesis, chapter 5), made exact, and its baselines.

PLAN finds a centre and a spread for each coordinate, scales coordinate i by spread_i^(-2/(p+2)) so that noise of one
size is right for all, clips scaled rows to a radius that few exceed, and adds noise to their sum. Every step is private
and pays a share of one budget (`mean_plan`). Centres, spreads and the radius are found by comparisons of ranks with
noise (`noisy_ranks`); the sum is one of whole vectors whose norms are checked in whole numbers (`clipped_rows`). Where
to clip, and how far that can move the mean, follows from a few noisy counts of large norms (`mean_noise`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.numbers.estimate import Estimate
from dpsieve.numbers.mean_plan import MeanPlan, preview_mean
from dpsieve.numbers.mean_steps import PlanSteps
from dpsieve.numbers.rows import BoundedRows
from dpsieve.numbers.sums import coordinate_names, matrix
from dpsieve.papers.thesis.mean_steps import ThesisSteps
from dpsieve.privacy.composed import Composed, Use
from dpsieve.privacy.ledger import AnyLedger, charge, open_ledger
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.picks import shuffled
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

_FEW = 16  # rows of a rehearsal
_VARIANCES = "Pass one public variance for each coordinate, not all zero."
SPREADS = ("auto", "pairs", 0.75, 0.841, 0.9)


def private_mean(
    x: Any,
    *,
    bound: float | None = None,
    kind: str,
    rho: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    p: float = 2.0,
    variances: Any = None,
    mode: str = "best",
    spread: str | float = "auto",
    fallback: bool = False,
    neighbours: Neighbours = "replace",
    names: Sequence[str] | None = None,
    unit: str = "one row",
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> Estimate:
    """Return the private mean of n rows; one row belongs to one privacy unit, and n is public.

    Neighbours replace one row. The whole is mu-Gaussian private, so rho-zCDP for rho = mu^2 / 2, and its guarantee is
    the (epsilon, delta) of that; mode 'thesis' is rho-zCDP alone, and has the (epsilon, delta) of zCDP. The error is
    that of noise in proportion to the spreads of the coordinates, not to the bound: in l2 about 2 |spread|_1 / (n
    sqrt(2 rho)), where the plain mechanism has sqrt(d) |spread|_2 at best.
    `preview_mean` tells, from public numbers, whether there are enough rows.

    Args:
        x: n rows of d numbers: an array, a list of rows, a table, or a SciPy sparse matrix, which stays sparse. NaN and
            infinities are refused.
        bound: all coordinates lie in [-bound, bound], or are limited to it; default 1. Not for binary rows.
        kind: 'real', or 'binary' for rows of zeros and ones. Other numbers are limited to [0, 1] there, and those
            between count as what they are: a refusal would tell of one row.
        rho: a budget in zCDP. The guarantee then says its epsilon at `delta` (default 10^-6).
        epsilon, delta: a budget instead of rho.
        p: the norm of the error that is made small, from 1.
        variances: public variances of the coordinates; left out, spreads are found privately.
        mode: 'best' (PLAN; the Gaussian mechanism on the whole box for binary rows of up to 4 coordinates, and where
            private numbers say that its noise is less); 'thesis' (as the experiments of Section 5.7; see
            `thesis_steps`, also for what it leaves open); 'shifted' (the shifted-clipped mean: no scaling), 'rotated'
            (the same with medians of randomly rotated rows: instance-optimal mean estimation, Huang et al. 2021),
            'plain_scale' (Theorem 5.4), 'gaussian' (the Gaussian mechanism on the whole box).
        spread: how spreads of real rows are found: 'pairs' (Algorithm 18: differences of pairs of rows), or a quantile
            0.75, 0.841 or 0.9 of the rows around their centre; 'auto': 'pairs' in mode 'thesis', else 0.841.
        fallback: where there are too few rows for the mode, they are refused, with the number needed (mode 'thesis'
            takes four rows and more, useful or not). With fallback=True the shifted-clipped mean is taken instead, or
            the Gaussian mechanism where there are too few for that as well.
        neighbours: 'replace', as the number of rows is public.
        names: of the coordinates.
        unit: who is protected, in words.
        ledger, note: where the spend is written down before anything is drawn, and a note for it.
        source: of randomness, for tests.

    The table has, for each coordinate: `deviation` of the noise; `low` and `high`, a 95 % interval for the mean of the
    rows, each limited to the bounds; and what was paid for on the way, `centre` (a private median; 0 or 1 for binary
    rows) and `spread` (a private standard deviation, as Gaussian rows would have it, or sqrt(q (1 - q)) of a rough mean
    q of binary rows), where the mode finds them. The interval includes what clipping moves, on the assumption that the
    tail of the norms of rows does not get heavier farther out (`mean_noise`); it is exact where nothing is clipped.
    Modes 'thesis', 'rotated' and 'plain_scale' state none: `low` and `high` are null. Values are limited to the bounds.

    >>> rows = [[i % 7, (i % 5) / 100] for i in range(2_000)]
    >>> mean = private_mean(rows, bound=100.0, kind="real", rho=1.0)
    >>> [round(value, 1) for value in mean.value.tolist()], mean.last.radius > 0
    ([3.0, 0.0], True)
    """
    if validate.neighbours(neighbours) != "replace":
        raise InvalidValue("neighbours='add_remove' hides the number of rows, which a mean needs. Pass 'replace'.")
    book, source = open_ledger(ledger, note), resolve(source)
    given = matrix(x)
    labels = coordinate_names(names, given)
    count, size = given.values.shape
    numbers = {"bound": bound, "rho": rho, "epsilon": epsilon, "delta": delta, "p": p, "kind": kind}
    known = _variances(variances, size)
    plan = preview_mean(count, size, mode=mode, variances_known=known is not None, **numbers)  # type: ignore[arg-type]
    if plan.rows < (1 if plan.boxed else 4) or (plan.mode != "thesis" and not plan.useful):
        plan = _other(plan, numbers, fallback)
    if spread not in SPREADS:
        raise InvalidValue("spread is not known. Choose 'auto', 'pairs', 0.75, 0.841 or 0.9.")
    low, high = (0.0, 1.0) if plan.kind == "binary" else (-plan.bound, plan.bound)
    steps_kind = ThesisSteps if plan.mode == "thesis" else PlanSteps
    promise = steps_kind.promised(plan, epsilon, delta)

    def steps_for(values: Any, source: Source = source) -> PlanSteps:
        return steps_kind(plan, BoundedRows(values, low, high), promise[1], unit, source)

    def rehearse() -> None:
        steps_for(given.values[:_FEW] * 0, resolve(None)).run(known, spread)

    cost = _composed(promise, steps_for(given.values).planned())
    with charge(book, cost, note, rehearse) as entry:
        # Pairs of rows that follow each other are compared. In a random order a replaced row is in one pair alone,
        # wherever it stood, so the order in which rows come does not matter, even if it depends on all of them.
        steps = steps_for(given.values if plan.boxed else given.values[shuffled(count, source)])
        values = steps.run(known, spread)
        made = _composed(promise, steps.made)
        words: Any = {"reason": f"{plan}; {steps.told}", "contribution": "one row of numbers within public bounds"}
        return Estimate.of(made, values, labels, source=source, single=given.single, entry=entry, **words)


def _composed(promise: tuple[float, float], parts: Sequence[Mechanism]) -> Mechanism:
    return parts[0] if len(parts) == 1 else Composed(*promise, tuple(Use(part) for part in parts))


def _other(plan: MeanPlan, numbers: dict[str, Any], fallback: bool) -> MeanPlan:
    """Return a plan that needs fewer rows, or refuse."""
    if plan.rows < 1:
        raise InvalidValue("x has no rows, so that there is no mean. Pass at least one.")
    if not fallback:
        needed = f"{plan.rows_needed:,} rows" if plan.rows_needed else "more rows than there can be"
        fix = "Pass more rows, fewer coordinates or a larger budget, or fallback=True for a simpler method."
        raise InvalidValue(
            f"x has too few rows: mode={plan.mode!r} needs {needed} for {plan.size:,} coordinates. {fix}"
        )
    shifted, plain = (preview_mean(plan.rows, plan.size, mode=mode, **numbers) for mode in ("shifted", "gaussian"))
    return shifted if shifted.useful else plain


def _variances(variances: Any, size: int) -> Floats | None:
    if variances is None:
        return None
    given = validate.finite("variances", variances, hint=_VARIANCES)
    if given.shape not in ((), (size,)) or (given < 0).any() or not (given > 0).any():
        raise InvalidValue(f"variances has another length than x has coordinates, or a negative one. {_VARIANCES}")
    return np.broadcast_to(given, (size,)).astype(np.float64)
