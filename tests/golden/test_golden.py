"""Publications drawn from repeatable sources stay the same, and so do the public names and their signatures."""

import pytest
from golden import digests, public_names
from golden.cases import CASES, MECHANISMS

UPDATE = "If that is intended, run python tests/golden/update.py"
STORED = digests.stored()


@pytest.mark.parametrize("name", CASES)
def test_publication(name):
    found = digests.changes(STORED.get(name), digests.describe(name))
    assert not found, f"{'; '.join(found)}. {UPDATE} (with --record-only where only the form of records changed)."


def test_no_case_is_lost():
    assert set(STORED) == set(CASES)


def test_every_mechanism_has_a_case():
    assert {name for case in STORED.values() for name in case.get("mechanisms", ())} == set(MECHANISMS)


def test_public_names():
    assert public_names.listing() == public_names.stored(), f"Public names or signatures changed. {UPDATE} --api."
