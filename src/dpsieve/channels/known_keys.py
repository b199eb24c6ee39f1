"""Counts of keys that are known in advance: every key of a public list is answered, with noise and no threshold.

A unit adds at most r to the count of each of at most m keys. With discrete Laplace noise of scale m r / epsilon on
every count the release is epsilon-private (Ghosh, Roughgarden and Sundararajan 2012). With Gaussian noise the l2
distance of neighbours, r sqrt(m), decides: it is rounded to integers, which is post-processing of the Gaussian
mechanism, so sigma is the smallest that its exact analysis allows (Balle and Wang 2018). Where sigma is too large for
a table, the noise is discrete Gaussian, with rho = m r^2 / (2 sigma^2) under zCDP (Canonne, Kamath and Steinke 2020).

Neighbours are add/remove of one unit. The list itself must not come from the data.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.contributions import most_keys, most_rows
from dpsieve.errors import InvalidValue
from dpsieve.exact.search import ball, upper
from dpsieve.privacy import Certificate, Guarantee, gaussian_delta, gaussian_sigma, zcdp_delta, zcdp_rho
from dpsieve.privacy.certificate import by_formula
from dpsieve.privacy.mechanism import Floats, Integers, Mechanism, Reading
from dpsieve.randomness.noise import (
    LARGEST_ROUNDED,
    LARGEST_SCALE,
    SMALLEST_SCALE,
    discrete_gaussian,
    discrete_laplace,
    laplace_scale,
    rounded_gaussian,
)
from dpsieve.randomness.source import Source, resolve

if TYPE_CHECKING:
    from dpsieve.publication import Release

NOISES = ("auto", "laplace", "gaussian")


class KnownKeys(Mechanism):
    """Noise for the counts of a public list of keys.

    Attributes:
        noise: 'laplace' or 'gaussian'.
        scale: of the discrete Laplace distribution, or sigma.
        deviation: the standard deviation of the noise.
    """

    name = "known_keys"

    def __init__(self, guarantee: Guarantee, noise: str, max_keys: int, max_rows: int) -> None:
        self.guarantee, self.noise, self.max_keys, self.max_rows = guarantee, noise, max_keys, max_rows
        self.scale = laplace_scale(guarantee.epsilon, max_keys * max_rows) if noise == "laplace" else _sigma(self)
        p = math.exp(-1 / self.scale)
        self.deviation = math.sqrt(2 * p) / -math.expm1(-1 / self.scale) if noise == "laplace" else self.scale
        self.parameters = {
            "mechanism": self.name, "epsilon": guarantee.epsilon, "delta": guarantee.delta, "unit": guarantee.unit,
            "max_keys": max_keys, "max_rows": max_rows, "noise": noise,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<known keys, {self.noise} noise of scale {self.scale:.4g}, {self.guarantee}>"

    def certify(self) -> Certificate:
        """Return the certificate: by exact arithmetic for Laplace noise, by a formula rounded up for Gaussian noise."""
        epsilon, keys, rows = self.guarantee.epsilon, self.max_keys, self.max_rows
        if self.noise == "laplace":
            kept = Fraction(self.scale) * Fraction(epsilon) >= keys * rows
            return by_formula(self.guarantee, 0.0 if kept else 1.0, "discrete Laplace noise")
        if self.scale <= LARGEST_ROUNDED:
            found = gaussian_delta(self.scale, epsilon, float(rows), count=keys)
            return by_formula(self.guarantee, found, "the exact analysis of Gaussian noise")
        rho = upper(lambda: ball(keys) * rows**2 / ball(self.scale) ** 2 / 2)
        return by_formula(
            self.guarantee, zcdp_delta(rho, epsilon), "zero-concentrated privacy of discrete Gaussian noise"
        )

    def draw(self, frequencies: ArrayLike, *, source: Source | None = None) -> Floats:
        """Return each true frequency, 0 included, with noise."""
        hint = "Pass one whole number for each key, from 0 to 10^12."
        counts = validate.integers("frequencies", frequencies, hint=hint)
        if len(counts) and not 0 <= int(counts.min()) <= int(counts.max()) <= 10**12:
            raise InvalidValue(f"frequencies holds a number below 0 or above 10^12. {hint}")
        add: Callable[..., Integers] = discrete_laplace
        if self.noise == "gaussian":
            add = rounded_gaussian if self.scale <= LARGEST_ROUNDED else discrete_gaussian
        return (counts + add(self.scale, len(counts), source=resolve(source))).astype(np.float64)

    def release(self, keys: ArrayLike, frequencies: ArrayLike, *, source: Source | None = None) -> "Release":
        """Answer every key of a public list; `frequencies` are their true counts, 0 for those that do not occur."""
        from dpsieve.publication.draw import release_of
        from dpsieve.publication.release import checked_keys

        names, source, frequencies = checked_keys(keys), resolve(source), validate.listed(frequencies)
        if len(names) != np.size(frequencies):
            raise InvalidValue("keys and frequencies differ in length. Pass one frequency for each key.")
        certificate = self.certify()
        return release_of(self, certificate, names, self.draw(frequencies, source=source), source=source)

    def read(self, tokens: ArrayLike) -> Reading:
        """Return counts that are not below zero; the weight is the noisy count itself, which is unbiased."""
        noisy = np.asarray(tokens, dtype=np.float64)
        count, reach = np.maximum(noisy, 0).astype(np.int64), self.reach(0.95)
        whole = noisy.astype(np.int64)
        return Reading(count, np.maximum(whole - reach, 0), np.maximum(whole + reach, 0), noisy)

    def addends(self, tokens: ArrayLike, g: Callable[[Floats], Floats] | None) -> Floats:
        """Return the noisy counts, whose sum is unbiased; with a g, its values at the counts, not below zero."""
        noisy = np.asarray(tokens, dtype=np.float64)
        return noisy if g is None else np.asarray(g(np.maximum(noisy, 0)), dtype=np.float64)

    def reach(self, level: float) -> int:
        """Return the least h such that the noise is within -h to h with at least this probability."""
        if self.noise == "laplace":  # P[|X| > h] = 2 p^(h+1) / (1 + p)
            tail = (1 - level) * (1 + math.exp(-1 / self.scale)) / 2
            return max(0, math.ceil(-math.log(tail) * self.scale * (1 + 1e-12) - 1))
        from scipy.special import ndtri

        edge = float(-ndtri((1 - level) / 2)) * self.scale * (1 + 1e-12)
        return max(0, math.ceil(edge - 0.5 if self.scale <= LARGEST_ROUNDED else edge))


def known_keys(
    epsilon: float,
    delta: float = 0.0,
    max_keys: int = 1,
    max_rows: int = 1,
    *,
    noise: str = "auto",
    unit: str = "one row",
) -> KnownKeys:
    """Return the noise for keys that are known in advance; 'auto' takes the one of the smaller standard deviation.

    Units add at most `max_rows` to the counts of at most `max_keys` keys. With delta = 0 the noise is Laplace's.

    >>> known_keys(1.0, 1e-8, max_keys=10).noise, known_keys(1.0, 1e-8, max_keys=100).noise
    ('laplace', 'gaussian')
    """
    hint = "Pass a privacy budget such as epsilon=1.0."
    guarantee = Guarantee(validate.positive("epsilon", validate.epsilon(epsilon), hint=hint), delta, unit=unit)
    keys, rows = most_keys(max_keys), most_rows(max_rows)
    if noise not in NOISES:
        raise InvalidValue(f"noise is not known. Choose one of {', '.join(NOISES)}.")
    if noise == "gaussian" and guarantee.delta == 0:
        raise InvalidValue("noise='gaussian' needs a delta above zero. Pass delta=1e-8, or noise='laplace'.")
    kinds = [noise] if noise != "auto" else ["laplace", "gaussian"] if guarantee.delta else ["laplace"]
    return min((KnownKeys(guarantee, kind, keys, rows) for kind in kinds), key=lambda made: made.deviation)


def from_json(data: Mapping[str, Any]) -> KnownKeys:
    """Make the mechanism again whose `to_json` is given."""
    values = {name: value for name, value in data.items() if name != "mechanism"}
    try:
        inspect.signature(known_keys).bind(**values)
    except TypeError:
        raise InvalidValue("data has other fields than known keys need. Pass what to_json returned.") from None
    return known_keys(**values)


def _sigma(made: KnownKeys) -> float:
    epsilon, delta, rows = made.guarantee.epsilon, made.guarantee.delta, made.max_rows
    sigma = gaussian_sigma(epsilon, delta, sensitivity=float(rows), count=made.max_keys)
    if sigma <= LARGEST_ROUNDED:
        return max(sigma, SMALLEST_SCALE)
    rho = zcdp_rho(epsilon, delta)
    wide = upper(lambda: (ball(made.max_keys) / ball(rho) / 2).sqrt() * rows)
    return validate.between("sigma", wide, 0.0, LARGEST_SCALE, hint="Pass a larger epsilon or delta.")
