"""Write the reference: a page per public name, command and error class, from docstrings, requests and the source.

The list of public names and their signatures are those that `tests/golden/public_names.py` freezes.
"""

import ast
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import dpsieve
from dpsieve import errors

ROOT = Path(__file__).parents[2]
SOURCE = Path(dpsieve.__file__).parent
sys.path.insert(0, str(ROOT / "tests/golden"))
import public_names  # noqa: E402

ERRORS = {
    name: kind for name, kind in vars(errors).items() if inspect.isclass(kind) and kind.__module__ == errors.__name__
}
TITLES = {"python": "Python", "commands": "Commands", "errors": "Errors"}
_WIDTH = 84  # of a command in a page
SECTIONS = {"Args", "Returns", "Raises", "Attributes", "Yields", "Fields"}


def write(folder: Path) -> None:
    """Write all generated pages."""
    for part, pages in {"python": python_pages(), "commands": command_pages(), "errors": error_pages()}.items():
        place = folder / part
        place.mkdir(parents=True)
        for name, text in pages.items():  # not in the sidebar, which would take half of the time on every page
            title, _, rest = text.partition("\n")
            path = f"{{.path}}\n[Reference](../index.md) / [{TITLES[part]}](index.md)"
            page = f"---\norphan: true\n---\n{title}\n\n{path}\n{rest}"
            (place / f"{name}.md").write_text(page, encoding="utf-8")
        (place / "index.md").write_text(_list(part, pages), encoding="utf-8")


def _list(part: str, pages: dict[str, str]) -> str:
    """Return the page that links to all pages of one part, each with its first sentence; functions first."""
    groups: dict[str, list[tuple[str, str]]] = {"Functions": [], "Classes": [], "Namespaces": []}
    for name, text in pages.items():
        title, _, rest = text.partition("\n")
        prose = re.sub(r"^`{3,}\{.*?^(?=[A-Z])", "", rest.strip(), count=1, flags=re.DOTALL | re.MULTILINE)
        paragraph = prose.strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        first = re.split(r"(?<=[a-z0-9)`]\.) (?=[A-Z`])", paragraph, maxsplit=1)[0]
        kind = "Classes" if name.startswith("class-") else "Namespaces" if "." in title else "Functions"
        groups[kind].append((title[2:], f"| [{title[2:]}]({name}.md) | {first} |"))
    page = f"# {TITLES[part]}\n"
    for kind, rows in groups.items():
        if rows:
            page += f"\n## {kind}\n" if part == "python" else ""
            page += "\n| name | what it is |\n|---|---|\n" + "\n".join(row for _, row in sorted(rows)) + "\n"
    return page


# Docstrings


def markdown(docstring: str) -> str:
    """Return a docstring as Markdown: sections of arguments as lists, examples and formulas as code."""
    parts: list[str] = []
    for section, lines in _sections(inspect.cleandoc(docstring).splitlines()):
        parts += [f"**{section}**\n\n{_entries(lines)}"] if section else _paragraphs(lines)
    return "\n\n".join(parts)


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the parts of a docstring: those with a title such as 'Args:', and what is around them."""
    title, part = "", []
    for line in lines:
        if line.endswith(":") and line[:-1] in SECTIONS:
            yield title, part
            title, part = line[:-1], []
        elif title and line and not line.startswith(" "):
            yield title, part
            title, part = "", [line]
        else:
            part.append(line)
    yield title, part


def _entries(lines: list[str]) -> str:
    text = inspect.cleandoc("\n".join(["", *lines]))
    entries = re.sub(r"\n +", " ", text).splitlines()
    return "\n".join(
        f"- **{name}**: {_prose(rest)}"
        if (name := one.partition(": ")[0]) and (rest := one.partition(": ")[2])
        else f"- {_prose(one)}"
        for one in entries
        if one
    )


def _paragraphs(lines: list[str]) -> list[str]:
    found = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        first = block.split("\n")[0]
        if not block.strip():
            continue
        if first.lstrip().startswith(">>>"):
            found.append(f"```pycon\n{inspect.cleandoc(block)}\n```")
        elif first.startswith("    "):
            found.append(f"```text\n{inspect.cleandoc(block)}\n```")
        else:
            found.append("\n".join(_items(block)))
    return found


def _items(block: str) -> Iterator[str]:
    """Yield the lines of a paragraph: list items, and formulas between them, stay apart; what was wrapped is joined."""
    joined: list[str] = []
    for line in block.split("\n"):
        if re.match(r"(- |\* |\d+\. )", line) or not joined:
            joined.append(line)
        else:
            joined[-1] += " " + line.strip()
    for line in joined:
        mark = re.match(r"(- |\* |\d+\. )?", line)
        yield (mark[0] if mark else "") + _prose(line[mark.end() if mark else 0 :])


def _prose(text: str) -> str:
    """Return text whose characters mean themselves in Markdown; what is in backticks stays code."""
    pieces = text.split("`")
    for place in range(0, len(pieces), 2):
        safe = re.sub(r"([*_<>\[\]#|\\])", r"\\\1", pieces[place])
        pieces[place] = re.sub(
            r"docs/([\w/\\]+)\.md((?:\\#[\w-]+)?)",
            lambda found: _page_link(found[1].replace("\\", ""), found[2].replace("\\", "")),
            safe,
        )
    return "`".join(pieces)


def _page_link(page: str, anchor: str) -> str:
    return f"[{anchor[1:].replace('-', ' ') or page}](/{page}.md{anchor})"


# Python


def namespaces(module: ModuleType = dpsieve, path: str = "dpsieve") -> Iterator[tuple[str, str, Any]]:
    """Yield namespace, name and value of everything public."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    for name in sorted(names):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            yield from namespaces(value, f"{path}.{name}")
        elif path != "dpsieve.errors" or name not in ERRORS:
            yield path, name, value


