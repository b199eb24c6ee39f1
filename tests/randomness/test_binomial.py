"""Binomial counts and coins: exactly their distribution, whatever the number of trials and the rate."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from helpers.scripted import Scripted
from helpers.statistical import assert_cdf, assert_follows, binomial_band
from scipy import stats

from dpsieve.errors import DpsieveError
from dpsieve.randomness import Source, binomial, coins
from dpsieve.randomness.coins import _fair_coins, bernoulli, bernoulli_words
from dpsieve.testing import insecure_source

DRAWS = 200_000


@pytest.mark.parametrize("rate", [0.1, 0.5, 1 / 3, 0.999])
@pytest.mark.parametrize("trials", [1, 2, 7, 63, 64, 65, 200])
def test_small_counts_follow_every_probability(trials, rate):
    values = np.arange(trials + 1)
    assert_follows(binomial(np.full(DRAWS, trials), rate), values, stats.binom.pmf(values, trials, rate))


@pytest.mark.parametrize(
    ("trials", "rate"),
    [(10**6, 1e-6), (10**7, 1e-6), (4096, 0.5), (5000, 0.1), (10**5, 0.3), (2**20 + 5, 0.7), (10**9, 1 - 1e-9)],
)
def test_large_counts_follow_their_distribution(trials, rate):
    law = stats.binom(trials, rate)
    edges = np.unique(law.ppf(np.linspace(0.002, 0.998, 200)).astype(np.int64))
    assert_cdf(binomial(np.full(20_000, trials), rate), edges, law.cdf)


@pytest.mark.parametrize("trials", [10**9, 10**12])
def test_huge_counts(trials):
    """Z-scores of 200 draws: their sum and the sum of their squares, both within 6.1 standard deviations."""
    count = 200 if trials == 10**9 else 20
    draws = binomial(np.full(count, trials), 0.3)
    z = (draws - 0.3 * trials) / math.sqrt(trials * 0.21)
    assert abs(z.sum()) < 6.2 * math.sqrt(count)
    low, high = stats.chi2.ppf([1e-9, 1 - 1e-9], count)
    assert low < (z**2).sum() < high


def test_the_sum_of_many_entries():
    """Entries of all sizes add up to one Binomial(10^9, p): an exact binomial band."""
    counts = np.concatenate([np.full(1000, 999_000), np.full(500, 2000), np.zeros(500, np.int64)])
    total = int(counts.sum())
    low, high = binomial_band(total, 0.37)
    assert total == 10**9 and low <= binomial(counts, 0.37).sum() <= high


def test_rates_at_the_ends():
    counts = np.array([0, 1, 5, 10**12])
    assert binomial(counts, 0.0).tolist() == [0, 0, 0, 0]
    assert (binomial(counts, 1.0) == counts).all()
    assert not binomial(np.full(1000, 10**6), 1e-300).any()
    assert not binomial(np.full(1000, 50), 5e-324).any()


def test_entries_keep_their_places_and_do_not_depend_on_each_other():
    counts = np.tile([0, 3, 10**6, 64, 5000, 1], 20_000)
    draws = binomial(counts, 0.25)
    assert (draws <= counts).all() and not draws[counts == 0].any()
    first, second = draws[1::6], draws[5::6]  # neighbours in the stream of bits
    assert_follows(4 * second + first, np.arange(8), np.outer([0.75, 0.25], stats.binom.pmf(range(4), 3, 0.25)).ravel())
    z = (draws[2::6] - 250_000) / math.sqrt(187_500)
    assert abs((z[1:] * z[:-1]).sum()) < 6.2 * math.sqrt(len(z))


class Bits(Source):
    """Gives the chosen bits, one word for each request: the high bit of each word."""

    publishable = False

    def __init__(self, bits):
        self.bits = list(bits)

    def words(self, count):
        taken, self.bits = self.bits[:count], self.bits[count:]
        assert len(taken) == count, "more bits than expected"
        return np.array(taken, np.uint64) << np.uint64(63)


def test_one_trial_by_enumeration():
    """Rate 5/8 = 0.101 in binary: over all eight uniform numbers of three bits, five are below it."""
    seen = Counter(int(binomial([1], 0.625, source=Bits(bits))[0]) for bits in itertools.product((0, 1), repeat=3))
    assert seen == {1: 5, 0: 3}


def test_two_trials_by_enumeration():
    """Two bits a round: the words of the source are its ways, each as likely as 2^-bits that were used."""
    chance = Counter()
    patterns = [np.uint64(high) << np.uint64(62) for high in range(4)]

    class Pairs(Bits):
        def words(self, count):
            assert count == 1
            self.used.append(self.bits.pop(0))
            return np.array([self.used[-1]], np.uint64)

    for path in itertools.product(patterns, repeat=3):
        source = Pairs(path)
        source.used = []
        got = int(binomial([2], 0.625, source=source)[0])
        chance[got] += Fraction(1, 64)
    p = Fraction(5, 8)
    assert chance == {0: (1 - p) ** 2, 1: 2 * p * (1 - p), 2: p**2}


def test_blocks_of_fair_coins_are_exact_tables():
    for bits in (12, 20):
        table, half = _fair_coins(bits), 2 ** (bits - 1)
        spread = math.sqrt(half / 2)
        edges = np.arange(half - int(4 * spread), half + int(4 * spread), max(1, int(spread / 8)))
        assert_cdf(table.draw(200_000), edges, stats.binom(2**bits, 0.5).cdf)


@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.1, 0.5, 1 - 1e-9, 1.0])
def test_coins_have_their_rate(rate):
    low, high = binomial_band(10**6, rate)
    assert low <= coins(10**6, rate).sum() <= high


def test_a_tie_of_the_first_word_is_decided_by_the_next():
    """The rate 2^-65: the first word must be 0, and the second one below 2^63."""
    for words, answer in [((0, 2**63 - 1), True), ((0, 2**63), False), ((1,), False)]:
        assert coins(1, 2.0**-65, source=Scripted(*words)).tolist() == [answer]
    edge = int(Fraction(0.1) * 2**64)  # 0.1 has 56 bits, so no further word is needed
    assert coins(3, 0.1, source=Scripted(edge - 1, edge, edge + 1)).tolist() == [True, False, False]


def test_draws_repeat_under_a_test_source():
    counts = np.arange(5000) ** 2
    assert (binomial(counts, 0.3, source=insecure_source(5)) == binomial(counts, 0.3, source=insecure_source(5))).all()
    assert (coins(1000, 0.3, source=insecure_source(5)) == coins(1000, 0.3, source=insecure_source(5))).all()


def test_bad_parameters():
    for bad in (-0.1, 1.1, math.nan, "x", None):
        with pytest.raises(DpsieveError, match="rate"):
            binomial([1], bad)
        with pytest.raises(DpsieveError, match="rate"):
            coins(1, bad)
    for bad in ([-1], [10**12 + 1], [1.5], ["a"], 3, None):
        with pytest.raises(DpsieveError, match="counts"):
            binomial(bad, 0.5)
    with pytest.raises(DpsieveError, match="count"):
        coins(-1, 0.5)
    with pytest.raises(DpsieveError, match="source"):
        binomial([1], 0.5, source=np.random.default_rng())
    assert len(binomial([], 0.5)) == 0 and len(coins(0, 0.5)) == 0


def included(q, *words):
    """Whether one coin of probability q is true when these are the next random words."""
    source = Scripted(*words)
    heads = bernoulli(np.array([q]), source)
    assert not source._first, "not all words were needed"
    return bool(heads[0])


class TestExactDecisions:
    """A coin of probability q is true if U < q, for the uniform U whose bits are the words."""

    def test_certainty_needs_no_luck(self):
        assert included(1.0, 2**64 - 1)
        assert included(1.0, 2**64 - 2**11)  # the largest float below 2^64

    def test_impossibility(self):
        assert not included(0.0, 0)

    def test_a_word_equal_to_all_of_q_is_not_below_it(self):
        assert included(0.5, 2**63 - 1)
        assert not included(0.5, 2**63)

    def test_the_float_before_one(self):
        q = 1 - 2.0**-53
        assert included(q, 2**64 - 2**11 - 1)
        assert not included(q, 2**64 - 2**11)
        assert not included(q, 2**64 - 1)

    def test_a_tie_is_decided_by_the_next_word(self):
        """q = 3 * 2^-66 has the first word 0 and then the bits 11."""
        q = 3 * 2.0**-66
        assert included(q, 0, 3 * 2**62 - 1)
        assert not included(q, 0, 3 * 2**62)
        assert not included(q, 1)

    def test_the_smallest_probability_takes_seventeen_words(self):
        """q = 2^-1074: sixteen words of zeros, then 14 bits of the seventeenth."""
        assert included(5e-324, *[0] * 16, 2**14 - 1)
        assert not included(5e-324, *[0] * 16, 2**14)

    def test_ties_keep_the_rate(self):
        """All first words tie, so that the refinement alone makes the decision: 3/4 of the time below."""
        heads = bernoulli(np.full(20_000, 3 * 2.0**-66), Scripted(*[0] * 20_000))
        low, high = binomial_band(20_000, 0.75)
        assert low <= heads.sum() <= high

    def test_words(self):
        """The limit 2^64 + 3: a first word of 1 ties, and the second one decides."""
        limit = np.array([1], np.uint64), np.array([3], np.uint64)
        for words, answer in [((0,), True), ((1, 2), True), ((1, 3), False), ((2,), False)]:
            assert bernoulli_words(*limit, Scripted(*words)).tolist() == [answer]
