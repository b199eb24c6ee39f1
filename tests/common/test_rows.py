"""Every method that a kind of rows overrides agrees with the one that `Rows` derives from its blocks."""

import numpy as np
import pytest
from helpers.every_channel import CHANNELS, FORMULAS, TABLES
from helpers.statistical import assert_counts

from dpsieve.channels.rows import Rows
from dpsieve.errors import InvalidValue
from dpsieve.randomness.source import SystemSource


class Derived(Rows):
    """The same blocks, and nothing else."""

    def __init__(self, rows):
        self.resolution, self.last, self.step, self.block = rows.resolution, rows.last, rows.step, rows.block

    def block(self, first, count):
        raise AssertionError("set in __init__")


@pytest.fixture(params=TABLES, scope="module")
def pair(request):
    rows = TABLES[request.param]().rows
    return rows, Derived(rows)


FEW = np.array([1, 2, 3, 7, 15, 16, 40, 64, 65, 129, 150])
LARGE = np.array([10**6, 10**12])


def test_how_far_rows_spread(pair):
    rows, derived = pair
    assert derived.spread <= rows.spread


def test_reported_and_withheld(pair):
    rows, derived = pair
    frequencies = np.append(FEW, LARGE)
    assert rows.reported(frequencies) == pytest.approx(derived.reported(frequencies), rel=1e-8, abs=1e-30)
    assert rows.withheld(frequencies) == pytest.approx(derived.withheld(frequencies), rel=1e-8, abs=1e-8)


def test_one_row(pair):
    rows, derived = pair
    for frequency in [0, *FEW.tolist()]:
        mine, theirs = rows.row(frequency), derived.row(frequency)
        assert mine.silent == pytest.approx(theirs.silent, rel=1e-8, abs=1e-8)
        for row in (mine, theirs):
            assert (row.mass >= 0).all() and (np.diff(row.right) > 0).all()
        sums = [[row.mass[row.right <= x * rows.resolution].sum() for x in range(201)] for row in (mine, theirs)]
        assert sums[0] == pytest.approx(sums[1], abs=1e-8)


def test_cells(pair):
    """Over the union of both sets of edges, every cell has the same probability under every frequency."""
    rows, derived = pair
    mine, theirs = rows.cell_edges(0, 60), derived.cell_edges(0, 60)
    assert mine[0] == 0 and mine[-1] == 60 * rows.resolution and (np.diff(mine) > 0).all()
    edges = np.union1d(mine, theirs)
    found, expected = rows.cell_probabilities(FEW, edges), derived.cell_probabilities(FEW, edges)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-30)


def test_bands_hold_the_whole_of_their_rows(pair):
    rows, _ = pair
    seen = []
    for part, edges in rows.bands(FEW):
        seen.extend(FEW[part].tolist())
        mass = rows.cell_probabilities(FEW[part], edges)
        assert mass.sum(axis=1) == pytest.approx(rows.reported(FEW[part]), rel=1e-9, abs=1e-15)
    assert seen == FEW.tolist()


def tokens_of(rows):
    source = SystemSource()
    drawn = rows.draw(np.repeat(FEW, 50), source)
    return np.unique(drawn[drawn > 0])


