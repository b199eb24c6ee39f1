"""Algorithm 18: one row changes one group, medians are as far off as stated, intervals cover, Lemma 5.14 holds."""

import math

import numpy as np
import pytest
from helpers.statistical import binomial_band
from scipy import stats
from scipy.sparse import csr_matrix

import dpsieve as ds
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.numbers.estimate import Estimate
from dpsieve.numbers.rows import BoundedRows
from dpsieve.papers.thesis import lemma_5_14, preview_variances, private_variances
from dpsieve.papers.thesis.mean_steps import pair_differences

RNG = np.random.default_rng()
HOW = {"bound": 50.0, "rho": 0.5}


def groups_of(x, pairs, bound=50.0):
    """Return the statistic of each group, by a loop over the printed algorithm, with pairs (2j - 1, 2j)."""
    x = np.clip(x, -bound, bound)
    whole = len(x) // (2 * pairs)
    return np.array([
        sum((x[2 * pairs * i + 2 * j] - x[2 * pairs * i + 2 * j + 1]) ** 2 / 2 for j in range(pairs)) / pairs
        for i in range(whole)
    ])  # fmt: skip


@pytest.mark.parametrize("pairs", [1, 3])
def test_a_replaced_row_changes_one_group(pairs):
    x = RNG.normal(0, 30, 40)
    before = groups_of(x, pairs)
    for row in range(len(x)):
        other = x.copy()
        other[row] = 1e9
        assert (groups_of(other, pairs) != before).sum() <= 1
    found = next(iter(pair_differences(BoundedRows(x[:, None], -50.0, 50.0), pairs)))
    np.testing.assert_allclose((found[:, :, 0] ** 2).mean(axis=1) / 2, before, rtol=1e-12)


@pytest.mark.parametrize("budget", [{"rho": 0.3}, {"epsilon": 0.9, "delta": 1e-6}])
def test_the_whole_search_costs_the_budget(budget):
    mechanism = preview_variances(1000, 7, bound=10.0, pairs=2, **budget)
    single = (mechanism.weight / 2**29) ** 2 / 2  # zCDP of one comparison of ranks, which move by one
    spent = 7 * mechanism.grid.depth * single
    assert mechanism.certify().worst <= mechanism.guarantee.delta and mechanism.ranks.rho == pytest.approx(spent)
    if "rho" in budget:
        assert 0.999 * 0.3 < spent <= 0.3
    else:
        assert mechanism.certify().worst > 0.999 * 1e-6


@pytest.mark.parametrize("pairs", [1, 4])
def test_medians_are_near_their_rank(pairs):
    """The number of groups below each answer, over fresh draws of 3 columns: too far off once in forty at most.

    Groups count as the points of the grid that they are rounded up to, so equal rows as the least one.
    """
    x = np.column_stack([RNG.normal(3, 1, 3200), RNG.normal(0, 15, 3200), RNG.integers(0, 2, 3200)]).astype(float)
    least = preview_variances(3200, 3, pairs=pairs, median="none", **HOW).low
    exact, missed = [np.maximum(groups_of(column, pairs), least) for column in x.T], 0
    for _ in range(150):
        found = private_variances(x, pairs=pairs, median="none", **HOW)
        error, step = found.last.rank_error, 1 + 2 / 64
        ranks = [((g <= value).sum(), (g < value / step).sum()) for g, value in zip(exact, found.value, strict=True)]
        half = 3200 // (2 * pairs) / 2
        missed += any(upto < half - error or below > half + error for upto, below in ranks)
    assert missed <= binomial_band(150, 0.025)[1]


@pytest.mark.parametrize("pairs", [1, 4])
def test_estimates_of_gaussian_rows(pairs):
    """With next to no noise the estimate is the variance, up to sampling, and 'printed' is off by its factor."""
    x = RNG.normal(-7, 3, 200_000)
    value = {median: private_variances(x, bound=100.0, rho=50.0, pairs=pairs, median=median).value
             for median in ("gaussian", "printed", "none")}  # fmt: skip
    chi = stats.chi2(pairs)
    spread = 0.5 / math.sqrt(100_000 / pairs) / (chi.pdf(chi.median()) * chi.median())  # of a sample median
    assert value["gaussian"] == pytest.approx(9, rel=6.2 * spread + 0.03)
    assert value["none"] / value["gaussian"] == pytest.approx(chi.median() / pairs, rel=0.03)
    bias = (1 - 2 / (9 * pairs)) ** 3 / (chi.median() / pairs)
    assert value["gaussian"] / value["printed"] == pytest.approx(bias, rel=0.03)
    assert bias == pytest.approx({1: 1.034, 4: 1.0039}[pairs], abs=1e-3)


def test_intervals_cover_all_columns_together():
    scales, missed = np.array([0.01, 1.0, 12.0]), 0
    for _ in range(120):
        table = private_variances(RNG.normal(2, scales, (1500, 3)), pairs=2, bound=100.0, rho=0.4).table
        low, high = (table[name].to_numpy() for name in ("low", "high"))
        missed += not ((low <= scales**2) & (scales**2 <= high)).all()
    assert missed <= binomial_band(120, 0.05)[1]
    assert high[1] / low[1] < 3


def test_lemma_5_14_holds_for_a_heavy_tail():
    """Laplace rows: E (X - Y)^4 is 18 sigma^4, so 288 pairs per group bring the median near the mean of any law."""
    pairs, rows = lemma_5_14(18.0, rho=1.0, steps=13, beta=1e-7)
    assert pairs == 288
    x = RNG.laplace(0, 2, rows)  # variance 8
    for _ in range(3):
        assert 4 <= private_variances(x, bound=64.0, rho=1.0, pairs=pairs, median="none").value <= 12
    sampled = np.mean((RNG.laplace(0, 1, (2, 400_000))[0] - RNG.laplace(0, 1, 400_000)) ** 4) / 4
    assert sampled == pytest.approx(18, rel=0.2)


def test_it_is_a_publication(tmp_path):
    x = RNG.normal(0, 2, (400, 2))
    book = ds.Ledger(tmp_path / "book", epsilon=9.0, delta=1e-5, neighbours="replace")
    found = private_variances(x, names=["a", "b"], ledger=book, **HOW)
    assert found.table["name"].to_pylist() == ["a", "b"] and len(book.history()) == 1
    found.save(tmp_path / "kept")
    assert Estimate.load(tmp_path / "kept").table.equals(found.table)
    sparse = csr_matrix(np.where(np.abs(x) > 1, x, 0))
    assert private_variances(sparse, **HOW).value.shape == (2,)
    few = private_variances(x[:8], **HOW)
    assert few.table["low"].null_count == few.table["high"].null_count == 2  # nothing can be said


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"bound": 0}, "bound"), ({"pairs": 0}, "pairs"), ({"pairs": 60}, "rows"), ({"median": "mean"}, "median"),
     ({"smallest": 100.0}, "smallest"), ({"rho": None}, "budget"), ({"x": [[math.nan]] * 10}, "x")],
)  # fmt: skip
def test_bad_input_is_named(wrong, named):
    given = {"x": np.zeros((100, 2)), **HOW} | wrong
    with pytest.raises(DpsieveError, match=named):
        private_variances(given.pop("x"), **given)
    with pytest.raises(InvalidValue, match="kappa"):
        lemma_5_14(0.5, 1.0, 10, 0.05)
