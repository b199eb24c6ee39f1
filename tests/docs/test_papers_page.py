"""The page on the papers has a row for every numbered item, and everything that it names is there."""

import ast
import inspect
import os
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest
from registry import experiments

import dpsieve.papers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/background/papers.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^#{2,3} ", PAGE, flags=re.MULTILINE)[1:]}

NUMBERED = {  # of each section: the kind of item, the number before the point, and how many there are
    "Chapter 1": [("Definition 1.", 7), ("Fact 1.", 5)],
    "Chapter 2": [("Algorithm ", range(1, 12)), ("Definition 2.", 2), ("Lemma 2.", 34), ("Theorem 2.", 4),
                  ("Corollary 2.", 2), ("Table 2.", 2), ("Figure 2.", 5), ("Proposition 2.", 1)],
    "Chapter 3": [("Algorithm ", range(12, 14)), ("Definition 3.", 3), ("Lemma 3.", 6), ("Theorem 3.", 1),
                  ("Corollary 3.", 2), ("Fact 3.", 1)],
    "Chapter 4": [("Algorithm ", range(14, 17)), ("Definition 4.", 2), ("Lemma 4.", 11), ("Theorem 4.", 2),
                  ("Corollary 4.", 1), ("Figure 4.", 1)],
    "Chapter 5": [("Algorithm ", range(17, 19)), ("Definition 5.", 7), ("Lemma 5.", 14), ("Theorem 5.", 5),
                  ("Corollary 5.", 1), ("Figure 5.", 4), ("Table 5.", 1), ("Listing 5.", 1)],
    "Sample-and-threshold": [("Lemma ", (1, 3, 4, 5, 6, 7, 8, 9)), ("Theorem ", (2,)), ("Figure ", 2)],
    "Missing mass": [("Algorithm ", 4), ("Lemma 3.", 1), ("Theorem 3.", (2, 3, 5, 6)), ("Corollary 3.", (4,)),
                     ("Definition 2.", 2), ("Definition 3.", 1), ("Definition 4.", 1), ("Lemma 4.", 2),
                     ("Theorem 4.", (3, 5)), ("Corollary 4.", (4, 6)), ("Lemma A.", 2), ("Lemma B.", 1),
                     ("Lemma C.", (1, 2, 3, 4, 5, 7, 8)), ("Corollary C.", (6,)), ("Lemma D.", 1), ("Table ", 1),
                     ("Figure ", 13)],
}  # fmt: skip
FIRST = (
    "Algorithm 1, 2, 3, 4, 5; Lemma 3.1, 3.2, 3.3, 3.4, 4.1, 4.2, A.1, A.2, A.3, C.1, D.1; Definition 2.1; "
    "Figure 1, 2, 3, 4, 5, 6"
)
PUBLISHED = (
    "Algorithm 1, 2, 3, 4, 5, 6; Lemma 4.1, 4.2, 4.3, 4.4, 5.2; Theorem 5.1; Corollary 6.1; Definition 3.1; "
    "Figure 1, 2, 3, 4, 5, 6"
)


def section(name):
    return next(text for title, text in SECTIONS.items() if title.startswith(name))


def items(text):
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize("name", NUMBERED)
def test_every_numbered_item_has_a_row_of_its_own(name):
    found = items(section(name))
    for kind, numbers in NUMBERED[name]:
        numbers = range(1, numbers + 1) if isinstance(numbers, int) else numbers
        assert [f"{kind}{number}" for number in numbers if f"{kind}{number}" not in found] == []


@pytest.mark.parametrize(("place", "listed"), [(0, FIRST), (1, PUBLISHED)], ids=["first version", "published"])
def test_every_item_of_both_versions_on_weighted_sampling(place, listed):
    found = set()
    for item in items(section("Differentially private weighted")):
        sides = item.split(" / ")
        if len(sides) == 2 and sides[place] != "-":
            kind = re.match(r"[A-Z]\w+ ", item if place == 0 else f"{sides[1]} ") or re.match(r"[A-Z]\w+ ", item)
            found.add(f"{kind.group()}{sides[place].rpartition(' ')[2]}")
    wanted = [f"{part.split()[0]} {n.split()[-1]}" for part in listed.split("; ") for n in part.split(", ")]
    assert [name for name in wanted if name not in found] == []


def resolved(name):
    """Return what a dotted name is, after the packages, modules and classes that it is in."""
    parts = name.split(".")
    found = [import_module(parts[0])]
    for at, part in enumerate(parts[1:], 1):
        found.append(getattr(found[-1], part, None) or import_module(".".join(parts[: at + 1])))
    return found


