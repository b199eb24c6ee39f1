"""Where a first word decides nothing, the second one must: else a key of one unit shows at 2^-64, not at delta."""

import numpy as np
import pytest
from flint import arb
from helpers.schemes_in_use import SCHEMES
from helpers.scripted import Scripted

from dpsieve.channels import gaussian, optimal, rows_of_units, simple, stability, truncated_geometric
from dpsieve.noise.private_total import private_scheme
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.randomness.coins import bernoulli, coins
from dpsieve.randomness.tables import ExactTable
from dpsieve.sampling import custom

WORD = 1 << 64
RARE = 3 * 2.0**-66  # below 2^-64: the first word is 0, and the second decides by three quarters
EDGE = 3 << 62
ADDITIVE = {
    "optimal": optimal(1.0, 1e-20),
    "simple": simple(0.5, 1e-20),
    "stability": stability(1.0, 1e-20),
    "truncated geometric": truncated_geometric(1.0, 1e-20),
    "gaussian": gaussian(1.0, 1e-8, max_keys=3),
    "rows of units": rows_of_units(1.0, 1e-12, 3),
}
STEPPED = {
    "optimal": optimal(1.0, 1e-20, SCHEMES["ppswor"]),
    "simple": simple(1.0, 1e-20, SCHEMES["step"]),
    "rare": simple(1.0, 1e-6, custom([RARE, 1.0])),
}


def split(number):
    return number >> 64, number % WORD


@pytest.mark.parametrize("frequency", [1, 2, 7, 30])
@pytest.mark.parametrize("name", ADDITIVE)
def test_channels_of_a_lag(name, frequency):
    """U below the mass that is reported, in two words; the first ties, the second is on either side."""
    channel = ADDITIVE[name]
    high, low = (int(words[min(frequency, channel.rows.last)]) for words in channel.rows.totals)
    assert channel.draw([frequency], source=Scripted(*split((high << 64 | low) - 1))).tokens[0] > 0
    assert channel.draw([frequency], source=Scripted(high, low)).tokens[0] == 0
    assert channel.draw([frequency], source=Scripted(high, WORD - 1)).tokens[0] == 0


@pytest.mark.parametrize("frequency", [1, 2, 7, 30])
@pytest.mark.parametrize("name", STEPPED)
def test_channels_with_a_scheme(name, frequency):
    """As above, and between two cells of a row: the last number of one, the first of the next."""
    channel = STEPPED[name]
    high, low = (int(word[0]) for word in channel.rows._totals(np.array([frequency])))
    assert channel.draw([frequency], source=Scripted(*split((high << 64 | low) - 1))).tokens[0] > 0
    assert channel.draw([frequency], source=Scripted(high, low)).tokens[0] == 0
    block, end = next(channel.rows.ragged(frequency, frequency)), 0
    for t in range(len(block.left) - 1):
        end += (int(block.high[t]) << 64 | int(block.low[t])) * int(block.right[t] - block.left[t])
        tokens = [channel.draw([frequency], source=Scripted(*split(end - 1 + k))).tokens[0] for k in (0, 1)]
        assert tokens == [block.right[t], block.left[t + 1] + 1]


def test_samples_of_others():
    """U is drawn below q = 3/2^66: (0, EDGE) is not, and is drawn again; (0, EDGE - 1) is."""
    channel = simple(1.0, 1e-6, custom([RARE]))
    assert channel.reporting_probability([1])[0] == RARE
    again = Scripted(0, 0, 0, EDGE, 0, 0)
    assert channel.draw([1], already_sampled=True, source=again).tokens.tolist() == [1]
    assert again._first == []
    once = Scripted(0, 0, 0, EDGE - 1)
    assert channel.draw([1], already_sampled=True, source=once).tokens.tolist() == [1]


def test_coins_that_thin():
    """The coins of the samplers, of the clients, and those that keep a part of a sampled stability histogram."""
    for second, kept in ((EDGE - 1, True), (EDGE, False), (WORD - 1, False)):
        assert coins(1, RARE, source=Scripted(0, second)).tolist() == [kept]
        assert bernoulli(np.array([RARE]), Scripted(0, second)).tolist() == [kept]
        sampled = sampled_stability(1.0, 1e-3, custom([RARE])).draw([50], source=Scripted(0, 0, 0, second)).tokens
        assert (sampled[0] > 0) == kept


def test_tables():
    """P[X = 0] = 1/2 + 3/2^66: a word of 2^63 ties."""
    table = ExactTable(lambda k: arb(0) if k < 0 else arb(1) / 2 + 3 * arb(2) ** -66 if k == 0 else arb(1))
    for second, value in ((EDGE - 1, 0), (EDGE, 1), (WORD - 1, 1)):
        assert table.draw(1, Scripted(WORD // 2, second)).tolist() == [value]


@pytest.mark.parametrize("max_keys", [1, 10])
def test_the_total_that_sets_a_rate_has_noise_for_all_keys_of_a_unit(max_keys):
    """The mean size of the noise is its scale, 1025 max_keys / epsilon, within 20 %.

    The mean of 1,200 sizes has a standard deviation of a 35th of the scale: by chance this fails once in 10^11 runs.
    """
    total, size, epsilon = 10**6, 5, 0.1
    rates = [private_scheme([total], size, epsilon=epsilon, max_keys=max_keys).tau for _ in range(1200)]
    noise = np.abs(1024 * (size / np.array(rates) - total))
    assert noise.mean() == pytest.approx(1025 * max_keys / epsilon, rel=0.2)
