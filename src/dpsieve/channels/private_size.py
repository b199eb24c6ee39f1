"""A private sample of about a chosen size: part of the budget buys the total that the sampling rate is set by."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import Tokens, checked_frequencies
from dpsieve.channels.contributions import most_keys
from dpsieve.channels.makers import optimal, unknown_domain
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Guarantee
from dpsieve.privacy.uses import Uses, remaining
from dpsieve.randomness.noise import LARGEST_SCALE, discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source, resolve
from dpsieve.sampling.monotone import raised
from dpsieve.sampling.schemes import Scheme, ppswor, priority

if TYPE_CHECKING:
    from dpsieve.publication import Release

_FIXED_POINT = 1 << 10
_METHODS = {"ppswor": ppswor, "priority": priority}


def private_scheme(
    frequencies: ArrayLike,
    sample_size: int,
    *,
    epsilon: float,
    max_keys: int = 1,
    method: str = "ppswor",
    power: float = 1.0,
    source: Source | None = None,
) -> Scheme:
    """Return a scheme with tau = sample_size / (private total of w^power), which samples about `sample_size` keys.

    The total sum_x floor(1024 w_x^power) changes by at most 1025 max_keys when one unit adds or removes one in each of
    max_keys keys, as power <= 1; discrete Laplace noise of scale 1025 max_keys / epsilon makes it
    epsilon-differentially private (Ghosh et al. 2012), and the scheme is post-processing. Fewer keys than
    `sample_size` are reported, as privacy withholds rare ones.
    """
    counts = checked_frequencies(frequencies)
    size = validate.whole("sample_size", sample_size, low=1, hint="Pass about how many keys to sample.")
    power = validate.between(
        "power", power, 0.001, 1.0, hint="One unit changes w^power by at most 1 only for power <= 1."
    )
    hint = "Pass the part of the budget that buys the total, such as epsilon=0.1."
    change = (_FIXED_POINT + 1) * most_keys(max_keys)
    smallest = change / LARGEST_SCALE
    epsilon = validate.between("epsilon", epsilon, smallest, 500.0, hint=hint)
    if not isinstance(method, str) or method not in _METHODS:
        raise InvalidValue("method is neither 'ppswor' nor 'priority'. Pass method='ppswor'.")
    terms = _fixed(counts, power)
    exact = (int((terms >> 20).sum()) << 20) + int((terms & (2**20 - 1)).sum())
    noise = int(discrete_laplace(laplace_scale(epsilon, change), 1, source=resolve(source))[0])
    return _METHODS[method](size * _FIXED_POINT / max(exact + noise, size * _FIXED_POINT), power)


def release_sample(
    keys: ArrayLike,
    frequencies: ArrayLike,
    sample_size: int,
    *,
    epsilon: float,
    delta: float,
    share: float = 0.05,
    method: str = "ppswor",
    power: float = 1.0,
    unit: str = "one row",
    keys_only: bool = False,
    source: Source | None = None,
) -> "Release":
    """Release a private weighted sample of about `sample_size` keys within (epsilon, delta).

    `share` of epsilon buys the private total (see `private_scheme`), the rest goes to the optimal channel with that
    scheme; together they are (epsilon, delta)-private by basic composition, for add/remove neighbours.
    """
    epsilon, delta = unknown_domain(epsilon, delta)
    share = validate.between("share", share, 0.001, 0.999, hint="Pass a part of the budget such as share=0.05.")
    for_total = share * epsilon
    scheme = private_scheme(frequencies, sample_size, epsilon=for_total, method=method, power=power, source=source)
    channel = optimal(remaining(epsilon, for_total), delta, scheme, unit=unit)
    release = channel.release(keys, frequencies, keys_only=keys_only, source=source)
    return replace(release, guarantee=Guarantee(epsilon, delta, unit=unit), uses=Uses(1, for_total))


def _fixed(counts: Tokens, power: float) -> Tokens:
    if power == 1.0:
        return counts * _FIXED_POINT
    return np.floor(raised(counts.astype(np.float64), power) * _FIXED_POINT).astype(np.int64)
