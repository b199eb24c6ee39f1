"""Every code block of README.md and docs/ runs as printed, from top to bottom."""

import contextlib
import gzip
import logging
import shutil
from importlib import import_module

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from helpers.code_blocks import PAGES, ROOT, Block, assert_shown, blocks, run_console, run_python, run_sql

import dpsieve as ds
from dpsieve.synthetic import query_log

pytestmark = pytest.mark.usefixtures("one_database")
LANGUAGES = {"python", "console", "sql", "shell", "dockerfile"}
FROM_NOTHING = {"README.md", "start.md"}  # a newcomer has no files: these pages make their own
MOST_NOT_RUN = 14


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the pages name."""
    place = tmp_path_factory.mktemp("pages")
    log = query_log(20_000, 4_000)
    queries = log.column("query").to_pylist()
    (place / "events").mkdir()
    for name in ("events.parquet", "events/monday.parquet"):
        pq.write_table(log, place / name)
    for name in ("events.csv", "monday.csv", "tuesday.csv"):
        csv.write_csv(log, place / name)
    (place / "queries.txt").write_text("\n".join(queries))
    (place / "queries.gz").write_bytes(gzip.compress("\n".join(queries).encode()))
    prices = [i % 97 + 0.5 for i in range(len(log))]
    pq.write_table(pa.table({"user_id": log.column("user_id"), "price": prices}), place / "sales.parquet")
    visits = {"user_id": log.column("user_id"), "minutes": prices, "pages": [i % 40 for i in range(len(log))]}
    csv.write_csv(pa.table(visits), place / "visits.csv")
    for name in ("server1", "server2"):
        sketch = ds.MisraGries(1024)
        sketch.update(queries)
        (place / name).write_bytes(sketch.to_bytes())
    return place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)).removeprefix("docs/"))
def test_a_page_runs_from_top_to_bottom(page, files, tmp_path, request):
    folder = tmp_path / "folder"
    folder.mkdir()
    if page.parent.name == "guides":  # they make their own files, except those of the demo
        shutil.copy(files / "events.parquet", folder)
    elif page.name not in FROM_NOTHING:
        shutil.copytree(files, folder, dirs_exist_ok=True)
    names = {"__name__": "page"}
    request.addfinalizer(lambda: logging.getLogger("dpsieve").setLevel(logging.NOTSET))
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page.name}:{block.line}: say what this block is: {sorted(LANGUAGES)}"
        if not block.runs:
            continue
        with contextlib.chdir(folder):
            if block.language == "python":
                run_python(block, page, names)
            elif block.language == "sql":
                run_sql(block)
            else:
                run_console(block, folder)


def test_the_example_in_the_help_of_each_command_works(files, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/tools")
    examples = dict(import_module("reference").examples())
    assert len(examples) > 18
    folder = shutil.copytree(files, tmp_path / "folder")
    for words in [
        words for words in examples if words.startswith(("dpsieve audit", "dpsieve explore", "dpsieve warm-up"))
    ]:
        del examples[words]  # these take minutes, and the explorer serves until it is stopped
    first = [examples.pop(words) for words in ("dpsieve release", "dpsieve ledger create")]  # others read their files
    others = [line.replace("--out published", "--out others") for line in examples.values()]
    for line in [*first, *others]:
        run_console(Block("console", f"$ {line}\n".replace("$(cat noted-head.txt)", "HASH"), True, 1), folder)


def test_wrong_numbers_and_failing_commands_are_noticed(tmp_path):
    assert_shown(["0.77", "1e-08", "19", "3.73..."], [0.7749, 1.04e-8, 19, 3.739])
    for text, value in [("0.77", 0.776), ("1e-08", 1.6e-8), ("19", 20), ("3.73...", 3.75)]:
        with pytest.raises(AssertionError):
            assert_shown([text], value)
    for text in ("$ dpsieve nothing\n", "$ make nothing\n", "$ dpsieve --version\nanother program\n"):
        with pytest.raises(AssertionError):
            run_console(Block("console", text, True, 1), tmp_path)
    for text in ("1 + 1  # 3, surely\n", "(1, 2.0)  # 1, 3\n", "print(1)  # 2\n"):
        with pytest.raises(AssertionError):
            run_python(Block("python", text, True, 1), tmp_path, {})


def test_few_blocks_are_not_run():
    left_out = [(page.name, block.line) for page in PAGES for block in blocks(page) if not block.runs]
    assert len(left_out) <= MOST_NOT_RUN, left_out
