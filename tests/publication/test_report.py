"""The page of every publication: what it says, and that it is one whole file with nothing from outside."""

import base64
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from helpers.command import run
from publication.fuzzing import RELEASES, releases

import dpsieve as ds
from dpsieve.channels import optimal
from dpsieve.display import format_interval
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.noise.keys_per_unit import Coverage
from dpsieve.noise.totals import table_names
from dpsieve.publication.publication import Notes
from dpsieve.publication.report import report_page


def data_of(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def weights_are_counts(table):
    if not {"count", "weight"} <= set(table.column_names):
        return False
    pairs = zip(*(table[name].to_pylist() for name in ("weight", "count")), strict=True)
    return all(count is None or abs(weight - count) <= 0.5 for weight, count in pairs)


def test_weights_are_shown_where_they_differ_from_counts():
    names = [f"key {i}" for i in range(40)]
    for made, are_shown in (
        (optimal(1.0, 1e-3).release(names, [900] * 40), False),
        (optimal(0.1, 1e-3, ds.ppswor(0.01)).release(names, [100] * 40), True),
    ):
        assert ("weight" in [column["name"] for column in data_of(report_page(made))["columns"]]) == are_shown


@pytest.mark.parametrize("name", RELEASES)
def test_every_publication_has_a_page(name, tmp_path):
    made = releases()[name]
    page = made.report(tmp_path / "report.html").read_text()
    assert str(made.guarantee) in re.sub(r"</?span[^>]*>", "", page)
    assert "UNSAFE TO PUBLISH" in page and "Not promised" in page and "Certificate" in page
    data = data_of(page)
    ends = table_names(getattr(made, "totals", ()))  # in the page, the ends of an interval are one column
    shown = {low: f"95 % interval of {value}" for value, low, _ in ends}
    left_out = {"bound", *(high for *_, high in ends)} | ({"weight"} if weights_are_counts(made.table) else set())
    assert [column["name"] for column in data["columns"]] == [
        shown.get(name, name) for name in made.table.column_names if name not in left_out
    ]
    assert ("weight" in left_out or "weight" not in made.table.column_names) == ("weight of a key" not in page)
    assert all(len(column["values"]) == len(made) for column in data["columns"])
    for _, low, high in ends:
        column = next(column for column in data["columns"] if column["name"] == shown[low])
        for part, name in (("values", low), ("highs", high)):
            assert column[part] == pytest.approx(made.table[name].to_pylist(), rel=1e-5, abs=1e-9)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_its_policy_allows_its_own_script_and_style_alone():
    page = report_page(optimal(1.0, 1e-3).release(["</script><script>alert(1)</script>"], [900]))
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    inside = [re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1] for tag in ("script", "style")]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inside]
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'")
    assert page.count("<script") == page.count("</script>") == 2 and "unsafe-inline" not in page
    assert re.findall(r"(?:src|href|url)\s*[=(]\s*\"?([^\">)]*)", page) == ["data:,"]


def test_names_of_columns_and_units_are_text():
    table = pa.table({"<b>x</b>": ["tea"] * 900, "<i>": list(range(900))})
    made = ds.release(table, key="<b>x</b>", privacy_unit="<i>", epsilon=1.0, delta=1e-3)
    page = report_page(made)
    assert "<b>x" not in page and "<i>" not in page and "&lt;i&gt;" in page


def test_coverage_and_the_ledger_entry_are_listed_once():
    made = optimal(1.0, 1e-3).release(["tea"], [900])
    assert "What is counted" not in report_page(made) and "entry in the ledger" not in report_page(made)
    notes = Notes("at most 5 keys, once each", coverage=Coverage(0.38, 0.35, 0.41), entry=3, purpose="week 7")
    page = report_page(replace(made, notes=notes))
    kept = "A unit adds at most 5 keys, once each: about 62 % (59 to 65 %) of all pairs of a unit and a key are not "
    kept += "counted."
    assert (
        f"units that hold a key may be higher. {kept}</p><p></p></section>" in page
        and "<h2>What is counted</h2>" in page
    )
    assert page.count("62 %") == 1 and "<dt>coverage" not in page and "<dt>purpose</dt><dd>week 7</dd>" in page
    assert "<dt>entry in the ledger</dt><dd>3</dd>" in page and "intervals are of the bounded count." in page


