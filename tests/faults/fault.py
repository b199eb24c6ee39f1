"""Planted faults: small changes that break privacy, each with the narrowest tests that should notice it.

The faults are data, in the TOML files beside this module:

    [[fault]]
    name = "tables: more than delta per step"
    function = "Steps.shrink"
    old = "1 - Fraction(1, 2**36)"
    new = "1 + Fraction(1, 2**36)"
    tests = ["test_rows.py::test_every_pair_of_rows_keeps_the_definition"]

- `function` is the qualified name of a function or class anywhere below src/dpsieve, or of a constant assigned outside
  functions. No file is named, so code can move. `where`, a part of the module path, selects one of several functions
  of the same name; it is ignored when nothing there fits and exactly one of the others does.
- `old` becomes `new`. Both are compared as syntax trees, so formatting and comments are irrelevant. They are an
  expression, consecutive statements, or the head of a compound statement (`if row:`), whose body stays. An empty
  `new` removes statements. `old` must occur exactly once in the function; otherwise `nth` (from 1) selects.
- With `in_text = true`, both are parts of the source text of a string, such as SQL in an f-string.
- `tests` are names of test files anywhere below tests/, each with an optional test. A folder in front is needed only
  where several files of that name have such a test.

To add one: choose what a tired programmer might have written instead. The code must still run: the fault is in what
it promises. If no test notices, write that test.
"""

import ast
import builtins
import difflib
import re
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CONTEXT = re.compile(r",? ?ctx=(?:Load|Store|Del)\(\)")


@dataclass(frozen=True)
class Fault:
    """One `[[fault]]` of a TOML file."""

    name: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]
    where: str = ""
    nth: int = 0
    in_text: bool = False


class Misfit(Exception):
    """A fault does not fit the source, or a test that it names does not exist."""


@dataclass(frozen=True)
class Scope:
    """A function, class or constant of one source file."""

    source: "Source"
    name: str
    node: ast.AST

    @cached_property
    def by_type(self) -> dict[type[ast.AST], list[ast.AST]]:
        """Nodes by type, in source order; without what is inside f-strings, whose positions vary between Pythons."""
        nodes = defaultdict(list)

        def add(node: ast.AST) -> None:
            nodes[type(node)].append(node)
            if not isinstance(node, ast.JoinedStr):
                for child in ast.iter_child_nodes(node):
                    add(child)

        add(self.node)
        return nodes


