"""The short audit of every public path: it passes, and the same runs refute smaller claims; no path is left out."""

import inspect
import math
from dataclasses import fields

import pytest
from page import OUTCOMES, PAGE, grades, long_audits, page, rows
from paths import AUDITS, EVERY
from reached import Reached, run_once

import dpsieve as ds
from dpsieve.jobs.request import CountsRequest, Request
from dpsieve.privacy.mechanism import Mechanism


@pytest.mark.parametrize("name", AUDITS)
def test_a_path_keeps_its_promise_and_smaller_ones_are_refuted(name):
    """The source is fixed, so nothing is left to chance; the claim is tested at one in a million."""
    path = AUDITS[name]
    found = path.audit()
    assert found.passed, found
    if found.kind != "dependence":
        assert found.lower <= path.epsilon
        assert found.detectable < math.inf or path.epsilon > 2.5, "otherwise it could not fail"
        if path.share is None:
            assert found.lower_at(0.0) == 0.0
        else:
            assert found.lower_at(path.share * path.delta) > path.share * path.epsilon


def test_no_path_is_left_out():
    """One call of each path is traced: together they draw every mechanism, and take every choice of every job."""
    reached = Reached()
    for path in EVERY.values():
        run_once(path, reached)
    check_mechanisms(reached)
    check_choices(reached)
    check_functions(reached)


def subclasses(cls):
    return {each for direct in cls.__subclasses__() for each in (direct, *subclasses(direct))}


def check_mechanisms(reached):
    """Check that every mechanism draws, but those of `papers`, which are for comparison."""
    concrete = {
        each
        for each in subclasses(Mechanism)
        if not inspect.isabstract(each) and each.__module__.startswith("dpsieve.") and ".papers." not in each.__module__
    }
    through = {"Composed", "TopCounts", "_NoisySize", "_Weighted"}  # by their parts, and two bases
    assert {each.__name__ for each in concrete - reached.drew} <= through


def check_choices(reached):
    """Check that every choice of every request is taken."""
    made = reached.requests
    missing = []
    for request in subclasses(Request):
        own = [each for each in made if isinstance(each, request)]
        taken = inspect.signature(ds.release_counts).parameters if request is CountsRequest else None
        for field in fields(request):
            if taken is not None and field.name not in taken:
                continue
            taken_choices = {getattr(each, field.name) for each in own if field.metadata["choices"]}
            left = [choice for choice in field.metadata["choices"] if choice not in taken_choices]
            missing += [f"{request.__name__}.{field.name}={choice!r}" for choice in left]
    apart = {"CountsRequest.method='laplace'"}  # for known keys, which counts have not
    assert set(missing) <= apart


def check_functions(reached):
    """Check that every public function that draws is called."""
    public = {name: getattr(ds, name) for name in ds.__all__}
    for module in (ds.channels, ds.federated):
        public |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    drawing = {}
    for name, value in public.items():
        members = {name: value} if inspect.isfunction(value) else {}
        if inspect.isclass(value):
            members = {f"{name}.{n}": member for n, member in inspect.getmembers(value) if not n.startswith("_")}
        for full, member in members.items():
            function = inspect.unwrap(getattr(member, "__func__", member))
            if inspect.isfunction(function) and "source" in inspect.signature(function).parameters:
                drawing[full] = function.__code__
    assert len(drawing) > 20
    apart = {"audit"}  # which calls them all
    assert {name for name, code in drawing.items() if code not in reached.codes} <= apart


def test_the_page_shows_the_stored_power():
    assert page() == PAGE.read_text(encoding="utf-8")
    assert {"contradicted", "unchanged"} <= {row["outcome"] for row in rows()} <= set(OUTCOMES)
    measured = {row["path"] for row in [*grades(), *long_audits()]}
    assert set(AUDITS) <= measured <= set(EVERY)
    assert all(row["passed"] == "yes" for row in long_audits())
