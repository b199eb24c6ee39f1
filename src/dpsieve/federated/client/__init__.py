"""What a device does: read a question, toss its coin, and answer or stay silent. It needs the standard library alone.

>>> from dpsieve.federated.client import ValueQuestion, padded_message, value_answer
>>> question = ValueQuestion.from_json({"coin": 0.24, "kind": "text", "values": None, "longest": 256})
>>> report = value_answer(question, "tea")  # once; to be kept, also where it is None, which is silence
>>> message = padded_message(question, report)  # of one length, silence too
"""

from dpsieve.federated.client.answers import (  # isort: skip
    PrefixReport, Report, SplitReport, client_answer, client_level, padded_message, split_answer, value_answer,
)  # fmt: skip
from dpsieve.federated.client.questions import Question, SplitQuestion, ValueQuestion
from dpsieve.federated.client.strings import Grid, Strings

__all__ = [
    "Grid", "PrefixReport", "Question", "Report", "SplitQuestion", "SplitReport", "Strings", "ValueQuestion",
    "client_answer", "client_level", "padded_message", "split_answer", "value_answer",
]  # fmt: skip
