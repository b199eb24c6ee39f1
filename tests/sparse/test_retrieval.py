"""Retrieval tables: contents that keep their promise exactly, a system that hides who is in it, and small errors."""

import hashlib
import math
import operator
import pickle
from dataclasses import replace
from functools import reduce
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from flint import arb
from helpers.statistical import assert_follows, binomial_band

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, NotCertified
from dpsieve.exact.balls import precision
from dpsieve.privacy.kernel import GUARD, exp_floor
from dpsieve.privacy.mechanism import from_json
from dpsieve.randomness.source import resolve
from dpsieve.sparse.digests import KEY_WORDS, digest_items
from dpsieve.sparse.loops import choose_starts, look_up, solve
from dpsieve.sparse.retrieval import Retrieval, dependence, failure, least_starts, retrieval
from dpsieve.sparse.retrieval_code import content_code
from dpsieve.testing import insecure_source

SOURCE = resolve(None)
WHOLE = 2**128
CODES = [
    (1.0, 0, 1, 8),
    (1.0, 0, 60, 8),
    (0.1, 0, 20, 10),
    (2.0, -6, 6, 9),
    (0.5, -40, 40, 8),
    (9.0, 0, 5, 8),
    (60.0, 0, 4, 8),
]


def indices(count, first=0):
    """Return the digests of distinct indices."""
    return digest_items(pa.array(np.arange(first, first + count, dtype=np.uint64) * np.uint64(7919)), np.empty(0))


def heavy_tail(count):
    """Return counts of which 1/x are at least x, as those of words, up to 60."""
    uniform = (SOURCE.words(count) >> np.uint64(11)) * 2.0**-53
    return np.minimum(1 / (1 - uniform), 60).astype(np.int64)


def outcome_masses(code):
    """Return P_v(o) 2^128 for every value and outcome, from the numbers that are drawn from."""
    outcomes = range(code.low, code.high + 1)
    masses = {}
    for v in outcomes:
        row = dict.fromkeys(outcomes, code.unit)
        row.update(zip(range(code.first, code.last + 1), code.rest, strict=True))
        for z, mass in enumerate(code.noise, -code.reach):
            row[min(max(v + z, code.low), code.high)] += mass
        masses[v] = row
    return masses


def owned(code, outcome):
    """Return how many codes an outcome has."""
    return code.codes[outcome - code.first] if code.first <= outcome <= code.last else 1


# --- contents


@pytest.mark.parametrize(("epsilon", "low", "high", "bits"), CODES)
def test_each_step_of_a_value_keeps_the_promise_and_zero_is_uniform(epsilon, low, high, bits):
    code = content_code(epsilon, low, high, bits)
    masses = outcome_masses(code)
    with precision(400):
        most = arb(epsilon).exp()
        for v, row in masses.items():
            assert sum(row.values()) == WHOLE
            assert min(row.values()) > 0
            for o, mass in masses.get(v + 1, {}).items():
                assert arb(row[o]) <= most * mass
                assert arb(mass) <= most * row[o]
    for o, mass in masses[0].items():
        assert mass == owned(code, o) * WHOLE // 2**bits
    code.check()


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 10.0])
@pytest.mark.parametrize(("low", "high", "bits"), [(0, 2**18, 41), (-(2**40), 2**40, 63), (0, 200, 9)])
def test_wide_ranges_are_checked_without_a_look_at_each_outcome(epsilon, low, high, bits):
    content_code(epsilon, low, high, bits).check()


def test_noise_that_ends_too_early_is_refused():
    """Its steps are within e^epsilon, but from one value to the next an outcome would appear from nearly nothing."""
    code = content_code(0.1, 0, 600, 18)
    cut = next(k for k in range(1, 99) if code.codes[-k - 1] > 1)  # as far as outcomes have one code, as far ones have
    verdicts = []
    for drop in range(cut + 1):
        early = replace(
            code, noise=code.noise[drop : len(code.noise) - drop], codes=code.codes[: len(code.codes) - drop]
        )
        assert sum(early.codes) + early.far == 2**18
        told = early.noise[0] / min(*early.rest, early.unit) > math.expm1(0.1) * (1 + 1e-9)
        try:
            early.check()
            verdicts.append((told, False))
        except NotCertified:
            verdicts.append((told, True))
    assert set(verdicts) == {(False, False), (True, True)}


def test_forged_numbers_are_refused():
    code = content_code(1.0, 0, 60, 12)
    middle = code.reach
    spiked, cut = list(code.noise), code.noise[3:-3]
    spiked[middle] *= 2
    for forged in (
        replace(code, noise=tuple(spiked)),
        replace(code, noise=cut),
        replace(code, noise=code.noise[1:]),
        replace(code, epsilon=0.99),
        replace(code, codes=(code.codes[0] + 1, *code.codes[1:])),
        replace(code, codes=(code.codes[0] - code.codes[1], 2 * code.codes[1], *code.codes[2:])),
        replace(code, codes=(code.codes[0] + 1, *code.codes[1:-1], code.codes[-1] - 1)),
        replace(code, bits=13),
    ):
        with pytest.raises(NotCertified):
            forged.check()


