"""Direct and unary encoding, and TrieHH: guarantees enumerated, estimates unbiased with the stated variances."""

import itertools
import math

import numpy as np
import pytest
from helpers.statistical import assert_follows, binomial_band
from scipy import stats

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.papers.sample_threshold import DirectEncoding, HadamardResponse, TrieHH, UnaryEncoding
from dpsieve.papers.sample_threshold.trie_hh import theorem_delta
from dpsieve.privacy.guarantee import Guarantee

UNARY = [UnaryEncoding(1.0, 4), UnaryEncoding(0.3, 3, kind="symmetric"), UnaryEncoding(3.0, 5, rate=0.4)]


def unary_law(made, value):
    """Return the probability of every report of a client with this value."""
    chances = [made.p if bucket == value else made.q for bucket in range(made.buckets)]
    bits = itertools.product((0, 1), repeat=made.buckets)
    return np.array([math.prod(c if bit else 1 - c for bit, c in zip(row, chances, strict=True)) for row in bits])


@pytest.mark.parametrize("made", UNARY)
def test_reports_of_any_two_values_are_within_e_epsilon(made):
    laws = [unary_law(made, value) for value in range(made.buckets)]
    losses = [np.log(one / other).max() for one, other in itertools.permutations(laws, 2)]
    assert max(losses) == pytest.approx(made.guarantee.epsilon, rel=1e-12) and made.certify().worst == 0.0
    assert made.guarantee == Guarantee(made.guarantee.epsilon, 0.0, "replace", "one client")


@pytest.mark.parametrize(("epsilon", "buckets", "rate"), [(0.5, 2, 1.0), (2.0, 6, 0.3)])
def test_direct_encoding_follows_its_law(epsilon, buckets, rate):
    made = DirectEncoding(epsilon, buckets, rate=rate)
    law = np.where(np.arange(buckets) == 1, made.p, made.q)
    assert law.sum() == pytest.approx(1) and made.p / made.q == pytest.approx(math.exp(epsilon), rel=1e-14)
    reports = made.respond(np.ones(60_000, np.int64))
    assert_follows(reports, np.arange(buckets), law)
    low, high = binomial_band(60_000, rate)
    assert low <= len(reports) <= high


@pytest.mark.parametrize("made", [*UNARY, DirectEncoding(1.5, 4), DirectEncoding(0.5, 3, rate=0.2)])
def test_estimates_have_the_mean_and_variance_of_their_law(made):
    """Estimates are sums over clients, so both follow from the law of one report, without drawing."""
    clients = np.arange(made.buckets) ** 2 * 3 + 1
    mean, variance = np.zeros(made.buckets), np.zeros(made.buckets)
    for value, bucket in itertools.product(range(made.buckets), repeat=2):
        chance = made.p if value == bucket else made.q
        terms = np.array([made.estimate([1.0], 1)[0], made.estimate([0.0], 1)[0], 0.0])
        law = np.array([made.rate * chance, made.rate * (1 - chance), 1 - made.rate])
        mean[bucket] += clients[value] * (law @ terms)
        variance[bucket] += clients[value] * (law @ terms**2 - (law @ terms) ** 2)
    np.testing.assert_allclose(mean, clients, rtol=1e-12)
    np.testing.assert_allclose(made.variance(clients), variance, rtol=1e-9)


def test_drawn_sums_of_bits_have_their_mean():
    counts, made = np.array([500, 30, 0]), UnaryEncoding(1.0, 3, rate=0.5)
    drawn = np.array([made.estimate(*made.draw(counts)) for _ in range(2000)])
    assert (np.abs(drawn.mean(axis=0) - counts) < 6.5 * np.sqrt(made.variance(counts) / 2000)).all()
    direct, values = DirectEncoding(1.0, 3), np.repeat(np.arange(3), counts)
    drawn = np.array([direct.count(direct.respond(values)) for _ in range(400)])
    assert (np.abs(drawn.mean(axis=0) - counts) < 6.5 * np.sqrt(direct.variance(counts) / 400)).all()