def test_what_a_unit_adds_is_told_in_full_once():
    made = optimal(1.0, 1e-8).release(["tea"], [900])
    chosen = "at most 20 keys, once each, a bound chosen with differential privacy"
    words = f"{chosen}: 77 to 100 % of all pairs of a unit and a key (about 91 %)"
    page = report_page(replace(made, notes=Notes(words)))
    assert page.count(words) == 1
    assert f"<dt>a unit adds</dt><dd>{chosen}</dd>" in page
    for less in (
        replace(made, table=made.table.select(["key"]), tokens=None),
        optimal(1.0, 1e-8).release(["tea"], [1]),
    ):
        assert report_page(replace(less, notes=Notes(words))).count(words) == 1


def test_an_interval_with_an_upper_end_only_has_no_low_end():
    made = ds.channels.report_then_count(1.0, 1e-8, max_keys=10).release(list(range(300)), [70] * 299 + [900])
    lows, low, high = (made.table.column(name).to_pylist() for name in ("low", "low", "high"))
    shown = {column["name"]: column["values"] for column in data_of(report_page(made))["columns"]}
    assert lows.count(1) > 20 and shown["low"].count(None) == lows.count(1)
    for told, one, other in zip(shown["low"], low, high, strict=True):
        assert format_interval(one, other) == (f"at most {other:,}" if told is None else f"{told:,} to {other:,}")
    answered = ds.channels.known_keys(1.0).release(["a", "b", "c"], [0, 3, 50])
    pairs = zip(*(answered.table.column(name).to_pylist() for name in ("low", "high")), strict=True)
    expected = [None if low == 0 < high else low for low, high in pairs]
    assert next(c for c in data_of(report_page(answered))["columns"] if c["name"] == "low")["values"] == expected


def test_numbers_of_a_certificate_are_short_and_never_too_small():
    made = ds.release(
        pa.table({"user": range(900), "key": ["tea"] * 900}), key="key", privacy_unit="user", epsilon=1.0, delta=1e-8,
        max_keys_per_unit=3, method="optimal",
    )  # fmt: skip
    exact = [value for part in made.certificate.parts for value in (part.epsilon, part.delta, part.worst)]
    short = [text for line in made.certificate.lines() for text in line[2:5]]
    assert max(map(len, short)) <= 9 < max(len(repr(value)) for value in exact)
    assert all(value <= float(text) <= value * 1.001 for value, text in zip(exact, short, strict=True))
    assert not re.search(r"\d\.\d{7,}", report_page(made).split("<h3>Certificate")[1].split("<details>")[0])


def test_frequencies_reported_half_of_the_time():
    channel = optimal(1.0, 1e-8)
    curve = data_of(report_page(channel.release(["tea"], [900])))["reporting"]
    assert curve["half"] == 19
    assert curve["reported"] == pytest.approx(channel.reporting_probability(curve["frequencies"]), rel=1e-3)


def test_a_page_names_what_its_numbers_are():
    table = pa.table({"user": list(range(900)), "price": [5.0] * 900, "drink": ["tea"] * 900})
    numbers = {"column": "price", "bounds": (0, 10), "privacy_unit": "user", "max_rows_per_unit": 3, "epsilon": 1.0}
    total, mean = report_page(ds.sum(table, **numbers)), report_page(ds.mean(table, **numbers))
    assert "<h1>Sum of price</h1>" in total and "<dd>0 to 10</dd>" in total and "the sum of price is about" in total
    assert "<h1>Mean of price</h1>" in mean
    assert "<h1>Quantile 0.5</h1>" in report_page(ds.quantile(table, quantile=0.5, **numbers))
    keys = {"key": "drink", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8}
    assert "<h1>The most common 1 key: drink</h1>" in report_page(ds.top_k(table, k=1, **keys))
    page = report_page(ds.release(table, **keys, max_keys_per_unit=2))
    assert "Read a row as: the count of &#x27;tea&#x27; is about" in page and "1 in 100,000,000" in page
    assert "a person may have many rows" not in page
    assert "a person may have many rows" in report_page(ds.release(table, **keys | {"privacy_unit": "row"}))


