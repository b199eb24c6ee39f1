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
from types import SimpleNamespace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import dpsieve as ds
from dpsieve.federated import client
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

PAPERS = ("weighted_sampling", "sample_threshold", "thesis", "missing_mass")
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
from dpsieve.papers import missing_mass, sample_threshold, thesis, weighted_sampling
from dpsieve.engines.true_data import Pairs
import dpsieve as ds

def share(mean: ds.Estimate, table: object) -> float:
    return float(mean.value)

def estimates(release: ds.Release, vector: ds.SparseVector) -> None:
    weighted_sampling.estimate_sum(release, kind="mle")
    thesis.decode_vector(vector, [1], decoder="posterior")

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
ds.channels.optimal(1.0, 1e-8).delta(0.5, neighbours="replace~")
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
ds.audit(len, [1], [2], epsilon=1.0, kind="one_run~")
ds.choose_epsilon(appear=(40, 0.5), delta=1e-8, method="simple~")
ds.collect_heavy_hitters({COLUMN}, max_length=9, neighbours="replace~")
ds.collect_quantiles({COLUMN}, bounds=(0, 1), neighbours="replace~")
ds.collect_quantiles({COLUMN}, bounds=(0, 1), protocol="rounds~")
ds.mean([1.0], bounds=(0, 1), epsilon=1.0, neighbours="replace~")
ds.quantile([1.0], quantile=0.5, bounds=(0, 1), epsilon=1.0, neighbours="replace~")
ds.release_counts([], key="query", epsilon=1.0, delta=1e-8, out="published", method="optimal~")
ds.Guarantee(1.0, 1e-8, neighbours="replace~")
ds.Ledger("budget", epsilon=1.0, delta=1e-8, neighbours="replace~")
ds.SparseVector.preview(neighbours="l1~", dimension=10, epsilon=1.0)
ds.SparseVector.preview(neighbours="l1", dimension="text~", epsilon=1.0)
ds.SparseVector.preview(neighbours="l1", dimension=10, epsilon=1.0, variant="dense~")
ds.SparseVector.private([1], [2], neighbours="l1", dimension="text~", epsilon=1.0)
ds.channels.sample_threshold(0.1, 20, neighbours="replace~")
ds.federated.plan(epsilon=1.0, delta=1e-8, neighbours="replace~")
ds.federated.level_plan(epsilon=1.0, delta=1e-8, levels=4, neighbours="replace~")
ds.federated.compare(1.0, 1e-8, max_length=9, neighbours="replace~")
ds.federated.Histogram(ds.federated.plan(epsilon=1.0, delta=1e-8), kind="text~")
ds.federated.Quantiles(0.0, 1.0, epsilon=1.0, delta=1e-8, outside="silent~")
weighted_sampling.bottom_k(["tea"], [9], 1, salt=bytes(32), method="priority~")
weighted_sampling.sampled_stability(1.0, 1e-8, ds.ppswor(0.1), threshold="fair~")
weighted_sampling.frequency_quantiles(ds.channels.optimal(1.0, 1e-8), [3], keys="all~")
sample_threshold.UnaryEncoding(1.0, 10, kind="symmetric~")
missing_mass.limited_domain([9], 1, 2, 1.0, 1e-8, analysis="paper~")
missing_mass.known_domain_keys(Pairs.of([["tea"]]), 1, 1.0, 1e-8, analysis="paper~")
thesis.preview_sum([1.0], epsilon=1.0, shape="equal~")
thesis.preview_sum([1.0], epsilon=1.0, neighbours="replace~")
thesis.preview_sum([1.0], epsilon=1.0, noise="laplace~")
thesis.private_sum([1.0], bounds=[1.0], epsilon=1.0, shape="equal~")
thesis.private_sum([1.0], bounds=[1.0], epsilon=1.0, neighbours="replace~")
thesis.private_sum([1.0], bounds=[1.0], epsilon=1.0, noise="laplace~")
thesis.private_mean([1.0], bound=1.0, rho=1.0, kind="real~")
thesis.private_mean([1.0], bound=1.0, rho=1.0, kind="real", mode="best~")
thesis.private_mean([1.0], bound=1.0, rho=1.0, kind="real", neighbours="replace~")
thesis.private_mean([1.0], bound=1.0, rho=1.0, kind="real", spread="pairs~")
thesis.preview_variances(100, 2, bound=1.0, rho=1.0, median="none~")
thesis.private_variances([[1.0]], bound=1.0, rho=1.0, median="none~")
thesis.preview_vector(neighbours="l1~", dimension=10, epsilon=1.0, variant="cormode")
thesis.preview_vector(neighbours="l1", dimension="text~", epsilon=1.0, variant="cormode")
thesis.preview_vector(neighbours="l1", dimension=10, epsilon=1.0, variant="cormode~")
thesis.private_vector([1], [2], neighbours="l1~", dimension=10, epsilon=1.0, variant="cormode")
thesis.private_vector([1], [2], neighbours="l1", dimension="text~", epsilon=1.0, variant="cormode")
thesis.private_vector([1], [2], neighbours="l1", dimension=10, epsilon=1.0, variant="cormode~")
""".strip().splitlines()


APART = {  # what messages and results hold, and what the calls of the head of the scripts have
    "Audit", "Question", "Terms", "ValueQuestion", "Grid", "SampledStability", "estimate_sum", "decode_vector",
}  # fmt: skip


def has_choices(hint):
    return get_origin(hint) is Literal or any(map(has_choices, get_args(hint)))


def choices_of(function):
    """Return the arguments of a function that are choices; what it returns may be imported for types alone."""
    own = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    given = {"globalns": getattr(function, "__globals__", {}), "localns": {"Sample": ds.Sample}}
    return [
        name
        for name, hint in get_type_hints(SimpleNamespace(__annotations__=own), **given).items()
        if has_choices(hint)
    ]


def functions(name, value):
    """Return functions, constructors and public methods by the name in a call."""
    if inspect.isfunction(value):
        return {name: value}
    if not inspect.isclass(value) or name in APART:
        return {}
    methods = {full: getattr(member, "__func__", member) for full, member in inspect.getmembers(value)}
    public = {full: each for full, each in methods.items() if full[0] != "_" and inspect.isfunction(each)}
    return public | ({name: methods["__init__"]} if inspect.isfunction(methods["__init__"]) else {})


def test_every_choice_of_a_public_argument_has_a_misspelling():
    planted = {found for call in CALLS for found in re.findall(r"(\w+)\((?:[^()]|\([^()]*\))*?(\w+)=['\"]\w*~", call)}
    homes = [ds, ds.channels, ds.federated, client, *(getattr(ds.papers, name) for name in PAPERS)]
    missing = []
    for home in homes:
        for name in home.__all__:
            for full, function in functions(name, getattr(home, name)).items():
                choices = choices_of(function) if full not in APART else []
                missing += [f"{full}({each}=)" for each in choices if (full, each) not in planted]
    assert sorted(set(missing)) == []


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
