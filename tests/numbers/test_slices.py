"""Quantiles from slices around noisy ranks: exact privacy on small grids, what is drawn, and what is refused."""

import json
import math
import pickle
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from statistical import assert_follows, binomial_band

import dpsieve as ds
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.numbers.gaps import GapQuantiles
from dpsieve.numbers.quantiles import best_quantiles, private_quantile
from dpsieve.numbers.slice_quantiles import SliceQuantiles
from dpsieve.privacy.registry import from_json
from dpsieve.publication.publication import Publication
from dpsieve.testing import insecure_source

FIFTY = tuple(i / 51 for i in range(1, 51))
OPTIONS = {"bounds": (-10, 10), "neighbours": "replace", "epsilon": 1.0, "delta": 1e-10}


def slices(rows=60_000, quantiles=FIFTY, **more):
    return SliceQuantiles(1.0, quantiles, 0.0, 9.0, **{"rows": rows, "delta": 1e-10, "neighbours": "replace", **more})


def test_fifty_quantiles():
    values = np.random.default_rng(1).normal(size=60_000)
    found = private_quantile(values, FIFTY, **OPTIONS)
    assert isinstance(found.mechanism, SliceQuantiles) and found.guarantee.delta == 1e-10
    off = np.abs((values[:, None] <= found.value).sum(axis=0) - np.array(FIFTY) * 60_000)
    assert off.max() < 2 * found.table.column("rank_error").to_numpy().max() < 1_000
    assert found.certificate.parts[-1].method == "balls"


# Privacy: all neighbours on a small grid and all outputs; chances by own code from the text of the method.


def picks(rows, size, ranks, rate, half):
    """For each rank, the probability of every point."""
    below = np.array([sum(row < k for row in rows) for k in range(size)])
    upto = np.array([sum(row <= k for row in rows) for k in range(size)])
    off = np.minimum(np.maximum(np.maximum(below - ranks[:, None], ranks[:, None] - upto), 0), half)
    weights = np.exp(-rate * off)
    return weights / weights.sum(axis=1, keepdims=True)


def chances(rows, size, targets, scale, rate, half, reach):
    """The probability of every pair of points for two targets, before they are put in order."""
    ranks = np.arange(-2 * reach, len(rows) + 2 * reach + 1)
    law = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale) * math.tanh(1 / (2 * scale))
    joint = np.zeros((len(ranks), len(ranks)))
    for (i, p), (j, p2) in product(enumerate(law, -reach), enumerate(law, -reach)):
        joint[targets[0] + i + 2 * reach, targets[1] + i + j + 2 * reach] += p * p2
    each = picks(rows, size, ranks, rate, half)
    return each.T @ joint @ each


@pytest.mark.parametrize(
    ("count", "size", "targets", "scale", "rate", "half"),
    [
        (12, 3, (2, 10), 0.6, 0.5, 2), (12, 3, (3, 9), 2.0, 1.5, 2), (9, 3, (2, 7), 0.5, 3.0, 1),
        (5, 4, (1, 4), 1, 1, 1), (14, 3, (3, 11), 0.8, 0.2, 3), (6, 4, (3, 5), 0.3, 0.7, 1),
    ],
)  # fmt: skip
def test_two_slices_are_private_for_all_neighbours(count, size, targets, scale, rate, half):
    epsilon = 2 / scale + 3 * rate + math.log(1 + 1 / half)
    room = targets[1] - targets[0] - 2 * half + 1
    missed = math.exp(-room / scale) / (1 + math.exp(-1 / scale))
    reach = math.ceil(30 * scale)
    laws = {}
    for rows in combinations_with_replacement(range(size), count):
        laws[rows] = chances(rows, size, targets, scale, rate, half, reach)
        assert laws[rows].sum() == pytest.approx(1, abs=1e-9)
    worst = largest = 0.0
    for rest in combinations_with_replacement(range(size), count - 1):
        for x, y in product(range(size), repeat=2):
            p, p2 = (laws[tuple(sorted((*rest, one)))] for one in (x, y))
            worst = max(worst, np.maximum(p - math.exp(epsilon) * p2, 0).sum())
            largest = max(largest, np.log(p / p2).max())
    assert worst <= missed + 1e-12
    assert largest > min(rate, 1 / scale) / 2  # one row does matter


