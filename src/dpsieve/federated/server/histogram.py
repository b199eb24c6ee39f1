"""A histogram of the values of clients, by sample-and-threshold.

Each client tosses one exact coin and sends its value, unaltered, or stays silent. The server counts the reports and
publishes the counts that reach the threshold (Bharadwaj and Cormode, "Sample-and-threshold differential privacy",
AISTATS 2022, Section 3). The guarantee is that of the plan, which is exact. It holds against those who see the release
and do not know which clients reported or what they sent: docs/background/federated.md#whom-to-trust. A tally is secret
too. Only sampled values may be counted: a tally takes messages of clients, or `Reports`, and no plain values.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue, too_large
from dpsieve.federated.client.answers import Report, value_answer
from dpsieve.federated.client.coins import new_nonce
from dpsieve.federated.client.questions import KINDS, LONGEST, Kind, Terms, ValueQuestion, check_longest
from dpsieve.federated.server.intake import CountTable, Ignored, Intake
from dpsieve.noise.sample_threshold import SampleThreshold, rounded_delta
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, draw_release
from dpsieve.randomness.coins import coins
from dpsieve.randomness.source import Source, resolve
from dpsieve.values.columns import PLAIN, column_of, kind_of_type, tried

_HINT = "Pass an Arrow or NumPy array, or a list."
_ESCAPED = 6  # bytes in JSON of a byte of text, at most, as in "\\u0000"


@dataclass(frozen=True, eq=False, repr=False)
class Reports:
    """The values of many sampled clients in one array. `Histogram.client_reports` makes them; they have no nonces.

    Construct one from an array only if it holds what clients sent after their coin tosses: no guarantee covers values
    that were never sampled.

    Attributes:
        values: an Arrow or NumPy array, one value per client that reported.
        coin: the probability with which each client reported. A tally takes no reports of another coin.
        publishable: False where a test source tossed the coins; a release made from them is marked as unsafe.
    """

    values: Any
    coin: float
    publishable: bool = True

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return "<Reports of clients, not to be published>"


class Tally:
    """Counts reports until one release is made from them; see `dpsieve.federated.Histogram.tally`."""

    def __init__(self, histogram: "Histogram") -> None:
        self._histogram, self._plan = histogram, histogram.plan
        self._intake, self._counts = Intake(self._report), CountTable(pa.schema([("value", histogram._type)]))
        self._open = self._publishable = True

    @property
    def ignored(self) -> Ignored:
        """How many reports were left out, by reason: private numbers."""
        return self._intake.ignored

    def __repr__(self) -> str:
        return f"<Tally of reports, not to be published, {'open' if self._open else 'released'}>"

    def add(self, reports: Any) -> "Tally":
        """Count reports; those that cannot be counted are left out and added up in `ignored`. Returns the tally.

        Args:
            reports: a list or another iterable of reports (`Report`, or what its `to_json` or `to_bytes` returned, or
                a padded message), or for many at once the `Reports` of `client_reports`. Plain values are no reports.
        """
        self._check_open()
        if isinstance(reports, Reports):
            if reports.coin != self._plan.rate:
                why = f"reports come from coins of another rate than {self._plan.rate:g}"
                raise InvalidValue(f"{why}. Use the plan that the clients had.", argument="reports")
            values = self._histogram._column("reports", reports.values)
            self.ignored.add("malformed", len(reports) - len(values))
            self._publishable &= reports.publishable
            self._count(values)
        elif isinstance(reports, pa.Array | pa.ChunkedArray | np.ndarray) or hasattr(reports, "to_numpy"):
            fix = "Pass what client_reports returns, or Reports(values, coin) of what clients sent after their coins."
            raise InvalidType(f"reports must not be plain values, which were not sampled. {fix}", argument="reports")
        elif isinstance(reports, Iterable) and not isinstance(reports, str | bytes | dict | Report):
            read = self._intake.read(reports, _ESCAPED * self._histogram.longest)
            self._count(pa.array([report.value for report in read], self._histogram._type))
        else:
            raise InvalidType("reports must be a list of reports, or Reports. Pass [report].", argument="reports")
        return self

    def release(self, *, ledger: AnyLedger = None, note: str = "", source: Source | None = None) -> Release:
        """Return the values that reached the threshold. A tally is released once, as the guarantee is for one release.

        Args:
            ledger: the budget to charge; the spend is durable before any count is read.
            note: what this release is for, stored in the ledger.
            source: the test source that drew the reports, if one did; the release is then marked as unsafe.
        """
        from dpsieve.jobs.run import Plan, run

        self._check_open()
        mechanism, notes = self._plan, Notes(contribution(self._histogram), reason(self._plan))
        mechanism.certify()

        def finish(_: None, source: Source) -> Release:
            self._open = False
            counts = self._counts.total()
            keys, numbers = counts.column("value"), counts.column("count").to_numpy()
            release = draw_release(mechanism, keys, numbers, already_sampled=True, notes=notes, source=source)
            return release if self._publishable else replace(release, unsafe_to_publish=True)

        def rehearse(_: None, source: Source) -> None:
            draw_release(mechanism, ["a key"], [1], already_sampled=True, source=source)

        return run(Plan(mechanism, lambda _: None, finish, rehearse), ledger=ledger, note=note, source=source)

    def _report(self, message: Any) -> Report | None:
        """Return the report of a decoded message, unless its value is of the wrong kind."""
        report = message if isinstance(message, Report) else Report.from_json(message)
        return report if isinstance(report.value, int) == (self._histogram.kind == "integers") else None

    def _count(self, values: pa.Array) -> None:
        batch = pa.Table.from_arrays(pc.value_counts(values).flatten(), names=["value", "count"])
        counted = self._histogram._are_counted(batch.column("value"))
        left_out = int(pc.sum(batch.filter(pc.invert(counted)).column("count")).as_py() or 0)
        self.ignored.add("too_long" if self._histogram.listed is None else "unknown", left_out)
        self._counts.add(batch.filter(counted))

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidValue("this tally has made its release. Start another one, with a fresh sample of clients.")


class Histogram:
    """The public side of a collection: a plan, and which values count. It holds no data.

    Args:
        plan: from `dpsieve.federated.plan`.
        values: a public list of the values that count, such as the buckets of a histogram; without it, any value does.
        kind: 'text' or 'integers'; default: the kind of the list, or text without a list.
        longest: texts of more bytes in UTF-8 do not count.
        collection: the unique name of this release, by which devices charge their budgets; default: random.

    Attributes:
        listed: the public list as an Arrow array, or None when any value of the kind counts.

    >>> from dpsieve.federated.plans.histogram import plan
    >>> drinks = Histogram(plan(1.0, 1e-8))
    >>> sent = [drinks.client_report(value) for value in ["tea"] * 600 + ["coffee"] * 400 + ["secret"] * 5]
    >>> reports = [report.to_bytes() for report in sent if report is not None]
    >>> drinks.aggregate(reports).table.column("key").to_pylist()
    ['coffee', 'tea']
    """

    def __init__(
        self,
        plan: SampleThreshold,
        values: Any = None,
        *,
        kind: Kind | None = None,
        longest: int = LONGEST,
        collection: str | None = None,
    ) -> None:
        if not isinstance(plan, SampleThreshold):
            raise InvalidType(f"plan must be from dpsieve.federated.plan, not {type(plan).__name__}.", argument="plan")
        self.plan, promise = plan, plan.guarantee
        self.longest: int = check_longest(longest, "longest")
        self.kind: Kind = "text" if kind is None else validate.choice("kind", kind, KINDS)
        self.listed: pa.Array | None = None
        if values is not None:
            self._list(column_of("values", values, _HINT, from_pandas=True), kind)
        name = new_nonce() if collection is None else collection
        self.terms = Terms(name, promise.epsilon, promise.delta, plan.threshold, promise.neighbours)

    def _list(self, values: pa.Array, kind: Kind | None) -> None:
        if kind is None and types.is_integer(values.type):
            self.kind = "integers"
        self.listed = self._column("values", values)
        if not len(values) or values.null_count or len(pc.unique(values)) != len(values):
            why = "must be a public list of different values without nulls"
            raise InvalidValue(f"values {why}. Leave it out for any.", argument="values")
        if self.kind == "text" and not pc.all(pc.less_equal(pc.binary_length(self.listed), self.longest)).as_py():
            raise InvalidValue("values holds a text that is longer than `longest` bytes.", argument="values")

    def __repr__(self) -> str:
        return f"<Histogram of {self.kind} from clients: {self.plan}>"

    @property
    def _type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return PLAIN[self.kind]

    def _column(self, name: str, values: Any) -> pa.Array:
        """Return values as an Arrow array of the kind that is counted, without nulls, or raise naming the argument."""
        array = column_of(name, values, _HINT, from_pandas=True).drop_null()
        if len(array) and kind_of_type(array.type) != self.kind:
            fix = "Pass such values, or the other kind to Histogram."
            raise InvalidType(f"{name} holds no {self.kind}. {fix}", argument=name)
        column, failure = tried(lambda: array.cast(self._type))
        if failure is not None:
            raise too_large(name)
        return column

    def _are_counted(self, values: pa.Array) -> pa.Array:
        """Return, for each value, whether it counts."""
        if self.listed is not None:
            return pc.is_in(values, value_set=self.listed)
        if self.kind == "text":
            return pc.less_equal(pc.binary_length(values), self.longest)
        return pc.is_valid(values)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the plan; see `guarantee_against` for hostile clients."""
        return self.plan.guarantee

    @cached_property
    def question(self) -> ValueQuestion:
        """The question to clients: `ValueQuestion.from_json(histogram.question.to_json())`."""
        listed = None if self.listed is None else tuple(self.listed.to_pylist())
        return ValueQuestion(self.plan.rate, self.kind, listed, self.longest, self.terms)

    def client_report(self, value: str | int, source: Source | None = None) -> Report | None:
        """Return the report of a simulated client, or None for silence; no budget is charged.

        A device uses `dpsieve.federated.client.value_answer` and a budget. To retry, send the same report again.
        """
        return value_answer(self.question, value, budget=None, source=source)

    def client_reports(self, values: Any, source: Source | None = None) -> Reports:
        """Return the reports of many clients, one coin each, for simulations and batches.

        Args:
            values: one value per client, as an Arrow or NumPy array or a list; null for a client without one.
            source: randomness for tests; a release of the reports is marked as unsafe.
        """
        column = self._column("values", values)
        source = resolve(source)
        heads = coins(len(column), self.plan.rate, source=source)
        sent = column.filter(pa.array(heads))
        return Reports(sent.filter(self._are_counted(sent)), self.plan.rate, source.publishable)

    def tally(self) -> Tally:
        """Return an empty tally, to which reports are added as they arrive."""
        return Tally(self)

    def aggregate(
        self, reports: Any, *, ledger: AnyLedger = None, note: str = "", source: Source | None = None
    ) -> Release:
        """Return the release of all reports at once; see `Tally.add` and `Tally.release` for the arguments."""
        return self.tally().add(reports).release(ledger=ledger, note=note, source=source)

    def guarantee_against(self, hostile: int) -> Guarantee:
        """Return the guarantee of honest clients when those who see the release sent up to `hostile` reports.

        Whoever adds h reports of a value can subtract them: honest ones show from the threshold t - h on, or from 1. So
        delta is that of the lower threshold, and with t - 1 hostile reports it is the rate or more. To withstand h of
        them, make the plan with `plan(..., hostile=h)`.
        """
        known = validate.whole("hostile", hostile, hint="Pass how many reports may be made up, such as hostile=5.")
        promise, least = self.plan.guarantee, max(self.plan.threshold - known, 1)
        delta = rounded_delta(promise.epsilon, self.plan.rate, least, promise.neighbours)
        if delta >= 1:
            raise InvalidValue(f"hostile={known} reports leave no delta below one.", argument="hostile")
        return Guarantee(promise.epsilon, max(delta, promise.delta), promise.neighbours, promise.unit)


def contribution(histogram: Histogram) -> str:
    """Return the contribution of a client, as notes state it."""
    return "one value" if histogram.listed is None else f"one value of a public list of {len(histogram.listed):,}"


def reason(plan: SampleThreshold) -> str:
    """Return how a collection was made, in public numbers."""
    return f"each client is sampled with probability {plan.rate:g}, and {plan.threshold:,} reports are needed"
