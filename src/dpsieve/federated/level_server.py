"""What all servers that ask by levels have in common, and what all clients do before they answer one."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.level_plans import LevelPlan
from dpsieve.federated.tally import charged
from dpsieve.privacy import Guarantee
from dpsieve.privacy.ledger import Ledger
from dpsieve.randomness.source import resolve

if TYPE_CHECKING:
    from dpsieve.federated.quantile_search import SplitQuestion
    from dpsieve.federated.trie_question import Question


class LevelServer:
    """A plan, its promise, the order of things, and which reports came before.

    Attributes:
        plan: rates, threshold and guarantee.
        ignored: how many reports were not asked for or malformed. It is not private: never publish it.
    """

    def __init__(self, plan: LevelPlan) -> None:
        self.plan, self.ignored = plan, 0
        self._state, self._source = "new", resolve(None)
        self._nonces: set[str] = set()

    @property
    def guarantee(self) -> Guarantee:
        """What all questions and the answer promise together."""
        return self.plan.guarantee

    def _start(self, ledger: Ledger | None, note: str) -> None:
        """Charge the budget, durably, before the first question; there is no second time."""
        if self._state != "new":
            again = f"Make a new {type(self).__name__}, with a budget of its own."
            raise InvalidValue(f"the questions were asked already. {again}")
        if ledger is not None:
            charged(ledger).spend(self.guarantee, note)
        self._state = "asking"

    def _check_done(self) -> None:
        if self._state != "done":
            raise InvalidValue("there are questions left to ask. Go through all of `questions()` first.")

    def _is_new(self, nonce: str) -> bool:
        """Return whether a nonce was not seen at this level, and remember it; '' is always new."""
        seen = nonce in self._nonces
        if nonce:
            self._nonces.add(nonce)
        return not seen


def is_asked(question: "Question | SplitQuestion", level: int | None) -> bool:
    """Return whether a client is to toss its coin for a question; with cohorts it needs the level that it drew."""
    if question.way != "cohorts":
        return True
    hint = "With cohorts a client draws its level once, by client_levels(1, question.levels)[0], and keeps it."
    return validate.whole("level", level, low=1, high=question.levels, hint=hint) == question.level


def sent(reports: Iterable[Any]) -> list[Any]:
    """Return the reports of clients that were not silent."""
    try:
        return [report for report in reports if report is not None]
    except TypeError:
        raise InvalidType("reports must be a list of reports. Pass what clients answered.") from None
