"""What every channel offers. A new mechanism is a new way to make rows, and nothing else."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.row import Row
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.mechanism import Mechanism, Reading
from dpsieve.randomness.source import Source, resolve

if TYPE_CHECKING:
    from dpsieve.estimation import Estimator
    from dpsieve.publication import Release
    from dpsieve.sampling.schemes import Scheme

Tokens = NDArray[np.int64]
LARGEST_FREQUENCY = 10**12


class Channel(Mechanism):
    """For each true frequency i = 0, 1, 2, ... a distribution over 'nothing' and ordered tokens; row 0 is 'nothing'.

    Tokens are in units of frequency, `resolution` of them for each unit; 0 stands for 'nothing'. Each key goes through
    the channel on its own. Neighbours are add/remove: one unit more or less changes the frequency of one key by
    one, so the guarantee is the largest divergence of adjacent rows.
    """

    resolution: int
    scheme: "Scheme | None" = None

    def __repr__(self) -> str:
        promise = f"epsilon={self.guarantee.epsilon:g}, delta={self.guarantee.delta:g}"
        return f"<{self.name} channel, {promise}{'' if self.scheme is None else f', {self.scheme!r}'}>"

    @abstractmethod
    def row(self, frequency: int) -> Row:
        """Return the row of one true frequency."""

    @abstractmethod
    def reporting_probability(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return, for each true frequency, the probability that its key is reported."""

    @abstractmethod
    def delta(self, epsilon: float, neighbours: str = "add_remove") -> float:
        """Return the least delta for which this channel is (epsilon, delta)-private, from its rows."""

    @property
    def each_key(self) -> tuple[float, float]:
        """The (epsilon, delta) of one key, which the certificate is about."""
        return self.guarantee.epsilon, self.guarantee.delta

    def likeliest(self, tokens: ArrayLike) -> NDArray[np.int64]:
        """Return, for each token, the true frequency under which it has the largest probability."""
        return self._likeliest(self._parts(tokens))

    def interval(self, tokens: ArrayLike, level: float = 0.95) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (low, high) for the true frequency behind each token.

        For every true frequency, the interval of a reported key holds it with probability at least `level`, given
        that the key is reported; the windows behind it are as short as that allows (see `channels.lag.windows`).
        """
        hint = "Pass a confidence level such as level=0.95."
        level = validate.between("level", level, 0.0, 1.0, hint=hint)
        return self._interval(self._parts(tokens), max(level, 1e-6))

    def read(self, tokens: ArrayLike) -> Reading:
        """Return the likeliest frequency, its interval, and the count divided by its probability of being reported."""
        count = np.minimum(self.likeliest(tokens), LARGEST_FREQUENCY)
        return Reading(count, *self.interval(tokens), count / self.reporting_probability(count))

    def addends(
        self, tokens: ArrayLike, g: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None
    ) -> NDArray[np.float64]:
        """Return the maximum-likelihood estimates g(i) / pi_i (Cohen et al. 2021, Section 7)."""
        return self.estimator(g).value(tokens)

    def estimator(
        self,
        g: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
        kind: str = "mle",
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> "Estimator":
        """Return an estimator of g(true frequency) from tokens; see `dpsieve.estimation.estimator`."""
        from dpsieve.estimation import estimator

        return estimator(self, g, kind, low=low, high=high)

    def _parts(self, tokens: ArrayLike) -> Tokens:
        """Return tokens in units of frequency as the integers they were drawn as."""
        hint = "Pass tokens as `draw` or a row returns them, above zero."
        try:
            values = np.atleast_1d(np.asarray(tokens, dtype=np.float64))
        except (TypeError, ValueError):
            raise InvalidType(f"tokens must be numbers. {hint}") from None
        if values.ndim != 1 or not np.isfinite(values).all() or (values <= 0).any() or (values > 2e12).any():
            raise InvalidValue(f"tokens must be finite and above zero. {hint}")
        return np.ceil(values * self.resolution).astype(np.int64)

    @property
    @abstractmethod
    def reach(self) -> int:
        """Units: a row i has all its reported tokens in (i - reach, i + reach]."""

    @abstractmethod
    def breaks(self, low: int, high: int) -> Tokens:
        """Return token edges from low to high units, in parts, between which every row spreads its mass evenly.

        They go from low * resolution to high * resolution; cell t holds the tokens breaks[t] + 1 to breaks[t+1].
        """

    @abstractmethod
    def masses(self, frequencies: ArrayLike, edges: Tokens) -> NDArray[np.float64]:
        """Return, for each frequency (a row) and each cell between `edges` (a column), the probability of the cell.

        `edges` come from `breaks`; digits are kept down to the smallest probabilities.
        """

    @abstractmethod
    def _likeliest(self, tokens: Tokens) -> Tokens:
        """Return the likeliest frequency of integer tokens."""

    @abstractmethod
    def _interval(self, tokens: Tokens, level: float) -> tuple[Tokens, Tokens]:
        """Return the confidence interval of integer tokens."""

    @abstractmethod
    def _draw(self, frequencies: Tokens, source: Source, already_sampled: bool) -> Tokens:
        """Return a token for each frequency, 0 for 'nothing'."""

    def draw(
        self, frequencies: ArrayLike, *, already_sampled: bool = False, source: Source | None = None
    ) -> NDArray[np.float64]:
        """Return a token for each true frequency, 0 for 'nothing', with exactly the probabilities of its row.

        Tokens are in units of frequency: multiples of 1/resolution.

        With `already_sampled`, each key is known to have been drawn with the probability of the scheme, and the token
        comes from the row conditional on that.
        """
        tokens = self._draw(checked_frequencies(frequencies), resolve(source), bool(already_sampled))
        return tokens / self.resolution

    def release(
        self,
        keys: ArrayLike,
        frequencies: ArrayLike | None = None,
        *,
        already_sampled: bool = False,
        keys_only: bool = False,
        source: Source | None = None,
    ) -> "Release":
        """Send keys with their true frequencies through the channel; return what may be published.

        Args:
            keys: distinct keys without nulls: an Arrow array, or any sequence that Arrow can read, such as the keys()
                of a dict of counts.
            frequencies: the true frequency of each key, a whole number from 1 to 10^12, such as its values().
            already_sampled: the keys are a sample that someone else drew with the probabilities of the scheme.
            keys_only: publish which keys occur and drop the tokens: the same guarantee, and less to read.
            source: randomness for tests; a release made with it says that it is unsafe to publish.
        """
        from dpsieve.publication.draw import draw_release

        if frequencies is None:
            hint = "For a dict or a Counter, pass release(counts.keys(), counts.values())."
            raise InvalidType(f"frequencies is missing: one for each key. {hint}")
        return draw_release(
            self, keys, frequencies, already_sampled=already_sampled, keys_only=keys_only, source=resolve(source)
        )


def checked_frequencies(values: ArrayLike) -> Tokens:
    """Return frequencies as int64 in [1, 10^12]; the message never tells which key or value was wrong."""
    hint = "Pass one whole number for each key, from 1 to 10^12; leave out keys that do not occur."
    frequencies = validate.integers("frequencies", values, hint=hint)
    if len(frequencies) and not 1 <= int(frequencies.min()) <= int(frequencies.max()) <= LARGEST_FREQUENCY:
        raise InvalidValue(f"frequencies holds a number below 1 or above 10^12. {hint}")
    return frequencies
