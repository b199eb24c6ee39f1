"""Sums over the keys of a release by any estimator of the paper; `Release.estimate` is maximum likelihood."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpsieve.channels.channel import ReportedCounts
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation import likely_errors
from dpsieve.estimation.estimated_sums import EstimatedSum, row_weights
from dpsieve.estimation.estimators import Estimator, estimator
from dpsieve.papers.weighted_sampling.baseline_estimators import noisy_count, scaled
from dpsieve.papers.weighted_sampling.minimax import minimax
from dpsieve.papers.weighted_sampling.other_estimators import biased_down, unbiased
from dpsieve.publication.release import Release
from dpsieve.types import Floats

Kind = Literal["mle", "biased_down", "unbiased", "minimax", "noisy_count", "scaled"]
_MAKERS: dict[str, Callable[..., Estimator]] = {
    "mle": estimator, "biased_down": biased_down, "unbiased": unbiased, "minimax": minimax, "noisy_count": noisy_count,
}  # fmt: skip


def estimate_sum(
    release: Release,
    kind: Kind | Estimator = "mle",
    *,
    where: ArrayLike | Callable[[Any], ArrayLike] | None = None,
    g: Callable[[Floats], Floats] | None = None,
    weights: ArrayLike | Callable[[Any], ArrayLike] | None = None,
    **options: int,
) -> EstimatedSum:
    """Estimate the sum of L(x) g(frequency) over all keys x that satisfy `where`, by the estimator of your choice.

    With a(t) the estimator's value of token t, it is the sum over reported keys of L(x) a(token of x) (Algorithm 2;
    Section 7 of the published version). `bias` and `variance` of the result are estimated from the tokens as for
    `Release.estimate`: the estimator's own Bias_i / pi_i and Var_i / pi_i at the likeliest frequencies. Its interval is
    the normal one. Keys too rare to be reported are not included in either.

    Args:
        release: one whose counts come from a channel.
        kind: 'mle' (as `Release.estimate`), 'biased_down' (never too large on average), 'unbiased' (huge variance),
            'minimax' (needs low= and high=), 'noisy_count' (of stability histograms), 'scaled' (of sampled counts); or
            an estimator made for the channel of the release, whose g is its own.
        where, g, weights: as for `Release.estimate`.
        options: low and high, the range of frequencies of 'minimax'.

    >>> from dpsieve.channels import optimal
    >>> release = optimal(1.0, 1e-3).release(["tea", "milk", "rum"], [900, 400, 50])
    >>> sums = {kind: estimate_sum(release, kind) for kind in ("mle", "biased_down")}
    >>> sums["mle"] == release.estimate(), abs(sums["biased_down"] - 1350) < 100, sums["biased_down"].bias <= 0
    (True, True, True)
    """
    if not isinstance(release, Release):
        raise InvalidType(f"release must be a Release, not {type(release).__name__}. Pass one with counts.")
    if release.tokens is None:
        raise InvalidType("release holds keys only. Release the keys with counts to estimate sums.")
    channel = release.mechanism.reader(release.drawn)
    if not isinstance(channel, ReportedCounts):
        raise InvalidType("release is not one of a channel. Use Release.estimate, which reads every mechanism.")
    used = _estimator(kind, channel, g, options)
    keys = release.keys
    column = keys.column(0).combine_chunks() if keys.num_columns == 1 else keys
    factors = row_weights(column, len(release.tokens), where, weights)
    some = np.flatnonzero(factors)
    value = float(factors[some] @ used.value(release.tokens[some]))
    return EstimatedSum(value, partial(likely_errors, used, release.tokens[some], factors[some]))


def _estimator(kind: Any, channel: ReportedCounts, g: Any, options: dict[str, int]) -> Estimator:
    if isinstance(kind, Estimator):
        if g is not None or options:
            raise InvalidValue("g and options belong to the estimator that was passed. Leave them out.", argument="g")
        if kind.channel != channel:
            raise InvalidValue("kind is an estimator for another channel. Make it for the channel of the release.")
        return kind
    if options and kind != "minimax":
        raise InvalidValue(f"{min(options)} is for 'minimax' alone. Leave it out.", argument=min(options))
    if kind == "scaled":
        if g is not None:
            raise InvalidValue("g is the frequency itself for 'scaled'. Leave it out.", argument="g")
        return scaled(channel)
    if not isinstance(kind, str) or kind not in _MAKERS:
        raise InvalidValue(f"kind is not known. Choose one of {', '.join([*_MAKERS, 'scaled'])}.", argument="kind")
    if kind == "minimax" and options.keys() != {"low", "high"}:
        raise InvalidValue("minimax needs a range of frequencies. Pass low=20 and high=500.", argument="low")
    return _MAKERS[kind](channel, g, **options)
