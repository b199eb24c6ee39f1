"""What a table of a release must be, given its mechanism and its tokens."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.channels.channel import LARGEST_FREQUENCY, Channel
from dpsieve.errors import InvalidValue
from dpsieve.privacy.mechanism import Floats, Mechanism
from dpsieve.publication.draw import key_fields, refuse_equal
from dpsieve.publication.release import checked_keys, table_of

_WHOLE = 2.0**51  # parts up to here are told apart after a division


def check_table(mechanism: Mechanism, table: pa.Table, tokens: Floats | None) -> None:
    """Raise unless keys are distinct and sorted, tokens possible, and all else is what they tell."""
    if table.column_names[:1] != ["key"]:
        raise _wrong("has no column of keys")
    keys = checked_keys(table.column("key"))
    refuse_equal(keys)
    if not is_sorted(key_fields(keys)):
        raise _wrong("is not sorted by key")
    if not len(keys) and keys.type != pa.string():
        raise _wrong("has a type of keys but no keys")
    if len(keys) > getattr(mechanism, "counters", np.inf) * getattr(mechanism, "sources", 1):
        raise _wrong("has more keys than the sketch has counters")
    expected = pa.table({"key": keys})
    if tokens is not None:
        if tokens.dtype != np.float64 or tokens.shape != (len(keys),) or not possible(mechanism, tokens):
            raise _wrong("has tokens that the mechanism cannot give out")
        expected = table_of(mechanism, keys, tokens)
    if not _agree(table, expected):
        raise _wrong("has other columns than its tokens tell")


def possible(mechanism: Mechanism, tokens: Floats) -> bool:
    """Return whether a mechanism can give out these tokens."""
    mechanism = getattr(mechanism, "channel", mechanism)
    if not np.isfinite(tokens).all() or (np.abs(tokens) > 2.0**53).any():
        return False
    parts, least = _parts(mechanism)
    whole = np.rint(tokens * parts)
    if ((whole / parts != tokens) & (np.abs(whole) < _WHOLE)).any() or (whole < least).any():
        return False
    return not isinstance(mechanism, Channel) or not len(tokens) or _in_rows(mechanism, tokens)


def is_sorted(table: pa.Table) -> bool:
    """Return whether the rows of a table are in order, by its columns from the first to the last."""
    order = pc.sort_indices(table, [(name, "ascending") for name in table.column_names])
    return bool((np.diff(order.to_numpy().astype(np.int64)) > 0).all())


def _parts(mechanism: Mechanism) -> tuple[int, float]:
    """Return in which parts of a unit tokens are counted, and the least there is, in such parts."""
    if isinstance(mechanism, Channel):
        return mechanism.resolution, getattr(mechanism, "threshold", 1)
    if mechanism.name == "misra_gries_sum":
        return mechanism.counters + 1, mechanism.least  # type: ignore[attr-defined]
    return 1, getattr(mechanism, "threshold", -np.inf)


def _in_rows(channel: Channel, tokens: Floats) -> bool:
    """Return whether each token has some probability in the row of its likeliest frequency.

    Where no row has a token, a channel answers with a frequency out of its reach, or with 1.
    """
    if hasattr(channel, "threshold"):  # a sampled count of any size from the threshold on
        return bool(tokens.max() <= LARGEST_FREQUENCY)
    likeliest = channel.likeliest(tokens)
    if (np.abs(tokens - likeliest) > channel.reach).any() or tokens.max() > LARGEST_FREQUENCY + channel.reach:
        return False
    thinned = channel.scheme is not None and channel.name.startswith("sampled")
    for frequency in np.unique(likeliest) if thinned else [1]:
        row, found = channel.row(int(frequency)), tokens[likeliest == frequency]
        cell = np.searchsorted(row.right, found, side="left")
        if (cell == len(row.right)).any():
            return False
        left, right = row.left[cell], row.right[cell]  # a cell is (left, right], or one point
        if not (np.where(left == right, right == found, left < found) & (row.mass[cell] > 0)).all():
            return False
    return True


def _agree(table: pa.Table, expected: pa.Table) -> bool:
    """Return whether two tables are the same, but for the last digits of the weight."""
    if not table.schema.equals(expected.schema):
        return False
    if "weight" in table.column_names:
        if table.column("weight").null_count:
            return False
        found, wanted = (one.column("weight").to_numpy() for one in (table, expected))
        if not (np.abs(found - wanted) <= 1e-9 * np.abs(wanted)).all():
            return False
        table, expected = table.drop_columns(["weight"]), expected.drop_columns(["weight"])
    return bool(table.equals(expected))


def _wrong(what: str) -> InvalidValue:
    return InvalidValue(f"table {what}. Use the release as it was made.")
