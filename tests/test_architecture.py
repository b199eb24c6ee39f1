"""The order of packages, the size of the project, and the way of a call: docs/background/architecture.md has them."""

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import MISSING, fields
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.command import run
from helpers.tracing import trace

import dpsieve as ds
from dpsieve.cli.jobs import COLLECTIONS, JOBS
from dpsieve.engines.inputs.items import item_batches
from dpsieve.federated import client
from dpsieve.jobs.request import AROUND

SOURCE = Path(ds.__file__).parent
PACKAGES = (
    "errors", "validate", "codec", "types", "locks", "display", "values", "exact", "compiled", "randomness",
    "accounting", "privacy", "sampling", "channels", "noise", "estimation", "publication", "sketches", "federated",
    "sparse", "numbers", "engines", "discovery", "jobs", "auditing", "explore", "cli",
    "papers",
)  # fmt: skip
APART = {"__init__", "__main__", "testing", "synthetic"}  # the front door, and what tests and the demo use

# Methods that the public interface puts on a class above what they need: these imports run when they are called.
DOORS = {
    ("channels/channel.py", "dpsieve.estimation"),
    ("channels/channel.py", "dpsieve.publication.release"),
    ("noise/known_keys.py", "dpsieve.estimation.estimated_sums"),
    ("noise/known_keys.py", "dpsieve.publication.release"),
    ("noise/private_total.py", "dpsieve.publication.release"),
    ("sampling/sample.py", "dpsieve.estimation.estimated_sums"),
}
RUN = "dpsieve.jobs.run"  # the one way out: any package may import it inside a function
# Baselines that `ds.discover` offers by name. No other string may name a module further down.
BY_NAME = {("discovery/selector.py", "papers.missing_mass.policies"),
           ("discovery/selector.py", "papers.missing_mass.repeated_rounds"),
           ("discovery/selector.py", "papers.missing_mass.weighted_gaussian"),
           ("channels/__init__.py", "dpsieve.noise")}  # fmt: skip

# Ceilings of what is there without papers/. They only go down; a new capability may raise them by what it needs.
MOST_LINES, MOST_MODULES, MOST_NAMES, LONGEST_MODULE = 48_616, 220, 79, 447


@cache
def modules():
    return [(path, str(path.relative_to(SOURCE)), ast.parse(path.read_text())) for path in sorted(SOURCE.rglob("*.py"))]


def imported(node):
    if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "dpsieve":
        return [f"dpsieve.{name.name}" for name in node.names] if node.module == "dpsieve" else [node.module]
    return [name.name for name in node.names if name.name.startswith("dpsieve")] if isinstance(node, ast.Import) else []


def only_for_types(tree):
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    return {id(part) for block in blocks for part in ast.walk(block)}


def in_functions(tree):
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {id(part) for function in functions for part in ast.walk(function)}


def is_below(package, module):
    """Return whether a module is in a package that comes after this one."""
    other = [*module.split("."), ""][1]
    return other != package and other in PACKAGES and PACKAGES.index(other) > PACKAGES.index(package)


def test_a_package_imports_only_packages_above_it():
    wrong = []
    for _, name, tree in modules():
        package, types, later = name.split("/")[0].removesuffix(".py"), only_for_types(tree), in_functions(tree)
        for node in ast.walk(tree):
            for module in imported(node) if id(node) not in types and package not in APART else []:
                allowed = (name, module) in DOORS or (module == RUN and id(node) in later)
                if is_below(package, module) and not allowed:
                    wrong.append((name, module))
    assert wrong == []


def test_no_string_names_a_module_of_a_package_below():
    """`import_module` with a name would hide an import from the test above."""
    known = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for _, name, _ in modules()}
    wrong = []
    for _, name, tree in modules():
        package = name.split("/")[0].removesuffix(".py")
        constants = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        for text in [one for one in constants if isinstance(one, str)] if package not in APART else []:
            module = text.removeprefix("dpsieve.")
            if "." in module and module in known and is_below(package, f"dpsieve.{module}"):
                wrong += [] if any(name == n and text.startswith(m) for n, m in BY_NAME) else [(name, text)]
    assert wrong == []


