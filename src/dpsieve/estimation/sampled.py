"""Estimators for sampled counts. Their rows are bands around rate times the frequency, which moments walk along."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve.channels.binomial.rows import WIDEST, SampleThreshold
from dpsieve.errors import InvalidValue
from dpsieve.estimation.base import Estimator, Moments
from dpsieve.estimation.checks import Floats, Ints, true_frequencies
from dpsieve.estimation.likelihood import MaximumLikelihood
from dpsieve.estimation.target import Target
from dpsieve.estimation.windows import CELLS
from dpsieve.exact.binomial import window


def sampled_estimator(
    channel: SampleThreshold,
    g: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None,
    kind: str,
    *,
    low: int | None,
    high: int | None,
) -> Estimator:
    """Return an estimator of g(w) from sampled counts; see `SampleThreshold.estimator`."""
    if low is not None or high is not None:
        raise InvalidValue("low and high belong to kind='minimax', which is not offered here. Leave them out.")
    if kind == "mle":
        return SampledLikelihood(channel, Target(g))
    if kind == "unbiased" and channel.threshold > 1:
        why = "no estimator is unbiased for keys that are never reported, below the threshold"
        raise InvalidValue(f"kind='unbiased' is not possible: {why}. Use kind='scaled', token / rate.")
    if kind not in ("scaled", "unbiased"):
        raise InvalidValue("kind is not offered for sampled counts. Choose 'mle' or 'scaled'.")
    if g is not None:
        raise InvalidValue("g must be left out for kind='scaled', which estimates the frequency. Use kind='mle'.")
    return Scaled(channel, Target(None))


class _Sampled(Estimator):
    """Moments over the bands of binomial rows."""

    channel: SampleThreshold

    def moments(self, i: ArrayLike) -> Moments:
        """Return expectation, bias, variance and MSE for true frequencies i; see `Estimator.moments`."""
        shaped = true_frequencies("i", i)
        rows, place = np.unique(shaped.ravel(), return_inverse=True)
        found = np.empty((4, len(rows)))
        for part, edges in self._bands(rows):
            found[:, part] = self._sums(rows[part], edges)
        return Moments(*found[:, place].reshape(4, *shaped.shape))

    def _bands(self, rows: Ints) -> Iterator[tuple[slice, Ints]]:
        """Cut increasing rows into runs; yield each with token edges that span its rows, and little more."""
        rate, least, start = self.channel.rate, self.channel.threshold, 0
        while start < len(rows):
            first, last = window(int(rows[start]), rate)
            stop = int(np.searchsorted(rows, rows[start] + (last - first) / (2 * rate), side="right"))
            last = window(int(rows[stop - 1]), rate)[1]
            if last - max(first, least) > WIDEST:
                hint = "The variance of token / rate is i (1 - rate) / rate there, and its bias next to nothing."
                raise InvalidValue(f"i holds a frequency with too many tokens to sum over. {hint}")
            edges = np.arange(max(first, least) - 1, max(last, least + 400) + 1)
            step = max(CELLS // len(edges), 1)
            for k in range(start, stop, step):
                yield slice(k, min(k + step, stop)), edges
            start = stop


class SampledLikelihood(_Sampled, MaximumLikelihood):
    """The value g(i) / pi_i for i = floor(token / rate), the frequency under which the token is likeliest."""


class Scaled(_Sampled):
    """The value token / rate, and 0 for 'nothing' (Horvitz and Thompson 1952, were it not for the threshold).

    With X ~ Binomial(i, p): E_i = i - E[X; X < threshold] / p. So it leans low for keys that are often missed, and is
    unbiased, with variance i (1-p) / p, for those that are not.
    """

    kind = "scaled"

    def _values(self, parts: Ints) -> Floats:
        return parts / self.channel.rate
