"""Chromium for tests of pages, offline, and the rules of axe-core; tests are skipped where they are missing."""

import importlib.util
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
NO_CHROMIUM = "no Chromium here: apt-get install chromium, or set CHROMIUM"


@contextmanager
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        started = tools.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def axe_script():
    """Return the source of axe-core, which comes inside of a package of the extra dev; None without it."""
    found = importlib.util.find_spec("axe_playwright_python")
    return None if found is None else (Path(found.origin).parent / "axe.min.js").read_text()
