"""One quantile by interactive search: in each round clients say on which side of a split their value is.

Each round is a sample-and-threshold histogram of two buckets (Bharadwaj and Cormode, AISTATS 2022, Lemma 8). It bounds
the share of values below its split (`federated.sampled_shares`, where a bucket that is hidden had at most
threshold - 1 reports). If that share is surely below phi, or surely not, the quantile is on one side, and the other one
is left for good. Else the quantile is too close to tell, and later rounds close in on that place from both sides. So
the interval at the end is as short as the sample and the number of rounds allow. For one quantile this needs the fewest
answers; for several, `federated.quantiles` learns all of them at once.

Coins of later rounds do not depend on earlier ones, so with 'rounds' each of h rounds may miss with probability 1/h of
what is allowed. With 'cohorts' a later cohort is what earlier ones left over; there the bounds hold for all 3^(i-1)
splits that round i could have asked for, each with its part of that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.binomial.rows import checked_rate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.federated.level_plans import MOST_LEVELS, Way, checked_way, level_plan
from dpsieve.federated.level_server import LevelServer, is_asked, sent
from dpsieve.federated.quantile_answers import Estimate, checked_confidence
from dpsieve.federated.quantile_grid import checked_interval, number_column
from dpsieve.federated.report import is_nonce, new_nonce
from dpsieve.federated.sampled_shares import largest_share, smallest_share
from dpsieve.federated.trie_question import client_levels
from dpsieve.privacy.ledger import Ledger
from dpsieve.randomness.coins import coins
from dpsieve.randomness.source import Source, resolve
from dpsieve.validate import Neighbours

_MOST_ROUNDS = 50


@dataclass(frozen=True)
class SplitQuestion:
    """Round `level` of `levels`: is your value below the split? Public, and JSON by `to_json`."""

    way: Way
    level: int
    levels: int
    coin: float
    split: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SplitQuestion":
        """Rebuild what `to_json` returned; anything else is refused."""
        hint = "Pass what SplitQuestion.to_json returned."
        if not isinstance(data, dict) or set(data) != set(cls.__dataclass_fields__):
            raise InvalidValue(f"data is not a question. {hint}")
        levels = validate.whole("levels", data["levels"], low=1, high=MOST_LEVELS, hint=hint)
        level = validate.whole("level", data["level"], low=1, high=levels, hint=hint)
        split = validate.real("split", data["split"], hint=hint)
        return cls(checked_way(data["way"]), level, levels, checked_rate(data["coin"]), split)


class SplitReport(NamedTuple):
    """A client's answer: whether its value is below the split, and a nonce by which a retry is recognised."""

    below: bool
    nonce: str = ""

    def __repr__(self) -> str:
        return "<SplitReport of a client, not to be published>"


def split_answer(
    question: SplitQuestion, value: object, *, level: int | None = None, source: Source | None = None
) -> SplitReport | None:
    """Return whether a client's value is below the split, or None where it stays silent.

    Call it once for each question, keep the answer, silence included, and send the same one again where delivery
    failed: a second call tosses a second coin, and the guarantee is for one.

    With way='cohorts', `level` is the one that the client drew, once, with `client_levels(1, question.levels)[0]`. A
    client without a number stays silent; values outside of the interval are on one side of every split.
    """
    if not isinstance(question, SplitQuestion):
        raise InvalidType(f"question must be a SplitQuestion, not {type(question).__name__}. Use from_json.")
    if not is_asked(question, level):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or value != value:
        return None
    source = resolve(source)
    if not coins(1, question.coin, source=source)[0]:
        return None
    return SplitReport(bool(value < question.split), new_nonce(source))


