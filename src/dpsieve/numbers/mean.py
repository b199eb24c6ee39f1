"""The mean of skewed vectors, in one call: PLAN (Lebeda's thesis, chapter 5) with exact draws, and its baselines.

PLAN finds a centre and a spread per coordinate, scales coordinate i by spread_i^(-2/(p+2)) so that noise of one size is
right for all, clips scaled rows to a radius that few exceed, and adds noise to their sum. Every step is private and
spends a share of one budget (`mean_plan`). Centres, spreads and the radius are found by noisy comparisons of ranks
(`search`); the sum is one of whole vectors whose norms are checked in whole numbers (`rows`). The radius, and the bias
of clipping, follow from a few noisy counts of large norms (`mean_noise`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.numbers.estimate import Estimate, charge_and_draw
from dpsieve.numbers.mean_plan import MeanPlan, compose
from dpsieve.numbers.mean_steps import PlanSteps
from dpsieve.numbers.rows import BoundedRows
from dpsieve.numbers.sums import coordinate_names, matrix
from dpsieve.privacy.ledger import AnyLedger, open_ledger
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.picks import shuffled
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

_FEW = 16  # rows of a rehearsal
_VARIANCES = "Pass one public variance per coordinate, not all zero."
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

    Neighbours replace one row. The mean is mu-Gaussian private, so rho-zCDP for rho = mu^2 / 2, and its guarantee is
    the (epsilon, delta) of that. The noise is in proportion to the spreads of the coordinates, not to the bound: in l2
    about 2 |spread|_1 / (n sqrt(2 rho)), where the plain mechanism has sqrt(d) |spread|_2 at best.
    `preview_mean` reports, from public numbers, whether there are enough rows.

    Args:
        x: n rows of d numbers: an array, a list of rows, a table, or a SciPy sparse matrix, which stays sparse. NaN and
            infinities are refused.
        bound: all coordinates are clipped to [-bound, bound]; default 1. Not for binary rows.
        kind: 'real', or 'binary' for rows of zeros and ones. Other numbers are clipped to [0, 1] there, and those
            between are not refused: a refusal would reveal one row.
        p: the norm of the error that is minimised, from 1.
        variances: public variances of the coordinates; by default, spreads are estimated privately.
        mode: 'best' (PLAN; the Gaussian mechanism on the whole box for binary rows of up to 4 coordinates, and where
            private numbers show that its noise is less), 'shifted' (the shifted-clipped mean: no scaling) or 'gaussian'
            (the Gaussian mechanism on the whole box). `dpsieve.papers.thesis.private_mean` has the modes that
            reproduce the thesis.
        spread: the estimator of spreads of real rows: 'pairs' (Algorithm 18: differences of pairs of rows), or a
            quantile 0.75, 0.841 or 0.9 of the rows around their centre; 'auto' is 0.841.
        fallback: too few rows for the mode are refused, with the number needed. With fallback=True they get the
            shifted-clipped mean, or the Gaussian mechanism where there are too few for that as well.
        neighbours: 'replace', as the number of rows is public.
        rho, epsilon, delta, names, unit, ledger, note, source: see `private_sum`; the noise is Gaussian.

    The table has, per coordinate: `deviation` of the noise; `low` and `high`, a 95 % interval for the mean of the rows,
    each clipped to the bounds; and the private estimates in the budget, `centre` (a median; 0 or 1 for binary rows) and
    `spread` (a standard deviation, that of Gaussian rows with this quantile, or sqrt(q (1 - q)) of a rough mean q of
    binary rows), where the mode has them. The interval includes the bias of clipping, on the assumption that the tail
    of the norms of rows does not get heavier farther out (`mean_noise`); it is exact where nothing is clipped.
    Values are clipped to the bounds.

    >>> rows = [[i % 7, (i % 5) / 100] for i in range(2_000)]
    >>> mean = private_mean(rows, bound=100.0, kind="real", rho=1.0)
    >>> [round(value, 1) for value in mean.value.tolist()], mean.last.radius > 0
    ([3.0, 0.0], True)
    """

    def prepare(count: int, size: int) -> PreparedMean:
        return prepare_mean(
            count, size, bound=bound, kind=kind, rho=rho, epsilon=epsilon, delta=delta, p=p, variances=variances,
            mode=mode, spread=spread, fallback=fallback, unit=unit,
        )  # fmt: skip

    return publish_mean(x, prepare, neighbours, names=names, ledger=ledger, note=note, source=source)


