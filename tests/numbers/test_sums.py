"""Private sums of bounded rows: the noise each coordinate gets, and that neighbours cannot be told apart.

The randomness is fresh in every run; each statistical check fails by chance at most once in a million runs.
"""

import itertools
import json
import math
import pickle
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.arrays import box, private_sum
from helpers.statistical import FALSE_ALARM, binomial_band
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, special, stats

from dpsieve.accounting.curves import gaussian_sigma
from dpsieve.errors import BudgetExceeded, CorruptRelease, DpsieveError, InvalidValue, NotCertified
from dpsieve.numbers import box as box_grid
from dpsieve.numbers.box import BoxGrid, best_noise, sum_noise, unit_means_noise
from dpsieve.numbers.estimate import Estimate, matrix
from dpsieve.numbers.mean_noise import MeanNoise
from dpsieve.numbers.noise import ScaledNoise, budget_mu, gaussian_promise
from dpsieve.privacy import Composition, DiscreteLaplace, Gaussian
from dpsieve.privacy.ledger import Ledger
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness.noise import rounded_gaussian
from dpsieve.randomness.source import Source, resolve
from dpsieve.testing import insecure_source

RELATIONS = ["add_remove", "replace"]
BUDGETS = {
    "zCDP": {"rho": 0.5},
    "approximate": {"epsilon": 1.0, "delta": 1e-6, "noise": "gaussian"},
    "pure": {"epsilon": 1.0},
}  # fmt: skip


def noise_for(widths, neighbours="replace", *, rows=0, **options):
    """The mechanism and the grid of a private sum, without any data."""
    lows, highs = box(widths, len(widths))
    made, grid = best_noise(lows, highs, neighbours, **options)
    return sum_noise(made, grid, rows), grid


def norm_noise(sensitivity, steps, *, neighbours, offsets=(), rho=None, epsilon=None, delta=None):
    """Gaussian noise on whole vectors, of the least scale that the budget allows."""
    scale = sensitivity / budget_mu(rho, epsilon, delta)
    promise = gaussian_promise(scale, sensitivity, epsilon, delta)
    return MeanNoise(*promise, sensitivity, scale, steps, offsets, neighbours=neighbours)


def masses(made, reach):
    """The probability of each noise from -reach to reach, in steps, by formulas of its own."""
    z = np.arange(-reach, reach + 1)
    if made.noise == "laplace":
        ratio = math.exp(-1 / made.scale)
        return (1 - ratio) / (1 + ratio) * ratio ** np.abs(z)
    far = np.abs(z)  # from the tail, so that small masses keep their digits
    return special.ndtr(-(far - 0.5) / made.scale) - special.ndtr(-(far + 0.5) / made.scale)


def test_a_sum_of_two_columns():
    people = pd.DataFrame({"visits": [1, 0, 3, 9], "spent": [10.0, 0.0, 55.5, 20.0]}, index=[7, 8, 9, 10])
    total = private_sum(people, [(0, 4), (0, 100)], neighbours="add_remove", rho=100.0, unit="one person")
    assert total.table.column("name").to_pylist() == ["visits", "spent"]
    assert np.allclose(total.value, [8.0, 85.5], atol=8 * total.table.column("deviation").to_numpy())  # 9 counts as 4
    assert "one person is added or removed" in str(total.guarantee)
    assert total.mechanism.rho <= 100.0
    age = private_sum([30, 41, 52], (0, 120), neighbours="replace", epsilon=400.0)
    assert isinstance(age.value, float) and abs(age.value - 123) < 30


def test_figure_4_1():
    """Sensitivities 4 and 1: the plain mechanism, noise proportional to the widths, and the best split."""
    for shape, squared, absolute in (("equal", 17, 10), ("proportional", 17, 10), ("best", 12.5, 9)):
        gaussian, _ = noise_for([4, 1], rho=0.25, shape=shape)
        laplace, _ = noise_for([4, 1], epsilon=0.5, p=1, shape=shape)
        assert gaussian.expected_error(2) == pytest.approx(squared / 0.25, rel=1e-7)
        assert laplace.expected_error(1) == pytest.approx(absolute / 0.5, rel=1e-7)


def norm(widths, order):
    return (np.asarray(widths) ** order).sum() ** (1 / order)


