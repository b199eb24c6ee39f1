"""The order of the rooms, as the architecture page tells it: a room imports only rooms above it."""

import ast
import inspect
import subprocess
import sys
from collections import defaultdict
from dataclasses import MISSING, fields
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dpsieve as ds
from dpsieve.cli.jobs import COLLECTIONS, JOBS
from dpsieve.jobs import preview
from dpsieve.jobs.request import CountsRequest

SOURCE = Path(ds.__file__).parent
ROOMS = (
    "errors", "validate", "codec", "types", "locks", "logs", "display", "values", "exact", "compiled", "randomness",
    "accounting", "privacy", "sampling", "channels", "noise", "estimation", "publication", "sketches", "federated",
    "sparse", "numbers", "discovery", "engines", "jobs", "cli", "papers",
)  # fmt: skip
APART = {"__init__", "__main__", "testing", "synthetic"}  # not rooms: the front door, and what tests and the demo use

# What the contract puts on a channel is below it: these lines are loaded when they are called.
DOORS = {
    ("channels/channel.py", "dpsieve.estimation"),
    ("channels/channel.py", "dpsieve.publication.release"),
    ("noise/known_keys.py", "dpsieve.publication.release"),
    ("noise/private_total.py", "dpsieve.publication.release"),
}
ONE_WAY_OUT = "dpsieve.jobs.run"  # every package publishes through it, and loads it when it does


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


def test_a_room_imports_only_rooms_above_it():
    wrong = []
    for _, name, tree in modules():
        room, types = name.split("/")[0].removesuffix(".py"), only_for_types(tree)
        at_the_top = {id(node) for node in tree.body}
        for node in ast.walk(tree):
            for module in imported(node) if id(node) not in types else []:
                other = [*module.split("."), ""][1]
                if module == ONE_WAY_OUT and id(node) not in at_the_top:
                    continue
                if room in APART or other == room or other not in ROOMS or (name, module) in DOORS:
                    continue
                if ROOMS.index(other) >= ROOMS.index(room):
                    wrong.append((name, module))
    assert wrong == []


def test_every_room_is_in_the_list():
    found = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in SOURCE.rglob("*.py")}
    assert found == set(ROOMS) | APART


def test_modules_do_not_import_each_other_in_a_circle():
    """Lines inside of functions do not count: they run later."""
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


def test_private_names_stay_in_their_room():
    wrong = []
    for _, name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpsieve."):
                same = node.module.split(".")[1] == name.split("/")[0].removesuffix(".py")
                wrong += [(name, alias.name) for alias in node.names if alias.name.startswith("_") and not same]
    assert wrong == []


def test_files_are_neither_tiny_nor_huge():
    sizes = {name: len(path.read_text().splitlines()) for path, name, _ in modules()}
    assert [name for name, lines in sizes.items() if lines > 430] == []
    assert len(sizes) <= 273


# Each job function with its request: what the command line offers, and counts made elsewhere.
COMMANDS = JOBS | {f"collect {name}": job for name, job in COLLECTIONS.items()}
REQUESTS = {getattr(ds, job.function.split(".")[1]): job.request for job in COMMANDS.values()}
SHARED = {"data", "engine", "table", "ledger", "note", "progress", "source"}


def defaults(request):
    empty = inspect.Parameter.empty
    return {field.name: empty if field.default is MISSING else field.default for field in fields(request)}


@pytest.mark.parametrize("function", REQUESTS)
def test_a_function_has_the_arguments_of_its_request(function):
    given = inspect.signature(function).parameters
    wanted = defaults(REQUESTS[function])
    assert set(given) == set(wanted) | SHARED
    assert {name: given[name].default for name in wanted} == wanted
    assert all(f"    {name}: " in function.__doc__ for name in wanted), "every argument is described"


def test_counts_made_elsewhere_have_arguments_of_a_request():
    given, wanted = inspect.signature(ds.release_counts).parameters, defaults(CountsRequest)
    shared = given.keys() & wanted.keys()
    assert given.keys() - shared == {"batches", "out", "count", "ledger", "note", "source"}
    assert {name: given[name].default for name in shared} == {name: wanted[name] for name in shared}


def test_every_job_has_a_preview():
    names = {job.function.split(".")[1]: job.request.__name__ for job in COMMANDS.values()}
    assert {name: kind for name, (_, kind, _) in preview._JOBS.items()} == names


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_every_option_of_its_request(name):
    from dpsieve.cli import app

    shown = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [*name.split(), "--help"]).output
    for field in fields(COMMANDS[name].request):
        option = f"--{field.name.replace('_', '-')}"
        assert (option in shown) == field.metadata["option"], option
        assert f"--{field.metadata['alias']}" in shown


def test_every_public_name_is_there_in_a_new_process():
    """A page's first line may be `ds.engines...`: nothing else has loaded that room yet."""
    code = "import sys, dpsieve as ds; getattr(ds, sys.argv[1])"
    lazy = "import dpsieve as ds; [getattr(ds, name) for name in ds.__all__]"
    for command in ([code, "engines"], [lazy]):
        subprocess.run([sys.executable, "-c", *command], check=True)
