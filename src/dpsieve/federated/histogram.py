"""A histogram of the values of clients, by sample-and-threshold: the client's half and the aggregator's half.

Each client tosses one exact coin of its own and sends its value, unaltered, or stays silent. The aggregator counts the
reports and publishes the counts that reach the threshold (Bharadwaj and Cormode, "Sample-and-threshold differential
privacy", AISTATS 2022, Section 3). The guarantee is that of the plan: the exact one for a client more or less, or for
a client whose value changes.

The sample is the noise. So the guarantee is about those who see the release, and who do not know which clients reported
or what they sent: the aggregator is trusted, and the traffic must not tell a silent client from one that reports.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.binomial.rows import exact_delta
from dpsieve.channels.channel import checked_frequencies
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.exact.binomial import below
from dpsieve.federated.buckets import LONGEST, Buckets, Kind
from dpsieve.federated.paper import lemma_5_omission
from dpsieve.federated.plan import Plan
from dpsieve.federated.report import Report, new_nonce
from dpsieve.federated.tally import Tally
from dpsieve.privacy import Guarantee
from dpsieve.privacy.ledger import Ledger
from dpsieve.publication import Release
from dpsieve.randomness.coins import coins
from dpsieve.randomness.source import Source, resolve


class Histogram:
    """What clients and the aggregator agree on: a plan, and which values count. It holds no data.

    Args:
        plan: from `dpsieve.federated.plan`.
        values: a public list of the values that count, such as the buckets of a histogram; without it, any value does.
        kind: 'text' or 'integers'; by the list unless told, and text without a list.
        longest: texts of more bytes in UTF-8 do not count.

    >>> from dpsieve.federated import plan
    >>> drinks = Histogram(plan(1.0, 1e-8))
    >>> sent = [drinks.client_report(value) for value in ["tea"] * 600 + ["coffee"] * 400 + ["secret"] * 5]
    >>> reports = [report.to_bytes() for report in sent if report is not None]
    >>> drinks.aggregate(reports).table.column("key").to_pylist()
    ['coffee', 'tea']
    """

    def __init__(self, plan: Plan, values: Any = None, *, kind: Kind | None = None, longest: int = LONGEST) -> None:
        if not isinstance(plan, Plan):
            raise InvalidType(
                f"plan must be a Plan, not {type(plan).__name__}. Pass what dpsieve.federated.plan returns."
            )
        self.plan, self.buckets = plan, Buckets(values, kind, longest)

    def __repr__(self) -> str:
        return f"<Histogram of {self.buckets.kind} from clients. {self.plan}>"

    @property
    def guarantee(self) -> Guarantee:
        """What is promised, and under which neighbouring relation; see `guarantee_against` for hostile clients."""
        return self.plan.guarantee

    def client_report(self, value: str | int, source: Source | None = None) -> Report | None:
        """Return what the client sends, or None when it stays silent. To retry, send the same report again.

        The coin is exact. A value that does not count (not in the public list, or too long) is never sent.
        """
        source, counts = resolve(source), self.buckets.counts(value)
        if not coins(1, self.plan.rate, source=source)[0] or not counts:
            return None
        return Report(value if isinstance(value, str) else int(value), new_nonce(source))

    def client_reports(self, values: Any, source: Source | None = None) -> pa.Array:
        """Return the values that many clients send, one coin each: for simulations, and for those who hold batches.

        Args:
            values: one value for each client, as an Arrow or NumPy array or a list; null for a client without one.
            source: randomness for tests; pass it to `aggregate` too, so that the release says so.
        """
        column = self.buckets.column("values", values)
        heads = coins(len(column), self.plan.rate, source=source)
        sent = column.filter(pa.array(heads)).drop_null()
        return sent.filter(self.buckets.among(sent))

    def tally(self) -> Tally:
        """Return an empty tally, to which reports are added as they come."""
        return Tally(self.plan, self.buckets)

    def aggregate(
        self, reports: Any, *, ledger: Ledger | None = None, note: str = "", source: Source | None = None
    ) -> Release:
        """Return the release of all reports at once; see `Tally.add` and `Tally.release` for the arguments."""
        return self.tally().add(reports).release(ledger=ledger, note=note, source=source)

    def omission_probability(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return, for each number of clients with a value, the probability that the value is not released, exactly."""
        return below(checked_frequencies(frequencies), self.plan.threshold, self.plan.rate)

    def omission_bound(self, frequencies: ArrayLike) -> NDArray[np.float64]:
        """Return the bound of Lemma 5 on the same, to compare with."""
        return lemma_5_omission(checked_frequencies(frequencies), self.plan.rate, self.plan.threshold)

    def guarantee_against(self, hostile: int) -> Guarantee:
        """Return what is promised to honest clients when those who see the release sent up to `hostile` reports.

        Who adds h reports of a value can subtract them: the honest ones show from the threshold t - h on, or from 1. So
        delta is that of the lower threshold, and with t - 1 hostile reports it is the rate or more. To withstand h of
        them, make the plan with `plan(..., hostile=h)`.
        """
        known = validate.whole("hostile", hostile, hint="Pass how many reports may be made up, such as hostile=5.")
        promise, least = self.plan.guarantee, max(self.plan.threshold - known, 1)
        delta = exact_delta(promise.epsilon, self.plan.rate, least, promise.neighbours)
        if delta >= 1:
            raise InvalidValue(f"hostile={known} reports leave no delta below one. Plan a higher threshold.")
        return Guarantee(promise.epsilon, max(delta, promise.delta), promise.neighbours, promise.unit)
