"""Noise for keys that are known in advance: its guarantee by enumeration, its distribution by measurement."""

import math

import numpy as np
import pytest
from helpers.statistical import assert_cdf, binomial_band
from scipy import special

import dpsieve as ds
from dpsieve.accounting.curves import gaussian_delta
from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.noise.known_keys import known_keys
from dpsieve.privacy import Gaussian


def masses(made, reach):
    """P[noise = x] for x in -reach .. reach."""
    x = np.arange(-reach, reach + 1)
    if made.noise == "laplace":
        return np.exp(-np.abs(x) / made.scale) * np.tanh(1 / (2 * made.scale))
    return np.diff(special.ndtr((np.arange(-reach, reach + 2) - 0.5) / made.scale))


def test_the_smaller_noise_is_taken():
    assert known_keys(1.0, 1e-8).noise == "laplace"
    assert known_keys(1.0, 1e-8, max_keys=13).noise == "laplace"
    assert known_keys(1.0, 1e-8, max_keys=14).noise == "gaussian"
    assert known_keys(1.0, max_keys=1000).noise == "laplace"  # delta = 0


@pytest.mark.parametrize(("keys", "rows"), [(1, 1), (1, 3), (2, 1), (3, 1)])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_guarantee_by_enumeration(keys, rows, noise):
    """All outputs of one unit's keys, with and without the unit, which adds `rows` to each of `keys` counts."""
    epsilon, delta = 2.0, 0.0 if noise == "laplace" else 1e-3
    made = known_keys(epsilon, delta, keys, rows, noise=noise)
    reach = math.ceil((40 if keys < 3 else 12) * made.scale)
    one = masses(made, reach)
    without, with_it = np.append(one, np.zeros(rows)), np.append(np.zeros(rows), one)
    p, q = without, with_it
    for _ in range(keys - 1):
        p, q = np.multiply.outer(p, without).ravel(), np.multiply.outer(q, with_it).ravel()
    found = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))
    assert found <= delta + 2 * keys * (1 - one.sum()) + 1e-12
    if noise == "gaussian":  # rounding to integers loses little: the promise is nearly reached
        assert found >= 0.85 * delta


def test_the_noise_is_not_larger_than_needed():
    laplace = known_keys(0.3, max_keys=7, max_rows=2)
    assert laplace.scale == pytest.approx(14 / 0.3, rel=1e-15) and laplace.certify().worst == 0
    normal = known_keys(1.0, 1e-8, max_keys=100)
    assert gaussian_delta(normal.scale * (1 - 1e-9), 1.0, count=100) > 1e-8
    wide = known_keys(0.1, 1e-8, max_keys=10_000)
    assert wide.scale > 4000 and gaussian_delta(wide.scale * (1 - 1e-9), 0.1, count=10_000) > 1e-8
    assert wide.certify().worst <= 1e-8 and isinstance(wide.spends()[0], Gaussian)


@pytest.mark.parametrize(
    "made", [known_keys(0.5), known_keys(1.0, 1e-6, 40), known_keys(0.1, 1e-6, 5000)], ids=lambda made: made.noise
)
def test_what_is_drawn(made):
    edges = np.unique(np.round(made.scale * np.linspace(-3, 3, 61)).astype(np.int64))
    reach = math.ceil(45 * made.scale)
    cumulative = np.cumsum(masses(made, reach))
    assert_cdf(made.draw(np.full(200_000, 1000)).tokens - 1000, edges, lambda k: cumulative[k + reach])


@pytest.mark.parametrize("made", [known_keys(0.5), known_keys(1.0, 1e-6, 40), known_keys(0.1, 1e-6, 5000)])
def test_intervals_hold_and_are_short(made):
    reading = made.read(made.draw(np.full(100_000, 50_000)).tokens)
    held = int(((reading.low <= 50_000) & (reading.high >= 50_000)).sum())
    exact = masses(made, made.half_width(0.95)).sum()
    assert binomial_band(100_000, exact)[0] <= held <= binomial_band(100_000, exact + 0.002)[1]
    assert exact + 1e-12 >= 0.95 and made.half_width(0.95) <= 3.5 * made.scale


def test_every_key_is_answered_and_sums_are_unbiased():
    keys = [f"{k:04}" for k in range(2000)]
    release = known_keys(0.5).release(keys, [0] * 1000 + [3] * 1000)
    assert release.table["key"].to_pylist() == keys
    assert release.table["count"].to_numpy().min() == 0 and release.table["weight"].to_numpy().min() < 0
    assert abs(release.estimate() - 3000) < 7 * math.sqrt(2000) * known_keys(0.5).deviation
    assert release.estimate(g=np.sqrt) >= 0
    later = np.arange(2000) >= 1000
    assert release.estimate(where=later) > release.estimate(where=~later)


def test_it_is_saved_and_made_again(tmp_path):
    release = known_keys(1.0, 1e-8, 30, 2, unit="one user").release(["tea", "mate"], [0, 1000])
    again = ds.Release.load(release.save(tmp_path / "published"))
    assert again.table.equals(release.table) and again.certificate == release.certificate
    assert "exact analysis of Gaussian noise" in str(again.certificate)


def test_a_promise_that_is_not_kept_is_not_certified():
    for made in (known_keys(1.0), known_keys(1.0, 1e-6, 40), known_keys(0.1, 1e-6, 5000)):
        made.__dict__["scale"] *= 0.99
        with pytest.raises(NotCertified):
            made.certify()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: known_keys(0.0), "epsilon"),
        (lambda: known_keys(1.0, 1.5), "delta"),
        (lambda: known_keys(1.0, noise="gaussian"), "delta"),
        (lambda: known_keys(1.0, noise="uniform"), "noise"),
        (lambda: known_keys(1.0, max_keys=0), "max_keys"),
        (lambda: known_keys(1e-7, max_keys=10_000, max_rows=1000), "epsilon"),
        (lambda: known_keys(1.0).release(["a"], [1, 2]), "length"),
        (lambda: known_keys(1.0).release(["a", "a"], [1, 2]), "more than once"),
        (lambda: known_keys(1.0).draw([-1]), "frequencies"),
    ],
)
def test_mistakes(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        wrong()
