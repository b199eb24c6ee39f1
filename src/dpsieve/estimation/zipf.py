"""Zipf's law as a frequency histogram."""

import numpy as np

from dpsieve import validate
from dpsieve.channels.channel import LARGEST_FREQUENCY
from dpsieve.errors import InvalidValue
from dpsieve.estimation.checks import Ints

_MOST_KEYS = 10**7


def zipf(alpha: float, keys: int, *, total: int | None = None, largest: int | None = None) -> tuple[Ints, Ints]:
    """Return (frequencies, counts) of Zipf's law: the r-th most frequent of `keys` keys has frequency c r^-alpha.

    The scale c is `largest`, or such that all frequencies add up to `total`; pass one of the two. Frequencies are made
    whole by rounding their running sum, so that no mass is lost: the first is `largest`, or their sum is `total`, as
    asked. In the tail, where c r^-alpha is below one, that share of the keys occurs once and the others not at all, so
    the counts may add up to less than `keys`.

    >>> frequencies, counts = zipf(1.0, 1000, largest=100)
    >>> frequencies[-3:].tolist(), counts[:3].tolist()
    ([33, 50, 100], [261, 29, 12])
    >>> frequencies, counts = zipf(1.0, 1000, total=5000)
    >>> int(frequencies @ counts)
    5000
    """
    alpha = validate.between("alpha", alpha, 0.0, 20.0, hint="Pass the exponent of the law, such as alpha=1.0.")
    keys = validate.whole("keys", keys, low=1, high=_MOST_KEYS, hint="Pass how many keys there are.")
    hint = "Pass either total=, the sum of all frequencies, or largest=, the first one."
    if (total is None) == (largest is None):
        raise InvalidValue(f"total and largest cannot be both given or both left out. {hint}")
    shares = np.arange(1, keys + 1) ** -alpha
    sums = np.cumsum(shares)
    if total is not None:
        whole = validate.whole("total", total, low=1, high=LARGEST_FREQUENCY, hint=hint)
        sums = sums / sums[-1] * whole
    else:
        sums *= validate.whole("largest", largest, low=1, high=LARGEST_FREQUENCY, hint=hint)
    frequencies = np.diff(np.floor(np.append(0.0, sums) + 0.5)).astype(np.int64)
    distinct, counts = np.unique(frequencies[frequencies > 0], return_counts=True)
    return np.asarray(distinct, dtype=np.int64), counts.astype(np.int64)
