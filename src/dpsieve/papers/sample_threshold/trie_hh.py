"""TrieHH, from which the paper's heavy hitters start: samples of a fixed size, a threshold, and no counts.

W. Zhu, P. Kairouz, B. McMahan, H. Sun and W. Li, "Federated heavy hitters discovery with differential privacy",
AISTATS 2020, Algorithm 1. In round i, m of n clients are drawn without replacement. Each of them whose prefix of length
i - 1 is in the trie votes for its prefix of length i, and prefixes with theta votes or more join the trie. Strings end
with a symbol of their own, so that a string is found when its end is.

Guarantee (their Theorem 2), when one client's value is another, for L rounds, 4 <= theta <= sqrt(n) and
m <= n / (theta + 1):

    epsilon = L ln(1 + 1 / (n / (m theta) - 1)),    delta = (theta - 2) / ((theta - 3) theta!).

So theta is the smallest one for delta, and m = n (1 - e^(-epsilon/L)) / theta (their Corollary 1). Section 3.2 of
Bharadwaj and Cormode does not contradict that: a sample of fixed size is not private where counts are published, and
TrieHH publishes none.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.accounting.curves import positive_delta
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Ints

END = "\0"


@dataclass(frozen=True)
class TrieHH:
    """The heavy hitters of `clients` clients, each with one string of at most `length` - 1 symbols.

    Attributes:
        clients: n, a public number.
        epsilon, delta: the budget.
        length: L, the number of rounds, with one for the end of strings.
        threshold: theta, the votes that a prefix needs.
        voters: m, the clients of a round.

    >>> method = TrieHH(100_000, 4.0, 1e-8, length=4)
    >>> method.threshold, method.voters
    (12, 5267)
    >>> method.find(["tea"] * 60_000 + ["mate"] * 35_000 + ["rum"] * 5_000)
    ['rum', 'tea']
    """

    clients: int
    epsilon: float
    delta: float
    length: int
    unit: str = "one client"
    threshold: int = field(init=False)
    voters: int = field(init=False)

    def __post_init__(self) -> None:
        n = validate.whole("clients", self.clients, low=16, high=10**10, hint="Pass the number of all clients.")
        epsilon, delta = validate.positive_epsilon(self.epsilon), positive_delta(self.delta)
        hint = "Pass the symbols of the longest string, and one for its end."
        length = validate.whole("length", self.length, low=2, high=1000, hint=hint)
        least = max(4, math.ceil(math.exp(min(epsilon / length, 700.0)) - 1))  # so that m <= n / (theta + 1)
        theta = next((t for t in range(least, math.isqrt(n) + 1) if theorem_delta(t) <= delta), None)
        if theta is None:
            raise InvalidValue(f"clients={n:,} are too few for this epsilon and delta. Pass more of them.")
        voters = math.floor(n * -math.expm1(-epsilon / length) / theta * (1 - 1e-12))
        validate.store(self, clients=n, epsilon=epsilon, delta=delta, length=length, threshold=theta, voters=voters)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee when one client's value is another."""
        return Guarantee(self.epsilon, self.delta, "replace", self.unit)

    def find(self, values: Any, *, source: Source | None = None) -> list[str]:
        """Return the strings found, sorted; `values` has one string per client."""
        words = [f"{word}{END}" for word in self._checked(values)]
        source, trie, found = resolve(source), {""}, []
        for size in range(1, self.length + 1):
            votes: dict[str, int] = {}
            for place in _sample(len(words), self.voters, source).tolist():
                prefix = words[place][:size]
                if len(prefix) == size and prefix[:-1] in trie:
                    votes[prefix] = votes.get(prefix, 0) + 1
            trie = {prefix for prefix, count in votes.items() if count >= self.threshold}
            found += [prefix[:-1] for prefix in trie if prefix.endswith(END)]
        return sorted(found)

    def _checked(self, values: Any) -> list[str]:
        words = validate.listed(values)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InvalidType("values must be a list of texts. Pass one for each client.")
        if len(words) != self.clients or any(END in word for word in words):
            raise InvalidValue("values must be one text for each client, without the character 0. Pass all of them.")
        return words


def theorem_delta(threshold: int) -> float:
    """Return the delta of Theorem 2 of Zhu et al., (theta - 2) / ((theta - 3) theta!).

    >>> f"{theorem_delta(10):.3g}"
    '3.15e-07'
    """
    return math.exp(math.log1p(1 / (threshold - 3)) - math.lgamma(threshold + 1)) * (1 + 1e-12)


def _sample(count: int, size: int, source: Source) -> Ints:
    """Return `size` of `count` places, drawn without replacement: those with the smallest of random numbers."""
    words = source.words(2 * count).reshape(2, count)
    return np.lexsort(words)[:size]
