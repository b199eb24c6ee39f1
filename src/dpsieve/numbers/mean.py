"""The mean of skewed vectors: PLAN (Lebeda's thesis, chapter 5) with exact draws, prepared from public numbers.

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
from dpsieve.numbers.estimate import Estimate
from dpsieve.numbers.mean_plan import MeanPlan, compose
from dpsieve.numbers.mean_steps import PlanSteps
from dpsieve.numbers.rows import BoundedRows
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.picks import shuffled
from dpsieve.randomness.source import Source
from dpsieve.types import Floats

_VARIANCES = "Pass one public variance per coordinate, not all zero."
SPREADS = ("auto", "pairs", 0.75, 0.841, 0.9)


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

    Args:
        count, size: public numbers of rows and coordinates.
        variances: public variances of the coordinates; left out, spreads are estimated privately.
        mode: 'best' (PLAN; the Gaussian mechanism on the whole box for binary rows of up to 4 coordinates, and where
            private numbers show that its noise is less), 'shifted' (the shifted-clipped mean: no scaling) or 'gaussian'
            (the Gaussian mechanism on the whole box).
        spread: the estimator of spreads of real rows: 'pairs' (Algorithm 18: differences of pairs of rows), or a
            quantile 0.75, 0.841 or 0.9 of the rows around their centre; 'auto' is 0.841.
        fallback: too few rows for the mode are refused, with the number needed. With fallback=True they get the
            shifted-clipped mean, or the Gaussian mechanism where there are too few for that as well.
        unit: the name of the privacy unit.
        plans, steps_of: the kind of plan, and the steps that follow it.
        budget: the arguments bound, kind, rho, epsilon, delta and p of `MeanPlan.make`.
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
