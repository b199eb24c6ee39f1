"""Errors name the argument they are about, in their message and as an attribute."""

import pickle
from dataclasses import dataclass
from typing import Annotated

import pytest

import dpsieve as ds
from dpsieve import validate
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, LedgerError
from dpsieve.values.columns import column_of
from dpsieve.values.keys import known_table


@dataclass(frozen=True)
class Noise(validate.Checked):
    epsilon: Annotated[float, validate.positive_epsilon]
    delta_: Annotated[float, validate.delta, validate.is_positive("Pass delta=1e-8.")]
    rows: Annotated[int, validate.is_whole(1, 9, "Pass the rows.", "max_rows_per_key")] = 1
    words: str = "as they are"


REFUSED = {
    "epsilon": lambda: ds.channels.optimal(-1.0, 1e-8),
    "delta": lambda: ds.channels.optimal(1.0, 0.0),
    "max_rows": lambda: ds.channels.known_keys(1.0, max_rows=0),
    "max_keys_per_unit": lambda: ds.release(
        [1], key="key", privacy_unit="row", epsilon=1.0, delta=1e-8, max_keys_per_unit=0
    ),
    "tau": lambda: ds.ppswor("a tenth"),
    "unit": lambda: ds.channels.optimal(1.0, 1e-8, unit=" "),
    "keys": lambda: column_of("keys", "tea", "Pass a list."),
    "known_keys": lambda: known_table(["tea", "tea"], ("drink",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_has_the_name_of_its_argument(name):
    with pytest.raises(DpsieveError, match=rf"^{name}\b") as refused:
        REFUSED[name]()
    assert refused.value.argument == name


def test_an_error_keeps_its_argument_when_it_is_sent_elsewhere():
    for error in (InvalidType("k is text.", argument="k"), LedgerError("path is gone.", argument="path")):
        copied = pickle.loads(pickle.dumps(error))
        assert (str(copied), copied.argument) == (str(error), error.argument)
    assert DpsieveError("nothing in particular").argument is None


def test_checked_fields_have_their_plain_type():
    noise = Noise(1, 1e-8, rows=True + 1)
    assert (noise.epsilon, type(noise.epsilon), noise.rows) == (1.0, float, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0 is not positive"),
        ({"delta_": 2.0}, "delta=2 is not between"),
        ({"delta_": 0.0}, "delta=0 is not positive"),
        ({"rows": 10}, "max_rows_per_key=10 is not between"),
    ],
)
def test_a_field_outside_of_its_range_is_refused(values, message):
    with pytest.raises(InvalidValue, match=message):
        Noise(**{"epsilon": 1.0, "delta_": 1e-8, **values})


@pytest.mark.parametrize("function", [ds.release, ds.preview])
@pytest.mark.parametrize(
    ("given", "meant"), [("unit", "privacy_unit"), ("eps", "epsilon"), ("max_keys", "max_keys_per_unit")]
)
def test_an_argument_that_does_not_exist_is_named_with_the_one_that_was_meant(function, given, meant):
    with pytest.raises(InvalidType, match=rf"has no argument {given}\. Did you mean {meant}\?") as refused:
        function(data=[1], **{given: 1})
    assert refused.value.argument == given
    with pytest.raises(InvalidType, match=r"has no argument zzz\. It has .*epsilon"):
        function(data=[1], zzz=1)
