"""What a type checker finds in a user's script: every misspelled choice, and nothing else in the same calls."""

import inspect
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import dpsieve as ds
from dpsieve.jobs import collect, discover, numbers, release
from dpsieve.jobs.key_set_request import DiscoverRequest, HittingSetRequest, TopKRequest
from dpsieve.jobs.number_request import (
    DistributionRequest,
    HeavyHittersRequest,
    HistogramRequest,
    MeanRequest,
    QuantileRequest,
    SumRequest,
)
from dpsieve.jobs.table_request import TableRequest
from dpsieve.types import Floats

ROOT, SOURCE = Path(__file__).parents[2], Path(ds.__file__).parents[1]
JOBS = {
    release.release: TableRequest,
    discover.discover: DiscoverRequest,
    discover.top_k: TopKRequest,
    discover.hitting_set: HittingSetRequest,
    numbers.sum: SumRequest,
    numbers.mean: MeanRequest,
    numbers.quantile: QuantileRequest,
    collect.collect_histogram: HistogramRequest,
    collect.collect_heavy_hitters: HeavyHittersRequest,
    collect.collect_quantiles: DistributionRequest,
}
HEAD = """
from dpsieve.discovery.selector import Selector
from dpsieve.federated.client import Budget
from dpsieve.noise.known_keys import known_keys
from dpsieve.noise.private_total import release_sample
from dpsieve.noise.report_then_count import report_then_count
from dpsieve.papers import thesis
import dpsieve as ds

def share(mean: ds.Estimate, table: object) -> float:
    return float(mean.value)

def calls(table: object) -> None:
"""
TABLE = "table, key='query', privacy_unit='user', epsilon=1.0, delta=1e-8"
COLUMN = "table, column='query', privacy_unit='user', epsilon=1.0, delta=1e-8"
# In each call, ~ follows the choice: what precedes it is right, and a letter in its place is a misspelling.
CALLS = f"""
ds.release({TABLE}, goal="counts~")
ds.release({TABLE}, method="gaussian~")
ds.release({TABLE}, max_keys_per_unit="auto~")
ds.discover({TABLE}, method="renyi~")
ds.top_k({TABLE}, k=10, method="greedy~")
ds.hitting_set({TABLE}, k=10, method="one_key~")
ds.sum([1.0], bounds=(0, 1), epsilon=1.0, neighbours="replace~")
ds.mean([1.0], bounds=(0, 1), epsilon=1.0, method="box~")
ds.mean([1.0], bounds=(0, 1), epsilon=1.0, kind="binary~")
ds.quantile([1.0], quantile=0.5, bounds=(0, 1), epsilon=1.0, method="halving~")
ds.quantile([1.0], quantile=0.5, bounds=(1, 2), epsilon=1.0, scale="log~")
ds.collect_histogram({COLUMN}, goal="reach~")
ds.collect_histogram({COLUMN}, neighbours="replace~")
ds.collect_heavy_hitters({COLUMN}, max_length=9, protocol="cohorts~")
ds.collect_quantiles({COLUMN}, bounds=(0, 1), outside="silent~")
ds.preview(job="top_k~", key="query", epsilon=1.0, delta=1e-8, privacy_unit="user")
ds.files("events.log", format="csv~")
ds.channels.stability(1.0, 1e-8, threshold="paper~")
ds.channels.optimal(1.0, 1e-8).delta(0.5, "replace~")
ds.SparseVector.private([1], [2], neighbours="one_entry~", dimension=10, epsilon=1.0)
ds.SparseVector.private([1], [2], neighbours="l1", dimension=10, epsilon=1.0, variant="alp~")
ds.federated.plan(epsilon=1.0, delta=1e-8, goal="error~")
ds.federated.level_plan(epsilon=1.0, delta=1e-8, levels=4, protocol="rounds~")
Budget("device.budget", epsilon=4.0, delta=1e-6, exposure=0.5, neighbours="replace~")
known_keys(1.0, 1e-8, max_keys=10, noise="laplace~")
release_sample(["tea"], [9], 10, epsilon=1.0, delta=1e-8, method="priority~")
report_then_count(1.0, 1e-8, 10, goal="keys~")
thesis.preview_mean(100, 2, rho=1.0, kind="real~")
thesis.preview_mean(100, 2, rho=1.0, kind="real", mode="rotated~")
""".strip().splitlines()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """A right and a misspelled script, and the lines of the misspellings."""
    folder, start = tmp_path_factory.mktemp("user"), HEAD.count("\n") + 1
    for name, letter in {"right": "", "misspelled": "x"}.items():
        (folder / f"{name}.py").write_text(HEAD + "".join(f"    {call.replace('~', letter)}\n" for call in CALLS))
    return folder, [("misspelled.py", start + i) for i in range(len(CALLS))]


def test_mypy_reports_misspelled_choices(scripts):
    """With the settings and the cache of `make lint`."""
    folder, planted = scripts
    settings = {"MYPYPATH": os.path.relpath(SOURCE, ROOT)}
    names = [str(folder / "right.py"), str(folder / "misspelled.py")]
    command = [sys.executable, "-m", "mypy", *names]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
    found = re.findall(r"(\w+\.py):(\d+): error:.*\[(?:arg-type|call-overload)\]", done.stdout)
    assert [(name, int(line)) for name, line in found] == planted, done.stdout + done.stderr
    assert done.stdout.count("error:") == len(planted)


@pytest.mark.skipif(not find_spec("basedpyright"), reason="basedpyright is not installed")
def test_pyright_reports_misspelled_choices(scripts):
    folder, planted = scripts
    settings = {"typeCheckingMode": "standard", "include": ["."], "extraPaths": [str(SOURCE)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--project", str(folder), "--pythonpath", sys.executable]
    done = subprocess.run([*command, "--outputjson"], capture_output=True, text=True, check=False)
    reports = json.loads(done.stdout)["generalDiagnostics"]
    found = [(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in reports]
    assert sorted(set(found)) == planted, done.stdout


def test_the_value_of_an_estimate_is_a_number_or_an_array():
    assert get_type_hints(ds.Estimate.value.fget)["return"] == float | Floats


@pytest.mark.parametrize(("job", "request_"), JOBS.items(), ids=lambda each: each.__name__)
def test_choices_of_jobs_are_types_of_arguments(job, request_):
    hints = get_type_hints(job)
    for each in fields(request_):
        if each.metadata["choices"] and each.name in inspect.signature(job).parameters:
            assert set(each.metadata["choices"]) == set(get_args(hints[each.name])), each.name
