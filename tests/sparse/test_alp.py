"""ALP: unary numbers in hashed columns of flipped bits, what they cost, and how they are read."""

import itertools
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from helpers.scripted import Scripted
from helpers.statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, InvalidValue, NotCertified
from dpsieve.papers.thesis import alp_decoders
from dpsieve.papers.thesis.alp_decoders import decode, prefix_errors
from dpsieve.papers.thesis.vector_variants import GeometricAlp, geometric_alp
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness.source import Source
from dpsieve.sparse.alp import Alp, alp, least_flips
from dpsieve.sparse.digests import KEY_WORDS, hash_words
from dpsieve.testing import insecure_source

FULL = 2**24


def digests(count, start=0):
    """Return those of the indices start, start + 1, ..."""
    out = np.zeros((count, 2), np.uint64)
    out[:, 0] = np.arange(start, start + count)
    return out


class Silent(Source):
    """Gives zeros: no bit is flipped, and every value between two levels goes up."""

    publishable = False

    def words(self, count):
        return np.zeros(count, np.uint64)


# Privacy, by enumeration of all outputs of small embeddings, from the integers of the mechanism.


def level_chances(mechanism, value):
    """Return the levels to which a value may be rounded, and with which probability."""
    edges = [Fraction(edge) for edge in mechanism.edges.tolist()]
    size = min(abs(Fraction(value)), edges[-1])
    if not mechanism.signed and value < 0:
        size = Fraction(0)
    j = max(j for j, edge in enumerate(edges) if edge <= size)
    share = (size - edges[j]) / (edges[j + 1] - edges[j]) if j + 1 < len(edges) else Fraction(0)
    sign = -1 if value < 0 else 1
    return [(sign * j, 1 - share), (sign * (j + 1), share)] if share else [(sign * j, Fraction(1))]


def output_chances(mechanism, values, places):
    """Return the probability of every output; places[i][c] is where entry i has its bit in column c."""
    p, m = Fraction(mechanism.flips, FULL), mechanism.levels
    signs = [-1] * m + [1] * m if mechanism.signed else [1] * m
    outputs = list(itertools.product([0, 1], repeat=mechanism.columns * mechanism.places))
    chances = dict.fromkeys(outputs, Fraction(0))
    for rounded in itertools.product(*(level_chances(mechanism, value) for value in values)):
        bits, chance = [0] * (mechanism.columns * mechanism.places), Fraction(1)
        for own, (level, share) in zip(places, rounded, strict=True):
            chance *= share
            for c, sign in enumerate(signs):
                if sign * level >= c % m + 1:
                    bits[c * mechanism.places + own[c]] = 1
        for output in outputs:
            flipped = sum(a != b for a, b in zip(output, bits, strict=True))
            chances[output] += chance * p**flipped * (1 - p) ** (len(bits) - flipped)
    return list(chances.values())


def below_exp(x):
    """Return a fraction just below e^x."""
    terms = [Fraction(1)]
    for k in range(1, 30):
        terms.append(terms[-1] * x / k)
    return sum(terms)


def made(neighbours, levels, places, gap, ratio=1.0, *, epsilon=1.0, signed=False):
    flips = least_flips(epsilon, neighbours, Fraction(gap))
    if ratio > 1:
        return GeometricAlp(epsilon, neighbours, 2, levels, places, flips, gap, signed=signed, ratio=ratio)
    return Alp(epsilon, neighbours, 2, levels, places, flips, gap, signed=signed)


