"""Different guarantees together: spends, their sum, and the curve that is better than the sum."""

import itertools
import json
import math

import mpmath
import numpy as np
import pytest
from helpers.privacy_curves import repeated_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.accounting.composition import repeated_delta
from dpsieve.accounting.curves import gaussian_delta, gaussian_epsilon, zcdp_delta, zcdp_epsilon
from dpsieve.accounting.spends import spend_from_json
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.papers.thesis import fact_1_3 as basic
from dpsieve.privacy import Approximate, Composition, DiscreteLaplace, Gaussian, Renyi, ZeroConcentrated

SPENDS = [
    Approximate(0.5, 1e-9),
    Approximate(0.1, count=20),
    Gaussian(3.0, 2.0, count=4),
    DiscreteLaplace(4.0, 3, count=2),
    ZeroConcentrated(0.01, count=5),
    Renyi([2.0, 8.0], [0.03, 0.2], count=2),
]


def rounded_delta(parts, epsilon):
    """E[max(0, 1 - e^(epsilon - loss))] over all joint outcomes, with 60 digits; a part is [(loss, mass), ...]."""
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        for joint in itertools.product(*parts):
            loss, mass = mpmath.fsum(x for x, _ in joint), mpmath.fprod(m for _, m in joint)
            total += mass * max(0, 1 - mpmath.exp(mpmath.mpf(epsilon) - loss))
        return total


def response(epsilon):
    """The losses of randomised response."""
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        return [(e, 1 / (1 + mpmath.exp(-e))), (-e, 1 / (1 + mpmath.exp(e)))]


def laplace(scale, sensitivity, reach=160):
    """The losses of discrete Laplace noise up to so many scales, read off its masses at 0 and at the sensitivity."""
    with mpmath.workdps(60):
        b = mpmath.mpf(scale)
        r = mpmath.exp(-1 / b)
        return [
            ((abs(z - sensitivity) - abs(z)) / b, (1 - r) / (1 + r) * r ** abs(z))
            for z in range(-int(reach * b), int(reach * b) + sensitivity)
        ]


def test_a_list_of_spends_costs_less_than_its_sum():
    spends = [Approximate(0.1, 1e-9, count=50), DiscreteLaplace(20.0, count=20), DiscreteLaplace(5.0, 2)]
    total_epsilon, total_delta = basic(spends)
    assert total_epsilon == pytest.approx(6.4)
    assert total_delta == pytest.approx(5e-8)
    assert Composition(spends).epsilon(1e-6) == pytest.approx(3.6, abs=0.1)
    assert Composition(spends).delta(total_epsilon) <= total_delta


def test_nothing_spent():
    assert Composition([]).epsilon(0.0) == 0.0
    assert Composition([]).delta(0.0) == 0.0
    assert basic([]) == (0.0, 0.0)


def test_one_spend_costs_what_it_says():
    spend = Composition([Approximate(0.7, 1e-7)])
    assert spend.epsilon(1e-7) == 0.7
    assert spend.delta(0.7) == 1e-7
    assert spend.epsilon(0.99e-7) == math.inf


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 1.9, 2.2])
def test_different_spends_against_every_joint_outcome(epsilon):
    spends = [Approximate(0.2), Approximate(0.31), Approximate(1.0), Approximate(0.05, count=2), Approximate(1e-4)]
    exact = rounded_delta([response(e) for e in (0.2, 0.31, 1.0, 0.05, 0.05, 1e-4)], epsilon)
    ours = Composition(spends).delta(epsilon)
    assert exact <= ours <= exact * (1 + mpmath.mpf("1e-4")) + mpmath.mpf("1e-7")


@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_discrete_laplace_against_its_own_masses(sensitivity):
    for epsilon in (0.0, 0.1, 0.4, sensitivity / 2):
        exact = rounded_delta([laplace(2.0, sensitivity)], epsilon)
        ours = Composition([DiscreteLaplace(2.0, sensitivity)]).delta(epsilon)
        assert exact * (1 - mpmath.mpf("1e-30")) <= ours <= exact * (1 + mpmath.mpf("1e-11")) + mpmath.mpf("1e-60")


