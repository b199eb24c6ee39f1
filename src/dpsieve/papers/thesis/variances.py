"""Private variances of columns (Algorithm 18 of the thesis), as a result of their own.

n rows make n' = floor(n/(2k)) groups of k pairs of rows. For a pair (x, y) of rows of one distribution, (x - y)^2/2 has
the mean sigma^2. The private median over the groups of its mean over the pairs of a group is the estimate; a replaced
row changes one group. The median is that of a noisy binary search on a public log grid, all columns with one budget.

A median is not a mean. For Gaussian rows, k times the mean of a group over sigma^2 is chi-square with k degrees of
freedom, so the median is divided by that of this distribution over k. The thesis divides by (1 - 2/(9k))^3, which
approximates it: 0.4705 instead of 0.4549 for k = 1, so that its estimates are 3.3 % too low, and 0.4 % for k = 4.

For any distribution with E (X - Y)^4 <= kappa sigma^4, Lemma 5.14 has large groups instead: `lemma_5_14`.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import chdtri

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.jobs.run import charge, open_ledger
from dpsieve.numbers.estimate import Estimate, Estimating, coordinate_names, describe_contribution, matrix
from dpsieve.numbers.grid_quantiles import DyadicGrid
from dpsieve.numbers.noise import budget_mu, gaussian_promise
from dpsieve.numbers.rows import BoundedRows, search_columns
from dpsieve.numbers.search import RANK_NOISE, NoisyRanks, log_grid
from dpsieve.papers.thesis.bounds import lemma_5_5
from dpsieve.papers.thesis.mean_steps import pair_differences
from dpsieve.privacy.certificate import Certificate
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats

Median = Literal["gaussian", "printed", "none"]
_POINTS = 64  # of the grid per doubling of a variance
_SMALLEST = 2.0**-20  # of the bound, the least deviation by default
_FAILURE = 0.05  # of all intervals together: half of it for the ranks, half for the sample
_PAIRS = "Pass the number of pairs of a group, such as pairs=4."
_SAVED = "Pass the saved one."


def preview_variances(
    rows: int, columns: int, *, bound: float, pairs: int = 1, smallest: float | None = None, rho: float | None = None,
    epsilon: float | None = None, delta: float | None = None, median: Median = "gaussian", unit: str = "one row",
) -> "PairVariances":  # fmt: skip
    """Return the mechanism of `private_variances` for n rows, from public numbers alone; nothing is spent.

    See its `rank_error`, beside `groups`: a median needs errors well below half of the groups.

    >>> mechanism = preview_variances(10_000, 8, bound=100.0, rho=0.1)
    >>> mechanism.groups, mechanism.rank_error
    (5000, 78.0)
    """
    hint = "Pass a public bound on absolute values, such as bound=100."
    bound = validate.between("bound", bound, 1e-60, 1e60, hint=hint)
    pairs = validate.whole("pairs", pairs, low=1, high=10**6, hint=_PAIRS)
    size = validate.whole("columns", columns, low=1, high=10**6, hint="Pass the number of columns.")
    groups = validate.whole("rows", rows, low=0, high=10**12, hint="Pass the number of rows.") // (2 * pairs)
    if groups < 2:
        raise InvalidValue(f"rows are too few for two groups of {pairs:,} pairs. Pass more rows, or fewer pairs.")
    least = bound * _SMALLEST if smallest is None else smallest
    hint = "Pass the least standard deviation that matters, below the bound."
    least = validate.between("smallest", least, bound * 1e-15, bound, hint=hint)
    grid = log_grid(least**2, 2 * bound**2, _POINTS)
    mu = budget_mu(rho, epsilon, delta)
    weight = int(RANK_NOISE * mu / math.sqrt(size * grid.depth) * (1 - 2.0**-45))
    hint = "Pass a larger budget or fewer columns."
    weight = validate.whole("weight", weight, low=1, high=2**40, hint=hint)
    distance = math.sqrt(size * grid.depth) * weight * (1 + 2.0**-50)
    promise = gaussian_promise(RANK_NOISE, distance, epsilon, delta)
    return PairVariances(
        *promise, size, groups, pairs, weight, grid.low, grid.high, grid.steps, median=median, unit=unit
    )


def private_variances(
    x: Any, *, bound: float, pairs: int = 1, smallest: float | None = None, rho: float | None = None,
    epsilon: float | None = None, delta: float | None = None, median: Median = "gaussian",
    names: Sequence[str] | None = None, unit: str = "one row", ledger: AnyLedger = None, note: str = "",
    source: Source | None = None,
) -> Estimate:  # fmt: skip
    """Return the private variance of each column of n rows (Algorithm 18); one row belongs to one privacy unit.

    Neighbours replace one row, and n is public. Rows must be in an order that does not depend on them, as pairs are
    those of adjacent rows. `low` and `high` are 95 % intervals of all columns together, for Gaussian rows; with
    another `median` they are null.

    Args:
        x: an array, a list of rows, a table of numbers, or a SciPy sparse matrix.
        bound: a public bound on absolute values; others are clipped.
        pairs: k, the pairs of a group. More pairs bring the median nearer to the mean, and leave fewer groups.
        smallest: the least standard deviation that matters; by default 2^-20 of the bound.
        rho: the budget in zCDP; its epsilon is stated at `delta`, or at 10^-6.
        epsilon, delta: the budget, instead of rho.
        median: 'gaussian' divides by the median of a chi-square variable, 'printed' by the thesis's approximation of
            it, 'none' by nothing, as Algorithm 18.
        names: of the columns.
        unit, ledger, note, source: see `dpsieve.mean`.

    >>> rows = np.random.default_rng(1).normal(5.0, [1.0, 20.0], (40_000, 2))
    >>> found = private_variances(rows, bound=1000.0, rho=0.5, pairs=4)
    >>> [bool(0.8 < value < 1.25) for value in found.value / [1.0, 400.0]], found.guarantee.neighbours
    ([True, True], 'replace')
    """
    book, source, given = open_ledger(ledger, note), resolve(source), matrix(x)
    labels, (count, size) = coordinate_names(names, given), given.values.shape
    mechanism = preview_variances(
        count, size, bound=bound, pairs=pairs, smallest=smallest, rho=rho, epsilon=epsilon, delta=delta,
        median=median, unit=unit,
    )  # fmt: skip
    rows, invented = BoundedRows(given.values, -bound, bound), BoundedRows(np.zeros((2 * pairs, size)), -bound, bound)
    reason = f"the median of {mechanism.groups:,} groups of {'a pair' if pairs == 1 else f'{pairs:,} pairs'} of rows"
    notes: Any = {"reason": reason, "contribution": describe_contribution(1), "single": given.single}

    def draw(rows: BoundedRows, source: Source) -> Estimate:
        return Estimate.of(mechanism, mechanism.draw(rows, source), labels, source=source, **notes)

    with charge(mechanism, book, note, lambda: draw(invented, resolve(None))) as entry:
        return draw(rows, source).charged_as(entry)


def lemma_5_14(kappa: float, rho: float, steps: int, beta: float, columns: int = 1) -> tuple[int, int]:
    """Return (k, n): with n rows and k pairs per group, variances are within a factor 1/2 to 3/2 (Lemma 5.14).

    With probability 1 - beta for all columns (Corollary 5.1), where E (X - Y)^4 <= kappa sigma^4 in each: 12 for
    Gaussian rows. k = 16 kappa; n' = n/(2k) is at least 6 times the rank error of `lemma_5_5` for beta/2, and 72
    ln(2d/beta), so that less than a third of the groups is off, by Hoeffding's bound: each one is with probability 1/4
    at most. (For that, k = 4 kappa is enough: Var (X - Y)^2/2 is at most kappa sigma^4/4.) Up to the grid's spacing.

    >>> lemma_5_14(12.0, rho=0.1, steps=11, beta=0.05)
    (192, 102144)
    """
    kappa = validate.between("kappa", kappa, 1.0, 1e9, hint="Pass E (X - Y)^4 / sigma^4, such as 12.")
    beta = validate.between("beta", beta, 1e-300, 1.0, hint="Pass a probability such as beta=0.05.")
    k = math.ceil(16 * kappa)
    groups = max(6 * lemma_5_5(rho, columns, steps, beta / 2), 72 * math.log(2 * columns / beta))
    return k, 2 * k * math.ceil(groups)


@register("pair_variances")
@dataclass(frozen=True, repr=False)
class PairVariances(Estimating):
    """Variances by the median over groups of pairs of rows; see the head of this module.

    Attributes:
        epsilon, delta: the guarantee when one row is replaced.
        count: the number of columns.
        groups, pairs: n' and k.
        weight: of one group in a comparison, beside noise of deviation 2^29 (`numbers.search.NoisyRanks`).
        low, high, steps: of the log grid of variances.
        median: the median of a group with sigma = 1: 'gaussian', 'printed' or 'none'.
        unit: the privacy unit.
    """

    neighbours: ClassVar[str] = "replace"

    epsilon: float
    delta: float
    count: int
    groups: int
    pairs: int
    weight: int
    low: float
    high: float
    steps: int
    _: KW_ONLY
    median: str = "gaussian"
    unit: str = "one row"

    def __post_init__(self) -> None:
        for name in ("count", "groups", "pairs"):
            validate.whole(name, getattr(self, name), low=1, high=10**12, hint=_SAVED)
        validate.choice("median", self.median, ("gaussian", "printed", "none"))
        validate.store(self, unit=self.ranks.unit)

    def __repr__(self) -> str:
        return f"<variances of {self.size:,} columns from {self.groups:,} groups, {self.guarantee}>"

    @property
    def size(self) -> int:
        """The number of published variances."""
        return self.count

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee when one row is replaced."""
        return self.ranks.guarantee

    @cached_property
    def grid(self) -> DyadicGrid:
        """The possible medians."""
        return DyadicGrid(self.low, self.high, self.steps, "log")

    @cached_property
    def ranks(self) -> NoisyRanks:
        """The comparisons of all searches."""
        comparisons = max(1, self.size * self.grid.depth)
        return NoisyRanks(self.epsilon, self.delta, comparisons, self.weight, "variances", self.unit)

    @property
    def rank_error(self) -> float:
        """The number of groups by which no median is off its rank, with probability 0.975 for all columns."""
        tail = _FAILURE / 2 / self.ranks.comparisons
        return float(math.ceil(self.ranks.rows * NormalDist().inv_cdf(1 - tail) + 1))

    @property
    def factor(self) -> float:
        """The median of a group with sigma = 1."""
        if self.median == "gaussian":
            return float(chdtri(self.pairs, 0.5)) / self.pairs
        return 1.0 if self.median == "none" else (1 - 2 / (9 * self.pairs)) ** 3

    def certify(self) -> Certificate:
        """Return the certificate of the comparisons."""
        return self.ranks.certify()

    def spends(self) -> Any:
        """Return the curve of the comparisons."""
        return self.ranks.spends()

    def draw(self, rows: BoundedRows, source: Source) -> Floats:
        """Return the private variance of each column."""
        medians = [
            search_columns((differences**2).mean(axis=1) / 2, 0.5, self.grid, self.ranks.rows, neighbours="replace",
                           source=source) for differences in pair_differences(rows, self.pairs)
        ]  # fmt: skip
        return np.asarray(np.concatenate(medians) / self.factor)

    def columns(self, values: Floats) -> dict[str, Floats]:
        """Return the interval of each variance, for Gaussian rows, and the bound on the rank error.

        With R the rank error and n' groups, the empirical distribution of groups is within sqrt(ln(2d/0.025)/(2n')) of
        the true one everywhere (Dvoretzky, Kiefer, Wolfowitz; Massart), so v/sigma^2 is between the quantiles 1/2 -+ h
        of a chi-square variable over k, with h = R/n' + that, where v is the median, and above it the point before.
        """
        error = np.full(self.size, self.rank_error)
        margin = self.rank_error / self.groups + math.sqrt(math.log(4 * self.size / _FAILURE) / (2 * self.groups))
        if self.median != "gaussian" or margin >= 0.5:
            unknown = np.full(self.size, math.nan)
            return {"low": unknown, "high": unknown, "rank_error": error}
        place = self._places(values)
        below = np.where(place > 0, self.grid.points(np.maximum(place - 1, 0)), 0.0)
        least, most = (chdtri(self.pairs, 0.5 + side * margin) / self.pairs for side in (1, -1))
        return {"low": below / most, "high": self.grid.points(place) / least, "rank_error": error}

    def possible(self, values: Floats) -> bool:
        """Return whether values are points of the grid over the factor."""
        return bool((values > 0).all() and (self.grid.points(self._places(values)) / self.factor == values).all())

    def _places(self, values: Floats) -> Any:
        return self.grid.index(values * self.factor * (1 - 1e-9))
