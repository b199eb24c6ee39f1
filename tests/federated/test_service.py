"""The service in examples/service: 10,000 clients over loopback, a server that is killed again and again, one release.

Nothing here is statistical but the releases: a value of 400 or more clients is missed less than once in 10^9 runs.
"""

import asyncio
import json
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import client
import pytest
import rounds
import server as service_server
from store import Store

import dpsieve as ds
from dpsieve.federated import Distribution, TrieRelease
from dpsieve.federated.client import Budget, FileStorage, Report, ValueQuestion, padded_message
from dpsieve.publication.publication import Publication

SERVICE = Path(client.__file__).parent
BUDGET = {"epsilon": 1.0, "delta": 1e-8}
HISTOGRAM = {"kind": "histogram", "longest": 32, **BUDGET}
DRINKS = ["tea"] * 6 + ["mate"] * 3 + ["milk"]


@pytest.fixture
def ledger(tmp_path):
    return ds.Ledger(tmp_path / "clients.ledger", epsilon=4.0, delta=1e-6, unit="client")


@pytest.fixture
def folder(tmp_path, ledger):
    rounds.create(tmp_path / "drinks", HISTOGRAM, ledger.path)
    return tmp_path / "drinks"


class InMemory:
    """The storage of a host."""

    text = None

    def get(self):
        return self.text

    def put(self, text):
        self.text = text


def limited(place, *, epsilon=4.0):
    return Budget(place, epsilon=epsilon, delta=1e-6, exposure=0.95)


