"""The whole path: raw events in, a private release out."""

import json
import logging
import math
import pkgutil
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from helpers.charged_draws import crashing
from helpers.statistical import binomial_band

import dpsieve as ds
from dpsieve.channels import optimal
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidValue
from dpsieve.testing import insecure_source

pytestmark = pytest.mark.usefixtures("one_database")

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
ONE = {"max_keys_per_unit": 1}


def events(pairs):
    users, keys = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"user": pa.array(users, pa.int64()), "key": pa.array(keys, pa.string())})


COMMON = [(user, "common") for user in range(500)] + [(user, f"other {user}") for user in range(500)]


def test_one_call_from_a_table_to_a_release():
    release = ds.release(events(COMMON[:500]), key="key", privacy_unit="user", **BUDGET)
    assert release.table["key"].to_pylist() == ["common"]
    first = release.table.slice(0, 1).to_pylist()[0]
    assert abs(first["count"] - 500) < 2.5 * (first["high"] - first["low"])  # 15 scales of Laplace noise
    assert str(release.guarantee) == "(1, 1e-06)-differential privacy when one user is added or removed."
    assert release.notes.bounded.startswith("A unit adds at most")
    assert ", a bound chosen with differential privacy" in release.notes.bounded


def test_without_a_unit_each_row_is_one():
    release = ds.release(events(COMMON), key="key", privacy_unit="row", **BUDGET)
    assert release.guarantee.unit == "one row"


def test_several_key_columns():
    table = pa.table({"user": range(900), "city": ["Rome", "Oslo", "Rome"] * 300, "year": [1, 1, 2] * 300})
    release = ds.release(table, key=["city", "year"], privacy_unit="user", **BUDGET)
    assert release.table.column_names == ["city", "year", "count", "low", "high", "weight", "bound"]
    assert release.keys.to_pylist() == [
        {"city": "Oslo", "year": 1}, {"city": "Rome", "year": 1}, {"city": "Rome", "year": 2},
    ]  # fmt: skip
    romans = release.estimate(where=lambda keys: pc.equal(keys["city"], "Rome"))
    length = max(
        high - low for low, high in zip(*(release.table[end].to_pylist() for end in ("low", "high")), strict=True)
    )
    assert abs(romans - 600) < 3 * length


def test_a_key_keeps_the_name_of_its_column():
    table = pa.table({"user": range(500), "query": ["tea"] * 500, "count": ["x"] * 500})
    assert ds.release(table, key="query", privacy_unit="user", **BUDGET).table["query"].to_pylist() == ["tea"]
    with pytest.raises(InvalidValue, match="Rename the column"):
        ds.release(table, key="count", privacy_unit="user", **BUDGET)


def test_a_unit_counts_once_however_many_rows_it_has():
    """One user with 10,000 rows of one key, and 1,000 keys of its own: nothing of it comes out, but by delta."""
    loud = [(-1, "loud")] * 10_000 + [(-1, f"mine {k}") for k in range(1000)]
    for keys in (1, 5):
        release = ds.release(
            events(COMMON[:500] + loud),
            key="key",
            privacy_unit="user",
            max_keys_per_unit=keys,
            epsilon=1.0,
            delta=1e-12,
        )
        assert release.table["key"].to_pylist() == ["common"]


def test_counting_rows_up_to_a_bound():
    rows = [(user, "often") for user in range(400) for _ in range(7)]
    release = ds.release(
        events(rows), key="key", privacy_unit="user", max_keys_per_unit=1, max_rows_per_key=5, **BUDGET
    )
    assert abs(release.table["count"][0].as_py() - 2000) < 150
    assert release.notes.contribution == "at most 1 key, 5 rows each"


