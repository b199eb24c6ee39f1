"""What a client answers: it tosses its coin and sends a report, or stays silent.

The guarantee is for one coin for each question. A `Budget` sees to that: it records a question before the coin is
tossed, and refuses it from then on. A refused question is answered like one whose coin says 'silent'. Keep the message
until it is acknowledged, and send the same one again where delivery failed. `budget=None` is for simulations: there a
second call tosses a second coin.

On the wire a report is JSON in UTF-8, such as {"version":1,"value":"tea","nonce":"9f86d081884c7d659a2feaa0c55ad015"}.
Its nonce is drawn anew for each report and sent again with each retry, so that a message that comes twice counts once.

Who sees that a client sent something knows that its value is in the sample, and the sample is all that protects it. So
`padded_message` makes a message of every answer, of silence too: a dummy, whose fields are null. All messages that
answer one question have the same length, which follows from the question alone: the longest report, and spaces after
the others. JSON ignores the spaces, and servers drop dummies. What is released does not change: the message is made
from the answer alone, and the server reads the same answers. An observer of encrypted messages sees their number and
one length, whatever coins and values are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.client.budget import Budget
from dpsieve.federated.client.coins import RandomWords, coin, is_nonce, new_nonce, uniform
from dpsieve.federated.client.questions import AnyQuestion, Question, SplitQuestion, ValueQuestion, in_json
from dpsieve.federated.client.strings import MOST_LEVELS, Strings, Symbols, check_sendable, is_number, written

VERSION = 1
_HINT = "Pass what to_json or to_bytes of a report returned."


class Sent:
    """A report as it is sent: its fields, with a version."""

    __match_args__: Any  # the names of the fields

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a client, not to be published>"

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON values; bytes are in hexadecimal."""
        return {"version": VERSION} | {name: written(getattr(self, name)) for name in self.__match_args__}

    def to_bytes(self) -> bytes:
        """Return the report as it is sent."""
        return _encoded(self.to_json())


@dataclass(frozen=True, repr=False)
class Report(Sent):
    """The value of one client that was sampled. It is secret until it has gone through a threshold with others.

    Attributes:
        value: text, or a whole number of 64 bits.
        nonce: 32 hexadecimal digits; '' for none.
    """

    value: str | int
    nonce: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.value, str | int) or isinstance(self.value, bool):
            raise InvalidType("value of a report must be text or a whole number. Pass a str or an int.")
        check_sendable("value of a report", self.value)
        if not is_nonce(self.nonce):
            raise InvalidValue("nonce of a report must be 32 hexadecimal digits, or ''. Let the client draw one.")

    @classmethod
    def from_json(cls, data: Any) -> "Report":
        """Make a report from `to_json`; anything else is refused, and the message does not quote it."""
        return cls(*_fields(data, "value", "nonce"))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Report":
        """Make a report from `to_bytes`; anything else is refused.

        >>> Report.from_bytes(Report("tea").to_bytes()).value
        'tea'
        """
        return cls.from_json(decoded(data))


class _PrefixFields(NamedTuple):
    prefix: Symbols
    ended: bool
    nonce: str = ""


class PrefixReport(Sent, _PrefixFields):
    """A client's answer: the beginning of its string up to the level, and whether the string ends there."""

    @classmethod
    def from_json(cls, data: Any, strings: Strings) -> "PrefixReport":
        """Make a report from `to_json`; `strings` of the question tells whether prefixes are text or bytes."""
        prefix, ended, nonce = _fields(data, "prefix", "ended", "nonce")
        return cls(strings.read(prefix), ended, nonce)


class _SplitFields(NamedTuple):
    below: bool
    nonce: str = ""


class SplitReport(Sent, _SplitFields):
    """A client's answer: whether its value is below the split."""

    @classmethod
    def from_json(cls, data: Any) -> "SplitReport":
        """Make a report from `to_json`; data with other fields is refused."""
        return cls(*_fields(data, "below", "nonce"))


def value_answer(
    question: ValueQuestion, value: str | int, *, budget: Budget | None, source: RandomWords | None = None
) -> Report | None:
    """Return what a client with this value sends to a histogram, or None where it stays silent.

    A value that does not count (not in the public list, or too long) is never sent. One of another kind raises, after
    the budget is charged: what is charged never depends on a value.

    >>> value_answer(ValueQuestion(coin=0.5, values=("tea", "milk")), "gin", budget=None) is None
    True
    """
    _check_question(question, ValueQuestion)
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
    """Return what a client with this string sends, or None where it stays silent.

    It is silent if its budget refuses the question or its coin falls so. A client whose string does not extend one of
    the question's prefixes, or is not of the kind that is counted (too long, a symbol outside of the alphabet, another
    type), is always silent.

    Args:
        question: what the server asks.
        string: the client's own, the same at all levels of a collection.
        budget: what this device may answer; None for simulations.
        level: in simulations with protocol='cohorts', the level that the client drew, once, with
            `client_level(question.levels)`. A budget draws and keeps it itself.
        source: randomness for tests.
    """
    _check_question(question, Question)
    if not _admits(budget, question, level, source):
        return None
    if not coin(question.coin, source) or not question.strings.accepts(string):
        return None
    prefix, ended = string[: question.depth], len(string) <= question.depth  # type: ignore[index, arg-type]
    report = PrefixReport(prefix, ended, new_nonce(source))
    return report if question.asks_for(report) else None