class Source:
    """One file of source code, its tree, and the edits that faults make."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_bytes()
        self.tree = ast.parse(self.text)
        self.module = path.relative_to(ROOT / "src" / "dpsieve").with_suffix("").parts
        self._starts = [0]
        for line in self.text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    @cached_property
    def scopes(self) -> list[Scope]:
        return list(self._scopes(self.tree, ""))

    def _scopes(self, parent: ast.AST, prefix: str, *, constants: bool = True) -> Iterator[Scope]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, _DEFINITIONS):
                yield Scope(self, prefix + node.name, node)
                yield from self._scopes(node, f"{prefix}{node.name}.", constants=isinstance(node, ast.ClassDef))
            elif constants and isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name):
                            yield Scope(self, prefix + name.id, node)
            elif not isinstance(node, ast.expr):
                yield from self._scopes(node, prefix, constants=constants)

    def span(self, first: ast.AST, last: ast.AST) -> tuple[int, int]:
        """Return where the text of consecutive nodes starts and ends, in bytes."""
        start = min([first, *getattr(first, "decorator_list", ())], key=lambda node: node.lineno)
        before = 1 if isinstance(first, _DEFINITIONS) and start is not first else 0  # the @ of a decorator
        return (
            self._starts[start.lineno - 1] + start.col_offset - before,
            self._starts[last.end_lineno - 1] + last.end_col_offset,
        )

    @cached_property
    def names(self) -> set[str]:
        return set(re.findall(r"\w+", self.text.decode())) | set(dir(builtins))


@cache
def all_faults() -> tuple[Fault, ...]:
    files = sorted(FOLDER.glob("*.toml"))
    return tuple(fault for file in files for fault in read_faults(file.read_text(encoding="utf-8")))


def read_faults(text: str) -> list[Fault]:
    return [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in tomllib.loads(text)["fault"]]


@cache
def scopes_by_name(root: Path) -> dict[str, list[Scope]]:
    scopes = defaultdict(list)
    for path in sorted(root.glob("src/dpsieve/**/*.py")):
        for scope in Source(path).scopes:
            scopes[scope.name].append(scope)
    return scopes


def plant(fault: Fault) -> tuple[Path, bytes]:
    """Return the file that a fault changes, relative to the project, and its new content; raise Misfit otherwise."""
    scope, (start, end), new = find(fault)
    text = scope.source.text[:start] + new + scope.source.text[end:]
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise Misfit(f"{fault.function} with the fault is no Python: {error}") from None
    return scope.source.path.relative_to(ROOT), text


def check(fault: Fault) -> str:
    """Return why a fault does not fit the project, or nothing."""
    try:
        plant(fault)
        find_tests(fault)
    except Misfit as misfit:
        return str(misfit)
    return ""


def find(fault: Fault) -> tuple[Scope, tuple[int, int], bytes]:
    """Return the function, class or constant that a fault changes, the span of its text, and the new text."""
    edit = _parse(fault)
    scopes = scopes_by_name(ROOT).get(fault.function, [])
    hinted = [scope for scope in scopes if fault.where in scope.source.module]
    problem = f"no function or constant {fault.function}"
    for candidates in (hinted, scopes):
        spans = [(scope, edit.spans(scope)) for scope in candidates]
        fits = [(scope, found) for scope, found in spans if len(found) >= fault.nth and (fault.nth or len(found) == 1)]
        if len(fits) == 1:
            scope, found = fits[0]
            span = found[max(0, fault.nth - 1)]
            if unknown := edit.new_names - scope.source.names:
                raise Misfit(f"`new` uses {', '.join(sorted(unknown))}, unknown in {scope.source.path.name}")
            return scope, span, edit.replacement(scope.source, span)
        if spans:
            times = ", ".join(f"{len(found)} times in {scope.source.path.relative_to(ROOT)}" for scope, found in spans)
            problem = f"`old` occurs {times} ({fault.function}); it must fit exactly one place"
    raise Misfit(f"{problem}{_nearest(fault, edit)}")


def _nearest(fault: Fault, edit: "_Edit") -> str:
    """Return where a fault that does not fit may belong now."""
    every = scopes_by_name(ROOT)
    everything = [scope for scopes in every.values() for scope in scopes]
    hits = {scope.name: scope for scope in everything if len(edit.spans(scope)) == max(1, fault.nth)}
    innermost = [name for name in hits if not any(other.startswith(f"{name}.") for other in hits)]
    last = fault.function.rpartition(".")[2]
    alike = [name for name in every if name.rpartition(".")[2] == last]
    alike += difflib.get_close_matches(fault.function, every, n=4, cutoff=0.6)
    alike = [name for name in dict.fromkeys(alike) if name != fault.function]
    places = [f"{name} ({hits[name].source.path.relative_to(ROOT)})" for name in innermost[:4]]
    return "".join(
        f"\n    {label}: {', '.join(names)}"
        for label, names in (("`old` occurs in", places), ("similar names", alike[:6]))
        if names
    )


class _Edit:
    """What a fault changes, as read from its two snippets."""

    new: str
    new_names: set[str]

    def spans(self, scope: Scope) -> list[tuple[int, int]]:
        """Return where the old snippet occurs in a function, as spans of bytes."""
        raise NotImplementedError

    def replacement(self, source: Source, span: tuple[int, int]) -> bytes:
        return self.new.encode()


class _Text(_Edit):
    def __init__(self, old: str, new: str) -> None:
        self.new, self.new_names = new, set()
        self._pattern = re.compile(re.escape(old.encode()))

    def spans(self, scope: Scope) -> list[tuple[int, int]]:
        texts = [node for node in scope.by_type[ast.Constant] if isinstance(node.value, str)]
        places = [scope.source.span(node, node) for node in [*scope.by_type[ast.JoinedStr], *texts]]
        return sorted(match.span() for place in places for match in self._pattern.finditer(scope.source.text, *place))


class _Expression(_Edit):
    def __init__(self, old: ast.expr, new: ast.expr, text: str) -> None:
        self.new, self.new_names = f"({text})", _used_names(new)
        self._type, self._shape = type(old), _shape(old)

    def spans(self, scope: Scope) -> list[tuple[int, int]]:
        nodes = scope.by_type[self._type]
        return [scope.source.span(node, node) for node in nodes if _shape(node) == self._shape]


class _Statements(_Edit):
    def __init__(self, old: list[ast.stmt], new: ast.Module, text: str) -> None:
        self.new, self.new_names = text or "pass", _used_names(new)
        self._type, self._shapes = type(old[0]), [_shape(node) for node in old]

    def spans(self, scope: Scope) -> list[tuple[int, int]]:
        if not scope.by_type[self._type]:
            return []
        nodes = [node for same_type in scope.by_type.values() for node in same_type]
        bodies = [getattr(node, name, None) for node in nodes for name in ("body", "orelse", "finalbody")]
        spans = []
        for body in [[scope.node], *bodies]:
            for start in range(len(body) - len(self._shapes) + 1 if isinstance(body, list) else 0):
                run = body[start : start + len(self._shapes)]
                if isinstance(run[0], self._type) and [_shape(node) for node in run] == self._shapes:
                    spans.append(scope.source.span(run[0], run[-1]))
        return sorted(span for span in spans if not scope.source.text.startswith(b"elif", span[0]))

    def replacement(self, source: Source, span: tuple[int, int]) -> bytes:
        column = span[0] - source.text.rfind(b"\n", 0, span[0]) - 1
        return textwrap.indent(self.new, " " * column).strip().encode()


class _Head(_Edit):
    """The head of a compound statement: what is between its keyword and its colon is replaced."""

    def __init__(self, old: ast.stmt, new: ast.stmt, text: str) -> None:
        if type(old) is not type(new) or not _head(old):
            raise Misfit("`old` and `new` must both be heads of `if`, `while`, `for` or `with`")
        self.new, self.new_names = text.partition(" ")[2].removesuffix(":"), _used_names(new)
        self._type, self._shapes = type(old), [_shape(node) for node in _head(old)]

    def spans(self, scope: Scope) -> list[tuple[int, int]]:
        heads = [_head(node) for node in scope.by_type[self._type]]
        fits = [head for head in heads if [_shape(node) for node in head] == self._shapes]
        return [scope.source.span(head[0], head[-1]) for head in fits]


def _parse(fault: Fault) -> _Edit:
    old, new = textwrap.dedent(fault.old).strip(), textwrap.dedent(fault.new).strip()
    if fault.in_text:
        if not fault.old or fault.old == fault.new:
            raise Misfit("`old` must be a text other than `new`")
        return _Text(fault.old, fault.new)
    heads = old.endswith(":")
    try:
        before, after = (ast.parse(f"{text} ..." if heads else text) for text in (old, new))
    except SyntaxError as error:
        raise Misfit(f"a snippet is no Python: {error}") from None
    if not before.body or _shape(before) == _shape(after):
        raise Misfit("`old` must be code other than `new`")
    if heads:
        return _Head(before.body[0], after.body[0], new)
    match before.body, after.body:
        case [ast.Expr(value=expression)], [ast.Expr(value=replacement)]:
            return _Expression(expression, replacement, new)
    return _Statements(before.body, after, new)


def _used_names(tree: ast.AST) -> set[str]:
    """Return the names that code reads and neither assigns nor imports."""
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    own = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    return used - own - {node.asname or node.name.partition(".")[0] for node in nodes if isinstance(node, ast.alias)}


def _head(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.If() | ast.While():
            return [node.test]
        case ast.For():
            return [node.target, node.iter]
        case ast.With():
            return [part for item in node.items for part in (item.context_expr, item.optional_vars) if part]
    return []


@cache
def _shape(node: ast.AST) -> str:
    return _CONTEXT.sub("", ast.dump(node))


@cache
def _tests_by_file() -> dict[Path, set[str]]:
    pattern = re.compile(r"^ *(?:def|class) (\w+)", re.MULTILINE)
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    return {path: set(pattern.findall(path.read_text(encoding="utf-8"))) for path in files}


def find_tests(fault: Fault) -> list[str]:
    """Return the tests of a fault as pytest names them, from the root of the project; raise Misfit otherwise."""
    return [_find_test(test) for test in fault.tests]


@cache
def _find_test(test: str) -> str:
    place, *names = test.split("::")
    having = [path for path, tests in _tests_by_file().items() if tests.issuperset(names)]
    named = [path for path in having if path.name == place.rpartition("/")[2]]
    hinted = [path for path in named if path.as_posix().endswith(f"/{place}")]
    for candidates in (hinted, named, having if names else []):
        if len(candidates) == 1:
            return "::".join([candidates[0].relative_to(ROOT).as_posix(), *names])
    raise Misfit(f"{len(named)} test files fit {test}")
