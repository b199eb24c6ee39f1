"""The answers of a client: it tosses its coin and sends a report, or stays silent.

The guarantee is for one coin per question. A `Budget` enforces that: it records a question before the coin is tossed,
and refuses it from then on. `budget=None` is for simulations: there a second call tosses a second coin. On the wire a
report is JSON in UTF-8, such as {"version":1,"value":"tea","nonce":"9f86d081884c7d659a2feaa0c55ad015"}. Its nonce is
fresh and random, and retries send it again, so a message that is delivered twice counts once. `padded_message` makes a
message of every answer, silence too: a dummy, whose fields are null. All messages that answer one question have one
length, which depends on the question alone: docs/background/federated.md#silent-clients.
"""

import json
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.client.budget import Budget
from dpsieve.federated.client.coins import RandomWords, coin, is_nonce, new_nonce, uniform
from dpsieve.federated.client.questions import AnyQuestion, Question, ValueQuestion, check_question, in_json
from dpsieve.federated.client.strings import MOST_LEVELS, Message, Strings, Symbols, check_sendable

VERSION = 1


class _Report(Message):
    """A report as it is sent: its fields, with a version."""

    head: ClassVar[dict[str, Any]] = {"version": VERSION}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a client, not to be published>"

    def to_bytes(self) -> bytes:
        """Return the message for the server."""
        return _encode(self.to_json())


@dataclass(frozen=True, repr=False)
class Report(_Report):
    """The value of one client that was sampled. It is secret until it has gone through a threshold with others.

    Attributes:
        value: text, or a whole number of 64 bits.
        nonce: 32 hexadecimal digits; '' for none.
    """

    value: str | int
    nonce: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.value, str | int) or isinstance(self.value, bool):
            raise InvalidType("value of a report must be text or a whole number. Pass one.", argument="value")
        check_sendable("value of a report", self.value)
        if not is_nonce(self.nonce):
            raise InvalidValue("nonce of a report must be 32 hexadecimal digits, or ''.", argument="nonce")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Report":
        """Rebuild a report from `to_bytes`; anything else is refused.

        >>> Report.from_bytes(Report("tea").to_bytes()).value
        'tea'
        """
        return cls.from_json(decode(data))


class _PrefixFields(NamedTuple):
    prefix: Symbols
    ended: bool
    nonce: str = ""


class PrefixReport(_Report, _PrefixFields):
    """A client's answer: the beginning of its string up to the level, and whether the string ends there."""

    @classmethod
    def from_json(cls, data: Any, strings: Strings) -> Self:  # type: ignore[override]
        """Rebuild a report; `strings` of the question states whether prefixes are text or bytes."""
        fields = cls._read_fields(data)
        return cls(**{**fields, "prefix": strings.read(fields["prefix"])})


def value_answer(
    question: ValueQuestion, value: str | int, *, budget: Budget | None, source: RandomWords | None = None
) -> Report | None:
    """Return the report of a client with this value to a histogram, or None for silence.

    A value that does not count (not in the public list, or too long) is never sent. One of another kind raises, after
    the budget is charged: what is charged never depends on a value.

    >>> value_answer(ValueQuestion(coin=0.5, values=("tea", "milk")), "gin", budget=None) is None
    True
    """
    check_question(question, ValueQuestion)
    admitted = _admits(budget, question, None, source)
    counts = question.counts(value)
    if not admitted or not coin(question.coin, source) or not counts:
        return None
    return Report(value if isinstance(value, str) else int(value), new_nonce(source))


