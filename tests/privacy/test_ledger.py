"""A ledger: one budget on disk that no crash, no rival process and no edited row can stretch."""

import copy
import json
import math
import os
import pickle
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsieve.accounting.composition import convert_to_replacement
from dpsieve.errors import BudgetExceeded, InvalidType, InvalidValue, LedgerError
from dpsieve.privacy import Approximate, Composition, DiscreteLaplace, Gaussian, Renyi, ZeroConcentrated
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import Ledger
from dpsieve.privacy.ledger.chain import ORIGIN, link
from dpsieve.privacy.ledger.rules import SUMS, Cost
from dpsieve.privacy.ledger.store import _FORMAT

SMALL, TINY = Approximate(0.1, 1e-8), Approximate(0.03, 1e-9)
DAY = Guarantee(0.1, 1e-8, unit="one row")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


@pytest.fixture
def ledger(path):
    return Ledger(path, epsilon=1.0, delta=1e-6)


def tampered(path, *statements):
    """Change the file as someone with SQLite would, past the triggers that forbid it."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in rows:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in rows:
            connection.execute(sql)
        connection.commit()


def child(code, *arguments):
    """Start a Python process that has Ledger, Guarantee and the spends."""
    start = "import os, signal, sys, time\nfrom dpsieve.privacy import *\nfrom dpsieve.privacy.ledger import Ledger\n"
    command = [sys.executable, "-c", start + code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def filled(ledger, spends):
    """Append many entries in one transaction, which is faster than to spend one by one."""
    with ledger._file.writing() as rows:
        chain = rows.verified()
        for spend in spends:
            entry = chain.following(Cost(spend), "")
            rows.append(entry)
            chain = chain.plus([entry])


TINIES = 54
"""How many tiny spends fit (1, 1e-6)."""


def plain(remaining):
    """Return what remains without its rule."""
    return Guarantee(remaining.epsilon, remaining.delta, remaining.neighbours, remaining.unit)


# The budget


def test_a_ledger_from_its_creation_to_its_end(path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6, unit="one user_id")
    assert plain(ledger.remaining()) == ledger.budget == Guarantee(1.0, 1e-6, unit="one user_id")
    assert (ledger.spent(), len(ledger), ledger.history()) == (0.0, 0, [])

    entry = ledger.spend(Guarantee(0.5, 5e-7, unit="one user_id"), "searches of May")
    assert (entry.number, entry.spend, entry.note) == (1, Approximate(0.5, 5e-7), "searches of May")
    assert datetime.fromisoformat(entry.time).utcoffset() == timedelta(0)
    assert ledger.spent() == pytest.approx(0.5, abs=1e-5)
    assert plain(ledger.remaining(5e-7)) == Guarantee(0.5, 5e-7, unit="one user_id")
    assert ledger.remaining(5e-7).rule == SUMS

    ledger.spend(ledger.remaining(5e-7))
    assert ledger.remaining() is None
    assert ledger.spent() <= 1.0
    assert [entry.number for entry in ledger.history()] == [1, 2]
    with pytest.raises(BudgetExceeded, match="Nothing is left"):
        ledger.spend(Gaussian(1e5))


def test_many_spends_cost_less_than_their_sum(ledger):
    count = 40
    filled(ledger, [TINY] * count)
    with pytest.raises(BudgetExceeded):
        while True:
            ledger.spend(TINY)
            count += 1
    assert count > 1.0 / TINY.epsilon
    assert count == TINIES
    assert ledger.spent() == pytest.approx(Composition([TINY] * count).epsilon(1e-6))


def test_a_refused_spend_says_what_is_left_and_writes_nothing(ledger):
    ledger.spend(Approximate(0.6, 2e-7))
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"At most epsilon 0\.4\d* is left at delta 1e-07") as refused:
        ledger.spend(Approximate(0.5, 1e-7))
    assert "entries so far: 1" in str(refused.value)
    with pytest.raises(BudgetExceeded, match=r"Nothing is left at delta 9e-07\. At most epsilon 0\.4\d* is left at"):
        ledger.spend(Approximate(0.1, 9e-7))
    assert ledger.path.read_bytes() == before


@pytest.mark.parametrize(
    "spend",
    [
        SMALL,
        Gaussian(20.0),
        DiscreteLaplace(20.0, count=3),
        ZeroConcentrated(1e-3),
        Renyi([2.0, 8.0, 64.0], [0.002, 0.01, 0.1], count=2),
    ],
)
def test_every_kind_of_spend_is_kept_exactly(path, ledger, spend):
    entry = ledger.spend(spend)
    assert Ledger.open(path).history() == [entry]
    assert entry.spend == spend
    assert 0 < ledger.spent() <= Composition([spend]).epsilon(1e-6)
    left = ledger.remaining()
    ledger.spend(left)
    with pytest.raises(FrozenInstanceError):
        entry.note = "another"


def test_what_remains_fits_and_is_nearly_the_largest(ledger):
    for spends, delta in (((Approximate(0.3, 1e-7),), 0.0), ((Gaussian(30.0), DiscreteLaplace(50.0, 3)), 3e-7)):
        for spend in spends:
            ledger.spend(spend)
        left = ledger.remaining(delta)
        assert left.delta == delta
        ledger.check(left)
        with pytest.raises(BudgetExceeded, match=f"is left at delta .*, by {left.rule}"):
            ledger.check(Approximate(left.epsilon * (1 + 1e-5), delta))
        assert ledger.remaining(1e-6) is None


def test_a_budget_of_pure_privacy_adds_up_epsilons(path):
    ledger = Ledger(path, epsilon=1.0, delta=0.0)
    ledger.spend(Approximate(0.25))
    ledger.spend(DiscreteLaplace(4.0, 2))
    assert (ledger.spent(), plain(ledger.remaining())) == (0.75, Guarantee(0.25, 0.0, unit="one row"))
    for spend in (Approximate(0.1, 1e-9), Gaussian(100.0), Approximate(math.nextafter(0.25, 1))):
        with pytest.raises(BudgetExceeded):
            ledger.spend(spend)
    ledger.spend(Approximate(0.25))
    assert (ledger.spent(), ledger.remaining()) == (1.0, None)


@pytest.mark.parametrize("parts", [(0.2, 0.8), (0.1, 0.9), (0.6, 0.4), (0.1, 0.2, 0.7), (0.1,) * 10])
def test_a_budget_can_be_split_as_one_would_on_paper(ledger, parts):
    for part in parts:
        ledger.spend(Approximate(part, part * 1e-6))
    assert ledger.remaining() is None


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 0.6), st.sampled_from([0.0, 1e-9, 4e-7]), st.integers(1, 5)), max_size=5))
def test_no_sequence_of_spends_exceeds_the_budget(amounts):
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder, "budget"), epsilon=1.0, delta=1e-6)
        kept = []
        for amount in amounts:
            spend = Approximate(*amount)
            try:
                ledger.spend(spend)
                kept.append(spend)
            except BudgetExceeded:
                pass
        assert [entry.spend for entry in ledger.history()] == kept
        # Exact sums of decimals may be a hair above the grid of losses.
        assert Composition(kept).delta(1.0 + 1e-9) <= 1e-6
        assert ledger.spent() <= 1.0


def test_a_check_raises_what_a_spend_would_raise_and_writes_nothing(ledger):
    ledger.spend(Approximate(0.6, 2e-7))
    before = ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns
    for wrong in (
        Guarantee(0.1, unit="user"),
        Guarantee(0.1, neighbours="replace", unit="one row"),
        0.1,
        Approximate(0.5, 1e-7),
        Guarantee(0.5, 1e-7, unit="one row"),
        Gaussian(0.1),
    ):
        with pytest.raises((InvalidValue, InvalidType, BudgetExceeded)) as refused:
            ledger.spend(wrong)
        with pytest.raises(type(refused.value)) as checked:
            ledger.check(wrong)
        assert str(checked.value) == str(refused.value)
    for fits in (DAY, Approximate(0.3, 1e-7), Gaussian(100.0)):
        assert ledger.check(fits) is None
    assert (ledger.path.read_bytes(), ledger.path.stat().st_mtime_ns) == before
    assert [file.name for file in ledger.path.parent.iterdir()] == ["budget.ledger"]
    assert ledger.spend(DAY).number == len(ledger) == 2


def test_a_check_sees_what_others_spent(path, ledger):
    Ledger.open(path).spend(Approximate(0.95, 9e-7))
    with pytest.raises(BudgetExceeded, match="entries so far: 1"):
        ledger.check(DAY)


# For whom


def test_a_guarantee_for_another_unit_or_relation_cannot_be_added(ledger):
    with pytest.raises(InvalidValue, match="'one user', the ledger for 'one row'"):
        ledger.spend(Guarantee(0.1, unit="user"))
    with pytest.raises(InvalidValue, match="protects against replacing a unit, and the ledger against adding"):
        ledger.spend(Guarantee(0.1, neighbours="replace", unit="one row"))
    with pytest.raises(InvalidType, match="must be what is spent, not float"):
        ledger.spend(0.1)
    assert len(ledger) == 0


def test_under_replacement_a_guarantee_for_adding_and_removing_is_converted(path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6, neighbours="replace")
    converted = DAY.for_replacement()
    assert ledger.spend(DAY).spend == Approximate(converted.epsilon, converted.delta)
    assert ledger.spend(converted).spend == Approximate(converted.epsilon, converted.delta)
    assert ledger.remaining().neighbours == "replace"


@pytest.mark.parametrize("note", ["two\nlines", "\x1b[31mred", "\ud800", "nul\0", "x" * 1001])
def test_a_note_is_one_line_of_text(ledger, note):
    with pytest.raises(InvalidValue, match="note"):
        ledger.spend(DAY, note)
    with pytest.raises(InvalidType, match="note must be text, not bytes"):
        ledger.spend(DAY, b"May")
    assert len(ledger) == 0


def test_notes_in_every_script(ledger):
    notes = ["", "Zählung im Mai", "五月", "'; DROP TABLE entries; --", "x" * 1000]
    for note in notes:
        ledger.spend(Approximate(0.01), note)
    assert [entry.note for entry in ledger.history()] == notes


# The file


def test_an_existing_ledger_is_opened_by_its_path(path, ledger):
    ledger.spend(DAY)
    for again in (
        Ledger(path),
        Ledger(str(path)),
        Ledger.open(path),
        Ledger(path, epsilon=1.0, delta=1e-6, neighbours="add_remove", unit="one row"),
    ):
        assert again.history() == ledger.history()
        assert again.budget == ledger.budget


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"epsilon": 2.0}, r"epsilon=2\.0 is not the epsilon=1\.0"),
        ({"epsilon": 1.0, "delta": 1e-5}, "delta=1e-05 is not the delta=1e-06"),
        ({"neighbours": "replace"}, "neighbours='replace' is not the neighbours='add_remove'"),
        ({"unit": "one device"}, "unit='one device' is not the unit='one row'"),
        ({"epsilon": -1.0}, "epsilon=-1 is not between"),
    ],
)
def test_another_budget_than_the_stored_one_is_refused(path, ledger, other, message):
    with pytest.raises(InvalidValue, match=message):
        Ledger(path, **other)


def test_a_missing_ledger_says_how_to_create_one(path):
    for attempt in (
        lambda: Ledger(path),
        lambda: Ledger.open(path),
        lambda: Ledger(path, epsilon=1.0),
        lambda: Ledger(path, epsilon=1.0, delta=0.0, expect_head="0" * 64),
    ):
        with pytest.raises(LedgerError, match=r"no ledger .*dpsieve ledger create PATH"):
            attempt()
    assert not path.exists()


def test_the_file_is_private_and_alone(path, ledger):
    ledger.spend(DAY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["budget.ledger"]


def test_odd_names_are_only_names(tmp_path):
    for name in (":memory:", "a b?mode=ro#x%41", "Haushalt für Mai", "x-shm"):
        Ledger(tmp_path / name, epsilon=1.0, delta=1e-6).spend(DAY)
        assert len(Ledger.open(tmp_path / name)) == 1
    assert len(list(tmp_path.iterdir())) == 4


def foreign_database(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY)")


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("epsilon: 1.0\n" * 500),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(4096)),
        foreign_database,
    ],
    ids=["text", "empty", "broken SQLite", "another SQLite database"],
)
def test_a_file_that_is_not_a_ledger_is_left_alone(path, make):
    make(path)
    before = path.read_bytes()
    for arguments in ({}, {"epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(LedgerError, match=r"budget\.ledger is (not a ledger|damaged).* (Pass a file|Restore)"):
            Ledger(path, **arguments)
    assert path.read_bytes() == before


def test_paths_that_cannot_hold_a_ledger(tmp_path):
    with pytest.raises(LedgerError, match=r"is a folder\. Pass a file in it"):
        Ledger(tmp_path, epsilon=1.0, delta=1e-6)
    with pytest.raises(LedgerError, match=r"the folder .*missing does not exist\. Create it"):
        Ledger(tmp_path / "missing" / "budget", epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidType, match="path must be a path, not int"):
        Ledger(3)
    with pytest.raises(InvalidValue, match="path is blank"):
        Ledger("")
    with pytest.raises(InvalidValue, match="path has line breaks or control characters"):
        Ledger("a\0b")
    assert issubclass(LedgerError, OSError)


def test_another_format_is_refused(path, ledger):
    for version, fix in ((3, "Install a newer"), (1, "Run 'dpsieve ledger show' of the version that wrote it")):
        tampered(path, f"PRAGMA user_version = {version}")
        with pytest.raises(LedgerError, match=rf"has format {version}, this dpsieve reads 2\. {fix}"):
            Ledger(path)


@contextmanager
def ordinary_user(*paths):
    """Run as a user without special rights: as root, no permission would be missing."""
    if os.geteuid() != 0:
        yield
        return
    for path in paths:
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_read_only_ledger_can_be_read_and_not_spent():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "budget")
        Ledger(path, epsilon=1.0, delta=1e-6).spend(DAY)
        with ordinary_user(folder, path):
            path.chmod(0o400)
            ledger = Ledger(path)
            assert len(ledger.history()) == 1
            for attempt in (ledger.spend, ledger.check):
                with pytest.raises(LedgerError, match=r"cannot be written or opened\. Ask for permission"):
                    attempt(DAY)
            path.chmod(0o600)
            Path(folder).chmod(0o500)
            for attempt in (ledger.spend, ledger.check):
                with pytest.raises(LedgerError, match=r"cannot be written or opened\. Ask for permission"):
                    attempt(DAY)
            with pytest.raises(LedgerError, match=r"cannot be created \(Permission denied\)"):
                Ledger(Path(folder, "another"), epsilon=1.0, delta=1e-6)
            Path(folder).chmod(0o000)
            with pytest.raises(LedgerError):
                Ledger(path)
            Path(folder).chmod(0o700)
        assert len(Ledger.open(path)) == 1


# Tampering


def test_the_hashes_can_be_recomputed_by_hand(ledger):
    start = ledger.head
    entry = ledger.spend(DAY, "May")
    cost = {"spend": entry.spend.to_json(), "curves": [], "members": 1, "division": entry.division}
    spend = json.dumps(cost, sort_keys=True, separators=(",", ":"))
    text = json.dumps([start, 1, entry.time, spend, "May"], separators=(",", ":"))
    assert entry.hash == ledger.head == sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET spend = replace(spend, '0.1', '0.0') WHERE number = 2",
        "UPDATE entries SET note = 'June' WHERE number = 2",
        "UPDATE entries SET note = CAST('x' AS BLOB) WHERE number = 2",
        "UPDATE entries SET time = '2020-01-01T00:00:00+00:00' WHERE number = 1",
        "UPDATE entries SET hash = '' WHERE number = 3",
        "DELETE FROM entries WHERE number = 2",
        "DELETE FROM entries WHERE number = 1",
        "UPDATE entries SET number = CASE number WHEN 1 THEN -2 WHEN 2 THEN -1 ELSE number END",
        "INSERT INTO entries SELECT 4, time, spend, note, hash FROM entries WHERE number = 3",
        "INSERT INTO entries SELECT 0, time, spend, note, hash FROM entries WHERE number = 1",
        "UPDATE header SET rules = replace(rules, '\"epsilon\":1.0', '\"epsilon\":9.0')",
        "DELETE FROM header",
        "ALTER TABLE entries DROP COLUMN note",
        "CREATE TRIGGER swallow AFTER INSERT ON entries BEGIN DELETE FROM header; END",
    ],
)
def test_a_row_that_was_changed_removed_or_moved_is_found(path, ledger, change):
    for _ in range(3):
        ledger.spend(DAY)
    tampered(path, change)
    for attempt in (lambda: Ledger(path), ledger.verify, ledger.history):
        with pytest.raises(LedgerError, match=r"budget\.ledger .*(cannot be trusted|were changed).* Restore"):
            attempt()


def test_two_entries_that_changed_places_are_found(path, ledger):
    for note in "abc":
        ledger.spend(DAY, note)
    tampered(path, *(f"UPDATE entries SET number = {b} WHERE number = {a}" for a, b in ((1, 9), (2, 1), (9, 2))))
    with pytest.raises(LedgerError, match="entry 1 was changed, removed or moved"):
        Ledger(path)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entries WHERE number = 3",
        "DELETE FROM entries WHERE number = 2",
        "UPDATE entries SET note = 'June' WHERE number = 3",
        "UPDATE header SET hash = hash || '0'",
    ],
)
def test_an_open_ledger_does_not_spend_on_a_changed_tail(path, ledger, change):
    for _ in range(3):
        ledger.spend(DAY)
    tampered(path, change)
    with pytest.raises(LedgerError, match="cannot be trusted"):
        ledger.spend(DAY)


def test_the_file_itself_forbids_changes(path, ledger):
    ledger.spend(DAY)
    with closing(sqlite3.connect(path)) as connection:
        for statement in ("DELETE FROM entries", "UPDATE entries SET note = 'x'", "DELETE FROM header"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(statement)


def test_a_noted_head_finds_what_the_chain_alone_cannot(path, ledger):
    first = ledger.spend(DAY).hash
    old = path.read_bytes()
    noted = ledger.spend(DAY).hash
    later = ledger.spend(DAY).hash
    assert ledger.verify(noted) == ledger.verify(first) == later == Ledger(path, expect_head=noted).head

    path.write_bytes(old)
    assert len(Ledger(path)) == 1
    for attempt in (
        lambda: Ledger(path, expect_head=noted),
        lambda: Ledger.open(path, expect_head=noted),
        lambda: Ledger(path).verify(noted),
    ):
        with pytest.raises(LedgerError, match="does not hold the head that was noted"):
            attempt()
    # A ledger that is open remembers its head by itself.
    for attempt in (ledger.verify, ledger.history, ledger.spent, ledger.remaining, lambda: ledger.spend(DAY)):
        with pytest.raises(LedgerError):
            attempt()
    with pytest.raises(InvalidType, match="head has the type int"):
        Ledger(path, expect_head=7)


def test_a_ledger_that_was_exchanged_for_a_fresh_one_is_not_spent(path, ledger):
    path.unlink()
    Ledger(path, epsilon=1.0, delta=1e-6)
    with pytest.raises(LedgerError, match="is not the one that was opened"):
        ledger.spend(DAY)
    path.unlink()
    with pytest.raises(LedgerError, match="cannot be written or opened"):
        ledger.spend(DAY)
    assert not path.exists()


def mended(path, *statements):
    """Change the file, and give every row the hash that fits it."""
    tampered(path, *statements)
    with closing(sqlite3.connect(path)) as connection:
        time, rules = connection.execute("SELECT time, rules FROM header").fetchone()
        head = link(ORIGIN, _FORMAT, time, rules, "")
        hashes = [f"UPDATE header SET hash = '{head}'"]
        for row in connection.execute("SELECT number, time, spend, note FROM entries ORDER BY number").fetchall():
            head = link(head, *row)
            hashes.append(f"UPDATE entries SET hash = '{head}' WHERE number = {row[0]}")
    tampered(path, *hashes)


DEEP = "'" + "[" * 100_000 + "'"


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE entries SET spend = {DEEP}",
        f"UPDATE header SET rules = {DEEP}",
        "UPDATE entries SET spend = replace(spend, '\"approximate\"', '[]')",
        "UPDATE entries SET spend = replace(spend, '\"approximate\"', '{}')",
        "UPDATE entries SET spend = replace(spend, '0.1', '1' || hex(zeroblob(5000)))",
        "UPDATE entries SET spend = replace(spend, '0.1', 'NaN')",
        "UPDATE entries SET spend = ' ' || spend",
        "UPDATE entries SET spend = '7'",
        "UPDATE entries SET spend = replace(spend, '\"division\":', '\"division\":9')",
        "UPDATE entries SET spend = replace(spend, '\"division\":', '\"division\":-')",
        "UPDATE entries SET spend = json_set(spend, '$.division', json('true'))",
        "UPDATE entries SET spend = json_set(spend, '$.division', json('null'))",
        "UPDATE entries SET spend = json_remove(spend, '$.division')",
        "UPDATE header SET rules = replace(rules, '\"add_remove\"', '[]')",
        "UPDATE header SET rules = '[]'",
        "UPDATE entries SET note = char(27) || '[31mred'",
        "UPDATE entries SET time = replace(time, 'T', char(27))",
        "UPDATE entries SET time = 'yesterday'",
        "UPDATE entries SET time = time || zeroblob(2000000)",
    ],
    ids=lambda change: change[:60],
)
def test_a_row_that_no_ledger_writes_is_refused_though_its_hash_fits(path, ledger, change):
    ledger.spend(DAY)
    mended(path, "UPDATE entries SET note = 'May'")
    assert len(Ledger(path)) == 1
    mended(path, change)
    with pytest.raises(LedgerError, match=r"cannot be trusted: (entry 1|its header) was changed|is damaged"):
        Ledger(path)


@pytest.mark.parametrize(
    "old", [b"CREATE TABLE header", b"'a ledger is append-only'", b"header (one INTEGER", b"hash TEXT"]
)
def test_tables_described_in_bytes_that_are_not_text_are_refused(path, ledger, old):
    for place in range(0, len(old), 3):
        bad = old[:place] + b"\xff" + old[place + 1 :]
        path.write_bytes(path.read_bytes().replace(old, bad))
        with pytest.raises(LedgerError, match=r"is damaged|were changed"):
            Ledger(path)
        path.write_bytes(path.read_bytes().replace(bad, old))
    assert len(Ledger(path)) == 0


# Others at the same time

SPEND_ALL = """
path, go = sys.argv[1:]
while not os.path.exists(go):
    time.sleep(0.01)