@pytest.mark.parametrize("p", [0.5, 1, 2, 4])
def test_closed_forms_are_moments_of_the_noise_that_is_drawn(monkeypatch, p):
    monkeypatch.setattr(box_grid, "FINEST", 2.0**12)  # so that all outcomes can be added up
    widths, rho, epsilon = [8.0, 3.0, 3.0, 0.5], 0.3, 0.7
    gaussian, _ = noise_for(widths, rho=rho, p=p)
    theorem_1 = math.gamma((p + 1) / 2) / (rho ** (p / 2) * math.sqrt(math.pi)) * norm(widths, 2 * p / (p + 2)) ** p
    laplace, _ = noise_for(widths, epsilon=epsilon, p=p)
    theorem_2 = math.gamma(p + 1) / epsilon**p * norm(widths, p / (p + 1)) ** p
    for made, closed in ((gaussian, theorem_1), (laplace, theorem_2)):
        reach = int(60 * made.scale)
        one = (np.abs(np.arange(-reach, reach + 1.0)) ** p) @ masses(made, reach)
        exact = one * (np.array(made.steps) ** p).sum()
        assert made.expected_error(p) == pytest.approx(exact, rel=1e-4)
        assert closed == pytest.approx(exact, rel=5e-3)  # a coarse grid rounds widths
    monkeypatch.undo()
    assert noise_for(widths, rho=rho, p=p)[0].expected_error(p) == pytest.approx(theorem_1, rel=1e-6)
    assert noise_for(widths, epsilon=epsilon, p=p)[0].expected_error(p) == pytest.approx(theorem_2, rel=1e-6)


@pytest.mark.parametrize("budget", [{"rho": 0.3}, {"epsilon": 0.7}])
@settings(max_examples=20)
@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=6), st.floats(0.1, 6.0))
def test_the_best_split_is_never_worse(budget, widths, p):
    best, equal, like = (noise_for(widths, shape=s, p=p, **budget)[0].expected_error(p) for s in
                         ("best", "equal", "proportional"))  # fmt: skip
    assert best <= min(equal, like) * (1 + 1e-5)


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_width_costs_half_under_add_remove_and_bounds_from_zero_the_same(budget):
    replaced, added = (noise_for([4, 1], relation, **budget)[0] for relation in ("replace", "add_remove"))
    assert np.allclose(replaced.deviations, 2 * added.deviations, rtol=1e-6)
    replaced, added = (noise_for([(0, 4), (0, 1)], relation, **budget)[0] for relation in ("replace", "add_remove"))
    assert np.allclose(replaced.deviations, added.deviations, rtol=1e-6)
    shifted = noise_for([(100, 104), (-1, 0)], "replace", **budget)[0]
    assert np.allclose(shifted.deviations, replaced.deviations, rtol=1e-6)


def worst_delta(made, shifts, epsilon):
    """The largest sum of max(0, P - e^epsilon Q) over these distances between neighbours, over all outputs."""
    reach, worst = int((9 if made.noise == "gaussian" else 40) * made.scale), 0.0
    noise = masses(made, reach)
    for first, second in shifts:
        p = np.multiply.outer(noise, noise)
        q = np.multiply.outer(moved(noise, first), moved(noise, second))
        worst = max(worst, np.maximum(0, p - math.exp(epsilon) * q).sum())
    return worst


def moved(noise, shift):
    out = np.zeros_like(noise)
    out[max(0, shift) : len(noise) + min(0, shift)] = noise[max(0, -shift) : len(noise) - max(0, shift)]
    return out


