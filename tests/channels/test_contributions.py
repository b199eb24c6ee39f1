"""Units that hold several keys, or several rows of a key."""

import itertools
import json
from pathlib import Path

import mpmath
import numpy as np
import pytest
from helpers.privacy_curves import divergence
from helpers.statistical import binomial_band

from dpsieve.accounting.curves import gaussian_delta
from dpsieve.accounting.loss_distributions import joint_divergence
from dpsieve.channels import gaussian, optimal, rows_of_units, simple
from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.noise.gaussian_threshold import gaussian_threshold, gaussian_threshold_delta, unit_divergences
from dpsieve.privacy import Composition
from dpsieve.privacy.mechanism import from_json

ROWS = json.loads((Path(__file__).parents[1] / "vectors" / "gaussian_threshold.json").read_text())["rows"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} keys, {row[1]}, {row[2]}")
def test_reference_numbers(row):
    """The exact delta of a given pair, and a gap at least as low as the best that was known."""
    keys, epsilon, delta, sigma, gap, exact, _, best_gap, *_ = row
    assert gaussian_threshold_delta(epsilon, sigma, gap, keys) == pytest.approx(exact, rel=1e-8)
    found_sigma, found_gap = gaussian_threshold(epsilon, delta, keys)
    assert found_gap <= best_gap * (1 + 1e-6)
    assert gaussian_threshold_delta(epsilon, found_sigma, found_gap, keys) <= delta


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-2), (0.5, 1e-4)])
def test_two_keys_by_enumeration(epsilon, delta):
    """All pairs of changes (a new key, a known key), both ways, on the integers: at most delta, and nearly reached."""
    channel = gaussian(epsilon, delta, max_keys=2)
    worst = 0.0
    for (p, q), (r, s) in itertools.product(channel.rows.pairs(), repeat=2):
        worst = max(worst, joint_divergence((p, q), (r, s), epsilon), joint_divergence((q, p), (s, r), epsilon))
    assert 0.9 * delta < worst <= delta


@pytest.mark.parametrize("keys", [1, 5])
def test_with_a_threshold_far_away_it_is_the_gaussian_mechanism(keys):
    """A key that one unit alone holds never shows then, and the noise costs what it costs without a threshold."""
    expected = gaussian_delta(2.0, 1.0, count=keys)
    assert gaussian_threshold_delta(1.0, 2.0, 60.0, keys) == pytest.approx(expected, rel=1e-8)


def exact_terms(epsilon, sigma, gap, keys):
    """The divergence for each number j of keys that no other unit holds, in both directions, by numeric integration.

    The j keys stay silent together with probability s; the others are a Gaussian whose mean the unit moves by mu.
    """
    up, down = [], []
    with mpmath.workdps(30):
        factor = mpmath.exp(epsilon)
        for j in range(keys + 1):
            s, mu = mpmath.ncdf(mpmath.mpf(gap) / sigma) ** j, mpmath.sqrt(keys - j) / sigma
            if mu == 0:
                up.append(1 - s + max(0, s - factor))
                down.append(max(0, 1 - factor * s))
                continue
            higher = (
                mu / 2 + mpmath.log(factor / s) / mu
            )  # where the unit's density times s is above factor times the other
            lower = mu / 2 - mpmath.log(factor * s) / mu
            over = mpmath.quad(
                lambda x, s=s, mu=mu: s * mpmath.npdf(x - mu) - factor * mpmath.npdf(x),
                [higher, higher + 5, higher + 40],
            )
            under = mpmath.quad(
                lambda x, s=s, mu=mu: mpmath.npdf(x) - factor * s * mpmath.npdf(x - mu), [lower - 40, lower - 5, lower]
            )
            up.append(1 - s + over)
            down.append(under)
    return [float(x) for x in up], [float(x) for x in down]


@pytest.mark.parametrize(
    ("epsilon", "sigma", "gap", "keys"),
    [(10.0, 1.0, 3.0, 5), (6.0, 1.5, 7.0, 9), (1.0, 2.0, 5.0, 4), (1.0, 3.0, 20.0, 4)],
)
def test_the_exact_guarantee_by_integration(epsilon, sigma, gap, keys):
    """Term by term: the first rows are decided by a unit alone with its keys, the last by one without keys of its own.

    No parameters are known at which a unit with some keys of its own decides, so the largest term says little.
    """
    up, down = exact_terms(epsilon, sigma, gap, keys)
    added, removed = unit_divergences(epsilon, sigma, gap, keys)
    assert added == pytest.approx(up, rel=1e-8) and removed == pytest.approx(down[:keys], rel=1e-8)
    assert gaussian_threshold_delta(epsilon, sigma, gap, keys) == pytest.approx(max(up + down), rel=1e-8)


def test_the_rate_of_a_unit_whose_keys_nobody_else_holds():
    """A unit with five keys of its own: any of them appears with probability delta at most."""
    channel, units = gaussian(1.0, 0.01, max_keys=5), 300_000
    shown = (channel.draw(np.ones(5 * units, np.int64)).tokens.reshape(units, 5) > 0).any(axis=1).sum()
    chance = 1 - (1 - channel.reporting_probability([1])[0]) ** 5
    low, high = binomial_band(units, chance)
    assert low <= shown <= high and chance <= 0.01


