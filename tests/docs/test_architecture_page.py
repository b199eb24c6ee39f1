"""The architecture page names files that exist, and its walks are short."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()


def test_every_file_it_names_is_there():
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    found = [any((ROOT / place / name).is_file() for place in ("src/dpsieve", ".")) for name in named]
    assert len(named) > 25 and [name for name, there in zip(named, found, strict=True) if not there] == []


def test_a_walk_has_at_most_ten_hops():
    walks = PAGE[PAGE.index("## Four walks") : PAGE.index("## Packages")].split("\n\n**")[1:]
    assert len(walks) == 4
    for walk in walks:
        assert 4 <= len(re.findall(r"`[\w/.]+(?:\.py|/)`", walk)) <= 10
