"""What the server asks at one level of a trie, and what a client answers. Questions are public."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.channels.binomial.rows import checked_rate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.level_plans import MOST_LEVELS, Way, checked_way
from dpsieve.federated.level_server import is_asked
from dpsieve.federated.report import is_nonce, new_nonce
from dpsieve.federated.trie_strings import Strings, Symbols
from dpsieve.randomness.coins import coins
from dpsieve.randomness.source import Source, resolve


class PrefixReport(NamedTuple):
    """A client's answer: the beginning of its string up to the level, and whether the string ends there.

    The nonce is drawn once and sent again with each retry, so that a message that comes twice counts once.
    """

    prefix: Symbols
    ended: bool
    nonce: str = ""

    def __repr__(self) -> str:
        return "<PrefixReport of a client, not to be published>"


@dataclass(frozen=True)
class Question:
    """What is asked at one level: which of these prefixes does your string extend, and how does it go on.

    Attributes:
        way: 'rounds' (toss the coin anew at each level), 'cohorts' (at the level that you drew) or 'one_round'.
        level, levels: which level this is, from 1.
        step: how many symbols each level adds.
        coin: the probability with which a client that is asked answers.
        strings: which strings there are; a client with another one is silent.
        prefixes: those that reached the threshold at the level before, sorted; at first the empty one.
    """

    way: Way
    level: int
    levels: int
    step: int
    coin: float
    strings: Strings
    prefixes: tuple[Symbols, ...]

    @property
    def before(self) -> int:
        """How many symbols the prefixes have."""
        return (self.level - 1) * self.step

    @property
    def depth(self) -> int:
        """How many symbols are asked for."""
        return min(self.level * self.step, self.strings.max_length)

    @cached_property
    def _known(self) -> frozenset[Symbols]:
        return frozenset(self.prefixes)

    def asks_for(self, report: object) -> bool:
        """Return whether an answer fits this question; anything at all may be asked about."""
        if (
            not isinstance(report, tuple | list)
            or len(report) not in (2, 3)
            or not isinstance(report[1], bool | np.bool_)
        ):
            return False
        prefix, ended, nonce = (*report, "")[:3]
        if not is_nonce(nonce):
            return False
        if not self.strings.fits(prefix):
            return False
        if ended:
            long = self.strings.min_length <= len(prefix) <= self.depth and (len(prefix) > self.before or not prefix)
        else:
            long = len(prefix) == self.depth < self.strings.max_length
        return long and prefix[: self.before] in self._known

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; prefixes of bytes are in hexadecimal."""
        return {
            "way": self.way, "level": self.level, "levels": self.levels, "step": self.step, "coin": self.coin,
            "strings": self.strings.to_json(), "prefixes": [self.strings.write(prefix) for prefix in self.prefixes],
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Question":
        """Rebuild what `to_json` returned; anything else is refused."""
        hint = "Pass what Question.to_json returned."
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise InvalidValue(f"data is not a question. {hint}")
        strings, written = Strings.from_json(data["strings"]), data["prefixes"]
        levels = validate.whole("levels", data["levels"], low=1, high=MOST_LEVELS, hint=hint)
        level = validate.whole("level", data["level"], low=1, high=levels, hint=hint)
        step = validate.whole("step", data["step"], low=1, high=strings.max_length, hint=hint)
        if not isinstance(written, list) or not all(isinstance(prefix, str) for prefix in written):
            raise InvalidType(f"prefixes must be a list of text. {hint}")
        prefixes = tuple(strings.read(prefix) for prefix in written)
        if not all(map(strings.fits, prefixes)):
            raise InvalidValue(f"prefixes holds one that no counted string begins with. {hint}")
        return cls(checked_way(data["way"]), level, levels, step, checked_rate(data["coin"]), strings, prefixes)


def client_levels(count: int, levels: int, *, source: Source | None = None) -> NDArray[np.int64]:
    """Return, for so many clients, the level that each answers at: 1 to `levels`, exactly equally likely.

    With way='cohorts' every client draws its own, once, and keeps it: the guarantee rests on that.

    >>> client_levels(3, 1).tolist()
    [1, 1, 1]
    """
    levels = validate.whole("levels", levels, low=1, high=MOST_LEVELS, hint="Pass the levels of the question.")
    source = resolve(source)
    drawn = source.words(validate.whole("count", count, hint="Pass how many clients draw a level."))
    past = np.uint64((1 << 64) // levels * levels - 1)  # equally many words for each level lie up to here
    while len(again := np.flatnonzero(drawn > past)):
        drawn[again] = source.words(len(again))
    return (drawn % np.uint64(levels)).astype(np.int64) + 1


def client_answer(
    question: Question, string: object, *, level: int | None = None, source: Source | None = None
) -> PrefixReport | None:
    """Return what a client with this string sends, or None where it stays silent.

    It is silent if its coin falls so, if its string does not extend an asked prefix, or is not of the kind that is
    counted (too long, a symbol outside of the alphabet, another type): such clients are never counted.

    Call it once for each question, keep the answer, silence included, and send the same one again where delivery
    failed: a second call tosses a second coin, and the guarantee is for one.

    Args:
        question: what the server asks.
        string: the client's own.
        level: with way='cohorts', the level that the client drew, once, with `client_levels(1, question.levels)[0]`.
        source: randomness for tests.
    """
    if not isinstance(question, Question):
        raise InvalidType(f"question must be a Question, not {type(question).__name__}. Use Question.from_json.")
    if not is_asked(question, level):
        return None
    source = resolve(source)
    if not coins(1, question.coin, source=source)[0] or not question.strings.accepts(string):
        return None
    prefix, ended = string[: question.depth], len(string) <= question.depth  # type: ignore[index, arg-type]
    report = PrefixReport(prefix, ended, new_nonce(source))
    return report if question.asks_for(report) else None
