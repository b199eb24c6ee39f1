"""Ledgers that were damaged or forged: each is refused as such, or read; none hangs, and none takes much memory."""

import json
import random
import sqlite3
import time
from contextlib import closing, contextmanager, suppress

import pytest

from dpsieve.accounting.spends import spend_from_json
from dpsieve.errors import BudgetExceeded, DpsieveError, LedgerError
from dpsieve.privacy import Approximate, DiscreteLaplace, Gaussian, Renyi, ZeroConcentrated
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.ledger import Ledger, store
from dpsieve.privacy.ledger.chain import ORIGIN, link
from dpsieve.privacy.ledger.rules import Rules

resource = pytest.importorskip("resource")
SPENDS = [
    Approximate(0.01, 1e-9),
    Gaussian(500.0),
    DiscreteLaplace(500.0, 2),
    ZeroConcentrated(1e-6, count=3),
    Renyi([32.0], [1e-5]),
]
ODD = [
    *(None, True, -1, 0, 1, 2**53, 10**400, -0.0, 5e-324, 1e-300, 0.5, 1.0, 500.0, 1e308, float("nan"), float("inf")),
    *("", "x", "\0", "\x1b[31m", "\ud800", "1", "gaussian", "add_remove", "replace", "x" * 2000),
    *([], {}, [[]], {"kind": "gaussian"}, [1.0] * 100),
]
MOMENT = "2026-05-01T12:00:00.000000+00:00"
DEEP = "[" * 50_000


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


@contextmanager
def in_bounds(seconds=10.0, gigabytes=1.0):
    """Fail where the block takes longer, or more memory."""
    start, memory = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.monotonic() - start < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < gigabytes * 2**20