REAL, SIGNED = [0, 0.5, 1, 1.75, 2.5, 4], [-2, -0.75, 0, 0.25, 1]
CASES = {
    "l1": (made("l1", 2, 2, 1.5), REAL),
    "l1, close levels": (made("l1", 3, 1, 0.375), REAL),
    "l1, geometric": (made("l1", 2, 2, 0.75, 1.5), REAL),
    "l1, signed": (made("l1", 2, 1, 0.625, signed=True), SIGNED),
    "one_entry, Algorithm 10": (made("one_entry", 2, 2, 1.0), range(5)),
    "one_entry, two counts a level": (made("one_entry", 2, 2, 2.0), range(6)),
    "one_entry, geometric": (made("one_entry", 2, 2, 1.0, 1.6, epsilon=0.5), range(5)),
    "one_entry, signed": (made("one_entry", 2, 1, 1.0, signed=True), range(-3, 4)),
}


def distance(x, y, neighbours):
    apart = [abs(Fraction(a) - Fraction(b)) for a, b in zip(x, y, strict=True)]
    return sum(apart) if neighbours == "l1" or sum(map(bool, apart)) == 1 else 2


@pytest.mark.parametrize(("mechanism", "values"), CASES.values(), ids=CASES)
def test_no_output_tells_neighbours_apart_by_more_than_epsilon(mechanism, values):
    """All outputs, all pairs of neighbouring vectors of two entries, with and without collisions."""
    allowed, worst = below_exp(Fraction(mechanism.epsilon)), 0
    apart = [0] * mechanism.columns, [mechanism.places - 1] * mechanism.columns
    for places in [(apart[0], apart[1]), (apart[0], apart[0]), (apart[0], [*apart[0][1:], *apart[1][:1]])]:
        table = {x: output_chances(mechanism, x, places) for x in itertools.product(values, repeat=2)}
        for x, y in itertools.permutations(table, 2):
            if distance(x, y, mechanism.neighbours) <= 1:
                worst = max(worst, *(a / b for a, b in zip(table[x], table[y], strict=True)))
    assert worst <= allowed
    if mechanism.neighbours == "one_entry":  # the bound is reached, and flips cannot be fewer
        p = Fraction(mechanism.flips, FULL)
        assert worst == 1 + (1 - 2 * p) / (p * Fraction(float(np.diff(mechanism.edges).min())))
    mechanism.certify()


def test_a_unit_of_l1_spread_over_three_colliding_entries():
    mechanism, same = made("l1", 2, 2, 1.5), [[0, 0]] * 3
    x, y = (0.25, 1.5, 2), (0.5, 1.75, 1.5)
    pairs = zip(output_chances(mechanism, x, same), output_chances(mechanism, y, same), strict=True)
    ratios = [a / b for a, b in pairs]
    assert max(*ratios, *(1 / ratio for ratio in ratios)) <= below_exp(Fraction(1))


def test_the_better_loss_of_one_entry_does_not_hold_for_l1():
    """ln(1 + s) is the loss of one entry that changes alone; a unit that is spread over entries costs up to s."""
    mechanism = replace(made("one_entry", 1, 3, 2.0), neighbours="l1")
    lists = (output_chances(mechanism, x, [[0], [1], [2]]) for x in [(0,) * 3, (Fraction(1, 3),) * 3])
    assert max(b / a for a, b in zip(*lists, strict=True)) > below_exp(Fraction(1))
    with pytest.raises(NotCertified):
        mechanism.certify()


@pytest.mark.parametrize("mechanism", [case[0] for case in CASES.values()], ids=CASES)
def test_certificates_are_exact_on_the_integers(mechanism):
    assert mechanism.certify().parts[-1].method == "kernel"
    with pytest.raises(NotCertified):
        replace(mechanism, flips=mechanism.flips - 1).certify()
    with pytest.raises(NotCertified):
        replace(mechanism, epsilon=mechanism.epsilon * (1 - 1e-6)).certify()


# What is drawn.


def places_of(mechanism, cells, indices):
    """Return the bit of each index in each column, by the formula of the hash in Python's integers."""
    out = []
    for a, b in hash_words(cells[:KEY_WORDS], indices, 1).tolist():
        row = []
        for column in range(mechanism.columns):
            z = (a + (column + 1) * b) % 2**64
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
            z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
            z ^= z >> 31
            row.append(column * mechanism.places + ((z >> 32) * mechanism.places >> 32))
        out.append(row)
    return out


