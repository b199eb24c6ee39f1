"""Discrete Laplace and Gaussian noise against their exact probabilities, at every scale and on every path."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.statistical import assert_cdf, assert_follows
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpsieve.errors import DpsieveError
from dpsieve.exact.balls import precision
from dpsieve.randomness import discrete_gaussian, discrete_laplace, noise, rounded_gaussian
from dpsieve.randomness.noise import Gaussian, Laplace, NoiseSampler, RoundedGaussian, laplace_scale
from dpsieve.randomness.source import SystemSource
from dpsieve.testing import insecure_source

DRAWS = 400_000


def laplace_cdf(scale):
    """P[X <= k]: p^-k / (1 + p) below zero, 1 - p^(k+1) / (1 + p) from zero on."""
    p = math.exp(-1 / scale)
    return lambda k: math.exp(k / scale) / (1 + p) if k < 0 else 1 - math.exp(-(k + 1) / scale) / (1 + p)


def gaussian_weights(sigma, reach):
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * sigma**2))
    return x, weights / weights.sum()


def gaussian_cdf(sigma):
    """For wide sigma the sum is an integral to 1e-8 relative, with the midpoint rule."""
    return lambda k: special.ndtr((k + 0.5) / sigma)


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 3.7, 10.0, 127.9, 128.0, 1000.0, 54321.0, 1e6, 1e9])
def test_laplace_follows_its_distribution(scale):
    draws = discrete_laplace(scale, DRAWS)
    edges = np.unique(np.round(np.quantile(draws, np.linspace(0.0005, 0.9995, 800))).astype(np.int64))
    assert_cdf(discrete_laplace(scale, DRAWS), edges, laplace_cdf(scale))


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 3.7, 10.0, 127.9])
def test_narrow_gaussian_follows_its_distribution(sigma):
    x, probabilities = gaussian_weights(sigma, math.ceil(40 * sigma))
    assert_follows(discrete_gaussian(sigma, DRAWS), x, probabilities)


@pytest.mark.parametrize("sigma", [128.0, 1000.0, 54321.0, 1e6, 1e9])
def test_wide_gaussian_follows_its_distribution(sigma):
    edges = np.round(sigma * special.ndtri(np.linspace(0.0005, 0.9995, 800))).astype(np.int64)
    assert_cdf(discrete_gaussian(sigma, DRAWS), edges, gaussian_cdf(sigma))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 3.7, 100.0, 800.0, 801.0, 54321.0, 2.0**29])
def test_rounded_gaussian_follows_its_distribution(sigma):
    edges = np.unique(np.round(sigma * special.ndtri(np.linspace(0.0005, 0.9995, 400))).astype(np.int64))
    assert_cdf(rounded_gaussian(sigma, DRAWS), edges, gaussian_cdf(sigma))


@pytest.mark.parametrize("draw", [discrete_laplace, discrete_gaussian, rounded_gaussian])
def test_the_smallest_scale_adds_nothing_that_anyone_could_see(draw):
    assert not draw(0.001, 10_000).any()


def force(monkeypatch, shape, *, exact):
    """Send every draw through the slow path; with `exact`, every decision there through ball arithmetic."""
    sampler = NoiseSampler(shape)
    sampler._keep[:] = 0
    if exact:
        monkeypatch.setattr(noise, "_MARGIN", 10.0)
    return sampler


@pytest.mark.parametrize(("exact", "count"), [(False, 200_000), (True, 4_000)])
def test_the_slow_paths_draw_the_same_distribution(monkeypatch, exact, count):
    """Scale 300 has cells of 4 integers, so each residue modulo 4 shows how the slow path keeps or rejects."""
    laplace = force(monkeypatch, Laplace(300.0), exact=exact).draw(count, SystemSource())
    assert_cdf(laplace, np.arange(-900, 900, 7), laplace_cdf(300.0))
    gaussian = force(monkeypatch, Gaussian(300.0), exact=exact).draw(count, SystemSource())
    assert_cdf(gaussian, np.arange(-700, 700, 7), gaussian_cdf(300.0))
    rounded = force(monkeypatch, RoundedGaussian(300.0), exact=exact).draw(count, SystemSource())
    assert_cdf(rounded, np.arange(-700, 700, 7), lambda k: special.ndtr((k + 0.5) / 300.0))


@pytest.mark.parametrize("scale", [64.0, 801.0, 2.0**20, 1e9])
def test_the_float_weights_of_rounded_gaussian_noise_are_within_their_slack(scale):
    """Against ball arithmetic: what floats say of the ratio of two weights is never too high, and hardly too low."""
    real, rounded = Gaussian(scale), RoundedGaussian(scale)
    for x, base in [(10, 0), (int(scale), int(0.9 * scale)), (int(8 * scale), int(7.99 * scale))]:
        with precision(256):
            told = real.exponent(x) - real.exponent(base)
            true = rounded.exponent(x) - rounded.exponent(base)
            assert true < told
            assert told - true < told * rounded.slack / 2


def test_cells_near_zero_and_across_the_sign():
    """Every single integer around zero, where the cells of the two signs meet."""
    draws = discrete_laplace(300.0, 2_000_000)
    p = math.exp(-1 / 300.0)
    values = np.arange(-40, 41)
    assert_follows(draws, values, (1 - p) / (1 + p) * p ** np.abs(values))


@pytest.mark.parametrize(
    "shape", [Laplace(2.0), Gaussian(2.0), Laplace(5000.0), Gaussian(5000.0), RoundedGaussian(5000.0)]
)
def test_tails_reach_beyond_the_table(shape):
    """U below 2^-64 falls left of all table entries and is refined to a value further out, above 2^-64 to the right."""
    sampler = NoiseSampler(shape)
    ends = np.array([0, 2**64 - 1], np.uint64)
    low, high = sampler._table.search(ends, SystemSource()) * (1 << sampler._bits)
    depth = 64 * math.log(2) if isinstance(shape, Laplace) else math.sqrt(2 * 64 * math.log(2))
    for x in (-low, high):
        assert 0.8 * depth < x / shape.scale < 3 * depth


@given(st.floats(1e-3, 50.0), st.integers(1, 1000))
def test_the_scale_for_a_budget_is_the_least_float_that_is_enough(epsilon, sensitivity):
    scale = laplace_scale(epsilon, sensitivity)
    assert Fraction(scale) * Fraction(epsilon) >= sensitivity
    assert Fraction(math.nextafter(scale, 0.0)) * Fraction(epsilon) < sensitivity


def test_draws_repeat_under_a_test_source():
    for draw in (discrete_laplace, discrete_gaussian):
        for scale in (1.0, 1e5):
            first = draw(scale, 50_000, source=insecure_source(3))
            assert (first == draw(scale, 50_000, source=insecure_source(3))).all()
            assert first.dtype == np.int64


@pytest.mark.parametrize(("draw", "name"), [(discrete_laplace, "scale"), (discrete_gaussian, "sigma")])
def test_bad_parameters(draw, name):
    for bad in (0, -1.0, math.nan, math.inf, "1", None, 1e-4, 1e10, 10**400, True, [1.0]):
        with pytest.raises(DpsieveError, match=name):
            draw(bad, 10)
    for bad in (-1, 1.5, "10", None, 2**50):
        with pytest.raises(DpsieveError, match="size"):
            draw(1.0, bad)
    with pytest.raises(DpsieveError, match="source"):
        draw(1.0, 10, source=np.random.default_rng())
    assert len(draw(1.0, 0)) == 0
