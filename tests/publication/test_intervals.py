"""Intervals of a release at a level of one's choice."""

import numpy as np
import pytest

import dpsieve as ds
from dpsieve.errors import DpsieveError, InvalidType
from dpsieve.testing import insecure_source

KEYS, FREQUENCIES = ["tea", "milk", "salt"], [900, 60, 40]
MECHANISMS = {
    "a channel": lambda: ds.channels.simple(1.0, 1e-3),
    "noise for known keys": lambda: ds.channels.known_keys(1.0),
    "Gaussian noise for known keys": lambda: ds.channels.known_keys(1.0, 1e-6, max_keys=9, noise="gaussian"),
    "clients": lambda: ds.channels.sample_threshold(0.5, 3),
}


@pytest.mark.parametrize("make", MECHANISMS.values(), ids=MECHANISMS)
def test_wider_at_higher_levels_and_those_of_the_table_at_95_percent(make):
    release = make().release(KEYS, FREQUENCIES, source=insecure_source(3))
    ends = [release.intervals(level) for level in (0.5, 0.95, 0.9999)]
    assert ends[1].equals(release.table.select(["key", "low", "high"]))
    widths = [end["high"].to_numpy() - end["low"].to_numpy() for end in ends]
    assert (np.diff(widths, axis=0) >= 0).all() and (widths[0] < widths[2]).all()


def test_a_rank_of_known_keys():
    release = ds.channels.known_keys(1.0).release(KEYS, FREQUENCIES, source=insecure_source(3))
    rank = release.rank("milk")
    assert rank.low <= rank.place <= rank.high and rank.place == 2


def test_what_has_no_such_intervals():
    sketch = ds.MisraGries(8)
    sketch.update(["tea"] * 500)
    with pytest.raises(InvalidType, match="level"):
        sketch.release(1.0, 1e-6, source=insecure_source(1)).intervals(0.5)
    release = ds.channels.known_keys(1.0).release(KEYS, FREQUENCIES, source=insecure_source(3))
    for level in (-0.1, 1.5, "x", None):
        with pytest.raises(DpsieveError, match="level"):
            release.intervals(level)
    with pytest.raises(InvalidType, match="keys only"):
        ds.channels.simple(1.0, 1e-3).release(KEYS, FREQUENCIES, keys_only=True).intervals()
