"""Private quantiles: exact privacy on small grids, what is drawn, how far it is off, and what is refused."""

import json
import math
import pickle
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest
from helpers.arrays import private_quantile
from helpers.statistical import assert_follows, binomial_band

import dpsieve as ds
from dpsieve.accounting.curves import zcdp_epsilon
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidType, InvalidValue, NotCertified
from dpsieve.numbers import quantiles as gap_quantiles
from dpsieve.numbers.grid_quantiles import DyadicGrid, as_share, sensitivity
from dpsieve.numbers.quantiles import GapQuantiles, segments
from dpsieve.numbers.rows import search_columns
from dpsieve.numbers.search import QuantileSearch, rank_change
from dpsieve.privacy.mechanism import from_json
from dpsieve.publication.publication import Publication
from dpsieve.randomness import picks as weighted_pick
from dpsieve.randomness import rounded_gaussian
from dpsieve.testing import insecure_source

RELATIONS = ("add_remove", "replace")
SHARES = [Fraction(1, 2), Fraction(1, 4), Fraction(9, 10), Fraction(0), Fraction(1)]
KINDS = (QuantileSearch, GapQuantiles)


def test_quantiles_of_incomes():
    incomes = np.random.default_rng(1).lognormal(10, 1, 20_000)
    asked = [0.9, 0.1, 0.5]
    found = private_quantile(incomes, asked, bounds=(0, 1e7), neighbours="replace", epsilon=1.0)
    assert found.table.column("name").to_pylist() == ["0.9", "0.1", "0.5"]
    for q, value, bound in zip(asked, found.value, found.table.column("rank_error").to_pylist(), strict=True):
        assert abs((incomes <= value).sum() - q * 20_000) <= 3 * bound
    assert "1-differential privacy when one row is replaced" in str(found.guarantee)


# The grid.


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize(("low", "high"), [(0.1, 0.7), (1e-9, 1e9), (1e9, 1e9 + 1), (3.0, 3.0000000000000004)])
@pytest.mark.parametrize("steps", [1, 5, 32])
def test_a_number_is_compared_with_a_point_exactly(scale, low, high, steps):
    grid = DyadicGrid(low, high, steps, scale)
    assert 1 <= grid.size <= 2**steps and (steps > 5 or grid.depth <= steps)
    k = np.unique(np.linspace(0, grid.size - 1, 40).astype(np.int64))
    points = grid.points(k)
    assert (points >= low).all() and (points <= high).all() and (np.diff(points) > 0).all() and grid.holds(points)
    numbers = np.concatenate([points, np.nextafter(points, -9), np.nextafter(points, 1e99), [low, high, -5, 1e300]])
    index = grid.index(numbers)
    for place, point in zip(k[:-1], points[:-1], strict=True):
        assert ((index <= place) == (numbers <= point)).all()


def test_the_grid_is_fine():
    grid = DyadicGrid(-3.0, 100.0, 20)
    assert 2**19 < grid.size <= 2**20 and np.ptp(np.diff(grid.points(np.arange(9)))) == 0
    assert grid.points(grid.index(np.array([1.0, 50.0]))).tolist() == [1.0, 50.0]
    spread = DyadicGrid(1e-6, 1e6, 12, "log")
    points = spread.points(np.arange(spread.size))
    assert spread.size > 2**11 and (points[1:] / points[:-1]).max() <= 1 + 2**-5


def test_grids_that_are_refused():
    for wrong in [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf), (None, 1.0), ("0", 1.0), (0.0, 1e308)]:
        with pytest.raises(DpsieveError, match="bounds"):
            DyadicGrid(*wrong)
    with pytest.raises(InvalidValue, match="above zero"):
        DyadicGrid(0.0, 1.0, scale="log")
    with pytest.raises(InvalidValue, match="steps"):
        DyadicGrid(0.0, 1.0, steps=99)


# Privacy, by exact fractions: all neighbours of up to three rows on a grid, and all outputs.


def missed(rows, k, share):
    """How far the point k is off, in B-th parts of a row."""
    a, b, n = share.numerator, share.denominator, len(rows)
    return max(0, b * sum(v < k for v in rows) - a * n, a * n - b * sum(v <= k for v in rows))


def neighbours(relation, size, most=3):
    for count in range(most):
        for rows in combinations_with_replacement(range(size), count):
            if relation == "add_remove":
                yield from ((rows, tuple(sorted((*rows, v)))) for v in range(size))
            else:
                yield from (
                    (tuple(sorted((*rows, v))), tuple(sorted((*rows, w)))) for v, w in product(range(size), repeat=2)
                )


