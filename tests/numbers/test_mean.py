"""Private means of skewed vectors: what a row can do, what each step spends, and how good the mean is.

Randomness is fresh where its distribution is the point, and each such check fails by chance at most once in a million
runs. How good a mean is depends on rare rows and rare noise too, so that rows and source are fixed there.
"""

import itertools
import json
import math
import pickle
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from helpers.arrays import preview_mean, private_mean
from helpers.statistical import FALSE_ALARM, assert_counts, binomial_band
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, sparse, stats

from dpsieve.accounting.curves import gaussian_delta, gaussian_epsilon, zcdp_epsilon
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidType, InvalidValue, NotCertified
from dpsieve.numbers import loops
from dpsieve.numbers.estimate import Estimate
from dpsieve.numbers.grid_quantiles import DyadicGrid
from dpsieve.numbers.mean_noise import Clipping, MeanNoise, NormTail, best_clipping
from dpsieve.numbers.rows import LARGEST_RADIUS, LIMIT, PARTS, BoundedRows
from dpsieve.numbers.search import NoisyRanks
from dpsieve.papers.thesis import mean_plans, rotation
from dpsieve.papers.thesis.mean_steps import ReproducedSteps, pair_deviations
from dpsieve.privacy.ledger import Ledger
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness.source import Source, resolve
from dpsieve.testing import insecure_source

OWN, REPRODUCED = ("best", "shifted", "gaussian"), ("thesis", "rotated", "plain_scale")
MODES = (*OWN, *REPRODUCED)
EVERY = [(kind, mode) for kind in ("real", "binary") for mode in MODES]
NORMAL = np.random.default_rng(1).normal(size=(3_000, 8)) * 2.0 ** -np.arange(8) + 5
BITS = (np.random.default_rng(2).random((3_000, 8)) < 0.8 * 2.0 ** -np.arange(8)).astype(float)
ROWS = {"real": NORMAL, "binary": BITS}


WIDE = {"real": {"bound": 100.0}, "binary": {}}


def mean_of(kind, mode="best", rho=1.0, **options):
    return private_mean(ROWS[kind], kind=kind, mode=mode, **{"rho": rho, **WIDE[kind], **options})


def test_a_mean_of_columns_with_different_spreads():
    options = {"names": list("abcdefgh"), "source": insecure_source(1)}
    mean = private_mean(NORMAL, bound=1e6, kind="real", rho=0.5, **options)
    assert mean.table.column("name").to_pylist() == list("abcdefgh")
    deviation = mean.table.column("deviation").to_numpy()
    assert deviation[0] > 2 * deviation[-1], "a coordinate of little spread gets little noise"
    assert np.abs(mean.value - NORMAL.mean(axis=0)).max() < 0.1
    assert mean.guarantee.epsilon == pytest.approx(gaussian_epsilon(1.0, 1e-6), rel=1e-6), "rho = 1/2 is mu = 1"
    assert "rows clipped to a norm" in mean.notes.reason and mean.last.radius > 0


# What one row can do.


def clipped(row, centre, weight, radius, low=-1000.0, high=1000.0):
    """One row, clipped by own code: whole numbers, then the largest share that keeps the norm."""
    z = [round((min(max(v, low), high) - c) * w) for v, c, w in zip(row, centre, weight, strict=True)]
    z = [min(max(v, -LIMIT), LIMIT) for v in z]
    squares = sum(v * v for v in z)
    share = max(m for m in range(PARTS + 1) if m * m * squares <= (PARTS * radius) ** 2)
    return [share * v for v in z]


@pytest.mark.parametrize("radius", [1, 3, 7])
def test_every_small_row_is_clipped_to_the_norm(radius):
    """All rows of three coordinates, near and far: no clipped row is longer than the norm, in whole numbers."""
    centre, weight = np.array([0.0, 0.25, -1.0]), np.array([1.0, 2.0, 0.5])
    values = [-900.0, -7.0, -1.0, 0.0, 0.6, 2.0, 5.0, 1e5]
    made = []
    for row in itertools.product(values, repeat=3):
        dense = BoundedRows(np.array([row]), -1000.0, 1000.0).sums(centre, weight, radius).tolist()
        thin = BoundedRows(sparse.csr_matrix(np.array([row])), -1000.0, 1000.0).sums(centre, weight, radius).tolist()
        assert dense == thin == clipped(row, centre, weight, radius)
        assert sum(v * v for v in dense) <= (PARTS * radius) ** 2
        made.append(dense)
    far = max(math.dist(a, b) for a in made for b in made)
    assert 1.9 * PARTS * radius < far <= 2 * PARTS * radius, "replacing a row moves the sums by two norms at most"
    positive = [row for row in made if min(row) >= 0]
    assert max(math.dist(a, b) for a in positive for b in positive) <= math.sqrt(2) * PARTS * radius


