"""A source for tests that first gives chosen words, then ordinary ones: it forces the rare paths of a sampler."""

import numpy as np

from dpsieve.randomness.source import Source, SystemSource


class Scripted(Source):
    publishable = False

    def __init__(self, *first):
        self._first = list(first)
        self._rest = SystemSource()

    def words(self, count):
        chosen, self._first = self._first[:count], self._first[count:]
        return np.concatenate([np.array(chosen, dtype=np.uint64), self._rest.words(count - len(chosen))])


class Repeating(Source):
    """Every request for many words gives the same word; requests for one word are random (they refine a draw)."""

    publishable = False

    def __init__(self, word):
        self._word = word
        self._rest = SystemSource()

    def words(self, count):
        return self._rest.words(1) if count == 1 else np.full(count, self._word, dtype=np.uint64)