def test_every_python_name_resolves_and_has_an_example():
    """In its own documentation, in that of its class, or among the examples of the page, which its tests run."""
    tables, _, shown = PAGE.partition("## Examples")
    names = sorted(set(re.findall(r"`(dpsieve(?:\.\w+)+)", tables)))
    assert len(names) > 150
    without = []
    for name in names:
        around, found = resolved(name)[-2:]
        documented = [found, around] if inspect.isclass(around) else [found]
        if not any(">>>" in (inspect.getdoc(each) or "") for each in documented):
            without.append(name.rpartition(".")[2])
    assert len(without) < 35
    assert [name for name in without if name != "papers" and not re.search(rf"\b{name}\b", shown)] == []


PACKAGES = {
    "weighted_sampling": "Differentially private weighted", "sample_threshold": "Sample-and-threshold",
    "thesis": "Chapter", "missing_mass": "Missing mass",
}  # fmt: skip


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_of_a_paper_is_on_the_page(package):
    """In the section of its paper; classes by the functions that make them."""
    home = import_module(f"dpsieve.papers.{package}")
    text = "".join(part for title, part in SECTIONS.items() if title.startswith(PACKAGES[package]))
    functions = [name for name in home.__all__ if inspect.isfunction(getattr(home, name))]
    assert [name for name in functions if f"`dpsieve.papers.{package}.{name}`" not in text] == []


TEXTS = {"000": ("Differentially private weighted",), "001": ("Differentially private weighted",),
         "002": ("Sample-and-threshold",), "003": ("Chapter",), "004": ("Missing mass",)}  # fmt: skip
CITED = {  # of other works
    "003": {"Proposition 1.6", "Theorem 1", "Theorem 3.16", "Theorem 3.8", "Theorem 7.2", "Theorem 9.3"},
    "004": {"Corollary 4.1", "Table 2", "Theorem 1", "Theorem 5.1", "Theorem 7"},
}
KINDS = "Algorithm|Lemma|Theorem|Corollary|Proposition|Fact|Definition|Figure|Table|Listing|Problem"


@pytest.mark.skipif(
    "DPSIEVE_PAPERS" not in os.environ, reason="DPSIEVE_PAPERS is no folder with the texts of the papers"
)
@pytest.mark.parametrize("paper", TEXTS)
def test_every_item_of_a_text_is_on_the_page(paper):
    """Every 'Algorithm 7' and the like that occurs in the text, as a row of the section of its paper."""
    (path,) = Path(os.environ["DPSIEVE_PAPERS"]).glob(f"{paper}*.txt")
    named = set(re.findall(rf"(?<!\w)((?:{KINDS}) (?:[A-F]\.)?\d+(?:\.\d+)?)", path.read_text()))
    rows = [item for title, part in SECTIONS.items() if title.startswith(TEXTS[paper]) for item in items(part)]
    numbers = {f"{kind} {number}" for row in rows for kind in KINDS.split("|") if kind in row
               for number in re.findall(r"(?:[A-F]\.)?\d+(?:\.\d+)?", row)}  # fmt: skip
    assert sorted(named - numbers - CITED.get(paper, set())) == []
    assert len(named) > 10


def test_the_tables_are_those_of_the_file(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/tools")
    import papers_page

    assert papers_page.build_page() == PAGE, "run docs/tools/papers_page.py"
    named = [name for row in papers_page.read_items() for name in row["where"].split()]
    assert {f"experiment:{name}" for name in experiments()} == {n for n in named if n.startswith("experiment:")}


def test_every_file_and_function_is_there():
    named = set(re.findall(r"`((?:experiments|tests)/[\w/.]+)(?::(\w+))?`", PAGE))
    assert len(named) > 8
    for path, function in named:
        text = (ROOT / path).read_text()
        defined = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)} if function else ""
        assert function in defined, f"{path}:{function}"


def test_every_public_function_of_the_papers_has_an_example():
    for module in pkgutil.walk_packages(dpsieve.papers.__path__, "dpsieve.papers."):
        if module.name.endswith("_loops"):
            continue
        own = vars(import_module(module.name)).items()
        for name, function in own:
            if inspect.isfunction(function) and function.__module__ == module.name and not name.startswith("_"):
                assert ">>>" in (function.__doc__ or ""), f"{module.name}.{name}"
