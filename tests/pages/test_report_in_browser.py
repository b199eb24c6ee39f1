"""The page of a release in a real browser: Chromium, offline. Skipped where there is none.

Frequencies are so large that a key is withheld, or two are out of order, with probability below 1e-100.
"""

import time
from pathlib import Path

import numpy as np
import pytest
from helpers.browser import chromium, serious_findings

import dpsieve as ds
from dpsieve.testing import insecure_source

ODD = [
    "<script>alert(1)</script>", "</script><b>bold</b>", "<img src=x onerror=alert(1)>", "<!-- comment", "&lt;i&gt;",
    "\"quotes\" and 'more'", "line\u2028separator", "turned \u202e around \u200f", "nul\0key", "${7*7} `x`", "שלום",
    "", "long " * 500,
]  # fmt: skip


@pytest.fixture(scope="session")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, tmp_path):
    """Open the page of a release; whatever it asks of the network or complains about fails the test."""
    heard, contexts = [], []

    def open_page(release, width=1280, **options):
        path = release.report(tmp_path / f"{len(contexts)}.html")
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda asked: asked.url == path.as_uri() or heard.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in heard if text != "data:,"] == []


def many(keys):
    channel = ds.channels.simple(1.0, 1e-3)
    return channel.release([f"key {i}" for i in range(keys)], 10**9 // np.arange(1, keys + 1))


@pytest.fixture(scope="module")
def small():
    keys = ["coffee", "juice", "tea", "water"]
    return ds.channels.optimal(1.0, 1e-3).release(keys, [900, 400, 700, 500])


def first_column(page):
    return page.locator("#table tbody tr td:first-child").all_inner_texts()


def test_the_most_common_keys_come_first_and_a_click_sorts(opened, small):
    page = opened(small)
    assert first_column(page) == ["coffee", "tea", "water", "juice"]
    page.get_by_role("button", name="key").click()
    assert first_column(page) == ["coffee", "juice", "tea", "water"]
    page.get_by_role("button", name="key").click()
    assert first_column(page) == ["water", "tea", "juice", "coffee"]
    assert page.locator("th").first.get_attribute("aria-sort") == "descending"


def test_an_interval_with_an_upper_end_only_says_at_most(opened):
    channel = ds.channels.report_then_count(1.0, 1e-8, max_keys=10)
    page = opened(channel.release([f"key {i}" for i in range(40)], [80] * 40))
    cells = page.locator("#table td").all_inner_texts()
    assert any(text.startswith("at most ") for text in cells) and not any(text.startswith("1 to ") for text in cells)


def test_search_finds_and_says_how_many(opened, small):
    page = opened(small)
    page.get_by_label("Search").fill("TE")
    assert first_column(page) == ["tea", "water"]
    assert page.get_by_role("status").inner_text() == "1 to 2 of 2 that match, of 4"


def test_the_keyboard_is_enough(opened, small):
    page = opened(small)
    page.get_by_label("Rows").focus()
    page.keyboard.press("Tab")  # the table itself, so that arrow keys scroll it
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "key"
    assert "solid" in page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    page.keyboard.press("Enter")
    assert first_column(page) == ["coffee", "juice", "tea", "water"]
    controls = "[...document.querySelectorAll('input, select, button')]"
    named = f"{controls}.every(e => e.labels.length || e.ariaLabel || e.innerText)"
    assert page.evaluate(named)


def test_keys_are_text_whatever_they_hold(opened):
    made = ds.channels.optimal(1.0, 1e-3).release(ODD, [1000] * len(ODD), source=insecure_source(5))
    page = opened(made)
    assert page.locator("#table b, #table img, #table script").count() == 0
    shown = first_column(page)
    assert {"<script>alert(1)</script>", "</script><b>bold</b>", "<!-- comment", "&lt;i&gt;", "empty"} <= set(shown)
    assert {"lineU+2028separator", "turned U+202E around U+200F", "nulU+0000key"} <= set(shown)
    assert any(text.endswith("(2,500 characters)") for text in shown)
    assert "UNSAFE TO PUBLISH" in page.get_by_role("alert").inner_text()


def test_ten_thousand_keys_stay_quick(opened):
    start = time.perf_counter()
    page = opened(many(10_000))
    page.get_by_label("Search").fill("key 77")
    page.get_by_role("button", name="key").click()
    assert "of 111 that match, of 10,000" in page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Last page").click()
    assert page.get_by_role("status").inner_text().startswith("101 to 111")
    assert time.perf_counter() - start < 10  # 1 to 2 s on a busy machine, most of it to open the page


def test_a_hundred_thousand_keys_are_sorted_and_searched(opened):
    page = opened(many(100_000))
    spent = page.evaluate(
        """() => {
            const start = performance.now(), box = document.getElementById("search");
            document.querySelectorAll("th button")[0].click();
            box.value = "key 777";
            box.dispatchEvent(new Event("input"));
            return performance.now() - start;
        }"""
    )
    assert "of 111 that match, of 100,000" in page.get_by_role("status").inner_text()
    assert spent < 5000  # milliseconds; about 80 on a busy machine


def test_plots_are_drawn_and_say_what_they_show(opened, small):
    page = opened(small)
    rank = page.get_by_role("img", name="Counts of 4 keys by rank")
    assert rank.locator("circle").count() == 4 and rank.locator(".band").count() == 1
    reporting = page.get_by_role("img", name="Probability of being reported by frequency")
    assert reporting.locator("polyline").count() == 1
    rank.hover(position={"x": 50, "y": 50})
    assert page.locator("#rank-readout").inner_text().startswith("Rank 1, ")
    assert page.locator("#rank-readout").inner_text().endswith("coffee")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(opened, small, scheme):
    """Contrast of text is at least 4.5 (WCAG AA)."""
    page = opened(small, color_scheme=scheme)
    page.locator("summary").last.click()
    colours = page.evaluate(
        """() => {
            const parse = (text) => text.match(/[\\d.]+/g).map(Number);
            const ground = parse(getComputedStyle(document.body).backgroundColor);
            const written = (e) => [...e.childNodes].some((inside) => inside.nodeType === Node.TEXT_NODE);
            return [...document.querySelectorAll("main *")]
                .filter((e) => written(e) && e.checkVisibility() && !e.closest(":disabled"))
                .map((e) => e.closest("svg") ? getComputedStyle(e).fill : getComputedStyle(e).color)
                .map((colour) => [parse(colour).slice(0, 3), ground.slice(0, 3)]);
        }"""
    )

    def light(colour):
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    grounds = {light(ground) for _, ground in colours}
    assert len(grounds) == 1 and (grounds.pop() > 0.5) == (scheme == "light")
    for text, ground in colours:
        low, high = sorted((light(text), light(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened, small, scheme):
    page = opened(small, color_scheme=scheme)
    page.get_by_text("Parameters of the mechanism").click()
    assert serious_findings(page) == []


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_sticks_out_of_the_page(opened, width):
    for keys in ([*ODD, "w" * 119], ["w" * 119]):  # the sentence that reads one row has the long key for sure
        page = opened(ds.channels.optimal(1.0, 1e-3).release(keys, [1000] * len(keys)), width)
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_it_prints_in_ink_without_controls(opened, small):
    page = opened(small, color_scheme="dark")
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.get_by_label("Search").is_visible() and page.get_by_text("coffee").first.is_visible()


def test_what_has_no_counts_or_no_keys(opened, small):
    keys = opened(ds.channels.optimal(1.0, 1e-3).release(["tea", "water"], [900, 900], keys_only=True))
    assert first_column(keys) == ["tea", "water"] and not keys.locator("#rank-plot").is_visible()
    empty = opened(ds.channels.optimal(1.0, 1e-3).release([], []))
    assert "No keys" in empty.locator("h1").inner_text() and not empty.locator("#table").is_visible()
    known = opened(ds.channels.known_keys(0.1).release([f"k{i}" for i in range(50)], [0] * 50))
    assert known.locator("#rank-plot").is_visible() and not known.locator("#reporting-plot").is_visible()
    assert len(first_column(known)) == 20 and Path(known.url).suffix == ".html"
