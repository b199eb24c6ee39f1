"""What is drawn: exactly the rows, on every path, at the rate that was promised."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.schemes_in_use import SCHEMES, FunctionScheme
from helpers.scripted import Scripted
from helpers.statistical import assert_counts, binomial_band

from dpsieve.channels import optimal, simple, stability, truncated_geometric
from dpsieve.channels.rows import Inverse
from dpsieve.channels.stepwise import RaggedRows
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.sampling import Sample, custom, new_salt, ppswor
from dpsieve.testing import insecure_source

DRAWS = 200_000
CHANNELS = {
    "optimal": optimal(0.5, 0.01),
    "simple": simple(0.5, 0.01),
    "stability": stability(0.5, 0.01),
    "truncated geometric": truncated_geometric(0.5, 0.01),
    "sampled stability": sampled_stability(0.5, 0.01, ppswor(0.05)),
    **{f"optimal, {name}": optimal(0.5, 0.01, scheme) for name, scheme in SCHEMES.items() if name != "everything"},
    "simple, ppswor": simple(0.5, 0.01, ppswor(0.05)),
}


def assert_follows_row(tokens, row):
    """Chi-square over 'nothing' and the cells of a row."""
    cells = np.searchsorted(row.right, tokens[tokens > 0], side="left")
    seen = np.append(np.bincount(cells, minlength=len(row.mass)), (tokens == 0).sum())
    assert_counts(seen.astype(float), np.append(row.mass, row.silent) * len(tokens))


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("frequency", [1, 3, 9, 14, 40, 10**12])
def test_tokens_follow_the_row(name, frequency):
    channel = CHANNELS[name]
    tokens = channel.draw(np.full(DRAWS, frequency)).tokens
    if frequency == 10**12:
        row = channel.row(10**12)
        assert (tokens > 0).sum() == pytest.approx(row.reported * DRAWS, abs=6 * DRAWS**0.5)
    else:
        assert_follows_row(tokens, channel.row(frequency))


@pytest.mark.parametrize("name", CHANNELS)
def test_the_rate_of_a_key_held_by_one_unit(name):
    """The tightest point: a key of frequency one appears with probability delta at most."""
    channel = CHANNELS[name]
    low, high = binomial_band(2_000_000, channel.reporting_probability([1])[0])
    assert low <= (channel.draw(np.ones(2_000_000, np.int64)).tokens > 0).sum() <= high
    assert channel.reporting_probability([1])[0] <= 0.01


@pytest.mark.parametrize("name", CHANNELS)
def test_the_rate_at_the_threshold(name):
    """The frequency that is reported about half of the time."""
    channel = CHANNELS[name]
    chances = channel.reporting_probability(range(1, 100))
    half = int(np.abs(chances - chances[-1] / 2).argmin())
    low, high = binomial_band(DRAWS, chances[half])
    assert low <= (channel.draw(np.full(DRAWS, half + 1)).tokens > 0).sum() <= high


def test_mixed_frequencies_keep_their_places():
    """Each key gets a token of its own row, whatever the order of the frequencies."""
    frequencies = np.array([50, 1, 10**9, 7, 50, 10**6, 1] * 1000)
    for name in ("optimal", "simple", "optimal, ppswor"):
        tokens = CHANNELS[name].draw(frequencies).tokens
        assert (tokens[frequencies == 1] > 0).sum() <= 60
        shown = tokens > 0
        lags = frequencies[shown] * CHANNELS[name].resolution - tokens[shown]
        assert ((lags >= 0) & (lags < CHANNELS[name].rows.spread * CHANNELS[name].resolution)).all()
        assert shown[frequencies >= 10**6].all()


def test_within_a_cell_tokens_are_even():
    """The optimal channel's cells are wide; the place within one must be uniform (32 bins)."""
    channel = CHANNELS["optimal"]
    row = channel.row(30)
    widest = int(np.argmax((row.right - row.left) * row.mass))
    tokens = channel.draw(np.full(400_000, 30)).tokens
    inside = tokens[(tokens > row.left[widest]) & (tokens <= row.right[widest])]
    place = ((inside - row.left[widest]) / (row.right[widest] - row.left[widest]) * 32 - 1e-9).astype(int)
    assert_counts(np.bincount(place, minlength=32).astype(float), np.full(32, len(inside) / 32))


def test_a_tie_of_the_first_word_is_decided_by_the_second():
    """Row 1 reports when U, two words, is below its mass: a first word that ties, then a second one on each side."""
    channel = simple(1.0, 0.3)
    edge = channel.rows.totals
    high, low = int(edge[0][1]), int(edge[1][1])
    assert channel.draw([1], source=Scripted(high, low - 1)).tokens.tolist() == [1]
    assert channel.draw([1], source=Scripted(high, low)).tokens.tolist() == [0]
    assert channel.draw([1], source=Scripted(high + 1)).tokens.tolist() == [0]
    sampled = simple(1.0, 0.3, custom([0.5]))
    high, low = (int(word[0]) for word in sampled.rows._totals(np.array([1])))
    assert sampled.draw([1], source=Scripted(high, low - 1)).tokens.tolist() == [1]
    assert sampled.draw([1], source=Scripted(high, low)).tokens.tolist() == [0]