def test_the_budget_is_spent_and_no_more():
    for epsilon, delta, rows in ((1.0, 1e-10, 60_000), (0.1, 1e-6, 10**6), (7.5, 1e-12, 9_000)):
        made = SliceQuantiles(epsilon, FIFTY, 0.0, 9.0, rows=rows, delta=delta, neighbours="replace")
        spent = 2 / made.step_scale + 3 * made.rate + math.log1p(1 / made.half)
        assert epsilon * (1 - 1e-12) <= spent <= epsilon * (1 + 1e-15)
        room = np.diff(made.targets) - 2 * made.half + 1
        tail = (np.exp(-room / made.step_scale) / (1 + math.exp(-1 / made.step_scale))).sum()
        assert made.certify().worst == pytest.approx(tail) and tail <= delta


# What is drawn.


def test_it_draws_as_the_exact_probabilities_say():
    made = SliceQuantiles(6.0, (0.25, 0.75), 0, 3, rows=60, delta=1e-6, neighbours="replace", steps=2)
    rows = np.repeat([0, 1, 2, 3], [14, 17, 15, 14])
    exact = chances(rows.tolist(), 4, made.targets, made.step_scale, made.rate, made.half, 20)
    law = {}
    for i, j in product(range(4), repeat=2):
        law[min(i, j), max(i, j)] = law.get((min(i, j), max(i, j)), 0) + exact[i, j]
    source = insecure_source(5)
    draws = [int(made.draw_sorted(rows, source) @ [4, 1]) for _ in range(1_500)]
    assert_follows(draws, [i * 4 + j for i, j in law], list(law.values()))


def misses(made, rows, found):
    """Whether any of the points found is off by more rows than is said."""
    below, upto = (np.searchsorted(rows, found, side) for side in ("left", "right"))
    target = np.array(made.shares, float) * made.rows
    return bool((np.maximum(below - target, target - upto) > made.rank_errors).any())


@pytest.mark.parametrize("shape", ["spread", "constant", "two clusters", "few values"])
def test_the_bound_on_the_rank_error_holds(shape):
    """With probability 0.95 at least, for all quantiles together."""
    rng, runs, missed = np.random.default_rng(7), 20, 0
    values = {
        "spread": rng.normal(size=60_000), "constant": np.full(60_000, 2.5),
        "two clusters": rng.choice([-9, 9], 60_000) + rng.normal(size=60_000) * 1e-6,
        "few values": rng.integers(-9, 9, 60_000).astype(float),
    }[shape]  # fmt: skip
    made, _ = best_quantiles(FIFTY, **OPTIONS, method="slices", rows=60_000)
    rows = np.sort(made.grid.index(values))
    for seed in range(runs):
        missed += misses(made, rows, made.draw_sorted(rows, insecure_source(seed)))
    assert missed <= binomial_band(runs, 0.05)[1]


def test_the_bound_holds_where_noise_puts_ranks_below_zero_and_above_all_rows(monkeypatch):
    """Noise as large as the bound allows: then all picks hold it with probability 0.975 at least.

    Every point misses a rank above n by some rows. If slices were no longer than for other ranks, too little would be
    left to tell points apart: then every run has a stray pick, and after sorting one shifts all values.
    """
    quantiles, count, runs = tuple(i / 40 for i in range(41)), 36_000, 20
    made = slices(count, quantiles)
    far = np.array(made.rank_errors) - math.log(41 * made.grid.size * 40) / made.rate - 2  # without that of the picks
    steps = np.zeros(41, np.int64)
    steps[[0, 1, -1]] = np.array([-far[0], far[0], far[-1]]).astype(int)  # ranks of -far, n/40, 2n/40, ..., n + far
    monkeypatch.setattr("dpsieve.numbers.slice_quantiles.discrete_laplace", lambda *_, **__: steps)
    for point in (0, made.grid.size - 1):  # where all rows are
        rows, missed = np.full(count, point), 0
        for seed in range(runs):
            missed += misses(made, rows, made.draw_sorted(rows, insecure_source(seed)))
        assert missed <= binomial_band(runs, 0.025)[1] < runs / 2


