"""The Release: keys, counts, intervals, guarantee and certificate, and nothing that was not made private."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.channels.channel import Channel, checked_frequencies
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.randomness.source import Source

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

LEVEL = 0.95
_SEARCH_ALL = 1 << 17  # up to so many keys, all are searched for repetitions; beyond, the reported ones


@dataclass(frozen=True, eq=False)
class Release:
    """A private release: post-process it freely, the guarantee stays.

    Attributes:
        table: one row for each reported key, sorted by key: `key`, `count` (the likeliest true frequency), `low` and
            `high` (its 95 % confidence interval), `weight` (the key's share in estimates of sums over all keys).
        guarantee: what is promised, and to whom.
        certificate: the kernel's check of the integers that were drawn from.
        channel: how the tokens were made; it holds no data.
        tokens: the raw output of the channel for each row of the table, in units of frequency.
        unsafe_to_publish: True when the randomness came from a seeded test source.
    """

    table: pa.Table
    guarantee: Guarantee
    certificate: Certificate
    channel: Channel
    tokens: np.ndarray[Any, np.dtype[np.float64]]
    unsafe_to_publish: bool = False

    @classmethod
    def draw(
        cls, channel: Channel, keys: ArrayLike, frequencies: ArrayLike, *, already_sampled: bool, source: Source
    ) -> "Release":
        """Check the input, certify the channel, draw a token for each key and keep those that are reported."""
        names, counts = _keys(keys), checked_frequencies(frequencies)
        if len(names) != len(counts):
            raise InvalidValue("keys and frequencies differ in length. Pass one frequency for each key.")
        if len(names) <= _SEARCH_ALL:
            _distinct(names)
        certificate = channel.certify()
        tokens = channel.draw(counts, already_sampled=already_sampled, source=source)
        reported = np.flatnonzero(tokens)
        names, tokens = names.take(pa.array(reported)), tokens[reported]
        _distinct(names)
        order = pc.sort_indices(names)
        table = _table(channel, names.take(order), tokens := tokens[order.to_numpy()])
        return cls(table, channel.guarantee, certificate, channel, tokens, not source.publishable)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        warning = " UNSAFE TO PUBLISH: drawn from a test source." if self.unsafe_to_publish else ""
        return f"<Release of {len(self):,} keys: {self.guarantee}{warning}>"

    def top(self, k: int = 10) -> pa.Table:
        """Return the k rows with the largest tokens, largest first: the best guess at the k most frequent keys."""
        k = validate.whole("k", k, low=1, hint="Pass how many rows to show.")
        return self.table.take(pa.array(np.argsort(-self.tokens, kind="stable")[:k]))

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a pandas frame."""
        return self.table.to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Return the table as a Polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.table)
        if not isinstance(frame, pl.DataFrame):
            raise InvalidType("the table did not convert to a Polars frame.")
        return frame


def _table(channel: Channel, keys: pa.Array, tokens: np.ndarray[Any, np.dtype[np.float64]]) -> pa.Table:
    count = channel.likeliest(tokens)
    low, high = channel.interval(tokens, LEVEL)
    weight = count / channel.reporting_probability(count)
    return pa.table({"key": keys, "count": count, "low": low, "high": high, "weight": weight})


def _keys(keys: Any) -> pa.Array:
    hint = "Pass the distinct keys, without nulls, as an Arrow array or a list."
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    try:
        array = keys if isinstance(keys, pa.Array) else pa.array(keys)
    except (pa.ArrowException, TypeError, ValueError):
        raise InvalidType(f"keys cannot be read as one column. {hint}") from None
    if array.null_count:
        raise InvalidValue(f"keys holds nulls. {hint}")
    return array


def _distinct(keys: pa.Array) -> None:
    if len(pc.unique(keys)) != len(keys):
        raise InvalidValue("keys holds a key more than once. Add up the frequencies of equal keys first.")
