"""Fill the tables of docs/background/papers.md from papers.csv beside it; with --check, only compare.

    .venv/bin/python docs/tools/papers_page.py

A row of the file has the section, the item of the paper, what it is, where it is, and remarks. `where` holds names of
Python, paths in the repository (with a function after a colon), and experiments as `experiment:NAME`, separated by
spaces; `-` if the item has no function. The text around the tables is written by hand.
"""

import csv
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "experiments"))

from registry import experiments  # noqa: E402

PAGE = ROOT / "docs/background/papers.md"
ITEMS = PAGE.with_name("papers.csv")
FIRST, LAST = "<!-- items -->\n", "<!-- end -->"
HEAD = "| item | what it is | where | remarks |\n|---|---|---|---|\n"
Row = dict[str, str]


def read_items() -> list[Row]:
    """Return all items, in the order of the page."""
    with ITEMS.open(newline="") as file:
        return list(csv.DictReader(file))


def build_page() -> str:
    """Return the page with its tables."""
    items, filled = read_items(), []
    parts = re.split(r"(?m)^(?=#+ )", PAGE.read_text())
    for place, part in enumerate(parts):
        section = part.partition("\n")[0].lstrip("# ")
        before, mark, rest = part.partition(FIRST)
        if mark:
            table = HEAD + "".join(_line(item) for item in items if item["section"] == section)
            parts[place] = before + FIRST + table + LAST + rest.partition(LAST)[2]
            filled.append(section)
    if filled != list(dict.fromkeys(item["section"] for item in items)):
        raise ValueError(f"{PAGE.name} needs one place {FIRST}{LAST} in each section of {ITEMS.name}, in its order")
    return "".join(parts)


def _line(item: Row) -> str:
    where = ", ".join(_place(name) for name in item["where"].split())
    return f"| {item['item']} | {item['what']} | {where} | {item['remarks']} |\n"


def _place(name: str) -> str:
    """Return a name as text: an experiment leads to its numbers."""
    if name == "-":
        return name
    if not name.startswith("experiment:"):
        return f"`{name}`"
    experiment = experiments()[name.partition(":")[2]]
    return f"[`{experiment.name}`](evidence.md#{experiment.paper.replace(' ', '-')})"


def main() -> None:
    """Write the page, or report that it is out of date."""
    page = build_page()
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text() == page else f"{PAGE.name} is out of date. Run docs/tools/papers_page.py.")
    PAGE.write_text(page)
    print(PAGE)


if __name__ == "__main__":
    main()
