"""Every experiment runs at a small size, and its stored verdicts are what its stored numbers say."""

import csv
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from experiment import (
    PAPERS,
    RESULTS,
    Plot,
    judge_claim,
    pick,
    read_rows,
    read_runs,
    read_verdicts,
    repeatable,
    write_rows,
)
from picture import Axis, draw
from registry import experiments

ROOT = Path(__file__).parents[2]
EVERY = list(experiments().values())
STORED = [one for one in EVERY if one.numbers.exists()]


@pytest.fixture(autouse=True)
def no_real_data(monkeypatch):
    monkeypatch.delenv("DPSIEVE_DATA", raising=False)


@pytest.mark.parametrize("experiment", EVERY, ids=lambda one: one.name)
def test_a_small_run_gives_what_a_stored_one_has(experiment, tmp_path):
    for name in ("first", "rows"):
        with repeatable(experiment.name):
            write_rows(tmp_path / f"{name}.csv", experiment.run(True))
    assert (tmp_path / "first.csv").read_text() == (tmp_path / "rows.csv").read_text(), "it is not seeded by its name"
    rows = read_rows(tmp_path / "rows.csv")
    verdicts = experiment.judge(rows)
    assert verdicts and all(each.verdict in ("same", "better", "differs") for each in verdicts)
    for plot in experiment.plots:
        ET.fromstring(draw(plot, rows))
    if experiment in STORED:
        assert list(rows[0]) == list(read_rows(experiment.numbers)[0])
    if "data" in rows[0]:
        assert all("synthetic" in row["data"] or row["data"] == "geometric" for row in rows)


@pytest.mark.parametrize("experiment", STORED, ids=lambda one: one.name)
def test_stored_verdicts_are_those_of_the_stored_numbers(experiment):
    found = experiment.judge(read_rows(experiment.numbers))
    assert read_verdicts()[experiment.name] == found
    assert all(each.reason for each in found if each.verdict == "differs")
    for plot in experiment.plots:
        assert experiment.picture(plot).read_text() == draw(plot, read_rows(experiment.numbers)) + "\n"
        assert experiment.picture(plot).stat().st_size < 150_000


QUICK = [one for one in STORED if one.name in read_runs() and read_runs()[one.name]["data"] == "none"
         and read_runs()[one.name]["seconds"] <= 1.5]  # fmt: skip


@pytest.mark.parametrize("experiment", QUICK, ids=lambda one: one.name)
def test_stored_numbers_are_those_of_the_code(experiment, tmp_path):
    """Of experiments that need no file and take a second: after a change, `python -m experiments NAME` stores them.

    Other versions of numpy and other processors round the last digits in another way.
    """
    with repeatable(experiment.name):
        write_rows(tmp_path / "rows.csv", experiment.run(False))
    cells, stored = (re.split(r"[,\n]", path.read_text()) for path in (tmp_path / "rows.csv", experiment.numbers))
    assert len(cells) == len(stored)
    for cell, expected in zip(cells, stored, strict=True):
        assert cell == expected or float(cell) == pytest.approx(float(expected), rel=1e-3, abs=1e-9)


def test_every_figure_and_table_has_an_experiment():
    """Figures and tables by their captions; tables 2.1 and 5.D of the thesis hold no numbers."""
    wanted = {
        "weighted sampling": [f"Figure {i}" for i in range(1, 7)],
        "sample-and-threshold": ["Figures 1 and 2"],
        "thesis": ["Figures 2.1 and 2.2", "Figure 2.3", "Figure 2.4", "Figure 2.5", "Table 2.2", "Figure 4.1",
                   "Figure 5.1", "Figure 5.2 (a)", "Figure 5.2 (b)", "Figure 5.2 (c)", "Figure 5.3 (a)",
                   "Figure 5.3 (b)", "Figure 5.3 (c)", "Figure 5.4", "Table 5.1"],
        "missing mass": ["Table 1, Figures 4 to 7", "Figures 1 and 9", "Figures 8 and 10", "Figures 2, 11 and 12",
                         "Figures 3 and 13"],
    }  # fmt: skip
    for paper, figures in wanted.items():
        assert paper in PAPERS
        have = [one.figure for one in EVERY if one.paper == paper]
        assert [figure for figure in figures if not any(each.startswith(figure) for each in have)] == []


def test_nothing_is_stored_that_no_experiment_writes():
    known = {"verdicts.csv", "runs.csv", "peers.csv"}  # the last is written by `make peers`
    known |= {one.numbers.name for one in EVERY}
    known |= {one.picture(plot).name for one in EVERY for plot in one.plots}
    assert [path.name for path in RESULTS.iterdir() if path.name not in known] == []
    assert set(read_verdicts()) == {one.name for one in STORED} >= set(read_runs())


def test_the_page_of_evidence_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tools"))
    import evidence

    assert evidence.PAGE.read_text() == evidence.build_page()
    page = evidence.PAGE.read_text()
    assert all(f"`{one.name}`" in page for one in EVERY)


def test_numbers_stay_when_a_picture_fails(tmp_path, monkeypatch):
    import experiment as module

    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setitem(sys.modules, "picture", None)
    one = experiments()["alp_example"]
    with pytest.raises(ImportError):
        module.run_experiment(one)
    assert len(read_rows(tmp_path / "alp_example.csv")) == 18


def test_rows_keep_their_types(tmp_path):
    rows = [{"name": "tea", "count": 3, "share": 1 / 3, "few": True, "none": ""}]
    write_rows(tmp_path / "rows.csv", rows)
    assert read_rows(tmp_path / "rows.csv") == [{"name": "tea", "count": 3, "share": 0.333333, "few": 1, "none": ""}]
    assert pick(rows, share=0.333333, count=3) == rows and pick(rows, share=0.3334) == []


def test_a_claim_that_does_not_hold_differs():
    assert judge_claim("a", "b", True).verdict == "same"
    assert judge_claim("a", "b", True, better=True).verdict == "better"
    differs = judge_claim("a", "b", False, "because", better=True)
    assert (differs.verdict, differs.reason) == ("differs", "because")


def test_a_picture_has_a_line_per_name_and_leaves_zeros_out_of_a_logarithmic_axis():
    rows = [{"x": x, "y": y, "who": who} for who in ("a", "b<c") for x, y in ((1, 10.0), (10, 0.0), (100, 1000.0))]
    svg = draw(Plot("title", "x", "y", ("who",), log="xy"), rows)
    ET.fromstring(svg)
    assert svg.count('fill="none" stroke="#') == 2 + 1 and "b&lt;c" in svg  # lines and one frame
    assert svg.count("h0M") == 2  # two points of each line: the zero is left out
    assert Axis([1, 1000], (0, 300), log=True).ticks() == [1, 10, 100, 1000]


def test_the_command_lists_and_refuses(monkeypatch, capsys):
    import runpy

    monkeypatch.setattr(sys, "argv", ["experiments", "--list", "alp_ex"])
    runpy.run_path(str(ROOT / "experiments"), run_name="__main__")
    assert capsys.readouterr().out.startswith("alp_example")
    monkeypatch.setattr(sys, "argv", ["experiments", "nothing"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / "experiments"), run_name="__main__")
    assert "no experiment is named nothing" in capsys.readouterr().err


def test_the_verdicts_are_one_table():
    rows = list(csv.reader((RESULTS / "verdicts.csv").read_text().splitlines()))
    assert rows[0] == ["experiment", "claim", "found", "verdict", "reason"] and all(len(row) == 5 for row in rows)