def python_pages() -> dict[str, str]:
    """Return the pages of the Python interface: one per name of `dpsieve`, one per namespace in it."""
    entries: dict[str, list[str]] = defaultdict(list)
    for path, name, value in namespaces():
        page = path.removeprefix("dpsieve.")
        if path == "dpsieve":  # `release` and `Release` are one file where the case of letters does not count
            page = f"class-{name}" if inspect.isclass(value) else name
        entries[page].append(_entry(path, name, value))
    pages = {}
    for page, parts in entries.items():
        module = sys.modules.get(f"dpsieve.{page}")
        intro = f"{markdown(module.__doc__ or '')}\n\n" if module is not None else ""
        title = page.removeprefix("class-") if module is None else f"dpsieve.{page}"
        pages[page] = f"# {title}\n\n{intro}" + "\n\n".join(parts) + "\n"
    return pages


def _entry(path: str, name: str, value: Any) -> str:
    """Return the directive of a public name: its signature, its docstring, its members."""
    lines = list(public_names._entry(f"{path}.{name}", value))
    head = re.sub(rf"^(class )?{re.escape(path)}\.", "", lines[0])
    if inspect.isclass(value):
        members = "\n\n".join(_member(path, name, value, line.strip()) for line in lines[1:])
        return (
            f"``````{{py:class}} {head}\n:module: {path}\n\n{_documented(f'{path}.{name}', value)}\n\n{members}\n``````"
        )
    if callable(value):
        return f"``````{{py:function}} {head}\n:module: {path}\n\n{_documented(f'{path}.{name}', value)}\n``````"
    shown = head.partition(" = ")[2] or repr(value)
    return f"``````{{py:data}} {name}\n:module: {path}\n\n{_prose(head.partition(': ')[2] or shown)}\n``````"


def _documented(name: str, value: Any) -> str:
    text = inspect.getdoc(value)
    if not text:
        raise ValueError(f"{name} has no docstring")
    return markdown(text)


def _member(path: str, owner: str, kind: type, line: str) -> str:
    """Return the directive of a method, property or attribute; inherited ones have their first sentence only."""
    found = re.match(r"(property |classmethod |staticmethod )?(\w+)(.*)", line)
    assert found is not None
    what, name, rest = (found[1] or "").strip(), found[2], found[3]
    value = inspect.getattr_static(kind, name, None)
    function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
    if rest.startswith(":") and what != "property":
        return f"`````{{py:attribute}} {owner}.{name}\n:module: {path}\n:type: {rest[2:]}\n`````"
    text = inspect.getdoc(getattr(kind, name, None) if callable(function) else function) or inspect.getdoc(function)
    if not text:  # a field in the place of an inherited property is described by that property
        owners = [base for base in kind.__mro__[1:] if isinstance(vars(base).get(name), property)]
        text = next((found for base in owners if (found := inspect.getdoc(vars(base)[name]))), None)
    if not text:
        raise ValueError(f"{path}.{owner}.{name} has no docstring")
    text = markdown(text if name in vars(kind) else text.split("\n\n")[0])
    if what == "property":
        typed = f":type: {rest[2:]}\n" if rest.startswith(":") else ""
        return f"`````{{py:property}} {owner}.{name}\n:module: {path}\n{typed}\n{text}\n`````"
    flag = f":{what}:\n" if what else ""
    return f"`````{{py:method}} {owner}.{name}{rest}\n:module: {path}\n{flag}\n{text}\n`````"


