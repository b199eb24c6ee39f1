"""What is in the rows: reference numbers, closed forms, 60-digit recurrences, and the definition of privacy itself."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
from helpers.privacy_curves import divergence
from helpers.schemes_in_use import SCHEMES
from scipy.optimize import linprog

from dpsieve.channels import optimal, simple, stability, truncated_geometric
from dpsieve.errors import NotCertified
from dpsieve.sampling import custom, everything, ppswor, priority

REFERENCE = json.loads((Path(__file__).parents[1] / "vectors" / "reference.json").read_text())["weighted_sampling"]
NAMED = {"all": everything(), "ppswor tau=0.05": ppswor(0.05), "priority tau=0.03": priority(0.03)}


@pytest.mark.parametrize("case", REFERENCE, ids=lambda c: f"{c['epsilon']}-{c['delta']}-{c['scheme']}")
def test_reference_numbers(case):
    """Numbers computed independently, in double precision."""
    parameters = case["epsilon"], case["delta"], NAMED[case["scheme"]]
    frequencies = [int(i) for i in case["pi"]]
    for channel in (simple(*parameters), optimal(*parameters)):
        assert channel.reporting_probability(frequencies) == pytest.approx(list(case["pi"].values()), rel=1e-9)
    row = simple(*parameters).row(20)
    assert dict(zip(row.right, row.mass, strict=True)) == pytest.approx(
        {int(j): mass for j, mass in case["algorithm4_row_20"].items()}, rel=1e-9, abs=1e-10
    )
    channel, cells = optimal(*parameters), np.array(case["algorithm5_row_20"])
    row = channel.row(20)
    for x in np.linspace(0, 20, 401):
        ours = (np.clip((x * channel.resolution - row.left) / (row.right - row.left), 0, 1) * row.mass).sum()
        theirs = (np.clip(x - cells[:, 0], 0, cells[:, 1] - cells[:, 0]) * cells[:, 2]).sum()
        assert ours == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(("epsilon", "levels"), [(0.1, 40), (0.5, 10), (1.0, 17), (3.0, 4)])
def test_closed_forms_where_l_is_whole(epsilon, levels):
    """Lemma 4.2 (with the exponent of the first version) and Lemma 5.2 (with that of the published one)."""
    e = math.exp(epsilon)
    delta = (e - 1) / (math.exp(levels * epsilon) * (e + 1) - 2)
    i = np.arange(1, 3 * levels)
    rising = delta * np.expm1(i * epsilon) / (e - 1)
    falling = 1 - delta * np.expm1((2 * levels + 1 - i) * epsilon) / (e - 1)
    expected = np.where(i <= levels, rising, np.where(i <= 2 * levels, falling, 1.0))
    assert simple(epsilon, delta).reporting_probability(i) == pytest.approx(expected, rel=1e-9)
    lag = np.arange(2 * levels + 1)
    masses = delta * np.exp(np.where(lag <= levels, lag, 2 * levels - lag) * epsilon)
    row = simple(epsilon, delta).row(3 * levels)
    assert row.mass[::-1][: len(masses)] == pytest.approx(masses, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [1e-20, 1e-6, 0.01, 0.5])
def test_reporting_is_the_recurrence_with_sixty_digits(epsilon, delta):
    with mpmath.workdps(60):
        e, d, pi = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(delta), [mpmath.mpf(0)]
        while pi[-1] < 1 and len(pi) < 20_000:
            pi.append(min(mpmath.mpf(1), e * pi[-1] + d, 1 + (pi[-1] + d - 1) / e))
    for channel in (optimal(epsilon, delta), simple(epsilon, delta)):
        assert channel.reporting_probability(range(1, len(pi))) == pytest.approx([float(p) for p in pi[1:]], rel=1e-9)
        assert channel.certify().worst <= delta
        for i in (1, 2, len(pi) // 2, len(pi), 10**12):
            row = channel.row(i)
            assert row.silent + row.mass.sum() == pytest.approx(1.0, abs=1e-12)


def rows(channel, last):
    """All rows 0..last over common cells, 'nothing' first."""
    edges = channel.rows.cell_edges(0, last + channel.rows.spread)
    masses = channel.rows.cell_probabilities(np.arange(1, last + 1), edges)
    full = np.column_stack([1 - masses.sum(axis=1), masses]).clip(0, 1)
    return np.vstack([np.eye(1, full.shape[1]), full])


MAKERS = {"optimal": optimal, "simple": simple}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.01), (0.1, 0.02), (1.0, 1e-4)])
def test_every_pair_of_rows_keeps_the_definition(name, scheme, epsilon, delta):
    """Enumeration: both directions, every adjacent pair; the budget is used up, and rows sum to pi."""
    channel = MAKERS[name](epsilon, delta, SCHEMES[scheme])
    table = rows(channel, 60)
    worst = max(divergence(p, q, epsilon) for p, q in itertools.pairwise(table))
    assert delta * (1 - 1e-6) < worst <= delta * (1 + 1e-9)
    q = SCHEMES[scheme].inclusion(np.arange(1, 61))
    assert (1 - table[1:, 0] <= q + 1e-12).all()
    assert channel.certify().guarantee.delta == delta


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_algorithm_as_printed_is_not_private(scheme):
    """Algorithm 5 without the correction exceeds delta for q = 1; the same enumeration shows it."""
    printed = printed_algorithm(0.5, 0.01, SCHEMES[scheme].inclusion(np.arange(1, 41)), corrected=False)
    fixed = printed_algorithm(0.5, 0.01, SCHEMES[scheme].inclusion(np.arange(1, 41)), corrected=True)
    assert fixed <= 0.01 * (1 + 1e-6)
    if scheme == "everything":
        assert printed > 0.01 * 1.3


def printed_algorithm(epsilon, delta, q, *, corrected):
    """Algorithm 5 in floating point over a fine grid of tokens; return the largest divergence of adjacent rows."""
    parts, e = 400, math.exp(epsilon)
    before, pi_before, worst = np.zeros(len(q) * parts), 0.0, 0.0
    for i, limit in enumerate(q, start=1):
        pi = min(limit, e * pi_before + delta, 1 + (pi_before + delta - 1) / e)
        now, old = np.zeros_like(before), (i - 1) * parts
        now[old : old + parts] = min(pi, delta) / parts
        lost = max(0.0, (1 - pi_before) / e - (1 - pi)) * (e if corrected else 1.0)
        vanish = np.cumsum(before[:old]) + lost <= delta
        least = np.where(vanish, 0.0, before[:old] / e)
        from_right = np.cumsum((e * before[:old] - least)[::-1])[::-1]
        raised = from_right <= pi - min(pi, delta) - least.sum() + 1e-15
        now[:old] = np.where(raised, e * before[:old], least)
        short, at = pi - now.sum(), int((~raised).sum()) - 1
        if at >= 0:
            now[at] += max(0.0, short)
        p, r = np.append(before, 1 - before.sum()), np.append(now, 1 - now.sum())
        worst = max(worst, np.maximum(p - e * r, 0).sum(), np.maximum(r - e * p, 0).sum())
        before, pi_before = now, pi
    return worst


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.1), (1.0, 0.02)])
@pytest.mark.parametrize("q", [[1, 1, 1, 1], [0.05, 0.2, 0.8, 1]], ids=["all", "sampled"])
def test_no_private_table_reports_more(epsilon, delta, q):
    """A linear program over all private tables with four tokens finds the same largest reporting probabilities."""
    n, tokens = 4, 4
    size = (n + 1) * (tokens + 1)

    def at(i, j):
        return i * (tokens + 1) + j

    pairs = [(i, i + 1) for i in range(n)] + [(i + 1, i) for i in range(n)]
    width = size + len(pairs) * (tokens + 1)
    upper, bounds_upper, equal, bounds_equal = [], [], [], []
    for k, (i, other) in enumerate(pairs):
        slack = size + k * (tokens + 1)
        for j in range(tokens + 1):
            line = np.zeros(width)
            line[at(i, j)], line[at(other, j)], line[slack + j] = 1, -math.exp(epsilon), -1
            upper.append(line)
            bounds_upper.append(0.0)
        line = np.zeros(width)
        line[slack : slack + tokens + 1] = 1
        upper.append(line)
        bounds_upper.append(delta)
    for i in range(n + 1):
        line = np.zeros(width)
        line[at(i, 0) : at(i, 0) + tokens + 1] = 1
        equal.append(line)
        bounds_equal.append(1.0)
    limits = [(1.0 - ([0, *q][i] if j == 0 else 1.0), 1.0) for i in range(n + 1) for j in range(tokens + 1)]
    limits[at(0, 0)] = (1.0, 1.0)
    limits += [(0.0, None)] * (width - size)
    ours = optimal(epsilon, delta, custom([float(x) for x in q])).reporting_probability(range(1, n + 1))
    for i in range(1, n + 1):
        goal = np.zeros(width)
        goal[at(i, 0)] = 1
        best = linprog(goal, upper, bounds_upper, equal, bounds_equal, limits)
        assert 1 - best.fun == pytest.approx(ours[i - 1], abs=1e-7)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-8), (0.1, 0.01), (0.01, 1e-6)])
def test_stability_histograms_have_their_closed_form(epsilon, delta):
    """P[i + Lap(1/eps) >= T] (papers, appendix E), for both thresholds."""
    i = np.arange(1, 200)
    for threshold, factor in (("fair", 2 * delta), ("paper", delta)):
        gap = 1 - math.log(factor) / epsilon - i  # T - i
        expected = np.where(gap > 0, np.exp(-epsilon * np.abs(gap)) / 2, 1 - np.exp(-epsilon * np.abs(gap)) / 2)
        channel = stability(epsilon, delta, threshold=threshold)
        assert channel.reporting_probability(i) == pytest.approx(expected, rel=1e-9)
    assert stability(epsilon, delta).certify().worst == pytest.approx(delta, rel=1e-9)
    assert stability(epsilon, delta, threshold="paper").certify().worst == pytest.approx(delta / 2, rel=1e-9)


def test_truncated_geometric_selection():
    epsilon, delta = 0.3, 1e-5
    e = math.exp(epsilon)
    k = math.ceil(math.log((e + 2 * delta - 1) / ((e + 1) * delta)) / epsilon)
    weights = np.exp(-epsilon * np.abs(np.arange(-k, k + 1)))
    i = np.arange(1, 3 * k)
    expected = [weights[np.arange(-k, k + 1) > k - n].sum() / weights.sum() for n in i]
    assert truncated_geometric(epsilon, delta).reporting_probability(i) == pytest.approx(expected, rel=1e-9)


def test_optimal_reports_at_least_as_much_as_all_others():
    i = np.arange(1, 400)
    for epsilon, delta in itertools.product((0.1, 1.0, 4.0), (1e-12, 1e-6, 0.01)):
        best = optimal(epsilon, delta).reporting_probability(i)
        for make in (simple, stability, truncated_geometric):
            assert (make(epsilon, delta).reporting_probability(i) <= best * (1 + 1e-9)).all()


def test_a_corrupted_table_is_refused():
    """Move a billionth of probability to another token: the certificate is gone, of this channel alone."""
    for make, scheme in ((optimal, None), (simple, ppswor(0.05))):
        channel = make(0.5, 0.01, scheme)
        if scheme is None:
            lag = channel.rows.lag
            masses = list(lag.masses)
            masses[3] += 2**128 // 10**9 // channel.resolution
            channel.rows.lag = dataclasses.replace(lag, masses=tuple(masses))
        else:
            channel.rows._parameters[0] += np.uint64(2**63 // 10**6)  # a factor e^epsilon that is a millionth too large
        with pytest.raises(NotCertified):
            channel.certify()
        make(0.5, 0.01, scheme).certify()


def test_a_lag_that_channels_share_cannot_be_changed():
    one, other = optimal(0.5, 0.01), optimal(0.5, 0.01)
    assert one.rows.lag is other.rows.lag
    for values in (one.rows.lag.edges, one.rows.lag.masses):
        with pytest.raises(TypeError):
            values[3] += 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.rows.lag.masses = ()


def test_rows_that_have_not_settled_are_refused():
    """Beyond the last row that was made, a channel moves that row up: only where the kernel agrees that it may."""
    channel = optimal(1.0, 1e-4, ppswor(0.05))
    channel.rows.last = 8  # where rows still change
    with pytest.raises(NotCertified, match="rows 8 and 9"):
        channel.certify()


def test_delta_of_another_epsilon_and_of_replacement():
    """delta() recomputes the curve from the integers; under replacement two keys change at once."""
    cases = [(make(1.0, 1e-3), 40) for make in (optimal, simple, stability, truncated_geometric)]
    for channel, last in [*cases, (simple(1.0, 1e-3, priority(0.02)), 90)]:
        table = rows(channel, last)
        for epsilon in (0.3, 1.0, 1.5):
            expected = max(divergence(p, q, epsilon) for p, q in itertools.pairwise(table))
            assert channel.delta(epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    small = simple(1.0, 0.05)
    table = rows(small, 12)
    worst = 0.0
    for (a, b), (c, d) in itertools.product(itertools.pairwise(table), repeat=2):
        worst = max(worst, np.maximum(np.outer(b, c) - math.e**1.2 * np.outer(a, d), 0).sum())
    assert small.delta(1.2, neighbours="replace") == pytest.approx(worst, rel=1e-6)


@pytest.mark.parametrize("delta", [0.3, 0.5, 0.50001, 0.7, 0.99])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 5.0])
@pytest.mark.parametrize("make", [optimal, simple])
def test_large_deltas_report_as_often_as_the_recurrence_allows(make, epsilon, delta):
    channel, chance = make(epsilon, delta), 0.0
    for frequency in range(1, 7):
        chance = min(math.exp(epsilon) * chance + delta, 1 - math.exp(-epsilon) * (1 - chance - delta), 1.0)
        assert channel.reporting_probability([frequency])[0] == pytest.approx(chance, abs=1e-9)
    channel.certify()