@pytest.mark.parametrize(("rows", "delta"), [(1, 0.01), (4, 0.01), (7, 0.001)])
def test_rows_of_units_keep_every_step(rows, delta):
    """Enumeration: rows i and i + s for every step s up to the bound, from frequency zero on."""
    channel = rows_of_units(0.5, delta, rows)
    last = 6 * rows
    edges = channel.rows.cell_edges(0, last + rows)
    masses = channel.rows.cell_probabilities(np.arange(1, last + rows + 1), edges)
    table = np.vstack([np.eye(1, masses.shape[1] + 1), np.column_stack([1 - masses.sum(axis=1), masses]).clip(0, 1)])
    for i, step in itertools.product(range(last), range(1, rows + 1)):
        assert divergence(table[i], table[i + step], 0.5) <= delta * (1 + 1e-9)
    assert channel.certify().worst == pytest.approx(delta, rel=1e-6)
    assert channel.reporting_probability([rows])[0] == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("rows", [1, 7])
def test_the_rate_of_a_unit_with_all_its_rows_in_one_key(rows):
    """The tightest point of counted rows: a key that one unit alone holds, as often as it may."""
    low, high = binomial_band(1_000_000, 0.01)
    assert low <= (rows_of_units(0.5, 0.01, rows).draw(np.full(1_000_000, rows)).tokens > 0).sum() <= high


def test_a_larger_step_than_promised_is_refused():
    channel = rows_of_units(0.5, 0.01, 4)
    channel.rows.step = 5
    with pytest.raises(NotCertified):
        channel.certify()


def test_one_row_is_the_simple_channel():
    i = np.arange(1, 100)
    assert (rows_of_units(1.0, 1e-6, 1).reporting_probability(i) == simple(1.0, 1e-6).reporting_probability(i)).all()


def test_channels_survive_json():
    for channel in (gaussian(1.0, 1e-6, 3, 2), rows_of_units(1.0, 1e-6, 4), optimal(1.0, 1e-6, unit="one user")):
        again = from_json(json.loads(json.dumps(channel.to_json())))
        assert again.certify() == channel.certify() and again.guarantee == channel.guarantee
    for bad in (
        {},
        {"mechanism": "other"},
        {"mechanism": "optimal", "colour": 1},
        None,
        {"mechanism": "optimal", "epsilon": 1},
    ):
        with pytest.raises(DpsieveError):
            from_json(bad)


@pytest.mark.parametrize(("keys", "rows"), [(1, 1), (3, 1), (10, 2), (100, 1)])
@pytest.mark.parametrize("budget", [(1.0, 1e-5), (0.3, 1e-8), (3.0, 0.01)])
def test_what_a_unit_spends_dominates_the_exact_curve(keys, rows, budget):
    """The composition of the Gaussian and the leak is above the exact delta at every epsilon, and not far above it."""
    channel = gaussian(*budget, keys, rows)
    spent = Composition(channel.spends())
    for epsilon in (0.0, 0.1, 0.5 * budget[0], budget[0], 2 * budget[0]):
        exact = gaussian_threshold_delta(epsilon, channel.sigma / rows, channel.threshold / rows - 1, keys)
        assert exact * (1 - 1e-6) <= spent.delta(epsilon)
    assert spent.delta(budget[0]) <= 2 * budget[1]


def test_bad_bounds():
    for bad in (0, -1, 1.5, "2", None, True, 10**9):
        with pytest.raises(DpsieveError, match="max_keys"):
            gaussian(1.0, 1e-6, bad)
        with pytest.raises(DpsieveError, match="max_rows"):
            rows_of_units(1.0, 1e-6, bad)


@pytest.mark.parametrize(
    ("epsilon", "delta", "keys"), [(5.0, 0.5, 1), (10.0, 0.1, 1), (15.0, 1e-3, 1), (25.0, 1e-12, 2), (1.0, 0.999, 1)]
)
def test_gaussian_at_extreme_budgets(epsilon, delta, keys):
    channel = gaussian(epsilon, delta, keys)
    assert channel.certify().worst <= delta and channel.reporting_probability([1])[0] <= delta


def test_the_curve_is_that_of_a_whole_unit():
    channel = gaussian(1.0, 1e-5, 10)
    assert 0.9e-5 < channel.delta(1.0) <= 1e-5 and channel.delta(0.5) > 1e-4
    for several in (channel, rows_of_units(1.0, 1e-6, 10)):
        with pytest.raises(DpsieveError, match="replace"):
            several.delta(1.0, "replace")


def test_a_gaussian_that_was_saved_is_made_from_its_own_numbers():
    """Another machine may find another optimum in the last digit; what was saved must still be what was drawn from."""
    saved = gaussian(1.0, 1e-6, 3).to_json()
    saved["threshold"] *= 1 + 1e-12
    assert from_json(saved).threshold == saved["threshold"]
    saved["threshold"] *= 0.9
    with pytest.raises(DpsieveError, match="threshold"):
        from_json(saved)
