"""Private means as in the thesis and its baselines, for reproduction: modes 'thesis', 'rotated' and 'plain_scale'.

- 'thesis': PLAN as in the experiments of Section 5.7 (`mean_steps`).
- 'rotated': the shifted-clipped mean around medians of randomly rotated rows (instance-optimal mean estimation, Huang,
  Liang and Yi 2021).
- 'plain_scale': Theorem 5.4, the clipped mean without scaling.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta, zcdp_epsilon, zcdp_rho
from dpsieve.errors import InvalidValue
from dpsieve.jobs.run import charge, open_ledger
from dpsieve.numbers.estimate import Estimate
from dpsieve.numbers.mean import prepare_mean
from dpsieve.numbers.mean_plan import FAILURE, MOST_CLIPPED, SMALLEST_SPREAD, MeanPlan
from dpsieve.numbers.mean_steps import PlanSteps
from dpsieve.numbers.noise import DELTA_OF_RHO, budget_mu
from dpsieve.numbers.rows import BoundedRows
from dpsieve.numbers.sums import coordinate_names, matrix
from dpsieve.papers.thesis.mean_steps import THESIS_FAILURE, BaselineSteps, ThesisSteps, make_picks
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source, resolve
from dpsieve.validate import Neighbours

_FEW = 16  # rows of a rehearsal
_SHARES = {"centre": 0.0625, "spread": 0.1875, "radius": 0.1875}


class ReproducedPlan(MeanPlan):
    """The plan of a mean that reproduces the thesis or one of its baselines; see the head of this module."""

    steps_of: ClassVar[dict[tuple[str, str], tuple[str, ...]]] = {
        ("real", "thesis"): ("centre", "spread", "radius"),
        ("real", "rotated"): ("scale", "centre", "radius"),
        ("real", "plain_scale"): ("scale", "centre", "radius"),
        ("binary", "thesis"): ("centre", "spread", "radius"),
        ("binary", "rotated"): ("scale", "centre", "radius"),
        ("binary", "plain_scale"): ("radius",),
    }

    @staticmethod
    def _budget_mu(mode: str, rho: float | None, epsilon: float | None, delta: float | None) -> float:
        if mode == "thesis" and epsilon is not None and delta is not None:  # picks are concentrated, not Gaussian
            rho, epsilon = zcdp_rho(validate.positive_epsilon(epsilon), delta), None
        return budget_mu(rho, epsilon, delta)

    def promise(self, epsilon: float | None, delta: float | None) -> tuple[float, float]:
        """Return the (epsilon, delta) of all steps together; that of zCDP in mode 'thesis'."""
        if self.mode != "thesis" or (epsilon is not None and delta is not None):
            return super().promise(epsilon, delta)
        delta = positive_delta(DELTA_OF_RHO if delta is None else delta)
        epsilon = zcdp_epsilon(self.mu**2 / 2 * (1 + 2.0**-30), delta)  # more than all roundings
        if not math.isfinite(epsilon):
            raise InvalidValue(f"rho has no epsilon up to 500 at delta={delta:g}. Pass a smaller rho.")
        return epsilon, delta

    def mechanism(self, step: str, delta: float, unit: str) -> Mechanism:
        """Return a mechanism that costs what a step costs."""
        if self.mode == "thesis" and self.picks(step):
            return make_picks(self, step, delta, unit)
        return super().mechanism(step, delta, unit)

    def _share(self, step: str) -> float:
        return _SHARES[step] if self.mode == "thesis" else super()._share(step)

    @property
    def columns(self) -> int:
        """The number of columns in which medians are searched: a rotation pads them to a power of two."""
        return 1 << (self.size - 1).bit_length() if self.mode == "rotated" else self.size

    @property
    def _centre_comparisons(self) -> int:
        # From twice the bound, times sqrt(d) where rotated, to a part of the spread of a coordinate.
        parts, wide = 4 * math.sqrt(self.size), math.sqrt(self.size) if self.mode == "rotated" else 1.0
        return self.columns * min(40, math.ceil(math.log2(2 * wide * parts / SMALLEST_SPREAD)) + 1)

    @property
    def nonnegative(self) -> bool:
        """Whether scaled rows have no negative coordinate."""
        return self.kind == "binary" and self.mode == "plain_scale"

    @property
    def states_interval(self) -> bool:
        """False: nothing is known about the bias of clipping."""
        return False

    @property
    def is_accepted(self) -> bool:
        """Whether there are enough rows; mode 'thesis' takes four rows and more, useful or not."""
        return self.rows >= 4 if self.mode == "thesis" else super().is_accepted

    def picks(self, step: str) -> int:
        """Return the number of quantiles that mode 'thesis' picks in a step; 0 where it adds noise instead."""
        if step == "radius":
            return 1
        return self.size if step == "centre" or (step == "spread" and self.kind == "real") else 0

    @property
    def clipped(self) -> float:
        """The number of rows that mode 'thesis' clips: sqrt(n) + the rank error of Lemma 5.4, for T = ln(2 bound)."""
        depth = max(2.0, math.log(2 * self.bound)) if self.kind == "real" else 2.0
        share = self.mu**2 / 2 * self.shares["radius"]
        off = math.sqrt(depth * math.log(3 * depth / THESIS_FAILURE) / (2 * share))
        return min(math.sqrt(max(1, self.rows)) + off, self.rows / 2)

    @property
    def _searches_succeed(self) -> bool:
        """Whether hardly any pick ends outside all rows, if every coordinate had a standard deviation of 1.

        There u is half of the rows, so the probability is about length * e^(-e rows / 4) over the weight of the gaps
        near the quantile, 4 / (rows * e / 2).
        """
        if self.mode != "thesis":
            return super()._searches_succeed
        if self.clipped > math.sqrt(self.rows) + MOST_CLIPPED * self.rows:
            return False
        lengths = {"centre": (1, 2 * self.bound), "spread": (2, 2 * self.bound**2)} if self.kind == "real" else {}
        for step, (rows_each, length) in lengths.items():
            if step in self.shares:
                rate = math.sqrt(self.mu**2 * self.shares[step] / self.picks(step))  # e / 2
                reach = rate * self.rows / rows_each
                if math.log(self.size * length * max(1.0, reach) / 4 / (FAILURE / 4)) > reach / 2:
                    return False
        return True


def preview_mean(
    n: int, d: int, *, bound: float | None = None, rho: float | None = None, epsilon: float | None = None,
    delta: float | None = None, p: float = 2.0, kind: str, mode: str = "thesis", variances_known: bool = False,
) -> MeanPlan:  # fmt: skip
    """Return the plan of `private_mean` for n rows of d coordinates, from public numbers; it spends nothing.

    See `useful`, `rows_needed`, `shares` and `errors` of the result, or print it.

    >>> list(preview_mean(10_000, 16, bound=100.0, rho=0.5, kind="real").shares.values())
    [0.0625, 0.1875, 0.1875, 0.5625]
    >>> print(preview_mean(10_000, 256, bound=100.0, rho=0.5, kind="real", mode="best"))
    mode best: scale 0.1%, centre ...
    """
    return _plans_for(mode).make(
        n, d, bound=bound, rho=rho, epsilon=epsilon, delta=delta, p=p, kind=kind, mode=mode,
        variances_known=variances_known,
    )  # fmt: skip


def private_mean(
    x: Any, *, bound: float | None = None, kind: str, rho: float | None = None, epsilon: float | None = None,
    delta: float | None = None, p: float = 2.0, variances: Any = None, mode: str = "thesis",
    spread: str | float = "auto", fallback: bool = False, neighbours: Neighbours = "replace",
    names: Sequence[str] | None = None, unit: str = "one row", ledger: AnyLedger = None, note: str = "",
    source: Source | None = None,
) -> Estimate:  # fmt: skip
    """Return the private mean of n rows by a method of the thesis; one row belongs to one privacy unit, n is public.

    Neighbours replace one row. Modes 'thesis', 'rotated' and 'plain_scale' are those of this module; 'best', 'shifted'
    and 'gaussian' those of `dpsieve.mean` with method='plan', for comparison. Mode 'thesis' is rho-zCDP, and its
    guarantee is the (epsilon, delta) of zCDP; spread='auto' is 'pairs' there. The modes of this module state no
    interval: `low` and `high` are null. Values of mode 'thesis' are not clipped to the bounds.

    Args:
        x: n rows of d numbers: an array, a list of rows, a table, or a SciPy sparse matrix, which stays sparse. NaN and
            infinities are refused.
        bound, kind, rho, epsilon, delta, p: see `dpsieve.numbers.mean_plan.MeanPlan.make`.
        variances, mode, spread, fallback, unit: see `dpsieve.numbers.mean.prepare_mean`.
        neighbours: 'replace', as the number of rows is public.
        names: of the coordinates.
        ledger, note: a `Ledger` or its path, charged before the draw, and a note for the entry.
        source: of randomness, for tests.

    >>> rows = [[i % 7, (i % 5) / 100] for i in range(2_000)]
    >>> [use.mechanism.name for use in private_mean(rows, bound=100.0, kind="real", rho=1.0).mechanism.uses]
    ['rank_picks', 'rank_picks', 'rank_picks', 'mean_noise']
    >>> mean = private_mean(rows, bound=100.0, kind="real", rho=1.0, mode="best")
    >>> [round(value, 1) for value in mean.value.tolist()], mean.last.radius > 0
    ([3.0, 0.0], True)
    """
    if validate.neighbours(neighbours) != "replace":
        raise InvalidValue("neighbours='add_remove' hides the number of rows, which a mean needs. Pass 'replace'.")
    book, source, given = open_ledger(ledger, note), resolve(source), matrix(x)
    labels = coordinate_names(names, given)
    prepared = prepare_mean(
        *given.values.shape, bound=bound, kind=kind, rho=rho, epsilon=epsilon, delta=delta, p=p, variances=variances,
        mode=mode, spread=spread, fallback=fallback, unit=unit, plans=_plans_for(mode), steps_of=_steps_of,
    )  # fmt: skip
    rows, invented = prepared.bounded(given.values), prepared.bounded(given.values[:_FEW] * 0)

    def draw(rows: BoundedRows, source: Source) -> Estimate:
        return prepared.draw(rows, source, labels, single=given.single)

    with charge(prepared.cost, book, note, lambda: draw(invented, resolve(None))) as entry:
        return draw(rows, source).charged_as(entry)


def _plans_for(mode: object) -> type[MeanPlan]:
    kinds: dict[str, type[MeanPlan]] = {mode: kind for kind in (MeanPlan, ReproducedPlan) for _, mode in kind.steps_of}
    if not isinstance(mode, str) or mode not in kinds:
        raise InvalidValue(f"mode is not known. Choose one of {', '.join(kinds)}.")
    return kinds[mode]


def _steps_of(plan: MeanPlan) -> type[PlanSteps]:
    if not isinstance(plan, ReproducedPlan):
        return PlanSteps
    return ThesisSteps if plan.mode == "thesis" else BaselineSteps
