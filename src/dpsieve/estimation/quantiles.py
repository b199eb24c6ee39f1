"""Quantiles of how frequent keys are, from the tokens of a release."""

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import LARGEST_FREQUENCY, Channel
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.checks import Ints, a_channel

_KEYS = ("reported", "all")


def frequency_quantiles(
    channel: Channel, tokens: ArrayLike, quantiles: ArrayLike = (0.25, 0.5, 0.75), *, keys: str = "reported"
) -> Ints:
    """Return estimated quantiles of the true frequencies of keys, from the tokens of the reported ones.

    Each token stands for its likeliest frequency c, with weight 1 for keys='reported', or 1 / pi_c for keys='all'. The
    q-quantile is the smallest c up to which at least a share q of the weight lies.

    What to expect. Each count is off by about 1/epsilon, so quantiles are as sharp as that, and differences smaller
    than that are washed out: the noise is not deconvolved. keys='all' makes up for keys of medium frequency that were
    not reported, in proportion to those that were. It knows nothing of rarer ones: a token never has a likeliest
    frequency that is reported less than about half of the time, so keys below that (about ln(epsilon/delta)/epsilon)
    are nearly absent, whatever their number.

    >>> from dpsieve.channels import optimal
    >>> frequency_quantiles(optimal(1.0, 1e-8), [5.5, 31.0, 31.5, 80.0, 400.0], [0.1, 0.5, 0.9]).tolist()
    [24, 50, 418]
    """
    channel = a_channel(channel)
    hint = "Pass shares from 0 to 1, such as quantiles=[0.5, 0.9]."
    try:
        shares = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidType(f"quantiles must be numbers. {hint}") from None
    if shares.ndim != 1 or not ((shares >= 0) & (shares <= 1)).all():
        raise InvalidValue(f"quantiles holds a number outside 0 to 1. {hint}")
    if keys not in _KEYS:
        raise InvalidValue("keys is not known. Choose 'reported' or 'all'.")
    if np.size(tokens) == 0:
        raise InvalidValue("tokens is empty, so there is no quantile. Pass the tokens of a release with some keys.")
    counts = np.sort(np.minimum(channel.likeliest(tokens), LARGEST_FREQUENCY))
    weights = np.ones(len(counts)) if keys == "reported" else 1 / channel.reporting_probability(counts)
    share = np.cumsum(weights)
    place = np.searchsorted(share, shares * share[-1] * (1 - 1e-12), side="left")
    return np.asarray(counts[np.minimum(place, len(counts) - 1)])
