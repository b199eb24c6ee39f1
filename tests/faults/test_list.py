"""The list of faults fits the code: `make faults` plants them, and this keeps the list from going stale unnoticed."""

from pathlib import Path

import pytest
from faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_its_file_once_and_names_tests_that_exist(fault):
    assert (ROOT / fault.path).read_text(encoding="utf-8").count(fault.old) == 1
    assert fault.new != fault.old
    for test in fault.tests.split():
        file, *names = test.split("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert all(f"def {name}(" in text or f"class {name}:" in text for name in names), test


def test_names_are_distinct_and_there_are_many():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30
