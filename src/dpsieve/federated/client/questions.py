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
from typing import Any, ClassVar, Literal, get_args

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.client.coins import is_nonce
from dpsieve.federated.client.strings import MOST_LEVELS, Message, Strings, Symbols, check_sendable

Kind = Literal["text", "integers"]
Protocol = Literal["rounds", "cohorts", "one_round"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

LONGEST = 256
_ESCAPED = 6  # bytes of a symbol in JSON, at most, as in "\u0000"
SMALLEST_COIN, LARGEST_COIN = 1e-9, 1 - 1e-9
_LONGEST_NAME = 200
_MOST_REPORTS = 10**9
_MOST_TERMS = 100_000  # of a sum; fewer terms only lower it


@dataclass(frozen=True)
class Terms(Message):
    """The statement of a server about its collection, for the budgets of devices.

    Attributes:
        collection: its name, the same in all of its questions and in no question of another collection.
        epsilon, delta, neighbours: the promise of the collection.
        threshold: the number of reports that a count needs to be released.
    """

    collection: str
    epsilon: float
    delta: float
    threshold: int
    neighbours: validate.Neighbours = "add_remove"

    def __post_init__(self) -> None:
        hint = "Pass a name such as collection='drinks, May 2027', or leave it out for a random one."
        name = validate.text("collection", self.collection, hint=hint)
        if len(name) > _LONGEST_NAME:
            raise InvalidValue(f"collection has more than {_LONGEST_NAME} characters. {hint}")
        check_sendable("collection", name)
        hint = "Pass the threshold of the plan."
        validate.store(
            self,
            epsilon=validate.epsilon(self.epsilon),
            delta=validate.delta(self.delta),
            threshold=validate.whole("threshold", self.threshold, low=1, high=_MOST_REPORTS, hint=hint),
            neighbours=validate.neighbours(self.neighbours),
        )

    @classmethod
    def from_json(cls, data: Any) -> "Terms":
        """Rebuild what `to_json` returned; anything else is refused."""
        return cls(**cls._read_fields(data))


@dataclass(frozen=True)
class ValueQuestion(Message):
    """The question of a histogram: which value a client has. See `dpsieve.federated.Histogram.question`.

    Attributes:
        coin: the probability with which a client answers.
        kind: 'text' or 'integers'.
        values: the public list of values that count, or None when any value of the kind does.
        longest: texts of more bytes in UTF-8 do not count.
        terms: what the collection promises.
    """

    coin: float
    kind: Kind = "text"
    values: tuple[str | int, ...] | None = None
    longest: int = LONGEST
    terms: Terms | None = None

    fields: ClassVar[tuple[str, ...]] = ("value",)
    protocol: ClassVar[Protocol] = "one_round"
    level: ClassVar[int] = 1
    levels: ClassVar[int] = 1

    def __post_init__(self) -> None:
        hint = "Pass a question of Histogram.question."
        validate.store(self, coin=_coin(self.coin, hint))
        check_kind(self.kind)
        check_longest(self.longest)

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
            raise InvalidType("value must be a whole number, as this histogram counts integers.")
        if self.kind == "text" and not isinstance(value, str):
            raise InvalidType("value must be text, as this histogram counts text. Pass kind='integers' for numbers.")
        sendable = value if isinstance(value, str) else int(value)  # type: ignore[call-overload]
        check_sendable("value", sendable)
        if self.values is not None:
            return sendable in self._known
        return not isinstance(sendable, str) or len(sendable.encode()) <= self.longest

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ValueQuestion":
        """Rebuild what `to_json` returned; anything else is refused."""
        fields = cls._read_fields(data)
        fields["terms"] = _terms(fields)
        listed, anything = fields["values"], cls(**fields | {"values": None})
        if listed is not None:
            if not isinstance(listed, list) or not listed or not all(map(anything.counts, listed)):
                raise InvalidValue("values of a question must be a list of values that count, or null.")
            fields["values"] = tuple(listed)
        return cls(**fields)


@dataclass(frozen=True)
class Question(Message):
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

    protocol: Protocol
    level: int
    levels: int
    step: int
    coin: float
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
    def from_json(cls, data: dict[str, Any]) -> "Question":
        """Rebuild what `to_json` returned; anything else is refused."""
        hint, fields = "Pass what Question.to_json returned.", cls._read_fields(data)
        strings, listed = Strings.from_json(fields["strings"]), fields["prefixes"]
        levels = validate.whole("levels", fields["levels"], low=1, high=MOST_LEVELS, hint=hint)
        level = validate.whole("level", fields["level"], low=1, high=levels, hint=hint)
        protocol, coin = check_protocol(fields["protocol"]), _coin(fields["coin"], hint)
        step = validate.whole("step", fields["step"], low=1, high=strings.max_length, hint=hint)
        if not isinstance(listed, list) or not all(isinstance(prefix, str) for prefix in listed):
            raise InvalidType(f"prefixes must be a list of text. {hint}")
        prefixes = tuple(strings.read(prefix) for prefix in listed)
        if not all(map(strings.fits, prefixes)):
            raise InvalidValue(f"prefixes holds one that no counted string begins with. {hint}")
        return cls(protocol, level, levels, step, coin, strings, prefixes, _terms(fields))


AnyQuestion = ValueQuestion | Question


def check_question(question: object, *kinds: type) -> None:
    """Raise unless this is a question of one of these kinds."""
    if not isinstance(question, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidType(f"question must be a {names}, not {type(question).__name__}. Use its from_json.")


def terms_of(question: AnyQuestion) -> Terms:
    """Return the terms of a question, or raise where it states none."""
    if question.terms is None:
        raise InvalidValue("question states no terms, so no budget can be charged. Ask a server that states them.")
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


def check_kind(kind: object) -> Kind:
    """Return 'text' or 'integers'."""
    for known in KINDS:
        if kind == known:
            return known
    raise InvalidValue("kind is not known. Choose 'text' or 'integers'.")


def check_protocol(protocol: object) -> Protocol:
    """Return one of the three protocols."""
    for known in PROTOCOLS:
        if protocol == known:
            return known
    raise InvalidValue("protocol is not known. Choose 'rounds', 'cohorts' or 'one_round'.")


def check_longest(longest: object) -> int:
    """Return the largest number of bytes of a text that counts."""
    hint = "Pass the most bytes that a text may have, such as longest=256."
    return validate.whole("longest", longest, low=1, high=1 << 20, hint=hint)


def _terms(fields: dict[str, Any]) -> Terms | None:
    return None if fields["terms"] is None else Terms.from_json(fields["terms"])


def _coin(coin: object, hint: str) -> float:
    """Return the probability with which a client answers, above 0 and below 1."""
    return validate.between("coin", coin, SMALLEST_COIN, LARGEST_COIN, hint=hint)