def client_answer(
    question: Question,
    string: object,
    *,
    budget: Budget | None,
    level: int | None = None,
    source: RandomWords | None = None,
) -> PrefixReport | None:
    """Return the report of a client with this string, or None for silence.

    None if the budget refuses the question or the coin toss fails; always None if the string does not extend one of
    the question's prefixes, or is not of the kind that is counted (too long, a symbol outside of the alphabet, another
    type).

    Args:
        question: the question of the server.
        string: the client's own, the same at all levels of a collection.
        budget: the budget of this device; None for simulations.
        level: in simulations with protocol='cohorts', the level that the client drew, once, with
            `client_level(question.levels)`. A budget draws and keeps it itself.
        source: randomness for tests.
    """
    check_question(question, Question)
    if not _admits(budget, question, level, source):
        return None
    if not coin(question.coin, source) or not question.strings.accepts(string):
        return None
    prefix, ended = string[: question.depth], len(string) <= question.depth  # type: ignore[index, arg-type]
    report = PrefixReport(prefix, ended, new_nonce(source))
    return report if question.asks_for(report) else None


def padded_message(
    question: AnyQuestion, answer: Report | PrefixReport | None, *, source: RandomWords | None = None
) -> bytes:
    """Return a message of constant length that hides the coin from traffic: the report or, for silence, a dummy.

    All messages for one question have the same length. Send one for each question that the client receives, at a time
    that does not depend on the answer, also if it has no value or another level. Retries send the same message.

    >>> question = ValueQuestion(coin=0.5, values=("tea", "milk"))
    >>> {len(padded_message(question, answer)) for answer in (Report("tea"), Report("milk"), None)}
    {71}
    """
    check_question(question, *_ANSWERS)
    kind, silent = _ANSWERS[type(question)], dict.fromkeys(question.fields)
    if answer is None:
        message = _encode({"version": VERSION, **silent, "nonce": new_nonce(source)})
    elif isinstance(answer, kind):
        message = answer.to_bytes()
    else:
        raise InvalidType(f"answer must be the {kind.__name__} to this question, or None.", argument="answer")
    nulls = sum(map(in_json, silent.values()))
    length = len(_encode({"version": VERSION, **silent, "nonce": "0" * 32})) + max(question.widest - nulls, 0)
    if len(message) > length:
        raise InvalidValue("answer is not one to this question: it is longer than any.", argument="answer")
    return message.ljust(length)


def is_dummy(message: object) -> bool:
    """Return whether a decoded message is that of a silent client: all fields are null, beside a version and a nonce.

    >>> is_dummy(decode(padded_message(ValueQuestion(0.5), None))), is_dummy({"value": None})
    (True, False)
    """
    if not isinstance(message, dict) or message.get("version") is not VERSION or not is_nonce(message.get("nonce")):
        return False
    return len(message) > 2 and all(message[name] is None for name in message.keys() - {"version", "nonce"})


def client_level(levels: int, *, source: RandomWords | None = None) -> int:
    """Return the level at which a client answers: 1 to `levels`, exactly equally likely.

    With protocol='cohorts' every client draws one level and keeps it: the guarantee depends on that.

    >>> client_level(1)
    1
    """
    hint = "Pass the levels of the question."
    return uniform(validate.whole("levels", levels, low=1, high=MOST_LEVELS, hint=hint), source) + 1


_ANSWERS: dict[type, type[_Report]] = {ValueQuestion: Report, Question: PrefixReport}


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: object) -> Any:
    """Return the JSON value of these bytes, or None where they are not JSON; other types are refused."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidType(f"data must be bytes of a report, not {type(data).__name__}.", argument="data")
    try:
        return json.loads(bytes(data).decode())
    except (ValueError, RecursionError):
        return None


def _admits(budget: object, question: AnyQuestion, level: int | None, source: RandomWords | None) -> bool:
    """Return whether the budget admits a question or, without one, whether its level is the one that was drawn."""
    if isinstance(budget, Budget):
        if level is not None:
            raise InvalidValue("level is drawn and kept by the budget. Leave it out.", argument="level")
        return budget.charge(question, source=source)
    if budget is not None:
        raise InvalidType(
            f"budget must be a Budget, or None to simulate, not {type(budget).__name__}.", argument="budget"
        )
    if question.protocol != "cohorts":
        return True
    hint = "With cohorts a client draws its level once, by client_level(question.levels), and keeps it."
    return validate.whole("level", level, low=1, high=question.levels, hint=hint) == question.level