def test_every_package_is_in_the_list():
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert found == set(PACKAGES) | APART


def test_modules_do_not_import_each_other_in_a_circle():
    """Imports inside functions do not count: they run later."""
    known = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for _, name, _ in modules()}
    graph = defaultdict(set)
    for _, name, tree in modules():
        own, types = name.removesuffix(".py").removesuffix("/__init__").replace("/", "."), only_for_types(tree)
        for node in tree.body:
            if id(node) in types:
                continue
            for module in imported(node):
                target = module.removeprefix("dpsieve.")
                deeper = [f"{target}.{alias.name}" for alias in getattr(node, "names", [])]
                graph[own] |= {one if one in known else target for one in deeper} & known - {own}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_private_names_stay_in_their_package():
    wrong = []
    for _, name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpsieve."):
                same = node.module.split(".")[1] == name.split("/")[0].removesuffix(".py")
                wrong += [(name, alias.name) for alias in node.names if alias.name.startswith("_") and not same]
    assert wrong == []


def test_the_project_stays_small():
    sizes = {name: len(path.read_text().splitlines()) for path, name, _ in modules()}
    product = {name: lines for name, lines in sizes.items() if not name.startswith("papers/")}
    assert [name for name, lines in sizes.items() if lines > LONGEST_MODULE] == []
    assert sum(product.values()) <= MOST_LINES and len(product) <= MOST_MODULES


def test_few_names_are_public():
    """Those of `dpsieve` and of the packages that it names."""
    packages = [getattr(ds, name) for name in ds.__all__ if inspect.ismodule(getattr(ds, name))]
    assert len(ds.__all__) + sum(len(getattr(package, "__all__", ())) for package in packages) <= MOST_NAMES


@pytest.mark.parametrize("job", [*JOBS.values(), *COLLECTIONS.values()], ids=[*JOBS, *COLLECTIONS])
def test_a_function_has_the_arguments_of_its_request(job):
    function = getattr(ds, job.function.split(".")[1])
    given, empty = inspect.signature(function).parameters, inspect.Parameter.empty
    asked = {field.name: empty if field.default is MISSING else field.default for field in fields(job.request)}
    assert {name: given[name].default for name in asked} == asked
    assert set(given) == set(asked) | set(AROUND)
    assert all(re.search(rf"^ +{name}: \S", function.__doc__, re.MULTILINE) for name in given), "described"


