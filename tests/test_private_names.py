"""The private names of src that tests use, each with its reason."""

import ast
from functools import cache
from pathlib import Path

import dpsieve

TESTS = Path(__file__).parent
SOURCE = Path(dpsieve.__file__).parent

MOST_LINES = 137  # only goes down

REASONS = {
    "sizes and waits made small, so that small data reaches what takes millions of rows": """
        _BATCH _BLOCK _BLOCKS_AT_ONCE _BYTES_OF_A_PAIR _COMPILED_FROM _FIRST_BYTES _FIRST_VALUES _LONGEST_COLUMN
        _MERGED_AT_ONCE _MOST_COLLECTIONS _MOST_ROWS _MOST_WAITING _PAIRS_OF_A_PART _PATIENCE _ROWS _SEARCH_ALL
        _is_large
        """,
    "limits of precision made coarse, so that a rare second step is taken often": """
        _MARGIN _NEAR _OF_WEIGHT _SPREAD _STEEP _WIDE _keep _least_threshold _means _parameters _scores
        """,
    "steps replaced: made to fail, interrupted, or counted": """
        _MOUNTS _SYSTEM _check_deterministic _compute_once _connect _read _salt _sources
        _write
        """,
    "steps called alone, where the public call has another answer or cannot be forced to take them": """
        _Collected _check_session _csv _jsonl _lines _mounted
        """,
    "secrets and state that nothing public may show": """
        _all_counts _bits _cipher _connection _file _first _held _is_possible _listed _local _rate _stairs
        _storage _table _totals
        """,
    "terms of a guarantee, compared one by one with an exact or enumerated computation": """
        _FIXED_POINT _PARTS _chain _change _cost _counts_mu _cover _delta _deviations
        _fair_coins _fixed_point _grid_loss _largest_case _losses _margins _parts _round_values _tail _tau
        _valid
        """,
    "parts of saved forms and catalog queries, with which tests forge or inspect them": """
        _APPLICATION _COLUMNS _DEFAULT _FORMAT _PLACE _SCHEMA _digest _seal
        """,
}


def is_private(name):
    return name.startswith("_") and name.strip("_") and not (name.startswith("__") or name.endswith("_"))


@cache
def defined():
    """Return the private names that src defines."""
    names = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in names if is_private(name)} - {"_replace"}  # which named tuples have, too


def used(node):
    """Return the names that a node takes from src: by an import, an attribute, or `setattr` of a name given as text."""
    if isinstance(node, ast.ImportFrom):
        return [name.name for name in node.names] if (node.module or "").startswith("dpsieve") else []
    if isinstance(node, ast.Attribute):
        return [] if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") else [node.attr]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
        texts = [str(part.value) for part in node.args[:2] if isinstance(part, ast.Constant)]
        return [text.rpartition(".")[2] for text in texts if "." not in text or text.startswith("dpsieve.")]
    return []


@cache
def uses():
    """Return a (file, line, name) for each use."""
    found = set()
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [name for name in used(node) if name in defined()]
            found |= {(str(path.relative_to(TESTS)), node.lineno, name) for name in names}
    return sorted(found)


def test_each_private_name_that_tests_use_has_a_reason():
    named = [name for names in REASONS.values() for name in names.split()]
    assert [use for use in uses() if use[2] not in named] == [], "use what is public, or say why in REASONS"
    assert len(named) == len(set(named))
    assert sorted(set(named) - {name for *_, name in uses()}) == [], "no longer used: remove it"


def test_private_names_are_used_ever_less():
    assert len({use[:2] for use in uses()}) <= MOST_LINES
