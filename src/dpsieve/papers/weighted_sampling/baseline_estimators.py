"""Estimators that the papers compare with: noisy counts of stability histograms, and counts of a sample scaled up."""

from collections.abc import Callable

import numpy as np

from dpsieve.channels.channel import ReportedCounts, Target
from dpsieve.channels.unknown_keys import Stability
from dpsieve.errors import InvalidValue
from dpsieve.estimation.estimators import Estimator, check_channel
from dpsieve.papers.weighted_sampling.sampled_stability import LaplaceCut, SampledStability
from dpsieve.sampling.schemes import everything
from dpsieve.types import Floats, Ints

_POINTS = 12  # of a Gauss rule on a part of at most one unit


def noisy_count(channel: ReportedCounts, g: Callable[[Floats], Floats] | None = None) -> "NoisyCount":
    """Return the estimator g(x) / q(x) from the noisy counts x of a stability histogram; see `NoisyCount`.

    >>> from dpsieve.channels.unknown_keys import stability
    >>> noisy_count(stability(1.0, 1e-8)).bias([5, 100]).round(2).tolist()
    [-5.0, 0.01]
    """
    return NoisyCount(check_channel(channel), Target(g))


def scaled(channel: ReportedCounts) -> "Scaled":
    """Return the estimator token / rate of the frequency, for sampled counts (`channels.sample_threshold`).

    It is unbiased for a threshold of one. With a higher threshold no estimator is: keys below it are never reported.

    >>> from dpsieve.noise.sample_threshold import sample_threshold
    >>> scaled(sample_threshold(0.2, 6)).value([0, 7, 100]).round(6).tolist()
    [0.0, 35.0, 500.0]
    """
    return Scaled(check_channel(channel), Target(None))


class Scaled(Estimator):
    """The value token / rate, and 0 for 'nothing' (Horvitz and Thompson 1952, were it not for the threshold).

    With X ~ Binomial(i, p): E_i = i - E[X; X < threshold] / p. So it is biased down for keys that are often missed, and
    unbiased, with variance i (1-p) / p, for those that are not.
    """

    kind = "scaled"

    def __init__(self, channel: ReportedCounts, target: Target) -> None:
        super().__init__(channel, target)
        if not channel.sampling_rate < 1:
            raise InvalidValue("channel does not sample counts. Pass one of dpsieve.channels.sample_threshold.")

    def values(self, parts: Ints) -> Floats:
        """Return token / rate."""
        return parts / self.channel.sampling_rate


class NoisyCount(Estimator):
    """The noisy count of a stability histogram taken for the true one: g(x) / q(x), and g(x) without sampling.

    (Cohen, Geri, Sarlos, Stemmer 2020, appendix E.) With x = i + Lap(1/epsilon), reported from T on:

        E_i = integral over x >= T of g(x) epsilon/2 e^(-epsilon |x - i|)                     (38)
        g(x) = x:  E_i = i - e^(-epsilon (i - T)) (T - 1/epsilon) / 2  for i > T,
                         e^(-epsilon (T - i)) (T + 1/epsilon) / 2      for i <= T.            (39)

    The token stands for a part of the axis around x, at most one unit long, so the value is the mean of g(x) / q(x)
    over the part: that for noise that rises through it and that for noise that falls, averaged. So moments are summed
    over the rows as they are drawn. For epsilon up to 2, E_i is within 0.1 of (39), and without sampling the
    MSE within 0.11 of that of (42).
    """

    kind = "noisy_count"

    def __init__(self, channel: ReportedCounts, target: Target) -> None:
        super().__init__(channel, target)
        if not isinstance(channel, Stability | SampledStability):
            raise InvalidValue("channel has no noisy counts. Pass a stability histogram.")
        self._cut = LaplaceCut.of(channel.epsilon, channel.delta_, paper=channel.threshold == "paper")
        self._nodes, weights = np.polynomial.legendre.leggauss(_POINTS)
        self._nodes, self._weights = (self._nodes + 1) / 2, weights / 2

    def values(self, parts: Ints) -> Floats:
        """Return the mean of g(x) / q(x) over the part of each token."""
        distinct, place = np.unique(parts, return_inverse=True)
        start, end = self._edge(distinct - 1)[:, None], self._edge(distinct)[:, None]
        x = start + (end - start) * self._nodes
        shapes = [self._weights * np.exp(-self._cut.rate * far) for far in (x - start, end - x)]
        scheme = everything() if self.channel.scheme is None else self.channel.scheme
        g, q = self.target(x.ravel()).reshape(x.shape), scheme.inclusion(x)  # type: ignore[arg-type]
        means = [(shape * g).sum(axis=1) / (shape * q).sum(axis=1) for shape in shapes]
        return np.asarray(((means[0] + means[1]) / 2)[place])

    def _edge(self, k: Ints) -> Floats:
        """Return the upper end of part k: T + k, or with two parts a unit a whole number where k is odd."""
        if self.channel.resolution == 1:
            return np.asarray(self._cut.threshold + k, dtype=np.float64)
        return np.asarray(np.where(k % 2, self._cut.above, self._cut.threshold) + k // 2, dtype=np.float64)