# Command line


def commands() -> Iterator[tuple[str, Any]]:
    """Yield the words and the command of everything that can be called."""
    from typer.main import get_command

    from dpsieve.cli import app

    def walk(group: Any, words: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, f"{words} {name}")
            else:
                yield f"{words} {name}", command

    yield from walk(get_command(app), "dpsieve")


def command_pages() -> dict[str, str]:
    """Return a page per command."""
    return {words.removeprefix("dpsieve ").replace(" ", "-"): _command(words, command) for words, command in commands()}


def _command(words: str, command: Any) -> str:
    about, shown = _examples(inspect.cleandoc(command.help or ""))
    if not about.strip():
        raise ValueError(f"{words} has no help")
    context = command.make_context(words, [], resilient_parsing=True)
    parameters = [one for one in command.get_params(context) if one.name != "help"]
    given = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option"]
    usage = " ".join([words, *(f"[{one.name}]" if not one.required else str(one.name) for one in given), "[options]"])
    text = f"# {words}\n\n{markdown(about)}\n\n```text\n{usage}\n```\n"
    for title, example in shown:
        text += f"\n**{title}**\n\n```console\n$ {_broken(example)}\n```\n"
    entries = [(f"`{one.name}`", "required" if one.required else "", one.help) for one in given]
    entries += [(_option(one, context), _default(one), one.help) for one in options]
    listed = [f"{name}{f' ({usual})' if usual else ''}\n: {_cell(about)}\n" for name, usual, about in entries]
    return f"{text}\n**Options**\n\n" + "\n".join(listed)