@given(squares=st.integers(0, 2**62), radius=st.integers(1, LARGEST_RADIUS))
@settings(max_examples=300, deadline=None)
def test_shares_are_the_largest_that_keep_the_norm(squares, radius):
    share, bound = int(loops.share_of(squares, radius, PARTS)), (PARTS * radius) ** 2
    assert 0 <= share <= PARTS and share**2 * squares <= bound
    assert share == PARTS or (share + 1) ** 2 * squares > bound


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("kind", ["real", "binary"])
def test_a_row_at_the_far_corner_moves_the_sums_by_two_norms_at_most(form, kind):
    rng = np.random.default_rng()
    low, high = (-1e6, 1e6) if kind == "real" else (0.0, 1.0)
    weight = rng.uniform(1, 1e5, 40) if kind == "real" else np.rint(rng.uniform(1, 1e5, 40))
    centre = rng.normal(size=40) if kind == "real" else np.zeros(40)
    rows = rng.normal(size=(50, 40)) if kind == "real" else (rng.random((50, 40)) < 0.2).astype(float)
    radius = 2**16
    before = BoundedRows(form(rows), low, high).sums(centre, weight, radius)
    for corner in (np.full(40, high), np.full(40, low), np.where(np.arange(40) == 3, 1e300, 0.0)):
        after = rows.copy()
        after[17] = corner
        moved = BoundedRows(form(after), low, high).sums(centre, weight, radius) - before
        squares = sum(int(v) ** 2 for v in moved)
        assert 0 < squares <= (2 if kind == "binary" else 4) * (PARTS * radius) ** 2


def test_no_order_of_rows_changes_a_sum():
    weight, rows = np.full(8, 1e4), NORMAL.astype(np.float32)
    sums = [BoundedRows(rows[order], -9.0, 9.0).sums(np.zeros(8), weight, 2**17).tolist()
            for order in (np.arange(3_000), np.random.default_rng().permutation(3_000))]  # fmt: skip
    assert sums[0] == sums[1]


# What a search tells.


def outcomes(values, grid, allowed, deviation):
    """The probability of each point that a search ends at, by own code."""

    def walk(low, high):
        if low == high:
            return {low: 1.0}
        middle = (low + high) // 2
        point = float(grid.points(np.array([middle]))[0])
        above = sum(value > point for value in values)
        few = stats.norm.cdf((allowed - above) / deviation)
        left, right = walk(low, middle), walk(middle + 1, high)
        return {k: few * v for k, v in left.items()} | {k: (1 - few) * v for k, v in right.items()}

    found = walk(0, grid.size - 1)
    return np.array([found[k] for k in range(grid.size)])


def test_a_search_is_as_private_as_it_says_and_draws_what_it_should():
    grid = DyadicGrid(0.0, 8.0, 3)
    made = NoisyRanks.within(2**57, grid.depth, "radius", delta=1e-3, unit="one row")
    assert made.rows == pytest.approx(math.sqrt(2 * grid.depth), rel=1e-6)
    rows, worst = [0.0, 1.0, 1.0, 2.5, 3.0, 3.0, 7.0], 0.0
    base = outcomes(rows, grid, 2, made.rows)
    for at, other in itertools.product(range(len(rows)), (0.0, 2.0, 5.0, 8.0)):
        shifted = outcomes([*rows[:at], other, *rows[at + 1 :]], grid, 2, made.rows)
        for one, two in ((base, shifted), (shifted, base)):
            for epsilon in (0.0, 0.25, 0.5, 1.0, made.epsilon):
                apart = np.maximum(0, one - math.exp(epsilon) * two).sum()
                assert apart <= gaussian_delta(1.0, epsilon, math.sqrt(0.5)) + 1e-12
                worst = max(worst, apart)
    assert worst > 0.05
    tally = np.zeros(grid.size)
    for _ in range(1_500):
        point = made.search(np.array(rows), grid, lambda _: 2.0, resolve(None))
        tally[grid.index(np.array([point]))[0]] += 1
    assert_counts(tally, base * 1_500)


def test_counts_are_as_private_as_they_say():
    """A replaced row moves each of m counts by one at most, and all of them where it crosses every point."""
    points, rows = np.array([0.5, 1.0, 1.5, 4.0]), np.array([0.0, 1.0, 1.0, 1.2, 3.0, 5.0])
    made = NoisyRanks.within(2**50, 4, "tail", delta=1e-6, unit="one row")
    assert made.rho == 2.0**-9 and made.rows == 32.0
    exact = lambda values: (np.asarray(values)[:, None] > points).sum(axis=0)  # noqa: E731
    far = 0
    for at, other in itertools.product(range(6), (-9.0, 0.5, 1.0, 1.4, 9.0)):
        moved = np.abs(exact([*rows[:at], other, *rows[at + 1 :]]) - exact(rows))
        assert moved.max() <= 1
        far = max(far, moved.sum())
    assert far == 4
    drawn = np.array([made.counts(rows, points, resolve(None)) for _ in range(3_000)])
    off = (drawn - exact(rows)) / made.rows
    for column in (*off.T, off.sum(axis=1) / 2):  # the last is how neighbours are told apart best: it moves by mu
        assert stats.kstest(column, "norm").pvalue > FALSE_ALARM / 5
    with pytest.raises(InvalidValue, match="in the budget"):
        made.counts(rows, np.append(points, 7.0), resolve(None))


