"""What comes before and after a product of coins with weights, recomputed from definitions."""

import math

import numpy as np
import pytest
from scipy.special import expit, ndtr, ndtri

from dpsieve.accounting.curves import gaussian_curve, gaussian_delta
from dpsieve.accounting.products import (
    LossLaw,
    absent,
    exposure,
    gaussian_number,
    largest_mu,
    pure_mu,
    raised_by_range,
    split,
    steepest,
)
from dpsieve.channels import optimal
from dpsieve.discovery.renyi import two_rounds
from dpsieve.discovery.selector import TypicalSize
from dpsieve.errors import NotCertified
from dpsieve.privacy.mechanism import Composed, Use, from_json

# Two coins, each with a weight: (P reports, Q reports, weight squared).
MIXES = [
    [(0.3, 0.2, 0.25)] * 4,
    [(0.3, 0.2, 0.4), (0.02, 0.012, 0.1), (0.9, 0.94, 0.3)],
    [(0.6, 0.35, 0.7), (0.5, 0.48, 0.05), (0.5, 0.48, 0.05)],
    [(0.1, 0.05, 1 / 3)] * 2,
]


def transform(p, q, z):
    return p * np.exp(z * math.log(p / q)) + (1 - p) * np.exp(z * math.log((1 - p) / (1 - q)))


def product_delta(mix, epsilon):
    ours, theirs = np.ones(1), np.ones(1)
    for p, q, _ in mix:
        ours, theirs = np.outer(ours, [p, 1 - p]).ravel(), np.outer(theirs, [q, 1 - q]).ravel()
    return float(np.maximum(0.0, ours - math.exp(epsilon) * theirs).sum())


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("epsilon", [0.3, 0.8])
@pytest.mark.parametrize("a", [2.0, 5.0])
def test_no_product_costs_more_than_the_geometric_mean_of_its_numbers(mix, epsilon, a):
    """Weights whose squares are no fractions 1/m, and a sum below one: what is missing counts with M = 1."""
    c = math.sqrt(a * (a + 1))
    z = a + 1j * c * np.tan((np.arange(50_000) + 0.5) * (math.pi / 2 / 50_000))
    start = math.exp(-a * epsilon) / (2 * c)
    logs = [w2 * math.log(start * np.mean(np.abs(transform(p, q, z)) ** (1 / w2))) for p, q, w2 in mix]
    missing = 1 - sum(w2 for *_, w2 in mix)
    assert missing > -1e-9
    bound = math.exp(sum(logs) + missing * math.log(start))
    assert product_delta(mix, epsilon) <= bound * (1 + 1e-6)
    assert absent(epsilon, a) == pytest.approx(start, rel=1e-6)