ledger = Ledger(path, epsilon=1.0, delta=1e-6)
try:
    while True:
        print(ledger.spend(Approximate(0.03, 1e-9)).number, flush=True)
except BudgetExceeded:
    pass
"""


def test_five_processes_at_once_create_one_ledger_and_never_overspend(tmp_path, path):
    go = tmp_path / "go"
    rivals = [child("from dpsieve.errors import BudgetExceeded" + SPEND_ALL, path, go) for _ in range(5)]
    time.sleep(0.5)
    go.touch()
    numbers = []
    for rival in rivals:
        out, err = rival.communicate(timeout=60)
        assert (rival.returncode, err) == (0, "")
        numbers += map(int, out.split())
    assert sorted(numbers) == list(range(1, TINIES + 1))
    assert Composition(entry.spend for entry in Ledger.open(path).history()).delta(1.0) <= 1e-6
    assert sorted(file.name for file in tmp_path.iterdir()) == ["budget.ledger", "go"]


def test_threads_share_one_ledger(ledger):
    numbers, errors = [], []

    def work():
        try:
            while True:
                numbers.append(ledger.spend(TINY).number)
        except BudgetExceeded:
            pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(numbers) == list(range(1, TINIES + 1))


def test_entries_of_others_are_seen(path, ledger):
    other = Ledger.open(path)
    other.spend(Approximate(0.9, 1e-7))
    assert len(ledger) == 1
    assert ledger.head == other.head
    with pytest.raises(BudgetExceeded):
        ledger.spend(Approximate(0.2, 1e-7))


def test_a_ledger_in_use_is_waited_for_and_then_given_up(path, ledger):
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"in use by others for 0\.05 s\. Try again"):
            Ledger(path, timeout=0.05).spend(DAY)
        assert ledger.history() == []
        done = threading.Timer(0.3, lambda: rival.execute("ROLLBACK"))
        done.start()
        assert ledger.spend(DAY).number == 1
        done.join()
    with pytest.raises(InvalidValue, match="timeout=-1"):
        Ledger(path, timeout=-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_may_go_on_with_the_ledger(ledger):
    ledger.spend(DAY)
    process = os.fork()
    if process == 0:
        try:
            os._exit(0 if ledger.spend(DAY).number == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(process, 0)[1] == 0
    assert ledger.spend(DAY).number == 3


FORK = """
import threading
ledger, inside = Ledger(sys.argv[1], timeout=60), threading.Event()
def work():
    with ledger._file.writing():
        inside.set()
        time.sleep(0.3)