def test_discrete_laplace_of_a_huge_sensitivity_counts_as_pure():
    wide = Composition([DiscreteLaplace(1e6, 10**5)])
    assert wide.delta(0.05) == pytest.approx(repeated_delta(1, 0.05, each_epsilon=0.1, each_delta=0.0), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1.5), st.floats(0, 0.01)), min_size=1, max_size=6),
    st.floats(0, 4),
)
def test_never_below_the_truth_and_never_worse_than_basic(pairs, epsilon):
    spends = [Approximate(*pair) for pair in pairs]
    composition = Composition(spends)
    ours = composition.delta(epsilon)
    with mpmath.workdps(400):
        kept = mpmath.fprod(1 - mpmath.mpf(delta) for _, delta in pairs)
        parts = [response(e) for e, _ in pairs]
        exact = 1 - kept * (1 - rounded_delta(parts, epsilon))
        # Losses of 60 digits leave something over where they cancel.
        assert exact * (1 - mpmath.mpf("1e-40")) - mpmath.mpf("1e-55") <= ours
        # Six spends may each move by one step of the grid, 1 / 2^15 of their sum.
        nearby = epsilon - 2e-4 * sum(e for e, _ in pairs)
        assert ours <= (1 - kept * (1 - rounded_delta(parts, nearby))) * (1 + mpmath.mpf("1e-9")) + mpmath.mpf("1e-30")
    total_epsilon, total_delta = basic(spends)
    assert composition.delta(total_epsilon) <= total_delta
    assert composition.epsilon(total_delta) <= total_epsilon


@pytest.mark.parametrize("delta", [1e-6, 1e-12, 1e-20])
def test_equal_spends_meet_the_optimum(delta):
    ours = Composition([Approximate(0.1, 1e-24, count=60), Approximate(0.1, count=40)]).epsilon(delta)
    best = repeated_epsilon(100, delta - 60e-24, each_epsilon=0.1, each_delta=0.0)
    assert best * (1 - 1e-12) <= ours <= best * (1 + 1e-8)


def test_what_is_cut_off_is_given_back():
    # The largest losses are too rare to be kept: delta is then a little too large, not zero.
    cut = Composition([Approximate(0.1, count=1000)]).delta(99.0)
    assert repeated_delta(1000, 99.0, each_epsilon=0.1, each_delta=0.0) <= cut < 1e-30


def test_a_thousand_small_different_spends():
    # So close to each other that the optimum for equal ones is known to lie just below and just above.
    spends = Composition([Approximate(0.001 * (1 + 1e-8 * i)) for i in range(1000)])
    ours = spends.epsilon(1e-20)
    assert repeated_epsilon(1000, 1e-20, each_epsilon=0.001, each_delta=0.0) <= ours
    assert ours <= 1.0001 * repeated_epsilon(1000, 1e-20, each_epsilon=0.00100001, each_delta=0.0)


def test_gaussians_are_one_gaussian():
    spends = Composition([Gaussian(5.0), Gaussian(7.0, 2.0, count=3)])
    mu = math.sqrt(1 / 25 + 3 * 4 / 49)
    for delta in (1e-5, 1e-20):
        assert spends.epsilon(delta) == pytest.approx(gaussian_epsilon(1.0, delta, mu), rel=1e-13)


@pytest.mark.parametrize("epsilon", [0.0, 2.0, 6.0])
def test_a_gaussian_and_others(epsilon):
    # The mixture of the Gaussian's exact curve over the losses of the others, in 60 digits.
    parts = [response(0.3), response(0.8), laplace(3.0, 2, reach=50)]
    ours = Composition([Approximate(0.3), Gaussian(1.5), Approximate(0.8), DiscreteLaplace(3.0, 2)]).delta(epsilon)
    with mpmath.workdps(60):
        mu, exact = 1 / mpmath.mpf(1.5), mpmath.mpf(0)
        for (x, p), (y, q), (z, r) in itertools.product(*parts):
            e = mpmath.mpf(epsilon) - x - y - z
            first, second = mpmath.ncdf(mu / 2 - e / mu), mpmath.ncdf(-mu / 2 - e / mu)
            exact += p * q * r * (first - mpmath.exp(e) * second)
        assert exact <= ours <= exact * (1 + mpmath.mpf("1e-5"))


