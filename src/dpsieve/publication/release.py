"""The Release: keys, counts and intervals."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.display import timed
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.estimation.estimated_sums import EstimatedSum, row_weights
from dpsieve.noise.keys_per_unit import Coverage
from dpsieve.noise.totals import GRID, columns_of, describe_rest, table_names
from dpsieve.privacy.guarantee import Contribution
from dpsieve.privacy.mechanism import Counting, Drawn, Mechanism, Outcome, totals_of
from dpsieve.publication.files import MAIN
from dpsieve.publication.publication import Notes, Publication
from dpsieve.randomness.source import Source, resolve
from dpsieve.types import Floats, Ints
from dpsieve.values.columns import as_arrow, as_numpy, text_array
from dpsieve.values.keys import check_published, key_names, key_table, order_of, published, refuse_equal

if TYPE_CHECKING:
    import altair as alt

_SEARCH_ALL = 1 << 17
BOUNDS = ("at most", "exact")
"""What `high` is: the only bound known, or the end of an interval around the count."""
_ADDS = re.compile(
    r"at most ([\d,]{1,20}) (?:keys?|of the published keys, (?:the|those found) most common first), "
    r"(?:once|([\d,]{1,20}) rows) each"
    r"(?:, (?:a bound chosen with differential privacy|chosen privately))?(?:; coverage is too uncertain to state)?",
    re.ASCII,
)  # the contribution of a unit, in the notes of jobs
_CLIENT = re.compile(r"one string|one value(?: of a public list of [\d,]{1,20})?", re.ASCII)  # of a collection
_FIX = "Use the release as it was made."


@dataclass(frozen=True)
class Rank:
    """Where a key stands among others: 1 is the most frequent.

    Attributes:
        place: its place by tokens among the reported keys, the best guess.
        low, high: bounds for its place by true frequencies among the reported keys.
        above: how many keys in all, reported or not, are estimated to be more frequent than its count.
    """

    place: int
    low: int
    high: int
    above: EstimatedSum


@register("release")
@dataclass(frozen=True, eq=False, repr=False)
class Release(Publication):
    """Keys with their counts.

    Attributes:
        table: one row for each reported key, sorted by key: the key columns under their own names (`key` where they
            have none), `count` (the likeliest frequency), `low` and `high` (its 95 % confidence interval), `weight`
            (what the key adds to an estimate of the sum of all frequencies: the count divided by its probability of
            being reported). Where rare keys are withheld, `bound` is 'exact', or 'at most' where `count` is null and
            only `high` is informative: `low` is then the least possible frequency, 1 or the floor. Sketches have
            `counter` as well, the noisy counter, to which `count` adds the noisy loss. Totals and means have a column
            each, such as `price_sum`, and two for the ends of its interval. With keys only, just the key columns. A
            frequency is the true one after units were cut to what each may add, as `notes.bounded` states.
        tokens: what the mechanism drew for each row of the table, integers in units of 1/`mechanism.resolution` of a
            frequency; None with keys only.
        sums: with totals, the noisy centred sums of each total, as integers, from which their columns in the table
            come; see docs/background/totals.md.
    """

    when_empty: ClassVar[str] = "No key was frequent enough: dpsieve.preview says how frequent a key must be."

    mechanism: Counting
    tokens: Ints | None = field(default=None, kw_only=True)
    sums: Ints | None = field(default=None, kw_only=True)

    @property
    def totals(self) -> tuple[Any, ...]:
        """The totals and means in the table, each with its column and bounds."""
        return totals_of(self.mechanism)

    @property
    def rest(self) -> dict[str, Any] | None:
        """What is not in the table: the number of pairs of units and keys, and their totals; None if not asked for.

        With the names of the table's columns: `count`, `low`, `high`, and those of each total. Noise may make it
        negative, except for the count.
        """
        rest: Any = getattr(self.mechanism, "rest", None)
        return None if rest is None else rest.row(self.drawn, tuple(self.keys.column_names))

    @property
    def bounded(self) -> str:
        """What counts and totals are of, and what is not in the table, in sentences."""
        rest = [] if self.rest is None else [describe_rest(self.rest)]
        names = [] if self.sums is None else table_names(self.totals, self.keys.column_names)
        totals = [f"{name} is the {total}." for total, (name, *_) in zip(self.totals, names, strict=False)]
        return " ".join(filter(None, [super().bounded, *totals, *rest]))

    @property
    def keys(self) -> pa.Table:
        """The key columns."""
        return self.table.select(key_names(self.table.column_names))

    @property
    def contribution(self) -> Contribution:
        """What one unit adds at most. Pass it as `max_keys_per_unit` to the next release of a series."""
        return self.mechanism.contribution_given(self.drawn)

    @property
    def coverage(self) -> Coverage | None:
        """The share of (unit, key) pairs that the bound keeps, with its interval; None where it is not reported."""
        return self.notes.coverage

    @property
    def least(self) -> int:
        """The least count of a key in the table: 1 or the floor, or 0 where every key of a public list is answered."""
        return self.mechanism.least_count if self.mechanism.withholds else 0

    def top(self, k: int = 10) -> pa.Table:
        """Return the k rows with the largest counts, of equal ones those with the largest tokens, largest first."""
        return self.table.take(as_arrow(self.places_of_top(k)))

    def places_of_top(self, k: int) -> Ints:
        """Return the places of these rows in the table."""
        k = validate.whole("k", k, low=1, hint="Pass how many rows to show.")
        tokens = self._tokens()
        return np.lexsort((-tokens, -self._reader.read(tokens).count))[:k]

    def head(self, n: int = 5) -> pa.Table:
        """Return the most common keys, or the first ones where there are no counts."""
        return self.top(n) if n != 0 and self.tokens is not None else super().head(n)

    def estimate(
        self,
        where: ArrayLike | Callable[[Any], ArrayLike] | None = None,
        g: Callable[[Floats], Floats] | None = None,
        weights: ArrayLike | Callable[[Any], ArrayLike] | None = None,
    ) -> EstimatedSum:
        """Estimate the sum of L(x) g(frequency) over all keys x that satisfy `where`, reported or not.

        A frequency is the true one after units were cut to what each may add, as in the table.

        From a channel, it is the sum over reported keys of the maximum-likelihood estimate g(i) / pi_i (Cohen et al.
        2021, Section 7). Keys too rare to be reported are missed, so the estimate is biased down; `estimation` has the
        bias. Other mechanisms define in `terms` what their tokens add.

        The result is a float with `bias`, `variance`, `standard_error` and `interval(level)`: those of the noise and
        of the sampling, from the rows of the channel (see `dpsieve.estimation.estimators`). Keys too rare to be
        reported are not included. For few keys the interval has at least its level, given that these keys were
        reported: for one it is that of the table, for several the laws of their noise are convolved.

        Args:
            where: one boolean for each row of the table, or a function of the keys (an Arrow column, or for several
                key columns a table of them) that returns these.
            g: a non-decreasing function with g(0) = 0; without it, g(w) = w and the estimate is of a total frequency.
            weights: L(x), one finite number for each row, or a function of the keys; 1 without it.
        """
        tokens, keys = self._tokens(), self.keys
        column = keys.column(0).combine_chunks() if keys.num_columns == 1 else keys
        factors = row_weights(column, len(tokens), where, weights)
        value = float(factors @ self._reader.terms(tokens, g))
        some = np.flatnonzero(factors)
        exact = partial(self._reader.sum_interval, tokens[some], factors[some], g)
        return EstimatedSum(value, lambda: self._reader.errors(tokens[some], factors[some], g), exact)

    def intervals(self, level: float = 0.95) -> pa.Table:
        """Return the keys with `low` and `high`, the ends of their confidence intervals at this level.

        Those of the table have 95 %. Releases of sketches have these alone, as all of theirs hold at once.

        >>> import dpsieve as ds
        >>> release = ds.channels.known_keys(1.0).release(["tea"], [900])
        >>> narrow, wide = (release.intervals(level) for level in (0.5, 0.999))
        >>> wide["high"][0].as_py() - wide["low"][0].as_py(), narrow["high"][0].as_py() - narrow["low"][0].as_py()
        (14, 2)
        """
        low, high = self._interval(level)
        return self.keys.append_column("low", as_arrow(low)).append_column("high", as_arrow(high))

    def _interval(self, level: float) -> tuple[Ints, Ints]:
        last: Any = self.mechanism.last
        if not hasattr(last, "interval"):
            fix = "Compare the columns low and high instead."
            raise InvalidType(f"level is for releases from a channel or of known keys. {fix}", argument="level")
        ends: tuple[Ints, Ints] = last.interval(self._tokens(), level)
        return ends

    def rank(self, key: Any, level: float = 0.95) -> Rank:
        """Return where a reported key stands among the others, by frequency; for releases with `intervals`.

        `key` is a value of the key column, or for several columns a tuple of them. The bounds are for the rank of the
        true frequencies among the reported keys: intervals of all these keys, each at 1 - (1 - level) / n, hold
        together with probability at least `level`, and they state which keys must and which may be above this one.
        """
        level = validate.between("level", level, 0.0, 1.0, hint="Pass a confidence level such as level=0.95.")
        tokens, place = self._tokens(), self._place(key)
        low, high = self._interval(1 - (1 - level) / len(tokens))
        others = np.arange(len(tokens)) != place
        count = int(self._reader.read(tokens).count[place])
        return Rank(
            1 + int((tokens > tokens[place]).sum()),
            1 + int((low > high[place]).sum()),
            1 + int((high[others] > low[place]).sum()),
            self.estimate(others, lambda frequencies: np.asarray(frequencies > count, dtype=np.float64)),
        )

    def _place(self, key: Any) -> int:
        """Return the row of a key."""
        wanted = key if isinstance(key, tuple) else (key,)
        found = np.full(len(self), len(wanted) == self.keys.num_columns)
        try:
            for column, value in zip(self.keys.columns, wanted, strict=False):
                found &= pc.equal(column, pa.scalar(value, column.type)).to_numpy()
        except (pa.ArrowException, TypeError, ValueError):
            found[:] = False
        if not found.any():
            raise InvalidValue("key is not in the table. Pass a key that was reported.")
        return int(np.argmax(found))

    def plot(self) -> "alt.LayerChart":
        """Return an Altair chart of counts by rank, with the band of their intervals; needs the extra `plot`."""
        from dpsieve.publication.rank_plot import rank_chart

        return rank_chart(self)

    def check(self) -> None:
        """Raise unless keys are distinct and sorted, tokens possible, and the other columns computed from these."""
        keys = key_table(self.keys)
        check_published(keys)
        if self.notes.coverage is not None and not self.mechanism.reports_coverage:
            raise InvalidValue(f"notes have a coverage that was not paid for. {_FIX}")
        if self.notes.contribution and stated_contribution(self.notes.contribution) != self.contribution:
            raise InvalidValue(f"notes have another contribution than the mechanism. {_FIX}")
        last: Mechanism = self.mechanism.last
        if last.selects_keys and self.tokens is None:
            if not _agree(self.table, keys):
                raise InvalidValue(f"table has other columns than its keys. {_FIX}")
            return
        if not isinstance(last, Counting):
            raise InvalidValue(f"mechanism draws no tokens. {_FIX}")
        if self.tokens is None and self.mechanism.reports_all:
            raise InvalidValue(f"table has no counts, where every key of a public list has one. {_FIX}")
        tokens, expected = self.tokens, keys
        if tokens is not None:
            fits = tokens.dtype == np.int64 and tokens.shape == (len(self),)
            if not fits or not self.mechanism.possible(tokens):
                raise InvalidValue(f"table has tokens that the mechanism cannot draw. {_FIX}")
            self._check_sums()
            expected = with_counts(self.mechanism, self.drawn, keys, tokens, self.sums)
        if len(self) > (self.mechanism.most_keys or len(self)) or not _agree(self.table, expected):
            raise InvalidValue(f"table has other rows or columns than its tokens imply. {_FIX}")

    def _check_sums(self) -> None:
        shape = (len(totals_of(self.mechanism)), len(self))
        is_right = self.sums is None if not shape[0] else self.sums is not None and self.sums.shape == shape
        if not is_right or (self.sums is not None and self.sums.dtype != np.int64):
            raise InvalidValue(f"table has sums that the mechanism cannot draw. {_FIX}")

    def tables(self) -> dict[str, pa.Table]:
        """Return the table with its tokens, and the sums after them, as it is saved."""
        more = super().tables()
        if self.tokens is None:
            return more
        table = self.table.append_column("token", pa.array(self.tokens))
        for i, row in enumerate(() if self.sums is None else self.sums):
            table = table.append_column(_free_name(f"sum_{i}", table.column_names), pa.array(row))
        return {**more, MAIN: table}

    @classmethod
    def from_tables(cls, tables: dict[str, pa.Table], mechanism: Mechanism, **other: Any) -> Self:
        """Make a release from its saved tables."""
        table, saved = tables.pop(MAIN), {}
        if "token" in table.column_names:
            place = table.column_names.index("token")
            saved["tokens"], *sums = (column.to_numpy() for column in table.columns[place:])
            table = table.select(range(place))
            saved |= {"sums": np.array(sums)} if sums else {}
        return super().from_tables({MAIN: table, **tables}, mechanism, **saved, **other)

    def _tokens(self) -> Ints:
        if self.tokens is None:
            raise InvalidType("this release holds keys only. Release the keys with counts to order them.")
        return self.tokens


def draw_release(
    mechanism: Counting,
    keys: Any,
    frequencies: ArrayLike,
    *,
    already_sampled: bool = False,
    keys_only: bool = False,
    notes: Notes | None = None,
    source: Source | None = None,
) -> Release:
    """Certify a mechanism, draw a token for each key and keep the reported keys.

    `mechanism` is a channel, noise for known keys, or a composition that ends with one of these. Equal keys are
    refused: they are searched for among all keys up to 131,072 of them, and beyond that among the reported ones, as two
    rows of one rare key would not break the guarantee, and a full search costs more than the draw.
    """
    table, numbers, source = key_table(keys), validate.listed(frequencies), resolve(source)
    if table.num_rows != np.size(numbers):
        raise InvalidValue("keys and frequencies differ in length. Pass one frequency for each key.")
    if table.num_rows <= _SEARCH_ALL:
        refuse_equal(table)
    with timed("certify"):
        mechanism.certify()
    options = {"already_sampled": True} if already_sampled else {}
    table, outcome = draw_keys(mechanism, table, numbers, source, **options)
    return release_of(mechanism, table, outcome, source=source, keys_only=keys_only, notes=notes)


def draw_keys(
    mechanism: Mechanism, keys: pa.Table, numbers: Any, source: Source, **options: Any
) -> tuple[pa.Table, Outcome]:
    """Draw from a certified mechanism that treats each key alone; return the reported keys and their outcome."""
    last: Any = mechanism.last
    with timed("draw"):
        outcome: Outcome = last.draw(numbers, source=source, **options)
    if last.reports_all:
        return keys, outcome
    reported = np.flatnonzero(outcome.tokens)
    sums = None if outcome.sums is None else outcome.sums[:, reported]
    return keys.take(as_arrow(reported)), replace(outcome, tokens=outcome.tokens[reported], sums=sums)


def release_of(
    mechanism: Counting,
    keys: pa.Array | pa.Table,
    outcome: Outcome,
    *,
    source: Source,
    keys_only: bool = False,
    notes: Notes | None = None,
) -> Release:
    """Return the release of an outcome for these keys, sorted by key."""
    table = published(keys)
    refuse_equal(table)
    order = order_of(table)
    table, tokens = table.take(order), outcome.tokens[as_numpy(order)]
    sums = None if outcome.sums is None or keys_only else outcome.sums[:, as_numpy(order)]
    whole = table if keys_only else with_counts(mechanism, outcome.drawn, table, tokens, sums)
    return Release(
        whole,
        mechanism,
        tokens=None if keys_only else tokens,
        sums=sums,
        drawn=outcome.drawn,
        unsafe_to_publish=not source.publishable,
        notes=notes or Notes(),
    )


def stated_contribution(words: str) -> Contribution | None:
    """Return the contribution that notes state; None for other text."""
    if _CLIENT.fullmatch(words):
        return Contribution()
    found = _ADDS.fullmatch(words)
    return (
        None if found is None else Contribution(*(int((number or "1").replace(",", "")) for number in found.groups()))
    )


def _free_name(name: str, taken: list[str]) -> str:
    return _free_name(f"{name}_", taken) if name in taken else name


def with_counts(mechanism: Counting, drawn: Drawn, keys: pa.Table, tokens: Ints, sums: Ints | None = None) -> pa.Table:
    """Return the keys with the columns that their tokens and sums give; see `Release.table`."""
    reader = mechanism.reader(drawn)
    reading, only_upper = reader.read(tokens), np.zeros(len(tokens), np.bool_)
    least = mechanism.least_count if mechanism.withholds else None
    columns = {name: as_arrow(values) for name, values in vars(reading).items()}
    if least is not None:
        only_upper = (reading.low <= least) & (reading.high > least)
        columns["count"] = as_arrow(reading.count, only_upper)
        columns["bound"] = text_array(BOUNDS).take(as_arrow(1 - only_upper.astype(np.int8)))
    if sums is not None:
        steps = tokens * (GRID // cast(Counting, mechanism.last).resolution)
        names = keys.column_names
        columns |= columns_of(totals_of(mechanism), names, steps, sums, reader.half_width_of, only_upper)
    for name, values in columns.items():
        keys = keys.append_column(name, values)
    return keys


def _agree(table: pa.Table, expected: pa.Table) -> bool:
    """Return whether two tables with the same keys are equal, up to the last digits of real numbers."""
    if not table.schema.equals(expected.schema):
        return False
    added = table.column_names[len(key_names(table.column_names)) :]  # not the keys: one of NaN equals no other
    real = [name for name in added if pa.types.is_floating(table.schema.field(name).type)]
    for found, wanted in ((table.column(name), expected.column(name)) for name in real):
        if not found.is_null().equals(wanted.is_null()):
            return False
        off, true = (pc.abs(one).drop_null().to_numpy() for one in (pc.subtract(found, wanted), wanted))
        if not (off <= 1e-9 * np.maximum(true, true.max(initial=0.0))).all():
            return False
    compared = [name for name in added if name not in real]
    return bool(table.select(compared).equals(expected.select(compared)))
