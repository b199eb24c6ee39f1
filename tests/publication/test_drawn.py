"""Numbers that were drawn beside the table: saved next to the mechanism, and checked against it and the table."""

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from publication.fuzzing import KEYS, Saved

import dpsieve as ds
from dpsieve.errors import CorruptRelease, InvalidValue
from dpsieve.jobs.bounds import Way
from dpsieve.noise.keys_per_unit import MOST


def of_a_sketch():
    sketch = ds.MisraGries(5)
    sketch.update(["tea"] * 500 + ["milk"] * 400)
    return sketch.release(1.0, 1e-6)


def of_two_steps():
    """Units with 50 keys each, counted in two steps."""
    users, keys = np.divmod(np.arange(3_000 * 50), 50)
    table = pa.table({"user": users, "key": keys})
    with patch("dpsieve.jobs.release.choose_way", return_value=Way("two_steps", MOST, 0.6)):
        return ds.release(table, key="key", privacy_unit="user", epsilon=10.0, delta=1e-4, goal="counts")


def of_a_mean():
    rows = pa.table({"user": range(90), "x": [1.0, 2.0, 6.0] * 30})
    return ds.mean(rows, column="x", privacy_unit="user", bounds=(0, 10), neighbours="add_remove", epsilon=5.0)


DRAWN = {"lost": of_a_sketch, "keys": of_two_steps, "units": of_a_mean}


def refused(saved, record):
    saved.write(record)
    with pytest.raises(CorruptRelease):
        saved.load(saved.folder)


@pytest.mark.parametrize("name", DRAWN)
def test_forged_numbers_are_refused(tmp_path, name):
    """Another number would state other intervals, and a number of another type or name has no meaning."""
    made = DRAWN[name]()
    saved, right = Saved(made, tmp_path / "x"), made.drawn[name]
    assert saved.load(saved.folder).drawn == made.drawn == {name: right} == saved.record["drawn"]
    other_type = float(right) if isinstance(right, int) else round(right)
    for value in (right + 1, -right - 9, other_type, str(right), True, 10**40):
        refused(saved, {**saved.record, "drawn": {name: value}})
    for drawn in ({**made.drawn, "more": 1}, {"other": right}, {}, None):
        refused(saved, {**saved.record, "drawn": drawn})
    refused(saved, {field: value for field, value in saved.record.items() if field != "drawn"})


@pytest.mark.parametrize("name", DRAWN)
def test_the_mechanism_holds_no_drawn_number(name):
    """So neither its saved form nor its certificate depends on what was drawn."""
    saved = DRAWN[name]().mechanism.last.to_json()
    assert saved.get(name) is None


def test_a_mechanism_that_draws_nothing_beside_its_tokens_has_no_such_numbers(tmp_path):
    made = ds.channels.simple(1.0, 1e-3).release(KEYS, [500] * 4)
    saved = Saved(made, tmp_path / "x")
    assert made.drawn == {} and "drawn" not in saved.record
    for drawn in ({"lost": 3}, {}, None, []):
        refused(saved, {**saved.record, "drawn": drawn})
    with pytest.raises(InvalidValue, match="drawn must be empty"):
        ds.Release(made.table, made.mechanism, tokens=made.tokens, drawn={"lost": 3})