def test_dp_accounting_agrees():
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = 1e-4
    theirs = pld.from_gaussian_mechanism(4.0, value_discretization_interval=step)
    theirs = theirs.compose(pld.from_discrete_laplace_mechanism(0.25, 2, value_discretization_interval=step))
    for epsilon in (0.2, 0.35, 0.35, 0.35):
        parameters = common.DifferentialPrivacyParameters(epsilon, 1e-8)
        theirs = theirs.compose(pld.from_privacy_parameters(parameters, step))
    ours = Composition(
        [Gaussian(4.0), DiscreteLaplace(4.0, 2), Approximate(0.2, 1e-8), Approximate(0.35, 1e-8, count=3)]
    )
    for epsilon in (0.1, 1.0, 2.0):
        assert ours.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=1e-3)
        # Theirs rounds losses up to the step; ours is closer to the truth.
        assert ours.delta(epsilon) <= theirs.get_delta_for_epsilon(epsilon) * (1 + 1e-6)


def test_zcdp_alone_adds_up():
    spends = Composition([ZeroConcentrated(0.01, count=5), ZeroConcentrated(0.05)])
    assert spends.epsilon(1e-6) == pytest.approx(zcdp_epsilon(0.1, 1e-6), rel=1e-12)
    assert spends.delta(2.0) == pytest.approx(zcdp_delta(0.1, 2.0), rel=1e-12)


@pytest.mark.parametrize("others", [[Approximate(1.0, 1e-9)], [Approximate(0.1, 1e-9, count=30)], [Gaussian(2.0)]])
@pytest.mark.parametrize("rho", [0.001, 0.1])
def test_zcdp_with_others_is_sound_and_better_than_either_way(rho, others):
    delta, whole = 1e-6, Composition([ZeroConcentrated(rho), *others])
    ours = whole.epsilon(delta)
    # Better than halving delta and adding the epsilons.
    assert ours <= zcdp_epsilon(rho, delta / 2) + Composition(others).epsilon(delta / 2)
    # A Gaussian is one of the rho-zCDP mechanisms, so the bound for all of them lies above.
    assert ours >= Composition([Gaussian(1 / math.sqrt(2 * rho)), *others]).epsilon(delta)
    assert whole.delta(ours) <= delta * 1.001


def test_delta_falls_with_epsilon():
    curve = Composition(SPENDS)
    deltas = [curve.delta(epsilon) for epsilon in (0.0, 12.0)]
    assert deltas == sorted(deltas, reverse=True)
    assert 0.5 < deltas[0] < 1
    assert deltas[-1] < 1e-5


def test_epsilon_and_delta_are_inverse():
    curve = Composition(SPENDS[:4])
    epsilon = curve.epsilon(1e-8)
    assert curve.delta(epsilon) <= 1e-8 < curve.delta(epsilon * (1 - 1e-9))


def test_many_leaks_stay_below_one():
    assert basic([Approximate(0.1, 0.4, count=3)])[1] == pytest.approx(1 - 0.6**3)
    assert Composition([Approximate(0.1, 0.4, count=3)]).delta(1.0) == pytest.approx(1 - 0.6**3)


def test_spends_survive_json():
    for spend in SPENDS:
        assert spend_from_json(json.loads(json.dumps(spend.to_json()))) == spend


def test_numbers_become_plain_so_that_json_can_hold_them():
    spend = Approximate(np.float64(0.5), np.float32(0.25), count=np.int64(3))
    assert json.dumps(spend.to_json()) == '{"kind": "approximate", "epsilon": 0.5, "delta": 0.25, "count": 3}'


@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        [],
        {},
        {"kind": "laplace"},
        {"kind": ["gaussian"]},
        {"kind": "gaussian", "sensitivity": 1.0},
        {"kind": "approximate", "x": 1},
    ],
)
def test_json_that_is_not_a_spend_is_refused(data):
    with pytest.raises(DpsieveError, match=r"^data "):
        spend_from_json(data)


