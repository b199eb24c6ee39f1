"""A private sample of about a given size: part of the budget pays for the total that sets the sampling rate."""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.accounting.spends import DiscreteLaplace, Spend
from dpsieve.channels.channel import checked_frequencies
from dpsieve.channels.unknown_keys import optimal
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.exact import exact_sum
from dpsieve.privacy.certificate import Certificate, laplace
from dpsieve.privacy.guarantee import Unit
from dpsieve.privacy.mechanism import Composed, Mechanism, Use, remaining
from dpsieve.randomness.noise import LARGEST_SCALE, discrete_laplace, laplace_scale
from dpsieve.randomness.source import Source, resolve
from dpsieve.sampling.monotone import raise_to_power
from dpsieve.sampling.schemes import Scheme, ppswor, priority
from dpsieve.types import Ints
from dpsieve.validate import check_budget, check_max_keys

if TYPE_CHECKING:
    from dpsieve.publication import Release

_FIXED_POINT = 1 << 10
_METHODS = {"ppswor": ppswor, "priority": priority}


@register("private_total")
@dataclass(frozen=True)
class PrivateTotal(Mechanism):
    """The total of w^power over all keys, power <= 1, in parts of 1/1024 and with discrete Laplace noise.

    The total sum_x floor(1024 w_x^power) changes by at most 1025 max_keys when one unit adds or removes one in each of
    max_keys keys; noise of scale 1025 max_keys / epsilon makes it epsilon-private (Ghosh et al. 2012).
    """

    epsilon: float
    max_keys: Annotated[int, check_max_keys] = 1
    _: KW_ONLY
    unit: Unit = "one row"

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the share of the budget for the total, such as epsilon=0.1."
        smallest = self.sensitivity / LARGEST_SCALE
        validate.store(self, epsilon=validate.between("epsilon", self.epsilon, smallest, 500.0, hint=hint))

    @property
    def sensitivity(self) -> int:
        """The largest change of the total by one unit."""
        return (_FIXED_POINT + 1) * self.max_keys

    @property
    def scale(self) -> float:
        """The scale of the noise."""
        return laplace_scale(self.epsilon, self.sensitivity)

    def certify(self) -> Certificate:
        return laplace(self.guarantee, self.scale, self.sensitivity, "discrete Laplace noise on a total")

    def spends(self) -> tuple[Spend, ...]:
        return (DiscreteLaplace(self.scale, self.sensitivity),)

    def draw(self, frequencies: ArrayLike, power: float = 1.0, *, source: Source | None = None) -> float:
        """Return the noisy total of frequency^power."""
        terms = _fixed_point(checked_frequencies(frequencies), power)
        return (exact_sum(terms) + int(discrete_laplace(self.scale, 1, source=resolve(source))[0])) / _FIXED_POINT


def private_scheme(
    frequencies: ArrayLike,
    sample_size: int,
    *,
    epsilon: float,
    max_keys: int = 1,
    method: Literal["ppswor", "priority"] = "ppswor",
    power: float = 1.0,
    source: Source | None = None,
) -> Scheme:
    """Return a scheme with tau = sample_size / (private total of w^power), which samples about `sample_size` keys.

    The total is that of `PrivateTotal`, and the scheme is post-processing. Fewer keys than `sample_size` are reported,
    as privacy withholds rare keys.
    """
    size = validate.whole("sample_size", sample_size, low=1, hint="Pass about how many keys to sample.")
    power = validate.between(
        "power", power, 0.0, 1.0, hint="One unit changes w^power by at most 1 only for power <= 1."
    )
    if not isinstance(method, str) or method not in _METHODS:
        raise InvalidValue("method is neither 'ppswor' nor 'priority'. Pass method='ppswor'.", argument="method")
    total = PrivateTotal(epsilon, max_keys).draw(frequencies, power, source=source)
    return _METHODS[method](size / max(total, size), power)


def release_sample(
    keys: ArrayLike,
    frequencies: ArrayLike,
    sample_size: int,
    *,
    epsilon: float,
    delta: float,
    share: float = 0.05,
    method: Literal["ppswor", "priority"] = "ppswor",
    power: float = 1.0,
    unit: str = "one row",
    keys_only: bool = False,
    source: Source | None = None,
) -> "Release":
    """Release a private weighted sample of about `sample_size` keys within (epsilon, delta).

    `share` of epsilon pays for the private total (see `private_scheme`), the remainder for the optimal channel with
    that scheme; by basic composition both are (epsilon, delta)-private for add/remove neighbours.
    """
    from dpsieve.publication.release import draw_release

    epsilon, delta = check_budget(epsilon, delta)
    share = validate.between("share", share, 0.001, 0.999, hint="Pass a part of the budget such as share=0.05.")
    total = PrivateTotal(share * epsilon, unit=unit)
    scheme = private_scheme(frequencies, sample_size, epsilon=total.epsilon, method=method, power=power, source=source)
    channel = optimal(remaining(epsilon, total.epsilon), delta, scheme, unit=unit)
    together = Composed(epsilon, delta, (Use(total), Use(channel)))
    return draw_release(together, keys, frequencies, keys_only=keys_only, source=source)


def _fixed_point(counts: Ints, power: float) -> Ints:
    if power == 1.0:
        return counts * _FIXED_POINT
    return np.floor(raise_to_power(counts.astype(np.float64), power) * _FIXED_POINT).astype(np.int64)
