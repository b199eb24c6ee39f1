"""The kernel must accept every table that keeps its promise and refuse every one that does not."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.errors import DpsieveError, NotCertified
from dpsieve.privacy import Block, certify, kernel
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import GUARD, exp_floor

ONE = 2**128


def stack(rows, edges=None):
    """Rows given as lists of Python integers, in units of 2^-128."""
    edges = np.arange(len(rows[0]) + 1) if edges is None else np.array(edges)
    high = np.array([[m >> 64 for m in row] for row in rows], dtype=np.uint64)
    low = np.array([[m & (2**64 - 1) for m in row] for row in rows], dtype=np.uint64)
    return Block(edges, high, low)


def true_divergence(rows, epsilon, widths=None):
    """The definition, with 100 digits: the largest hockey-stick divergence of adjacent rows, row 0 being silent."""
    with mpmath.workdps(100):
        factor = mpmath.exp(mpmath.mpf(epsilon))
        widths = widths or [1] * len(rows[0])
        full = [[ONE, *[0] * len(rows[0])]]
        full += [[ONE - sum(w * m for w, m in zip(widths, r, strict=True)), *r] for r in rows]
        return max(
            sum(w * max(0, a - factor * b) for w, a, b in zip([1, *widths], p, q, strict=True)) / ONE
            for x, y in itertools.pairwise(full)
            for p, q in ((x, y), (y, x))
        )


def reporting_table(epsilon, delta, reach):
    """The optimal table for known counts: token j in row i has mass pi(i-j+1) - pi(i-j); it repeats after `reach`."""
    with mpmath.workdps(60):
        e, d = mpmath.exp(mpmath.mpf(epsilon) * (1 - mpmath.mpf(10) ** -15)), mpmath.mpf(delta) * (1 - 1e-11)
        pi = [mpmath.mpf(0)]
        while pi[-1] < 1:
            pi.append(min(mpmath.mpf(1), e * pi[-1] + d, 1 + (pi[-1] + d - 1) / e))
        pi += [mpmath.mpf(1)] * (reach + 2 - len(pi))
        return [
            [int((pi[i - j + 1] - pi[i - j]) * ONE) if j <= i else 0 for j in range(1, reach + 1)]
            for i in range(1, reach + 1)
        ]


EPSILON, DELTA, REACH = 0.7, 0.01, 18
TABLE = reporting_table(EPSILON, DELTA, REACH)


def test_a_good_table_gets_a_certificate_for_every_frequency():
    certificate = certify([stack(TABLE)], Guarantee(EPSILON, DELTA), shift=1)
    assert 0.999999 * DELTA < certificate.worst <= DELTA
    assert [part.method for part in certificate.parts] == ["kernel"]
    assert f"{REACH} rows, for every frequency" in str(certificate)
    assert certificate.to_json()["guarantee"] == Guarantee(EPSILON, DELTA).to_json()


def test_without_a_tail_the_certificate_says_where_it_ends():
    certificate = certify([stack(TABLE[:5])], Guarantee(EPSILON, DELTA))
    assert "up to 5" in str(certificate)


def test_rows_may_come_in_stacks_of_any_size_and_over_any_edges():
    pieces = [stack([row]) for row in TABLE[:7]] + [stack(TABLE[7:])]
    whole = certify([stack(TABLE)], Guarantee(EPSILON, DELTA), shift=1)
    assert certify(pieces, Guarantee(EPSILON, DELTA), shift=1).parts == whole.parts
    trimmed = [stack([row[max(0, i - 13) : i + 1]], range(max(0, i - 13), i + 2)) for i, row in enumerate(TABLE)]
    assert certify(trimmed, Guarantee(EPSILON, DELTA), shift=1).worst == pytest.approx(whole.worst, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(EPSILON * 0.999999, DELTA), (EPSILON, DELTA * 0.999999)])
def test_a_stronger_promise_is_refused(epsilon, delta):
    with pytest.raises(NotCertified, match="diverge by more than delta"):
        certify([stack(TABLE)], Guarantee(epsilon, delta), shift=1)


def test_a_wrong_tail_is_refused():
    with pytest.raises(NotCertified, match=f"rows {REACH} and {REACH + 1}"):
        certify([stack(TABLE)], Guarantee(EPSILON, DELTA), shift=2)
    with pytest.raises(NotCertified):  # a row that does not repeat yet
        certify([stack(TABLE[:9])], Guarantee(EPSILON, DELTA), shift=1)


def test_every_single_change_beyond_the_slack_is_refused():
    """Mutation: move 1e-10 between 'nothing' and any one token of any row; the table is 1e-13 below its promise.

    Three places have more slack than that (mass that the next row may lose altogether); there, the definition itself
    confirms that the changed table still keeps the promise.
    """
    change, survivors = int(1e-10 * ONE), []
    for i, j, sign in itertools.product(range(REACH), range(REACH), (1, -1)):
        if TABLE[i][j] + sign * change < 0:
            continue
        mutant = [list(row) for row in TABLE]
        mutant[i][j] += sign * change
        try:
            certify([stack(mutant)], Guarantee(EPSILON, DELTA), shift=1)
            survivors.append(mutant)
        except NotCertified:
            pass
    assert len(survivors) <= 3
    for mutant in survivors:
        with_tail = [[*row, 0] for row in mutant] + [[0, *mutant[-1]]]
        assert true_divergence(with_tail, EPSILON) <= DELTA


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_verdict_is_that_of_the_definition(data):
    """Random tables, near and far from their promise, against 100-digit arithmetic."""
    count, tokens = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    stretch = data.draw(st.sampled_from([1, 2**18]))  # both ways to sum a row
    widths = [stretch * w for w in data.draw(st.lists(st.integers(1, 1000), min_size=tokens, max_size=tokens))]
    largest = ONE // (tokens * 1000 * stretch)
    mass = st.one_of(st.just(0), st.integers(0, 2**70), st.integers(largest // 10, largest))
    rows = [data.draw(st.lists(mass, min_size=tokens, max_size=tokens)) for _ in range(count)]
    epsilon = data.draw(st.sampled_from([0.0, 1e-9, 0.3, 1.0, 7.5]))
    truth = true_divergence(rows, epsilon, widths)
    edges = [0, *itertools.accumulate(widths)]
    for delta, keeps in ((float(truth) * (1 + 1e-15) + 1e-37, True), (float(truth) * (1 - 1e-15) - 1e-37, False)):
        if 0 <= delta < 1:
            try:
                certify([stack(rows, edges)], Guarantee(epsilon, delta))
                assert keeps
            except NotCertified:
                assert not keeps


def test_tiny_deltas_keep_their_digits():
    row = [[int(Fraction(1e-20) * ONE)]]
    certify([stack(row)], Guarantee(0.1, 1e-20))
    with pytest.raises(NotCertified):
        certify([stack(row)], Guarantee(0.1, 0.999999999e-20))


def test_rows_above_one_and_malformed_rows_are_refused():
    half = stack([[2**127]])
    with pytest.raises(NotCertified, match="more than one"):
        certify([stack([[2**127, 2**127, 1]])], Guarantee(1.0, 0.5))
    bad = [
        Block(np.array([1, 1]), half.high, half.low),
        Block(np.array([0, 1, 2]), half.high, half.low),
        Block(np.array([0, 2**31]), half.high, half.low),
        Block(np.array([0.0, 1.0]), half.high, half.low),
        Block(np.array([0, 1]), half.high.astype(np.int64), half.low),
        Block(np.array([0, 1]), half.high[:0], half.low[:0]),
        Block(np.array([0, 1]), half.high[0], half.low[0]),
    ]
    for rows in bad:
        with pytest.raises(NotCertified):
            certify([rows], Guarantee(1.0, 0.9))


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 1e-9, 0.1, 1.0, 20.0, 500.0])
def test_the_factor_is_below_e_to_the_epsilon_and_close(epsilon):
    with mpmath.workdps(400):
        truth = mpmath.exp(mpmath.mpf(epsilon)) * mpmath.mpf(2) ** GUARD
        assert 0 <= truth - exp_floor(epsilon) <= 1 + truth * mpmath.mpf(2) ** -240


@pytest.mark.parametrize(
    "wrong",
    [
        *({"epsilon": e} for e in (-1.0, float("nan"), "1", 1e9, True, None)),
        *({"delta": d} for d in (-0.1, 1.0, float("inf"), None)),
        *({"shift": s} for s in (-1, 2**40, 1.0)),
        *({"floor": f} for f in (1.5, "1", 2**70)),
    ],
)
def test_bad_parameters_are_named(wrong):
    with pytest.raises(DpsieveError, match=next(iter(wrong))):
        given = {"epsilon": 1.0, "delta": 0.1, "shift": 1} | wrong
        certify([stack(TABLE)], Guarantee(given.pop("epsilon"), given.pop("delta")), **given)


def test_a_floor_announces_low_tokens_as_nothing():
    """Row 1 of the same table, held with the tokens it would show to later rows, stands for the whole table."""
    noise = [m for m in reversed(TABLE[-1]) if m]  # ages 0, 1, ...: row i has token i - age
    edges = range(1 - len(noise) + 1, 3)
    first = stack([noise[::-1]], edges)
    whole = certify([stack(TABLE)], Guarantee(EPSILON, DELTA), shift=1)
    short = certify([first], Guarantee(EPSILON, DELTA), shift=1, floor=1)
    assert short.worst == pytest.approx(whole.worst, rel=1e-6)
    with pytest.raises(NotCertified, match="rows 0 and 1"):
        certify([first], Guarantee(EPSILON, DELTA), shift=1, floor=0)
    with pytest.raises(NotCertified, match="rows 1 and 2"):
        certify([first], Guarantee(EPSILON * 0.99, DELTA), shift=1, floor=2)
    assert certify([first], Guarantee(EPSILON, DELTA), floor=100).worst == 0.0


class TestHostileTables:
    """Input that looks right and is not: the kernel must refuse it, or judge what it really holds."""

    broken = ((0, 0), (2**127, 0), (0, 2**127))

    @pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
    def test_subclasses_of_arrays(self):
        good = stack(self.broken)
        for edges, high, low in itertools.product([False, True], repeat=3):
            arrays = [np.matrix(a) if m else a for m, a in ((edges, good.edges), (high, good.high), (low, good.low))]
            with pytest.raises(NotCertified):
                certify([Block(*arrays)], Guarantee(0.1, 1e-6))
        with pytest.raises(NotCertified):
            certify([Block(good.edges, np.ma.masked_array(good.high), good.low)], Guarantee(0.1, 1e-6))

    def test_a_generator_that_uses_its_arrays_again(self):
        rows = stack([[0]])

        def refilled():
            yield rows
            rows.high[0, 0] = 2**63
            yield rows

        with pytest.raises(NotCertified, match="rows 1 and 2"):
            certify(refilled(), Guarantee(0.1, 1e-6))

    def test_no_rows_have_no_certificate(self):
        for nothing in ([], iter([])):
            with pytest.raises(NotCertified, match="no rows"):
                certify(nothing, Guarantee(0.1, 0.0), shift=1)

    def test_what_is_below_the_floor_must_fit_too(self):
        with pytest.raises(NotCertified, match="more than one"):
            certify([stack([[2**128 - 1, 2**100]], [-1, 0, 1])], Guarantee(0.1, 1e-6), floor=0)

    @pytest.mark.parametrize("token", [2**31, -(2**31), 2**40])
    def test_tokens_far_from_zero(self, token):
        assert certify([stack([[2**90]], [token, token + 1])], Guarantee(0.1, 1e-6), shift=0).worst < 1e-11

    @pytest.mark.parametrize("stacks", [None, 5, [None], [Block([0, 1], [[0]], [[0]])], "text", [1, 2]])
    def test_things_that_are_no_tables(self, stacks):
        with pytest.raises(DpsieveError):
            certify(stacks, Guarantee(0.1, 1e-6))

    def test_many_rows_in_one_stack(self):
        rows = [[2**100 + i] for i in range(1000)]
        assert "1,000 rows" in str(certify([stack(rows)], Guarantee(0.1, 1e-6)))
        rows[700] = [2**127]
        with pytest.raises(NotCertified, match="rows 700 and 701"):
            certify([stack(rows)], Guarantee(0.1, 1e-6))

    def test_a_jump_is_found_between_any_two_rows(self, monkeypatch):
        """A long stack is checked in parts, here of 32 rows: no pair may fall between two of them."""
        monkeypatch.setattr(kernel, "PART", 0)
        for last in range(1, 100):
            rows = [[2**100]] * last + [[2**127]] * (100 - last)
            with pytest.raises(NotCertified, match=f"rows {last} and {last + 1} diverge"):
                certify([stack(rows)], Guarantee(0.1, 1e-6))


@pytest.mark.parametrize("last", [(0.7, 0.0, 0.0), (0.13, 0.13, 0.32)], ids=["an output vanishes", "an output appears"])
def test_one_direction_is_enough_to_break_the_promise(last):
    """The third row differs from the second by more than delta one way, and by nothing the other way."""
    rows = np.array([(0.15, 0.15, 0.0), (0.35, 0.35, 0.0), last])
    words = (rows * 2.0**64).astype(np.uint64)
    stack = [Block(np.arange(1, 5), words, np.zeros_like(words))]
    worst = max(0.35 - math.e * last[1], last[2])
    assert certify(stack, Guarantee(1.0, worst + 1e-6)).worst == pytest.approx(worst, abs=1e-9)
    with pytest.raises(NotCertified, match="rows 2 and 3"):
        certify(stack, Guarantee(1.0, worst - 1e-6))
