"""One quantile by interactive search: in each round clients say on which side of a split their value is.

Each round is a sample-and-threshold histogram of two buckets (Bharadwaj and Cormode, AISTATS 2022, Lemma 8). It bounds
the share of values below its split (`federated.server.quantile_bands`; a bucket below the threshold had at most
threshold - 1 reports). If that share is surely below phi, or surely not, the quantile is on one side, and the other one
is ruled out. Else the quantile is too close to tell, and later rounds close in on that place from both sides. So
the interval at the end is as short as the sample and the number of rounds allow. For one quantile this needs the fewest
answers; for several, `federated.server.distribution` learns all of them at once.

Coins of later rounds do not depend on earlier ones, so with 'rounds' each of h rounds may miss with probability 1/h of
what is allowed. With 'cohorts' a later cohort is what earlier ones left over; there the bounds hold for all 3^(i-1)
splits that round i can have, each with its part of that.
"""

from collections.abc import Iterable
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.federated.client.answers import SplitReport
from dpsieve.federated.client.coins import is_nonce
from dpsieve.federated.client.questions import SplitQuestion
from dpsieve.federated.client.strings import checked_interval
from dpsieve.federated.plans.level_plans import LevelOptions, level_plan
from dpsieve.federated.server.distribution import Estimate, checked_confidence
from dpsieve.federated.server.level_server import LevelServer
from dpsieve.federated.server.many_clients import client_levels, number_column
from dpsieve.federated.server.quantile_bands import largest_share, smallest_share
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.randomness.coins import coins
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Ints

_MOST_ROUNDS = 50


class QuantileSearch(LevelServer[SplitQuestion]):
    """The server that searches for one quantile.

    >>> import numpy as np
    >>> median = QuantileSearch(0.5, 0.0, 1.0, epsilon=1.0, delta=1e-6)
    >>> value, low, high = median.run(np.linspace(0.0, 1.0, 100_001) ** 2)
    >>> low < 0.25 < high
    True

    Attributes:
        phi, low, high: the quantile, and the interval that is searched. The interval must not come from the data.
    """

    def __init__(
        self,
        phi: float,
        low: float,
        high: float,
        *,
        epsilon: float,
        delta: float,
        rounds: int = 10,
        confidence: float = 0.95,
        collection: str | None = None,
        **options: Unpack[LevelOptions],
    ) -> None:
        """Plan the rounds; nothing is spent before a question is asked.

        Args:
            phi: which quantile.
            low, high: the interval that is searched. It must not come from the data.
            epsilon, delta: the budget of all rounds together.
            rounds: how many splits are asked about: the answer is no closer than 2^-rounds of the interval.
            confidence: the probability with which the interval of the answer holds the quantile.
            collection: the name by which devices know the collection, and no other one; default: random.
            options: protocol ('rounds' or 'cohorts'), coin, threshold, neighbours and unit, as in `level_plan`.
        """
        phi = validate.between("phi", phi, 0.0, 1.0, hint="Pass a share such as phi=0.5.")
        self.phi = max(phi, 1e-300)  # so that 0 means the smallest value
        self.low, self.high = checked_interval(low, high)
        self.confidence = checked_confidence(confidence)
        if options.get("protocol", "rounds") not in ("rounds", "cohorts"):
            raise InvalidValue("protocol is not known. Choose 'rounds' or 'cohorts'.")
        rounds = validate.whole("rounds", rounds, low=1, high=_MOST_ROUNDS, hint="Pass how many, such as rounds=10.")
        super().__init__(level_plan(epsilon, delta, rounds, **options), collection)
        self._below = self._above = 0
        self._sure = (self.low, self.high)  # the quantile is in here
        self._unsure: tuple[float, float] | None = None  # splits in here were too close to tell
        self._shares = {self.low: 0.0, self.high: 1.0}

    @property
    def unsafe_to_publish(self) -> bool:
        """True when the randomness of `run` came from a seeded test source."""
        return not self._source.publishable

    def _ask(self, level: int) -> SplitQuestion:
        self._below = self._above = 0
        plan = self.plan
        return SplitQuestion(plan.protocol, level, plan.levels, plan.coin, self._next(), self.terms)

    def _close(self, question: SplitQuestion) -> bool:
        below, above = self._reported(np.array([self._below, self._above])).tolist()
        if below + above > 0:
            self._learn(question.level, question.split, below, above)
        return bool(below + above > 0)

    def _next(self) -> float:
        """Return the next split: half-way in the widest part of what is left."""
        start, stop = self._sure
        if self._unsure is not None:
            left, right = (start, self._unsure[0]), (self._unsure[1], stop)
            start, stop = left if left[1] - left[0] >= right[1] - right[0] else right
        return start + (stop - start) / 2

    def _learn(self, level: int, split: float, below: int, above: int) -> None:
        """Leave one side of the split, or note that it is too close to tell."""
        splits = 3.0 ** (level - 1) if self.plan.protocol == "cohorts" else 1.0
        miss, hidden = (1 - self.confidence) / (2 * self.plan.levels * splits), self.plan.threshold - 1
        start, stop = self._sure
        if largest_share(below or hidden, above, miss) < self.phi:
            self._sure = (split, stop)
        elif smallest_share(below, above or hidden, miss) >= self.phi:
            self._sure = (start, split)
        else:
            first, last = self._unsure or (split, split)
            self._unsure = (min(first, split), max(last, split))
        if self._unsure is not None and not self._sure[0] < self._unsure[0] <= self._unsure[1] < self._sure[1]:
            self._unsure = None  # rounds that contradict each other, which is rare
        self._shares[split] = below / (below + above)

    def take(self, reports: Iterable[Any]) -> None:
        """Count answers to the open question, as `split_answer` makes them; all else is ignored.

        Lists [below, nonce], and what `to_json` or `to_bytes` of a report returned, count too. A nonce counts once.
        """
        sides = [bool(report[0]) for report in self._answers(reports)]
        self._below, self._above = self._below + sum(sides), self._above + len(sides) - sum(sides)

    def _report(self, message: dict[str, Any]) -> SplitReport:
        return SplitReport.from_json(message)

    def _fits(self, report: Any) -> bool:
        pair = isinstance(report, tuple | list) and len(report) == 2
        return pair and isinstance(report[0], bool | np.bool_) and is_nonce(report[1])

    def run(
        self, values: ArrayLike, *, ledger: AnyLedger = None, note: str = "", source: Source | None = None
    ) -> Estimate:
        """Ask one client for each of these numbers, all in this process; NaN is a client without a value.

        With a ledger the budget is charged, durably, before the first question.
        """
        every, source = number_column(values), resolve(source)
        mine, self._source = every[~np.isnan(every)], source
        drawn: Ints | None = None
        if self.plan.protocol == "cohorts":
            drawn = client_levels(len(mine), self.plan.levels, source=source)
        with self._charged():
            for question in self.questions(ledger=ledger, note=note):
                asked = mine if drawn is None else mine[drawn == question.level]
                answers = asked[coins(len(asked), self.plan.coin, source=source)] < question.split
                self._below, self._above = int(answers.sum()), int((~answers).sum())
            return self.result()

    def result(self) -> Estimate:
        """Return the quantile, and an interval that holds it: inf{q : phi of the values are at most q}.

        The value is on a straight line between the splits next to it.
        """
        self._check_done()
        at = sorted(self._shares)
        shares = np.maximum.accumulate([self._shares[split] for split in at])
        value = float(np.interp(self.phi, shares, at))
        low, high = self._sure
        return Estimate(min(max(value, low), high), low, high)