@pytest.mark.parametrize("share", [*SHARES, Fraction(1, 3)])
@pytest.mark.parametrize("rows", [(), (3,), (2, 2, 5), (0, 0, 9, 9), (4, 4, 4), (0, 1, 1, 2, 8, 9)])
def test_segments_hold_every_point_once_with_what_it_is_off(share, rows):
    starts, lengths, misses = segments(np.array(rows, np.int64), 0, 9, share)
    found = {int(s) + i: int(m) for s, n, m in zip(starts, lengths, misses, strict=True) for i in range(n)}
    assert sum(lengths) == 10 and found == {k: missed(rows, k, share) for k in range(10)}
    assert min(found.values()) == 0


def normal(weights):
    total = sum(weights)
    return [weight / total for weight in weights]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("share", SHARES)
def test_one_pick_is_private_for_all_neighbours(relation, share):
    """With r in place of e^(-epsilon / (2 D)), the ratio of all probabilities is at most r^(-2 D), as fractions."""
    r, move = Fraction(2, 3), sensitivity(share, relation)
    chances = cache(lambda rows: normal([r ** missed(rows, k, share) for k in range(5)]))
    for one, other in neighbours(relation, 5, 4):
        for p, p2 in zip(chances(one), chances(other), strict=True):
            assert p * r ** (2 * move) <= p2 and p2 * r ** (2 * move) <= p


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("share", SHARES[:2])
def test_the_factor_two_is_needed(relation, share):
    """A gap with nearly all points gets worse, while a point on the other side of the target gets better."""
    r, wide, move = Fraction(2, 3), 10**12, sensitivity(share, relation)
    worst, few = Fraction(0), [0, 3, 5, wide]
    for rows in combinations_with_replacement(few, 4):
        for new in few if relation == "add_remove" else product(range(4), few):
            more = (*rows, new) if relation == "add_remove" else (*rows[: new[0]], *rows[new[0] + 1 :], new[1])
            both = []
            for data in (rows, tuple(sorted(more))):
                _, lengths, misses = segments(np.array(data), 0, wide, share)
                total = sum(int(n) * r ** int(m) for n, m in zip(lengths, misses, strict=True))
                both.append([r ** missed(data, k, share) / total for k in range(7)])
            worst = max(worst, *(max(p / p2, p2 / p) for p, p2 in zip(*both, strict=True)))
    assert worst <= r ** (-2 * move)
    assert math.log(worst) / math.log(1 / r) > 1.9 * move


def halving_chances(made, rows, parts, bases, unit):
    """The probability of every tuple of private points, by the text of the method: own code, exact fractions."""
    fine, count, total = made.grid.size << parts, len(made.shares), {}
    spreads = list(product(range(1 << parts), repeat=len(rows)))
    for spread in spreads:
        placed = sorted((v << parts) + s for v, s in zip(rows, spread, strict=True))
        states = {(0, *[None] * count, fine - 1): Fraction(1, len(spreads))}
        for node in made.nodes:
            later = {}
            for found, chance in states.items():
                low, high = found[node.left + 1], found[node.right + 1]
                inside = [v for v in placed if (node.left < 0 or v > low) and (node.right == count or v < high)]
                power = unit // node.sensitivity(made.neighbours)
                base = bases[node.level] ** power
                weights = [base ** missed(inside, k, node.share) for k in range(low, high + 1)]
                for k, p in zip(range(low, high + 1), normal(weights), strict=True):
                    state = (*found[: node.place + 1], k, *found[node.place + 2 :])
                    later[state] = later.get(state, 0) + chance * p
            states = later
        for found, chance in states.items():
            out = tuple(k >> parts for k in found[1:-1])
            total[out] = total.get(out, 0) + chance
    return total