@pytest.mark.parametrize(("epsilon", "low", "high", "bits"), CODES)
def test_draws_and_errors_follow_the_masses(epsilon, low, high, bits):
    code = content_code(epsilon, low, high, bits)
    masses = outcome_masses(code)
    read = code.read(np.arange(2**bits, dtype=np.uint64))
    assert [int((read == o).sum()) for o in masses] == [owned(code, o) for o in masses]
    for v in {low, 0, 1, high - 1, high}:
        contents = code.draw(np.full(40_000, v), SOURCE)
        chances = [masses[v][int(o)] / WHOLE / owned(code, int(o)) for o in read]  # of each code
        assert_follows(contents.astype(np.int64), range(2**bits), chances)
        errors = code.errors(v)
        assert np.allclose(errors.masses, [masses[v][int(e) + v] / WHOLE for e in errors.values], rtol=1e-9)
        assert np.isclose(code.errors(v, 3).mean, errors.mean)


def test_values_outside_the_range_are_clamped():
    code = content_code(3.0, -4, 4, 8)
    extremes = code.read(code.draw(np.array([-(2**63), 2**63 - 1] * 1000), SOURCE)).reshape(-1, 2)
    assert (np.median(extremes, axis=0) == (-4, 4)).all()
    assert code.errors(10).values.max() == -6
    assert code.errors(10).values.min() == -14


# --- the system


def random_rows(count, starts, window):
    """Return rows with windows of a few bits, in order of their starts."""
    words = SOURCE.words(2 * count)
    windows = np.zeros((count, 4), np.uint64)
    windows[:, 0] = words[:count] >> np.uint64(64 - window)
    return windows, np.sort(choose_starts(words[count:], starts))


