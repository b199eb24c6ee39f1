"""The built site: strict, complete, offline, and with a plot that answers to its sliders.

It is built where something has changed since the last build. Skipped without Sphinx or Chromium; where CI is set, that
is a failure.
"""

import fcntl
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers.browser import chromium, serious_findings, skip_or_fail
from helpers.code_blocks import ROOT
from helpers.command import run

import dpsieve as ds
from dpsieve.channels import optimal, report_then_count

TOOLS = ("sphinx", "myst_parser", "furo")
SHOWN = ["index.html", "start.html", "guides/counts.html", "privacy/questions.html", "reference/python/release.html"]


@pytest.fixture(scope="session")
def site():
    """Return the folder of the site: that of the last build, unless something it is made from has changed since."""
    if missing := [name for name in TOOLS if importlib.util.find_spec(name) is None]:
        skip_or_fail(f"not installed: {', '.join(missing)}")
    folder = ROOT / "build/site"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:  # for all processes of a run
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, ROOT / "docs/tools/build.py", folder, "--if-changed"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


class Page(HTMLParser):
    """What a page refers to, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors.add(given.get("id"))
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag in ("script", "img", "link", "iframe", "source"):
            self.loaded += [given[name] for name in ("src", "href") if given.get(name)]


def test_pages_load_nothing_from_outside(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    outside = [(page.name, one) for page in pages for one in Page(page).loaded if re.match(r"(https?:)?//", one)]
    assert outside == []


def test_every_link_of_the_site_leads_to_a_page(site):
    for page in site.rglob("*.html"):
        for link in Page(page).links:
            path = link.partition("#")[0]
            if path and not re.match(r"\w+:", path):
                assert (page.parent / path).exists(), (page.relative_to(site), link)


def test_the_reference_has_every_public_name_command_and_error(site):
    for name in ds.__all__:
        if not inspect.ismodule(getattr(ds, name)):
            stem = f"class-{name}" if isinstance(getattr(ds, name), type) else name
            assert f"dpsieve.{name}" in Page(site / f"reference/python/{stem}.html").anchors, name
    release = (site / "reference/commands/release.html").read_text()
    assert "--max-keys-per-unit" in release and "The column to publish, or several." in release
    budget = (site / "reference/errors/BudgetExceeded.html").read_text()
    assert "Messages" in budget and "does not fit the budget" in budget and "smaller epsilon" in budget


def test_every_command_has_a_page(site):
    pages = {page.stem for page in (site / "reference/commands").glob("*.html")}
    commands = set(re.findall(r"^│ ([a-z][a-z-]+) ", run("--help").stdout, re.MULTILINE)) - {
        "audit",
        "collect",
        "ledger",
    }
    assert len(commands) > 8 and commands <= pages and {"ledger-create", "collect-histogram"} <= pages


def plotted():
    text = (ROOT / "docs/static/reporting.js").read_text()
    return json.loads(text.removeprefix("const REPORTING = ").rstrip().removesuffix(";"))


@pytest.mark.parametrize(("bound", "epsilon"), [(1, 0.3), (1, 1.0), (10, 1.0)])
def test_the_numbers_of_the_plot_are_those_of_the_library(bound, epsilon):
    numbers = plotted()
    channel = optimal(epsilon, numbers["delta"]) if bound == 1 else report_then_count(epsilon, numbers["delta"], bound)
    expected = channel.reporting_probability(np.array(numbers["units"]))
    shown = np.array(numbers["chances"][str(bound)][numbers["epsilons"].index(epsilon)])
    assert np.abs(shown - 1000 * expected).max() <= 0.5001


def test_pictures_are_small():
    files = [*(ROOT / "docs/img").iterdir(), *(ROOT / "docs/static").iterdir()]
    assert sum(file.stat().st_size for file in files) < 1_000_000
    shown = re.findall(r"!\[[^]]+\]\(img/([\w-]+)\.svg\)", (ROOT / "docs/gallery.md").read_text())
    assert len(set(shown)) == 12 and all(f'"{name}' in (ROOT / "docs/plots.py").read_text() for name in shown)


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, site):
    """Open a page of the site; a complaint in the console or a request to outside fails the test."""
    heard, contexts = [], []

    def open_page(name, width=1280, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(site.as_uri()) or heard.append(asked.url))
        path, _, query = name.partition("?")
        page.goto(f"{(site / path).as_uri()}?{query}".rstrip("?"))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in heard if not text.startswith("data:")] == []


def test_the_plot_answers_to_its_sliders(opened):
    page, numbers = opened("index.html"), plotted()
    said, curve = page.locator("#reporting output"), page.locator("#reporting .curve")
    before = curve.get_attribute("points")
    at = numbers["units"].index(19)
    for bound, epsilon in (("1", 1.0), ("1", 0.3), ("10", 0.3), ("100", 5.0)):
        page.get_by_label("epsilon", exact=True).fill(str(numbers["epsilons"].index(epsilon)))
        page.get_by_label("keys per user").select_option(bound)
        chance = numbers["chances"][bound][numbers["epsilons"].index(epsilon)][at] / 10
        words = f"{chance:.1f} %" if 0.1 <= chance <= 99.9 else "than"
        assert words in said.inner_text() and f"epsilon {epsilon:g}," in said.inner_text()
    assert curve.get_attribute("points") != before


def test_the_plot_is_usable_with_the_keyboard(opened):
    page = opened("index.html")
    page.get_by_label("epsilon", exact=True).focus()
    before = page.locator("#reporting output").inner_text()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#reporting output").inner_text() != before


def test_the_first_screen_has_the_result_the_plot_and_the_doors(opened):
    page = opened("index.html")
    for part in (".lead", ".table-wrapper table", "#reporting svg", "#reporting output", "ul.doors"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 900, part


def test_commands_are_copied_without_prompts_and_output(opened):
    page = opened("start.html", permissions=["clipboard-read", "clipboard-write"])
    copied = []
    for kind, words in (("console", "dpsieve demo"), ("console", "--out published"), ("python", "ds.release(")):
        block = page.locator(f".highlight-{kind}", has_text=words)
        block.hover()
        block.get_by_role("button", name="Copy this code").click()
        block.get_by_text("Copied").wait_for()
        copied.append(page.evaluate("navigator.clipboard.readText()"))
    assert copied[0] == "dpsieve demo --out events.parquet"
    first, *_, last = copied[1].splitlines()
    assert first.startswith("dpsieve release events.parquet") and last == "dpsieve report published --out report.html"
    assert copied[2].startswith("import dpsieve as ds\n")


@pytest.mark.parametrize("name", SHOWN)
def test_pages_fit_a_phone(opened, name):
    """No line of code is cut off either."""
    page = opened(name, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("[...document.querySelectorAll('pre')].every((one) => one.scrollWidth <= one.clientWidth)")
    assert page.locator("h1").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", [*SHOWN, "gallery.html", "reference/errors/BudgetExceeded.html"])
def test_axe_finds_nothing_serious(opened, name, scheme):
    assert serious_findings(opened(name, color_scheme=scheme), scheme) == []


def test_search_works_without_a_server(opened):
    page = opened("search.html?q=epsilon")
    page.locator("#search-results li").first.wait_for(timeout=20_000)