@pytest.mark.parametrize("name", [*JOBS, *(f"collect {name}" for name in COLLECTIONS)])
def test_a_command_has_an_option_for_every_field_of_its_request(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    job = {**JOBS, **{f"collect {name}": job for name, job in COLLECTIONS.items()}}[name]
    shown = run(*name.split(), "--help").stdout
    offered = [field.name for field in fields(job.request) if field.metadata["option"]]
    assert all(f"--{field.replace('_', '-')}" in shown for field in offered)


def test_every_public_name_is_there_in_a_new_process():
    """A page's first line may be `ds.engines...`: nothing else has loaded that package yet."""
    code = "import sys, dpsieve as ds; getattr(ds, sys.argv[1])"
    lazy = "import dpsieve as ds; [getattr(ds, name) for name in ds.__all__]"
    for command in ([code, "engines"], [lazy]):
        subprocess.run([sys.executable, "-c", *command], check=True)


def test_only_run_charges_a_ledger():
    def spends(tree):
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        return any(call.func.attr == "spend" for call in calls)

    callers = {name for _, name, tree in modules() if spends(tree)}
    assert callers == {"jobs/run.py"}


def small_table():
    pairs = [(unit, f"key {key}") for unit in range(3_000) for key in range(3 + unit % 2)]
    return pa.table({"user": [unit for unit, _ in pairs], "query": [key for _, key in pairs]})


def release_table(table):
    asked = {"key": "query", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
    ds.release(table, **asked, engine=ds.engines.DuckDB(threads=1), source=ds.testing.insecure_source(1))


def release_stream(file):
    sketch = ds.MisraGries(64)
    for batch in item_batches(str(file), "lines"):
        sketch.update(batch)
    sketch.release(1.0, 1e-8, source=ds.testing.insecure_source(1))


class Reported:
    """A source of words whose coins all say 'report'."""

    def words(self, count):
        return [0] * count


def collect_reports(folder):
    """Ask a device with a budget, level by level; the other clients' messages are written by hand."""
    server = ds.federated.TrieHeavyHitters(2.0, 1e-6, max_length=3, step=2)
    budget = client.Budget(folder / f"{len(list(folder.iterdir()))}", epsilon=4.0, delta=1e-5, exposure=0.9)
    for question in server.questions():
        asked = client.Question.from_json(question.to_json())
        answer = client.client_answer(asked, "tea", budget=budget, source=Reported())
        server.take([client.padded_message(asked, answer), *[["tea"[: asked.depth], asked.depth >= 3]] * 200])
    assert server.release().table["key"].to_pylist() == ["tea"]


def certify_channels():
    for rate in (0.1, 1e-6):
        ds.channels.optimal(1.0, 1e-6, ds.ppswor(rate)).certify()


def walks():
    """Return the modules that each walk of the architecture page names, by its title."""
    page = (Path(__file__).parents[1] / "docs/background/architecture.md").read_text()
    paragraphs = page[page.index("## Four walks") : page.index("## Where is")].split("\n\n**")[1:]
    return {text.split(".**")[0]: re.findall(r"`([\w/]+(?:\.py|/))`", text) for text in paragraphs}


@pytest.mark.parametrize("walk", walks())
def test_a_walk_of_the_page_is_the_way_of_a_real_call(walk, tmp_path):
    (tmp_path / "items.txt").write_text("tea\nmilk\n" * 1_000)
    (tmp_path / "budgets").mkdir()
    calls = {
        "A row of a table": lambda: release_table(small_table()),
        "An item of a stream": lambda: release_stream(tmp_path / "items.txt"),
        "A client's report": lambda: collect_reports(tmp_path / "budgets"),
        "A channel with a scheme": certify_channels,
    }
    found, named = trace(calls[walk], warm=0, threads=True), walks()[walk]
    dotted = {name: f"dpsieve.{name.removesuffix('.py').removesuffix('/').replace('/', '.')}" for name in named}
    for before, name in pairwise(named):
        if name.endswith("loops.py"):
            assert re.search(rf"^(from|import) .*\b{Path(name).stem}\b", (SOURCE / before).read_text(), re.MULTILINE)
    assert found.first_missed([dotted[name] for name in named if not name.endswith("loops.py")]) is None


class TestTheWayOfADefaultRelease:
    """A release of a small table, warm. Before jobs had one way in and out, this trace had 867 package changes."""

    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        table = small_table()
        return trace(lambda: release_table(table))

    def test_few_modules_are_entered(self, found):
        assert len(found.modules) <= 46
        assert [module for module in found.modules if "duckdb.compiled" in module] == [], "only large tables need it"
        assert found.package_changes <= 281

    def test_steps_come_once_and_in_order(self, found):
        steps = ["ReleaseRequest.__post_init__", "plan_release", "run", "Table.counts_by_bound", "charge.__enter__",
                 "_plan_with_histogram.<locals>.finish", "Release.__init__"]  # fmt: skip
        names = [name for _, name in found.entered]
        assert [names.count(step) for step in steps] == [1] * len(steps)
        assert sorted(steps, key=names.index) == steps

    def test_a_mechanism_is_made_and_certified_once(self, found):
        """Two compositions are made: a candidate with the same guarantee for each key, and the one that is used."""
        for step in ("Optimal.__init__", "Composed._certificate"):
            assert found.count(step) == 1, step
        assert found.count("Composed.__init__") <= 2 and found.count("examine") <= 1
