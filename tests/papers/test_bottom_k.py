"""Bottom-k samples: sizes, ranks, merges and estimates. What they return is true data, not private."""

from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from helpers.statistical import FALSE_ALARM, assert_counts, assert_follows
from scipy import stats

import dpsieve as ds
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.papers.weighted_sampling import BottomK, bottom_k
from dpsieve.papers.weighted_sampling.bottom_k import exponential
from dpsieve.sampling import everything, new_salt, ppswor, priority

FOUR, FOUR_COUNTS = ["milk", "rice", "salt", "tea"], [40, 1, 7, 900]
KEYS, COUNTS = ["tea", "milk", "salt", "rice", "mate"], [40, 3, 9, 1, 15]


def splits():
    """Every way to put five keys into two parts."""
    for sides in product([0, 1], repeat=len(KEYS)):
        parts = ([k for k, side in enumerate(sides) if side == which] for which in (0, 1))
        yield tuple(([KEYS[k] for k in places], [COUNTS[k] for k in places]) for places in parts)


def state(sample):
    held = sample.held
    return held.to_bytes(), sample.unit, sample.size, sample.threshold


def lowest(keys, frequencies, k, **how):
    return bottom_k(keys, frequencies, k, salt=new_salt(), **how)


@pytest.mark.parametrize("method", ["ppswor", "priority"])
@pytest.mark.parametrize("power", [0.3, 1.0, 2.0])
def test_merged_parts_are_the_sample_of_the_whole(method, power):
    for k, more in [(1, 1), (2, 3), (3, 3), (4, 9), (9, 9)]:
        salt = new_salt()
        how = {"method": method, "power": power, "salt": salt}
        whole = bottom_k(KEYS, COUNTS, k, **how)
        assert len(whole) == min(k, 5) and (whole.threshold == np.inf) == (k >= 5)
        for one, two in splits():
            first, second = bottom_k(*one, k, **how), bottom_k(*two, more, **how)
            assert state(first.merge(second)) == state(second.merge(first)) == state(whole)


@pytest.mark.parametrize("method", ["ppswor", "priority"])
def test_many_parts_in_any_order(method):
    salt, counts = new_salt(), np.arange(1, 3001) ** 2
    how = {"k": 100, "method": method, "power": 1.0, "salt": salt}
    parts = [bottom_k(counts[k::7], counts[k::7], **how) for k in range(7)]
    merged = parts[3]
    for k in (0, 6, 1, 5, 2, 4):
        merged = parts[k].merge(merged)
    assert state(merged) == state(bottom_k(counts, counts, **how))


@pytest.mark.parametrize("method", ["ppswor", "priority"])
def test_estimate_and_variance_are_right_on_average(method):
    """Integrated over the (k+1)-st rank t, for k = 2 of three keys: the key y that is left out has rank t."""
    w, L = np.array([1, 4, 7]), np.array([2.0, -1.0, 0.5])
    sampler = (ppswor if method == "ppswor" else priority)(1.0)
    nodes, step = np.polynomial.legendre.leggauss(60)
    ends = [0, 0.02, 0.1, 1 / 7, 1 / 4, 1, 3, 8, 40] if method == "ppswor" else [0, 0.02, 1 / 7, 1 / 4, 1]
    sums = np.zeros(4)
    for a, b in pairwise(ends):
        for t, dt in zip(a + (b - a) * (nodes + 1) / 2, step * (b - a) / 2, strict=True):
            q = -np.expm1(-t * w) if method == "ppswor" else np.minimum(1, t * w)
            density = w * np.exp(-t * w) if method == "ppswor" else w * (t * w < 1)
            for y in range(3):
                rest = np.array([x for x in range(3) if x != y])
                zeros, keys = np.zeros(2, np.uint64), pa.array(rest)
                held = ds.Sample(keys, w[rest], everything(), zeros, zeros, bytes(16))
                sample = BottomK(held, sampler, 2, float(t))
                found = sample.estimate(weights=L[rest])
                sums += dt * density[y] * q[rest].prod() * np.array([1.0, found, found**2, found.variance])
    true = (w * L).sum()
    assert sums[:2] == pytest.approx([1.0, true], rel=1e-9)
    assert sums[3] == pytest.approx(sums[2] - true**2, rel=1e-7)


