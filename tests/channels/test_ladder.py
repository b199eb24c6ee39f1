"""Tables at any rate: rows on a ladder, the kernel that certifies them, draws and intervals where they change shape."""

from dataclasses import replace
from functools import cache
from itertools import accumulate

import numpy as np
import pytest
from helpers.every_channel import OnLadder
from helpers.schemes_in_use import FunctionScheme
from helpers.scripted import Scripted
from helpers.statistical import assert_counts, binomial_band

from dpsieve.channels import frequency_at, optimal, simple
from dpsieve.channels.ladder import LadderRows
from dpsieve.channels.stepwise import StepRows
from dpsieve.errors import NotCertified
from dpsieve.estimation import estimator
from dpsieve.papers.weighted_sampling import concordance
from dpsieve.privacy.kernel import examine
from dpsieve.privacy.ladder_kernel import examine_ladder
from dpsieve.randomness.source import SystemSource
from dpsieve.sampling import ppswor, priority

HUGE = [10**11, 10**12]
SMALL = {
    "ppswor": (0.5, 1e-2, ppswor(0.01)),
    "priority": (0.5, 1e-3, priority(0.001)),
    "power": (0.7, 1e-2, ppswor(1e-3, 1.5)),
    "rarer than delta": (1.0, 0.1, ppswor(0.01)),
}


@cache
def million():
    """A key in a million: the table of rate 1e-6 that most tests look at."""
    return optimal(0.1, 1e-8, ppswor(1e-6))


def regimes(rows):
    """Frequencies where rows change their making, each with its neighbours."""
    made = rows._stairs.table
    long = np.flatnonzero(np.diff(made.first) < np.diff(made.starts, append=made.stop))  # stairs that repeat a row
    settled = made.starts[long] + np.diff(made.first)[long] - 1
    growth = int(np.flatnonzero(np.diff(made.c))[0])  # c leaves zero: the scheme has been reached
    some = [1, growth, made.starts[long[0]], settled[0], made.starts[long[1]], settled[-1], made.stop, rows.last]
    near = np.unique(np.clip(np.add.outer(some, [0, 1]), 1, None))
    return [*near.tolist(), 10**12]


@pytest.mark.parametrize("name", SMALL)
def test_the_first_kernel_accepts_every_row_for_every_frequency(name):
    """The two kernels are independent: the first looks at all tokens of all rows, repeated ones as well."""
    epsilon, delta, scheme = SMALL[name]
    channel = OnLadder(epsilon, delta, scheme)
    rows = channel.rows
    stacks = (rows.block(first, min(16, rows.last + 1 - first)) for first in range(1, rows.last + 1, 16))
    verdict = examine(stacks, epsilon, delta, rows.resolution)
    assert verdict.accepted, verdict.reason
    assert channel.certify().worst == pytest.approx(verdict.worst, rel=1e-9)


@pytest.mark.parametrize("name", SMALL)
def test_beside_rows_made_one_by_one(name):
    """Nothing is reported more often, nothing by 0.1 % less; keys come out in their order as often."""
    channel, exact = OnLadder(*SMALL[name]), optimal(*SMALL[name])
    assert exact.loss == 0 < channel.loss <= 1e-3
    frequencies = np.arange(1, channel.rows.last + 9)
    ratio = channel.reporting_probability(frequencies) / exact.reporting_probability(frequencies)
    assert 1 - channel.loss - 1e-6 <= ratio.min() and ratio.max() < 1 + 1e-9
    pairs = np.array([5, 20, 150, channel.rows.last]), np.array([7, 25, 153, channel.rows.last + 2])
    assert concordance(channel, *pairs) == pytest.approx(concordance(exact, *pairs), rel=1e-3)


