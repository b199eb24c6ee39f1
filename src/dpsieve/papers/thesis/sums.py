"""Sums of coordinates with different sensitivities, with any split of the noise and any budget of chapter 4.

The library's `dpsieve.sum` splits noise by a moment of the error or by the widths, for a budget in epsilon, (epsilon,
delta) or rho. Here the vector b of Algorithms 15 and 16 may be any, and budgets may be those of Lemma 4.2.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.errors import InvalidValue
from dpsieve.jobs.run import charge, open_ledger
from dpsieve.numbers.box import BoxGrid, Shape, best_noise, sum_noise
from dpsieve.numbers.estimate import Estimate, coordinate_names, describe_contribution, draw_sums, matrix
from dpsieve.numbers.noise import LawChoice, ScaledNoise
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats
from dpsieve.validate import Neighbours

_BOUNDS = "Pass one public pair (low, high), or a pair for each coordinate."
_B = "Pass one positive number for each coordinate; only their ratios count."
_BUDGETS = "Pass exactly one of rho, epsilon (with delta), mu, renyi=(order, tau) and concentrated=(mean, deviation)."


def lemma_4_2(
    *, rho: float | None = None, epsilon: float | None = None, delta: float | None = None, mu: float | None = None,
    renyi: tuple[float, float] | None = None, concentrated: tuple[float, float] | None = None,
) -> float:  # fmt: skip
    """Return the least sigma of the Gaussian mechanism with l2 sensitivity 1 that keeps a budget (Lemmas 4.1 and 4.2).

    With noise sigma the privacy loss is Gaussian with mean 1/(2 sigma^2) and deviation 1/sigma, so

        rho-zCDP                       sigma = 1/sqrt(2 rho)
        (epsilon, delta)               the exact condition of Balle and Wang (2018)
        mu-Gaussian privacy            sigma = 1/mu
        (order, tau)-Renyi privacy     sigma = sqrt(order/(2 tau))
        (mean, deviation)-CDP          sigma = max(1/sqrt(2 mean), 1/deviation)   (Dwork and Rothblum 2016)

    >>> lemma_4_2(rho=0.125), lemma_4_2(mu=0.5), lemma_4_2(renyi=(8.0, 1.0)), lemma_4_2(concentrated=(0.5, 0.5))
    (2.0, 2.0, 2.0, 2.0)
    """
    given = {"rho": rho, "epsilon": epsilon, "mu": mu, "renyi": renyi, "concentrated": concentrated}
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1 or (epsilon is not None) != (delta is not None):
        raise InvalidValue(f"the budget is missing or given twice. {_BUDGETS}")
    if epsilon is not None and delta is not None:
        return gaussian_sigma(validate.positive_epsilon(epsilon), delta)
    if renyi is not None:
        order, tau = _pair("renyi", renyi)
        if order <= 1:
            raise InvalidValue("renyi has an order of 1 or less. Pass one above 1, such as renyi=(8, 0.5).")
        return math.sqrt(order / (2 * tau))
    if concentrated is not None:
        mean, deviation = _pair("concentrated", concentrated)
        return max(1 / math.sqrt(2 * mean), 1 / deviation)
    if mu is not None:
        return 1 / validate.between("mu", mu, 1e-6, 1e3, hint=_BUDGETS)
    return 1 / math.sqrt(2 * validate.between("rho", rho, 1e-12, 1e4, hint=_BUDGETS))


def preview_sum(
    bounds: ArrayLike, columns: int | None = None, *, b: ArrayLike | None = None, shape: Shape = "best", p: float = 2.0,
    neighbours: Neighbours = "add_remove", noise: LawChoice = "auto", unit: str = "one row", **budget: Any,
) -> ScaledNoise:  # fmt: skip
    """Return the noise that `private_sum` would draw, from public numbers alone; nothing is spent.

    See its `deviations`, `expected_error(p)`, `rho` and `guarantee`. With noise eta_i on coordinate i,
    E sum |eta_i|^p is Gamma((p+1)/2)/(rho^(p/2) sqrt(pi)) sum (Delta_i/b_i)^p for Gaussian noise, |b|_2 = 1 (Lemma
    4.7), and Gamma(p+1)/epsilon^p sum (Delta_i/b_i)^p for Laplace noise, |b|_1 = 1 (Lemma 4.10).

    Args:
        bounds, b, shape, p, neighbours, noise, unit, budget: see `private_sum`.
        columns: the number of coordinates, where one pair of bounds is for all of them.

    >>> noise = preview_sum([(0, 4), (0, 1)], rho=0.5)
    >>> round(noise.expected_error(2.0), 3), noise.deviations.round(3).tolist()  # 12.5/rho, as in Figure 4.1
    (25.0, [4.472, 2.236])
    >>> round(preview_sum([(0, 4), (0, 1)], b=[4, 1], rho=0.5).expected_error(2.0), 3)  # one deviation: 17/rho
    34.0
    """
    return _noise(_box(bounds, columns), b, neighbours, {"shape": shape, "p": p, "noise": noise, "unit": unit}, budget)[
        0
    ]


def private_sum(
    x: Any, *, bounds: ArrayLike, b: ArrayLike | None = None, shape: Shape = "best", p: float = 2.0,
    neighbours: Neighbours = "add_remove", noise: LawChoice = "auto", names: Sequence[str] | None = None,
    unit: str = "one row", ledger: AnyLedger = None, note: str = "", source: Source | None = None, **budget: Any,
) -> Estimate:  # fmt: skip
    """Return private sums of the columns of n rows of d numbers; one row belongs to one privacy unit.

    Gaussian noise of scale Delta_i/(b_i sqrt(2 rho)) on sum i, |b|_2 = 1, is rho-zCDP (Algorithm 15, Lemma 4.6); for
    pure epsilon, Laplace noise of scale Delta_i/(b_i epsilon), |b|_1 = 1 (Algorithm 16, Lemma 4.9). Delta_i is the
    largest change of sum i by one unit, from the bounds. Numbers outside the bounds are clipped. Sums and noise are
    whole numbers of steps (`numbers.box`), so these hold exactly.

    Args:
        x: an array, a list of rows, a table of numbers, or a SciPy sparse matrix.
        bounds: one public pair (low, high) for all coordinates, or one for each.
        b: Algorithm 15's b, up to a factor; b_i proportional to Delta_i is the plain mechanism, equal b_i have noise in
            proportion to Delta_i.
        shape: without b: 'best' for the p-th moment (Lemmas 4.8 and 4.11), 'equal' or 'proportional'.
        p: the moment of the error that 'best' minimises.
        neighbours: 'add_remove' or 'replace' of one row; with 'replace' the number of rows is public.
        noise: 'gaussian', 'laplace', or 'auto', the one with less error that the budget allows.
        names: of the coordinates.
        unit, ledger, note, source: see `dpsieve.sum`.
        budget: epsilon; epsilon and delta; rho, mu, renyi=(order, tau) or concentrated=(mean, deviation) as in
            `lemma_4_2`, whose epsilon is stated at `delta`, or at 10^-6.

    >>> total = private_sum([[3.0, 0.5], [1.0, 1.0]], bounds=[(0, 4), (0, 1)], mu=20.0)
    >>> bool(abs(total.value - [4.0, 1.5]).max() < 1.5)
    True
    """
    book, source, given = open_ledger(ledger, note), resolve(source), matrix(x)
    labels = coordinate_names(names, given)
    options = {"shape": shape, "p": p, "noise": noise, "unit": unit}
    mechanism, grid = _noise(_box(bounds, given.values.shape[1]), b, neighbours, options, budget)
    sums, drawn = grid.sums(given.values), sum_noise(mechanism, grid, given.values.shape[0])
    split = f"{drawn.noise} noise, its split {shape if b is None else 'given by b'}"
    notes: Any = {"reason": split, "contribution": describe_contribution(1), "single": given.single}
    with charge(drawn, book, note, lambda: draw_sums(sums * 0, drawn, resolve(None), labels, **notes)) as entry:
        return draw_sums(sums, drawn, source, labels, **notes).charged_as(entry)


def _noise(
    box: tuple[Floats, Floats], b: ArrayLike | None, neighbours: Any, options: dict[str, Any], budget: dict[str, Any]
) -> tuple[ScaledNoise, BoxGrid]:
    lows, highs = box
    unknown = budget.keys() - {"rho", "epsilon", "delta", "mu", "renyi", "concentrated"}
    if unknown:
        raise InvalidValue(f"{min(unknown)} is no budget. {_BUDGETS}", argument=min(unknown))
    relation: Neighbours = validate.neighbours(neighbours)
    if budget.get("epsilon") is None:
        delta, others = budget.get("delta"), {name: value for name, value in budget.items() if name != "delta"}
        budget = {"rho": 1 / (2 * lemma_4_2(**others) ** 2), "delta": delta}
    elif budget.keys() - {"epsilon", "delta"}:
        raise InvalidValue(f"the budget is given twice. {_BUDGETS}")
    if b is not None:
        widths = highs - lows if relation == "replace" else np.maximum(np.abs(lows), np.abs(highs))
        options = {**options, "shape": _shape(b, widths)}
    return best_noise(lows, highs, relation, **options, **budget)


def _shape(b: ArrayLike, widths: Floats) -> Floats:
    """Return Delta_i/b_i."""
    parts = validate.finite("b", b, hint=_B)
    if parts.shape != widths.shape or not (parts > 0).all():
        raise InvalidValue(f"b has another length than there are coordinates, or a number not above zero. {_B}")
    return np.asarray(widths / parts)


def _box(bounds: ArrayLike, columns: int | None) -> tuple[Floats, Floats]:
    given = validate.finite("bounds", bounds, hint=_BOUNDS)
    if given.shape == (2,):
        given = np.broadcast_to(given, (1 if columns is None else columns, 2))
    if given.ndim != 2 or given.shape[1] != 2 or (columns is not None and len(given) != columns):
        raise InvalidValue(f"bounds must be one pair, or one per coordinate. {_BOUNDS}", argument="bounds")
    if (given[:, 0] >= given[:, 1]).any():
        raise InvalidValue(f"bounds has a pair whose low is not below its high. {_BOUNDS}", argument="bounds")
    lows, highs = np.array(given).T
    return lows, highs


def _pair(name: str, value: Any) -> tuple[float, float]:
    hint = f"Pass two positive numbers. {_BUDGETS}"
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidValue(f"{name} must be a pair. {hint}", argument=name)
    first, second = (validate.positive(name, part, hint=hint) for part in value)
    return first, second