class TestMeasuredRates:
    """The tightest points, measured through the whole path on many keys at once."""

    def test_a_key_held_by_one_unit(self):
        delta, users = 0.01, 20_000
        table = events([(user, f"only {user}") for user in range(users)])
        release = ds.release(table, key="key", privacy_unit="user", epsilon=0.5, delta=delta)
        low, high = binomial_band(users, delta)
        assert low <= len(release) <= high

    @pytest.mark.parametrize("mechanism", ["optimal", "gaussian", "auto"])
    def test_a_unit_with_five_keys_of_its_own(self, mechanism):
        delta, users = 0.02, 10_000
        table = events([(user, f"{user} {k}") for user in range(users) for k in range(9)])
        release = ds.release(
            table, key="key", privacy_unit="user", epsilon=1.0, delta=delta, max_keys_per_unit=5, method=mechanism
        )
        exposed = len({key.split()[0] for key in release.table["key"].to_pylist()})
        assert exposed <= binomial_band(users, delta)[1]
        assert exposed >= binomial_band(users, delta / 8)[0]

    @pytest.mark.parametrize("mechanism", ["optimal", "gaussian"])
    def test_units_with_a_hundred_keys_and_one_with_many_rows(self, mechanism):
        """However much a unit holds, the chance that anything of it shows is at most delta."""
        delta, users, many = 0.02, 1500, 100_000
        user, number = (pa.array(x) for x in np.divmod(np.arange(users * 100), 100))
        key = pc.binary_join_element_wise(user.cast("str"), number.cast("str"), " ")
        loud = pa.table({"user": np.full(many, -1), "key": pa.array(["-1 loud"] * many)})
        table = pa.concat_tables([pa.table({"user": user, "key": key}), loud])
        release = ds.release(
            table, key="key", privacy_unit="user", epsilon=1.0, delta=delta, max_keys_per_unit=5, method=mechanism
        )
        exposed = len({key.split()[0] for key in release.table["key"].to_pylist()})
        low, high = binomial_band(users + 1, delta)
        assert low / 8 <= exposed <= high

    def test_neighbouring_tables_at_the_threshold(self):
        """Keys of frequency n and n - 1, near an even chance: the rates keep (epsilon, delta), both ways.

        The expected rates are those of the part of the mechanism that finds keys.
        """
        epsilon, delta, keys = 1.0, 0.01, 3000
        half = int((optimal(epsilon, delta).reporting_probability(range(1, 50)) < 0.5).sum()) + 1
        rates = []
        for frequency in (half, half - 1):
            pairs = [(frequency * k + u, f"key {k}") for k in range(keys) for u in range(frequency)]
            table, parts = events(pairs), {}
            while "optimal" not in parts:  # the private choice of the bound is seldom another one
                release = ds.release(table, key="key", privacy_unit="user", epsilon=epsilon, delta=delta)
                parts = {use.mechanism.name: use.mechanism for use in release.mechanism.uses}
            finder = parts["optimal"]
            low, high = binomial_band(keys, finder.reporting_probability([frequency])[0])
            assert low <= len(release) <= high
            rates.append((low / keys, high / keys))
        (more_low, _), (_, less_high) = rates
        assert more_low <= math.exp(epsilon) * less_high + delta


class TestLedger:
    def test_a_release_is_charged(self, tmp_path):
        ledger = ds.Ledger(tmp_path / "budget", epsilon=1.5, delta=1e-5, unit="one user")
        ds.release(events(COMMON), key="key", privacy_unit="user", ledger=ledger, note="weekly", **BUDGET)
        assert [entry.note for entry in ledger.history()] == ["weekly"]
        with pytest.raises(BudgetExceeded, match="left"):
            ds.release(events(COMMON), key="key", privacy_unit="user", ledger=ledger, **BUDGET)
        assert len(ledger) == 1

    def test_what_fails_before_the_draw_costs_nothing(self, tmp_path):
        ledger = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-5, unit="one user")
        (tmp_path / "broken.parquet").write_bytes(b"no parquet")
        wrong = [
            {"key": "missing"},
            {"privacy_unit": "missing"},
            {"epsilon": -1.0},
            {"method": "magic"},
            {"data": tmp_path / "broken.parquet"},
        ]
        for change in wrong:
            good = {"data": events(COMMON), "key": "key", "privacy_unit": "user", **BUDGET}
            with pytest.raises(DpsieveError):
                ds.release(**(good | change), ledger=ledger)
        assert len(ledger) == 0

    @pytest.mark.parametrize(
        ("draw", "options"),
        [
            ("dpsieve.noise.keys_per_unit.KeysPerUnit.draw", {}),
            ("dpsieve.channels.lag.LagRows.draw", {"max_keys_per_unit": 1, "report_coverage": False}),
            ("dpsieve.discovery.selector.TypicalSize.draw", {"goal": "counts", "max_keys_per_unit": 3}),
            ("dpsieve.jobs.release.private_scheme", {"sample_size": 10, "max_keys_per_unit": 1}),
        ],
    )
    def test_the_spend_is_written_before_anything_is_drawn(self, tmp_path, monkeypatch, draw, options):
        ledger = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-5, unit="one user")

        source = ds.testing.insecure_source(1)
        monkeypatch.setattr(draw, crashing(pkgutil.resolve_name(draw), ledger, source))
        given = {"key": "key", "privacy_unit": "user", "ledger": ledger, "source": source}
        with pytest.raises(KeyboardInterrupt):
            ds.release(events(COMMON), **given, **BUDGET, **options)
        assert len(ledger) == 1