@pytest.mark.parametrize("tau", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-8), (0.5, 1e-6), (1.0, 1e-20)])
def test_every_rate_is_certified(epsilon, delta, tau):
    channel = optimal(epsilon, delta, ppswor(tau))
    assert channel.certify().parts[-1].method == "kernel" and channel.certify().worst <= delta
    assert channel.loss <= 1e-3
    frequencies = np.unique(np.geomspace(1, 40 / tau, 300).astype(np.int64))
    pi, q = channel.reporting_probability(frequencies), channel.scheme.inclusion(frequencies)
    assert (pi <= q * (1 + 1e-12)).all()
    late = frequencies > 3 / epsilon * np.log(1 / delta)
    assert (pi[late] >= (1 - channel.loss) * q[late] * (1 - 1e-9)).all()
    assert channel.rows.withheld(np.array(HUGE)).max() < 1e-30


@pytest.mark.parametrize(
    ("epsilon", "delta", "scheme"),
    [
        (0.1, 1e-8, ppswor(1e-9)),
        (0.02, 1e-6, ppswor(1e-4)),
        (5.0, 1e-8, ppswor(1e-5)),
        (0.1, 1e-8, priority(1e-6)),
        (0.5, 1e-6, ppswor(1e-3, 0.2)),
        (0.5, 1e-6, ppswor(1e-12, 2.0)),
        (0.5, 1e-6, FunctionScheme(lambda i: i / (i + 1e5))),
    ],
    ids=str,
)
def test_other_rates_budgets_and_schemes(epsilon, delta, scheme):
    channel = optimal(epsilon, delta, scheme)
    channel.certify()
    assert isinstance(channel.rows, LadderRows) and channel.loss <= 1e-3
    q = scheme.inclusion(HUGE)
    assert (channel.reporting_probability(HUGE) >= (1 - channel.loss) * q * (1 - 1e-9)).all()


def test_after_a_jump_rows_are_made_one_by_one():
    channel = optimal(0.5, 1e-6, FunctionScheme(lambda i: np.where(i < 40_000, 0.1, 0.2) * np.minimum(i / 1e5, 1.0)))
    assert isinstance(channel.rows, StepRows) and channel.loss == 0
    assert isinstance(simple(0.5, 1e-6, ppswor(1e-4)).rows, StepRows)


def test_where_a_ladder_loses_more_the_smaller_loss_is_taken_and_told():
    """Large epsilons need finer tokens than 64 bits allow for frequencies of 10^12."""
    for epsilon, delta, scheme in (
        (8.0, 1e-8, ppswor(1e-6)),
        (9.0, 1e-8, ppswor(1e-9)),
        (20.0, 1e-8, ppswor(1e-9)),
        (1.0, 1e-8, FunctionScheme(lambda i: np.where(i < 2e6, 1e-6, 0.5))),
    ):
        channel = optimal(epsilon, delta, scheme)
        channel.certify()
        q = scheme.inclusion(HUGE)
        assert (channel.reporting_probability(HUGE) >= (1 - channel.loss) * q * (1 - 1e-9)).all()
        release = channel.release(["a"], [10**12])
        assert all(abs(row["count"] - 10**12) <= channel.rows.spread for row in release.table.to_pylist())


