"""Messages of the library, in the words of the command line."""

import pytest

from dpsieve.cli.messages import as_typed

OPTIONS = {
    "column": "column", "bounds": "bounds", "privacy_unit": "unit", "max_rows_per_unit": "max-rows", "q": "quantile",
    "epsilon": "epsilon", "rho": "rho", "delta": "delta", "method": "method", "allow_null_units": "allow-null-units",
}  # fmt: skip


@pytest.mark.parametrize(("said", "typed"), [
    ("bounds is empty. Pass bounds=(0, 100).", "--bounds is empty. Pass --bounds 0,100."),
    ("q=2 is not between 0 and 1.", "--quantile 2 is not between 0 and 1."),
    ("q must be a number. Pass 0.5 or [0.25, 0.5].", "--quantile must be a number. Pass 0.5 or 0.25,0.5."),
    ("column='a b' is not there. Did you mean 'ab'?", "--column 'a b' is not there. Did you mean 'ab'?"),
    ("column='price' is no number.", "--column price is no number."),
    ("column=\"it's\" is no number.", "--column \"it's\" is no number."),
    ("x needs a privacy_unit, such as privacy_unit='id'.", "x needs a --unit, such as --unit id."),
    ("Pass delta=1e-8 too, or method='box'.", "Pass --delta 1e-8 too, or --method box."),
    ("Pass epsilon=1.0, or epsilon and delta.", "Pass --epsilon 1.0, or epsilon and delta."),
    ("Pass allow_null_units=True, or mend them.", "Pass --allow-null-units, or mend them."),
    ("Pass epsilon=... for more.", "Pass --epsilon ... for more."),
    ("data has too few units: the column is short.", "data has too few units: the column is short."),
])  # fmt: skip
def test_arguments_become_options(said, typed):
    assert as_typed(said, OPTIONS) == typed


def test_names_of_columns_stay_what_they_are():
    assert as_typed("--column max_rows_per_unit is odd.", {"q": "quantile"}) == "--column max_rows_per_unit is odd."
    assert as_typed("column='max_rows_per_unit' is odd.", OPTIONS) == "--column max_rows_per_unit is odd."
