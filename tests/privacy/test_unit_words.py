"""One spelling of who is protected."""

import pytest

from dpsieve.channels.unknown_keys import optimal
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.guarantee import Guarantee, unit_words
from dpsieve.privacy.ledger import Ledger


@pytest.mark.parametrize(("unit", "words"), [
    ("user_id", "one user_id"), ("one user_id", "one user_id"), (["user_id"], "one user_id"), ((), "one row"),
    (("tenant", "user_id"), "one (tenant, user_id)"), (["user_id", "tenant"], "one (tenant, user_id)"),
    ("user id", "one user id"), ("oneself", "one oneself"), ("(a, b)", "one (a, b)"), (["a, b"], "one a, b"),
])  # fmt: skip
def test_what_means_the_same_is_written_in_one_way(unit, words):
    assert unit_words(unit) == unit_words(words) == words
    assert Guarantee(1.0, unit=unit).unit == words


def test_different_columns_have_different_words():
    given = [("a, b", "c"), ("a", "b, c"), ("a", "b", "c"), ("(a, b)", "c"), ("(a, b, c)",), ('"(a, b, c)"',), ("a",)]
    assert len({unit_words(columns) for columns in given}) == len(given)


@pytest.mark.parametrize("wrong", [None, 7, "", " ", "a\nb", ["a", 7], [""], {"a"}, []])
def test_what_is_refused(wrong):
    with pytest.raises((InvalidType, InvalidValue), match=r"^unit .*Say who is protected, such as unit='user_id'"):
        unit_words(wrong)


def test_mechanisms_and_guarantees_are_equal_however_their_unit_was_spelled():
    assert optimal(1.0, 1e-6, unit="user") == optimal(1.0, 1e-6, unit="one user")
    assert Guarantee(1.0, unit="user").implies(Guarantee(2.0, unit="one user"))
    assert not Guarantee(1.0, unit="user").implies(Guarantee(2.0, unit=["tenant", "user"]))


def test_a_ledger_takes_every_spelling(tmp_path):
    path = tmp_path / "budget.ledger"
    ledger = Ledger(path, 2.0, 1e-6, unit=["tenant", "user"])
    assert ledger.budget.unit == "one (tenant, user)"
    for spelled in (["user", "tenant"], "one (tenant, user)", ("tenant", "user")):
        Ledger(path, unit=spelled).spend(Guarantee(0.1, unit=spelled))
    for other in ("user", ["tenant"], ["tenant", "user", "x"], ()):
        with pytest.raises(InvalidValue, match=r"the ledger for 'one \(tenant, user\)'"):
            ledger.spend(Guarantee(0.1, unit=other))
        with pytest.raises(InvalidValue, match="is not the unit="):
            Ledger(path, unit=other)
    assert len(ledger) == 3
    assert Ledger(tmp_path / "rows.ledger", 1.0, 1e-6).budget.unit == "one row"