def publish_mean(
    x: Any, prepare: Callable[[int, int], "PreparedMean"], neighbours: Neighbours, *, names: Sequence[str] | None,
    ledger: AnyLedger, note: str, source: Source | None,
) -> Estimate:  # fmt: skip
    """Read rows, prepare their mean from their public numbers of rows and columns, charge a ledger, and draw."""
    if validate.neighbours(neighbours) != "replace":
        raise InvalidValue("neighbours='add_remove' hides the number of rows, which a mean needs. Pass 'replace'.")
    book, source = open_ledger(ledger, note), resolve(source)
    given = matrix(x)
    labels = coordinate_names(names, given)
    prepared = prepare(*given.values.shape)
    rows, invented = prepared.bounded(given.values), prepared.bounded(given.values[:_FEW] * 0)

    def finish(rows: BoundedRows, source: Source) -> Estimate:
        return prepared.draw(rows, source, labels, single=given.single)

    return charge_and_draw(prepared.cost, finish, rows, invented, ledger=book, note=note, source=source)


@dataclass(frozen=True, eq=False)
class PreparedMean:
    """A private mean before any row is read: its plan, its guarantee, its cost and how to draw it."""

    plan: MeanPlan
    promise: tuple[float, float]
    unit: str
    variances: Floats | None
    spread: str | float
    steps: type[PlanSteps]

    @property
    def cost(self) -> Mechanism:
        """A mechanism that costs what the plan costs."""
        return self.plan.cost(self.promise, self.unit)

    def bounded(self, values: Any) -> BoundedRows:
        """Return rows within the bounds of the plan."""
        low, high = (0.0, 1.0) if self.plan.kind == "binary" else (-self.plan.bound, self.plan.bound)
        return BoundedRows(values, low, high)

    def draw(self, rows: BoundedRows, source: Source, names: Sequence[str], *, single: bool = False) -> Estimate:
        """Return the private mean of rows; charges no ledger.

        Pairs of adjacent rows are compared. In a random order a replaced row is in one pair alone, wherever it stood,
        so the order of the input does not matter, even if it depends on all rows.
        """
        if not self.plan.boxed:
            rows = rows.take(shuffled(rows.shape[0], source))
        steps = self.steps(self.plan, rows, self.promise[1], self.unit, source)
        values = steps.run(self.variances, self.spread)
        notes: Any = {"reason": f"{self.plan}; {steps.summary}", "single": single}
        notes["contribution"] = "one row of numbers within public bounds"
        return Estimate.of(compose(self.promise, steps.mechanisms), values, names, source=source, **notes)


def prepare_mean(
    count: int, size: int, *, variances: Any = None, mode: str = "best", spread: str | float = "auto",
    fallback: bool = False, unit: str = "one row", plans: type[MeanPlan] = MeanPlan,
    steps_of: Callable[[MeanPlan], type[PlanSteps]] = lambda _: PlanSteps, **budget: Any,
) -> PreparedMean:  # fmt: skip
    """Return the private mean of `count` rows of `size` coordinates, prepared from public numbers alone.

    `budget` has the arguments bound, kind, rho, epsilon, delta and p of `private_mean`.
    """
    known = _check_variances(variances, size)
    plan = plans.make(count, size, mode=mode, variances_known=known is not None, **budget)
    if not plan.is_accepted:
        plan = _simpler_plan(plan, budget, fallback)
    if spread not in SPREADS:
        raise InvalidValue("spread is not known. Choose 'auto', 'pairs', 0.75, 0.841 or 0.9.")
    promise = plan.promise(budget["epsilon"], budget["delta"])
    return PreparedMean(plan, promise, unit, known, spread, steps_of(plan))


def _simpler_plan(plan: MeanPlan, budget: dict[str, Any], fallback: bool) -> MeanPlan:
    """Return a plan that needs fewer rows, or refuse."""
    if plan.rows < 1:
        raise InvalidValue("x has no rows, so there is no mean. Pass at least one.")
    if not fallback:
        needed = f"{plan.rows_needed:,} rows" if plan.rows_needed else "more rows than there can be"
        fix = "Pass more rows, fewer coordinates or a larger budget, or fallback=True for a simpler method."
        raise InvalidValue(
            f"x has too few rows: mode={plan.mode!r} needs {needed} for {plan.size:,} coordinates. {fix}"
        )
    shifted, plain = (MeanPlan.make(plan.rows, plan.size, mode=mode, variances_known=False, **budget)
                      for mode in ("shifted", "gaussian"))  # fmt: skip
    return shifted if shifted.useful else plain


def _check_variances(variances: Any, size: int) -> Floats | None:
    if variances is None:
        return None
    given = validate.finite("variances", variances, hint=_VARIANCES)
    if given.shape not in ((), (size,)) or (given < 0).any() or not (given > 0).any():
        raise InvalidValue(f"variances has another length than x has coordinates, or a negative one. {_VARIANCES}")
    return np.broadcast_to(given, (size,)).astype(np.float64)
