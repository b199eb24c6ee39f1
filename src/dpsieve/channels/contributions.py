"""Channels for units that add more than one row to one key: several keys, or several rows of a key."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from dpsieve import validate
from dpsieve.channels.channel import Channel, checked_frequencies
from dpsieve.channels.grid import Steps
from dpsieve.channels.lag.gaussian import (
    gaussian_lag,
    gaussian_threshold,
    gaussian_threshold_delta,
    grid_loss,
)
from dpsieve.channels.lag.optimal import Lag, optimal_lag
from dpsieve.channels.lag.rows import AdditiveChannel
from dpsieve.channels.makers import unknown_domain
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Guarantee
from dpsieve.privacy.curves.gaussian import gaussian_sigma

MOST_KEYS, MOST_ROWS = 10_000, 1_000
_FOR_GRID = 1e-6  # of delta, for rounding the masses


class GaussianChannel(AdditiveChannel):
    """Gaussian noise with a threshold; its lag is made only when tokens are drawn or read."""

    def reporting_probability(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return P[i + N(0, sigma^2) >= T] for each true frequency i."""
        derived = self.parameters["derived"]
        return np.asarray(ndtr((checked_frequencies(frequencies) - derived["threshold"]) / derived["sigma"]))


def gaussian(epsilon: float, delta: float, max_keys: int = 1, max_rows: int = 1, *, unit: str = "one row") -> Channel:
    """Return Gaussian noise with a threshold, for units of at most `max_keys` keys with `max_rows` rows each.

    The guarantee is for a whole unit, added or removed: the exact one of `channels.lag.gaussian`. Among all
    (sigma, threshold) that keep it, those with the lowest threshold are taken. The certificate covers one key.

    >>> channel = gaussian(1.0, 1e-5, max_keys=10)
    >>> round(channel.parameters["derived"]["threshold"], 2)
    57.08
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    keys, rows = most_keys(max_keys), most_rows(max_rows)
    sigma, gap = gaussian_threshold(epsilon, delta * (1 - _FOR_GRID), keys)
    return _gaussian(Guarantee(epsilon, delta, unit=unit), keys, rows, sigma * rows, (1 + gap) * rows)


def gaussian_again(
    epsilon: float, delta: float, max_keys: int, max_rows: int, sigma: float, threshold: float, *, unit: str
) -> Channel:
    """Return the Gaussian channel with a known sigma and threshold, if they keep the promise."""
    epsilon, delta = unknown_domain(epsilon, delta)
    keys, rows = most_keys(max_keys), most_rows(max_rows)
    hint = "Pass the saved one."
    most = 2.01 * gaussian_sigma(epsilon, delta / 1.001, count=keys) * rows  # what `gaussian` looks through
    sigma = validate.between("sigma", sigma, 1e-9, most, hint=hint)
    threshold = validate.between("threshold", threshold, 0.0, 61 * sigma + rows, hint=hint)
    return _gaussian(Guarantee(epsilon, delta, unit=unit), keys, rows, sigma, threshold)


def _gaussian(guarantee: Guarantee, keys: int, rows: int, noise: float, threshold: float) -> Channel:
    """Return the channel with this noise and threshold, which grow with the rows, if they keep the promise."""
    epsilon, sigma, gap = guarantee.epsilon, noise / rows, threshold / rows - 1
    if gaussian_threshold_delta(epsilon, sigma, gap, keys) > guarantee.delta:
        raise InvalidValue("sigma and threshold do not keep epsilon and delta. Pass those that were saved.")
    if grid_loss(epsilon, sigma * rows, gap * rows, keys) > _FOR_GRID * guarantee.delta:
        raise InvalidValue(
            f"epsilon={epsilon:g} is too large for Gaussian noise at this delta. Pass a smaller epsilon."
        )
    alone = gaussian_threshold_delta(epsilon, sigma, gap, 1) * (1 + _FOR_GRID)
    channel = GaussianChannel(
        "gaussian",
        guarantee,
        1,
        partial(gaussian_lag, sigma * rows, gap * rows + rows - 1),
        largest_step=rows,
        each_key=(epsilon, alone),
        unit_delta=lambda e: gaussian_threshold_delta(e, sigma, gap, keys) * (1 + _FOR_GRID),
    )
    found = {"sigma": noise, "threshold": threshold}
    return _remember(channel, "gaussian", max_keys=keys, max_rows=rows, derived=found)


def rows_of_units(epsilon: float, delta: float, max_rows: int, *, unit: str = "one row") -> Channel:
    """Return the channel for frequencies that one unit changes by up to `max_rows`, in one key.

    It is `simple` with units of `max_rows` rows, its lag spread evenly over each unit. So any change by 1 to max_rows
    moves delta at most in and out, and multiplies no probability by more than e^epsilon: the kernel checks every step.

    >>> rows_of_units(1.0, 1e-6, max_rows=10).reporting_probability([10, 300]).round(7).tolist()
    [1e-06, 1.0]
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    rows = most_rows(max_rows)
    whole = optimal_lag(Steps(epsilon, delta), 1)
    lag = Lag([edge * rows for edge in whole.edges], [mass // rows for mass in whole.masses])
    guarantee = Guarantee(epsilon, delta, unit=unit)
    channel = AdditiveChannel("simple", guarantee, 1, lag, largest_step=rows)
    return _remember(channel, "rows_of_units", max_rows=rows)


def most_keys(value: int, name: str = "max_keys") -> int:
    """Return a checked bound on the keys of one unit."""
    return validate.whole(
        name, value, low=1, high=MOST_KEYS, hint=f"Pass how many keys a unit may add, up to {MOST_KEYS:,}."
    )


def most_rows(value: int, name: str = "max_rows") -> int:
    """Return a checked bound on the rows of one unit in one key."""
    hint = f"Pass how many rows of a unit count in one key, up to {MOST_ROWS:,}."
    return validate.whole(name, value, low=1, high=MOST_ROWS, hint=hint)


def _remember(channel: Channel, name: str, **values: Any) -> Channel:
    promise = channel.guarantee
    channel.parameters = {
        "channel": name, "epsilon": promise.epsilon, "delta": promise.delta, "unit": promise.unit, **values
    }  # fmt: skip
    return channel