thread = threading.Thread(target=work)
thread.start()
inside.wait()
process = os.fork()
if process == 0:
    signal.alarm(20)
    os._exit(0 if ledger.spend(Approximate(0.1, 1e-8)).number == 1 else 1)
assert os.waitpid(process, 0)[1] == 0
thread.join()
assert ledger.spend(Approximate(0.1, 1e-8)).number == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_writes_can_spend(path, ledger):
    parent = child("import warnings\nwarnings.simplefilter('ignore')" + FORK, path)
    assert parent.communicate(timeout=60) == ("", "")
    assert parent.returncode == 0


# Crashes


@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
def test_a_spend_survives_the_death_of_its_process(path, ledger):
    code = "Ledger(sys.argv[1]).spend(Approximate(0.1, 1e-8), 'last words')\nos.kill(os.getpid(), signal.SIGKILL)"
    victim = child(code, path)
    assert victim.communicate(timeout=60) == ("", "")
    assert victim.returncode == -signal.SIGKILL
    assert [entry.note for entry in ledger.history()] == ["last words"]


DIES = """
from dpsieve.privacy.ledger.store import Rows
append = Rows.append
def dies(rows, entry):
    append(rows, entry)
    os.kill(os.getpid(), signal.SIGKILL)
Rows.append = dies
Ledger(sys.argv[1]).spend(Approximate(0.1, 1e-8))
"""