def all_shifts(grid, neighbours, values):
    """How far the sums of any neighbours with these values are apart; without signs, as the noise is symmetric."""
    rows = list(itertools.product(values, repeat=2))
    one = {row: grid.sums(np.array([row])) for row in rows}
    apart = list(one.values()) if neighbours == "add_remove" else [one[a] - one[b] for a in rows for b in rows]
    return {tuple(np.abs(pair).tolist()) for pair in apart}


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("bounds", [[4, 1], [(0, 3), (-1, 0)], [(2, 3), (-9, -7)], [(-1, 1), (5, 5)]])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_neighbours_cannot_be_told_apart(monkeypatch, neighbours, bounds, budget):
    """Two sums on a coarse grid: all outputs, all neighbours, those in opposite corners included."""
    monkeypatch.setattr(box_grid, "FINEST", 32.0 if "delta" in budget else 8.0)
    made, grid = noise_for(bounds, neighbours, **budget)
    apart = all_shifts(grid, neighbours, [-1e300, -7.9, -0.6, 0.0, 0.3, 2.4, 1e9])
    assert tuple(np.max(list(apart), axis=0)) == made.changes
    found = worst_delta(made, apart, made.epsilon)
    assert found <= made.delta * (1 + 1e-9) + 1e-12
    assert made.certify().worst >= found - 1e-12
    if made.noise == "laplace":
        assert worst_delta(made, {made.changes}, 0.75 * made.epsilon) > 1e-4  # and no budget is left over


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 30.0])
def test_renyi_and_concentrated_privacy_hold(monkeypatch, order):
    monkeypatch.setattr(box_grid, "FINEST", 16.0)
    made, _ = noise_for([4, 1], rho=0.2)
    noise, total = masses(made, 1000), 0.0
    for change in made.changes:
        q, seen = moved(noise, change), noise > 1e-280
        keep = seen & (q > 1e-280)
        log = order * np.log(noise[keep]) + (1 - order) * np.log(q[keep])
        total += special.logsumexp(log) / (order - 1)
    assert total <= made.rho * order <= 0.2 * order
    assert 0.9 * made.rho * order < total


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0, 1e6)), min_size=1, max_size=5),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=10, max_size=10),
    st.sampled_from(RELATIONS),
)
def test_no_row_moves_a_sum_further_than_the_mechanism_says(pairs, numbers, neighbours):
    bounds = [(round(low, 3), round(low, 3) + round(width, 3) + 0.001) for low, width in pairs]
    made, grid = noise_for(bounds, neighbours, rho=0.1)
    first, second = np.resize(numbers, (2, len(bounds)))
    moves = grid.sums(first[None]) - (grid.sums(second[None]) if neighbours == "replace" else 0)
    assert (np.abs(moves) <= made.changes).all()


def test_values_outside_are_clipped_to_the_bounds():
    bounds = np.array([(0.0, 1.0), (-2.0, 5.0), (10.0, 11.0)])
    x = np.random.default_rng(1).normal(3, 9, (500, 3))
    for neighbours in RELATIONS:
        made, grid = noise_for(bounds, neighbours, rows=len(x), rho=0.5)
        clipped = np.clip(x, *bounds.T)
        assert (grid.sums(x) == grid.sums(clipped)).all()
        assert np.allclose(made.real(grid.sums(x)), clipped.sum(axis=0), atol=500 * max(made.steps))


def test_every_form_of_rows_has_the_same_sums(monkeypatch):
    x = np.random.default_rng(2).poisson(0.5, (300, 4)) * 1.5
    _, grid = noise_for([(-1, 2), (0, 2), (1, 2), (-4, -3)], "replace", rho=0.5)
    sums = grid.sums(matrix(x).values)
    names = list("abcd")
    arrays = [x.tolist(), x.astype(np.float32), x[::-1], np.asfortranarray(x)]
    tables = [pd.DataFrame(x, columns=names), pa.table(list(x.T), names=names)]
    for form in [*arrays, *tables, sparse.csr_matrix(x), sparse.coo_array(x), sparse.csc_matrix(x)]:
        assert (grid.sums(matrix(form).values) == sums).all()
    monkeypatch.setattr(box_grid, "_BATCH", 7)
    assert (grid.sums(matrix(x).values) == sums).all()
    assert (grid.sums(matrix(sparse.csr_matrix(x)).values) == sums).all()
    flags = matrix(x > 1).values
    assert (grid.sums(flags) == grid.sums((x > 1).astype(float))).all()


def test_an_entry_that_a_sparse_matrix_stores_twice_is_clipped_once():
    twice = sparse.csr_matrix((np.ones(8), np.zeros(8, int), [0, 8]), shape=(1, 2))
    twice.has_canonical_format = True  # a lie
    made, grid = noise_for([(0, 2), (0, 2)], "add_remove", rho=0.5)
    assert grid.sums(matrix(twice).values).tolist() == [made.changes[0], 0]
    broken = sparse.csr_matrix(np.eye(3))
    broken.indices[0] = 77
    with pytest.raises(DpsieveError, match="x"):
        matrix(broken)


@pytest.mark.parametrize("rho", [1e-6, 0.01, 1.0, 30.0])
def test_a_zcdp_budget_is_spent_and_kept(rho):
    made, _ = noise_for(np.geomspace(0.1, 30, 50), rho=rho)
    assert rho * (1 - 1e-3) <= made.rho <= rho
    squares = sum(c * c for c in made.changes)
    assert squares <= 2 * rho * made.scale**2
    assert made.spends() == (Gaussian(made.scale, made.distance),)
    assert noise_for([1.0], rho=rho, delta=1e-9)[0].delta == 1e-9