def test_the_likeliest_frequency(pair):
    """Both name a frequency under which the token has the same, largest probability."""
    rows, derived = pair
    tokens = tokens_of(rows)
    (mine, chance), (theirs, best) = rows.likeliest(tokens), derived.likeliest(tokens)
    assert chance == pytest.approx(best, rel=1e-7)
    same = mine == theirs
    assert same.all() or chance[~same] == pytest.approx(best[~same], rel=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_intervals_hold_the_truth_as_often_as_they_say(pair, level):
    """Derived windows are the shortest; an override may be longer by a token, or by design (equal tails)."""
    rows, derived = pair
    tokens = tokens_of(rows)
    (low, high), (least, most) = rows.interval(tokens, level), derived.interval(tokens, level)
    assert (low <= high).all() and (least <= most).all()
    some = most > 1  # what no window holds is said to be one; an override may say more of it
    assert (high - low)[some].mean() <= (most - least)[some].mean() * 1.25 + 0.5
    assert (most - least).mean() <= (high - low).mean() + 0.5
    for frequency in (1, 9, 30, 100):
        drawn = derived.draw(np.full(4000, frequency), SystemSource())
        drawn = drawn[drawn > 0]
        if len(drawn) > 500:
            low, high = derived.interval(drawn, level)
            inside = ((low <= frequency) & (frequency <= high)).mean()
            assert inside > level - 5.2 * (level * (1 - level) / len(drawn)) ** 0.5  # one in ten million


@pytest.mark.parametrize("frequency", [1, 9, 30, 1000])
def test_draws(pair, frequency):
    """Both follow the row: 'nothing', and tokens in up to 40 groups."""
    rows, derived = pair
    row = rows.row(frequency)
    for one in (rows, derived):
        tokens = one.draw(np.full(20_000, frequency), SystemSource())
        if not len(row.right):
            assert not tokens.any()
            continue
        groups = np.unique(np.append(np.quantile(row.right, np.linspace(0, 1, 40), method="higher"), np.inf))
        seen = np.bincount(np.searchsorted(groups, tokens[tokens > 0]), minlength=len(groups))
        expected = np.bincount(np.searchsorted(groups, row.right), row.mass, minlength=len(groups))
        seen, expected = np.append(seen, (tokens == 0).sum()), np.append(expected, row.silent) * len(tokens)
        if expected.max() > len(tokens) - 50:
            assert seen[expected.argmax()] > len(tokens) - 150
        else:
            assert_counts(seen.astype(float), expected)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_the_curve(pair, epsilon):
    rows, derived = pair
    assert rows.delta(epsilon, "add_remove") == pytest.approx(derived.delta(epsilon, "add_remove"), rel=1e-7)


def test_the_certificate(pair, request):
    rows, derived = pair
    name = request.node.callspec.params["pair"]
    promise = TABLES[name]().each_key
    mine, theirs = rows.certify(promise).worst, derived.certify(promise).worst
    assert mine == pytest.approx(theirs, rel=1e-7)


def test_rows_that_keep_changing_have_no_curve_and_no_certificate():
    class Changing(Rows):
        last, spread = None, 4

        def block(self, first, count):
            raise AssertionError("not needed")

    for call in (lambda: Changing().delta(1.0, "add_remove"), lambda: list(Changing().chains())):
        with pytest.raises(InvalidValue, match="keep changing"):
            call()


@pytest.fixture(params=FORMULAS)
def law(request):
    return CHANNELS[request.param]().rows


class TestLaws:
    """The same of laws without integers; their reports, intervals and draws have tests of their own in tests/noise."""

    def test_bands_hold_the_whole_of_their_rows(self, law):
        test_bands_hold_the_whole_of_their_rows((law, None))

    def test_one_row(self, law):
        assert law.row(0).silent == 1.0 and law.row(0).reported == 0.0
        for frequency in FEW.tolist():
            row = law.row(frequency)
            assert row.silent + row.reported == pytest.approx(1.0, abs=1e-12)
            assert row.reported == pytest.approx(law.reported(np.array([frequency]))[0], rel=1e-9)

    def test_the_likeliest_frequency_is_the_argmax_over_rows(self, law):
        tokens, frequencies = tokens_of(law)[:40], np.arange(1, 400)
        mass = np.column_stack([law.cell_probabilities(frequencies, np.array([t - 1, t]))[:, 0] for t in tokens])
        found, chance = law.likeliest(tokens)
        assert chance == pytest.approx(mass.max(axis=0), rel=1e-9)
        assert mass[found - 1, np.arange(len(tokens))] == pytest.approx(chance, rel=1e-9)

    @pytest.mark.parametrize("frequency", [1, 9, 30, 1000])
    def test_draws(self, law, frequency):
        row, tokens = law.row(frequency), law.draw(np.full(20_000, frequency), SystemSource())
        if not len(row.right):
            assert not tokens.any()
            return
        groups = np.unique(np.append(np.quantile(row.right, np.linspace(0, 1, 40), method="higher"), np.inf))
        seen = np.bincount(np.searchsorted(groups, tokens[tokens > 0]), minlength=len(groups))
        expected = np.bincount(np.searchsorted(groups, row.right), row.mass, minlength=len(groups))
        seen, expected = np.append(seen, (tokens == 0).sum()), np.append(expected, row.silent) * len(tokens)
        if expected.max() > len(tokens) - 50:
            assert seen[expected.argmax()] > len(tokens) - 150
        else:
            assert_counts(seen.astype(float), expected)
