"""Private quantiles of a column of numbers: the choice of the mechanism, and the draw."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta, zcdp_epsilon, zcdp_rho
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.estimate import Estimate, describe_contribution
from dpsieve.numbers.gaps import GapQuantiles
from dpsieve.numbers.grid_quantiles import GridQuantiles, check_quantiles
from dpsieve.numbers.search import QuantileSearch
from dpsieve.privacy.guarantee import shown
from dpsieve.randomness.source import Source
from dpsieve.types import Floats
from dpsieve.validate import Neighbours, QuantileMethod

METHODS: tuple[QuantileMethod, ...] = get_args(QuantileMethod)
USUAL_DELTA = 1e-6
"""The delta at which a zCDP budget is stated by default."""
INVENTED = np.zeros(8)  # the column of a rehearsal
_BUDGET = "Pass epsilon=1.0, or epsilon and delta, or rho=0.1 for zero-concentrated privacy."


def draw_quantiles(values: Floats, mechanism: GridQuantiles, source: Source, *, reason: str, single: bool) -> Estimate:
    """Return the quantiles of floats without NaN, drawn by a mechanism of `choose_quantiles`; charges no ledger."""
    points = mechanism.draw(values, source)
    names = [shown(q) for q in mechanism.quantiles]
    adds = describe_contribution(mechanism.rows_per_unit)
    return Estimate.of(mechanism, points, names, source=source, reason=reason, contribution=adds, single=single)


def choose_quantiles(
    q: Any, *, bounds: Any, neighbours: Neighbours, epsilon: float | None = None, delta: float | None = None,
    rho: float | None = None, method: QuantileMethod = "auto", **options: Any,
) -> tuple[GridQuantiles, str]:  # fmt: skip
    """Return the mechanism of private quantiles, made from public numbers alone, and the reason for choosing it.

    The values are points of a public grid of at most 2^steps points between the bounds (`DyadicGrid`). The column
    `rank_error` of the result bounds the number of rows between a value and its rank q n, for all quantiles together
    with probability 0.95. It depends on public numbers alone, and counts rows as the grid points they round up to.

    Args:
        q: the quantile, from 0 to 1, or a list of them, in any order.
        bounds: public bounds of the values; the error hardly grows with their distance.
        neighbours: 'add_remove' (one row more or less) or 'replace' (one row changes, the number of rows is public).
        epsilon, delta: the budget; epsilon alone gives pure privacy.
        rho: a zCDP budget instead; its epsilon is stated at `delta`.
        method: 'search' (noisy binary search), 'gaps' (one quantile by the exponential mechanism), 'halving' (many by
            it), or 'auto': the least typical error. 'gaps' and 'halving' do much better than their bound where rows are
            spread over the range. 'search' has the lower bound with a rho or a delta, and suits columns of few
            different values.
        options: those of `GridQuantiles`: scale, steps, rows_per_unit and unit.
    """
    q = q.tolist() if isinstance(q, np.ndarray | np.generic) else q
    listed = q if isinstance(q, Sequence) and not isinstance(q, str) else [q]
    quantiles = check_quantiles([x.item() if isinstance(x, np.ndarray) and x.size == 1 else x for x in listed])
    mechanisms = _mechanisms(quantiles, bounds, method, _budgets(epsilon, delta, rho), neighbours=neighbours, **options)
    best = min(mechanisms, key=lambda mechanism: mechanism.typical_error)
    reason = f"typically off by about {best.typical_error:.2g} rows, the least of all methods"
    return best, reason if method == "auto" else "requested by the caller"


def _mechanisms(
    quantiles: tuple[float, ...], bounds: Any, method: Any, budgets: list[dict[str, float]], **options: Any
) -> list[GridQuantiles]:
    """Return all mechanisms of a method that keep the budget."""
    if not isinstance(method, str) or method not in METHODS:
        raise InvalidValue(f"method is not known. Choose one of {', '.join(METHODS)}.")
    if method == "gaps" and len(set(quantiles)) > 1:
        raise InvalidValue("method='gaps' finds one quantile. Pass method='halving' for many.")
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        raise InvalidType("bounds must be two numbers. Pass public bounds of the values, such as bounds=(0, 100).")
    validate.neighbours(options["neighbours"])
    kinds: dict[str, list[type[GridQuantiles]]]
    kinds = {"search": [QuantileSearch], "auto": [QuantileSearch, GapQuantiles]}
    mechanisms: list[GridQuantiles] = []
    refused = None
    for budget in budgets:
        for kind in kinds.get(method, [GapQuantiles]):
            try:
                mechanism = kind(quantiles=quantiles, low=bounds[0], high=bounds[1], **budget, **options)  # type: ignore[arg-type]
            except InvalidValue as error:  # noise too large for this kind alone, or an argument that no kind takes
                refused = error
                continue
            if isinstance(mechanism, GapQuantiles) and mechanism.rho and mechanism.pure_epsilon <= mechanism.epsilon:
                mechanism = replace(mechanism, epsilon=mechanism.pure_epsilon, delta=0.0)  # it needs no delta
            mechanisms.append(mechanism)
    if not mechanisms and refused is not None:
        raise refused
    return mechanisms


def _budgets(epsilon: float | None, delta: float | None, rho: float | None) -> list[dict[str, float]]:
    """Return the ways to spend a budget: as a pure epsilon, and as a rho with the epsilon and delta it implies."""
    if (epsilon is None) == (rho is None):
        raise InvalidValue(f"epsilon or rho must be given, and not both. {_BUDGET}")
    if rho is not None:
        rho = validate.between("rho", rho, 1e-12, 1e6, hint=_BUDGET)
        stated = positive_delta(USUAL_DELTA if delta is None else delta)
        implied = zcdp_epsilon(rho, stated)
        if implied > 500:
            raise InvalidValue(f"rho={rho:g} is beyond every epsilon up to 500. {_BUDGET}")
        return [{"epsilon": implied, "delta": stated, "rho": rho}]
    epsilon, delta = validate.positive_epsilon(epsilon), validate.delta(0.0 if delta is None else delta)
    pure = {"epsilon": epsilon, "delta": 0.0, "rho": 0.0}
    return [pure, {"epsilon": epsilon, "delta": delta, "rho": zcdp_rho(epsilon, delta)}] if delta else [pure]