class QuantileSearch(LevelServer):
    """The server that searches for one quantile.

    >>> import numpy as np
    >>> median = QuantileSearch(0.5, 0.0, 1.0, epsilon=1.0, delta=1e-6)
    >>> value, low, high = median.run(np.linspace(0.0, 1.0, 100_001) ** 2)
    >>> low < 0.25 < high
    True

    Attributes:
        phi, low, high: which quantile is searched for, in which interval. The interval must not come from the data.
        plan: rates, threshold and guarantee.
        ignored: how many reports were malformed. It is not private: never publish it.
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
        way: Literal["rounds", "cohorts"] = "rounds",
        confidence: float = 0.95,
        coin: float | None = None,
        threshold: int | None = None,
        neighbours: Neighbours = "add_remove",
        unit: str = "one client",
    ) -> None:
        """Plan the rounds; nothing is spent before a question is asked.

        Args:
            phi: which quantile.
            low, high: the interval in which it is searched for. It must not come from the data.
            epsilon, delta: the budget of all rounds together.
            rounds: how many splits are asked about: the answer is no closer than 2^-rounds of the interval.
            way: 'rounds' (a client may answer in each of them) or 'cohorts' (in one).
            confidence: the probability with which the interval of the answer holds the quantile.
            coin, threshold: to choose these instead of the best ones; what they cost is checked.
            neighbours, unit: what is promised, and to whom.
        """
        phi = validate.between("phi", phi, 0.0, 1.0, hint="Pass a share such as phi=0.5.")
        self.phi = max(phi, 1e-300)  # so that 0 means the smallest value
        self.low, self.high = checked_interval(low, high)
        self.confidence = checked_confidence(confidence)
        if way not in ("rounds", "cohorts"):
            raise InvalidValue("way is not known. Choose 'rounds' or 'cohorts'.")
        rounds = validate.whole("rounds", rounds, low=1, high=_MOST_ROUNDS, hint="Pass how many, such as rounds=10.")
        plan = level_plan(
            epsilon, delta, rounds, way=way, coin=coin, threshold=threshold, neighbours=neighbours, unit=unit
        )
        super().__init__(plan)
        self._below = self._above = 0
        self._sure = (self.low, self.high)  # the quantile is in here
        self._unsure: tuple[float, float] | None = None  # splits in here were too close to tell
        self._shares = {self.low: 0.0, self.high: 1.0}

    @property
    def unsafe_to_publish(self) -> bool:
        """True when the randomness of `run` came from a seeded test source."""
        return not self._source.publishable

    def questions(self, *, ledger: Ledger | None = None, note: str = "") -> Iterator[SplitQuestion]:
        """Yield the question of each round; `take` the answers to one before asking for the next.

        It ends early when a round brings nothing, as then there is nothing to go by. With a ledger the budget is
        charged, durably, before the first question.
        """
        self._start(ledger, note)
        plan = self.plan
        for level in range(1, plan.levels + 1):
            self._below, self._above, self._nonces = 0, 0, set()
            split = self._next()
            yield SplitQuestion(plan.way, level, plan.levels, plan.coin, split)
            below, above = (count if count >= plan.threshold else 0 for count in (self._below, self._above))
            if below + above == 0:
                break
            self._learn(level, split, below, above)
        self._state = "done"

    def _next(self) -> float:
        """Return the next split: half-way in the widest part of what is left."""
        start, stop = self._sure
        if self._unsure is not None:
            left, right = (start, self._unsure[0]), (self._unsure[1], stop)
            start, stop = left if left[1] - left[0] >= right[1] - right[0] else right
        return start + (stop - start) / 2

    def _learn(self, level: int, split: float, below: int, above: int) -> None:
        """Leave one side of the split, or note that it is too close to tell."""
        splits = 3.0 ** (level - 1) if self.plan.way == "cohorts" else 1.0
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
        """Count answers to the question that is open, as `split_answer` makes them; all else is ignored.

        They may also be lists [below, nonce], as JSON has them. A nonce that came before is ignored.
        """
        if self._state != "asking":
            raise InvalidValue("no question is open. Take reports inside the loop over `questions()`.")
        every = sent(reports)
        fine = [bool(report[0]) for report in every if _is_report(report) and self._is_new(report[1])]
        self.ignored += len(every) - len(fine)
        self._below, self._above = self._below + sum(fine), self._above + len(fine) - sum(fine)

    def run(
        self, values: ArrayLike, *, ledger: Ledger | None = None, note: str = "", source: Source | None = None
    ) -> Estimate:
        """Ask one client for each of these numbers, all in this process; NaN is a client without a value.

        With a ledger the budget is charged, durably, before the first question.
        """
        every, source = number_column(values), resolve(source)
        mine, self._source = every[~np.isnan(every)], source
        drawn: NDArray[np.int64] | None = None
        if self.plan.way == "cohorts":
            drawn = client_levels(len(mine), self.plan.levels, source=source)
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


def _is_report(report: object) -> bool:
    """Return whether this is [below, nonce]; anything at all may be asked about."""
    pair = isinstance(report, tuple | list) and len(report) == 2
    return pair and isinstance(report[0], bool | np.bool_) and is_nonce(report[1])  # type: ignore[index]