@pytest.mark.parametrize("bounds", [[1.0], [(0, 1)], [(3, 4)], [2e-60, 1e60], [0.5] * 999])
def test_every_budget_has_a_grid_that_uses_it(bounds):
    for epsilon in (1e-3, 0.1, 1.0, 17.0, 500.0):
        pure, _ = noise_for(bounds, epsilon=epsilon)
        assert epsilon * 0.995 <= sum(pure.changes) / pure.scale <= epsilon
    for rho in (1e-6, 0.5, 2.0, 300.0):
        made, _ = noise_for(bounds, rho=rho)
        assert rho * 0.995 <= made.rho <= rho


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-12), (1.0, 1e-5), (10.0, 1e-3)])
def test_an_approximate_budget_has_the_smallest_gaussian_noise(epsilon, delta):
    made, _ = noise_for([3, 4], epsilon=epsilon, delta=delta, noise="gaussian", shape="equal")
    assert made.deviations == pytest.approx(2 * [gaussian_sigma(epsilon, delta, sensitivity=5.0)], rel=1e-6)
    assert made.certify().worst <= delta
    assert 0.999 * delta < made.certify().worst


def test_auto_takes_the_noise_with_less_error():
    assert noise_for([1.0], epsilon=1.0, delta=1e-9)[0].noise == "laplace"
    assert noise_for([1.0] * 100, epsilon=1.0, delta=1e-9)[0].noise == "gaussian"


def test_coarser_laplace_curves_are_above_the_true_one():
    """The losses of noise of scale s on c steps are (c - 2j)/s, from the exact probabilities of all outputs."""
    made = ScaledNoise(1.0, 0.0, (5001,), 5001.0, (1.0,), noise="laplace", neighbours="add_remove")
    noise = masses(made, 60 * 5001)
    (coarse,) = made.spends()
    assert isinstance(coarse, DiscreteLaplace) and coarse.sensitivity <= 64
    for epsilon in (0.0, 0.2, 0.5):
        exact = np.maximum(0, noise - math.exp(epsilon) * moved(noise, 5001)).sum()
        assert exact <= Composition([coarse]).delta(epsilon) <= exact * 1.03
    many, _ = noise_for(np.geomspace(1, 9, 40), epsilon=1.0)
    assert Composition(many.spends()).epsilon(0.0) == 1.0


def test_constant_coordinates_are_public():
    x = [[5.0, 1.0], [5.0, 2.0]]
    fixed = private_sum(x, [(5, 5), (0, 3)], neighbours="replace", rho=0.5)
    assert fixed.value[0] == 10.0 and fixed.table.column("deviation")[0].as_py() == 0
    zero = private_sum(x, [0, 3], neighbours="add_remove", rho=0.5)
    assert zero.value[0] == 0.0
    counted = noise_for([(5, 5), (0, 3)], "add_remove", rho=0.5)[0]  # how often 5 was added is private
    assert counted.changes[0] > 0
    with pytest.raises(InvalidValue, match="all zero"):
        private_sum(x, 0, neighbours="replace", rho=0.5)


def test_no_rows_and_one_row():
    for x in ([], np.empty((0, 1)), [3.0]):
        for neighbours in RELATIONS:
            assert np.isfinite(private_sum(x, [1.0], neighbours=neighbours, epsilon=1.0).value).all()
    assert len(private_sum(np.empty((0, 3)), 1.0, neighbours="add_remove", rho=1.0).value) == 3


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_noise_has_its_deviation_and_its_interval(noise):
    d = 40_000
    budget = {"rho": 0.5} if noise == "gaussian" else {"epsilon": 1.0}
    told = private_sum(np.zeros((1, d)), np.geomspace(1, 50, d), neighbours="replace", **budget).table
    value, deviation = told.column("value").to_numpy(), told.column("deviation").to_numpy()
    kurtosis = 3 if noise == "gaussian" else 6
    spread = (value / deviation) ** 2
    assert abs(spread.mean() - 1) < 6.2 * math.sqrt((kurtosis - 1) / d)
    inside = ((told.column("low").to_numpy() <= 0) & (told.column("high").to_numpy() >= 0)).sum()
    least, most = binomial_band(d, 0.95)
    assert least <= inside <= most
    cdf = stats.norm.cdf if noise == "gaussian" else stats.laplace(scale=0.5**0.5).cdf
    assert stats.kstest(value / deviation, cdf).pvalue > FALSE_ALARM


