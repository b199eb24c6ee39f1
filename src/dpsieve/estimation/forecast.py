"""Forecasts: how much of a frequency distribution a channel reports."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import Channel
from dpsieve.estimation.checks import a_channel, histogram


@dataclass(frozen=True)
class Forecast:
    """What a channel reports on average.

    Attributes:
        keys: the number of keys that occur.
        mass: the sum of their true frequencies.
        reported_keys: the expected number of reported keys.
        reported_mass: the expected sum of the true frequencies of reported keys.
        spread: the standard deviation of the number of reported keys.
    """

    keys: float
    mass: float
    reported_keys: float
    reported_mass: float
    spread: float

    @property
    def key_fraction(self) -> float:
        """The expected share of keys that are reported."""
        return self.reported_keys / self.keys

    @property
    def mass_fraction(self) -> float:
        """The expected share of all mass that belongs to reported keys."""
        return self.reported_mass / self.mass

    def __repr__(self) -> str:
        keys = f"{self.reported_keys:,.1f} (give or take {self.spread:,.1f}) of {self.keys:,.0f} keys"
        return f"<Forecast: {keys}, {self.key_fraction:.1%} of keys and {self.mass_fraction:.1%} of mass>"


def forecast(channel: Channel, frequencies: ArrayLike, counts: ArrayLike | None = None) -> Forecast:
    """Return how much a channel is expected to report of `counts[t]` keys of true frequency `frequencies[t]`.

    With n_i keys of frequency i and pi_i the reporting probability:

        reported_keys = sum_i n_i pi_i,   reported_mass = sum_i n_i i pi_i,   spread^2 = sum_i n_i pi_i (1 - pi_i).

    Without counts each frequency is that of one key. What is computed from sensitive frequencies is itself sensitive:
    plan on public or made-up ones, such as `zipf`.

    >>> from dpsieve.channels import optimal
    >>> forecast(optimal(1.0, 1e-8), [1, 18, 100], [900, 90, 10])
    <Forecast: 44.4 (give or take 4.6) of 1,000 keys, 4.4% of keys and 46.0% of mass>
    """
    channel = a_channel(channel)
    rows, keys = histogram(frequencies, counts)
    reported = channel.reporting_probability(rows)
    expected = keys * reported
    return Forecast(
        keys=float(keys.sum()),
        mass=float(keys @ rows),
        reported_keys=float(expected.sum()),
        reported_mass=float(expected @ rows),
        spread=float(np.sqrt(expected @ (1 - reported))),
    )
