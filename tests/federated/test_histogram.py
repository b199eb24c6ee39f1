"""Histograms from clients: both halves, the same on a table, and what hostile clients can and cannot do."""

import json
import math
import traceback

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from helpers.statistical import assert_follows, binomial_band
from scipy import stats

from dpsieve import Ledger, Release, collect_histogram
from dpsieve.channels import sample_threshold
from dpsieve.errors import BudgetExceeded, DpsieveError, InvalidType, InvalidValue
from dpsieve.federated import Histogram, Quantiles, Reports, TrieHeavyHitters, plan
from dpsieve.federated.client import Report, client_answer
from dpsieve.noise.sample_threshold_delta import add_remove
from dpsieve.papers.sample_threshold import lemma_5_omission
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.testing import insecure_source

DRINKS = Histogram(plan(1.0, 1e-8))


def frame(who, what=None):
    """Return a frame of Python objects, as pandas holds what it cannot type."""
    return pd.DataFrame({"who": pd.Series([who, 5], dtype=object), "what": pd.Series([what or who, 5], dtype=object)})


def test_from_clients_to_a_release():
    clients = ["tea"] * 900 + ["coffee"] * 600 + ["absinthe"] * 8
    messages = [report.to_bytes() for report in map(DRINKS.client_report, clients) if report is not None]
    release = DRINKS.aggregate(messages)
    assert release.table.column_names == ["key", "count", "low", "high", "weight", "bound"]
    assert release.table.column("key").to_pylist() == ["coffee", "tea"]
    assert release.guarantee == Guarantee(1.0, 1e-8, unit="one client")
    assert release.certificate.worst == DRINKS.plan.certify().worst
    rate = DRINKS.plan.rate
    assert (release.mechanism.rate, release.mechanism.threshold) == (rate, DRINKS.plan.threshold)
    assert release.notes.contribution == "one value" and f"{DRINKS.plan.threshold} reports" in release.notes.reason
    for row, clients in zip(release.table.to_pylist(), (600, 900), strict=True):
        assert abs(row["count"] - clients) < 6.2 * math.sqrt(clients * (1 - rate) / rate) + 1
        assert row["low"] <= row["count"] <= row["high"] and row["weight"] == pytest.approx(row["count"], rel=1e-6)


def test_the_example_of_the_paper():
    """Section 3: epsilon 1, alpha 1/6, threshold 20, delta 1e-8; 0.1 % of a million clients are missed by 1e-13."""
    rate = (1 - math.exp(-1)) / 6
    made = Histogram(plan(1.0, 1e-8, rate=rate, threshold=20))
    assert made.guarantee.delta == 1e-8 and made.plan.certify().worst < 1e-14
    exact, (bound, none) = made.plan.rows.withheld(np.array([1000]))[0], lemma_5_omission([1000, 100], rate, 20)
    assert exact < bound < 1e-13
    assert exact == pytest.approx(stats.binom.cdf(19, 1000, rate), rel=1e-9)
    assert none == 1.0, "no bound where fewer are expected than the threshold"
    assert (made.plan.rows.withheld(np.array([1, 19, 20])) <= 1.0).all() and made.plan.rows.withheld(np.array([19]))[
        0
    ] == 1.0


def test_a_rare_value_at_the_tightest_count():
    """Through coins, counting and the threshold: values of k clients, and of k - 1, show as often as they should."""
    chosen = plan(0.7, 0.02)
    delta, k = add_remove(0.7, chosen.rate, chosen.threshold)
    rare, values, rows = Histogram(chosen, kind="integers"), 40_000, []
    for count in (k, k - 1):
        release = rare.aggregate(rare.client_reports(np.repeat(np.arange(values), count)))
        low, high = binomial_band(values, chosen.reporting_probability([count])[0])
        assert low <= len(release) <= high
        law = stats.binom.pmf(np.arange(k + 1), count, chosen.rate)
        rows.append(np.append(law[: chosen.threshold].sum(), law[chosen.threshold :]))
        tokens = np.append(release.tokens, np.zeros(values - len(release)))
        assert_follows(tokens, np.append(0, np.arange(chosen.threshold, k + 1)), rows[-1])
    assert np.maximum(rows[0] - math.exp(0.7) * rows[1], 0).sum() == pytest.approx(delta, rel=1e-6)
    assert 0.9 * 0.02 < delta <= 0.02
    assert len(rare.aggregate(rare.client_reports(np.arange(200_000)))) == 0, "a value of one client never shows"