@pytest.mark.parametrize("size", [1, 5, 64, 100])
def test_rotations_keep_norms_and_come_in_blocks(size):
    rng = np.random.default_rng()
    padded = 1 << (size - 1).bit_length()
    rows, signs = rng.normal(size=(4, size)), rng.choice([-1.0, 1.0], size)
    wanted = np.hstack([rows * signs, np.zeros((4, padded - size))]) @ linalg.hadamard(padded) / math.sqrt(padded)
    thin = sparse.csr_matrix(rows)
    for width in {padded, max(1, padded // 4)}:
        out = np.empty((4, width))
        for at in range(padded // width):
            for loop, parts in (
                (rotation.dense_rotation, (rows,)),
                (rotation.sparse_rotation, (thin.data, thin.indices, thin.indptr)),
            ):
                loop(*parts, -1e9, 1e9, signs, at, padded**-0.5, out)
                assert out == pytest.approx(wanted[:, at * width : (at + 1) * width])
    centre = BoundedRows(np.repeat(rows[:1], 50, axis=0), -9.0, 9.0)
    found = rotation.rotated_medians(centre, signs, DyadicGrid(-64.0, 64.0, 30), 0.01, insecure_source(1))
    assert found == pytest.approx(rows[0], abs=1e-4)


# What is spent.


@pytest.mark.parametrize(("kind", "mode"), EVERY)
@pytest.mark.parametrize("rho", [1.0, 0.05])
def test_every_step_spends_its_share_and_all_of_them_the_budget(kind, mode, rho):
    made = mean_of(kind, mode, rho, fallback=True).mechanism
    parts = [use.mechanism for use in made.uses] if hasattr(made, "uses") else [made]
    spent = math.fsum(part.rho for part in parts)
    assert rho * (1 - 1e-4) < spent <= rho
    plan = preview_mean(3_000, 8, rho=rho, kind=kind, mode=mode, **WIDE[kind])
    if len(plan.shares) == len(parts):
        assert [part.rho / rho for part in parts] == pytest.approx(list(plan.shares.values()), rel=1e-3)
        assert math.fsum(plan.shares.values()) == pytest.approx(1.0)
    gaussian, concentrated = gaussian_epsilon(1.0, 1e-6, math.sqrt(2 * rho)), zcdp_epsilon(rho, 1e-6)
    assert made.guarantee.epsilon == pytest.approx(concentrated if mode == "thesis" else gaussian, rel=1e-4)
    assert made.certify().parts[-1].worst <= 1e-6 and made.guarantee.neighbours == "replace"


def test_the_split_of_the_thesis():
    assert list(preview_mean(9, 9, rho=1.0, kind="real", mode="thesis").shares.values()) == [
        0.0625,
        0.1875,
        0.1875,
        0.5625,
    ]


def test_an_approximate_budget_is_spent_too():
    mean = mean_of("real", rho=None, epsilon=2.0, delta=1e-8)
    assert (mean.guarantee.epsilon, mean.guarantee.delta) == (2.0, 1e-8)
    assert mean.certificate.worst == pytest.approx(1e-8, rel=1e-2)


@pytest.mark.parametrize("kind", ["real", "binary"])
def test_known_variances_save_their_share(kind):
    known = ROWS[kind].var(axis=0)
    shares = preview_mean(3_000, 8, rho=1.0, kind=kind, variances_known=True).shares
    assert not {"spread", "first mean", "first radius"} & set(shares)
    for mode in ("best", "thesis"):
        mean = mean_of(kind, mode, variances=known)
        assert np.abs(mean.value - ROWS[kind].mean(axis=0)).max() < 0.1


class Watched(Source):
    """A source that notes how many entries a ledger had when it was first asked."""

    publishable = False

    def __init__(self, ledger):
        self.ledger, self.entries, self.inner = ledger, None, insecure_source(3)

    def words(self, size):
        self.entries = len(self.ledger) if self.entries is None else self.entries
        return self.inner.words(size)


def test_the_ledger_is_charged_before_anything_is_drawn(tmp_path):
    ledger = Ledger(tmp_path / "budget.ledger", epsilon=12.0, delta=1e-5, neighbours="replace", unit="one row")
    source = Watched(ledger)
    mean_of("real", ledger=ledger, note="first", source=source)
    assert source.entries == 1 and len(ledger) == 1
    mean_of("binary", "gaussian", ledger=ledger)
    with pytest.raises(BudgetExceeded):
        mean_of("real", rho=50.0, ledger=ledger)
    assert len(ledger) == 2
    with pytest.raises(InvalidValue, match="NaN"):
        private_mean(NORMAL * math.nan, bound=1.0, kind="real", rho=0.1, ledger=ledger)
    assert len(ledger) == 2, "what is refused is not charged"


def test_rows_are_compared_in_a_random_order(monkeypatch):
    """Pairs of rows that follow each other are compared, and the order of the input may depend on every row."""
    seen = []
    monkeypatch.setattr(
        mean_plans, "ReproducedSteps", lambda plan, rows, *more: seen.append(rows) or ReproducedSteps(plan, rows, *more)
    )
    for _ in range(2):
        private_mean(np.arange(5_000.0), bound=5_000.0, kind="real", rho=0.5)
    first, second = (rows.values[:, 0] for rows in seen)
    assert sorted(first) == sorted(second) == list(range(5_000)) and first.tolist() != second.tolist()
    assert abs(np.corrcoef(first, np.arange(5_000))[0, 1]) < 0.2  # by chance less often than once in 10^40


def test_no_row_decides_whether_there_is_a_warning():
    """The tests turn warnings into errors: rows of the largest floats overflow nowhere."""
    rows = np.zeros((3_000, 2))
    rows[0] = 1.7e308
    for kind, mode in itertools.product(("real", "binary"), ("best", "thesis", "shifted", "gaussian")):
        private_mean(rows, kind=kind, mode=mode, rho=1.0)


def test_constant_columns_and_large_powers_have_an_answer():
    for _ in range(5):
        private_mean(np.zeros((3_000, 2)), bound=1.0, kind="real", mode="thesis", rho=1.0)
        private_mean(np.zeros((3_000, 2)), kind="binary", rho=1.0, p=100)


# How good it is.


def skewed(rows, size):
    """Setting C of the thesis: deviations d, d/2, ..., 1 around 10."""
    spread = size / np.arange(1, size + 1)
    return np.random.default_rng(3).normal(size=(rows, size)) * spread + 10, 100.0 * size * size


def test_it_is_better_than_the_thesis_and_far_better_than_no_scaling():
    rows, bound = skewed(4_000, 128)
    options, error = {"bound": bound, "kind": "real", "rho": 1.0}, {}
    for mode in ("best", "thesis", "shifted", "rotated"):
        means = [private_mean(rows, mode=mode, source=insecure_source(seed), **options).value for seed in range(6)]
        error[mode] = np.mean([np.linalg.norm(mean - rows.mean(axis=0)) for mean in means])
    assert error["best"] < 0.9 * error["thesis"] and error["thesis"] < 0.7 * error["shifted"]
    assert error["rotated"] < 1.3 * error["shifted"]


def test_binary_rows_of_skewed_popularity():
    rng = np.random.default_rng(4)
    share = 0.9 / np.arange(1, 401) ** 1.3
    rows = sparse.csr_matrix(rng.random((20_000, 400)) < share).astype(np.float32)
    truth, error = np.asarray(rows.mean(axis=0)).ravel(), {}
    for mode in MODES:
        options = {"kind": "binary", "rho": 0.5, "p": 1, "mode": mode}
        means = [private_mean(rows, source=insecure_source(seed), **options).value for seed in range(3)]
        error[mode] = np.mean([np.abs(mean - truth).sum() for mean in means])
    assert error["best"] < 0.7 * error["thesis"] and error["best"] < error["shifted"] < error["gaussian"]


# What the interval holds.

SHAPES = {
    "half zeros": lambda rng, shape: np.where(rng.random(shape) < 0.5, 0.0, rng.lognormal(3, 1, shape)),
    "most zeros": lambda rng, shape: np.where(rng.random(shape) < 0.8, 0.0, rng.lognormal(3, 1, shape)),
    "counts": lambda rng, shape: rng.poisson(0.3, shape).astype(float),
    "fair signs": lambda rng, shape: rng.choice([-1.0, 1.0], shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(size=shape),
    "Student": lambda rng, shape: rng.standard_t(3, shape),
}


def held(mean, truth):
    """Which means are in their intervals; where no interval is stated, none is wrong."""
    low, high = (mean.table.column(name).to_numpy(zero_copy_only=False) for name in ("low", "high"))
    return ~((low > truth) | (truth > high))


def test_the_interval_holds_the_mean_of_the_rows():
    """Rows of which many are equal, or that have a long tail; `experiments/mean_coverage.py` has the whole grid."""
    rng, inside, stated = np.random.default_rng(7), [], []
    for shape, size in itertools.product(SHAPES, (1, 3)):
        errors = []
        for seed in range(2):
            rows = SHAPES[shape](rng, (12_000, size))
            mean = private_mean(rows, bound=1e3, kind="real", rho=0.5, source=insecure_source(seed))
            inside.append(held(mean, rows.mean(axis=0)).mean())
            stated.append(mean.last.stated)
            errors.append(np.abs(mean.value - rows.mean(axis=0)).max() / rows.std())
        assert np.median(errors) < 0.02, shape  # as much as two deviations of the mean of so many rows
    assert np.mean(inside) >= 0.93 and np.mean(stated) > 0.9


@pytest.mark.parametrize("size", [1, 8])
def test_rows_at_the_largest_norm_are_not_clipped(size):
    """Also after rounding: at the widest norm every row counts in full."""
    rng = np.random.default_rng(8)
    rows = rng.choice([-5.0, 5.0], (6_000, size))
    for kind, x, wide in (("real", rows, {"bound": 5.0}), ("binary", (rows > 0) * 1.0, {})):
        for mode in ("best", "shifted"):
            means = [private_mean(x, kind=kind, mode=mode, rho=2.0, source=insecure_source(seed), **wide)
                     for seed in range(3)]  # fmt: skip
            off = [(mean.value - x.mean(axis=0)) / mean.table.column("deviation").to_numpy() for mean in means]
            assert np.sqrt(np.mean(np.square(off))) < 2
            assert np.mean([held(mean, x.mean(axis=0)) for mean in means]) > 0.6


def test_a_row_at_the_radius_keeps_its_share_whatever_the_rounding():
    rng = np.random.default_rng()
    for _ in range(200):
        size, bound = int(rng.integers(1, 30)), float(rng.uniform(0.1, 50))
        weight, centre = rng.uniform(0.01, 9, size), rng.uniform(-bound, bound, size)
        widest = float(np.linalg.norm((bound + np.abs(centre)) * weight))
        norm = int(rng.integers(200, 2**20))
        per_step = weight * norm / (widest * (1 + (math.sqrt(size) + 1) / norm))
        moved = np.rint(centre * per_step) / per_step
        corner = np.where(centre > 0, -bound, bound)
        sums = BoundedRows(corner[None], -bound, bound).sums(moved, per_step, norm)
        assert sums.tolist() == [PARTS * v for v in np.rint((corner - moved) * per_step).tolist()]


def test_the_mean_of_norms_beyond_a_radius():
    """Against closed forms of a Pareto tail, and a sample of it."""
    tail = NormTail(10.0, 60.0, (2.0, 4.0), (480.0, 1_000.0), 0.0, 0.0, 1e9)
    assert tail.decay == pytest.approx(3.0) and tail.least == 10.0
    made = best_clipping(tail, 2.0)
    beyond = 60 * (made.radius / 10) ** -3
    assert made.rows == pytest.approx(beyond)
    assert made.mean == pytest.approx(beyond * made.radius / 2, rel=0.02)
    assert made.deviation**2 == pytest.approx(beyond * made.radius**2, rel=0.05)
    for other in np.geomspace(10.0, 100.0, 50):
        rows = 60 * (other / 10) ** -3
        assert math.sqrt(4 * other**2 + (rows * other / 2) ** 2 / 4 + rows * other**2 / 4) > made.error * 0.99
    rng = np.random.default_rng(9)
    sums = []
    for _ in range(4_000):
        norms = 10 * rng.random(rng.poisson(60)) ** (-1 / 3)
        sums.append(np.maximum(norms - made.radius, 0).sum())
    assert np.mean(sums) == pytest.approx(made.mean, rel=0.1)
    assert np.std(sums) == pytest.approx(made.deviation, rel=0.4)  # it has no fourth moment
    tied = replace(tail, tied=900.0)
    assert tied.least == 20.0 and best_clipping(tied, 2.0).radius >= 20 > replace(tied, between=100.0).least
    assert best_clipping(replace(tail, widest=9.0), 2.0) == Clipping(9.0, error=18.0)


def test_some_rows_far_away_from_all_others_take_the_interval_away():
    """0.2 % of the rows are a hundred times as large: fewer than the search for a radius sees, more than the check."""
    rng, silent = np.random.default_rng(10), 0
    for seed in range(6):
        rows = rng.exponential(size=20_000)
        rows[:40] = 100.0
        mean = private_mean(rows, bound=1e3, kind="real", rho=0.5, source=insecure_source(seed))
        silent += mean.table.column("low").null_count
    assert silent >= 3


def test_rows_of_which_next_to_none_differ():
    """An interval for as many rows at the bound as may go unnoticed; with no row that differs the value is exact."""
    rows = np.zeros(20_000)
    mean = private_mean(rows, bound=1e3, kind="real", rho=0.5, source=insecure_source(1))
    assert abs(mean.value) < 1e-3 and held(mean, 0.0).all() and mean.table["high"][0].as_py() > 0.1
    rows[:10] = 900.0
    mean = private_mean(rows, bound=1e3, kind="real", rho=0.5, source=insecure_source(1))
    assert held(mean, rows.mean()).all()


def test_box_or_radius():
    """By public numbers for up to four binary coordinates, by private ones else."""
    rng = np.random.default_rng(11)
    dense, thin = ((rng.random((20_000, 8)) < share) * 1.0 for share in (0.3, 0.01))
    assert [preview_mean(20_000, d, rho=0.5, kind="binary").boxed for d in (1, 4, 5)] == [True, True, False]
    assert preview_mean(20_000, 4, rho=0.5, kind="binary").shares == {"noise": 1.0}
    radii = [private_mean(rows, kind="binary", rho=0.5, source=insecure_source(1)).last.radius
             for rows in (dense[:, :4], dense, thin)]  # fmt: skip
    assert radii[:2] == [0.0, 0.0] and radii[2] > 0
    corners = rng.choice([-1.0, 1.0], (20_000, 3))
    wide, tight = (private_mean(corners, bound=bound, kind="real", rho=0.5, source=insecure_source(1)).last.radius
                   for bound in (1e3, 1.0))  # fmt: skip
    assert wide > 0 and tight == 0


def test_what_was_paid_for_is_published():
    mean = private_mean(NORMAL, bound=100.0, kind="real", rho=1.0, source=insecure_source(1))
    columns = {name: mean.table.column(name).to_numpy() for name in ("centre", "spread")}
    assert columns["centre"] == pytest.approx(np.median(NORMAL, axis=0), abs=0.1)
    assert columns["spread"][:5] == pytest.approx(NORMAL.std(axis=0)[:5], rel=0.35)
    bits = private_mean(BITS, kind="binary", rho=1.0, source=insecure_source(1))
    assert bits.table.column("spread").to_numpy() == pytest.approx(BITS.std(axis=0), abs=0.1)
    assert set(bits.table.column("centre").to_pylist()) <= {0.0, 1.0}
    shifted = mean_of("real", "shifted", source=insecure_source(1)).table
    assert "centre" in shifted.column_names and "spread" not in shifted.column_names


@pytest.mark.parametrize("mode", ["thesis", "rotated", "plain_scale"])
def test_modes_that_reproduce_state_no_interval(mode):
    for kind in ("real", "binary"):
        table = mean_of(kind, mode).table
        assert table.column("low").null_count == table.column("high").null_count == 8
        assert (
            not table.column("deviation").null_count
            and not preview_mean(3_000, 8, rho=1.0, kind=kind, mode=mode, **WIDE[kind]).states_interval
        )


def test_the_deviation_is_that_of_the_noise():
    rows = np.zeros((50, 4_000))
    rows[:, ::2] = 1
    mean = private_mean(rows * 0.5 + 0.25, bound=1.0, kind="real", rho=200.0, mode="gaussian", delta=1e-6)
    off = mean.value - (rows[0] * 0.5 + 0.25)
    deviation = mean.table.column("deviation").to_numpy()
    assert stats.kstest(off / deviation, "norm").pvalue > FALSE_ALARM
    low, high = (mean.table.column(name).to_numpy() for name in ("low", "high"))
    inside = ((low <= mean.value - off) & (mean.value - off <= high)).sum()
    least, most = binomial_band(4_000, 0.95)
    assert least <= inside <= most


@pytest.mark.parametrize(("kind", "mode"), EVERY)
def test_sparse_rows_have_the_same_mean(kind, mode):
    found = [private_mean(rows, kind=kind, rho=1.0, mode=mode, source=insecure_source(5), **WIDE[kind]).value
             for rows in (ROWS[kind], sparse.csr_matrix(ROWS[kind]), ROWS[kind].tolist())]  # fmt: skip
    assert found[1] == pytest.approx(found[0], abs=1e-3) and found[2].tolist() == found[0].tolist()


@pytest.mark.parametrize("spread", ["pairs", 0.75, 0.841, 0.9])
def test_every_estimator_of_the_spread(spread):
    for mode in ("best", "thesis"):
        mean = mean_of("real", mode, spread=spread, source=insecure_source(1))
        steps = np.array(mean.last.steps)
        assert np.abs(mean.value - NORMAL.mean(axis=0)).max() < 0.1
        assert steps[0] > 1.3 * steps[-1]


@pytest.mark.parametrize("pairs", [1, 4])
def test_pairs_of_rows_tell_the_deviation(pairs):
    """Table 5.1: deviations of Gaussian columns, off by a few percent."""
    rows = BoundedRows(np.random.default_rng().normal(10, [1.0, 0.03], (4_000, 2)), -100.0, 100.0)
    found = pair_deviations(rows, pairs, DyadicGrid(1e-3, 200.0, 16, "log"), 5.0, resolve(None))
    assert found == pytest.approx([1.0, 0.03], rel=0.2)


@pytest.mark.parametrize("kind", ["equal", "tiny", "constant", "one wide", "heavy", "skew"])
@pytest.mark.parametrize("mode", ["best", "shifted"])
def test_nothing_blows_up_where_the_preview_says_yes(kind, mode):
    """At the least number of rows, over dimensions, budgets, bounds (any two of them) and shapes of data."""
    rng = np.random.default_rng(6)
    for size, rho, bound in ((1, 1.0, 50.0), (1, 0.1, 1e6), (20, 1.0, 1e6), (20, 0.1, 50.0)):
        count = preview_mean(1, size, bound=bound, rho=rho, kind="real", mode=mode).rows_needed
        spread = np.where(np.arange(size) == 0, 1.0, 1e-4) if kind == "one wide" else np.full(size, 1.0)
        spread = spread * {"tiny": 1e-3, "constant": 0.0}.get(kind, 1.0)
        drawn = {"heavy": lambda n, d: rng.standard_t(3, (n, d)), "skew": lambda n, d: rng.exponential(size=(n, d))}
        rows = drawn.get(kind, lambda n, d: rng.normal(size=(n, d)))(count, size) * spread + 3
        mean = private_mean(rows, bound=bound, kind="real", rho=rho, mode=mode, source=insecure_source(size))
        off = np.linalg.norm(mean.value - rows.mean(axis=0))
        whole = np.linalg.norm(spread) * (1 if kind not in ("heavy",) else 2)
        noise = 2 * whole * math.sqrt(size) / (count * math.sqrt(2 * rho))
        clipped = (0.1 + 3 / math.sqrt(count)) * whole
        assert off < 8 * noise + clipped + bound * 2**-19


def test_the_preview_knows_how_many_rows_are_needed():
    plan = preview_mean(100, 8, bound=100.0, rho=0.1, kind="real")
    assert not plan.useful and "needed" in str(plan)
    needed = plan.rows_needed
    assert preview_mean(needed, 8, bound=100.0, rho=0.1, kind="real").useful
    rows = np.random.default_rng().normal(size=(needed, 8))
    with pytest.raises(InvalidValue, match=f"needs {needed:,} rows"):
        private_mean(rows[1:], bound=100.0, kind="real", rho=0.1)
    private_mean(rows, bound=100.0, kind="real", rho=0.1)
    assert preview_mean(10**7, 10**6, rho=1e-12, kind="real").rows_needed is None
    errors = preview_mean(needed, 8, bound=100.0, rho=0.1, kind="real", mode="gaussian").errors
    assert errors["noise"] > 10 * preview_mean(needed, 8, bound=100.0, rho=0.1, kind="real").errors["noise"]


def test_too_few_rows_fall_back_where_that_is_allowed():
    rows = np.random.default_rng().normal(size=(100, 8))
    assert private_mean(rows, bound=9.0, kind="real", rho=0.1, fallback=True).last.radius == 0, "the plain mechanism"
    plan = preview_mean(1, 300, bound=9.0, rho=0.1, kind="real")
    some = np.random.default_rng().normal(size=(plan.rows_needed - 1, 300))
    assert "mode shifted" in private_mean(some, bound=9.0, kind="real", rho=0.1, fallback=True).notes.reason
    assert len(private_mean([[0.5]], bound=9.0, kind="real", rho=0.1, fallback=True)) == 1


@pytest.mark.parametrize(("kind", "mode"), EVERY)
def test_few_rows_are_refused_or_give_something_within_the_bounds(kind, mode):
    str(preview_mean(0, 3, rho=0.01, kind=kind, mode=mode))
    wide = {"bound": 7.0} if kind == "real" else {}
    for count in (1, 2, 4, 9, 40):
        mean = private_mean(ROWS[kind][:count], kind=kind, rho=0.01, mode=mode, fallback=True, **wide)
        assert np.isfinite(mean.value).all() and (mode == "thesis" or np.abs(mean.value).max() <= 7)


def test_constant_columns_and_values_beyond_the_bound():
    rows = np.column_stack([np.full(4_000, 2.0), np.full(4_000, 1e9), np.zeros(4_000), NORMAL[:, 0].repeat(2)[:4_000]])
    mean = private_mean(rows, bound=10.0, kind="real", rho=1.0).value
    assert mean == pytest.approx([2, 10, 0, rows[:, 3].mean()], abs=0.1) and mean.max() <= 10


@pytest.mark.parametrize("mode", MODES)
def test_binary_rows_are_limited_to_zero_and_one_and_never_refused(mode):
    """Whether a row holds something else is that row's secret."""
    odd = np.where(BITS > 0, 1e9, -7.0)
    odd[0] = 1e300
    seen = [private_mean(rows, kind="binary", rho=1.0, mode=mode, source=insecure_source(6)).value
            for rows in (odd, np.clip(odd, 0, 1), np.clip(odd, 0, 1).astype(bool))]  # fmt: skip
    assert seen[0].tolist() == seen[1].tolist() == seen[2].tolist()


# Publications and mechanisms.


@pytest.mark.parametrize(("kind", "mode"), EVERY)
def test_saved_and_loaded(tmp_path, kind, mode):
    mean = mean_of(kind, mode, source=insecure_source(8))
    again = Estimate.load(mean.save(tmp_path / "mean"))
    assert (
        again.table.equals(mean.table) and again.mechanism == mean.mechanism and again.certificate == mean.certificate
    )
    assert again.unsafe_to_publish and pickle.loads(pickle.dumps(mean)).table.equals(mean.table)


def test_a_forged_table_is_refused():
    mean = mean_of("binary", source=insecure_source(8))  # else 0.123456789 may lie on its grid
    mean.check()
    for value in (2.0, -0.1, 0.123456789):
        forged = mean.table.set_column(1, "value", [np.where(np.arange(8) == 3, value, mean.value)])
        with pytest.raises(InvalidValue, match="no outcome of the mechanism"):
            replace(mean, table=forged).check()


MADE = [
    NoisyRanks.within(2**50, 20, "centre", delta=1e-6, unit="one row"),
    MeanNoise(
        6.0, 1e-6, 2.0**29, 2.0**29, (0.5, 0.25), (1.0, 2.0), neighbours="replace", low=-4.0, high=4.0, radius=2.0
    ),
]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.name)
def test_mechanisms_are_plain_values(made):
    assert pickle.loads(pickle.dumps(made)) == made
    assert from_json(json.loads(json.dumps(made.to_json()))) == made
    assert f"{made.epsilon:.3g}"[:3] in repr(made) and "object at" not in repr(made)
    assert made.certify().parts[-1].method == "balls"
    fine = {"purpose": ("x",), "unit": ("x",), "offsets": ([], ()), "low": (-1,), "high": (-1,)}
    fine |= {"centres": ([], ()), "spreads": ([], ()), "stated": (True,)}
    for field, value in itertools.product((one.name for one in fields(made)), (None, "x", -1, math.nan, [], {}, True)):
        if value not in fine.get(field, ()):
            with pytest.raises(DpsieveError):
                replace(made, **{field: value})
    forged = {"weight": made.weight * 2} if made.name == "noisy_ranks" else {"scale": made.scale / 2}
    for change in (forged, {"epsilon": made.epsilon * 0.5}):
        with pytest.raises(NotCertified):
            replace(made, **change).certify()


GOOD = {"x": NORMAL, "bound": 10.0, "kind": "real", "rho": 0.5}


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"x": np.where(NORMAL > 6, np.nan, NORMAL)}, InvalidValue, "NaN"),
        ({"x": np.where(NORMAL > 6, np.inf, NORMAL)}, InvalidValue, "infinite"),
        ({"x": sparse.csr_matrix(np.where(NORMAL > 6, np.nan, NORMAL))}, InvalidValue, "NaN"),
        ({"x": NORMAL[:1]}, InvalidValue, "too few rows"),
        ({"x": NORMAL[:0]}, InvalidValue, "no rows"),
        ({"x": NORMAL[:0], "mode": "gaussian"}, InvalidValue, "no rows"),
        ({"x": NORMAL[:3], "mode": "thesis"}, InvalidValue, "too few rows"),
        ({"x": NORMAL[:9], "mode": "plain_scale"}, InvalidValue, "too few rows"),
        ({"x": NORMAL[:0], "fallback": True}, InvalidValue, "no rows"),
        ({"x": [["a"]]}, InvalidType, "rows of numbers"),
        ({"bound": -1.0}, InvalidValue, "bound"),
        ({"bound": 0.0}, InvalidValue, "bound"),
        ({"bound": math.nan}, InvalidValue, "bound"),
        ({"bound": (1.0, -1.0)}, InvalidType, "bound"),
        ({"kind": "auto"}, InvalidValue, "kind"),
        ({"kind": "binary"}, InvalidValue, "bound has no use for kind='binary'"),
        ({"names": ["a\nb", *"bcdefgh"]}, InvalidValue, "control characters"),
        ({"x": pa.table({"a\x1b[2J": [1.0] * 3_000})}, InvalidValue, "control characters"),
        ({"mode": "fast"}, InvalidValue, "Choose one of best, shifted, gaussian"),
        ({"spread": 0.6}, InvalidValue, "spread"),
        ({"p": 0.5}, InvalidValue, "p is below 1"),
        ({"rho": -1.0}, InvalidValue, "rho"),
        ({"rho": None}, InvalidValue, "either rho or epsilon"),
        ({"epsilon": 1.0}, InvalidValue, "either rho or epsilon"),
        ({"rho": None, "epsilon": 1.0}, InvalidValue, "budget"),
        ({"variances": [1.0]}, InvalidValue, "variances"),
        ({"variances": np.zeros(8)}, InvalidValue, "variances"),
        ({"variances": -np.ones(8)}, InvalidValue, "variances"),
        ({"neighbours": "add_remove"}, InvalidValue, "number of rows"),
        ({"names": ["a"]}, InvalidValue, "names"),
    ],
)
def test_what_has_no_mean_is_refused(change, error, said):
    with pytest.raises(error, match=said):
        private_mean(**{**GOOD, **change})
