"""Exact draws: the ordinary path by chi-square, the rare paths by forcing them."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, fmpq
from helpers.scripted import Repeating, Scripted
from helpers.statistical import assert_follows
from scipy import stats

from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.randomness import ExactTable

FAIR_DIE = [Fraction(k, 6) for k in range(7)]


def die(k):
    """The cdf of a fair die: thirds and sixths, which no finite number of bits settles."""
    value = FAIR_DIE[min(max(k, 0), 6)]
    return arb(fmpq(value.numerator, value.denominator))


def poisson(rate, k):
    """The cdf of a Poisson variable."""
    if k < 0:
        return arb(0)
    term = total = arb(1)
    for j in range(1, k + 1):
        term = term * arb(rate) / j
        total += term
    return total * (-arb(rate)).exp()


def test_a_fair_die():
    draws = ExactTable(die, near=3).draw(300_000)
    assert_follows(draws, range(1, 7), [1 / 6] * 6)


def test_a_poisson_variable():
    draws = ExactTable(lambda k: poisson(3.5, k), near=3).draw(300_000)
    assert_follows(draws, range(40), stats.poisson.pmf(range(40), 3.5))


def test_a_certain_outcome():
    sure = ExactTable(lambda k: arb(0) if k < 42 else arb(1), near=42)
    assert set(sure.draw(1000).tolist()) == {42}


def test_a_word_on_a_boundary_is_refined():
    """floor(2^64 / 6) begins every U near 1/6; of them the fraction 2^64/6 - floor(2^64/6) = 2/3 is below 1/6."""
    word = 2**64 // 6
    table = ExactTable(die, near=3)
    draws = table.search(np.full(4000, word, np.uint64), Repeating(word))
    assert_follows(draws, [1, 2], [2 / 3, 1 / 3])


@pytest.mark.parametrize(("next_word", "drawn"), [(0, 1), (2**64 // 3, 1), (2**64 - 1, 2)])
def test_the_refinement_reads_the_next_word(next_word, drawn):
    """2^64/6 = word + 2/3, so the next word decides unless it is floor(2^64 * 2/3)."""
    assert ExactTable(die, near=3).draw(1, Scripted(2**64 // 6, next_word)).tolist() == [drawn]


def test_a_second_tie_reads_a_third_word():
    tie = [2**64 // 6, 2 * 2**64 // 3]
    table = ExactTable(die, near=3)
    assert table.draw(1, Scripted(*tie, 0)).tolist() == [1]
    assert table.draw(1, Scripted(*tie, 2**64 - 1)).tolist() == [2]


def geometric(k):
    """P[X > k] = 3^-k for k >= 0: a tail that no table holds."""
    return 1 - arb(3) ** -max(k, 0) if k > 0 else arb(0)


def test_the_tail_beyond_the_table_is_drawn_exactly():
    """All bits one: U >= 1 - 2^-64, where the table ends; P[X > k | U] = 3^-k 2^64 from there on."""
    table = ExactTable(geometric, near=1)
    top = 2**64 - 1
    draws = table.search(np.full(5_000, top, np.uint64), Repeating(top))
    first = next(k for k in range(100) if 3**k > 2**64)
    tail = [1.0] + [2.0**64 / 3.0**k for k in range(first, first + 12)]
    assert_follows(draws, range(first, first + 12), -np.diff(tail))


@pytest.mark.parametrize("start", [2**31 - 50, -(2**31) - 50, 2**40, -(2**50)])
def test_integers_far_from_zero(start):
    uniform = ExactTable(lambda k: arb(min(max(k - start + 1, 0), 100)) / 100, near=start + 50)
    draws = uniform.draw(50_000) - start
    assert_follows(draws, range(100), [0.01] * 100)


def test_bad_distributions_are_refused():
    with pytest.raises(InvalidValue, match="decreases"):
        ExactTable(lambda k: arb(0) if k < 0 else arb([0.75, 0.5][k]) if k < 2 else arb(1), near=0)
    with pytest.raises(InvalidValue, match="spread"):
        ExactTable(lambda k: arb(min(max(k, 0), 10**6)) / 10**6, near=500_000)
    with pytest.raises(InvalidValue, match="reach"):
        ExactTable(lambda k: arb(1) / 2)
    for bad in (5, None, lambda k: None, lambda k: 0.5, lambda k: arb("nan")):
        with pytest.raises(DpsieveError, match="cdf"):
            ExactTable(bad)
    with pytest.raises(InvalidValue, match="wide"):
        ExactTable(lambda k: arb(0.5, 0.1))


@pytest.mark.parametrize("count", [-1, 1.5, "3", None, 2**60, True])
def test_bad_counts(count):
    with pytest.raises(DpsieveError, match="count"):
        ExactTable(die, near=3).draw(count)
    assert ExactTable(die, near=3).draw(0).tolist() == []