def test_an_estimate_over_no_keys_is_zero():
    release = ds.release(pa.table({"n": [1, 2, 3]}), key="n", privacy_unit="row", **BUDGET)
    assert release.estimate(where=lambda keys: pc.greater(keys, 1)) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [{"report_coverage": "no"}, {"allow_null_units": "no"}, {"known_keys": ["a", "a"]}, {"known_keys": ["a", None]}],
)
def test_preview_refuses_what_release_refuses(wrong):
    for call in (ds.release, ds.preview):
        with pytest.raises(DpsieveError, match=next(iter(wrong))):
            call(events(COMMON), key="key", privacy_unit="row", **BUDGET, **wrong)


def test_a_note_is_checked_before_anything_is_read(tmp_path):
    ledger, seen = ds.Ledger(tmp_path / "budget", epsilon=1.0, delta=1e-5, unit="one row"), []
    with pytest.raises(DpsieveError, match="note"):
        ds.release(
            events(COMMON), key="key", privacy_unit="row", ledger=ledger, note="a\nb", progress=seen.append, **BUDGET
        )
    assert seen == []


def test_a_sample_of_chosen_size():
    pairs = [(f * 100_000 + u, f"key {f}") for f in range(300) for u in range(60)]
    release = ds.release(
        events(pairs), key="key", privacy_unit="user", max_keys_per_unit=1, sample_size=100, epsilon=2.0, delta=1e-6
    )
    assert 40 <= len(release) <= 160
    assert release.guarantee.epsilon == 2.0 and release.mechanism.last.epsilon == pytest.approx(1.9)


def test_a_scheme():
    release = ds.release(
        events(COMMON), key="key", privacy_unit="user", max_keys_per_unit=1, scheme=ds.ppswor(0.05), **BUDGET
    )
    assert "ppswor" in repr(release.mechanism)


def test_what_is_shown_holds_no_secret(tmp_path, caplog, capsys):
    """Marked keys, units and counts: none may be in outputs, files, logs or messages."""
    caplog.set_level(logging.DEBUG)
    secret = [(770_000_000_000 + n, f"SECRET-{n}") for n in range(50)]
    common = [(880_000_000_000 + n, "fine") for n in range(4321)]
    release = ds.release(events(secret + common), key="key", privacy_unit="user", epsilon=1.0, delta=1e-12)
    release.save(tmp_path / "out")
    messages = []
    for change in ({"key": "kez"}, {"privacy_unit": "usr"}, {"delta": 0.0}):
        with pytest.raises(DpsieveError) as caught:
            ds.release(events(secret), **({"key": "key", "privacy_unit": "user", **BUDGET} | change))
        messages.append(str(caught.value))
    files = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir()).decode("latin-1")
    record = json.loads((tmp_path / "out" / "release.json").read_text())
    digests = [record.pop("seal"), record.pop("table_sha256")]  # in these any digits may come up by chance
    seen = "".join([*capsys.readouterr(), caplog.text, repr(release), str(release.certificate), *messages])
    seen += json.dumps(release.notes.to_json()) + json.dumps(record)
    for mark in ("SECRET", "7700000000", "8800000000"):
        assert mark not in seen + files
    for count in ("4371", "4,371", " 50 "):  # all units, and those whose key is not released
        assert count not in seen
    assert all(len(digest) == 64 for digest in digests)


