"""Chromium for tests of pages, offline, and the rules of axe-core; without them tests skip, or fail with CI=true."""

import importlib.util
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def skip_or_fail(reason):
    """Skip a test for what is not installed; fail it where all has to be."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@contextmanager
def chromium():
    """Yield a browser, offline as far as flags can make it so."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        skip_or_fail("no Chromium here: apt-get install chromium, or set CHROMIUM")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


def serious_findings(page, scheme="light"):
    """Return what axe-core, which comes inside of a package of the extra dev, finds serious or critical in a page.

    A dark page differs from the light one in its colours only, so only the rule about these is applied to it.
    """
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        skip_or_fail("axe-playwright-python is not installed")
    page.evaluate((Path(found.origin).parent / "axe.min.js").read_text())
    rules = ", runOnly: ['color-contrast']" if scheme == "dark" else ""
    shown = "(all) => all.violations.map((v) => [v.impact, v.id, v.nodes[0].html])"
    found = page.evaluate(f"axe.run({{ preload: false{rules} }}).then({shown})")
    return [one for one in found if one[0] in ("serious", "critical")]