def test_the_ledger_is_charged_before_anything_is_drawn(tmp_path):
    class Broken(Source):
        publishable = True

        def words(self, count):
            raise RuntimeError("no randomness")

    book = Ledger(tmp_path / "sums.ledger", epsilon=3.0, delta=1e-6, neighbours="replace", unit="one row")
    with pytest.raises(RuntimeError):
        private_sum([1.0], 1.0, neighbours="replace", rho=0.05, ledger=book, note="lost", source=Broken())
    with pytest.raises(InvalidValue, match="NaN"):
        private_sum([math.nan], 1.0, neighbours="replace", rho=0.05, ledger=book)
    private_sum([1.0], 1.0, neighbours="replace", rho=0.05, ledger=tmp_path / "sums.ledger", note="kept")
    assert [entry.note for entry in book.history() if entry.note] == ["lost", "kept"]
    spent = Composition([Gaussian(1.0, math.sqrt(0.1), 2)]).epsilon(1e-6)
    curves = [curve for entry in book.history() for curve in entry.curves]
    assert Composition(curves).epsilon(1e-6) == pytest.approx(spent, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        private_sum([1.0], 1.0, neighbours="replace", rho=50.0, ledger=book)
    assert len([entry for entry in book.history() if entry.note]) == 2


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_saved_and_loaded(tmp_path, budget):
    x = np.random.default_rng(3).normal(1e6, 1, (50, 3))
    total = private_sum(x, [(1e6 - 3, 1e6 + 3)] * 2 + [(7, 7)], neighbours="replace", names=["a", "b", "c"], **budget)
    again = Estimate.load(total.save(tmp_path / "sum"))
    assert again.table.equals(total.table) and again.mechanism == total.mechanism
    record = tmp_path / "sum" / "release.json"
    data = json.loads(record.read_text())
    data["mechanism"]["scale"] /= 2
    record.write_text(json.dumps(data))
    with pytest.raises(CorruptRelease):
        Estimate.load(tmp_path / "sum")
    values = total.value.copy()
    values[2] += 1
    assert not total.mechanism.possible(values) and total.mechanism.possible(total.value)


MADE = [
    noise_for([(-2, 2), (1, 2)], rho=0.5, rows=9)[0],
    noise_for([4, 1], "add_remove", epsilon=1.0)[0],
]


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.name)
def test_mechanisms_are_plain_values(made):
    assert pickle.loads(pickle.dumps(made)) == made
    assert from_json(json.loads(json.dumps(made.to_json()))) == made
    assert f"{made.epsilon:.3g}"[:3] in repr(made) and "object at" not in repr(made)
    assert made.certify().parts[-1].method == "balls"
    bad = (None, "x", -1, math.nan, [], {}, True, (), (1.5, "x"), (math.inf, 1.0), (True, 1), 10**400)
    for field in (one.name for one in fields(made)):
        for value in bad:
            harmless = (field == "offsets" and value in ([], ())) or (field == "unit" and value in ("x", None, [], ()))
            if not harmless:
                with pytest.raises(DpsieveError):
                    replace(made, **{field: value})
    for forged in ({"scale": made.scale * 0.999}, {"epsilon": made.epsilon * 0.999}):
        with pytest.raises(NotCertified):
            replace(made, **forged).certify()


def test_many_coordinates_are_checked_quickly():
    made, _ = noise_for(np.geomspace(1, 1e6, 30_000), rho=0.5)
    assert from_json(made.to_json()).certify() == made.certify()