BAD_POSITIVE = [0, 0.0, -1.0, math.nan, math.inf, "1", None, True, 10**400]
BAD_EPSILON = [-1.0, math.nan, math.inf, "1", None, True, 501, 10**400]
BAD_DELTA = [-1e-9, 1.0, 2.0, math.nan, math.inf, "1e-6", None, False]
BAD_COUNT = [0, -1, 1.0, math.nan, "2", None, True, 10**400]


@pytest.mark.parametrize(
    ("call", "name", "values"),
    [
        (lambda bad: Approximate(bad, 0.0), "epsilon", BAD_EPSILON),
        (lambda bad: Approximate(1.0, bad), "delta", BAD_DELTA),
        (lambda bad: Approximate(1.0, 0.0, count=bad), "count", BAD_COUNT),
        (lambda bad: Gaussian(bad), "sigma", BAD_POSITIVE),
        (lambda bad: Gaussian(1.0, bad), "sensitivity", BAD_POSITIVE),
        (lambda bad: Gaussian(1.0, count=bad), "count", BAD_COUNT),
        (lambda bad: DiscreteLaplace(bad), "scale", [1e-3, *BAD_POSITIVE]),
        (lambda bad: DiscreteLaplace(1.0, bad), "sensitivity", BAD_COUNT),
        (lambda bad: DiscreteLaplace(1.0, count=bad), "count", BAD_COUNT),
        (lambda bad: ZeroConcentrated(bad), "rho", BAD_POSITIVE),
        (lambda bad: ZeroConcentrated(0.1, count=bad), "count", BAD_COUNT),
        (lambda bad: Composition(SPENDS).delta(bad), "epsilon", BAD_EPSILON),
        (lambda bad: Composition(SPENDS).epsilon(bad), "delta", BAD_DELTA),
        (lambda bad: Composition(bad), "spends", [None, 3, "ab", [None], [(0.5, 1e-6)], SPENDS[0]]),
        (lambda bad: basic(bad), "spends", [None, 3, "ab", [None], [(0.5, 1e-6)]]),
    ],
)
def test_bad_parameters_are_named_with_a_fix(call, name, values):
    for bad in values:
        with pytest.raises(DpsieveError, match=rf"^{name}.*Pass "):
            call(bad)


@pytest.mark.parametrize("spend", [Gaussian(1.0), ZeroConcentrated(0.1), Renyi([2.0], [0.1])])
def test_basic_needs_an_epsilon(spend):
    with pytest.raises(InvalidValue, match=r"spends holds one without a single epsilon. Use Composition"):
        basic([Approximate(0.1), spend])


def test_spends_are_values():
    with pytest.raises(AttributeError):
        SPENDS[0].epsilon = 0.0
    with pytest.raises(InvalidType):
        Composition(5)


@pytest.mark.parametrize(
    "spends",
    [
        [Approximate(500.0, count=10**6), Approximate(499.0)],
        [Approximate(1e-300, count=10**6), Approximate(2e-300)],
        [Approximate(1e-300, count=10**6), Approximate(2.0)],
        [Gaussian(1e-308, 1e308), Gaussian(1e308, 1e-308), Approximate(0.1)],
        [Gaussian(1e308, 1e-308), Approximate(0.1)],
        [DiscreteLaplace(1e300, 10**9, count=10**6), DiscreteLaplace(0.002), ZeroConcentrated(1e6, count=10**6)],
        [Approximate(0.0, 0.5, count=10**6), ZeroConcentrated(1e-300)],
    ],
)
def test_extreme_spends(spends):
    curve = Composition(spends)
    assert 0.0 <= curve.delta(1.0) <= curve.delta(0.0) <= 1.0
    assert 0.0 <= curve.epsilon(1e-6) <= curve.epsilon(0.0)


def test_tiny_noise_promises_nothing():
    assert gaussian_delta(0.001, 1.0) == Composition([Gaussian(0.001)]).delta(1.0) == 1.0