class Direct:
    """A service without a network, for what does not need one."""

    def __init__(self, folder):
        self.store = Store(folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.store.__exit__()

    def ask(self):
        now = self.store.now()
        asked = json.loads(now.question) if now.state == "open" else {}
        return {"collection": now.name, "round": now.round, "state": now.state, **asked}

    def answer_all(self, values, kept=None, budgets=None):
        asked, batch, none = self.ask(), [], [None] * len(values)
        for value, mine, budget in zip(values, kept or [{} for _ in values], budgets or none, strict=True):
            message = client.message_for(asked, value, mine, budget=budget)
            batch.append((asked["round"], service_server.nonce_of(message), message))
        return self.store.add(batch)


class Server:
    """The server as a process of its own, on a free port of this machine, to be killed and started again."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address, self.folder, self.process = f"127.0.0.1:{self.port}", folder, None
        self.log = folder.with_suffix(".log")

    def start(self):
        command = [sys.executable, str(SERVICE / "server.py"), "serve", str(self.folder), "--port", str(self.port)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @contextmanager
    def running(self):
        self.start()
        try:
            yield self
        finally:
            self.kill()


def stored(folder):
    with closing(sqlite3.connect(folder / "collection.sqlite")) as db:
        return [nonce for (nonce,) in db.execute("SELECT nonce FROM messages")]


def test_ten_thousand_clients_and_a_server_that_is_killed(folder, ledger):
    """Every acknowledged message is there, none twice, and none that nobody sent; the release counts the reports.

    It takes some seconds: the messages are real requests, and a server that was killed has to start again.
    """
    server, threads, clients = Server(folder), 4, 10_000
    sent, acknowledged, lock = {}, set(), threading.Lock()

    def some_clients(first):
        with client.Service(server.address) as patient, client.Service(server.address, patience=0.0) as hasty:
            answer_for_some(first, patient, hasty)

    def answer_for_some(first, patient, hasty):
        asked = patient.ask()
        for number in range(first, clients, threads):
            kept = {}
            message = client.message_for(asked, DRINKS[number % len(DRINKS)], kept, budget=None)
            assert message == client.message_for(asked, "another value", kept, budget=None)  # the coin is tossed once
            report = json.loads(message)
            service = hasty if number % 10 == 7 else patient  # one that gives up may have been heard or not
            taken = False
            with suppress(OSError, HTTPException):
                taken = service.send(asked, message)
            if number % 50 == 0:  # an acknowledgement that got lost: the same message comes again
                taken = patient.send(asked, message)
            with lock:
                sent[report["nonce"]] = report["value"]  # None for silence
                acknowledged.update([report["nonce"]] if taken else [])

    with server.running():
        everyone = [threading.Thread(target=some_clients, args=(first,)) for first in range(threads)]
        for one in everyone:
            one.start()
        kills, until = 0, time.monotonic() + 120
        while any(one.is_alive() for one in everyone) and time.monotonic() < until:
            time.sleep(random.uniform(0.2, 0.8))
            if kills < 3:
                server.kill()
                server.start()
                kills += 1
        assert not any(one.is_alive() for one in everyone)
        assert kills == 3

        kept = stored(folder)
        assert len(kept) == len(set(kept)) and acknowledged <= set(kept) <= set(sent)
        assert len(set(sent) - acknowledged) <= clients / 10
        reports = [sent[nonce] for nonce in kept if sent[nonce] is not None]
        assert 0.2 * len(kept) < len(reports) < 0.28 * len(kept)  # at a rate of 0.24, by eight deviations

        close = [sys.executable, str(SERVICE / "server.py"), "close", str(folder), "--round", "1"]
        killed = subprocess.Popen(close, stdout=subprocess.DEVNULL)
        time.sleep(random.uniform(0.3, 1.5))  # it takes about a second
        killed.kill()
        killed.wait()
        both = [subprocess.Popen(close, stdout=subprocess.PIPE, text=True) for _ in range(2)]  # at the same time
        assert all("Published in" in one.communicate()[0] for one in both)
        with client.Service(server.address) as late:
            assert late.ask()["state"] == "done"
    release, counts = ds.Release.load(folder / "published"), Counter(reports)
    assert dict(zip(release.table["key"].to_pylist(), release.tokens.tolist(), strict=True)) == counts
    assert len(ledger) == 1 and stored(folder) == []
    left = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert not any(nonce.encode() in left for nonce in kept[:100])


def test_what_is_on_disk_and_for_how_long(folder):
    """Messages are in one file of mode 0600, without order or time, and no byte of them is left once published."""
    file = folder / "collection.sqlite"
    empty = file.stat().st_size
    with Direct(folder) as service:
        assert all(service.answer_all(["marked-secret"] * 300))
        _check_disk(folder)
    assert file.stat().st_size == empty  # nor does the size tell how many there were


def test_silence_is_stored_like_a_report(tmp_path, ledger):
    """One row and the same bytes each, so that neither the time of a write nor the file tells who was sampled."""
    left = set()
    for name, answer in (("silent", None), ("sampled", Report("tea", "0" * 32))):
        rounds.create(tmp_path / name, HISTOGRAM, ledger.path)
        with Direct(tmp_path / name) as service:
            asked = service.ask()
            message = padded_message(ValueQuestion.from_json(asked["question"]), answer)
            nonce = service_server.nonce_of(message).encode()
            service.store.add((1, f"{i:032x}", message.replace(nonce, b"%032x" % i)) for i in range(200))
            sizes = {len(message) for message in service.store.messages()}
        left.add((len(stored(tmp_path / name)), *sizes, (tmp_path / name / "collection.sqlite").stat().st_size))
    assert len(left) == 1 and left.pop()[:2] == (200, asked["size"])


def _check_disk(folder):
    found = stored(folder)
    assert len(found) == 300 and found == sorted(found)
    assert folder.stat().st_mode & 0o777 == 0o700
    files = [path for path in folder.iterdir() if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert any(b"marked-secret" in path.read_bytes() for path in files)
    rounds.close(folder, 1)
    left = b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
    assert b"marked-secret" not in left and not any(nonce.encode() in left for nonce in found)


@pytest.mark.parametrize("place", ["before the spend", "after the spend", "after the release", "before the commit"])
def test_a_close_that_dies_anywhere_is_run_again(folder, ledger, place, monkeypatch):
    """Two runs give what one gives: one spend, one release, of the messages of when the round was closed."""
    with Direct(folder) as service:
        service.answer_all(DRINKS * 100)
        counted = Counter(json.loads(message)["value"] for message in service.store.messages())
    threshold = rounds.collector(HISTOGRAM).plan.threshold
    counted = {value: count for value, count in counted.items() if value is not None and count >= threshold}

    class Killed(BaseException):
        pass

    def then_die(target, name, *, first=True):
        done = getattr(target, name)

        def die(*arguments, **options):
            if first:
                done(*arguments, **options)
            raise Killed

        return target, name, die

    where = {
        "before the spend": lambda: then_die(ds.Ledger, "spend", first=False),
        "after the spend": lambda: then_die(ds.Ledger, "spend"),
        "after the release": lambda: then_die(Publication, "save"),
        "before the commit": lambda: then_die(Store, "publish"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*where[place]())
        with pytest.raises(Killed):
            rounds.close(folder, 1)
    assert len(ledger) == (place != "before the spend")
    with Store(folder) as store:
        assert store.add([(1, "0" * 32, b"late")]) == ["the spend" in place]  # is the round still open?
    for _ in range(2):
        assert rounds.close(folder, 1).state == "done"
    release = ds.Release.load(folder / "published")
    assert dict(zip(release.table["key"].to_pylist(), release.tokens.tolist(), strict=True)) == counted
    assert len(ledger) == 1


def test_heavy_hitters_in_rounds_and_quantiles(tmp_path, ledger):
    """The same questions and answers, round by round: what was published stands for the messages that led to it.

    Each collection ends as the library does on the same reports, which is found out by passing them to it.
    """
    for kind, options, values in (
        ("heavy_hitters", {"max_length": 3, "alphabet": "abc"}, ["abc"] * 400 + ["ab"] * 400 + ["c"] * 3),
        ("quantiles", {"low": 0.0, "high": 100.0, "branching": 4, "depth": 2}, [i % 100 for i in range(1000)]),
        ("heavy_hitters", {"max_length": 2, "protocol": "cohorts"}, ["ab"] * 800),
    ):
        place = tmp_path / f"{kind} {len(values)}"
        rounds.create(place, {"kind": kind, **options, **BUDGET}, ledger.path)
        nonces, kept, budgets = [], [{} for _ in values], [limited(InMemory()) for _ in values]
        with Direct(place) as service:
            library = rounds.collector(json.loads(service.store.now().options))
            for question in library.questions():
                assert service.ask()["question"] == json.loads(json.dumps(question.to_json()))
                service.answer_all(values, kept, budgets)
                library.take(service.store.messages())
                nonces += stored(place)
                rounds.close(place, question.level)
                assert rounds.close(place, question.level).round <= question.level + 1  # again: nothing changes
            assert service.ask()["state"] == "done" and len(nonces) == len(set(nonces))  # no nonce in two rounds
        published = Publication.load(place / "published")
        assert isinstance(published, Distribution if kind == "quantiles" else TrieRelease)
        assert published.table.equals(library.release().table) and len(published.table)
    assert len(ledger) == 3


def test_a_client_keeps_its_answer_across_restarts(folder, tmp_path):
    """The record of the budget is on disk first, then the message; once it is delivered, nothing of it is left."""
    with Direct(folder) as service:
        asked, path, record = service.ask(), tmp_path / "kept.json", tmp_path / "budget"
    written, put = [], FileStorage.put

    def note(place, text):
        put(place, text)
        written.append(place.path.name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStorage, "put", note)
        first = client.message_for(asked, "tea", client.Kept(FileStorage(path)), budget=limited(record))
    assert written == ["budget", "budget", "kept.json"]  # made empty; the question; the message
    assert {file.stat().st_mode & 0o777 for file in (path, record)} == {0o600}
    budget = limited(record)
    for _ in range(20):
        assert client.message_for(asked, "tea", client.Kept(FileStorage(path)), budget=budget) == first
    assert budget.spent().collections == 1
    lost = json.loads(client.message_for(asked, "tea", {}, budget=budget))  # a message that was never written
    assert lost["value"] is None and lost["nonce"] != json.loads(first)["nonce"]
    client.delivered(asked, client.Kept(FileStorage(path)))
    assert client.message_for(asked, "tea", client.Kept(FileStorage(path)), budget=budget) is None
    assert json.loads(first)["nonce"] not in path.read_text() and "tea" not in path.read_text() + record.read_text()


def test_a_client_whose_budget_is_spent_looks_as_any_other(folder, tmp_path):
    """Messages of one size, the same fields; the server takes them, and counts nothing."""
    with Direct(folder) as service:
        asked, spent = service.ask(), limited(tmp_path / "budget", epsilon=0.5)
        longest = '"\n\x01' * 10
        messages = [client.message_for(asked, text, {}, budget=spent) for text in ("tea", longest) for _ in range(30)]
        messages += [client.message_for(asked, text, {}, budget=None) for text in ("tea", longest) for _ in range(30)]
        assert {len(message) for message in messages} == {asked["size"]}
        assert all(service.store.add((1, service_server.nonce_of(message), message) for message in messages))
    assert {json.loads(message)["value"] for message in messages[:60]} == {None}
    assert spent.spent().collections == 0 and "epsilon" in spent.refusal(ValueQuestion.from_json(asked["question"]))


def test_a_message_that_cannot_be_written_is_not_acknowledged():
    """A full disk, say: the client hears of a failure that may pass, and sends the same again."""

    class Full:
        def add(self, _):
            raise sqlite3.OperationalError("database or disk is full")

    async def send():
        writer = service_server.Writer(Full())
        running = asyncio.create_task(writer.run())
        codes = await asyncio.gather(*(writer.add(1, "0" * 32, b"{}") for _ in range(3)))
        running.cancel()
        return codes

    with ThreadPoolExecutor(1) as pool:  # in this thread a browser of other tests may have its own loop
        assert pool.submit(lambda: asyncio.run(send())).result() == [503] * 3


def test_what_the_server_refuses(folder):
    """Messages of another size or without a nonce, and those for a round that is not open; the log stays empty."""
    with Server(folder).running() as server, closing(HTTPConnection(server.address, timeout=10)) as connection:
        with client.Service(server.address) as service:
            asked = service.ask()
        with closing(socket.create_connection(("127.0.0.1", server.port))) as leaving:  # in the middle of its message
            leaving.sendall(b"POST /rounds/1/reports HTTP/1.1\r\nHost: me\r\nContent-Length: 259\r\n\r\n{")
        nonce, size = "0" * 32, asked["size"]
        good = json.dumps({"version": 1, "value": "tea", "nonce": nonce}).encode()
        for number, body, code in (
            (1, good.ljust(size), 204),
            (1, good.ljust(size), 204),
            (1, good.replace(b'"tea"', b"null").replace(b"0", b"1").ljust(size), 204),  # silence
            (2, good.ljust(size), 409),
            ("9" * 5000, good.ljust(size), 404),
            ("-1", good.ljust(size), 404),
            (1, b"null".ljust(size), 400),
            (1, good, 400),
            (1, good.ljust(size + 1), 400),
            (1, b"[]".ljust(size), 400),
            (1, b'{"nonce": "tea"}'.ljust(size), 400),
            (1, (b"[" * size), 400),
        ):
            connection.request("POST", f"/rounds/{number}/reports", body)
            response = connection.getresponse()
            response.read()
            assert response.status == code, (number, body[:20])
        with Store(folder) as store:
            assert [len(message) for message in store.messages()] == [size, size]
        assert stored(folder) == [nonce, "1" * 32]
    assert server.log.read_text() == ""


def test_a_log_that_cannot_be_emptied_is_no_success(folder, monkeypatch):
    """A backup that reads meanwhile keeps deleted messages in the log: the close says so, and the next one mends it."""
    monkeypatch.setattr("store._PATIENCE", 0.05)
    with Direct(folder) as service:
        service.answer_all(["marked-secret"] * 300)
        with closing(sqlite3.connect(folder / "collection.sqlite", isolation_level=None)) as backup:
            backup.execute("BEGIN")
            backup.execute("SELECT count(*) FROM messages").fetchone()
            with pytest.raises(ds.errors.DpsieveError, match="its log still holds messages"):
                rounds.close(folder, 1)
        assert b"marked-secret" in (folder / "collection.sqlite-wal").read_bytes()
        assert rounds.close(folder, 1).state == "done"
        assert not any(b"marked-secret" in path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_a_round_is_closed_only_once_it_is_paid(folder, ledger):
    """A ledger that is exhausted, or that holds an entry of another cost for this collection, leaves the round open."""
    with Direct(folder) as service:
        note = f"collection {service.ask()['collection']}"
        mine = ds.Ledger(ledger.path.with_name("mine.ledger"), epsilon=4.0, delta=1e-6, unit="client")
        service.store._db.execute("UPDATE collection SET ledger = ?", [str(mine.path)])
        mine.spend(ds.Guarantee(3.5, 1e-7, unit="client"))
        with pytest.raises(ds.errors.BudgetExceeded):
            rounds.close(folder, 1)
        assert service.ask()["state"] == "open"
        service.store._db.execute("UPDATE collection SET ledger = ?", [str(ledger.path)])
        ledger.spend(ds.Guarantee(0.001, 1e-9, unit="client"), note)
        with pytest.raises(ds.errors.LedgerError, match="another cost"):
            rounds.close(folder, 1)
        assert service.ask()["state"] == "open" and len(ledger) == 1
        with pytest.raises(ds.errors.InvalidValue, match="--round: round 1 is open"):
            rounds.close(folder, 2)


def refusal(capsys, main, *arguments):
    """Return what a command writes to stderr when it ends with the code 2, which is one line."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["it", *map(str, arguments)])
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == "" and said.err.count("\n") == 1
    return said.err


def test_what_create_and_close_refuse(folder, ledger, tmp_path, capsys):
    """Each by one line that names the argument, and nothing is left behind."""
    before = sorted(tmp_path.rglob("*"))
    for place, account, options, said in (
        (folder, ledger.path, HISTOGRAM, "folder: "),
        (tmp_path / "no" / "drinks", ledger.path, HISTOGRAM, "folder: "),
        (tmp_path / "new", tmp_path / "no.ledger", HISTOGRAM, "there is no ledger"),
        (tmp_path / "new", ledger.path, {**HISTOGRAM, "epsilon": 5.0}, "is left"),
        (tmp_path / "new", ledger.path, {**HISTOGRAM, "epsilon": "secret"}, "^epsilon must be"),
        (tmp_path / "new", ledger.path, {**HISTOGRAM, "sugar": 1}, "options: plan() got an unexpected"),
        (tmp_path / "new", ledger.path, {"kind": "quantiles", "low": 0, **BUDGET}, "options: .*missing"),
        (tmp_path / "new", ledger.path, {**HISTOGRAM, "kind": "secret"}, "options: kind must be one of"),
        (tmp_path / "new", ledger.path, ["secret"], "options must be a JSON object"),
    ):
        line = refusal(capsys, service_server.main, "create", place, account, json.dumps(options))
        assert re.search(said.replace("(", r"\(").replace(")", r"\)"), line) and "secret" not in line
    assert "JSON" in refusal(capsys, service_server.main, "create", tmp_path / "new", ledger.path, "{secret")
    assert "--round" in refusal(capsys, service_server.main, "close", folder, "--round", 2)
    assert "folder" in refusal(capsys, service_server.main, "close", tmp_path / "new", "--round", 1)
    assert "folder" in refusal(capsys, service_server.main, "serve", tmp_path / "new")
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_client_refuses(tmp_path, capsys, ledger):
    """A wrong address, a file in use, a value that is no number: one line, and no coin is tossed."""
    path, ours = tmp_path / "kept.json", ("--budget", tmp_path / "budget", "--kept")
    for address in ("nonsense", "https://127.0.0.1:8000", "127.0.0.1:65536", "a b:80", "..:80", ""):
        assert "address must be" in refusal(capsys, client.main, address, "secret", *ours, path)
    dead = Server(tmp_path).address
    for address in (dead, f"http://{dead}/"):
        said = refusal(capsys, client.main, address, "secret", *ours, path, "--patience", 0)
        assert "address: no service answers" in said
    with pytest.raises(ds.errors.UnreadableData), client.Service(dead, patience=0.01) as service:
        service.ask()
    assert "Trying again for 0.01 seconds" in capsys.readouterr().err
    with client.Kept.of_one_process(path):
        assert "--kept: another client" in refusal(capsys, client.main, dead, "secret", *ours, path)
    assert "--kept" in refusal(capsys, client.main, dead, "secret", *ours, tmp_path / "no" / "kept.json")
    rounds.create(tmp_path / "ages", {"kind": "quantiles", "low": 0, "high": 100, **BUDGET}, ledger.path)
    with Direct(tmp_path / "ages") as service, client.Kept.of_one_process(path) as kept:
        with pytest.raises(ds.errors.InvalidValue, match="value must be a number") as refused:
            client.message_for(service.ask(), "secret", kept, budget=limited(tmp_path / "budget"))
        assert "secret" not in str(refused.value) and not kept
    assert not path.exists()
    path.write_text("secret")
    assert "--kept" in refusal(capsys, client.main, dead, "tea", *ours, path)


def test_commands_say_what_they_did(ledger, tmp_path, capsys, monkeypatch):
    def says(main, *arguments):
        monkeypatch.setattr(sys, "argv", ["it", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    place = tmp_path / "drinks"
    said = says(service_server.main, "create", place, ledger.path, json.dumps(HISTOGRAM))
    assert "round 1 is open" in said and f"serve {place}" in said
    with Server(place).running() as server:
        ask = client.main, server.address, "tea", "--budget", tmp_path / "budget", "--kept", tmp_path / "tea.json"
        assert says(*ask) == "Answered.\n"
        assert says(*ask) == "This round is answered.\n"
        with client.Kept.of_one_process(tmp_path / "tea.json") as kept:
            (name,) = kept
            kept[name] = padded_message(ValueQuestion(0.24, longest=32), None).decode()
        assert "An answer to this round is kept: it is sent again" in says(*ask)
        assert len(stored(place)) == 2
        says(service_server.main, "close", place, "--round", 1)
        assert says(*ask) == "Nothing is asked: round 1 is done.\n"
