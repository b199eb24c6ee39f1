"""Messages of the library, in the words of the command line."""

import pytest

from dpsieve.cli.command import spell_options

NAMES = frozenset(
    (
        "column",
        "bounds",
        "privacy_unit",
        "max_rows_per_unit",
        "quantile",
        "epsilon",
        "delta",
        "method",
        "where",
        "allow_null_units",
    )
)


@pytest.mark.parametrize(("said", "typed"), [
    ("bounds is empty. Pass bounds=(0, 100).", "--bounds is empty. Pass --bounds 0,100."),
    ("quantile=2 is not between 0 and 1.", "--quantile 2 is not between 0 and 1."),
    ("quantile must be a number. Pass 0.5 or [0.25, 0.5].", "--quantile must be a number. Pass 0.5 or 0.25,0.5."),
    ("column='a b' is not there. Did you mean 'ab'?", "--column 'a b' is not there. Did you mean 'ab'?"),
    ("column='price' is no number.", "--column price is no number."),
    ("column=\"it's\" is no number.", "--column \"it's\" is no number."),
    ("x needs a privacy_unit, such as privacy_unit='id'.", "x needs a --privacy-unit, such as --privacy-unit id."),
    ("Pass delta=1e-8 too, or method='box'.", "Pass --delta 1e-8 too, or --method box."),
    ("Pass epsilon=1.0, or epsilon and delta.", "Pass --epsilon 1.0, or epsilon and delta."),
    ("Pass allow_null_units=True, or fix them.", "Pass --allow-null-units, or fix them."),
    ("Pass epsilon=... for more.", "Pass --epsilon ... for more."),
    ("memory_limit is not a size.", "--memory is not a size."),
    ("data has too few units: the column is short.", "data has too few units: the column is short."),
    ("folder/release.json cannot be read.", "folder/release.json cannot be read."),
    ("method.csv has no line.", "method.csv has no line."),
    ("where='prise' is not a column of the data.", "--where prise is not a column of the data."),
])  # fmt: skip
def test_arguments_become_options(said, typed):
    assert spell_options(said, NAMES) == typed


def test_options_that_repeat_and_goals_are_spelled_as_they_are_typed():
    assert spell_options("sums='price' is not a column.", frozenset({"sums"})) == "--sum price is not a column."
    assert spell_options("Pass a pair, such as appear=(50, 0.95).") == "Pass a pair, such as --appear 50:0.95."


def test_names_of_columns_stay_what_they_are():
    assert spell_options("--column max_rows_per_unit is odd.", frozenset({"q"})) == "--column max_rows_per_unit is odd."
    assert spell_options("column='max_rows_per_unit' is odd.", NAMES) == "--column max_rows_per_unit is odd."