def as_large(one, other, order):
    """The Renyi divergence of an order."""
    return math.log(sum(float(p) ** order * float(other[k]) ** (1 - order) for k, p in one.items())) / (order - 1)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("quantiles", "parts", "size"),
    [((0.25, 0.5, 0.75), 0, 4), ((0.1, 0.9), 0, 4), ((0.0, 0.3, 0.4, 1.0), 0, 3), ((0.25, 0.5, 0.75), 1, 2)],
)
def test_halving_is_private_for_all_neighbours(monkeypatch, relation, quantiles, parts, size):
    monkeypatch.setattr(gap_quantiles, "PARTS_BITS", parts)
    made = GapQuantiles(1.0, quantiles, 0, size - 1, steps=(size - 1).bit_length(), neighbours=relation)
    assert made.grid.size == size
    unit = math.lcm(*(node.sensitivity(relation) for node in made.nodes))
    base = Fraction(2, 3) if unit < 10 else Fraction(9, 10)
    chances = cache(lambda rows: halving_chances(made, rows, parts, [base] * made.levels, unit))
    level = 2 * unit * math.log(1 / base)  # the range of the loss of one level
    left_out = neighbours("add_remove", size, 2) if relation == "replace" else ()  # a unit that has no row any more
    for one, other in (*neighbours(relation, size), *left_out):
        both, bound = (chances(one), chances(other)), base ** (2 * unit * made.levels)
        assert set(both[0]) == set(both[1]) and sum(both[0].values()) == 1
        assert all(p * bound <= both[1][k] and both[1][k] * bound <= p for k, p in both[0].items())
        for order in (1.01, 1.5, 2, 10):
            assert as_large(*both, order) <= order * float(made.rho_of([level] * made.levels)) * (1 + 1e-9)


@pytest.mark.parametrize("c", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("order", [1.01, 2.0, 8.0])
def test_a_level_costs_what_is_said_while_both_rows_share_a_node(c, order):
    """All picks: probabilities p outside, up and down, w = 1, e^c and e^-c there, and costs A and B of later levels."""
    a, worst = order * (order - 1), -math.inf
    p, up = (axis.ravel() for axis in np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201)))
    up, down = (1 - p) * up, (1 - p) * (1 - up)
    for apart, shared in product((0, c**2 / 4, c**2), (0, 3 * c**2 / 8, c**2 / 2, 2 * c**2)):
        log_z = np.log(p + up * math.exp(c) + down * math.exp(-c))
        logs = [np.log(np.maximum(p, 1e-300)) + a * shared, np.log(np.maximum(up, 1e-300)) + order * c + a * apart]
        logs.append(np.log(np.maximum(down, 1e-300)) - order * c + a * apart)
        cost = (np.logaddexp.reduce(logs) - order * log_z) / a
        worst = max(worst, (cost.max() - max(apart + 5 * c**2 / 8, shared + c**2 / 8)) / c**2)
    assert -0.3 < worst <= 1e-9


def test_a_replaced_row_costs_less_than_the_sum_of_all_levels():
    """Rows apart cost half of what rows that share a node do, so many levels cost little more than half."""
    for many, share in ((3, 0.875), (7, 0.75), (127, 0.607), (1, 1.0)):
        quantiles = tuple((np.arange(1, many + 1) / (many + 1)).tolist())
        made = GapQuantiles(1.0, quantiles, 0, 1, neighbours="replace")
        equal = [1.0] * made.levels
        assert float(made.rho_of(equal)) == pytest.approx(share * made.levels / 8, rel=1e-3)
        for other in ({"neighbours": "add_remove"}, {"neighbours": "replace", "rows_per_unit": 2}):
            assert GapQuantiles(1.0, quantiles, 0, 1, **other).rho_of(equal) == Fraction(made.levels, 8)


@pytest.mark.parametrize("quantiles", [(0.5,), (0.1, 0.9), (0.25, 0.5, 0.75)])
def test_a_replaced_unit_may_have_another_number_of_rows(monkeypatch, quantiles):
    """Units of at most two rows, in several nodes or in one: the loss is at most twice that of a row."""
    monkeypatch.setattr(gap_quantiles, "PARTS_BITS", 0)
    made = GapQuantiles(1.0, quantiles, 0, 2, steps=2, neighbours="replace", rows_per_unit=2)
    unit = math.lcm(*(node.sensitivity("replace") for node in made.nodes))
    chances = cache(lambda rows: halving_chances(made, rows, 0, [Fraction(9, 10)] * made.levels, unit))
    units = [rows for count in range(3) for rows in combinations_with_replacement(range(3), count)]
    bound = Fraction(9, 10) ** (2 * unit * made.levels * made.rows_per_unit)
    for rest in [(), (0,), (1, 2)]:
        for one, other in product(units, repeat=2):
            both = [chances(tuple(sorted((*rest, *own)))) for own in (one, other)]
            assert all(p * bound <= both[1][k] for k, p in both[0].items())
    one_row = GapQuantiles(1.0, quantiles, 0, 2, steps=2, neighbours="replace")
    assert [made._change(node) for node in made.nodes] == [2 * one_row._change(node) for node in made.nodes]


