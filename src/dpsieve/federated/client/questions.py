"""The questions of servers: for a value, or for the next symbols of a string. Questions are public.

Each is JSON by `to_json`; a device rebuilds it with `from_json`, which refuses anything else. The length of a padded
message depends on the question alone (`widest` and `fields`; see `padded_message`).

A question carries the `Terms` of its collection, which a device's `Budget` charges. Terms are null only in simulations.
"""

import json
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.client.coins import is_nonce
from dpsieve.federated.client.strings import MOST_LEVELS, Message, Strings, Symbols, check_sendable
from dpsieve.validate import Checked, is_between, is_choice, is_whole

Kind = Literal["text", "integers"]
Protocol = Literal["rounds", "cohorts", "one_round"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

LONGEST = 256
check_longest = is_whole(1, 1 << 20, "Pass the most bytes that a text may have, such as longest=256.")
_ESCAPED = 6  # bytes of a symbol in JSON, at most, as in "\u0000"
SMALLEST_COIN, LARGEST_COIN = 1e-9, 1 - 1e-9
_LONGEST_NAME = 200
_MOST_REPORTS = 10**9
_MOST_TERMS = 100_000  # of a sum; fewer terms only lower it
_HINT = "Pass what Question.to_json returned."


def _check_name(name: Any, argument: str) -> str:
    hint = "Pass a name such as collection='drinks, May 2027', or leave it out for a random one."
    checked = validate.text(argument, name, hint=hint)
    if len(checked) > _LONGEST_NAME:
        raise InvalidValue(f"{argument} has more than {_LONGEST_NAME} characters. {hint}", argument=argument)
    check_sendable(argument, checked)
    return checked


Coin = Annotated[float, is_between(SMALLEST_COIN, LARGEST_COIN, "Pass a question as its server made it.")]


@dataclass(frozen=True)
class Terms(Checked, Message):
    """The statement of a server about its collection, for the budgets of devices.

    Attributes:
        collection: its name, the same in all of its questions and in no question of another collection.
        epsilon, delta, neighbours: the promise of the collection.
        threshold: the number of reports that a count needs to be released.
    """

    collection: Annotated[str, _check_name]
    epsilon: validate.Epsilon
    delta: validate.Delta
    threshold: Annotated[int, is_whole(1, _MOST_REPORTS, "Pass the threshold of the plan.")]
    neighbours: validate.Relation = "add_remove"


@dataclass(frozen=True)
class ValueQuestion(Checked, Message):
    """The question of a histogram: which value a client has. See `dpsieve.federated.Histogram.question`.

    Attributes:
        coin: the probability with which a client answers.
        kind: 'text' or 'integers'.
        values: the public list of values that count, or None when any value of the kind does.
        longest: texts of more bytes in UTF-8 do not count.
        terms: what the collection promises.
    """

    coin: Coin
    kind: Annotated[Kind, is_choice(*KINDS)] = "text"
    values: tuple[str | int, ...] | None = None
    longest: Annotated[int, check_longest] = LONGEST
    terms: Terms | None = None

    fields: ClassVar[tuple[str, ...]] = ("value",)
    protocol: ClassVar[Protocol] = "one_round"
    level: ClassVar[int] = 1
    levels: ClassVar[int] = 1

    @cached_property
    def _known(self) -> frozenset[str | int]:
        return frozenset(self.values or ())

    @cached_property
    def widest(self) -> int:
        """The largest number of bytes of the fields of a report in JSON."""
        if self.values is not None:
            return max(map(in_json, self.values))
        return _ESCAPED * self.longest + 2 if self.kind == "text" else len(str(-(2**63)))

    def counts(self, value: object) -> bool:
        """Return whether a value counts; raise for one of another kind, or that no report can carry."""
        if self.kind == "integers" and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
            raise InvalidType("value must be a whole number, as this histogram counts integers.", argument="value")
        if self.kind == "text" and not isinstance(value, str):
            raise InvalidType("value must be text, as this histogram counts text.", argument="value")
        sendable = value if isinstance(value, str) else int(value)  # type: ignore[call-overload]
        check_sendable("value", sendable)
        if self.values is not None:
            return sendable in self._known
        return not isinstance(sendable, str) or len(sendable.encode()) <= self.longest

    @classmethod
    def from_json(cls, data: Any) -> Self:
        fields = cls._read_fields(data)
        fields["terms"] = _terms(fields)
        listed, anything = fields["values"], cls(**fields | {"values": None})
        if listed is not None:
            if not isinstance(listed, list) or not listed or not all(map(anything.counts, listed)):
                raise InvalidValue("values must be a list of values that count, or null.", argument="values")
            fields["values"] = tuple(listed)
        return cls(**fields)


@dataclass(frozen=True)
class Question(Checked, Message):
    """The question of a trie at one level: which of these prefixes a string extends, and by which symbols.

    Attributes:
        protocol: 'rounds' (a new coin at each level), 'cohorts' (one coin, at the level that the client drew) or
            'one_round' (one question about full strings); see `dpsieve.federated.plans.levels` for the cost of each.
        level, levels: which level this is, from 1.
        step: the number of symbols per level.
        coin: the probability with which a client that is asked answers.
        strings: which strings there are; a client with another one is silent.
        prefixes: those that reached the threshold at the level before, sorted; at first the empty one.
        terms: what the collection promises.
    """

    protocol: Annotated[Protocol, is_choice(*PROTOCOLS)]
    level: Annotated[int, is_whole(1, MOST_LEVELS, _HINT)]
    levels: Annotated[int, is_whole(1, MOST_LEVELS, _HINT)]
    step: Annotated[int, is_whole(1, MOST_LEVELS, _HINT)]
    coin: Coin
    strings: Strings
    prefixes: tuple[Symbols, ...]
    terms: Terms | None = None

    fields: ClassVar[tuple[str, ...]] = ("prefix", "ended")

    @cached_property
    def widest(self) -> int:
        """The largest number of bytes of the fields of a report in JSON."""
        alphabet = self.strings.alphabet
        symbol = 2 if self.strings.of_bytes else _ESCAPED  # two hexadecimal digits
        if isinstance(alphabet, str):
            symbol = max(in_json(one) - 2 for one in alphabet)
        return symbol * self.depth + 2 + in_json(False)

    @property
    def before(self) -> int:
        """The number of symbols of the prefixes."""
        return (self.level - 1) * self.step

    @property
    def depth(self) -> int:
        """The number of symbols of an answer, unless its string ends earlier."""
        return min(self.level * self.step, self.strings.max_length)

    @cached_property
    def _known(self) -> frozenset[Symbols]:
        return frozenset(self.prefixes)

    def asks_for(self, report: object) -> bool:
        """Return whether a report (prefix, ended, nonce) answers this question; any object may be passed."""
        if not isinstance(report, tuple | list) or len(report) not in (2, 3) or not isinstance(report[1], bool):
            return False
        prefix, ended, nonce = (*report, "")[:3]
        if not is_nonce(nonce) or not self.strings.fits(prefix):
            return False
        if ended:
            long = self.strings.min_length <= len(prefix) <= self.depth and (len(prefix) > self.before or not prefix)
        else:
            long = len(prefix) == self.depth < self.strings.max_length
        return long and prefix[: self.before] in self._known

    @classmethod
    def from_json(cls, data: Any) -> Self:
        fields = cls._read_fields(data)
        strings, listed = Strings.from_json(fields["strings"]), fields["prefixes"]
        if not isinstance(listed, list) or not all(isinstance(prefix, str) for prefix in listed):
            raise InvalidType(f"prefixes must be a list of text. {_HINT}", argument="prefixes")
        prefixes = tuple(strings.read(prefix) for prefix in listed)
        if not all(map(strings.fits, prefixes)):
            raise InvalidValue(f"prefixes holds one that no counted string begins with. {_HINT}", argument="prefixes")
        question = cls(**{**fields, "strings": strings, "prefixes": prefixes, "terms": _terms(fields)})
        validate.whole("level", question.level, high=question.levels, hint=_HINT)
        validate.whole("step", question.step, high=strings.max_length, hint=_HINT)
        return question


AnyQuestion = ValueQuestion | Question


def check_question(question: object, *kinds: type) -> None:
    """Raise unless this is a question of one of these kinds."""
    if not isinstance(question, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidType(f"question must be a {names}, not {type(question).__name__}.", argument="question")


def terms_of(question: AnyQuestion) -> Terms:
    """Return the terms of a question, or raise where it states none."""
    if question.terms is None:
        raise InvalidValue("question states no terms, so no budget can be charged.", argument="question")
    return question.terms


def least_delta(question: AnyQuestion) -> float:
    """Return a delta that the collection of a question cannot be below, from one level of it.

    It is the exact delta of `noise.sample_threshold_delta.add_remove`, which has the formulas, in floats: that of the
    whole collection for a histogram and in one round; a lower bound for several rounds and for neighbours='replace'.
    With cohorts, levels are taken as secret. Sums end after 100,000 terms, which only lowers it.

    >>> least_delta(ValueQuestion(0.24, terms=Terms("drinks", 1.0, 1e-8, threshold=19))) <= 1e-8
    True
    >>> round(least_delta(ValueQuestion(0.5, terms=Terms("drinks", 1.0, 1e-8, threshold=2))), 6)
    0.25
    """
    terms, coin = terms_of(question), question.coin
    least = _one_level(terms, coin, coin)
    if question.protocol == "cohorts" and question.levels > 1:
        share = coin / question.levels
        least = min(least, _one_level(terms, share / (1 - coin + share), coin))
    return least


def _one_level(terms: Terms, p: float, own: float) -> float:
    """Return the larger of A and B for k - 1 clients with rate p, and one that comes or goes with the rate `own`."""
    t, z, least = terms.threshold, math.exp(terms.epsilon), 1 + math.expm1(-terms.epsilon) / own
    most = 1 + math.expm1(terms.epsilon) / own
    g = 1 - p + most * p
    q, complement = most * p / g, (1 - p) / g
    k = max(math.ceil((t - 1) / q), t)
    over = _sum(k, t, p, 1, lambda j: j - k * q if q < 0.5 else j - k + k * complement)  # without cancellation
    appearing, vanishing = own * g / (k * p * (1 - p)) * over, 0.0
    if least > 0:
        g = 1 - p + least * p
        q = least * p / g
        k = max(math.ceil((t - 1) / q), 1)
        vanishing = z * own * g / (k * p * (1 - p)) * _sum(k, t - 1, p, -1, lambda j: k * q - j)
    return max(appearing, vanishing)


def _sum(k: int, start: int, p: float, step: int, weight: Callable[[int], float]) -> float:
    """Return about the sum of P[X = j] weight(j) for j = start, start + step, ..., X ~ Binomial(k, p), never above it.

    The logarithm of the first mass is off by a few units in the last place of lgamma(k + 1): they are taken off.
    """
    ways = math.lgamma(k + 1) - math.lgamma(start + 1) - math.lgamma(k - start + 1)
    slack = 1e-9 + 2.0**-49 * (math.lgamma(k + 1) + 1)
    mass = math.exp(min(0.0, ways + start * math.log(p) + (k - start) * math.log1p(-p) - slack))
    total, j = 0.0, start
    for _ in range(_MOST_TERMS):
        added = mass * max(0.0, weight(j))
        total += added
        mass *= (k - j) * p / ((j + 1) * (1 - p)) if step > 0 else j * (1 - p) / ((k - j + 1) * p)
        j += step
        if mass == 0 or (mass * k < 1e-12 * total):
            break
    return total


def in_json(value: object) -> int:
    """Return the number of bytes of a value in a report."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def _terms(fields: dict[str, Any]) -> Terms | None:
    return None if fields["terms"] is None else Terms.from_json(fields["terms"])
