"""Reading tokens back: the likeliest frequency, and intervals that hold the truth as often as they say."""

import numpy as np
import pytest
from helpers.schemes_in_use import SCHEMES
from helpers.statistical import binomial_band

from dpsieve.channels import gaussian, optimal, simple, stability, truncated_geometric
from dpsieve.errors import DpsieveError
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.sampling import ppswor

WHOLE = {
    "simple": simple(0.5, 0.01),
    "stability": stability(0.5, 0.01),
    "truncated geometric": truncated_geometric(0.5, 0.01),
    "sampled stability": sampled_stability(0.5, 0.01, ppswor(0.05)),
    "wide gaussian": gaussian(0.05, 0.01, max_keys=20),
    **{f"simple, {name}": simple(0.5, 0.01, scheme) for name, scheme in SCHEMES.items() if name != "everything"},
}
FINE = {
    "optimal": optimal(0.5, 0.01),
    **{f"optimal, {name}": optimal(0.5, 0.01, SCHEMES[name]) for name in ("ppswor", "step", "quadratic")},
}


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("name", WHOLE)
def test_coverage_by_enumeration(name, level):
    """For every true frequency: P[interval holds it | reported] >= level, summed over all tokens of the row."""
    channel = WHOLE[name]
    for frequency in [*range(1, 45), 100, 400, 10**6]:
        row = channel.row(frequency)
        tokens, mass = row.right[row.mass > 0], row.mass[row.mass > 0]
        low, high = channel.interval(tokens, level)
        covered = mass[(low <= frequency) & (frequency <= high)].sum()
        assert covered >= level * mass.sum() * (1 - 1e-9)


@pytest.mark.parametrize("name", FINE)
def test_coverage_by_drawing(name):
    """Tokens of the optimal channel are too many to enumerate; 95 % must lie above the lower end of a binomial band."""
    channel = FINE[name]
    for frequency in (1, 4, 9, 13, 20, 60, 10**5):
        tokens = channel.draw(np.full(300_000, frequency)).tokens
        low, high = channel.interval(tokens[tokens > 0])
        covered = int(((low <= frequency) & (frequency <= high)).sum())
        assert covered >= binomial_band(len(low), 0.95)[0]


@pytest.mark.parametrize("name", FINE)
def test_windows_are_no_longer_than_needed(name):
    """Far from zero, an interval of the optimal channel misses with nearly the probability it may."""
    channel = FINE[name]
    tokens = channel.draw(np.full(300_000, 5000)).tokens
    low, high = channel.interval(tokens[tokens > 0])
    assert ((low <= 5000) & (high >= 5000)).mean() < 0.96
    assert (high - low).max() < 16


@pytest.mark.parametrize("name", [*WHOLE, *FINE])
def test_the_likeliest_frequency_is_the_argmax_over_rows(name):
    channel = (WHOLE | FINE)[name]
    last = 40
    edges = channel.rows.cell_edges(0, last)
    candidates = np.arange(1, last + channel.rows.spread + 2)
    masses = channel.rows.cell_probabilities(candidates, edges)
    some = np.flatnonzero(masses.max(axis=0) > 0)
    found = channel.likeliest(edges[1:][some])
    best = masses[:, some].max(axis=0)
    assert masses[found - 1, some] == pytest.approx(best, rel=1e-9)


def test_large_tokens_move_with_the_frequency():
    for channel in (FINE["optimal"], FINE["optimal, ppswor"], WHOLE["simple"]):
        near, far = channel.rows.last + 100, 10**9
        token = channel.row(near).right[-3]
        for reading in (
            channel.likeliest,
            lambda t, c=channel: c.interval(t)[0],
            lambda t, c=channel: c.interval(t)[1],
        ):
            assert reading([token + (far - near) * channel.resolution])[0] == reading([token])[0] + far - near


@pytest.mark.parametrize("level", [0.5, 0.95, 1.0])
@pytest.mark.parametrize("name", FINE)
def test_windows_by_enumeration(name, level):
    """Fine tokens too: those whose interval holds i, found by halving, carry at least `level` of the row."""
    channel = FINE[name]
    for frequency in (1, 2, 7, 12, 20, 33, 90, 1000):
        row = channel.row(frequency)
        first, last = int(row.left[0]), int(row.right[-1])

        def end(beyond, first=first, last=last):
            low, high = first, last + 1
            while high - low > 1:
                middle = (low + high) // 2
                interval = [bound[0] for bound in channel.interval([middle], level)]
                low, high = (low, middle) if beyond(*interval) else (middle, high)
            return low

        start = end(lambda low, high, i=frequency: high >= i)  # the last token whose interval is all below i
        stop = end(lambda low, high, i=frequency: low > i)  # the last token whose interval is not all above i
        share = np.clip(np.minimum(row.right, stop) - np.maximum(row.left, start), 0, None) / (row.right - row.left)
        assert (row.mass * share).sum() >= level * row.mass.sum() * (1 - 1e-6)


@pytest.mark.parametrize("name", ["optimal", "optimal, ppswor"])
def test_levels_at_the_ends(name):
    tokens = np.array([22, 2001]) * (FINE[name].resolution // 4)
    low, high = FINE[name].interval(tokens, 0.0)
    assert (low <= high).all()
    wide_low, wide_high = FINE[name].interval(tokens, 1.0)
    assert (wide_low <= low).all() and (wide_high >= high).all()


def test_bad_tokens_and_levels():
    channel = FINE["optimal"]
    for tokens in ([0], [-1], [1.0], ["a"], [[1]], [2**62], [2**63], None):
        with pytest.raises(DpsieveError, match="tokens"):
            channel.interval(tokens)
    for level in (-0.1, 1.1, float("nan"), "0.9", None):
        with pytest.raises(DpsieveError, match="level"):
            channel.interval([1], level)