def test_the_whole_mechanism_by_enumeration():
    """All hashes, all tables and all neighbours of two keys: windows of 2 bits, and 3 columns of 3 bits."""
    code, starts, window = content_code(1.0, 0, 2, 3), 2, 2
    tables = list(product(range(8), repeat=3))
    vectors = list(product(range(3), repeat=2))
    pairs = [(x, y) for x, y in product(vectors, vectors) if abs(x[0] - y[0]) + abs(x[1] - y[1]) == 1]
    chance, scale = code_masses(code)
    assert chance[0] == [scale // 8] * 8
    most = exp_floor(1.0)

    def distribution(vector, masks):
        """Return P[T] scale^2 8^3 for each table, by the definition of the mechanism."""
        held = [(mask, chance[value]) for mask, value in zip(masks, vector, strict=True) if value]
        if any(dependent(mask for mask, _ in held)):
            return [scale**2] * len(tables)
        found = []
        for table in tables:
            mass = scale ** (2 - len(held)) * 8 ** len(held)
            for mask, chances in held:
                mass *= chances[xor(cell for j, cell in enumerate(table) if mask >> j & 1)]
            found.append(mass)
        return found

    broken, divergence = 0, dict.fromkeys(pairs, 0)
    for rows in product(product(range(starts), range(2**window)), repeat=2):
        masks = [bits << start for start, bits in rows]
        unsafe = any(dependent(masks))
        broken += unsafe
        made = {vector: distribution(vector, masks) for vector in vectors}
        assert all(sum(masses) == scale**2 * 8**3 for masses in made.values())
        for x, y in pairs:
            excess = sum(max(0, (p << GUARD) - most * q) for p, q in zip(made[x], made[y], strict=True))
            assert unsafe or excess == 0, "where rows are independent the promise holds without delta"
            divergence[x, y] += excess
    assert 0 < max(divergence.values()) <= broken * scale**2 * 8**3 << GUARD


def code_masses(code):
    """Return the mass of each code for each value, as whole numbers, and their sum."""
    read = code.read(np.arange(2**code.bits, dtype=np.uint64)).astype(int).tolist()
    common = math.lcm(*code.codes)
    masses = outcome_masses(code)
    return {v: [row[o] * common // owned(code, o) for o in read] for v, row in masses.items()}, WHOLE * common


def xor(numbers):
    """Return the exclusive or of numbers."""
    return reduce(operator.xor, numbers, 0)


def dependent(masks):
    """Yield, for each row, whether it is a sum of the ones before; rows are whole numbers."""
    basis = {}
    for row in masks:
        while row and row.bit_length() in basis:
            row ^= basis[row.bit_length()]
        basis[row.bit_length()] = row
        yield row == 0


def test_the_solver_draws_uniformly_among_solutions():
    """Tables of three columns of 2 bits, for two rows that are fixed, against their exact distribution."""
    code, draws = content_code(1.0, 0, 2, 2), 20_000
    chance, scale = code_masses(code)
    rows, starts = np.zeros((2, 4), np.uint64), np.array([0, 1])
    rows[:, 0] = 0b11, 0b10  # the cells 0 and 1; the cell 2
    contents = code.draw(np.tile([1, 2], draws), SOURCE).reshape(draws, 2)
    tables = SOURCE.words(2 * draws).reshape(draws, 2)
    for table, wanted in zip(tables, contents, strict=True):
        assert solve(rows.copy(), starts, wanted.copy(), table, 2)
    bit = tables[:, :, None] >> np.arange(3, dtype=np.uint64) & np.uint64(1)  # by draw, bit and column
    number = (bit[:, 0] + 2 * bit[:, 1]) @ np.array([16, 4, 1], np.uint64)
    cells = product(range(4), repeat=3)
    assert_follows(number, range(64), [chance[1][a ^ b] * chance[2][c] / scale**2 / 4 for a, b, c in cells])


@pytest.mark.parametrize("bits", [1, 16, 63])
def test_every_row_reads_its_content(bits):
    for rows, starts, window in ((40, 300, 20), (5000, 5500, 64), (1, 1, 3)):
        windows, at = random_rows(rows, starts, window)
        contents = SOURCE.words(rows) >> np.uint64(64 - bits)
        table = SOURCE.words(-(-(starts + 255) // 64) * bits)
        before = table.copy()
        if solve(windows.copy(), at, contents.copy(), table, bits):
            assert (look_up(table, bits, windows, at) == contents).all()
        else:
            assert (table == before).all()


def test_solve_finds_dependent_rows_exactly():
    """Against the rank by elimination on whole numbers."""
    for _ in range(300):
        windows, at = random_rows(12, 12, 6)
        masks = [word << start for word, start in zip(windows[:, 0].tolist(), at.tolist(), strict=True)]
        found = solve(windows, at, np.zeros(12, np.uint64), np.zeros(5, np.uint64), 1)
        assert found != any(dependent(masks))


@pytest.mark.parametrize(("window", "rows", "starts"), [(10, 20, 60), (12, 50, 100), (16, 100, 150)])
def test_dependent_rows_are_as_rare_as_proven(window, rows, starts):
    tries = 4000
    empty, zeros = np.zeros(-(-(starts + 255) // 64), np.uint64), np.zeros(rows, np.uint64)
    seen = sum(not solve(*random_rows(rows, starts, window), zeros.copy(), empty, 1) for _ in range(tries))
    bound = dependence(rows, starts, window)
    assert bound < 1
    assert seen <= binomial_band(tries, bound)[1]
    assert seen >= binomial_band(tries, bound / 40)[0], "the bound is not loose by more than a factor of 40"


def test_the_bound_on_the_rank():
    assert dependence(1000, 1000) == 1.0
    assert dependence(10, 10**6) < 1e6 * 2.0**-254
    starts = least_starts(100_000, 1e-8)
    assert failure(100_000, starts) <= 1e-8 < failure(100_000, starts - 1)
    assert starts < 1.09 * 100_000
    with pytest.raises(InvalidValue, match="larger delta"):
        least_starts(100_000, 1e-40)


# --- the mechanism


def test_build_and_read_a_vector():
    table = retrieval(epsilon=4.0, delta=1e-8, sparsity=1000, max_value=50)
    keys = pa.array([f"word {i}" for i in range(500)], pa.large_string())
    values = np.arange(500) % 50 + 1
    source = insecure_source(1)
    digests = digest_items(keys, insecure_source(1).words(KEY_WORDS))  # under the key that `draw` begins with
    cells = table.draw(digests, values, source)
    assert len(cells) == table.words
    assert np.abs(table.get(cells, digests) - values).mean() < 0.5
    assert np.abs(table.get(cells, indices(500))).mean() < 0.5
    assert table.neighbours == "one_entry"


@pytest.mark.parametrize(
    ("epsilon", "max_value", "bits", "present", "absent", "size"),
    [
        (1.0, 60, 16, 0.85, 0.5, 18),
        (0.5, 60, 16, 1.75, 1.12, 18),
        (2.0, 60, 16, 0.32, 0.19, 18),
        (1.0, 2**18, 41, 0.85, 0.5, 46),
    ],
)
def test_small_errors_in_few_bits(epsilon, max_value, bits, present, absent, size):
    count = 50_000
    made = retrieval(epsilon, 1e-8, count, max_value, bits=bits)
    values = heavy_tail(count)
    cells = made.draw(indices(count), values, SOURCE)
    assert len(cells) * 64 / count <= size
    expected = {v: made.code.errors(v, 64).mean for v in range(61)}
    assert expected[0] <= absent
    assert np.mean([expected[v] for v in values]) <= present
    held = np.abs(made.get(cells, indices(count)) - values)
    others = np.abs(made.get(cells, indices(10 * count, first=count)))
    # Far outcomes of a wide range are too rare to be seen, and too far off to be averaged when they are.
    assert held[held < 100].mean() <= present
    assert others[others < 100].mean() <= absent


@pytest.mark.parametrize("signed", [False, True])
def test_errors_are_those_measured(signed):
    made, count = retrieval(1.0, 1e-6, 60_000, 20, signed=signed, bits=10), 60_000
    values = np.resize([1, 20, -20 if signed else 3], count)
    cells = made.draw(indices(count), values, SOURCE)
    read = made.get(cells, indices(count))
    for v in np.unique(values):
        errors = made.errors(v)
        assert_follows((read - values)[values == v].astype(int), errors.values.astype(int), errors.masses)
    absent = made.errors(0)
    assert_follows(made.get(cells, indices(count, first=count)).astype(int), absent.values.astype(int), absent.masses)


def test_any_number_of_entries():
    made = retrieval(1.0, 1e-8, 1000, 9)
    for count, fits in ((0, True), (1, True), (1000, True), (1150, True), (5000, False)):
        digests = indices(count)
        cells = made.draw(digests, np.full(count, 9), SOURCE)
        assert len(cells) == made.words
        if count >= 1000:
            assert (np.mean(made.get(cells, digests)) > 7) == fits
    assert made.failure(1000) <= 1e-8 < made.failure(1020) < made.failure(2000) == 1
    absent = made.get(made.draw(indices(0), np.empty(0, np.int64), SOURCE), indices(50_000))
    assert_follows(absent.astype(int), made.errors(0).values.astype(int), made.errors(0).masses)


def test_saved_tables_are_read_alike_by_all_versions():
    for signed, expected in ((False, "0cd409d357dceba1"), (True, "5b1fc30861e61c05")):
        made = Retrieval(0.7, 1e-8, 1000, 300, signed=signed, bits=12, starts=1100)
        read = made.get(insecure_source(7).words(made.words), indices(1000))
        assert hashlib.sha256(read.astype("<f8").tobytes()).hexdigest()[:16] == expected


def test_dependent_rows_leave_a_table_that_tells_nothing():
    made = retrieval(1.0, 1e-8, 100, 9)
    twice = np.concatenate([indices(10), indices(1)])
    cells = made.draw(twice, np.full(11, 9), insecure_source(3))
    fresh = insecure_source(3)
    assert (cells[:KEY_WORDS] == fresh.words(KEY_WORDS)).all()
    assert (cells[KEY_WORDS:] == fresh.words(made.words - KEY_WORDS)).all()


def test_certificate_saved_form_and_forged_fields():
    made = retrieval(1.0, 1e-12, 10_000, 60, signed=True, unit="one visit")
    certificate = made.certify()
    assert [(part.scope, part.method) for part in certificate.parts] == [("one key", "kernel"), ("one unit", "balls")]
    assert 1e-13 < certificate.worst <= 1e-12
    assert str(made.guarantee) == "(1, 1e-12)-differential privacy when one visit is added or removed."
    assert from_json(made.to_json()) == made == pickle.loads(pickle.dumps(made))
    assert "epsilon=1" in repr(made)
    for forged in (replace(made, starts=made.starts - 1), replace(made, sparsity=10_100), replace(made, delta=1e-13)):
        with pytest.raises(NotCertified):
            forged.certify()
    for name in ("epsilon", "delta", "sparsity", "max_value", "signed", "bits", "starts", "unit"):
        for bad in (None, "x", -1, float("nan"), [], {}, True):
            if (name, bad) not in (("signed", True), ("unit", "x")):
                with pytest.raises(DpsieveError):
                    replace(made, **{name: bad})
    with pytest.raises(InvalidValue, match="delta"):
        retrieval(1.0, 0.0, 10, 10)
    with pytest.raises(InvalidValue, match="too few"):
        Retrieval(1.0, 1e-8, 10, 1000, bits=8, starts=100)
    with pytest.raises(InvalidValue, match="too small"):
        retrieval(1e-4, 1e-8, 10, 1000, bits=20)
    with pytest.raises(InvalidType, match="value"):
        made.errors("x")


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("max_value", [1, 60, 2**18, 2**40])
def test_bits_are_chosen_for_any_range(epsilon, max_value):
    made = retrieval(epsilon, 1e-8, 100, max_value)
    made.certify()
    noise = 2 / (np.exp(epsilon) - np.exp(-epsilon))
    if made.bits < 63:
        assert made.errors(1).mean <= 1.1 * noise + 0.02