@pytest.mark.parametrize("path", ["clients", "arrays", "table"])
def test_every_path_has_the_distribution_of_the_coins(path):
    chosen, values, w = plan(1.0, rate=0.3, threshold=5), 400 if path == "clients" else 20_000, 20
    clients = np.repeat(np.arange(values), w)
    made = Histogram(chosen, kind="integers")
    if path == "clients":
        release = made.aggregate([r for r in map(made.client_report, clients.tolist()) if r is not None])
    elif path == "arrays":
        release = made.aggregate(made.client_reports(clients))
    else:
        release = collect_histogram(
            pa.table({"value": clients}), column="value", privacy_unit="row", epsilon=1.0, rate=0.3, threshold=5
        )
    tokens = np.append(release.tokens, np.zeros(values - len(release)))
    outputs = np.arange(5, w + 1)
    probabilities = stats.binom.pmf(outputs, w, 0.3)
    assert_follows(tokens, np.append(0, outputs), np.append(1 - probabilities.sum(), probabilities))


def test_a_table_with_clients(tmp_path):
    rows = pa.table({"who": np.repeat(np.arange(3000), 2), "what": ["tea", "milk"] * 3000})
    chosen = plan(1.0, 1e-8, neighbours="replace", unit="one who")
    asked = {"column": "what", "privacy_unit": "who", "epsilon": 1.0, "delta": 1e-8, "neighbours": "replace"}
    ledger = Ledger(tmp_path / "budget", epsilon=1.5, delta=1e-6, neighbours="replace", unit="one who")
    release = collect_histogram(rows, **asked, ledger=ledger, note="drinks")
    assert release.guarantee == Guarantee(1.0, 1e-8, "replace", "one who")
    counts = release.table.column("count").to_pylist()
    sd = math.sqrt(3000 * (1 - chosen.rate) / chosen.rate) + 1
    assert abs(sum(counts) - 3000) < 6.2 * sd, "each client counts once"
    assert release.table.column_names[0] == "what" and release.mechanism.neighbours == "replace"
    with pytest.raises(BudgetExceeded):
        collect_histogram(rows, **asked, ledger=ledger)
    listed = collect_histogram(rows, **asked, known_keys=["milk", "mate"])
    assert listed.table.column("what").to_pylist() == ["milk"]
    assert listed.notes.contribution == "one value of a public list of 2"
    assert abs(listed.table.column("count")[0].as_py() - 3000) < 6.2 * sd, "only listed values are chosen from"


@pytest.mark.parametrize("form", [np.array, pa.array, pd.Series, pl.Series, lambda v: pa.chunked_array([v])])
def test_values_that_nobody_sampled_are_not_aggregated(form):
    """A slip of the caller, raw values in place of reports, would break the promise without a word."""
    raw = ["tea"] * 900
    with pytest.raises(InvalidType, match=r"plain values.*client_reports"):
        DRINKS.aggregate(form(raw))
    assert len(DRINKS.aggregate(raw)) == 0, "and in a list they are no reports"
    sampled = DRINKS.client_reports(form(raw))
    assert "tea" not in repr(sampled) and DRINKS.plan.threshold < len(sampled) < 900
    assert len(DRINKS.aggregate(sampled)) == 1
    with pytest.raises(InvalidValue, match="coins of another rate"):
        Histogram(plan(1.0, 1e-8, rate=0.1)).aggregate(sampled)


def test_a_release_survives_the_disk(tmp_path):
    release = DRINKS.aggregate(DRINKS.client_reports(["tea"] * 500 + ["coffee"] * 700))
    again = Release.load(release.save(tmp_path / "out"))
    assert again.table.equals(release.table) and again.guarantee == release.guarantee
    assert again.notes == release.notes and again.mechanism.to_json() == release.mechanism.to_json()


