"""Private quantiles of a column of numbers, in one call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.gaussian import positive_delta
from dpsieve.accounting.renyi import zcdp_epsilon, zcdp_rho
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.numbers.estimate import Estimate, bounded_words
from dpsieve.numbers.gaps import GapQuantiles
from dpsieve.numbers.grid_quantiles import GridQuantiles, several
from dpsieve.numbers.search import QuantileSearch
from dpsieve.numbers.slice_quantiles import SliceQuantiles
from dpsieve.privacy.guarantee import shown
from dpsieve.privacy.ledger import AnyLedger, charge, open_ledger
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

METHODS = ("auto", "search", "gaps", "halving", "slices")
USUAL_DELTA = 1e-6
"""The delta at which a zCDP budget is stated, where none is given."""
_BUDGET = "Pass epsilon=1.0, or epsilon and delta, or rho=0.1 for zero-concentrated privacy."
_FEW = 8  # rows of a rehearsal
_COLUMN = "Pass one column of numbers, such as [1.5, 2.0, 7.25]."


def private_quantile(
    x: ArrayLike,
    q: float | Sequence[float] | Floats,
    *,
    bounds: tuple[float, float],
    neighbours: Neighbours,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    method: str = "auto",
    scale: str = "linear",
    steps: int = 32,
    rows_per_unit: int = 1,
    unit: str = "one row",
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> Estimate:
    """Publish one or many quantiles of a column of numbers, under differential privacy for one row.

    The values are points of a public grid of at most 2^steps points between the bounds (`DyadicGrid`). Values outside
    of the bounds count as the bounds, infinities too; NaN is refused. The table has, for each quantile, a bound
    'rank_error': at most how many rows the value is off its rank q n, for all quantiles together with probability 0.95.
    It depends on public numbers alone, and is about rows rounded up to the grid: for values that are tiny beside the
    bounds, choose scale='log'. With few rows beside it, as with none, any point may come out.

    Args:
        x: the column.
        q: the quantile, from 0 to 1, or a list of them, in any order.
        bounds: public numbers between which the values lie; the error hardly grows with their distance.
        neighbours: 'add_remove' (one row more or less) or 'replace' (one row changes, the number of rows is public).
        epsilon, delta: the budget; epsilon alone gives pure privacy.
        rho: a budget of zero-concentrated privacy instead; delta then says at which delta the epsilon is stated.
        method: 'search' (noisy binary search), 'gaps' (one quantile by the exponential mechanism), 'halving' (many by
            it), 'slices' (many by it, with a delta and a public number of rows), or 'auto': the least typical error of
            these. All but 'search' do much better than their bound where rows are spread over the range. 'search' has
            the lower bound with a rho or a delta, and is the better one for columns of few different values.
        scale: 'linear', or 'log' for bounds above zero: a grid whose spacing is relative to the value.
        steps: how often the bounds are halved.
        rows_per_unit: at most how many rows belong to one unit; the error grows with it. Above 1, units may have
            different numbers of rows, so that the number of rows is private under 'replace' too.
        unit: who is protected, in words.
        ledger, note: a `Ledger` or its path to charge before anything is drawn, and words to keep there.
        source: of randomness; leave it out.

    >>> median = private_quantile(range(10_001), 0.5, bounds=(0, 1e6), neighbours="add_remove", epsilon=1.0)
    >>> abs(median.value - 5_000) <= 100, median.table.column("rank_error").to_pylist()
    (True, [26.0])
    """
    values = _column(x)
    mechanism, reason = best_quantiles(
        q, bounds=bounds, neighbours=neighbours, epsilon=epsilon, delta=delta, rho=rho, method=method, scale=scale,
        steps=steps, rows_per_unit=rows_per_unit, unit=unit, rows=len(values),
    )  # fmt: skip
    return publish_quantiles(values, mechanism, reason, single=not _many(q), ledger=ledger, note=note, source=source)


def publish_quantiles(
    values: Floats, mechanism: GridQuantiles, reason: str, *, single: bool, ledger: AnyLedger, note: str,
    source: Source | None,
) -> Estimate:  # fmt: skip
    """Certify and charge a mechanism of `best_quantiles`, and publish what it draws from floats without NaN."""
    mechanism.certify()
    book, drawn_from = open_ledger(ledger, note), resolve(source)
    # Where neighbours replace a row, their number is public, and slices need it.
    invented = np.zeros(len(values) if mechanism.neighbours == "replace" else min(len(values), _FEW))
    with charge(book, mechanism, note, lambda: mechanism.draw(invented, resolve(None))) as entry:
        found = mechanism.draw(values, drawn_from)
    names = [shown(one) for one in mechanism.quantiles]
    words = {"reason": reason, "contribution": bounded_words(mechanism.rows_per_unit)}
    return Estimate.of(mechanism, found, names, source=drawn_from, single=single, entry=entry, **words)


def best_quantiles(
    q: Any, *, bounds: Any, neighbours: Any, epsilon: float | None = None, delta: float | None = None,
    rho: float | None = None, method: Any = "auto", rows: int | None = None, **more: Any,
) -> tuple[GridQuantiles, str]:  # fmt: skip
    """Return the mechanism of `private_quantile`, and why it was chosen; it holds public numbers alone.

    `rows` is the number of rows; it is looked at only if neighbours are 'replace', and left out where it is private.
    """
    q = q.tolist() if isinstance(q, np.ndarray | np.generic) else q
    listed = several([one.item() if isinstance(one, np.ndarray) and one.size == 1 else one for one in q]
                     if _many(q) else [q])  # fmt: skip
    made = _mechanisms(listed, bounds, method, _budgets(epsilon, delta, rho), rows, neighbours=neighbours, **more)
    best = min(made, key=lambda one: one.typical_error)
    reason = f"typically off by about {best.typical_error:.2g} rows, the least of all methods"
    return best, reason if method == "auto" else "requested by the caller"


def _many(q: Any) -> bool:
    return bool(q.ndim) if isinstance(q, np.ndarray) else isinstance(q, Sequence) and not isinstance(q, str)


def _mechanisms(
    listed: tuple[float, ...], bounds: Any, method: Any, budgets: list[dict[str, float]], rows: int | None, **more: Any
) -> list[GridQuantiles]:
    """Return all mechanisms of a method that keep the budget."""
    if not isinstance(method, str) or method not in METHODS:
        raise InvalidValue(f"method is not known. Choose one of {', '.join(METHODS)}.")
    if method == "gaps" and len(set(listed)) > 1:
        raise InvalidValue("method='gaps' finds one quantile. Pass method='halving' for many.")
    if not isinstance(bounds, Sequence | np.ndarray) or len(bounds) != 2:
        raise InvalidType("bounds must be two numbers. Pass public bounds of the values, such as bounds=(0, 100).")
    of_method: dict[str, list[type[GridQuantiles]]] = {
        "search": [QuantileSearch],
        "auto": [QuantileSearch, GapQuantiles],
        "slices": [],
    }
    kinds = of_method.get(method, [GapQuantiles])
    validate.neighbours(more["neighbours"])
    made: list[GridQuantiles] = []
    refused = None
    ways: list[tuple[type[GridQuantiles], dict[str, Any]]] = [(kind, each) for each in budgets for kind in kinds]
    if method in ("slices", "auto"):  # these have a delta, but no rho
        sliced = {**budgets[-1], "rho": 0.0} if len(budgets) > 1 else budgets[0]
        ways.insert(0, (SliceQuantiles, {**sliced, "rows": rows or 0}))
    for kind, each in ways:
        try:
            one = kind(quantiles=listed, low=bounds[0], high=bounds[1], **each, **more)
        except InvalidValue as error:  # noise too large for this kind alone, or something that no kind takes
            refused = error
            continue
        if isinstance(one, GapQuantiles) and one.rho and one.pure_epsilon <= one.epsilon:  # it needs no delta
            one = replace(one, epsilon=one.pure_epsilon, delta=0.0)
        made.append(one)
    if not made and refused is not None:
        raise refused
    return made


def _budgets(epsilon: float | None, delta: float | None, rho: float | None) -> list[dict[str, float]]:
    """Return the ways to spend a budget: as a pure epsilon, and as a rho with the epsilon and delta it implies."""
    if (epsilon is None) == (rho is None):
        raise InvalidValue(f"epsilon or rho must be given, and not both. {_BUDGET}")
    if rho is not None:
        rho = validate.between("rho", rho, 1e-12, 1e6, hint=_BUDGET)
        stated = positive_delta(USUAL_DELTA if delta is None else delta)
        whole = zcdp_epsilon(rho, stated)
        if whole > 500:
            raise InvalidValue(f"rho={rho:g} is beyond every epsilon up to 500. {_BUDGET}")
        return [{"epsilon": whole, "delta": stated, "rho": rho}]
    promised, stated = validate.positive_epsilon(epsilon), validate.delta(0.0 if delta is None else delta)
    pure = {"epsilon": promised, "delta": 0.0, "rho": 0.0}
    if not stated:
        return [pure]
    return [pure, {"epsilon": promised, "delta": stated, "rho": zcdp_rho(promised, stated)}]


def _column(x: ArrayLike) -> Floats:
    """Return a flat array of floats without NaN."""
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidType(f"x is a masked array, whose hidden numbers would count. {_COLUMN}")
    try:
        array = np.asarray(validate.listed(x))
    except ValueError:
        raise InvalidType(f"x must be one column of numbers. {_COLUMN}") from None
    if array.dtype == np.bool_:
        fix = "Pass numbers; for the share of true ones use private_mean with kind='binary'."
        raise InvalidType(f"x must be numbers, not truth values, whose quantiles are 0 or 1. {fix}")
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InvalidType(f"x must be one column of numbers. {_COLUMN}")
    floats = array.astype(np.float64, copy=False)
    if np.isnan(floats).any():
        raise InvalidValue("x holds NaN. Leave out or fill in what is missing, by a rule for each row alone.")
    return floats