class TestTheKernelRefuses:
    """Every number of the table matters: a change for the worse is refused, and says why."""

    @pytest.fixture
    def made(self):
        return OnLadder(*SMALL["ppswor"]).rows._stairs

    def refused(self, made, reason, **changes):
        verdict, _ = examine_ladder(replace(made.table, **changes), 0.5, 1e-2)
        assert not verdict.accepted and reason in verdict.reason

    def one_stair(self, made):
        """Each row once, none repeated."""
        rows = len(made.table.c)
        return {"starts": np.array([1]), "first": np.array([1, rows]), "stop": rows}

    def moved(self, places, row, by):
        changed = places.copy()
        changed[row:] += by
        return changed

    def test_a_ladder_that_is_too_steep(self, made):
        masses = list(made.table.masses)
        masses[-1] += masses[-1] >> 40
        self.refused(made, "more than e^epsilon above", masses=tuple(masses))
        self.refused(made, "rounded up", inverse=made.table.inverse - 1)
        self.refused(made, "more than delta", birth=made.table.birth + 1)
        self.refused(made, "below one", masses=(0, *made.table.masses[1:]))

    def test_places_that_move_back_or_too_far(self, made):
        c, b = made.table.c, made.table.b
        self.refused(made, "decreases", c=np.where(np.arange(len(c)) == 500, c[499] - 1, c))
        self.refused(made, "decreases", b=np.where(np.arange(len(b)) == 500, b[499] - 1, b))
        self.refused(made, "where it may be", b=np.where(np.arange(len(b)) >= 500, c + 1, b), c=c)
        self.refused(made, "where it may be", c=np.maximum(c, 2 * made.table.parts * (np.arange(len(c)) > 0)))
        self.refused(made, "fit together", c=c[1:])

    def test_more_that_vanishes(self, made):
        """b is where it must be, to a token or two: a hundred more are too many."""
        self.refused(made, "more than delta vanishes", b=self.moved(made.table.b, 300, 100), **self.one_stair(made))

    def test_more_than_there_is(self, made):
        c = made.table.c.copy()
        c[100:] = np.maximum(made.table.b[100:], c[100])
        self.refused(made, "row", c=c, **self.one_stair(made))

    def test_a_row_that_has_not_settled(self, made):
        """An earlier row of a stair serves a thousand frequencies more."""
        table = made.table
        k = int(np.flatnonzero(table.first[1:] == table.repeated[0] + 1)[0])
        for stair in (0, 100):
            self.refused(made, "repeated", starts=self.moved(table.starts, stair + 1, 1000), stop=table.stop + 1000)
        first = table.first - 5 * (np.arange(len(table.first)) == k + 1)
        self.refused(made, "not a shifted one", first=first)

    def test_frequencies_that_skip_rows_or_have_none(self, made):
        table = made.table
        k = int(np.flatnonzero(np.diff(table.first) > 5)[0])
        short = self.moved(table.starts, k + 1, table.starts[k] + 2 - table.starts[k + 1])
        self.refused(made, "more rows than frequencies", starts=short)
        self.refused(made, "no row", first=np.where(np.arange(len(table.first)) == k, table.first[k + 1], table.first))
        self.refused(
            made, "end with the last", first=table.first - (np.arange(len(table.first)) == len(table.first) - 1)
        )
        self.refused(made, "begin with row 1", starts=table.starts + 1)
        self.refused(made, "out of range", stop=2**62)
        self.refused(made, "fit together", first=table.first[1:])

    def test_a_table_for_another_budget(self, made):
        for epsilon, delta in ((0.49, 1e-2), (0.5, 0.99e-2)):
            with pytest.raises(NotCertified):
                made.examine(epsilon, delta)

    def test_an_end_that_has_not_settled(self, made):
        with pytest.raises(NotCertified, match="has not settled"):
            replace(made, table=replace(made.table, **self.one_stair(made)), sure=False).examine(0.5, 1e-2)

    def test_rows_reported_more_often_than_sampled(self, made):
        with pytest.raises(NotCertified, match="more often than it is sampled"):
            replace(made, levels=made.levels // np.uint64(2)).examine(0.5, 1e-2)


def cells_of(rows, frequency):
    """The cells of a row, with their probabilities, and that of 'nothing' first."""
    (row,) = rows.single_rows(np.array([frequency]))
    mass = (row.high[0] * 2.0**-64 + row.low[0] * 2.0**-128) * np.diff(row.edges)
    return row.edges, np.append(rows.withheld(np.array([frequency])), mass)


def test_draws_where_rows_change_shape():
    """Chi-square of 20,000 draws against the row, at some thirty frequencies: false alarms once in 10^9 each."""
    for channel in (million(), OnLadder(*SMALL["ppswor"])):
        rows = channel.rows
        for frequency in regimes(rows):
            edges, mass = cells_of(rows, frequency)
            tokens = rows.draw(np.full(20_000, frequency), SystemSource())
            seen = np.bincount(
                np.where(tokens > 0, np.searchsorted(edges, tokens, side="right"), 0), minlength=len(mass)
            )
            assert len(seen) == len(mass)
            if 1 - mass[0] > 0.01:
                assert_counts(seen.astype(float), mass * 20_000)


def test_draws_at_the_borders_of_cells():
    """On either side of the border of two cells, and of what is reported."""
    rows = OnLadder(*SMALL["ppswor"]).rows
    for frequency in regimes(rows):
        (row,) = rows.single_rows(np.array([frequency]))
        each = [int(high) << 64 | int(low) for high, low in zip(row.high[0], row.low[0], strict=True)]
        ends = list(accumulate(int(width) * mass for width, mass in zip(np.diff(row.edges), each, strict=True)))
        for end, token in zip(ends, row.edges[1:].tolist(), strict=True):
            drawn = [rows.draw(np.array([frequency]), Scripted(*divmod(end + k, 2**64)))[0] for k in (-1, 0)]
            assert drawn == [token - 1, 0 if end == ends[-1] else token]


def test_keys_that_someone_else_sampled():
    """q_i P[reported | sampled] = pi_i, measured."""
    channel = million()
    for frequency in (50, 1000, 400_000, 10**7, 10**12):
        pi = channel.reporting_probability([frequency])[0] / channel.scheme.inclusion([frequency])[0]
        shown = (channel.draw(np.full(20_000, frequency), already_sampled=True).tokens > 0).sum()
        low, high = binomial_band(20_000, min(pi, 1.0))
        assert low <= shown <= high


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_exact_coverage_where_rows_change_shape(level):
    """The tokens whose interval holds i are a run, as both ends grow with the token; its mass is at least the level."""
    for channel in (million(), OnLadder(*SMALL["ppswor"])):
        rows = channel.rows
        for frequency in regimes(rows):
            edges, mass = cells_of(rows, frequency)
            first = bisect(rows, level, edges, lambda _, high, i=frequency: high >= i)
            stop = bisect(rows, level, edges, lambda low, _, i=frequency: low > i)
            inside = np.clip(np.minimum(edges[1:], stop) - np.maximum(edges[:-1], first), 0, None) / np.diff(edges)
            covered = inside @ mass[1:] / mass[1:].sum()
            assert covered >= level * (1 - 1e-9)
            assert covered <= level + 0.12  # and is not far from it: intervals are no longer than they must be


def bisect(rows, level, edges, holds):
    """The first token of a row whose interval (low, high) is so, or one past the last."""
    first, stop = int(edges[0]), int(edges[-1])
    while first < stop:
        middle = (first + stop) // 2
        low, high = rows.interval(np.array([middle]), level)
        first, stop = (first, middle) if holds(low[0], high[0]) else (middle + 1, stop)
    return first


def test_the_likeliest_frequency_where_rows_change_shape():
    """It is the argmax over all rows that have the token."""
    rows = million().rows
    for frequency in regimes(rows):
        edges, mass = cells_of(rows, frequency)
        tokens = edges[1:][mass[1:] > mass[1:].max() * 1e-3][::25] - 1
        found, chance = rows.likeliest(tokens)
        others = np.unique(np.clip(np.add.outer(found, np.arange(-40, 41)), 1, None))
        masses = [cells[np.searchsorted(edges, tokens, side="right")] for edges, cells in map(densities(rows), others)]
        assert chance == pytest.approx(np.max(masses, axis=0), rel=1e-9)


def densities(rows):
    """Return a function: the edges of a row, and the probability of each token of its cells, zero before and after."""

    def of(frequency):
        edges, mass = cells_of(rows, frequency)
        return edges, np.concatenate([[0.0], mass[1:] / np.diff(edges), [0.0]])

    return of


def test_a_table_of_a_million_is_used_lazily():
    """Reading, estimating and ranking ask for the rows near by alone, whatever the frequency."""
    channel = million()
    frequencies = [30, 5000, 10**6, 10**8, 10**12]
    moments = estimator(channel).moments(frequencies)
    assert (np.abs(moments.bias[1:]) < 0.01 * np.array(frequencies[1:])).all()
    assert concordance(channel, np.array(frequencies) - 29, frequencies).min() > 0.5
    assert frequency_at(channel, 0.5) == pytest.approx(np.log(2) * 1e6, rel=2e-3)
    assert channel.release(["tea", "milk", "salt"], [30, 10**8, 10**12]).table["key"].to_pylist() == ["milk", "salt"]