def test_a_seeded_release_is_marked():
    release = ds.release(events(COMMON), key="key", privacy_unit="user", source=insecure_source(3), **BUDGET)
    assert release.unsafe_to_publish


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"key": ""}, "key"),
        ({"key": []}, "key"),
        ({"key": 5}, "key"),
        ({"key": ["key", "key"]}, "key"),
        ({"privacy_unit": "key"}, "privacy_unit"),
        ({"privacy_unit": 3}, "privacy_unit"),
        ({"privacy_unit": None, "max_keys_per_unit": 2}, "privacy_unit"),
        ({"max_keys_per_unit": 0}, "max_keys_per_unit"),
        ({"max_keys_per_unit": 1.5}, "max_keys_per_unit"),
        ({"max_rows_per_key": -1}, "max_rows_per_key"),
        ({"max_rows_per_key": 3, "method": "stability", **ONE}, "max_rows_per_key"),
        ({"max_rows_per_key": 3, "method": "optimal", **ONE}, "max_rows_per_key"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"epsilon": 100}, "epsilon=100 is not between 0.001 and 50"),
        ({"epsilon": -1}, "epsilon=-1 is not between 0.001 and 50"),
        ({"delta": math.nan}, "delta"),
        ({"delta": 0.0}, "known in advance"),
        ({"method": "laplace", **ONE}, "method"),
        ({"method": "gaussian", "scheme": ds.ppswor(0.1), **ONE}, "scheme"),
        ({"sample_size": 0, **ONE}, "sample_size"),
        ({"sample_size": 10, "scheme": ds.ppswor(0.1), **ONE}, "sample_size"),
        ({"ledger": "budget.db"}, "ledger"),
        ({"scheme": 0.1, **ONE}, "scheme"),
        ({"known_keys": ["a"]}, "max_keys_per_unit is missing"),
        ({"max_rows_per_key": 3}, "max_keys_per_unit is missing"),
        ({"sample_size": 9}, "max_keys_per_unit is missing"),
        ({"privacy_unit": ()}, "privacy_unit is missing.* 'user'"),
    ],
)
def test_bad_arguments_are_named(wrong, named):
    with pytest.raises(DpsieveError, match=named):
        ds.release(events(COMMON), **({"key": "key", "privacy_unit": "user", **BUDGET} | wrong))


def test_a_budget_too_small_to_divide():
    small = {"privacy_unit": "user", "max_keys_per_unit": 300, "epsilon": 0.05, "delta": 1e-6}
    assert ds.preview(key="key", **small).mechanism == "report_then_count"
    with pytest.raises(DpsieveError, match="leaves each key"):
        ds.preview(key="key", method="optimal", **small)


class TestPreview:
    def test_it_says_what_would_happen(self):
        seen = ds.preview(
            key="query", privacy_unit="user", max_keys_per_unit=1, report_coverage=False, epsilon=1.0, delta=1e-8
        )
        assert (seen.mechanism, seen.rarely, seen.half, seen.surely) == ("optimal", 16, 19, 21)
        assert "at most 1 key, once each" in str(seen)
        assert json.loads(json.dumps(seen.to_json()))["half"] == 19

    def test_many_keys_are_compared(self):
        few = ds.preview(key="q", privacy_unit="u", max_keys_per_unit=2, epsilon=1.0, delta=1e-8)
        many = ds.preview(key="q", privacy_unit="u", max_keys_per_unit=30, epsilon=1.0, delta=1e-8)
        assert few.mechanism == "optimal" and many.mechanism == "report_then_count"
        assert "optimal, which splits the budget over keys, needs" in many.reason

    def test_it_says_where_counts_begin(self):
        units = {"key": "q", "privacy_unit": "u", "max_keys_per_unit": 10, "epsilon": 1.0, "delta": 1e-8}
        units["report_coverage"] = False
        once, rows = ds.preview(**units), ds.preview(**units, max_rows_per_key=3)
        channel = ds.channels.report_then_count(1.0, 1e-8, 10)
        assert once.counts_from == channel.first and rows.counts_from == 3 * channel.first
        assert f"frequency {channel.first}; below that, only an upper bound is reported" in str(once)
        assert "counts begin" not in str(ds.preview(**units, method="gaussian"))

    def test_it_reads_the_schema_only(self):
        with pytest.raises(DpsieveError, match=r"quer.*Did you mean 'key'|key"):
            ds.preview(data=events(COMMON), key="kez", privacy_unit="user", **BUDGET)
        assert ds.preview(data=events(COMMON), key="key", privacy_unit="row", **BUDGET).half == 14

    def test_intervals_are_as_narrow_as_it_says(self):
        seen = ds.preview(key="q", privacy_unit="row", epsilon=1.0, delta=1e-8)
        release = optimal(1.0, 1e-8).release([f"k{i}" for i in range(3000)], np.full(3000, 5000))
        widths = np.array(release.table["high"]) - np.array(release.table["low"])
        assert widths.max() <= seen.width


