"""Bottom-k samples: the k keys of lowest rank. NOT private, and no channel takes them, as the data decide their rate.

The rank of a key of frequency w is Exp(1) / w^p for ppswor, Uniform(0, 1) / w^p for priority, both increasing functions
of its random number u (Rosén 1997; Ohlsson 1990; Duffield, Lund, Thorup 2007; see `dpsieve.sampling.sample`). The
threshold is the (k+1)-st lowest rank. For parts without common keys, the k+1 lowest ranks of the union are among the
k+1 lowest ranks of the parts, so bottom-k samples merge, with their thresholds.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.estimated_sums import EstimatedSum, horvitz_thompson, row_weights
from dpsieve.sampling.monotone import raise_to_power
from dpsieve.sampling.sample import MOST, Sample
from dpsieve.sampling.schemes import Scheme, everything, ppswor, priority
from dpsieve.types import Floats, Ints

Method = Literal["ppswor", "priority"]
_LOG_2, _TERMS = 0.6931471805599453, 18  # 3^-37 / 37 is below 2^-60


def bottom_k(
    keys: Any, frequencies: ArrayLike, k: int, *, method: Method = "ppswor", power: float = 1.0, salt: bytes
) -> "BottomK":
    """Return the k keys of lowest rank.

    Args:
        keys, frequencies, salt: as for `dpsieve.Sample.of`.
        k: the size of the sample; with k or fewer keys, all are in it.
        method: 'ppswor' or 'priority'.
        power: frequencies count as w^power.

    >>> from dpsieve.sampling import new_salt
    >>> sample = bottom_k(["tea", "milk", "salt"], [900, 500, 1], 3, salt=new_salt())
    >>> sample.keys.to_pylist(), float(sample.estimate())
    (['milk', 'salt', 'tea'], 1401.0)
    """
    k = validate.whole("k", k, low=1, high=MOST, hint="Pass the size of the sample, such as k=1000.")
    if method not in ("ppswor", "priority"):
        raise InvalidValue("method is not a known way to sample. Choose 'ppswor' or 'priority'.")
    unit = (ppswor if method == "ppswor" else priority)(1.0, power)
    whole = BottomK(Sample.of(keys, frequencies, everything(), salt=salt), unit, k, np.inf)
    return whole.lowest(k, [])


@dataclass(frozen=True, eq=False, repr=False)
class BottomK:
    """The k keys of lowest rank of counted keys; `bottom_k` makes it.

    Attributes:
        held: the keys with their true frequencies and numbers.
        unit: the scheme of ranks: its method and power, with a tau of 1.
        size: k.
        threshold: the (k+1)-st lowest rank, infinite where there are no more than k keys.
    """

    held: Sample
    unit: Scheme
    size: int
    threshold: float

    @property
    def keys(self) -> pa.Array:
        """The sampled keys, sorted."""
        return self.held.keys

    @property
    def frequencies(self) -> Ints:
        """Their true frequencies."""
        return self.held.frequencies

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return f"<BottomK, the {self.size:,} lowest ranks of {self.unit!r}: not to be published>"

    def merge(self, other: "BottomK") -> "BottomK":
        """Return the sample of both parts together, for parts without common keys; it has the smaller k."""
        if not isinstance(other, BottomK):
            raise InvalidType(f"other must be a BottomK, not {type(other).__name__}.")
        if other.unit != self.unit:
            raise InvalidValue("other was sampled by another scheme. Pass the same one to all parts.")
        both = replace(self, held=self.held.merge(other.held))
        return both.lowest(min(self.size, other.size), [self.threshold, other.threshold])

    def estimate(
        self,
        where: ArrayLike | Callable[[Any], ArrayLike] | None = None,
        g: Callable[[NDArray[Any]], ArrayLike] | None = None,
        weights: ArrayLike | Callable[[Any], ArrayLike] | None = None,
    ) -> EstimatedSum:
        """Return an unbiased estimate of the sum of L(x) g(w) over all keys, with its variance. It is NOT private.

        q is that given the (k+1)-st lowest rank. Both sums are unbiased, the second for k >= 2, as different keys have
        terms without correlation (Cohen, Kaplan 2007); for k = 1 it is too large.
        """
        data = self.unit.to_json()
        make = ppswor if data["kind"] == "ppswor" else priority
        scheme = everything() if self.threshold == np.inf else make(self.threshold, data["power"])
        return horvitz_thompson(self.frequencies, scheme, g, row_weights(self.keys, len(self), where, weights))

    def lowest(self, k: int, thresholds: list[float]) -> "BottomK":
        """Return the k keys of lowest rank, with the next rank, of a key or of these, as threshold."""
        ranks = self.ranks()
        order = np.lexsort((self.held.low, self.held.high, ranks))
        limit = np.sort(np.concatenate([ranks, np.array(thresholds), [np.inf] * (k + 1)]))[k]
        return replace(self, held=self.held.take(order[:k]), size=k, threshold=float(limit))

    def ranks(self) -> Floats:
        """Return the rank of each key, above zero. Sums, products and quotients only: the same on every machine."""
        held = self.held
        uniform = (held.high.astype(np.float64) + (held.low.astype(np.float64) + 0.5) / 2.0**64) / 2.0**64
        uniform = np.minimum(uniform, np.nextafter(1.0, 0.0))
        data = self.unit.to_json()
        scores = exponential(uniform) if data["kind"] == "ppswor" else uniform
        return scores / raise_to_power(self.frequencies.astype(np.float64), data["power"])


def exponential(uniform: Floats) -> Floats:
    """Return -ln(1 - u), right to some units in the last place, also for tiny u.

    For u <= 1/2 it is 2 artanh(u / (2 - u)), a series in z <= 1/3. Else 1 - u = m 2^e with 1/2 <= m < 1, and it is
    -e ln 2 + 2 artanh((1 - m) / (1 + m)).

    >>> exponential(np.array([0.0, 0.5])).round(6).tolist()
    [0.0, 0.693147]
    """
    m, e = np.frexp(1.0 - uniform)
    small = uniform <= 0.5
    z = np.where(small, uniform / (2.0 - uniform), (1.0 - m) / (1.0 + m))
    square, series = z * z, np.zeros_like(z)
    for k in range(_TERMS, -1, -1):
        series = series * square + 1.0 / (2 * k + 1)
    return np.where(small, 0.0, -_LOG_2 * e) + 2.0 * z * series