def test_the_factor_is_rounded_up():
    assert "the guarantee is weak" in report_page(ds.channels.known_keys(20.0).release(["a"], [5]))
    for epsilon, factor in [(0.7, "2.02"), (1.0, "2.72"), (0.01, "1.02"), (20.0, "4.86e+08")]:
        assert f"a factor of at most {factor}" in report_page(ds.channels.known_keys(epsilon).release(["a"], [5]))


def test_a_page_of_a_large_release_has_the_largest_counts(monkeypatch):
    monkeypatch.setattr("dpsieve.publication.report._MOST_ROWS", 3)
    made = optimal(1.0, 1e-3).release(list("abcde"), [100, 900, 200, 800, 700])
    data = data_of(report_page(made))
    assert data["rows"] == 5 and data["columns"][0]["values"] == ["b", "d", "e"] and data["ranks"] == [1, 2, 3]


def test_a_file_is_replaced_whole_or_refused_by_name(tmp_path):
    made = optimal(1.0, 1e-3).release(["tea"], [900])
    for _ in range(2):
        assert made.report(tmp_path / "r.html").read_text().startswith("<!doctype html>")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InvalidValue, match="cannot be written"):
        made.report(tmp_path / "folder")
    with pytest.raises(InvalidValue, match="Create the folder first"):
        made.report(tmp_path / "missing" / "r.html")
    with pytest.raises(InvalidType, match="path must be a path"):
        made.report(5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "r.html"]


def test_the_command_writes_it(tmp_path):
    optimal(1.0, 1e-3).release(["tea"], [900]).save(tmp_path / "published")
    done = run("report", "published", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Written to report.html.\n")
    assert "tea" in (tmp_path / "report.html").read_text()
    assert run("report", "nowhere", cwd=tmp_path).returncode == 2


def test_a_chart_of_counts_by_rank():
    alt = pytest.importorskip("altair")
    made = optimal(1.0, 1e-3).release(["tea", "coffee", "<b>"], [500, 900, 300])
    chart = made.plot()
    assert isinstance(chart, alt.LayerChart)
    spec = chart.to_dict()
    fields = [[part["encoding"].get(axis, {}).get("field") for axis in ("x", "y", "y2")] for part in spec["layer"]]
    drawn = [(part["mark"]["type"], names) for part, names in zip(spec["layer"], fields, strict=True)]
    assert drawn == [("area", ["rank", "low", "high"]), ("line", ["rank", "count", None])]
    (points,) = spec["datasets"].values()
    assert [(point["rank"], point["key"]) for point in points] == [(1, "coffee"), (2, "tea"), (3, "<b>")]
    assert all(point["low"] <= point["count"] <= point["high"] for point in points)
    large = optimal(1.0, 1e-3).release(range(20_000), np.full(20_000, 900)).plot().to_dict()
    (points,) = large["datasets"].values()
    assert len(points) <= 400 and points[-1]["rank"] == 20_000


def test_a_chart_in_a_notebook_is_a_picture_that_loads_nothing():
    alt = pytest.importorskip("altair")
    from IPython.core.formatters import DisplayFormatter

    chart = optimal(1.0, 1e-3).release(["tea", "<b>"], [500, 900]).plot()
    for shown in (chart, chart.interactive()):
        bundle, _ = DisplayFormatter().format(shown)
        picture = bundle["image/svg+xml"]
        assert bundle.keys() <= {"image/svg+xml", "text/plain"} and picture.startswith("<svg")
        assert "&lt;b&gt;" in picture and not re.search(r"<b>|<script|(href|src)=.http", picture)
    with alt.renderers.enable("mimetype"):  # the user's choice
        assert "image/svg+xml" not in DisplayFormatter().format(chart)[0]


def test_no_chart_without_counts_or_without_altair(monkeypatch):
    with pytest.raises(InvalidType, match="no counts"):
        optimal(1.0, 1e-3).release(["tea"], [500], keys_only=True).plot()
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(InvalidValue, match=r"pip install '\.\[plot\]' in the clone"):
        optimal(1.0, 1e-3).release(["tea"], [500]).plot()
