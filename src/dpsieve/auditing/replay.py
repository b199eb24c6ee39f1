"""Record the random words of a call, and replay them on another input.

Each request for words has a stream of its own, given by a secret and by the number of the request. So the same request
receives the same words in every replay, and one that asks for more words leaves those after it as they were. What is
then different between two calls is caused by their inputs alone.

Two layouts of the same data may have their keys in another order, and then another key receives a word. So for layouts
all words of a request are equal: the order of keys makes no difference, and anything else that depends on it does.
"""

import hashlib
import sys
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsieve.auditing.outputs import Feature
from dpsieve.randomness.source import Source, Stream
from dpsieve.types import Words

_PACKAGE = Path(__file__).parents[1]
_OWN = {str(path) for path in (_PACKAGE / "randomness").glob("*.py")} | {__file__}


class Draw(NamedTuple):
    """A request for random words: the function that drew, and how many words."""

    function: str
    words: int

    def __str__(self) -> str:
        return f"{self.words:,} words for {self.function}"


class RecordedSource(Source):
    """Words that a secret and the number of the request determine; `draws` lists the requests.

    What is drawn from it says that it is unsafe to publish.
    """

    publishable = False

    def __init__(self, secret: bytes, *, equal: bool = False) -> None:
        self._secret, self._equal = secret, equal
        self.draws: list[Draw] = []

    @classmethod
    def new(cls, source: Source, *, equal: bool = False) -> "RecordedSource":
        """Return a source with a new secret; with `equal`, all words of a request are equal."""
        return cls(source.words(4).tobytes(), equal=equal)

    def replayed(self) -> "RecordedSource":
        """Return a source that answers each request with the same words again."""
        return RecordedSource(self._secret, equal=self._equal)

    def words(self, count: int) -> Words:
        """Return the words of the next request."""
        digest = hashlib.shake_256(b"dpsieve replay %d " % len(self.draws) + self._secret)
        self.draws.append(Draw(_caller(), count))
        stream = Stream(digest.digest)
        return np.repeat(stream.words(1), count) if self._equal else stream.words(count)


def _caller() -> str:
    """Return the function outside of the package of randomness that asked for words."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename in _OWN:
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def first_difference(
    draws: list[Draw], other_draws: list[Draw], stated: list[tuple[str, Feature]], other: list[tuple[str, Feature]]
) -> str:
    """Return where two replayed calls first differ, without any value of theirs; empty where they do not."""
    for number, (draw, other_draw) in enumerate(zip_longest(draws, other_draws), 1):
        if draw != other_draw:
            return f"draw {number}: {draw or 'nothing'} on data, {other_draw or 'nothing'} on the neighbour"
    for (place, value), (other_place, other_value) in zip(stated, other, strict=False):
        if place != other_place:
            return f"{_public(place)} on data, {_public(other_place)} on the neighbour, at the same place of the output"
        if value != other_value:
            return f"{_public(place)} differs"
    if len(stated) != len(other):
        longer = stated if len(stated) > len(other) else other
        return f"{_public(longer[min(len(stated), len(other))][0])} is there on one input only"
    return ""


def _public(place: str) -> str:
    """Return a place of an output without the key that it is about."""
    for word in (" of ", "key "):
        if word in place and not place.startswith("columns"):
            return f"{place.split(word)[0] or word}{' of ' if word == ' of ' else ''}a key".replace("  ", " ")
    return place