@pytest.mark.parametrize(("epsilon", "delta", "keys"), [(0.001, 1e-20, 10_000), (1.0, 1e-8, 3_000), (0.001, 1e-8, 1)])
def test_a_preview_of_any_budget_comes_soon(epsilon, delta, keys):
    """Seconds of a processor: no table of wide noise is made for it."""
    start = time.process_time()
    seen = ds.preview(key="word", privacy_unit="user", epsilon=epsilon, delta=delta, max_keys_per_unit=keys)
    assert seen.rarely < seen.half < seen.surely and seen.width > 0
    assert time.process_time() - start < 15


def test_a_preview_without_its_table_says_the_same(monkeypatch):
    """The width of common intervals from sigma alone is the one of the table, or a thousandth more."""
    arguments = {"key": "word", "privacy_unit": "user", "epsilon": 1.0, "delta": 1e-8, "max_keys_per_unit": 100}
    made = ds.preview(**arguments)
    monkeypatch.setattr("dpsieve.jobs.preview._WIDE", 0.0)
    quick = ds.preview(**arguments)
    assert made.mechanism == quick.mechanism == "report_then_count"
    assert made.width <= quick.width <= made.width * 1.002 + 4


@pytest.mark.parametrize("call", [ds.release, ds.preview])
def test_a_note_without_a_ledger_is_refused(call):
    with pytest.raises(DpsieveError, match="note is kept in a ledger"):
        call(events(COMMON), key="key", privacy_unit="row", note="weekly", **BUDGET)


@pytest.mark.parametrize("name", ["max_keys_per_unit", "max_rows_per_key"])
def test_bounds_that_are_too_large_are_named_as_the_caller_knows_them(name):
    with pytest.raises(DpsieveError, match=f"^{name}=10001 is not between"):
        ds.release(events(COMMON), key="key", privacy_unit="user", **{name: 10_001}, **BUDGET)


def test_a_release_of_a_file_does_not_load_pandas(tmp_path):
    """Where pandas is installed, Arrow loads it with the first array of numpy that it converts: a third of a second."""
    (tmp_path / "rows.csv").write_text("user,key,price\n" + "".join(f"{i},k{i % 3},2.5\n" for i in range(3_000)))
    asked = "key='key', privacy_unit='user', epsilon=1.0, delta=1e-6"
    code = (
        f"import sys, dpsieve as ds; ds.release('rows.csv', {asked}, sums={{'price': (0, 5)}}); ds.release('rows.csv',"
        f" {asked}); ds.top_k('rows.csv', {asked}, k=2); sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_notes_and_report_have_what_the_ledger_had_left(tmp_path):
    with ds.Ledger(tmp_path / "budget", epsilon=4.0, delta=0.01, unit="user") as ledger:
        first, second = (
            ds.release(events(COMMON), key="key", privacy_unit="user", **BUDGET, ledger=ledger, note=week)
            for week in ("week 1", "week 2")
        )
        assert second.notes.left == ledger.describe_left() != first.notes.left
        assert second.notes.left.endswith("; the whole budget is epsilon 4, delta 0.01")
    page = second.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<dd>{second.notes.left}</dd>" in page and "<dd>week 2</dd>" in page
    assert ds.Release.load(second.save(tmp_path / "out")).notes == second.notes