def _examples(about: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a help text without its examples, and these: a title and a command each."""
    text, _, example = about.partition("Example: ")
    first, *others = (re.sub(r"\s+", " ", part).strip() for part in example.split("\n\n"))
    titled = [other.partition(": ") for other in others]
    return text, [("Example", first), *((title, shown) for title, _, shown in titled)] if first else []


def examples() -> Iterator[tuple[str, str]]:
    """Yield the words of each command with each example in its help."""
    for words, command in commands():
        yield from ((words, shown) for _, shown in _examples(inspect.cleandoc(command.help or ""))[1])


def _broken(command: str) -> str:
    """Return a command in lines that fit the page, each broken before an option."""
    lines = [""]
    for part in re.split(r" (?=--)", command):
        if len(lines[-1]) + len(part) > _WIDTH and lines[-1]:
            lines.append("   ")
        lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return " \\\n".join(lines)


def _option(option: Any, context: Any) -> str:
    form = "" if option.is_flag else f" {option.display_type_rich(context)}"
    return f"`{', '.join([*option.opts, *option.secondary_opts])}{form}`"


def _default(option: Any) -> str:
    if option.required:
        return "required"
    plain = (
        option.default not in (None, False, "", ())
        and not callable(option.default)
        and "Sentinel" not in repr(option.default)
    )
    return f"default `{option.default}`" if plain else ""


def _cell(text: str | None) -> str:
    if not text:
        raise ValueError("an option has no help")
    return _prose(text)


# Errors


def error_pages() -> dict[str, str]:
    """Return a page per class of errors: what it means, and every message with its fix, read from the source."""
    messages: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    shared = _shared(trees.values())
    made = _made_elsewhere(trees.values(), shared)
    for path, tree in trees.items():
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for kind, text in _messages(tree, made, shared):
            if text not in messages[kind][package]:
                messages[kind][package].append(text)
    return {name: _error(name, kind, messages[name]) for name, kind in ERRORS.items()}


def _error(name: str, kind: type, messages: dict[str, list[str]]) -> str:
    bases = ", ".join(f"`{base.__name__}`" for base in kind.__mro__[1:] if base not in (object, BaseException))
    head = f"# {name}\n\n```{{py:exception}} {name}\n:module: dpsieve.errors\n```\n"
    text = f"{head}\n{markdown(kind.__doc__ or '')}\n\nIt is also: {bases}.\n"
    if not messages:
        return text
    text += "\n## Messages\nWords in braces stand for values of the call, and brackets enclose what depends on it.\n"
    for package, found in messages.items():
        text += f"\n### dpsieve.{package}\n" + "".join(f"- {_prose(one)}\n" for one in found)
    return text


Texts = Mapping[str, list[ast.expr]]


def _shared(trees: Iterable[ast.Module]) -> Texts:
    """Return the texts that one module names for others, by their name: those of which there is one."""
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for tree in trees:
        for name, values in _assigned(tree).items():
            found[name] += [value for value in values if not name.startswith("_")]
    return {name: values for name, values in found.items() if len(values) == 1}


def _made_elsewhere(trees: Iterable[ast.Module], shared: Texts) -> dict[str, list[str]]:
    """Return what functions that make messages return, by their name."""
    found: dict[str, list[str]] = defaultdict(list)
    for tree in trees:
        for function, texts in _functions(tree, shared):
            for node in _own(function):
                if isinstance(node, ast.Return) and node.value is not None and (text := _template(node.value, texts)):
                    found[getattr(function, "name", "")].append(text)
    return found


def _functions(tree: ast.Module, shared: Texts) -> Iterator[tuple[ast.AST, Texts]]:
    """Yield a module and its functions, each with the texts that names stand for in it."""
    constants = {**shared, **_assigned(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            arguments = {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
            known = {name: values for name, values in constants.items() if name not in arguments}
            yield node, {**known, **_assigned(node)}
        elif node is tree:
            yield tree, constants


def _assigned(function: ast.AST) -> dict[str, list[ast.expr]]:
    """Return the names that a function or module sets itself, with all that they are set to."""
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for node in _own(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id].append(node.value)
    return found


def _messages(tree: ast.Module, made: Mapping[str, list[str]], shared: Texts) -> Iterator[tuple[str, str]]:
    """Yield class and message of every error and warning of a module; names that stand for texts are filled in."""
    for function, texts in _functions(tree, shared):
        for node in _own(function):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            kind = node.func.id if isinstance(node.func, ast.Name) else ""
            if kind == "warn_caller":
                kind = "PrivacyWarning"
            if kind not in ERRORS:
                continue
            given, text = node.args[0], _template(node.args[0], texts)
            maker = getattr(given, "func", None)
            elsewhere = made.get(getattr(maker, "attr", getattr(maker, "id", "")), [])
            yield from ((kind, one) for one in ([text] if text else elsewhere) if " " in one)


@cache
def _own(function: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function in order, without those of functions in it."""
    found: list[ast.AST] = []
    pending = [function]
    while pending:
        found.append(pending.pop())
        children = [one for one in ast.iter_child_nodes(found[-1]) if not isinstance(one, ast.FunctionDef | ast.Lambda)]
        pending += reversed(children)
    return found[1:]


def _template(node: ast.expr, texts: Texts, depth: int = 0) -> str | None:
    """Return a text with names in braces where the program puts values; None if it is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and node.id in texts and depth < 4:
        values = texts[node.id]
        before = [value for value in values if value.lineno < node.lineno]
        return _template((before or values)[-1], texts, depth + 1)
    if isinstance(node, ast.IfExp):
        return _either([_template(side, texts, depth) for side in (node.body, node.orelse)])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_template(side, texts, depth) for side in (node.left, node.right)]
        return None if None in sides else "".join(map(str, sides))
    if not isinstance(node, ast.JoinedStr):
        return None
    words = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            filled = _template(part.value, texts, depth + 1)
            words.append(filled if filled is not None else f"{{{_placeholder(part.value)}}}")
        else:
            words.append(str(getattr(part, "value", "")))
    return "".join(words)


def _either(texts: list[str | None]) -> str | None:
    """Return several texts in brackets, without an empty one; None if one is unknown."""
    several = list(dict.fromkeys(text for text in texts if text != ""))
    return None if None in texts else f"[{' | '.join(map(str, several))}]"


def _placeholder(node: ast.expr) -> str:
    """Return the name that stands for a value in a message."""
    if isinstance(node, ast.Call):
        given = [one for one in node.args if not isinstance(one, ast.Constant)]
        return _placeholder(given[-1] if given else getattr(node.func, "value", node.func))
    if isinstance(node, ast.Subscript):
        return _placeholder(node.value)
    if isinstance(node, ast.Attribute):
        return "type" if node.attr == "__name__" else node.attr.strip("_").lower()
    names = [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
    return names[-1].strip("_").lower() if names else "..."
