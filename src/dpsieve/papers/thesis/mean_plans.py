"""Private means as in the thesis and its baselines, for reproduction: modes 'thesis', 'rotated' and 'plain_scale'.

- 'thesis': PLAN as in the experiments of Section 5.7 (`mean_steps`).
- 'rotated': the shifted-clipped mean around medians of randomly rotated rows (instance-optimal mean estimation, Huang,
  Liang and Yi 2021).
- 'plain_scale': Theorem 5.4, the clipped mean without scaling.

For comparison with these: 'best' is PLAN as `dpsieve.mean` has it with method='plan', 'shifted' the shifted-clipped
mean (no scaling), 'gaussian' the Gaussian mechanism on the whole box.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta, zcdp_epsilon, zcdp_rho
from dpsieve.errors import InvalidValue
from dpsieve.jobs.run import charge, open_ledger
from dpsieve.numbers.estimate import Estimate, coordinate_names, matrix
from dpsieve.numbers.mean_plan import FAILURE, MOST_CLIPPED, SMALLEST_SPREAD, MeanPlan
from dpsieve.numbers.mean_steps import PreparedMean
from dpsieve.numbers.noise import DELTA_OF_RHO
from dpsieve.numbers.rows import BoundedRows
from dpsieve.papers.thesis.mean_steps import THESIS_FAILURE, BaselineSteps, ReproducedSteps, ThesisSteps, make_picks
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats
from dpsieve.validate import Neighbours, RowKind

_FEW = 16  # rows of a rehearsal
_ESTIMATES = ("spread", "first mean", "first radius")  # steps that known variances replace
_VARIANCES = "Pass one public variance per coordinate, not all zero."
SPREADS = ("auto", "pairs", 0.75, 0.841, 0.9)
Mode = Literal["thesis", "rotated", "plain_scale", "best", "shifted", "gaussian"]
Spread = Literal["auto", "pairs"] | float
_SHARES = {"centre": 0.0625, "spread": 0.1875, "radius": 0.1875}


@dataclass(frozen=True)
class ReproducedPlan(MeanPlan):
    """The plan of a mean that reproduces the thesis or one of its baselines; see the head of this module.

    Attributes:
        mode: see the head of this module.
        known: whether variances are given.
        steps_of: the steps of each kind and mode, before the noise.
    """

    steps_of: ClassVar[dict[tuple[str, str], tuple[str, ...]]] = {
        ("real", "best"): ("scale", "centre", "spread", "radius", "tail", "check"),
        ("real", "shifted"): ("scale", "centre", "radius", "tail", "check"),
        ("real", "gaussian"): (),
        ("binary", "best"): ("first radius", "first mean", "radius", "tail", "check"),
        ("binary", "shifted"): ("radius", "tail", "check"),
        ("binary", "gaussian"): (),
        ("real", "thesis"): ("centre", "spread", "radius"),
        ("real", "rotated"): ("scale", "centre", "radius"),
        ("real", "plain_scale"): ("scale", "centre", "radius"),
        ("binary", "thesis"): ("centre", "spread", "radius"),
        ("binary", "rotated"): ("scale", "centre", "radius"),
        ("binary", "plain_scale"): ("radius",),
    }

    mode: Mode = "thesis"
    known: bool = False

    @classmethod
    def of(cls, n: int, d: int, *, mode: object, variances_known: bool, **options: Any) -> Self:
        """Return the plan for n rows of d coordinates; `options` are those of `MeanPlan.make`."""
        modes = list(dict.fromkeys(mode for _, mode in cls.steps_of))
        if not isinstance(mode, str) or mode not in modes:
            raise InvalidValue(f"mode is not known. Choose one of {', '.join(modes)}.")
        epsilon, delta = options["epsilon"], options["delta"]
        if mode == "thesis" and options["rho"] is None and epsilon is not None and delta is not None:
            # picks are concentrated, not Gaussian
            options |= {"rho": zcdp_rho(validate.positive_epsilon(epsilon), delta), "epsilon": None}
        return replace(cls.make(n, d, **options), mode=cast(Mode, mode), known=bool(variances_known))

    @property
    def title(self) -> str:
        """The mode."""
        return f"mode {self.mode}"

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps before the noise."""
        steps = () if self.boxed else self.steps_of[self.kind, self.mode]
        return tuple(step for step in steps if not (self.known and step in _ESTIMATES))

    @property
    def boxed(self) -> bool:
        """Whether rows get the noise of the whole box."""
        return self.mode == "gaussian" or (self.mode == "best" and super().boxed)

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

    def _radius_share(self, usual: float, enough: float) -> float:
        return super()._radius_share(usual, enough) if self.states_interval else usual

    @property
    def columns(self) -> int:
        """The number of columns in which medians are searched: a rotation pads them to a power of two."""
        return 1 << (self.size - 1).bit_length() if self.mode == "rotated" else self.size

    @property
    def _centre_comparisons(self) -> int:
        if self.mode == "best":
            return super()._centre_comparisons
        # From twice the bound, times sqrt(d) where rotated, to a part of the spread of a coordinate.
        parts, wide = 4 * math.sqrt(self.size), math.sqrt(self.size) if self.mode == "rotated" else 1.0
        return self.columns * min(40, math.ceil(math.log2(2 * wide * parts / SMALLEST_SPREAD)) + 1)

    @property
    def nonnegative(self) -> bool:
        """Whether scaled rows have no negative coordinate."""
        return self.kind == "binary" and self.mode in ("best", "shifted", "plain_scale")

    @property
    def states_interval(self) -> bool:
        """Whether there are intervals: nothing is known about the bias of clipping in the modes of this module."""
        return self.mode in ("best", "shifted", "gaussian")

    @property
    def is_accepted(self) -> bool:
        """Whether there are enough rows; mode 'thesis' takes four rows and more, useful or not."""
        return self.rows >= 4 if self.mode == "thesis" else self.rows >= 1 and self.useful

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
    delta: float | None = None, p: float = 2.0, kind: RowKind, mode: Mode = "thesis", variances_known: bool = False,
) -> MeanPlan:  # fmt: skip
    """Return the plan of `private_mean` for n rows of d coordinates, from public numbers; it spends nothing.

    See `useful`, `rows_needed`, `shares` and `errors` of the result, or print it.

    >>> list(preview_mean(10_000, 16, bound=100.0, rho=0.5, kind="real").shares.values())
    [0.0625, 0.1875, 0.1875, 0.5625]
    >>> print(preview_mean(10_000, 256, bound=100.0, rho=0.5, kind="real", mode="best"))
    mode best: scale 0.1%, centre ...
    """
    return ReproducedPlan.of(
        n, d, bound=bound, rho=rho, epsilon=epsilon, delta=delta, p=p, kind=kind, mode=mode,
        variances_known=variances_known,
    )  # fmt: skip