# With a tiny cache SQLite writes to the file before it commits: the journal has to undo that.
DIES_HALF_WRITTEN = """
from dpsieve.privacy.ledger.rules import Cost
ledger = Ledger(sys.argv[1])
with ledger._file.writing() as rows:
    rows._connection.execute("PRAGMA cache_size = 1")
    chain = rows.verified()
    for number in range(300):
        entry = chain.following(Cost(Approximate(0.1)), "x" * 1000)
        rows.append(entry)
        chain = chain.plus([entry])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
@pytest.mark.parametrize("code", [DIES, DIES_HALF_WRITTEN], ids=["before the commit", "half written"])
def test_a_death_in_the_middle_leaves_the_ledger_whole(path, ledger, code):
    first = ledger.spend(DAY)
    victim = child(code, path)
    assert victim.communicate(timeout=60) == ("", "")
    assert victim.returncode == -signal.SIGKILL
    if code == DIES_HALF_WRITTEN:
        journal = path.with_name(path.name + "-journal")
        assert journal.exists()
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600
    assert Ledger.open(path).history() == [first]
    assert ledger.spend(DAY).number == 2


@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
def test_a_death_at_any_time_loses_no_spend_that_was_confirmed(path, ledger):
    for _ in range(3):
        before = len(ledger)
        victim = child("while True: print(Ledger(sys.argv[1]).spend(Approximate(1e-4)).number, flush=True)", path)
        confirmed = [int(victim.stdout.readline()) for _ in range(4)]
        victim.kill()
        confirmed += map(int, victim.communicate(timeout=60)[0].split())
        after = len(Ledger.open(path).history())
        assert confirmed == list(range(before + 1, before + 1 + len(confirmed)))
        assert before + len(confirmed) <= after <= before + len(confirmed) + 1


def test_a_death_while_creating_leaves_no_ledger(path):
    code = "import dpsieve.privacy.ledger.store as store\nstore.os.link = lambda *names: os._exit(7)\n"
    victim = child(code + "Ledger(sys.argv[1], epsilon=1.0, delta=1e-6)", path)
    victim.communicate(timeout=60)
    assert victim.returncode == 7
    assert not path.exists()
    assert len(Ledger(path, epsilon=2.0, delta=1e-6)) == 0


def test_commits_reach_the_disk(ledger):
    with ledger._file.writing() as rows:
        modes = [rows._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert modes == ["delete", 3]


# Small things


def test_a_ledger_is_shown_by_public_numbers(ledger):
    ledger.spend(DAY, "May")
    assert repr(ledger) == "Ledger('budget.ledger', epsilon=1.0, delta=1e-06, entries=1)"


def test_an_untouched_ledger_is_true_and_a_context(path):
    with Ledger(path, epsilon=1.0, delta=1e-6) as ledger:
        assert ledger
        ledger.spend(DAY)
    assert len(ledger) == 1


def test_a_copy_is_the_same_ledger_opened_again(path, ledger):
    ledger.spend(DAY)
    for again in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):
        again.spend(DAY)
        assert again.history() == ledger.history()
    data = pickle.dumps(ledger)
    tampered(path, "DELETE FROM entries WHERE number = 3")
    with pytest.raises(LedgerError, match="head that was noted"):
        pickle.loads(data)


@pytest.mark.parametrize(
    "spend",
    [Approximate(1e-4, 1e-12), DiscreteLaplace(1e7, 1000), Gaussian(1e4), ZeroConcentrated(1e-8), Renyi([64], [1e-6])],
)
def test_a_thousand_earlier_spends(path, ledger, spend):
    filled(ledger, [spend] * 1000)
    assert Ledger.open(path).spend(spend).number == 1001


class TestWhatMechanismsReallyCost:
    """A mechanism is charged as the noise that it is, so that many releases cost less than their guarantees."""

    UNIT = "one row"

    def test_gaussian_releases_add_up_as_gaussians(self, tmp_path):
        from dpsieve.channels import gaussian

        mechanism = gaussian(0.1, 1e-8, unit=self.UNIT)
        finer = Ledger(tmp_path / "finer", epsilon=4.0, delta=1e-6, unit=self.UNIT)
        plain = Ledger(tmp_path / "plain", epsilon=4.0, delta=1e-6, unit=self.UNIT)
        for _ in range(50):
            finer.spend(mechanism)
            plain.spend(mechanism.guarantee)
        assert plain.spent() == pytest.approx(3.26, abs=0.01)
        assert finer.spent() < 0.66
        entry = finer.history()[0]
        assert entry.spend == Approximate(0.1, 1e-8)
        assert [type(curve) for curve in entry.curves] == [Gaussian, Approximate]
        assert Ledger.open(tmp_path / "finer").history() == finer.history()

    def test_report_then_count_adds_up_at_renyi_orders(self, tmp_path):
        from dpsieve.channels import report_then_count

        ledger = Ledger(tmp_path / "finer", epsilon=4.0, delta=1e-6, unit=self.UNIT)
        mechanism = report_then_count(0.1, 1e-8, max_keys=10, unit=self.UNIT)
        for _ in range(50):
            ledger.spend(mechanism)
        assert ledger.spent() < 0.74  # by its guarantee alone it would be 3.26, as Gaussian noise 0.65
        entry = Ledger.open(tmp_path / "finer").history()[-1]
        assert entry.spend == Approximate(0.1, 1e-8) and entry.curves == mechanism.spends()
        assert [type(curve) for curve in entry.curves] == [Renyi, Approximate]

    def test_noise_for_known_keys_is_charged_as_laplace_noise(self, ledger):
        from dpsieve.noise.known_keys import known_keys

        entry = ledger.spend(known_keys(0.5, max_keys=2, max_rows=3, unit=self.UNIT))
        assert entry.curves == (DiscreteLaplace(12.0, 3, count=2),)

    def test_one_release_may_use_the_whole_budget_it_was_made_for(self, path):
        from dpsieve.channels import gaussian

        mechanism = gaussian(1.0, 1e-6, max_keys=10, unit=self.UNIT)
        ledger = Ledger(path, epsilon=1.0, delta=1e-6, unit=self.UNIT)
        assert Composition(mechanism.spends()).delta(1.0) > 1e-6  # by its curves alone it would not fit
        ledger.spend(mechanism)
        assert ledger.remaining() is None

    def test_a_ledger_for_replacement_converts_the_guarantee(self, path):
        from dpsieve.channels import gaussian

        ledger = Ledger(path, epsilon=4.0, delta=1e-3, neighbours="replace", unit=self.UNIT)
        mechanism = gaussian(0.5, 1e-6, unit=self.UNIT)
        whole = mechanism.guarantee.for_replacement()
        entry = ledger.spend(mechanism)
        assert entry.spend == Approximate(whole.epsilon, whole.delta)
        assert entry.curves == convert_to_replacement(mechanism.spends(), tuple(sorted(ledger._chain.rules.orders)))
        assert [type(curve) for curve in entry.curves] == [Renyi, Approximate]
        for _ in range(16):
            ledger.spend(mechanism)  # by the guarantee alone, four would fit
        with pytest.raises(BudgetExceeded):
            ledger.spend(Approximate(2.0, 1e-4))

    def test_spends_that_are_none_are_refused(self, ledger):
        from dpsieve.noise.known_keys import KnownKeys

        class Odd(KnownKeys):
            def spends(self):
                return ("x",)

        with pytest.raises(InvalidType, match="spends"):
            ledger.spend(Odd(0.1, noise="laplace", unit=self.UNIT))

    def test_a_ledger_may_be_named_by_its_path(self, path):
        from dpsieve.jobs.run import charge, open_ledger
        from dpsieve.noise.known_keys import known_keys

        Ledger(path, epsilon=1.0, delta=1e-6, unit="one row")
        mechanism = known_keys(0.1)

        def pay(ledger, note=""):
            with charge(mechanism, ledger, note, lambda: None):
                pass

        pay(str(path), "May")
        pay(path)
        pay(None)
        assert len(open_ledger(path)) == 2 and open_ledger(None) is None
        with pytest.raises(InvalidType, match="ledger"):
            pay(3)