def forged(path, budget, rows):
    """Write a ledger of these texts, with the tables and the hashes of a whole one."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (
            "PRAGMA synchronous = OFF",
            "PRAGMA journal_mode = OFF",
            f"PRAGMA application_id = {store._APPLICATION}",
            f"PRAGMA user_version = {store._FORMAT}",
            "BEGIN",
            *store._SCHEMA,
        ):
            connection.execute(statement)
        head = link(ORIGIN, store._FORMAT, MOMENT, budget, "")
        connection.execute("INSERT INTO header VALUES (1, ?, ?, ?)", (MOMENT, budget, head))
        for number, row in enumerate(rows, start=1):
            head = link(head, number, *row)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (number, *row, head))
        connection.execute("COMMIT")


def rules(**budget):
    """Return the header of a new ledger, as plain JSON values."""
    return Rules.of(Guarantee.from_json(budget)).to_json()


def cost(spend, number):
    """Return what an entry stores, as plain JSON values; the first names the division of delta."""
    return {"spend": spend, "curves": [], "members": 1} | ({"division": 6} if number == 0 else {})


def written(data):
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def mutated(data, chance):
    """Return JSON data with one field exchanged, added, renamed or removed."""
    data, name = dict(data), chance.choice([*data])
    match chance.randrange(8):
        case 0:
            del data[name]
        case 1:
            data[chance.choice(["", "x", "kind", "unit"])] = chance.choice(ODD)
        case 2:
            data[name.upper()] = data.pop(name)
        case _:
            data[name] = chance.choice(ODD)
    return data


def garbled(text, chance):
    """Return text with one stretch exchanged for another, or made deep."""
    start = chance.randrange(len(text) + 1)
    other = chance.choice(["", "\0", "\x7f", "é", "{", "]", '"', "9" * 5000, "1e999", "NaN", DEEP, text])
    return text[:start] + other + text[start + chance.randrange(4) :]


def test_forged_rows_with_hashes_that_fit(path):
    chance = random.Random(1)
    whole = rules(epsilon=1.0, delta=1e-6, neighbours="add_remove", unit="one row")
    opened = refused = 0
    for _ in range(400):
        budget, spends = written(whole), chance.sample(SPENDS, chance.randrange(1, 4))
        rows = [[MOMENT, written(cost(spend.to_json(), i)), "May"] for i, spend in enumerate(spends)]
        place = chance.randrange(6)
        number = chance.randrange(len(rows))
        row = rows[number]
        if place == 0:
            part = chance.choice([None, "budget", "divisions"])
            if part == "budget":
                changed = {**whole, "budget": mutated(whole["budget"], chance)}
            elif part == "divisions":
                first, *rest = whole["divisions"]
                changed = {**whole, "divisions": [mutated(first, chance), *rest]}
            else:
                changed = mutated(whole, chance)
            budget = written(changed) if chance.random() < 0.7 else garbled(budget, chance)
        elif place < 4:
            other = cost(mutated(spends[number].to_json(), chance), number)
            changed = chance.choice([mutated(json.loads(row[1]), chance), other])
            row[1] = written(changed) if chance.random() < 0.7 else garbled(row[1], chance)
        else:
            row[0 if place == 4 else 2] = garbled(row[0 if place == 4 else 2], chance)
        forged(path, budget, rows)
        with in_bounds():
            try:
                ledger = Ledger(path)
                assert [entry.note.isprintable() for entry in ledger.history()] == [True] * len(rows)
                assert ledger.verify() == ledger.head
                opened += 1
            except LedgerError:
                refused += 1
    assert opened > 25 and refused > 175


def damaged(whole, chance):
    """Return the bytes of a SQLite file with a few of them changed, mostly where its structure lies."""
    data = bytearray(whole)
    for _ in range(chance.choice([1, 1, 1, 2, 4, 16])):
        page = chance.randrange(len(whole) // 4096) * 4096
        start = chance.choice([chance.randrange(len(data)), chance.randrange(100), page + chance.randrange(40)])
        match chance.randrange(6):
            case 0:
                data[page : page + 4096] = whole[:4096] if chance.random() < 0.3 else whole[-4096:]
            case 1:
                del data[max(start, 1) :]
            case 2:
                data[start : start + 4] = chance.choice([b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\xff" * 4, b"\0\0\0\2"])
            case 3:
                data[start : start + 50] = whole[page : page + 50]
            case _:
                data[start : start + 1] = bytes([chance.choice([0, 1, 2, 5, 10, 13, 255, chance.randrange(256)])])
    return bytes(data)


def test_files_with_damaged_bytes(path):
    chance = random.Random(2)
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    for _ in range(6):
        ledger.spend(SPENDS[0], "x" * 900)
    whole, journal = path.read_bytes(), path.with_name(path.name + "-journal")
    opened = refused = 0
    for number in range(800):
        path.write_bytes(damaged(whole, chance))
        journal.unlink(missing_ok=True)
        if number % 10 == 0:
            journal.write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + chance.randbytes(chance.randrange(2000)))
        with in_bounds():
            try:
                ledger = Ledger(path)
                assert len(ledger.history()) == 6
                opened += 1
                if opened % 20 == 0:
                    entry = ledger.spend(Approximate(0.001))
                    assert Ledger(path).history()[-1] == entry
            except LedgerError:
                refused += 1
    assert opened > 50 and refused > 250


def test_rows_longer_than_any_ledger_writes_are_not_read(path):
    forged(path, written({"unit": "x" * 2_000_000}), [])
    with pytest.raises(LedgerError, match="is damaged"):
        Ledger(path)


def test_a_forged_ledger_beyond_its_budget_is_refused_quickly(path):
    budget = rules(epsilon=0.1, delta=1e-6, neighbours="add_remove", unit="one row")
    spends = [Gaussian(1e9, 500.0), Approximate(1e-6, 1e-9, 2), ZeroConcentrated(1000.0, 3), Renyi([2.0], [1e3])]
    forged(path, written(budget), [[MOMENT, written(cost(s.to_json(), i)), ""] for i, s in enumerate(spends)])
    ledger = Ledger(path)
    with in_bounds(seconds=20.0):  # much less on an idle machine
        assert ledger.remaining() is None
        with pytest.raises(BudgetExceeded, match="Nothing is left"):
            ledger.check(Approximate(0.01, 1e-9))


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
def test_spends_and_guarantees_of_odd_json(value):
    wholes = [(spend_from_json, spend.to_json()) for spend in SPENDS]
    wholes += [(Guarantee.from_json, Guarantee(1.0).to_json())]
    for read, whole in wholes:
        read(whole)
        for odd in (value, *({**whole, name: value} for name in whole)):
            with suppress(DpsieveError):
                read(odd)
