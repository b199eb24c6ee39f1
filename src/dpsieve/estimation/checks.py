"""Checks that the functions of this room share. Messages never hold a frequency, a count or a token."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.channel import LARGEST_FREQUENCY, Channel, checked_frequencies
from dpsieve.errors import InvalidType, InvalidValue

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LARGEST_TOKEN = 2 * LARGEST_FREQUENCY


def a_channel(channel: object) -> Channel:
    """Return the channel, or say how to make one."""
    if not isinstance(channel, Channel):
        hint = "Pass one such as dpsieve.channels.optimal(epsilon=1.0, delta=1e-8)."
        raise InvalidType(f"channel must be a Channel, not {type(channel).__name__}. {hint}")
    return channel


def true_frequencies(name: str, values: ArrayLike) -> Ints:
    """Return true frequencies, 1 to 10^12, in the shape in which they came."""
    hint = f"Pass whole numbers from 1 to 10^12, such as {name}=20."
    try:
        array = np.asarray(values)
    except ValueError:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}") from None
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidType(f"{name} must be a whole number or an array of them. {hint}")
    flat = validate.integers(name, array.ravel(), hint=hint)
    if len(flat) and not 1 <= int(flat.min()) <= int(flat.max()) <= LARGEST_FREQUENCY:
        raise InvalidValue(f"{name} holds a frequency below 1 or above 10^12. {hint}")
    return flat.reshape(array.shape)


def token_parts(channel: Channel, tokens: ArrayLike) -> Ints:
    """Return tokens as the whole parts they were drawn as; 0 stays 0 and means 'nothing'."""
    hint = "Pass tokens as `draw` returns them."
    try:
        values = np.atleast_1d(np.asarray(tokens, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidType(f"tokens must be numbers. {hint}") from None
    if values.ndim != 1:
        raise InvalidType(f"tokens must be a number or a flat sequence of them. {hint}")
    if not (np.isfinite(values) & (values >= 0) & (values <= _LARGEST_TOKEN)).all():
        raise InvalidValue(f"tokens must be finite, and zero or more. {hint}")
    return np.ceil(values * channel.resolution).astype(np.int64)


def histogram(frequencies: ArrayLike, counts: ArrayLike | None) -> tuple[Ints, Floats]:
    """Return increasing distinct frequencies and how many keys have each; without counts, one key for each entry.

    Counts may be fractions, as in an expected histogram. Frequencies that no key has are dropped.
    """
    rows = checked_frequencies(frequencies)
    hint = "Pass the number of keys for each frequency: zero or more, and some above zero."
    try:
        keys = np.ones(len(rows)) if counts is None else np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidType(f"counts must be numbers. {hint}") from None
    if keys.shape != rows.shape:
        raise InvalidValue(f"counts and frequencies differ in length. {hint}")
    if not (np.isfinite(keys) & (keys >= 0)).all() or not keys.any():
        raise InvalidValue(f"counts holds a number that is negative or not finite, or no key at all. {hint}")
    distinct, place = np.unique(rows[keys > 0], return_inverse=True)
    return distinct, np.bincount(place, weights=keys[keys > 0]).astype(np.float64)