def bits_of(cells):
    return np.unpackbits(cells[KEY_WORDS:].astype("<u8").view(np.uint8), bitorder="little")


@pytest.mark.parametrize("signed", [False, True])
def test_without_noise_entries_set_their_first_bits(signed):
    mechanism = alp(1.0, 50, 20, neighbours="l1", alpha=2.0, signed=signed)
    values = np.array([0.5, 2.0, 3.9, 19.0, 20.0, 1e300, -4.0, -7.5, -1e300, 5e-324])
    levels = [1, 1, 2, 10, 10, 10, -2, -4, -10, 1]  # a silent source rounds up
    cells = mechanism.draw(digests(10), values, Silent())
    wanted = np.zeros(64 * (mechanism.words - KEY_WORDS), np.uint8)
    for level, row in zip(levels, places_of(mechanism, cells, digests(10)), strict=True):
        if signed:
            wanted[row[10 : 10 + level] if level > 0 else row[:-level]] = 1
        else:
            wanted[row[: max(level, 0)]] = 1
    assert (bits_of(cells) == wanted).all()
    assert len(cells) == mechanism.words


def test_the_same_bits_for_any_number_of_entries_and_threads():
    """A large vector is shared among threads by stretches of bits; each entry must still set all of its bits."""
    mechanism = alp(1.0, 20_000, 30, neighbours="one_entry", alpha=3.0)
    values = np.random.default_rng(1).integers(1, 40, 20_000)
    cells = mechanism.draw(digests(20_000), values, Silent())
    wanted = np.zeros(64 * (mechanism.words - KEY_WORDS), np.uint8)
    rows = np.array(places_of(mechanism, cells, digests(20_000)))
    wanted[rows[np.arange(mechanism.columns) < np.minimum(-(-values // 3), 10)[:, None]]] = 1
    assert (bits_of(cells) == wanted).all()


@pytest.mark.parametrize("flips", [1 << 22, 3_355_444, 12_345])
def test_bits_are_flipped_as_often_as_the_integer_says(flips):
    mechanism = Alp(1.0, "l1", 10, 7, 400_001, flips, 3.0)
    cells = mechanism.draw(digests(0), np.empty(0), insecure_source(flips))
    bits = bits_of(cells)
    total = 7 * 400_001
    assert not bits[total:].any()
    low, high = binomial_band(total, flips / FULL)
    assert low <= bits.sum() <= high
    both = (bits[: total - 1 : 2] & bits[1:total:2]).sum()  # neighbours are independent
    low, high = binomial_band(total // 2, (flips / FULL) ** 2)
    assert low <= both <= high


def test_values_are_rounded_to_levels_exactly():
    mechanism = alp(1.0, 10, 20, neighbours="l1", alpha=3.0, signed=True)
    values = np.repeat([0.75, 10.0, -4.0], 20_000)
    levels = mechanism._round_values(values, insecure_source(3)).reshape(3, -1)
    assert_follows(levels[0], [0, 1], [0.75, 0.25])
    assert_follows(levels[1], [3, 4], [2 / 3, 1 / 3])
    assert_follows(levels[2], [-1, -2], [2 / 3, 1 / 3])


def test_ties_are_settled_by_more_bits():
    """A word that agrees with the first 64 bits of 1/3 decides nothing; the next word does."""
    mechanism = alp(1.0, 10, 20, neighbours="l1", alpha=3.0)
    tie = (2**64 - 1) // 3
    for second, level in [(0, 1), (tie - 1, 1), (tie + 1, 0), (2**64 - 1, 0)]:
        assert mechanism._round_values(np.array([1.0]), Scripted(tie, second)).tolist() == [level]
    half = np.array([1.5])
    assert mechanism._round_values(half, Scripted(2**63 - 1)).tolist() == [1]
    assert mechanism._round_values(half, Scripted(2**63)).tolist() == [0]
    assert mechanism._round_values(np.array([3.0]), Scripted(0)).tolist() == [1]  # on a level: no coin


# How it is read.


def written(mechanism, rows, key=(1, 2, 3, 4)):
    """Return cells in which the bits of index i along the columns are rows[i]."""
    cells = np.zeros(mechanism.words, np.uint64)
    cells[:KEY_WORDS] = key
    for bits, places in zip(rows, places_of(mechanism, cells, digests(len(rows))), strict=True):
        for bit, place in zip(bits, places, strict=True):
            cells[KEY_WORDS + place // 64] |= np.uint64(bit << place % 64)
    return cells


DECODERS = ("likelihood", *alp_decoders.DECODERS)


def read(mechanism, cells, digests, decoder):
    """Estimates by the mechanism itself, or by a decoder that is there to compare."""
    return mechanism.get(cells, digests) if decoder == "likelihood" else decode(mechanism, cells, digests, decoder)


def test_figure_2_2_of_the_thesis():
    """The partial sums are highest at 3 and 5: the estimate is 4 levels."""
    mechanism = Alp(1.0, "l1", 1, 8, 10_000, 3_355_444, 3.0)
    cells = written(mechanism, [[1, 1, 1, 0, 1, 0, 0, 1]])
    assert decode(mechanism, cells, digests(1), "prefix").tolist() == [12.0]


def test_the_prefix_decoder_averages_all_highest_points():
    mechanism = Alp(1.0, "l1", 1, 7, 10_000, 3_355_444, 3.0)
    cells = written(mechanism, [[1, 0, 1, 0, 0, 1, 1]])  # 1, 3 and 7
    assert decode(mechanism, cells, digests(1), "prefix") == pytest.approx([11.0])


@pytest.mark.parametrize("decoder", DECODERS)
def test_clear_bits_are_read_as_their_level(decoder):
    mechanism = GeometricAlp(1.0, "one_entry", 1, 20, 50_000, 800_000, 1.0, ratio=1.2)
    cells = written(mechanism, [[1] * 12 + [0] * 8, [0] * 20, [1] * 20])
    assert read(mechanism, cells, digests(3), decoder).tolist() == [mechanism.edges[12], 0.0, mechanism.edges[-1]]
    both = replace(mechanism, levels=10, signed=True)
    cells = written(both, [[1] * 4 + [0] * 16, [0] * 10 + [1] * 7 + [0] * 3, [0] * 20])
    assert read(both, cells, digests(3), decoder).tolist() == [-both.edges[4], both.edges[7], 0.0]


def test_the_posterior_is_that_of_bayes():
    """The median of prior times likelihood, with the steps in units of 1/1024, by ordinary loops."""
    mechanism = Alp(1.0, "l1", 1, 6, 30_000, 4_000_000, 2.0)
    rows = [list(bits) for bits in itertools.product([0, 1], repeat=6)]
    cells = written(mechanism, rows)
    p = mechanism.flip
    shares = bits_of(cells)[: 6 * 30_000].reshape(6, -1).mean(axis=1)
    taken = np.clip((shares - p) / (1 - 2 * p), 1e-6, 0.95)
    wanted, values = [], np.arange(1, 13)  # at levels, which are 2 apart, and half way between them
    prior = np.append(0.5, 0.5 * values**-1.5 / sum(values**-1.5))
    for bits in rows:
        given = np.ones(7)
        for level in range(7):
            for j, bit in enumerate(bits):
                one = 1 - p if j < level else p + taken[j] * (1 - 2 * p)
                given[level] *= one if bit else 1 - one
        chances = prior * [(given[x // 2] + given[-(-x // 2)]) / 2 for x in range(13)]
        wanted.append(np.searchsorted(np.cumsum(chances), chances.sum() / 2))
    assert (read(mechanism, cells, digests(64), "posterior") != wanted).sum() <= 1  # steps are rounded


# Errors against simulation, where all other entries are as large as can be.

SIMULATED = {
    "whole": (alp(1.0, 100_000, 60, neighbours="one_entry", alpha=2.0), [0, 3, 31, 60]),
    "real": (alp(1.0, 100_000, 40.0, neighbours="l1", alpha=3.0), [0.0, 1.2, 90.0]),
    "geometric": (geometric_alp(1.0, 100_000, 1000.0, neighbours="l1", alpha=5.0), [0.0, 300.0]),
    "signed": (alp(1.0, 100_000, 30, neighbours="one_entry", alpha=2.0, signed=True), [0, 5, -30]),
}


@pytest.mark.parametrize("name", SIMULATED)
def test_errors_are_those_of_a_simulation(name):
    mechanism, values = SIMULATED[name]
    others, count = mechanism.sparsity, 4000
    rest = np.full(others, mechanism.max_value)
    if mechanism.signed:
        rest[::2] *= -1
        mechanism = replace(mechanism, sparsity=others // 2)  # half of them collide on either side
    kind = np.int64 if mechanism.neighbours == "one_entry" else np.float64
    for value in values:
        tested = digests(count, others)
        entries = (np.append(rest, np.full(count, value)), np.concatenate([digests(others), tested]))
        given = slice(None) if value else slice(others)
        cells = mechanism.draw(entries[1][given], entries[0][given].astype(kind), insecure_source(11))
        for decoder in ("likelihood", "prefix"):
            found = read(mechanism, cells, tested, decoder) - value
            exact = mechanism.errors(value) if decoder == "likelihood" else prefix_errors(mechanism, value)
            for seen, mean in [(np.abs(found), exact.mean), (found, exact.bias)]:
                assert abs(seen.mean() - mean) < 5.5 * seen.std() / count**0.5 + 0.01 * exact.mean
            assert np.mean(np.abs(found) <= exact.bound(0.9)) > 0.87


@pytest.mark.parametrize("alpha", [3.07, 20.26])
def test_geometric_levels_have_an_error_in_proportion_to_the_value(alpha):
    """Section 2.6 bounds the mean of max(estimate / x, x / estimate) by 4.83 at alpha = 20.26; it is far less."""
    mechanism = geometric_alp(1.0, 1000, 1e7, neighbours="l1", alpha=alpha, bits=10_000.0)
    assert mechanism.levels < 120
    for value in (200.0, 1e4, 1e6):
        errors = mechanism.errors(value)
        estimates = np.maximum(errors.values + value, mechanism.gap)
        assert np.maximum(estimates / value, value / estimates) @ errors.masses < 1.5


def test_what_the_decoders_gain():
    """Heavy-tailed counts at epsilon 1 and 300 bits, the mean error of entries that are there, and that are not."""
    k = 50_000
    values = np.minimum(np.floor(np.linspace(1e-4, 1, k) ** -2), 60).astype(np.int64)
    source, results = insecure_source(4), {}
    exact = alp(1.0, k, 60, neighbours="one_entry")
    paper = alp(1.0, k, 60.0, neighbours="l1", alpha=3.0)
    for name, mechanism, decoder in [
        ("likelihood", exact, "likelihood"),
        ("posterior", exact, "posterior"),
        ("paper", paper, "prefix"),
    ]:
        given = values if mechanism is exact else values.astype(np.float64)
        cells = mechanism.draw(digests(k), given, source)
        present = np.abs(read(mechanism, cells, digests(k), decoder) - values).mean()
        results[name] = present, np.abs(read(mechanism, cells, digests(k, k), decoder)).mean()
    assert results["likelihood"][0] < 2.2 and results["likelihood"][1] < 1.4
    assert results["posterior"][0] < 2.2 and results["posterior"][1] < 0.6
    assert results["paper"][0] > 3.0 and results["paper"][1] > 2.5


# Hostile input, and the form of the mechanism.


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("signed", [False, True])
def test_any_entries_work(decoder, signed):
    mechanism = alp(0.5, 3, 20, neighbours="one_entry", signed=signed)
    for values in [[], [1], [2**62, -(2**63), 2**63 - 1], [5] * 1000]:  # more than three, and beyond all bounds
        count = len(values)
        cells = mechanism.draw(digests(count), np.array(values, np.int64), insecure_source(1))
        found = read(mechanism, cells, digests(count + 5), decoder)
        assert len(cells) == mechanism.words and len(found) == count + 5
        assert (np.abs(found) <= mechanism.max_value).all() and np.isfinite(found).all()
    assert len(read(mechanism, cells, digests(0), decoder)) == 0


def test_one_place_and_one_level_work():
    mechanism = Alp(1.0, "l1", 5, 1, 1, 5_000_000, 3.0)
    cells = mechanism.draw(digests(2), np.array([1.0, 9.0]), insecure_source(1))
    assert set(mechanism.get(cells, digests(4)).tolist()) <= {0.0, 1.5, 3.0}
    assert mechanism.errors(0.0).mean > 0


@pytest.mark.parametrize("maker", [alp, geometric_alp])
@pytest.mark.parametrize("neighbours", ["l1", "one_entry"])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_makers_keep_their_promises(epsilon, neighbours, maker):
    for top in (1, 5000):
        mechanism = maker(epsilon, 1000, top, neighbours=neighbours)
        assert mechanism.certify().guarantee.epsilon == epsilon
        assert mechanism.max_value >= top
        assert 64 * mechanism.words <= 300 * 1000 + 64 * (KEY_WORDS + 1)
        assert from_json(mechanism.to_json()) == mechanism == pickle.loads(pickle.dumps(mechanism))
        assert f"{epsilon:g}" in repr(mechanism)
        present, absent = mechanism.expected_error()
        assert 0 < present <= top and 0 < absent <= mechanism.max_value


def test_the_chosen_distance_of_levels_is_the_best_of_its_neighbours():
    chosen = alp(1.0, 1000, 60, neighbours="one_entry")
    assert chosen.gap == 2
    assert alp(2.0, 1000, 30, neighbours="one_entry").gap == 1  # Algorithm 10, for large epsilon
    assert alp(0.5, 1000, 120, neighbours="one_entry").gap >= 4
    assert alp(1.0, 1000, 60, neighbours="l1", unit="one euro").guarantee.unit == "one euro"


FIELDS = ["epsilon", "neighbours", "sparsity", "levels", "places", "flips", "gap", "ratio", "signed", "unit"]


@pytest.mark.parametrize("field", FIELDS)
def test_bad_fields_are_refused(field):
    for bad in (None, "x", -1, float("nan"), [], {}, True, 1e300):
        if (field, bad) not in [("unit", "x"), ("signed", True)]:
            with pytest.raises(DpsieveError):
                pytest.fail(f"{bad!r} was taken: {replace(CASES['l1, geometric'][0], **{field: bad})}")


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0}, {"sparsity": 0}, {"max_value": 0}, {"max_value": None}, {"neighbours": "l2"}, {"bits": 0.5},
        {"signed": 1}, {"alpha": -3}, {"unit": 5}, {"alpha": 0.001, "max_value": 1e6},
        {"epsilon": 1e-9, "neighbours": "one_entry"},
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(wrong):
    for maker in (alp, geometric_alp):
        with pytest.raises(DpsieveError):
            maker(**{"epsilon": 1.0, "sparsity": 10, "max_value": 60, "neighbours": "l1", **wrong})


def test_unknown_decoders_are_refused():
    mechanism = CASES["l1"][0]
    with pytest.raises(InvalidValue, match="posterior"):
        decode(mechanism, np.zeros(mechanism.words, np.uint64), digests(1), "guess")
