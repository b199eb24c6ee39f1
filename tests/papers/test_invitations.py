"""How many clients to invite, beside SciPy's binomial distribution."""

import math

import pytest
from scipy import stats

from dpsieve.errors import DpsieveError
from dpsieve.papers.sample_threshold import invite_for_reports, invite_for_sample, lemma_4_invited
from dpsieve.papers.sample_threshold.invitations import lower_tail, upper_tail
from dpsieve.privacy.guarantee import Guarantee


def test_a_sample_fits_among_the_invited():
    found = invite_for_sample(100_000, 0.1, beta=1e-9)
    law = stats.binom(100_001, 0.1)
    assert law.sf(found.invited) <= 1e-9 < law.sf(found.invited - 1)
    assert found.overflow == pytest.approx(law.sf(found.invited), rel=1e-6)
    assert 10_000 < found.invited < lemma_4_invited(100_000, 0.1, 1e-9)
    with_cut = found.guarantee(Guarantee(1.0, 1e-8))
    assert with_cut.delta == pytest.approx(1e-8 + (1 + math.e) * found.overflow, rel=1e-9)


def test_everybody_where_few_are_there():
    found = invite_for_sample(5, 0.9, beta=1e-9)
    assert (
        found.invited == 6 and found.overflow == 0 and lemma_4_invited(5, 0.9, 1e-9) == 6
    )  # also the neighbour's sixth


def test_the_coins_of_lemma_4_make_another_sample():
    """The size of their sample varies less than that of a sample of each client on its own."""
    found = invite_for_sample(100_000, 0.1, beta=1e-6)
    mean = 10_000
    coins, own = mean * (1 - mean / found.invited), mean * 0.9
    assert coins < 0.06 * own


@pytest.mark.parametrize(("reports", "rate"), [(1, 0.5), (20, 0.1), (1000, 0.9), (1000, 0.01)])
def test_enough_report(reports, rate):
    invited = invite_for_reports(reports, rate, beta=1e-6)
    assert stats.binom.cdf(reports - 1, invited, rate) <= 1e-6 < stats.binom.cdf(reports - 1, invited - 1, rate)


def test_bad_parameters():
    for call, good in ((invite_for_sample, (1000, 0.1)), (invite_for_reports, (10, 0.1))):
        for beta in (0.0, 0.5, 1.0, math.nan, "x"):
            with pytest.raises(DpsieveError, match="beta"):
                call(*good, beta=beta)
        for rate in (0, 1, "x"):
            with pytest.raises(DpsieveError, match="rate"):
                call(good[0], rate)
        for count in (0, -1, 1.5, None):
            with pytest.raises(DpsieveError, match=r"population|reports"):
                call(count, 0.1)


def test_tails():
    assert upper_tail(1000, 0.1, 150) == pytest.approx(stats.binom.sf(149, 1000, 0.1), rel=1e-9)
    assert lower_tail(1000, 0.1, 60) == pytest.approx(stats.binom.cdf(60, 1000, 0.1), rel=1e-9)
    assert upper_tail(5, 0.1, 6) == lower_tail(5, 0.9, -1) == 0
