"""The work of a device: read a question, charge its budget, toss its coin, and answer or stay silent.

It imports the standard library only.

>>> import tempfile
>>> from dpsieve.federated.client import Budget, ValueQuestion, padded_message, value_answer
>>> folder = tempfile.TemporaryDirectory()
>>> budget = Budget(f"{folder.name}/budget", epsilon=4.0, delta=1e-6, exposure=0.5)  # one for all of a device
>>> terms = {"collection": "drinks", "epsilon": 1.0, "delta": 1e-8, "threshold": 19, "neighbours": "add_remove"}
>>> asked = {"coin": 0.24, "kind": "text", "values": None, "longest": 256, "terms": terms}
>>> question = ValueQuestion.from_json(asked)
>>> report = value_answer(question, "tea", budget=budget)  # None is silence
>>> message = padded_message(question, report)  # of one length, silence and refusal too
>>> folder.cleanup()
"""

from dpsieve.federated.client.answers import (  # isort: skip
    PrefixReport, Report, client_answer, client_level, padded_message, value_answer,
)  # fmt: skip
from dpsieve.federated.client.budget import Budget, FileStorage, Spent, Storage
from dpsieve.federated.client.questions import Question, Terms, ValueQuestion
from dpsieve.federated.client.strings import Grid, Strings

__all__ = [
    "Budget", "FileStorage", "Grid", "PrefixReport", "Question", "Report", "Spent", "Storage", "Strings", "Terms",
    "ValueQuestion", "client_answer", "client_level", "padded_message", "value_answer",
]  # fmt: skip
