"""Requests: arguments that NumPy made, lists of keys in files, and previews of every job."""

import numpy as np
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.errors import DpsieveError, InvalidType
from dpsieve.jobs.key_set_request import DiscoverRequest
from dpsieve.jobs.request import CountsRequest, ReleaseRequest

BUDGET = {"epsilon": 1.0, "delta": 1e-8}
LOG = pa.table({"user": range(900), "drink": ["tea"] * 600 + ["milk"] * 300})


def test_whole_numbers_of_numpy_are_whole_numbers():
    """A bound that is silently another one would break the promise of counts made elsewhere."""
    for kind in (ReleaseRequest, CountsRequest, DiscoverRequest):
        request = kind(key="drink", privacy_unit="user", max_keys_per_unit=np.int64(5), **BUDGET)
        assert request.contribution.keys == 5 and type(request.max_keys_per_unit) is int
    for wrong in (np.array([1, 2]), 2.0, "Auto", True):
        with pytest.raises(DpsieveError, match="max_keys_per_unit"):
            ReleaseRequest(key="drink", privacy_unit="user", max_keys_per_unit=wrong, **BUDGET)


def test_known_keys_may_be_a_file(tmp_path):
    (tmp_path / "drinks").write_text("tea\nmate\n")
    release = ds.release(
        LOG, key="drink", privacy_unit="user", max_keys_per_unit=1, known_keys=tmp_path / "drinks", **BUDGET
    )
    assert release.table["drink"].to_pylist() == ["mate", "tea"]


def test_keys_that_are_no_numbers_can_be_saved(tmp_path):
    table = pa.table({"user": range(2000), "key": [float("nan")] * 1000 + [1.0] * 1000})
    for number, counts in enumerate((False, True)):
        found = ds.top_k(table, key="key", privacy_unit="user", k=2, counts=counts, **BUDGET)
        assert len(ds.TopK.load(found.save(tmp_path / str(number)))) == 2


@pytest.mark.parametrize("job", ["sum", "mean", "quantile"])
def test_a_preview_without_data_needs_no_column(job):
    asked = {
        "bounds": (0, 100),
        "privacy_unit": "row",
        "epsilon": 1.0,
        **({"quantile": 0.5} if job == "quantile" else {}),
    }
    assert ds.preview(job=job, column=None, **asked) == ds.preview(job=job, **asked)


def test_a_preview_names_what_is_wrong():
    for wrong, name in (({"jobs": 1}, "jobs"), ({"epsilon": None}, "epsilon"), ({}, "delta is missing")):
        with pytest.raises((DpsieveError, InvalidType), match=name):
            ds.preview(**{"privacy_unit": "row", "epsilon": 1.0, **({} if not wrong else {"delta": 1e-8}), **wrong})