def test_ranks_are_exponential():
    u = np.concatenate([np.geomspace(2.0**-129, 0.5, 500), 1 - np.geomspace(2.0**-53, 0.5, 500)])
    assert exponential(u) == pytest.approx(-np.log1p(-u), rel=1e-15)
    sample = bottom_k(np.arange(20_000), np.full(20_000, 3), 20_000, power=2.0, salt=new_salt())
    cells = np.minimum((-np.expm1(-9 * sample.ranks()) * 50).astype(int), 49)
    assert_counts(np.bincount(cells, minlength=50), np.full(50, 400.0))


def test_has_k_keys_and_their_frequencies():
    sample = lowest(FOUR, FOUR_COUNTS, 3)
    assert len(sample) == 3
    truth = dict(zip(FOUR, FOUR_COUNTS, strict=True))
    assert [truth[key] for key in sample.keys.to_pylist()] == sample.frequencies.tolist()


def test_says_that_it_is_not_private():
    sample = lowest(FOUR, FOUR_COUNTS, 3, method="priority", power=0.5)
    assert "not to be published" in repr(sample)
    assert "tea" not in repr(sample)


def test_with_few_keys_takes_all_that_occur():
    sample = lowest([*FOUR, "zero"], [*FOUR_COUNTS, 0], 4)
    assert sample.keys.to_pylist() == FOUR
    assert sample.threshold == float("inf")
    assert sample.estimate() == sum(FOUR_COUNTS)
    assert sample.estimate(g=np.sqrt) == pytest.approx(np.sqrt(FOUR_COUNTS).sum())
    assert len(lowest([], [], 1)) == 0


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_the_first_key_of_ppswor_is_drawn_by_weight(power):
    """The smallest of independent Exp(1)/w belongs to each key with probability proportional to w."""
    weights = np.array([16, 9, 4, 1])
    draws = [lowest([0, 1, 2, 3], weights, 1, power=power).keys[0].as_py() for _ in range(4000)]
    assert_follows(draws, range(4), weights**power / (weights**power).sum())


@pytest.mark.parametrize("method", ["ppswor", "priority"])
@pytest.mark.parametrize(("power", "g"), [(1.0, None), (1.0, np.ones_like), (0.5, np.square)])
def test_the_estimate_is_not_biased(method, power, g):
    """Student's test on the mean of 2000 estimates, at the error rate FALSE_ALARM."""
    frequencies = np.arange(1, 31)
    truth = float((frequencies if g is None else g(frequencies)).sum())
    estimates = [lowest(frequencies, frequencies, 12, method=method, power=power).estimate(g=g) for _ in range(2000)]
    error = abs(np.mean(estimates) - truth) / stats.sem(estimates)
    assert error < stats.t.isf(FALSE_ALARM / 2, len(estimates) - 1)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"k": 0}, "k="),
        ({"k": 1.5}, "k must"),
        ({"k": None}, "k must"),
        ({"method": "poisson"}, "method"),
        ({"method": None}, "method"),
        ({"power": -1}, "power"),
        ({"power": "1"}, "power"),
    ],
)
def test_bad_arguments(change, name):
    with pytest.raises(DpsieveError, match=name):
        lowest(FOUR, FOUR_COUNTS, **{"k": 2, **change})


def test_bad_functions_and_parts():
    sample = lowest(FOUR, FOUR_COUNTS, 2)
    with pytest.raises(InvalidType, match="g must be a function"):
        sample.estimate(g=3)
    for wrong in (lambda w: 1.0, lambda w: w * np.nan, lambda w: w.astype(str)):
        with pytest.raises(InvalidValue, match="g did not return"):
            sample.estimate(g=wrong)
    with pytest.raises(InvalidType, match="other must be"):
        sample.merge(sample.held)
    with pytest.raises(InvalidValue, match="another scheme"):
        sample.merge(lowest(FOUR, FOUR_COUNTS, 2, power=2.0))