def search_chances(rows, share, size, relation, at_least):
    """The probability of every point, where at_least(z) is the chance that noise is z or more."""
    found, states = [Fraction(0)] * size, {(0, size - 1): 1}
    while states:
        (low, high), chance = states.popitem()
        if low == high:
            found[low] += chance
            continue
        middle = (low + high) // 2
        upto, n = sum(v <= middle for v in rows), len(rows)
        short = math.ceil(share * n) - upto if relation == "replace" else share.numerator * n - share.denominator * upto
        lower = at_least(short)
        states[low, middle] = chance * lower
        states[middle + 1, high] = chance * (1 - lower)
    return found


def laplace_tail(p):
    return lambda z: p**z / (1 + p) if z > 0 else 1 - p ** (1 - z) / (1 + p)


def gaussian_tail(sigma):
    reach = range(-int(40 * sigma) - 40, int(40 * sigma) + 41)
    weights = np.exp([-(z**2) / (2 * sigma**2) for z in reach])
    tails = np.cumsum(weights[::-1])[::-1] / weights.sum()
    return lambda z: tails[z - reach[0]]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("share", SHARES)
def test_searches_are_private_for_all_neighbours(relation, share):
    size, depth, move = 7, 3, rank_change(share, relation)
    p, sigma = Fraction(4, 5), 1.5 * move
    pure = cache(lambda rows: search_chances(rows, share, size, relation, laplace_tail(p)))
    wide = cache(lambda rows: dict(enumerate(search_chances(rows, share, size, relation, gaussian_tail(sigma)))))
    worst = 0
    for one, other in neighbours(relation, size):
        bound = p ** (move * depth)
        assert all(a * bound <= b and b * bound <= a for a, b in zip(pure(one), pure(other), strict=True))
        worst = max(worst, *(as_large(wide(one), wide(other), order) / order for order in (1.5, 2, 10)))
    assert worst <= depth * move**2 / (2 * sigma**2) * (1 + 1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("quantiles", [(0.5,), (0.1, 0.77777, 0.9), tuple(np.linspace(0, 1, 41))])
def test_all_of_the_budget_is_spent_and_no_more(relation, quantiles):
    pure = QuantileSearch(0.7, quantiles, 0, 1, neighbours=relation)
    moves = [rank_change(share, relation) for share in pure.shares]
    spent = sum(pure.grid.depth * m / Fraction(s) for m, s in zip(moves, pure.noise_scales, strict=True))
    assert 0.7 * (1 - 1e-12) <= spent <= Fraction(0.7)
    wide = QuantileSearch(2.2, quantiles, 0, 1, delta=1e-6, rho=0.1, neighbours=relation)
    spent = sum(wide.grid.depth * (m / Fraction(s)) ** 2 / 2 for m, s in zip(moves, wide.noise_scales, strict=True))
    assert 0.1 * (1 - 1e-12) <= spent <= Fraction(0.1)
    picks = GapQuantiles(0.7, quantiles, 0, 1, neighbours=relation)
    assert 0.7 * (1 - 1e-12) <= sum(map(Fraction, picks.pick_epsilons)) <= Fraction(0.7)
    picks = GapQuantiles(50.0, quantiles, 0, 1, rho=0.1, neighbours=relation)
    assert 0.1 * (1 - 1e-12) <= picks.rho_of(picks.pick_epsilons) <= Fraction(0.1)


# What is drawn.


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("rows", [(), (3, 3, 6)])
@pytest.mark.parametrize(("kind", "rho"), [(QuantileSearch, 0.0), (QuantileSearch, 0.3), (GapQuantiles, 0.0)])
def test_one_quantile_is_drawn_as_the_exact_probabilities_say(kind, rho, rows, relation):
    made = kind(2.0, (0.3,), 0, 7, rho=rho, delta=0.5 if rho else 0.0, steps=3, neighbours=relation)
    share = made.shares[0]
    if kind is GapQuantiles:
        rate = math.exp(-2.0 / (2 * sensitivity(share, relation)))
        chances = normal([rate ** missed(rows, k, share) for k in range(8)])
    else:
        scale = made.noise_scales[0]
        tail = gaussian_tail(scale) if rho else laplace_tail(math.exp(-1 / scale))
        chances = search_chances(rows, share, 8, relation, tail)
    source, data = insecure_source(11), np.array(rows, np.int64)
    draws = [int(made.draw_sorted(data, source)[0]) for _ in range(1_500)]
    assert_follows(draws, range(8), np.array(chances, float))


@pytest.mark.parametrize("relation", RELATIONS)
def test_many_are_drawn_as_the_exact_probabilities_say(monkeypatch, relation):
    monkeypatch.setattr(gap_quantiles, "PARTS_BITS", 1)
    made = GapQuantiles(4.0, (0.2, 0.5, 0.9), 0, 2, steps=2, neighbours=relation)
    unit = math.lcm(*(node.sensitivity(relation) for node in made.nodes))
    bases = [math.exp(-one / (2 * unit)) for one in made.pick_epsilons]
    exact = halving_chances(made, (0, 1, 1), 1, bases, unit)
    source, data = insecure_source(12), np.array([0, 1, 1])
    draws = [int(made.draw_sorted(data, source) @ [9, 3, 1]) for _ in range(1_500)]
    assert_follows(draws, [k[0] * 9 + k[1] * 3 + k[2] for k in exact], [float(p) for p in exact.values()])


def test_a_pick_in_balls_is_the_same_as_one_in_floats(monkeypatch):
    lengths, falls = np.array([5, 0, 7, 1, 30, 2**40]), np.array([4, 0, 0, 1, 9, 56])
    quick = [weighted_pick.weighted_pick(lengths, falls, 1.5, 3, insecure_source(seed)) for seed in range(200)]
    monkeypatch.setattr(weighted_pick, "_OF_WEIGHT", 1.0)
    slow = [weighted_pick.weighted_pick(lengths, falls, 1.5, 3, insecure_source(seed)) for seed in range(200)]
    assert quick == slow and set(quick) >= {0, 2, 4, 5}


def test_a_pick_where_floats_do_not_decide():
    """Two equal weights: a word of exactly one half, or one less, is decided by further bits."""

    class Scripted(type(insecure_source(1)).__base__):
        publishable = False

        def __init__(self, *words):
            self.left = list(words)

        def words(self, count):
            return np.array([self.left.pop(0) for _ in range(count)], np.uint64)

    even = np.array([1, 1]), np.array([0, 0]), 1.0, 1
    assert weighted_pick.weighted_pick(*even, Scripted(2**63, *range(9))) == 1
    assert weighted_pick.weighted_pick(*even, Scripted(2**63 - 1, *range(9))) == 0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_columns_are_searched_each_as_one_would_be(kind, scale, relation):
    matrix = np.random.default_rng(5).lognormal(0, 2, (300, 37)).astype(kind)
    matrix[7, 3], matrix[8, 3], matrix[9, 3] = np.inf, np.nan, -np.inf
    grid = DyadicGrid(1e-3, 50, 16, scale)
    centre = np.linspace(0, 2, 37)
    move, weight = 1000 if relation == "replace" else 841, 2**27  # noise of deviation 2^29 is four times the weight
    noise = rounded_gaussian(2.0**29, 37 * grid.depth, source=insecure_source(3))
    options = {"neighbours": relation, "source": insecure_source(3), "centre": centre}
    found = search_columns(np.asfortranarray(matrix) if kind is np.float32 else matrix, 0.841, grid, 4.0, **options)
    for j, words in enumerate(noise.reshape(37, -1).tolist()):
        values, low, high = np.abs(matrix[:, j].astype(float) - centre[j]), 0, grid.size - 1
        while low < high:
            middle = (low + high) // 2
            upto = int((values <= grid.points(np.array([middle]))[0]).sum())
            noisy = (1000 * upto - 841 * 300) * weight + move * words.pop(0)
            low, high = (low, middle) if noisy >= 0 else (middle + 1, high)
        assert found[j] == grid.points(np.array([low]))[0]


def test_noise_below_zero_is_refused():
    grid = DyadicGrid(0, 1)
    with pytest.raises(InvalidValue, match="sigma"):
        search_columns(np.zeros((3, 2)), 0.5, grid, -1.0, neighbours="replace", source=insecure_source(1))


# How far off it is.


def off(rows, q, value):
    rows = np.asarray(rows)
    return max(0, (rows < value).sum() - q * len(rows), q * len(rows) - (rows <= value).sum())


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("method", ["search", "halving"])
@pytest.mark.parametrize("budget", [{"epsilon": 1.0}, {"rho": 0.1}])
@pytest.mark.parametrize("q", [[0.5], [0.05, 0.5, 0.99]])
def test_rank_errors_stay_below_their_bound(relation, method, budget, q):
    """On rows on the grid, half of them equal; all quantiles together miss the bound in 5 % of runs at most."""
    rng, runs, missed_bound, largest = np.random.default_rng(2), 25, 0, 0
    rows = np.concatenate([np.full(2_000, 77), rng.integers(0, 4096, 2_000)]).astype(float)
    for seed in range(runs):
        options = {"bounds": (0, 2**20 - 1), "steps": 20, "source": insecure_source(seed), "method": method}
        found = private_quantile(rows, q, neighbours=relation, **budget, **options)
        bounds = found.table.column("rank_error").to_pylist()
        ratios = [off(rows, one, value) / bound for one, value, bound in zip(q, found.value, bounds, strict=True)]
        missed_bound, largest = missed_bound + (max(ratios) > 1), max(largest, *ratios)
    assert missed_bound <= binomial_band(runs, 0.05)[1] and largest < 2


def test_the_error_of_gaps_is_about_the_logarithm_of_the_grid():
    """A needle of n equal rows is found once c n/2 passes ln(grid), c = epsilon/2 under replacement, and not before."""
    points = DyadicGrid(0, 1000, 32).size
    for extra, found in ((-14.0, 0), (21.0, 40)):
        n = math.ceil(2 * (math.log(points) + extra) / 0.5)
        options = {"bounds": (0, 1000), "neighbours": "replace", "epsilon": 1.0, "method": "gaps"}
        draws = [private_quantile([123.0] * n, 0.5, source=insecure_source(s), **options).value for s in range(40)]
        assert draws.count(123.0) == found


def test_gaps_do_far_better_than_their_bound_on_spread_rows():
    rows = np.random.default_rng(3).normal(size=5_000)
    options = {"bounds": (-100, 100), "neighbours": "add_remove", "epsilon": 1.0}
    draws = [private_quantile(rows, 0.5, source=insecure_source(s), **options) for s in range(40)]
    assert np.mean([off(rows, 0.5, one.value) for one in draws]) < 5 < draws[0].table.column("rank_error")[0].as_py()


@pytest.mark.parametrize("method", ["search", "halving", "auto"])
@pytest.mark.parametrize("value", [0.0, 37.0, 0.1, 100.0, math.inf])
def test_constant_columns(method, value):
    options = {"bounds": (0, 100), "neighbours": "replace", "epsilon": 1.0, "method": method}
    found = private_quantile([value] * 50_000, [0.25, 0.5, 0.9], **options).value
    assert np.abs(found - min(value, 100)).max() <= 2**-25


def test_a_binary_column_whose_halves_are_not_equal():
    column = [0] * 900 + [1] * 2_100
    for method in ("search", "gaps"):
        options = {"neighbours": "add_remove", "epsilon": 1.0, "method": method, "source": insecure_source(1)}
        assert private_quantile(column, 0.5, bounds=(0, 1), **options).value == 1.0


@pytest.mark.parametrize("rows", [[], [5.0], [math.inf, -math.inf]])
@pytest.mark.parametrize("method", ["search", "halving"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_few_rows_give_any_point(rows, method, relation):
    found = private_quantile(rows, [0.1, 0.5], bounds=(-1, 3), neighbours=relation, rho=0.1, method=method)
    assert ((found.value >= -1) & (found.value <= 3)).all()


@pytest.mark.parametrize("method", ["search", "halving"])
def test_many_quantiles_grow_and_equal_ones_agree(method):
    q = [0.9, 0.1, *np.linspace(0, 1, 30), 0.5, 0.5]
    found = private_quantile(range(50), q, bounds=(0, 50), neighbours="replace", epsilon=0.1, method=method).value
    assert all(a <= b for a, b in pairwise(found[np.argsort(q, kind="stable")])) and found[-1] == found[-2]


def test_a_log_scale_finds_small_values():
    tiny = np.random.default_rng(4).lognormal(-9, 0.5, 4_000)
    options = {"bounds": (1e-9, 1e6), "neighbours": "replace", "rho": 0.1, "steps": 14, "method": "search"}
    found = private_quantile(tiny, 0.5, scale="log", **options).value
    assert abs(math.log(found / np.median(tiny))) < 0.2
    assert private_quantile(tiny, 0.5, **options).value < 200  # evenly spaced points are far apart


# What is published.


def test_auto_takes_what_is_typically_best():
    common = {"bounds": (0, 1), "neighbours": "replace"}
    assert isinstance(private_quantile([1], 0.5, epsilon=1.0, **common).mechanism, GapQuantiles)
    assert isinstance(private_quantile([1], 0.5, rho=0.1, **common).mechanism, GapQuantiles)
    assert isinstance(private_quantile([1], 0.5, rho=0.1, steps=2, **common).mechanism, QuantileSearch)
    many = private_quantile([1], np.linspace(0.01, 0.99, 99), epsilon=1.0, delta=1e-6, **common)
    assert many.mechanism.rho > 0 and "typically off by about" in many.notes.reason
    assert isinstance(private_quantile([1], 0.33333, epsilon=1e-5, **common).mechanism, GapQuantiles)


def test_budgets():
    common = {"bounds": (0, 1), "neighbours": "replace"}
    search = private_quantile([1], 0.5, rho=0.1, delta=1e-9, method="search", **common)
    assert search.guarantee.delta == 1e-9 and search.guarantee.epsilon == zcdp_epsilon(0.1, 1e-9)
    assert search.mechanism.spends() == (ds.privacy.ZeroConcentrated(0.1),)
    gaps = private_quantile([1], 0.5, rho=0.1, method="gaps", **common)
    assert gaps.guarantee.delta == 0 and gaps.guarantee.epsilon == pytest.approx(math.sqrt(0.8))
    assert gaps.mechanism.spends() == (ds.privacy.ZeroConcentrated(0.1),)
    both = private_quantile([1], [0.1, 0.5, 0.9], epsilon=1.0, delta=1e-6, method="search", **common)
    assert (both.guarantee.epsilon, both.guarantee.delta) == (1.0, 1e-6)
    pure = QuantileSearch(1.0, (0.5,), 0, 1)
    assert [type(one).__name__ for one in pure.spends()] == ["DiscreteLaplace"]
    for wrong in ({}, {"epsilon": 1.0, "rho": 1.0}, {"delta": 1e-6}, {"rho": -1.0}, {"rho": 1e5}, {"epsilon": 0.0}):
        with pytest.raises(DpsieveError, match=r"epsilon|rho"):
            private_quantile([1], 0.5, **common, **wrong)


def test_the_ledger_is_charged_before_anything_is_drawn(tmp_path):
    class Dry(type(insecure_source(1))):
        def words(self, count):
            raise RuntimeError("drawn")

    book = ds.Ledger(tmp_path / "b", 1.0, 1e-6, neighbours="replace", unit="one row")
    options = {"bounds": (0, 1), "neighbours": "replace", "ledger": book}
    with pytest.raises(RuntimeError, match="drawn"):
        private_quantile([0.5], 0.5, epsilon=0.75, note="median", source=Dry(1), **options)
    assert len(book) == 1 and book.history()[0].note == "median"
    with pytest.raises(BudgetExceeded):
        private_quantile([0.5], 0.5, epsilon=0.75, source=Dry(1), **options)
    with pytest.raises(InvalidValue, match="NaN"):
        private_quantile([math.nan], 0.5, epsilon=0.1, **options)
    assert len(book) == 1


@pytest.mark.parametrize(("method", "q"), [("search", 0.5), ("gaps", 0.5), ("halving", [0.7, 0.2]), ("search", [0.5])])
def test_it_saves_loads_and_shows_itself(method, q, tmp_path):
    made = private_quantile([1, 2, 3], q, bounds=(0, 9), neighbours="add_remove", epsilon=1.0, method=method)
    again = Publication.load(made.save(tmp_path / "x"))
    assert np.array_equal(again.value, made.value) and again.mechanism == made.mechanism
    assert isinstance(made.value, float) == (q == 0.5)
    mechanism, data = made.mechanism, made.mechanism.to_json()
    assert from_json(json.loads(json.dumps(data))) == mechanism == pickle.loads(pickle.dumps(mechanism))
    assert "epsilon=1" in repr(mechanism) and "object at" not in repr(mechanism)
    assert made.certificate.parts[-1].method == "balls" and len(made.table.column_names) == 3


def test_values_that_no_search_ends_at_are_refused():
    made = GapQuantiles(1.0, (0.7, 0.2, 0.2), 0, 8, steps=4)
    assert made.possible(np.array([3.0, 1.0, 1.0])) and not made.possible(np.array([1.0, 3.0, 3.0]))
    assert not made.possible(np.array([3.0, 1.0, 2.0])) and not made.possible(np.array([3.0, 0.3, 0.3]))


@pytest.mark.parametrize("kind", KINDS)
def test_forged_and_odd_fields_are_refused(kind):
    data = kind(1.0, tuple(np.linspace(0, 1, 127)), 0.0, 9.0, delta=1e-6, rho=0.02).to_json()
    assert from_json(data).certify().worst <= 1e-6
    for forged in ({"rho": 0.1}, {"epsilon": 0.1}, {"delta": 1e-30}):
        with pytest.raises(NotCertified):
            from_json({**data, **forged}).certify()
    for name, value in product(data, (None, "x", -1, math.nan, [], {}, True)):
        fine = (name == "unit" and value == "x") or (name == "low" and value == -1)
        if name != "kind" and not fine:
            with pytest.raises(DpsieveError):
                from_json({**data, name: value}).certify()


@pytest.mark.parametrize("x", [None, "abc", [["a"]], [1, "b"], [True], [[1.0]], {}, [1j], [None], [[1], [2, 3]]])
def test_columns_that_hold_no_numbers_are_refused(x):
    with pytest.raises(InvalidType, match="x must be"):
        private_quantile(x, 0.5, bounds=(0, 1), neighbours="replace", epsilon=1.0)


def test_arguments_that_are_refused():
    good = {"x": [1.0], "q": 0.5, "bounds": (0, 1), "neighbours": "replace", "epsilon": 1.0}
    wrong = [
        ("q", [None, "x", "0.5", -0.1, 1.1, math.nan, [], True, {}, [0.5, None], [[0.5], [1, 2]], np.array([[0.5]])]),
        ("bounds", [None, 5, (1,), (1, 0), (0, 0), (0, math.inf), ("a", "b"), (0, None), "ab"]),
        ("neighbours", [None, "x", 5]), ("method", [None, "x", []]), ("scale", [None, "x"]), ("steps", [0, 99, 1.5]),
        ("delta", [-1, 1, "x"]), ("unit", ["", 5]), ("source", [7]), ("ledger", [7]),
    ]  # fmt: skip
    for name, values in wrong:
        for value in values:
            with pytest.raises(DpsieveError):
                private_quantile(**{**good, name: value})
    with pytest.raises(InvalidValue, match="halving"):
        private_quantile(**{**good, "q": [0.1, 0.2]}, method="gaps")


@pytest.mark.parametrize("half", [np.float32(0.5), np.float64(0.5), np.array(0.5), np.array(0.5, np.float16)])
def test_numbers_of_numpy_are_quantiles_like_others(half):
    options = {"bounds": (0, 1_000), "neighbours": "replace", "epsilon": 50.0}
    assert isinstance(private_quantile(range(1_001), half, **options).value, float)
    assert private_quantile(range(1_001), [half, 0.25], **options).value.shape == (2,)
    assert private_quantile(range(1_001), np.array([half]), **options).value.shape == (1,)


def test_truth_values_count_as_zero_and_one():
    for x in ([True] * 99, np.ones(99, bool)):
        assert ds.quantile(x, quantile=0.5, bounds=(0, 8), epsilon=500.0).value == pytest.approx(1.0, abs=1e-6)


def test_quantiles_are_fractions():
    assert [as_share(q) for q in (0.1, 0.841, 1 / 3)] == [Fraction(1, 10), Fraction(841, 1000), Fraction(1, 3)]


def test_numbers_that_are_hidden_or_too_near_the_ends_are_refused():
    options = {"bounds": (0, 8), "neighbours": "replace", "epsilon": 1.0}
    with pytest.raises(DpsieveError, match="masked"):
        private_quantile(np.ma.array([1.0, 2.0], mask=[0, 1]), 0.5, **options)
    with pytest.raises(DpsieveError, match="fraction"):
        private_quantile([1.0, 2.0], 1 - 4e-6, **options)


def test_the_least_floats_are_above_zero():
    grid = DyadicGrid(0.0, 1e10)
    assert grid.index(np.array([0.0, 5e-324, 1e-300])).tolist() == [0, 1, 1]