def test_slices_are_long_enough_also_for_small_grids_and_ranks_at_the_ends():
    for epsilon, steps, first, last in product((0.01, 1.0, 30.0), (1, 2, 32), (0, 1), (9, 10)):
        quantiles = tuple(i / 10 for i in range(first, last + 1))
        made = SliceQuantiles(epsilon, quantiles, 0, 1, rows=10**6, delta=1e-6, neighbours="replace", steps=steps)
        beyond = max((first == 0) * made.noise_bounds[0], (last == 10) * made.noise_bounds[-1])
        assert len(quantiles) * made.grid.size * math.exp(-made.rate * (made.half - beyond)) <= 0.025
        assert made.half - beyond < 40 * math.log(len(quantiles) * made.grid.size) / epsilon  # and no longer


# What is chosen and refused.


def test_auto_takes_slices_for_many_quantiles_and_enough_rows():
    def kind(q=FIFTY, rows=60_000, **more):
        return type(best_quantiles(q, **{**OPTIONS, "rows": rows, **more})[0])

    assert kind() is SliceQuantiles
    assert kind(rows=20_000) is kind(rows=None) is kind(q=0.5) is kind(delta=1e-5) is GapQuantiles
    ends = [0.0, *FIFTY, 1.0]  # for these, slices must be longer
    assert kind(ends) is kind(rows=40_000) is SliceQuantiles and kind(ends, rows=40_000) is GapQuantiles
    assert kind(neighbours="add_remove") is kind(rows_per_unit=2) is kind(delta=None) is GapQuantiles
    assert kind(epsilon=None, rho=0.01) is GapQuantiles


def test_tables_never_use_slices_because_their_number_of_rows_is_private():
    import pyarrow as pa

    table = pa.table({"x": np.random.default_rng(2).normal(size=60_000)})
    options = {"column": "x", "q": list(FIFTY), **OPTIONS}
    assert isinstance(ds.quantile_of(table, **options).mechanism, GapQuantiles)
    with pytest.raises(DpsieveError, match="rows"):
        ds.quantile_of(table, **options, method="slices")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"neighbours": "add_remove"}, "replace"), ({"rows_per_unit": 2}, "one row"), ({"delta": 0.0}, "delta"),
     ({"rho": 0.1}, "delta"), ({"quantiles": (0.5,)}, "two quantiles"), ({"rows": 20_000}, "more rows"),
     ({"rows": 0}, "public"), ({"quantiles": (0.5, 0.5001)}, "overlap")],
)  # fmt: skip
def test_what_slices_cannot_do_is_refused(wrong, says):
    with pytest.raises(InvalidValue, match=says):
        slices(**wrong)


def test_another_number_of_rows_is_refused():
    with pytest.raises(InvalidValue, match="number of rows"):
        slices().draw(np.zeros(59_999))


def test_it_saves_loads_and_refuses_forged_fields(tmp_path):
    values = np.random.default_rng(1).normal(size=60_000)
    found = private_quantile(values, FIFTY, method="slices", **OPTIONS)
    again = Publication.load(found.save(tmp_path / "x"))
    assert np.array_equal(again.value, found.value) and again.mechanism == found.mechanism
    made = slices()
    data = made.to_json()
    assert from_json(json.loads(json.dumps(data))) == made == pickle.loads(pickle.dumps(made))
    wrong = [{"rows": one} for one in (20_000, None, "x", True)]
    for forged in ({"delta": 1e-300}, {"epsilon": 0.1}, *wrong):
        with pytest.raises(DpsieveError):
            from_json({**data, **forged}).certify()
