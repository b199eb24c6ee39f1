"""From keys and true frequencies to a Release: the one place where tokens are drawn for people."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from dpsieve.channels.channel import Channel, checked_frequencies
from dpsieve.errors import InvalidValue
from dpsieve.privacy import Certificate
from dpsieve.privacy.mechanism import Floats, Mechanism
from dpsieve.publication.release import Release, checked_keys, table_of
from dpsieve.randomness.source import Source

_SEARCH_ALL = 1 << 17


def draw_release(
    channel: Channel, keys: ArrayLike, frequencies: ArrayLike, *, already_sampled: bool, keys_only: bool, source: Source
) -> Release:
    """Check the input, certify the channel, draw a token for each key and keep the keys that are reported.

    Equal keys are refused. They are searched for among all keys up to 131,072 of them, and beyond that among the
    reported ones: two rows of one rare key would not break the guarantee, and a full search costs more than the draw.
    """
    names, counts = checked_keys(keys), checked_frequencies(frequencies)
    if len(names) != len(counts):
        raise InvalidValue("keys and frequencies differ in length. Pass one frequency for each key.")
    if len(names) <= _SEARCH_ALL:
        refuse_equal(names)
    certificate = channel.certify()
    tokens = channel.draw(counts, already_sampled=already_sampled, source=source)
    reported = np.flatnonzero(tokens)
    names, tokens = names.take(pa.array(reported)), tokens[reported]
    return release_of(channel, certificate, names, tokens, source=source, keys_only=keys_only)


def release_of(
    mechanism: Mechanism,
    certificate: Certificate,
    keys: pa.Array,
    tokens: Floats,
    *,
    source: Source,
    keys_only: bool = False,
) -> Release:
    """Return the release of tokens that a certified mechanism drew for these keys, sorted by key.

    Without any key the column is text, whatever the data holds: its type would tell that there was some.
    """
    if not len(keys):
        keys = pa.array([], pa.string())
    refuse_equal(keys)
    fields = key_fields(keys)
    order = pc.sort_indices(fields, [(name, "ascending") for name in fields.column_names])
    keys, tokens = keys.take(order), tokens[order.to_numpy()]
    table = pa.table({"key": keys}) if keys_only else table_of(mechanism, keys, tokens)
    kept = None if keys_only else tokens
    return Release(table, mechanism.guarantee, certificate, mechanism, kept, not source.publishable)


def key_fields(keys: pa.Array) -> pa.Table:
    """Return keys as a table, of one column or, for keys of several columns, of each."""
    if not pa.types.is_struct(keys.type):
        return pa.table({"key": keys})
    return pa.Table.from_arrays(keys.flatten(), names=[str(k) for k in range(keys.type.num_fields)])


def refuse_equal(keys: pa.Array) -> None:
    """Raise when a key is there more than once."""
    if pa.types.is_struct(keys.type):
        fields = key_fields(keys)
        distinct = fields.group_by(fields.column_names).aggregate([]).num_rows
    else:
        distinct = len(pc.unique(keys))
    if distinct != len(keys):
        raise InvalidValue("keys holds a key more than once. Add up the frequencies of equal keys first.")