def private_mean(
    x: Any, *, bound: float | None = None, kind: RowKind, rho: float | None = None, epsilon: float | None = None,
    delta: float | None = None, p: float = 2.0, variances: Any = None, mode: Mode = "thesis",
    spread: Spread = "auto", fallback: bool = False, neighbours: Neighbours = "replace",
    names: Sequence[str] | None = None, unit: str = "one row", ledger: AnyLedger = None, note: str = "",
    source: Source | None = None,
) -> Estimate:  # fmt: skip
    """Return the private mean of n rows by a method of the thesis; one row belongs to one privacy unit, n is public.

    Neighbours replace one row. Modes are at the head of this module. Mode 'thesis' is rho-zCDP, and its
    guarantee is the (epsilon, delta) of zCDP; spread='auto' is 'pairs' there. Modes 'thesis', 'rotated' and
    'plain_scale' state no interval: `low` and `high` are null. Values of mode 'thesis' are not clipped to the bounds.

    Args:
        x: n rows of d numbers: an array, a list of rows, a table, or a SciPy sparse matrix, which stays sparse. NaN and
            infinities are refused.
        bound, kind, rho, epsilon, delta, p: see `dpsieve.numbers.mean_plan.MeanPlan.make`.
        variances: public variances of the coordinates; left out, spreads are estimated privately.
        mode: see the head of this module.
        spread: the estimator of spreads of real rows: 'pairs' (Algorithm 18: differences of pairs of rows), or a
            quantile 0.75, 0.841 or 0.9 of the rows around their centre; 'auto' is 0.841, in mode 'thesis' 'pairs'.
        fallback: too few rows for the mode are refused, with the number needed. With fallback=True they get the
            shifted-clipped mean, or the Gaussian mechanism where there are too few for that as well.
        unit: the name of the privacy unit.
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
    known = _check_variances(variances, given.values.shape[1])
    budget: Any = {"bound": bound, "kind": kind, "rho": rho, "epsilon": epsilon, "delta": delta, "p": p}
    plan = ReproducedPlan.of(*given.values.shape, mode=mode, variances_known=known is not None, **budget)
    if not plan.is_accepted:
        plan = _simpler_plan(plan, budget, fallback)
    if spread not in SPREADS:
        raise InvalidValue("spread is not known. Choose 'auto', 'pairs', 0.75, 0.841 or 0.9.")
    prepared = ReproducedMean(plan, plan.promise(epsilon, delta), unit, known, spread)
    rows, invented = prepared.bounded(given.values), prepared.bounded(given.values[:_FEW] * 0)

    def draw(rows: BoundedRows, source: Source) -> Estimate:
        return prepared.draw(rows, source, labels, single=given.single)

    with charge(prepared.cost, book, note, lambda: draw(invented, resolve(None))) as entry:
        return draw(rows, source).charged_as(entry)


@dataclass(frozen=True, eq=False)
class ReproducedMean(PreparedMean):
    """A mean of this module before any row is read; see `private_mean`."""

    plan: ReproducedPlan
    variances: Floats | None
    spread: Spread

    def steps(self, rows: BoundedRows, source: Source) -> ReproducedSteps:
        """Return the steps of the plan on rows."""
        kind = {"thesis": ThesisSteps, "rotated": BaselineSteps, "plain_scale": BaselineSteps}
        steps = kind.get(self.plan.mode, ReproducedSteps)
        made: ReproducedSteps = steps(self.plan, rows, self.promise[1], self.unit, source)
        made.variances, made.spread = self.variances, self.spread
        return made


def _simpler_plan(plan: ReproducedPlan, budget: dict[str, Any], fallback: bool) -> ReproducedPlan:
    """Return a plan that needs fewer rows, or refuse."""
    if plan.rows < 1:
        raise InvalidValue("x has no rows, so there is no mean. Pass at least one.")
    if not fallback:
        needed = f"{plan.rows_needed:,} rows" if plan.rows_needed else "more rows than there can be"
        fix = "Pass more rows, fewer coordinates or a larger budget, or fallback=True for a simpler method."
        raise InvalidValue(
            f"x has too few rows: mode={plan.mode!r} needs {needed} for {plan.size:,} coordinates. {fix}"
        )
    shifted, plain = (ReproducedPlan.of(plan.rows, plan.size, mode=mode, variances_known=False, **budget)
                      for mode in ("shifted", "gaussian"))  # fmt: skip
    return shifted if shifted.useful else plain


def _check_variances(variances: Any, size: int) -> Floats | None:
    if variances is None:
        return None
    given = validate.finite("variances", variances, hint=_VARIANCES)
    if given.shape not in ((), (size,)) or (given < 0).any() or not (given > 0).any():
        raise InvalidValue(f"variances has another length than x has coordinates, or a negative one. {_VARIANCES}")
    return np.broadcast_to(given, (size,)).astype(np.float64)
