"""The trace of a call: modules, functions, package changes, calls by name."""

import pyarrow as pa
from helpers.tracing import Trace, trace

import dpsieve as ds


def test_trace():
    kind = ds.Guarantee
    found = trace(lambda: kind(1.0, 1e-6).to_json())
    assert found.entered[0] == (kind.__module__, "Guarantee.__init__")
    assert found.modules[0] == kind.__module__
    assert found.count("Guarantee.__init__") == found.count("Saved.to_json") == 1
    assert found.packages[0] == "dpsieve.privacy"
    assert found.package_changes >= len(found.packages) - 1
    assert found.functions == len(found.calls) <= len(found.entered)


def test_modules_are_entered_in_an_order():
    found = Trace([("dpsieve.a.one", "f"), ("dpsieve.b", "g"), ("dpsieve.a.one", "h"), ("dpsieve.a.two", "f")])
    for order in ([], ["a.one", "b", "a.one"], ["b", "a"], ["a", "b", "a.two"]):
        assert found.first_missed([f"dpsieve.{name}" for name in order]) is None
    for order, missed in (
        (["b", "a.one", "b"], "b"),
        (["a.tw"], "a.tw"),
        (["c", "b"], "c"),
        (["a.two", "a.one"], "a.one"),
    ):
        assert found.first_missed([f"dpsieve.{name}" for name in order]) == f"dpsieve.{missed}"


def test_the_same_call_has_the_same_trace():
    table = pa.table({"drink": ["tea"] * 100, "user": range(100)})
    engine = ds.engines.DuckDB(threads=1)

    def release():
        terms = {"epsilon": 1.0, "delta": 1e-3, "max_keys_per_unit": 1, "engine": engine}
        ds.release(table, key="drink", privacy_unit="user", source=ds.testing.insecure_source(1), **terms)

    first, second = trace(release).calls, trace(release, warm=0).calls
    for calls in (first, second):
        del calls["dpsieve.locks.lock"]  # taken once more per temporary folder that another process left behind
    assert first == second