class TestClients:
    def test_a_report_is_the_value_and_a_nonce(self):
        sure = Histogram(plan(1.0, 0.9999, rate=0.999))
        one, other = (next(filter(None, iter(lambda: sure.client_report("tea"), 0))) for _ in range(2))
        assert one.value == "tea" and len(one.nonce) == 32 and one.nonce != other.nonce
        assert one.to_json() == {"version": 1, "value": "tea", "nonce": one.nonce}
        assert Report.from_bytes(one.to_bytes()) == Report.from_json(json.loads(one.to_bytes())) == one
        assert "tea" not in repr(one)

    def test_the_rate_of_one_client(self):
        sent = sum(DRINKS.client_report("tea") is not None for _ in range(4000))
        low, high = binomial_band(4000, DRINKS.plan.rate)
        assert low <= sent <= high

    def test_values_that_do_not_count_are_never_sent(self):
        some = Histogram(plan(1.0, 0.9999, rate=0.999), ["tea", "milk"])
        assert all(some.client_report("coffee") is None for _ in range(50))
        assert set(some.client_reports(["tea", "coffee", None] * 50).values.to_pylist()) == {"tea"}
        short = Histogram(plan(1.0, 0.9999, rate=0.999), longest=4)
        assert all(short.client_report("täää") is None for _ in range(50)), "7 bytes"
        assert set(short.client_reports(["tea!", "coffee"] * 50).values.to_pylist()) == {"tea!"}

    def test_wrong_values_are_refused_without_a_word_about_them(self):
        numbers = Histogram(DRINKS.plan, kind="integers")
        for made, wrong in (
            (DRINKS, 31337), (DRINKS, b"31337"), (DRINKS, None), (DRINKS, ["31337"]), (DRINKS, "31337\ud800"),
            (numbers, "31337"), (numbers, 31337.5), (numbers, True), (numbers, 31337 << 64),
        ):  # fmt: skip
            with pytest.raises(DpsieveError, match="value") as caught:
                made.client_report(wrong)
            assert "31337" not in str(caught.value)
        for made, wrong in ((DRINKS, [31337]), (DRINKS, "31337"), (DRINKS, ["31337", 5]), (numbers, [31337.5])):
            with pytest.raises(DpsieveError, match="values") as caught:
                made.client_reports(wrong)
            assert "31337" not in str(caught.value)

    TEXT, NUMBER = "31337\ud800", 31337 << 64
    BROKEN = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 8], np.int32)), pa.py_buffer(b"31337\xed\xa0\x80")]
    )

    @pytest.mark.parametrize(
        ("argument", "kind", "call"),
        [
            ("value", "text", lambda made, v: made.client_report(v)),
            ("values", "text", lambda made, v: made.client_reports([v, "tea"])),
            ("values", "text", lambda made, v: made.client_reports(np.array([v]))),
            ("values", "text", lambda made, v: made.client_reports(TestClients.BROKEN)),
            ("values", "text", lambda made, v: Histogram(made.plan, [v])),
            ("reports", "text", lambda made, v: made.aggregate(Reports(np.array([v], object), made.plan.rate))),
            ("value of a report", "text", lambda made, v: Report(v)),
            ("strings", "text", lambda made, v: TrieHeavyHitters(1.0, 1e-6, max_length=9, protocol="cohorts").run([v])),
            ("value", "integers", lambda made, v: made.client_report(v)),
            ("value", "integers", lambda made, v: made.client_report(np.uint64(2**63 + 31337))),
            ("values", "integers", lambda made, v: made.client_reports([v, 5])),
            ("values", "integers", lambda made, v: made.client_reports(np.array([-v, 5], object))),
            ("values", "integers", lambda made, v: made.client_reports(pa.array([2**63 + 31337], pa.uint64()))),
            ("values", "integers", lambda made, v: Histogram(made.plan, [v])),
            ("reports", "integers", lambda made, v: made.aggregate(Reports(np.array([v], object), made.plan.rate))),
            ("value of a report", "integers", lambda made, v: Report(v)),
            (
                "values",
                "integers",
                lambda made, v: Quantiles(0, 1, epsilon=1.0, delta=1e-6, protocol="cohorts").run([v]),
            ),
        ],
    )
    def test_values_that_nothing_can_carry(self, argument, kind, call):
        """Lone surrogates and numbers beyond 64 bits: the message has the argument and the fix, and no value."""
        said, wrong = ("not Unicode", self.TEXT) if kind == "text" else ("64 bits", self.NUMBER)
        with pytest.raises(InvalidValue, match=f"^{argument} holds .*{said}.* (Mend|Pass)") as caught:
            call(Histogram(DRINKS.plan, kind=kind), wrong)
        told = "".join(traceback.format_exception_only(caught.value)) + repr(caught.value.__context__)
        assert not any(secret in told for secret in ("31337", str(wrong)[:12], "ud800"))

    def test_values_of_a_table_that_nothing_can_carry_are_rewritten(self):
        """One client cannot stop the others: see `dpsieve.values.columns`."""
        for data, value in ((frame(self.TEXT), "what"), (pa.table({"v": self.BROKEN}), "v")):
            collected = collect_histogram(data, column=value, privacy_unit="row", epsilon=9.0, delta=0.99)
            assert all(key.isprintable() for key in collected.table.column(0).to_pylist())

    def test_clients_with_such_values_are_silent_in_a_trie_and_left_out_of_a_tally(self):
        question = next(TrieHeavyHitters(9.0, 0.99, max_length=9, protocol="one_round").questions())
        for value in (self.TEXT, self.NUMBER):
            assert all(client_answer(question, value, budget=None) is None for _ in range(9))
        tally = DRINKS.tally().add([{"version": 1, "value": self.TEXT, "nonce": ""}, self.TEXT])
        assert tally.ignored.malformed == 2

    @pytest.mark.parametrize(
        "form", [list, np.array, pa.array, lambda v: pa.chunked_array([v, v[:0]]), pd.Series, pl.Series]
    )
    def test_batches_in_many_forms(self, form):
        words = DRINKS.client_reports(form(["tea"] * 1000 + ["milk"] * 1000)).values
        assert words.type == pa.large_string() and 100 < len(words) < 1000
        numbers = Histogram(DRINKS.plan, kind="integers").client_reports(form([5] * 2000)).values
        assert numbers.type == pa.int64() and set(numbers.to_pylist()) == {5}

    def test_dictionaries(self):
        coded = pa.array(["tea"] * 1000 + [None]).dictionary_encode()
        assert set(DRINKS.client_reports(coded).values.to_pylist()) == {"tea"}

    def test_a_test_source_repeats_and_marks(self):
        first, second = (DRINKS.client_reports(["tea"] * 1000, insecure_source(5)) for _ in range(2))
        assert first.values.equals(second.values)
        assert DRINKS.aggregate(first).unsafe_to_publish, "reports remember who tossed their coins"
        assert DRINKS.aggregate(Reports(first.values, first.coin), source=insecure_source(5)).unsafe_to_publish
        assert not DRINKS.aggregate(DRINKS.client_reports(["tea"] * 1000)).unsafe_to_publish


