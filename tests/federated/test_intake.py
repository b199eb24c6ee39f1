"""One intake for all servers: reasons are counted, cost is bounded by size, and batches add up."""

import numpy as np
import pyarrow as pa

from dpsieve.federated import Histogram, TrieHeavyHitters, plan
from dpsieve.federated.client import PrefixReport, Report, padded_message
from dpsieve.federated.server import intake
from dpsieve.federated.server.intake import CountTable

DRINKS = Histogram(plan(1.0, 1e-8))


def trie(**other):
    return TrieHeavyHitters(8.0, 0.99, **{"max_length": 2, "alphabet": "ab", "coin": 0.5, "threshold": 3} | other)


def test_both_servers_count_the_same_reasons():
    server, tally, nonce = trie(), DRINKS.tally(), "0" * 32
    for question in server.questions():
        if question.level == 1:
            report = PrefixReport("a", False, nonce)
            dummy = padded_message(question, None)
            server.take([None, report, report.to_bytes(), report.to_json(), dummy, b"[", b" " * 10**6, ("c", False)])
    tea = Report("tea", nonce)
    dummy = padded_message(DRINKS.question, None)
    tally.add([tea, tea.to_bytes(), tea.to_json(), dummy, b"[", b" " * 10**6, ("c", False)])
    for ignored in (server.ignored, tally.ignored):
        assert (ignored.repeated, ignored.silent, ignored.too_long, ignored.malformed) == (2, 1, 1, 2)
        assert ignored.total == 5 and not any(digit in repr(ignored) for digit in "0123456789")


def test_a_nonce_counts_once_per_level():
    """Levels have their own reports: a client that repeats a nonce at another level is counted there."""
    server = trie()
    for question in server.questions():
        prefix = "ab"[: question.level]
        server.take([PrefixReport(prefix, question.level == 2, f"{i:032x}") for i in range(5)])
    assert server.ignored.total == 0 and server.release().table["key"].to_pylist() == ["ab"]


def test_the_longest_honest_messages_are_read():
    for alphabet, string in ((None, "\0\U0001f642"), ("\0\U0001f642", "\0\U0001f642"), (bytes(range(256)), b"\0\xff")):
        server = trie(alphabet=alphabet, protocol="one_round")
        for question in server.questions():
            report = PrefixReport(string, True)
            server.take([padded_message(question, PrefixReport(string, True, "1" * 32)), report.to_bytes()] * 2)
        assert server.ignored.too_long == 0 and len(server.release()) == 1


def test_many_batches_are_one_table(monkeypatch):
    """Grouped at any moment, or only at the end, the counts are the same."""
    rng = np.random.default_rng(3)
    batches = [rng.integers(0, 50, 40) for _ in range(30)]
    expected = np.bincount(np.concatenate(batches), minlength=50)
    for most in (1 << 16, 10, -(10**9)):
        monkeypatch.setattr(intake, "_MOST_WAITING", most)
        counts = CountTable(pa.schema([("value", pa.int64())]))
        assert counts.total().num_rows == 0
        for batch in batches:
            counts.add(pa.table({"value": batch, "count": np.ones(len(batch), np.int64)}))
        total = counts.total().sort_by("value")
        assert total["count"].to_pylist() == expected[total["value"].to_numpy()].tolist()
        assert total["count"].to_numpy().sum() == 1200 and counts.total().num_rows == total.num_rows
