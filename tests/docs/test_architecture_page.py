"""The architecture page names files and functions that exist, and its walks are short."""

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/background/architecture.md").read_text()


def test_every_file_it_names_is_there():
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    found = [any((ROOT / place / name).is_file() for place in ("src/dpsieve", ".")) for name in named]
    assert len(named) > 25 and [name for name, there in zip(named, found, strict=True) if not there] == []


def test_a_walk_has_at_most_ten_hops():
    walks = PAGE[PAGE.index("## Four walks") : PAGE.index("## Where is")].split("\n\n**")[1:]
    assert len(walks) == 4
    for walk in walks:
        assert 4 <= len(re.findall(r"`[\w/.]+(?:\.py|/)`", walk)) <= 10


def test_each_question_is_answered_by_a_module_that_defines_the_name():
    table = PAGE[PAGE.index("## Where is") : PAGE.index("## Packages")]
    answers = re.findall(r"^\| .+\? \| `([\w/]+)\.py` \| `([\w.]+)` \|$", table, re.MULTILINE)
    assert len(answers) == 10 == table.count("?") - 1
    for file, name in answers:
        module = import_module(f"dpsieve.{file.replace('/', '.')}")
        defined = reduce(getattr, name.split("."), module)
        assert defined.__module__ == module.__name__, (file, name)
