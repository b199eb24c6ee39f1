"""A release in a real notebook kernel, as a data scientist runs it, without ipywidgets."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpsieve as ds
from dpsieve.display import html_table, show_progress
from dpsieve.engines.engine import monotonic_progress

CODE = """
import sys
sys.modules["ipywidgets"] = None
import dpsieve as ds, pyarrow as pa
table = pa.table({"user": list(range(500)), "query": ["tea"] * 500})
shares = []
for more in ({}, {"progress": shares.append}):
    made = ds.release(table, key="query", privacy_unit="user", epsilon=1.0, delta=1e-6, max_keys_per_unit=1, **more)
    print(made.table["query"].to_pylist())
print(shares[-1])
"""
CLIENT = """
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
try:
    reply = client.execute_interactive(sys.argv[1], timeout=120)["content"]
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
sys.exit("".join(reply.get("traceback", [])) or None)
"""


def test_a_release_in_a_notebook():
    done = subprocess.run([sys.executable, "-c", CLIENT, CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['tea']\n['tea']\n1.0\n"


NOTEBOOK = Path(__file__).parents[2] / "examples/first_release.ipynb"
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
NotebookClient(book, timeout=120).execute()
nbformat.write(book, "done.ipynb")
"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    place = tmp_path_factory.mktemp("notebook")
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, NOTEBOOK], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((place / "done.ipynb").read_text())["cells"]
    return place, [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]


def test_the_example_notebook_runs_and_shows_itself(executed):
    place, outputs = executed
    _, preview, (progress, release), ledger, plot, certificate, _ = outputs
    pages = ["".join(shown[-1]["data"]["text/html"]) for shown in (preview, [release], ledger, certificate)]
    assert all("<table>" in page for page in pages)
    words = ("chosen with differential privacy", "cheap bicycle reviews near me", "first release", "holds for")
    assert [word in page for word, page in zip(words, pages, strict=True)] == [True] * 4
    assert progress["data"]["text/html"] == []  # the bar takes itself away
    chart = "".join(plot[0]["data"]["image/svg+xml"])
    assert "text/html" not in plot[0]["data"]
    assert all(word in chart for word in ("Counts by rank", "mark-area", "count"))
    assert "Certificate" in (place / "report.html").read_text()
    assert len(ds.Release.load(place / "published")) > 10


def test_the_example_notebook_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")


def test_what_notebooks_show_is_text(tmp_path):
    assert html_table([("<b>", "\x1b[2J")], ["<i>"]).count("&lt;") == 2
    ledger = ds.Ledger(tmp_path / "x.ledger", epsilon=1.0, delta=1e-6, unit="<script>")
    assert "&lt;script&gt;" in ledger._repr_html_() and "<script>" not in ledger._repr_html_()
    preview = ds.preview(epsilon=1.0, delta=1e-6, privacy_unit="<b>user")
    assert "one &lt;b&gt;user" in preview._repr_html_()
    certificate = ds.channels.optimal(1.0, 1e-6, unit="<b>").certify()
    assert "&lt;b&gt;" in certificate._repr_html_() and 'left">one unit</td>' in certificate._repr_html_()


def test_numbers_in_notebooks_have_commas_and_six_digits():
    """75,630 is off by 1,000 with probability below 1e-100, and all of 40 keys are withheld with one of 2^-40."""
    made = ds.channels.optimal(1.0, 1e-3).release([2026], [75_630])
    assert ">2026<" in made._repr_html_() and re.search(r">7\d,\d\d\d<", made._repr_html_())
    rare = pa.table({"user": range(40 * 64), "key": [f"key {i}" for i in range(40)] * 64})
    few = ds.release(rare, key="key", privacy_unit="user", epsilon=1.0, delta=1e-8, max_keys_per_unit=10)
    assert ">at most<" in few._repr_html_() and "None" not in few._repr_html_()
    assert min(few.table["low"].to_pylist()) == 1 and ">1</td>" not in few._repr_html_(), "nothing is known below"
    total = ds.sum(np.full(9_000, 123.25), bounds=(0, 1000), epsilon=1.0)
    assert re.search(r">1,1\d\d,\d\d\d<", total._repr_html_())


def test_progress_in_a_terminal_and_nowhere_else(monkeypatch, capsys):
    show = show_progress()
    show(0.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show = show_progress()
    for share in (0.0, 0.421, 0.422, 1.0):
        show(share)
    assert capsys.readouterr().err == "\rreading and counting: 0 %\rreading and counting: 42 %\r\x1b[K"
    assert monotonic_progress(False) is None
    with pytest.raises(ds.errors.InvalidType, match="True or a function"):
        monotonic_progress(5)
