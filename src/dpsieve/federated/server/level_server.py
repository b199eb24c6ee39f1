"""What servers that ask by levels have in common: a plan, its promise, an order of calls, and nonces."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from dpsieve.errors import DpsieveError, InvalidType, InvalidValue
from dpsieve.federated.client.answers import decoded, is_dummy
from dpsieve.federated.client.coins import new_nonce
from dpsieve.federated.client.questions import Question, SplitQuestion, Terms
from dpsieve.federated.plans.level_plans import LevelPlan
from dpsieve.privacy import Guarantee
from dpsieve.privacy.ledger import AnyLedger, charge, report_charge
from dpsieve.randomness.source import resolve
from dpsieve.types import Ints

_Q = TypeVar("_Q", Question, SplitQuestion)


class LevelServer(ABC, Generic[_Q]):
    """A server that puts one question after another, under one guarantee.

    Attributes:
        plan: rates, threshold and guarantee.
        terms: what devices are told about the collection: its name, threshold and guarantee.
        ignored: how many reports were malformed, repeated, or did not answer the question. It is not private: never
            publish it.
        entry: the number of the ledger entry that was charged; None before, or without a ledger.
    """

    def __init__(self, plan: LevelPlan, collection: str | None) -> None:
        self.plan, self.ignored = plan, 0
        name = new_nonce() if collection is None else collection
        self.terms = Terms(name, plan.epsilon, plan.delta_, plan.threshold, plan.neighbours)
        self.entry: int | None = None
        self._state, self._source = "new", resolve(None)
        self._open: _Q | None = None
        self._nonces: set[str] = set()

    @property
    def guarantee(self) -> Guarantee:
        """What all questions and the answer promise together."""
        return self.plan.guarantee

    def questions(self, *, ledger: AnyLedger = None, note: str = "") -> Iterator[_Q]:
        """Yield the question of each level; `take` the answers to one before the next. There is no second time.

        It ends early when nothing reaches the threshold. The budget is spent with the first question, whatever comes
        after.

        Args:
            ledger: the budget to charge; the spend is durable before the first question.
            note: what this is for, kept in the ledger.
        """
        if self._state != "new":
            again = f"Make a new {type(self).__name__}, with a budget of its own."
            raise InvalidValue(f"the questions were asked already. {again}")
        self.plan.certify()
        one = np.ones(1, np.int64)
        with charge(ledger, self.plan, note, lambda: self.plan.draw(one, source=resolve(None))) as self.entry:
            self._state = "asking"
            for level in range(1, self.plan.levels + 1):
                self._open, self._nonces = self._ask(level), set()
                yield self._open
                if not self._close(self._open):
                    break
            self._open, self._state = None, "done"

    @contextmanager
    def _charged(self) -> Iterator[None]:
        """Let errors of whoever goes through the questions report the charge, once there is one."""
        try:
            yield
        except BaseException:
            with report_charge(self.entry):
                raise

    @abstractmethod
    def _ask(self, level: int) -> _Q:
        """Return the question of a level, and forget the reports of the one before."""

    @abstractmethod
    def _close(self, question: _Q) -> bool:
        """Keep what reached the threshold; return whether there is more to ask."""

    @abstractmethod
    def _report(self, message: dict[str, Any]) -> Any:
        """Return the report of a JSON message, or raise."""

    @abstractmethod
    def _fits(self, report: Any) -> bool:
        """Return whether a report answers the open question; any object may be passed."""

    def _asked(self) -> _Q:
        if self._open is None:
            raise InvalidValue("no question is open. Take reports inside the loop over `questions()`.")
        return self._open

    def _check_done(self) -> None:
        if self._state != "done":
            raise InvalidValue("there are questions left to ask. Go through all of `questions()` first.")

    def _answers(self, reports: Iterable[Any]) -> list[Any]:
        """Return the reports that answer the open question, each nonce once; count the others as ignored."""
        self._asked()
        try:
            received = [self._received(report) for report in reports if report is not None]
        except TypeError:
            raise InvalidType("reports must be a list of reports. Pass what clients answered.") from None
        every = [report for report in received if report is not None]
        answers = [report for report in every if self._fits(report) and self._is_new(report[-1])]
        self.ignored += len(every) - len(answers)
        return answers

    def _received(self, report: Any) -> Any:
        """Return a message, as JSON or as bytes, as the report that it holds; None for a dummy, all else as it is."""
        if isinstance(report, bytes | bytearray | memoryview):
            report = decoded(report) or ()
        if not isinstance(report, dict):
            return report
        if None in report.values() and is_dummy(report):
            return None
        try:
            return self._report(report)
        except DpsieveError:
            return ()

    def _reported(self, counts: Ints) -> Ints:
        """Return the sampled counts that reach the threshold of the channel, and 0 for the others."""
        found, some = np.zeros(len(counts), np.int64), np.flatnonzero(counts)
        found[some] = self.plan.draw(counts[some], already_sampled=True, source=self._source)
        return found

    def _is_new(self, nonce: object) -> bool:
        """Return whether a nonce did not come before at this level, and remember it; a report may have none."""
        if not isinstance(nonce, str) or not nonce:
            return True
        seen = nonce in self._nonces
        self._nonces.add(nonce)
        return not seen


def words_of(plan: LevelPlan) -> str:
    """Return how a collection by levels was made, in public numbers; its guarantee stands elsewhere."""
    return repr(plan)[1:-1].removesuffix(f", {plan.guarantee}")