def test_noise_for_vectors_of_bounded_norm():
    """Whole vectors of norm 5 at most: 5 for add/remove, 10 for replacement, 5 sqrt(2) where none is negative."""
    vectors = [v for v in itertools.product(range(-5, 6), repeat=2) if math.hypot(*v) <= 5]
    apart = {"add_remove": 5.0, "replace": 10.0}
    for neighbours, distance in apart.items():
        made = norm_noise(distance, (1.0, 1.0), epsilon=1.0, delta=1e-3, neighbours=neighbours)
        shifts = vectors if neighbours == "add_remove" else {(a - c, b - d) for a, b in vectors for c, d in vectors}
        far = {pair for pair in shifts if math.hypot(*pair) > 0.99 * distance and 0 <= pair[0] <= pair[1]}
        assert far and 0.9e-3 < worst_delta(made, far, 1.0) <= 1e-3
    positive = [v for v in vectors if min(v) >= 0]
    assert max(math.dist(a, b) for a in positive for b in positive) <= 5 * math.sqrt(2)
    made = norm_noise(2.0**20, np.full(20_000, 0.5), rho=0.5, neighbours="replace", offsets=np.full(20_000, 7.0))
    drawn = made.draw(np.full(20_000, 6), insecure_source(1))
    assert drawn.mean() == pytest.approx(10, abs=6 * made.deviations[0] / 141)
    assert drawn.std() == pytest.approx(made.deviations[0], rel=0.03)
    assert made.possible(drawn) and made.rho <= 0.5


GOOD = {"x": [[1.0, 2.0]], "widths": [1, 2], "neighbours": "replace", "rho": 0.5}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x": [[math.nan, 1.0]]}, "NaN"),
        ({"x": [[1.0, math.inf]]}, "infinite"),
        ({"x": sparse.csr_matrix([[1.0, -math.inf]])}, "infinite"),
        ({"x": [[1.0], [1.0, 2.0]]}, "lengths"),
        ({"x": [["a", "b"]]}, "numbers"),
        ({"x": None}, "numbers"),
        ({"x": np.zeros((2, 2, 2))}, "numbers"),
        ({"x": [[], []]}, "numbers"),
        ({"x": [[1j, 2j]]}, "numbers"),
        ({"x": np.ma.masked_array([[1.0, 2.0]], [[True, False]])}, "numbers"),
        ({"x": pa.table({"a": [1, None], "b": [1, 2]})}, "nulls"),
        ({"x": pa.table({"a": ["1"], "b": ["2"]})}, "numbers"),
        ({"widths": [(0, 1), (2, 1)]}, "low"),
        ({"widths": [-1, 1]}, "negative"),
        ({"widths": [1, 2, 3]}, "coordinates"),
        ({"widths": [[1, 2, 3]]}, "coordinates"),
        ({"widths": [math.nan, 1]}, "finite"),
        ({"widths": [math.inf, 1]}, "finite"),
        ({"widths": [1e-200, 1]}, "Rescale"),
        ({"widths": None}, "widths"),
        ({"widths": "ab"}, "widths"),
        ({"neighbours": "both"}, "neighbours"),
        ({"epsilon": 1.0}, "either rho or epsilon"),
        ({"rho": None}, "either rho or epsilon"),
        ({"rho": None, "delta": 1e-6}, "either rho or epsilon"),
        ({"rho": None, "epsilon": 0.0}, "epsilon"),
        ({"rho": None, "epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"rho": -1.0}, "rho"),
        ({"rho": 1e4}, "smaller rho"),
        ({"rho": math.nan}, "rho"),
        ({"rho": 0.5, "delta": 0.0}, "delta"),
        ({"noise": "laplace"}, "epsilon instead"),
        ({"rho": None, "epsilon": 1.0, "noise": "gaussian"}, "delta"),
        ({"noise": "uniform"}, "noise"),
        ({"shape": "round"}, "shape"),
        ({"p": 0}, "p="),
        ({"p": "2"}, "p must"),
        ({"names": ["a"]}, "names"),
        ({"names": ["a", "a"]}, "names"),
        ({"names": "ab"}, "names"),
        ({"names": [1, 2]}, "names"),
        ({"unit": ""}, "unit"),
        ({"note": "x"}, "ledger"),
        ({"source": 7}, "source"),
    ],
)
def test_what_cannot_be_summed_is_refused(change, said):
    with pytest.raises(DpsieveError, match=said):
        private_sum(**{**GOOD, **change})


def test_a_budget_too_small_for_any_grid_is_refused():
    with pytest.raises(InvalidValue, match="too small"):
        noise_for(np.ones(20_000), epsilon=1e-9)


def test_rounding_moves_a_sum_by_half_a_step_a_row_at_most():
    x = np.random.default_rng(4).uniform(0, 1, 3000)
    grid = BoxGrid(np.zeros(1), np.ones(1), np.full(1, 0.01), "add_remove")
    assert abs(grid.sums(x[:, None])[0] * 0.01 - x.sum()) <= 3000 * 0.005
    assert rounded_gaussian(2.0**29, 4).dtype == np.int64