def test_the_inverse_is_exact_at_every_border():
    """Cells with masses that are not powers of two: first and last number of every place."""
    edges, masses = [0, 3, 4, 9], [2**100 + 12345, 7, 3**60]
    inverse, place, start = Inverse.of(edges, masses), 0, 0
    for (left, right), mass in zip(itertools.pairwise(edges), masses, strict=True):
        for _ in range(left, right):
            for number in (start, start + mass - 1):
                high, low = np.array([number >> 64], np.uint64), np.array([number & (2**64 - 1)], np.uint64)
                assert inverse.places(high, low).tolist() == [place]
            start, place = start + mass, place + 1


@pytest.mark.parametrize("name", ["ppswor", "step"])
@pytest.mark.parametrize("make", [optimal, simple])
def test_a_sample_of_someone_else_is_finished_exactly(make, name):
    """Sampling first and drawing from the row given that the key was sampled is the same as drawing from the row."""
    channel = make(0.5, 0.01, SCHEMES[name])
    for frequency in (2, 12, 30):
        everyone = np.arange(DRAWS)
        sample = Sample.of(everyone, np.full(DRAWS, frequency), SCHEMES[name], salt=new_salt())
        tokens = np.zeros(DRAWS, np.int64)
        tokens[sample.keys.to_numpy()] = channel.draw(sample.frequencies, already_sampled=True).tokens
        assert_follows_row(tokens, channel.row(frequency))


def test_tiny_sampling_rates():
    """q far below 2^-64 and delta: such keys never show, and nothing overflows."""
    channel = optimal(1.0, 1e-6, custom([1e-30, 1e-25, 1e-10, 1e-3]))
    assert channel.certify().worst <= 1e-6
    exact = [1e-30, 1e-25, 1e-10, 1e-6 + np.e * 1e-10]
    assert channel.reporting_probability([1, 2, 3, 4]) == pytest.approx(exact, rel=1e-9, abs=1e-32)
    assert channel.draw(np.full(1000, 1), already_sampled=True).tokens.shape == (1000,)


def test_draws_repeat_under_a_test_source():
    for channel in CHANNELS.values():
        frequencies = np.arange(1, 3000)
        first = channel.draw(frequencies, source=insecure_source(4)).tokens
        assert (first == channel.draw(frequencies, source=insecure_source(4)).tokens).all()


class TestSamplesOfRareAndHugeKeys:
    """What someone else sampled with probability q_i must come out with probability pi_i in all, for every i."""

    def reported(self, channel, frequency):
        """q_i P[reported | sampled], measured."""
        share = (channel.draw(np.full(20_000, frequency), already_sampled=True).tokens > 0).mean()
        return channel.scheme.inclusion([frequency])[0] * share

    def test_beyond_the_last_row_of_a_scheme_that_still_grows(self):
        """ppswor(1e-6) is constant only from 37 million on; rows end at a million: pi stays there, and q does not."""
        channel = simple(4.0, 1e-4, ppswor(1e-6))
        pi = channel.reporting_probability([2**21])[0]
        for frequency in (channel.rows.last, channel.rows.last + 1, 2**21, 10**7):
            assert channel.reporting_probability([frequency])[0] == pi
            assert self.reported(channel, frequency) == pytest.approx(pi, abs=0.03)  # 8 standard deviations

    def test_keys_that_are_never_sampled(self):
        channel = optimal(1.0, 1e-8, custom([0.0, 1e-45, 0.5, 1.0]))
        assert not channel.draw([1, 2], already_sampled=True).tokens.any()
        assert len(simple(1.0, 1e-8, custom([0.0, 0.0, 1.0])).row(1).mass) == 0

    def test_a_scheme_that_changes_its_mind_is_held_to_what_was_certified(self):
        low = {"answer": 0.001}
        answer = FunctionScheme(
            lambda frequencies: np.where(frequencies < 2000, 0.9, 1.0) * low["answer"]
        )  # rows of many blocks
        channel = simple(1.0, 1e-6, answer)
        channel.certify()
        low["answer"] = 1.0
        assert channel.draw(np.full(20_000, 60)).tokens.astype(bool).mean() < 0.01


def test_threads_share_a_channel():
    expected = simple(1.0, 1e-4, ppswor(0.01)).reporting_probability(range(1, 3000))
    for _ in range(3):
        channel = simple(1.0, 1e-4, ppswor(0.01))
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _, c=channel: c.reporting_probability(range(1, 3000)), range(4)))
        assert all((each == expected).all() for each in found)


def test_two_threads_that_make_the_same_rows_at_once_leave_all_others_right(monkeypatch):
    """What a second thread would do while the first is about to keep where its block ended."""
    frequencies, shifted = range(1, 3000), RaggedRows.shift
    expected = simple(1.0, 1e-4, ppswor(0.01)).reporting_probability(frequencies)
    channel = simple(1.0, 1e-4, ppswor(0.01))

    def interrupted(*arguments):
        monkeypatch.setattr(RaggedRows, "shift", shifted)
        channel.reporting_probability([1])
        return shifted(*arguments)

    monkeypatch.setattr(RaggedRows, "shift", interrupted)
    assert (channel.reporting_probability(frequencies) == expected).all()