def split_answer(
    question: SplitQuestion,
    value: object,
    *,
    budget: Budget | None,
    level: int | None = None,
    source: RandomWords | None = None,
) -> SplitReport | None:
    """Return whether a client's value is below the split, or None where it stays silent.

    `budget` and `level` are those of `client_answer`. A client without a number stays silent; values outside of the
    interval are on one side of every split.
    """
    _check_question(question, SplitQuestion)
    if not _admits(budget, question, level, source):
        return None
    if not is_number(value) or value != value or not coin(question.coin, source):
        return None
    return SplitReport(bool(value < question.split), new_nonce(source))  # type: ignore[operator]


def padded_message(
    question: ValueQuestion | Question | SplitQuestion,
    answer: Report | PrefixReport | SplitReport | None,
    *,
    source: RandomWords | None = None,
) -> bytes:
    """Return what a client sends so that traffic does not show its coin: its report or, for silence, a dummy.

    All messages for one question have the same length. Send one for each question that is put to the client, at a time
    that does not depend on the answer, also if it has no value or another level; keep it, and send it again in retries.

    >>> question = ValueQuestion(coin=0.5, values=("tea", "milk"))
    >>> {len(padded_message(question, answer)) for answer in (Report("tea"), Report("milk"), None)}
    {71}
    """
    kind = _ANSWERS.get(type(question))
    if kind is None:
        raise InvalidType(f"question must be one that a server asks, not {type(question).__name__}. Use from_json.")
    silent = dict.fromkeys(question.fields)
    if answer is None:
        message = _encoded({"version": VERSION, **silent, "nonce": new_nonce(source)})
    elif isinstance(answer, kind):
        message = answer.to_bytes()
    else:
        raise InvalidType(f"answer must be a {kind.__name__} or None. Pass the answer to this question.")
    nulls = sum(map(in_json, silent.values()))
    length = len(_encoded({"version": VERSION, **silent, "nonce": "0" * 32})) + max(question.widest - nulls, 0)
    if len(message) > length:
        raise InvalidValue("answer is longer than any to this question. Pass the answer to this question.")
    return message.ljust(length)


def is_dummy(message: object) -> bool:
    """Return whether a decoded message is that of a silent client: all fields are null, beside a version and a nonce.

    >>> is_dummy(decoded(padded_message(ValueQuestion(0.5), None))), is_dummy({"value": None})
    (True, False)
    """
    if not isinstance(message, dict) or message.get("version") is not VERSION or not is_nonce(message.get("nonce")):
        return False
    return len(message) > 2 and all(message[name] is None for name in message.keys() - {"version", "nonce"})


def client_level(levels: int, *, source: RandomWords | None = None) -> int:
    """Return the level at which a client answers: 1 to `levels`, exactly equally likely.

    With protocol='cohorts' every client draws its own, once, and keeps it: the guarantee rests on that.

    >>> client_level(1)
    1
    """
    hint = "Pass the levels of the question."
    return uniform(validate.whole("levels", levels, low=1, high=MOST_LEVELS, hint=hint), source) + 1


_ANSWERS: dict[type, type[Sent]] = {ValueQuestion: Report, Question: PrefixReport, SplitQuestion: SplitReport}


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def decoded(data: object) -> Any:
    """Return the JSON value that these bytes hold, or None where they hold none; other types are refused."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidType(f"data must be bytes, not {type(data).__name__}. {_HINT}")
    try:
        return json.loads(bytes(data).decode())
    except (ValueError, RecursionError):
        return None


def _fields(data: object, *names: str) -> list[Any]:
    if not isinstance(data, Mapping) or set(data) != {"version", *names} or data["version"] is not VERSION:
        raise InvalidValue(f"data is no report of version {VERSION}. {_HINT}")
    return [data[name] for name in names]


def _check_question(question: object, kind: type) -> None:
    if not isinstance(question, kind):
        name = kind.__name__
        raise InvalidType(f"question must be a {name}, not {type(question).__name__}. Use {name}.from_json.")


def _admits(budget: object, question: AnyQuestion, level: int | None, source: RandomWords | None) -> bool:
    """Return whether to toss a coin for a question: as the budget says or, without one, at the level that was drawn."""
    if isinstance(budget, Budget):
        if level is not None:
            raise InvalidValue("level is drawn and kept by the budget. Leave it out, or pass budget=None to simulate.")
        return budget.charge(question, source=source)
    if budget is not None:
        raise InvalidType(f"budget must be a Budget, or None to simulate, not {type(budget).__name__}. Pass a Budget.")
    if question.protocol != "cohorts":
        return True
    hint = "With cohorts a client draws its level once, by client_level(question.levels), and keeps it."
    return validate.whole("level", level, low=1, high=question.levels, hint=hint) == question.level
