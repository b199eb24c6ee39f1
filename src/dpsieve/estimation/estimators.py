"""The door to the estimators."""

from collections.abc import Callable

from dpsieve import validate
from dpsieve.channels.channel import LARGEST_FREQUENCY, Channel
from dpsieve.errors import InvalidValue
from dpsieve.estimation.base import Estimator
from dpsieve.estimation.biased_down import BiasedDown
from dpsieve.estimation.checks import Floats, a_channel
from dpsieve.estimation.likelihood import MaximumLikelihood
from dpsieve.estimation.minimax import WIDEST, Minimax
from dpsieve.estimation.target import Target
from dpsieve.estimation.unbiased import Unbiased

_PLAIN: dict[str, type[MaximumLikelihood | BiasedDown | Unbiased]] = {
    "mle": MaximumLikelihood,
    "biased_down": BiasedDown,
    "unbiased": Unbiased,
}


def estimator(
    channel: Channel,
    g: Callable[[Floats], Floats] | None = None,
    kind: str = "mle",
    *,
    low: int | None = None,
    high: int | None = None,
) -> Estimator:
    """Return an estimator of g(w), w a key's true frequency, from the token the channel gave out.

    Add up its values over the reported keys to estimate the sum of g(w) over all keys; unreported ones count 0.

    Args:
        channel: what the tokens were drawn from.
        g: a non-decreasing function of an array of frequencies with g(0) = 0; without it, g(w) = w.
        kind: 'mle' (right for the likeliest frequency), 'biased_down' (never too large on average, for any frequency),
            'unbiased' (right on average, huge variance), or 'minimax' (the smallest worst error, relative to g, over
            the frequencies from `low` to `high`; see `Minimax`).
        low, high: the range of frequencies, for 'minimax' only; at most 100,000 apart.

    >>> from dpsieve.channels import optimal
    >>> mle = estimator(optimal(1.0, 1e-8))
    >>> mle.value([0, 0.5, 100]).round(2).tolist()
    [0.0, 24.59, 118.0]
    >>> mle.bias([5, 20, 100]).round(2).tolist()
    [-5.0, 0.92, 0.0]
    """
    if type(a_channel(channel)).estimator is not Channel.estimator:  # sampled counts have estimators of their own
        return channel.estimator(g, kind, low=low, high=high)
    target = Target(g)
    if kind == "minimax":
        hint = "Pass the range of true frequencies to do well on, such as low=20, high=500."
        first = validate.whole("low", low, low=1, high=LARGEST_FREQUENCY, hint=hint)
        last = validate.whole("high", high, low=first, high=LARGEST_FREQUENCY, hint=hint)
        if last - first > WIDEST:
            raise InvalidValue(f"low and high are more than {WIDEST:,} apart. Pass a smaller high.")
        return Minimax(channel, target, first, last)
    if not isinstance(kind, str) or kind not in _PLAIN:
        raise InvalidValue("kind is not known. Choose 'mle', 'biased_down', 'unbiased' or 'minimax'.")
    if low is not None or high is not None:
        raise InvalidValue("low and high belong to kind='minimax'. Leave them out for other kinds.")
    return _PLAIN[kind](channel, target)