@pytest.mark.parametrize("buckets", [2**6, 2**10, 2**14])
@pytest.mark.parametrize("epsilon", [0.1, 0.4, 0.6, 1.0])
def test_optimised_unary_encoding_is_the_best_local_oracle(buckets, epsilon):
    """Section 5 takes Hadamard response as the most accurate one, for these numbers of buckets and epsilons.

    With one block, its variance of a rare value is n ((e + 1)/(e - 1))^2 = n 4 e/(e - 1)^2 + n, with e for e^epsilon,
    and the first term is that of optimised unary encoding; several blocks have more. Symmetric unary encoding has at
    most n/4 more than the optimised one.
    """
    clients = np.full(buckets, 100)
    unary, e = UnaryEncoding(epsilon, buckets).variance(clients).mean(), math.exp(epsilon)
    symmetric = UnaryEncoding(epsilon, buckets, kind="symmetric").variance(clients).mean()
    hadamard = HadamardResponse(epsilon, buckets).variance(clients).mean()
    assert unary == pytest.approx(100 * buckets * 4 * e / (e - 1) ** 2 + 100, rel=1e-9)
    assert 1.0 < hadamard / unary < 2.0
    assert (
        unary
        < symmetric
        < unary + 100 * buckets / 4
        < hadamard
        < DirectEncoding(epsilon, buckets).variance(clients).mean()
    )
    if epsilon < math.log(2):  # one block
        assert hadamard == pytest.approx(unary + 100 * buckets - 200, rel=1e-3)


@pytest.mark.parametrize("make", [DirectEncoding, UnaryEncoding])
def test_bad_input_is_named(make):
    for arguments in ((0.0, 4), (1.0, 1), (1.0, 2.5), ("x", 4)):
        with pytest.raises(DpsieveError, match=r"epsilon|buckets"):
            make(*arguments)
    with pytest.raises(InvalidValue, match="frequencies"):
        make(1.0, 4).variance([1, 2])
    with pytest.raises(InvalidValue, match="kind"):
        UnaryEncoding(1.0, 4, kind="best")
    for call in (lambda made: made.respond([4]), lambda made: made.count([-1])):
        with pytest.raises(InvalidValue, match=r"values|reports"):
            call(DirectEncoding(1.0, 4))


def shown(method, counts):
    """Return the probability of every set of values that reach the threshold in one round, from exact sampling."""
    n, law = method.clients, {}
    a, b = counts[:2]
    for i in range(min(a, method.voters) + 1):
        j = np.arange(min(b, method.voters - i) + 1)
        chance = stats.hypergeom.pmf(i, n, a, method.voters) * stats.hypergeom.pmf(j, n - a, b, method.voters - i)
        for reached in (False, True):
            key = (i >= method.threshold, reached)
            law[key] = law.get(key, 0.0) + chance[(j >= method.threshold) == reached].sum()
    return law


@pytest.mark.parametrize(("clients", "epsilon", "delta"), [(100, 2.0, 0.05), (150, 3.0, 1e-3), (400, 2.0, 1e-3)])
def test_a_round_of_triehh_keeps_its_share_of_the_theorem(clients, epsilon, delta):
    """Two values that everyone has, one client of which has the other one, or a third one, in the neighbour."""
    method = TrieHH(clients, epsilon, delta, length=2)
    assert method.voters * (method.threshold + 1) <= clients and theorem_delta(method.threshold) <= delta
    each, worst = epsilon / 2, 0.0
    for a in range(1, clients, 1 + clients // 60):
        for neighbour in ((a - 1, clients - a + 1), (a - 1, clients - a)):
            laws = shown(method, (a, clients - a)), shown(method, neighbour)
            for one, other in itertools.permutations(laws):
                keys = {*one, *other}
                over = sum(max(0.0, one.get(k, 0.0) - math.exp(each) * other.get(k, 0.0)) for k in keys)
                worst = max(worst, over)
    assert 0 < worst <= theorem_delta(method.threshold)


def test_triehh_finds_a_string_as_often_as_its_votes_say():
    """A string of one symbol needs two rounds: its symbol and its end, each in a fresh sample."""
    method = TrieHH(300, 4.0, 1e-2, length=2)
    common = math.ceil(300 * (method.threshold + 1) / method.voters)
    values = ["a"] * common + ["bb"] * (300 - common)
    once = stats.hypergeom.sf(method.threshold - 1, 300, common, method.voters)
    found = sum("a" in method.find(values) for _ in range(400))
    low, high = binomial_band(400, once**2)
    assert low <= found <= high
    assert not any("bb" in method.find(values) for _ in range(5))  # longer than the rounds


def test_triehh_refuses_what_its_theorem_does_not_cover():
    with pytest.raises(InvalidValue, match="clients"):
        TrieHH(100, 1.0, 1e-12, length=4)
    method = TrieHH(100, 1.0, 0.01, length=4)
    with pytest.raises(InvalidValue, match="values"):
        method.find(["a"] * 99)
    with pytest.raises(InvalidType, match="values"):
        method.find("a" * 100)
