"""The list of faults fits the code: `make faults` plants them, and this keeps the list from going stale unnoticed."""

from functools import cache
from pathlib import Path

import pytest
from faults import FAULTS

ROOT = Path(__file__).parents[2]


@cache
def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted({fault.path for fault in FAULTS}))
def test_a_fault_fits_its_file_once_and_names_tests_that_exist(path):
    for fault in FAULTS:
        if fault.path == path:
            assert text_of(path).count(fault.old) == 1, fault.name
            assert fault.new != fault.old, fault.name
            for test in fault.tests.split():
                file, *names = test.split("::")
                text = text_of(f"tests/{file}")
                assert all(f"def {name}(" in text or f"class {name}:" in text for name in names), (fault.name, test)


def test_names_are_distinct_and_there_are_many():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30