@pytest.mark.parametrize(("power", "mu"), [(13.0, 0.085), (13.0, 0.3), (120.0, 0.008), (3.0, 0.5)])
def test_exposure_is_the_mean_of_the_larger_of_both(power, mu):
    leak, rest = split(power, 1e-5, mu)
    z = np.linspace(-12, 12 + power * mu, 400_001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    larger = np.maximum(leak, np.exp(power * (mu**2 / 2 + mu * z)) * rest)
    mean = float(np.trapezoid(larger * density, z))
    assert mean <= exposure(power, leak, rest, mu) * (1 + 1e-9) <= 1e-5
    assert mean == pytest.approx(1e-5, rel=1e-5)
    growth = math.exp(power * (power + 1) * mu**2 / 2)
    assert max(leak, growth * rest) < mean < leak + growth * rest
    assert exposure(power, 1e-5, 2e-6, 0.0) == pytest.approx(1e-5)


@pytest.mark.parametrize(("power", "mu", "share"), [(13.0, 0.054, 0.4), (23.0, 0.3, 0.15), (3.0, 0.5, 0.9)])
def test_only_the_share_of_pairs_can_be_sent_where_it_leaks(power, mu, share):
    """The best rule after a look, by integration: pairs may change with the look, the t of what follows may not."""
    leak, rest = split(power, 1e-5, mu, share)
    z = np.linspace(-12, 12 + power * mu, 400_001)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    x = np.exp(power * (mu**2 / 2 + mu * z))
    after = max(float(np.trapezoid((t * leak + (1 - t) * x * rest) * density, z)) for t in (0.0, 0.3, 1.0))
    worst = share * float(np.trapezoid(np.maximum(leak, x * rest) * density, z)) + (1 - share) * after
    assert worst <= exposure(power, leak, rest, mu, share) * (1 + 1e-9) <= 1e-5
    assert worst == pytest.approx(1e-5, rel=1e-5)
    assert rest > split(power, 1e-5, mu)[1]
    assert exposure(power, 1e-4, rest, mu, share) >= 1e-4  # leaks of what follows count as well


@pytest.mark.parametrize(("mu", "share"), [(0.25, 1.0), (0.2, 0.6), (0.05, 0.3)])
def test_gaussian_noise_by_formula_and_as_a_law(mu, share):
    whole = mu / math.sqrt(share)
    number = gaussian_number(mu, share, 1.0, 13.0)
    assert gaussian_delta(1 / whole, 1.0) <= number < 4 * gaussian_delta(1 / whole, 1.0) + 2e-7
    low, grid = -1500, 0.002
    law = LossLaw.of_curve(low, grid, gaussian_curve(np.arange(low, -low + 1) * grid, mu))
    for one in (law, law.reversed()):
        assert number <= one.number(share, 1.0, 13.0) * (1 + 1e-6) <= number * 1.02
    most = largest_mu(1e-6, share, 1.0, 13.0)
    assert gaussian_number(most, share, 1.0, 13.0) <= 1e-6 < gaussian_number(most * 1.001, share, 1.0, 13.0)


@pytest.mark.parametrize("loss_range", [0.01, 0.5, 2.0, 8.0])
def test_a_range_of_losses_is_gaussian_private(loss_range):
    """All pairs of coins whose log-odds differ by the range, at all epsilons: no curve is above the Gaussian's."""
    mu, middles = pure_mu(loss_range), np.linspace(-12, 12, 241)
    p, q = expit(middles + loss_range / 2), expit(middles - loss_range / 2)
    assert (ndtri(p) - ndtri(q)).max() <= mu
    epsilons = np.linspace(-loss_range, loss_range, 41)
    curves = np.maximum(0, p - np.exp(epsilons)[:, None] * q) + np.maximum(
        0, (1 - p) - np.exp(epsilons)[:, None] * (1 - q)
    )
    assert (curves.max(axis=1) <= gaussian_curve(epsilons, mu) * (1 + 1e-9) + 1e-15).all()
    for way in (p, q):
        assert way.min() > 0
    assert float(ndtr(mu / 2)) == pytest.approx(expit(loss_range / 2))


@pytest.mark.parametrize(("loss_range", "steepness"), [(0.01, 23.0), (0.02, 40.0), (0.5, 3.0)])
def test_a_choice_before_steep_mechanisms(loss_range, steepness):
    """The worst of all pairs in the range, before a curve that is flat above epsilon and as steep as allowed below."""
    factor = raised_by_range(loss_range, steepness)
    worst = 0.0
    for t in np.linspace(0, loss_range, 4001):
        p = math.expm1(t - loss_range) / math.expm1(-loss_range)
        losses = [(p, t), (1 - p, t - loss_range)]
        assert sum(chance * math.exp(-loss) for chance, loss in losses) == pytest.approx(1.0)  # Q is a distribution
        worst = max(worst, sum(chance * max(1.0, math.exp(steepness * loss)) for chance, loss in losses))
    assert worst <= factor <= 1.01 * worst


def test_a_median_before_a_selection_is_paid_for_by_a_factor():
    median = TypicalSize(0.01, 20)
    delta = median.delta_left(1.0, 1e-5)
    assert delta == pytest.approx(1e-5 / raised_by_range(0.01, steepest(1.0, 1e-5)))
    assert 0.93e-5 < delta < 0.96e-5
    selector = two_rounds(1.0, delta, 20, typical_keys=4)
    whole = Composed(1.0, 1e-5, (Use(median), Use(selector)))
    part = whole.certify().parts[-1]
    assert part.method == "formula" and "raises delta" in part.covers and 0.999e-5 < part.worst <= 1e-5
    assert from_json(whole.to_json()) == whole
    for other in (two_rounds(1.0, 1e-5, 20, typical_keys=4), optimal(1.0, delta)):  # too large a delta; not steep
        with pytest.raises(NotCertified):
            Composed(1.0, 1e-5, (Use(median), Use(other)))
    with pytest.raises(NotCertified):
        Composed(1.0, 1e-5, (Use(TypicalSize(0.02, 20)), Use(selector)))
    with pytest.raises(NotCertified):
        Composed(0.999, 1e-5, (Use(median), Use(selector)))


def test_pure_mechanisms_compose_as_before():
    pair = Composed(0.04, 0.0, (Use(TypicalSize(0.01, 20)), Use(TypicalSize(0.02, 20))))
    assert pair.certify().worst == 0.0


def test_steepness_is_that_of_exact_curves():
    """At epsilon - t the exact delta of searched units grows by less than e^(power t)."""
    from dpsieve.discovery.renyi import renyi_selection

    selection = renyi_selection(1.0, 1e-5, 20, typical_keys=8)
    weight = selection.weight.of_keys(8)[-1]
    for t in (0.02, 0.1, 0.3):
        for h in range(0, selection.table.last, selection.table.last // 40):
            p, q = selection.table.probability(np.array([h + weight, h]))
            k = np.arange(9)
            ours, theirs = ([math.comb(8, i) * x**i * (1 - x) ** (8 - i) for i in k] for x in (p, q))
            delta = np.maximum(0, np.array(ours) - math.exp(1 - t) * np.array(theirs)).sum()
            assert delta <= 1e-5 * math.exp(selection.steepness * t)
