"""Chapter 4 with any b and any budget: noise by the formulas, privacy by its definitions, errors as drawn."""

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

import dpsieve as ds
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.papers.thesis import lemma_4_2, preview_sum, private_sum

WIDTHS = np.array([4.0, 1.0, 0.25])
BOUNDS = [(0.0, width) for width in WIDTHS]
BUDGETS = [{"rho": 0.3}, {"mu": 0.7}, {"renyi": (6.0, 0.4)}, {"concentrated": (0.1, 0.9)}, {"concentrated": (5.0, 0.3)},
           {"epsilon": 0.8, "delta": 1e-5}]  # fmt: skip


def test_the_least_sigma_by_the_definition_of_each_notion():
    """Of the privacy loss between N(0, sigma^2) and N(1, sigma^2), by integration."""
    sigma = lemma_4_2(renyi=(6.0, 0.4))
    moment = integrate.quad(
        lambda x: math.exp(6 * stats.norm.logpdf(x, 0, sigma) - 5 * stats.norm.logpdf(x, 1, sigma)), -80, 80
    )[0]
    assert math.log(moment) / 5 == pytest.approx(0.4, rel=1e-6)
    for mean, deviation in ((0.1, 0.9), (5.0, 0.3)):
        sigma = lemma_4_2(concentrated=(mean, deviation))
        drawn = stats.norm.expect(lambda x, s=sigma: (1 - 2 * x) / (2 * s**2), scale=sigma)
        spread = math.sqrt(stats.norm.expect(lambda x, s=sigma: (-x / s**2) ** 2, scale=sigma))
        assert max(drawn / mean, spread / deviation) == pytest.approx(1, rel=1e-6)
    over = lambda s: stats.norm.cdf(0.5 / s - 0.8 * s) - math.exp(0.8) * stats.norm.cdf(-0.5 / s - 0.8 * s) - 1e-5  # noqa: E731
    assert lemma_4_2(epsilon=0.8, delta=1e-5) == pytest.approx(optimize.brentq(over, 0.5, 50, xtol=1e-12), rel=1e-6)
    assert lemma_4_2(mu=0.7) == pytest.approx(1 / 0.7) and lemma_4_2(rho=0.3) == pytest.approx(1 / math.sqrt(0.6))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_any_b_keeps_the_budget_exactly(budget):
    """Noise Delta_i sigma/b_i, with |b|_2 = 1, and the distance of neighbours as large as the budget allows."""
    b = np.array([0.9, 0.2, 0.6])
    noise, sigma = preview_sum(BOUNDS, b=b, noise="gaussian", **budget), lemma_4_2(**budget)
    np.testing.assert_allclose(noise.deviations, WIDTHS * sigma * np.linalg.norm(b) / b, rtol=1e-6)
    assert 1 / sigma * (1 - 1e-6) < noise.distance / noise.scale <= 1 / sigma * (1 + 1e-14)
    assert noise.certify().worst <= noise.guarantee.delta


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0])
def test_errors_of_any_b_and_of_the_best(p):
    """Lemmas 4.7 and 4.10 for random b; the b of Lemmas 4.8 and 4.11 has the least error, and is 'best'."""
    rng, rho, epsilon = np.random.default_rng(5), 0.4, 0.9
    best = preview_sum(BOUNDS, p=p, rho=rho).expected_error(p)
    best_pure = preview_sum(BOUNDS, p=p, epsilon=epsilon).expected_error(p)
    for _ in range(5):
        b = rng.uniform(0.1, 1.0, 3)
        two, one = b / np.linalg.norm(b), b / b.sum()
        gaussian = special.gamma((p + 1) / 2) / (rho ** (p / 2) * math.sqrt(math.pi)) * ((WIDTHS / two) ** p).sum()
        laplace = special.gamma(p + 1) / epsilon**p * ((WIDTHS / one) ** p).sum()
        assert preview_sum(BOUNDS, b=b, rho=rho).expected_error(p) == pytest.approx(gaussian, rel=1e-6)
        assert preview_sum(BOUNDS, b=b, epsilon=epsilon).expected_error(p) == pytest.approx(laplace, rel=1e-6)
        assert best <= gaussian * (1 + 1e-6) and best_pure <= laplace * (1 + 1e-6)
    for power, found, budget in ((p / (p + 2), best, {"rho": rho}), (p / (p + 1), best_pure, {"epsilon": epsilon})):
        assert preview_sum(BOUNDS, b=WIDTHS**power, **budget).expected_error(p) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_drawn_sums_have_the_previewed_noise(neighbours):
    rows = np.array([[4.0, -1.0, 0.1], [9.0, 2.0, 0.2], [1.0, 0.5, -0.3]])
    bounds, b = [(-1, 4), (-1, 1), (0.0, 0.25)], [0.3, 0.5, 0.2]
    how = {"bounds": bounds, "b": b, "mu": 0.8, "neighbours": neighbours}
    exact = np.clip(rows, *np.array(bounds).T).sum(axis=0)
    drawn = np.array([private_sum(rows, **how).value for _ in range(300)])
    noise = preview_sum(**how)
    error = noise.deviations / math.sqrt(300)
    assert (np.abs(drawn.mean(axis=0) - exact) < 6.2 * error + 1e-6).all()
    chi = ((drawn - exact) ** 2).sum(axis=0) / noise.deviations**2
    assert (stats.chi2.sf(chi, 300) > 1e-9).all() and (stats.chi2.cdf(chi, 300) > 1e-9).all()
    assert private_sum(rows, **how).guarantee.neighbours == neighbours


def test_it_is_charged_like_any_publication(tmp_path):
    book = ds.Ledger(tmp_path / "book", epsilon=5.0, delta=1e-5)
    total = private_sum([1.0, 2.0], bounds=(0, 2), mu=0.5, ledger=book, note="twice")
    assert len(book.history()) == 1 and isinstance(total.value, float) and total.last.rho == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"b": [1.0, 0.0, 1.0]}, "b"), ({"b": [1.0]}, "b"), ({"rho": 1.0}, "budget"), ({"mu": None}, "budget"),
     ({"mu": -1.0}, "mu"), ({"mu": None, "renyi": (1.0, 2.0)}, "renyi"), ({"mu": None, "renyi": 3}, "renyi"),
     ({"tau": 1.0}, "tau"), ({"bounds": [(0, 1)]}, "bounds"), ({"bounds": (1, 0)}, "bounds"),
     ({"mu": None, "epsilon": 1.0, "rho": 1.0}, "budget"), ({"shape": "round"}, "shape"),
     ({"neighbours": "x"}, "neighbours")],
)  # fmt: skip
def test_bad_input_is_named(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        private_sum(np.ones((2, 3)), **({"bounds": BOUNDS, "mu": 1.0} | wrong))
    with pytest.raises(InvalidValue, match="budget"):
        lemma_4_2(epsilon=1.0)