class TestHostileClients:
    HOSTILE = (
        b"", b"\xff\xfe", b"null", b"[]", b"[" * 700, b'{"version":1,"value":"tea"}',
        b'{"version":2,"value":"tea","nonce":""}', b'{"version":1,"value":5,"nonce":""}',
        b'{"version":1,"value":["tea"],"nonce":""}', b'{"version":1,"value":"\\ud800","nonce":""}',
        b'{"version":1,"value":"tea","nonce":"x"}', b'{"version":1,"value":NaN,"nonce":""}',
        {}, {"value": "tea"}, None, 7, "tea", object(), ["tea"],
        {"version": 1, "value": "tea", "nonce": 7}, {"version": 1, "value": True, "nonce": ""},
    )  # fmt: skip

    def test_malformed_reports_change_nothing(self):
        honest = [Report("tea")] * DRINKS.plan.threshold
        tally = DRINKS.tally().add(self.HOSTILE).add(honest).add(self.HOSTILE)
        assert tally.ignored.malformed == 2 * len(self.HOSTILE)
        release = tally.release()
        assert release.tokens.tolist() == [DRINKS.plan.threshold]

    def test_too_long(self):
        tally = DRINKS.tally().add([Report("x" * 257), Report("é" * 129), b"x" * 10**6, Report("x" * 256)])
        assert tally.ignored.too_long == 3 and tally.ignored.malformed == 0
        escaped = json.dumps(Report("é" * 128, "0" * 32).to_json()).encode()
        assert DRINKS.tally().add([escaped]).ignored.too_long == 0

    def test_outside_the_list(self):
        listed = Histogram(DRINKS.plan, ["tea", "milk"])
        tally = listed.tally().add([Report("gin")] * 40 + [Report("tea")] * 40)
        tally.add(Reports(pa.array(["rum"] * 50 + [None]), DRINKS.plan.rate))
        assert (tally.ignored.unknown, tally.ignored.malformed) == (90, 1)
        assert tally.release().table.column("key").to_pylist() == ["tea"]

    def test_repeated_reports_count_once(self):
        one, other = Report("tea", "0" * 32), Report("tea", "1" * 32)
        tally = DRINKS.tally().add([one] * 30).add([one.to_bytes(), one.to_json(), other])
        assert tally.ignored.repeated == 31
        assert len(tally.release()) == 0

    def test_numbers_are_private(self):
        tally = DRINKS.tally().add([b"bad", Report("tea")])
        for shown in (repr(tally), repr(tally.ignored), repr(tally.release())):
            assert not any(word in shown for word in ("1 ", "tea", "bad"))

    def test_one_release(self):
        tally = DRINKS.tally().add(["tea"] * 5)
        tally.release()
        for again in (tally.release, lambda: tally.add([])):
            with pytest.raises(InvalidValue, match="fresh sample"):
                again()

    def test_the_ledger_comes_first(self, tmp_path):
        ledger = Ledger(tmp_path / "budget", epsilon=0.5, delta=1e-6, unit="one client")
        tally = DRINKS.tally().add([Report("tea")] * 40)
        with pytest.raises(BudgetExceeded):
            tally.release(ledger=ledger)
        with pytest.raises(InvalidType, match="ledger"):
            tally.release(ledger=7)
        assert len(tally.release()) == 1, "nothing was released before"

    @pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
    def test_the_guarantee_against_made_up_reports(self, neighbours):
        made = Histogram(plan(1.0, 1e-8, neighbours=neighbours))
        rate, threshold = made.plan.rate, made.plan.threshold
        assert made.guarantee_against(0) == made.guarantee
        deltas = [made.guarantee_against(h).delta for h in range(threshold)]
        assert deltas == sorted(deltas) and deltas[-1] >= rate * 0.99
        worse = sample_threshold(rate, threshold - 5, neighbours=neighbours)
        assert made.guarantee_against(5) == worse.guarantee
        assert made.guarantee_against(10**6).delta == deltas[-1]
        for wrong in (-1, 1.5, "x"):
            with pytest.raises(DpsieveError, match="hostile"):
                made.guarantee_against(wrong)

    def test_made_up_reports_show_a_victim(self):
        """What `guarantee_against` warns of: with t - 1 made-up reports, one client shows at the rate."""
        made, hits, rounds = Histogram(plan(1.0, 1e-4, rate=0.2)), 0, 500
        for _ in range(rounds):
            victim = made.client_reports(["secret"])
            hits += len(made.tally().add([Report("secret")] * (made.plan.threshold - 1)).add(victim).release())
        low, high = binomial_band(rounds, 0.2)
        assert low <= hits <= high


def test_bad_parameters():
    for wrong in ({"values": []}, {"values": ["a", "a"]}, {"values": ["a", None]}, {"values": "ab"}, {"kind": "x"}):
        with pytest.raises(DpsieveError, match=r"values|kind"):
            Histogram(DRINKS.plan, **wrong)
    for wrong in ({"longest": 0}, {"values": ["abc"], "longest": 2}, {"values": [0.5]}):
        with pytest.raises(DpsieveError, match=r"longest|values"):
            Histogram(DRINKS.plan, **wrong)
    with pytest.raises(InvalidType, match="plan"):
        Histogram(0.1)
    for wrong in ("tea", Report("tea"), 5, b"tea"):
        with pytest.raises(InvalidType, match="reports"):
            DRINKS.tally().add(wrong)
    rows = pa.table({"a": ["x"], "b": ["y"]})
    for arguments in ({"column": "c"}, {"column": "a", "privacy_unit": "a"}, {"column": 5}):
        arguments = {"privacy_unit": "row", **arguments}
        with pytest.raises(DpsieveError, match="column"):
            collect_histogram(rows, epsilon=1.0, delta=1e-8, **arguments)
