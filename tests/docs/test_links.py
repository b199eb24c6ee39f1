"""Links between pages lead somewhere, and the questions of newcomers are answered near the first page.

This reads the Markdown, so it needs no Sphinx; `make docs` also checks the generated reference.
"""

import os
import re
from collections import deque
from pathlib import Path

import pytest
from helpers.code_blocks import PAGES, ROOT

DOCS = ROOT / "docs"
GENERATED = tuple(DOCS / "reference" / part for part in ("python", "commands", "errors"))
PROJECT = [ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
MOST_WORDS = 800

ANSWERS = {
    "What epsilon should I choose?": "privacy/choosing.md#epsilon",
    "What delta?": "privacy/choosing.md#delta",
    "Can I publish weekly?": "guides/weekly.md#what-do-many-weeks-cost",
    "Can I sum money per product?": "guides/totals.md#totals-and-means-per-key",
    "What about joins?": "privacy/promise.md#joins-and-filters",
    "How do I explain this to legal?": "privacy/questions.md#in-one-sentence-for-a-contract-or-a-notice",
    "Why is my count lower than in SQL?": "guides/counts.md#why-is-my-count-lower-than-in-sql",
    "Keys or counts: which goal?": "guides/bounds.md#keys-or-counts",
    "How many users do I need?": "privacy/choosing.md#how-many-units-do-i-need",
    "May I run it again if I dislike the result?": "privacy/promise.md#running-it-again",
    "My table has no user column?": "guides/counts.md#no-user-column",
    "One person with two accounts?": "privacy/promise.md#units",
    "What does 'at most 137' mean?": "guides/counts.md#at-most-137",
    "May I post the file, and compute with it?": "privacy/promise.md#what-you-may-do-with-a-release",
    "What must I not publish?": "privacy/promise.md#what-you-may-do-with-a-release",
    "Can I compare weeks, or compute ratios?": "guides/weekly.md#compare-weeks",
    "The budget is spent. When does it renew?": "privacy/choosing.md#when-does-a-budget-renew",
    "How do I install it in my project?": "start.md#install",
    "release, discover, top-k, stream or collect?": "which_call.md#release-discover-or-top-k",
    "How long, how much memory?": "start.md#how-long-and-how-much-memory",
}


def without_code(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """Return the anchors of the headings of a page, as GitHub and MyST make them."""
    found = []
    for heading in re.findall(r"^#{1,6} (.+)$", without_code(page), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")
        found.append(plain)
    return found


def links(page):
    """Yield the page and the anchor of every link that stays in the project."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if not re.match(r"\w+:", target):
            path, _, anchor = target.partition("#")
            yield (Path(os.path.normpath(page.parent / path)) if path else page), anchor


@pytest.mark.parametrize("page", [*PAGES, *PROJECT], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings(page):
    wrong = []
    for target, anchor in links(page):
        if any(part in target.parents for part in GENERATED):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


def clicks(start):
    """Return how many links each page is away from the first one, by the links in texts alone."""
    away, waiting = {start: 0}, deque([start])
    while waiting:
        page = waiting.popleft()
        for target, _ in links(page) if page.suffix == ".md" and page.exists() else ():
            if target not in away:
                away[target] = away[page] + 1
                waiting.append(target)
    return away


@pytest.mark.parametrize("question", ANSWERS)
def test_a_question_of_a_newcomer_is_answered_within_two_clicks(question):
    page, _, anchor = ANSWERS[question].partition("#")
    assert anchor in anchors(DOCS / page)
    assert clicks(DOCS / "index.md")[DOCS / page] <= 2
    linked = {target for target, _ in links(DOCS / "index.md")} | {target for target, _ in links(DOCS / "questions.md")}
    assert DOCS / "questions.md" in linked and DOCS / page in linked, "the list of questions leads there"


def test_there_are_twenty_questions():
    assert len(ANSWERS) == 20


def test_every_page_is_found_from_the_first_one():
    away = clicks(DOCS / "index.md")
    listed = {page for page in PAGES[1:] if page in away}
    toctrees = "\n".join(page.read_text() for page in PAGES if page.name == "index.md")
    assert [page for page in PAGES[1:] if page not in listed and page.stem not in toctrees] == []


def test_lines_of_code_fit_the_page():
    """About 90 characters on a desktop; phones wrap them."""
    pages = [ROOT / "README.md", *DOCS.glob("*.md"), *(DOCS / "guides").glob("*.md"), *(DOCS / "privacy").glob("*.md")]
    long = []
    for page in pages:
        code = re.findall(r"^```(?!\{)\w.*?\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
        long += [(page.name, line) for block in code for line in block.splitlines() if len(line) > 90]
    assert long == []


@pytest.mark.parametrize("page", sorted((DOCS / "guides").glob("*.md")), ids=lambda page: page.name)
def test_a_guide_is_short_and_has_one_link_to_its_proof(page):
    assert len(page.read_text().split()) <= MOST_WORDS
    if page.name not in ("index.md", "report.md"):
        proofs = [target for target, _ in links(page) if target.parent == DOCS / "background"]
        assert proofs and "## What can go wrong" in page.read_text()