# Means of a private number of rows: sums and their number in one draw.


@pytest.mark.parametrize("budget", [{"rho": 0.5}, {"epsilon": 1.0}], ids=["gaussian", "laplace"])
@pytest.mark.parametrize(("shape", "p"), [("proportional", 2.0), ("best", 2.0), ("best", 1.0)])
def test_a_row_more_moves_sums_and_their_number_by_what_is_said(budget, shape, p):
    """Every corner and every number outside of the bounds: no sum moves by more than its change, and corners do."""
    lows, highs = np.array([0.0, -5.0]), np.array([100.0, 5.0])
    made, sums = unit_means_noise(lows, highs, shape=shape, p=p, **budget)
    base = np.array([[3.0, 4.0], [77.0, -5.0]])
    before, largest = sums(base), np.zeros(3)
    for row in itertools.product((-1e9, 0.0, 31.7, 50.0, 100.0, 1e300), (-1e300, -5.0, 0.0, 5.0, 7.0)):
        moved = np.abs(sums(np.vstack([base, np.clip(row, lows, highs)])) - before)
        assert (moved <= made.changes).all()
        largest = np.maximum(largest, moved)
    assert largest.tolist() == list(made.changes)
    assert sums(np.empty((0, 2))).tolist() == [0, 0, 0]
    if "rho" in budget:
        assert 0.499 < made.rho <= 0.5
    else:
        assert 0.999 * made.scale < sum(made.changes) <= made.scale, "epsilon is 1"
    assert made.certify().guarantee.neighbours == "add_remove"
    with pytest.raises(NotCertified):
        replace(made, scale=made.scale / 2).certify()
    assert from_json(json.loads(json.dumps(made.to_json()))) == made == pickle.loads(pickle.dumps(made))


def test_a_unit_at_the_bound_is_told_from_none_as_often_as_epsilon_says():
    """The measured rate at the tightest point: both sums at or above those of one unit at the upper bound."""
    made, sums = unit_means_noise(np.zeros(1), np.full(1, 10.0), shape="best", p=2.0, epsilon=1.0)
    draws, one, none = 6_000, sums(np.full((1, 1), 10.0)), sums(np.empty((0, 1)))
    least = made.real(one)

    def seen(start):
        found = 0
        for _ in range(draws):
            mean, count = made.draw(start, resolve(None))
            # the sum is hidden where the mean is at a bound, and then above that of the bound
            found += count >= least[1] and (mean - 5) * max(1.0, count) >= least[0]
        return found

    share = 0.25 * math.exp(-1.0)
    low, high = binomial_band(draws, share)
    assert low <= seen(none) <= high
    low, high = binomial_band(draws, 0.25)
    assert low <= seen(one) <= high


@pytest.mark.parametrize("budget", [{"rho": 0.02}, {"epsilon": 0.2}], ids=["gaussian", "laplace"])
def test_the_interval_of_a_mean_has_both_noises(budget):
    made, sums = unit_means_noise(np.zeros(1), np.full(1, 10.0), shape="best", p=2.0, **budget)
    runs = 1_500
    for truth in (5.0, 9.0):
        start, inside = sums(np.full((60, 1), truth)), 0
        for _ in range(runs):
            mean, count = made.draw(start, resolve(None))
            columns = made.reader({"units": float(count)}).columns(np.array([mean]))
            low, high = (float(columns[name][0]) for name in ("low", "high"))
            assert (math.isnan(low) and math.isnan(high)) or 0 <= low <= mean <= high <= 10
            inside += not (low > truth or high < truth)
        assert inside >= binomial_band(runs, 0.95)[0]
    few = made.reader({"units": 0.5}).columns(np.array([5.0]))
    assert np.isnan(few["low"]).all() and np.isnan(few["high"]).all()


def test_two_laplace_noises_have_lighter_tails_than_one():
    """P[|a X + b Y| > t] = (a^2 e^(-t/a) - b^2 e^(-t/b)) / (a^2 - b^2), at t = ln(20)/sqrt(2) deviations."""
    for b in np.linspace(0.01, 0.99, 99):
        t = math.log(20) / math.sqrt(2) * math.sqrt(2 + 2 * b * b)
        assert (math.exp(-t) - b * b * math.exp(-t / b)) / (1 - b * b) <= 0.05
