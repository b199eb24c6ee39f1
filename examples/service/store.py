"""What the service keeps on disk: one SQLite file in a folder that only its owner may enter.

Kept are the question of the open round; the messages of that round, each with its nonce; and what earlier rounds have
published. Silence is a message too, of the same size, so neither the time that a write takes nor the size of the file
tells who was sampled. There is no address, no time and no order of arrival: messages are sorted by their nonces, which
are random and new for each. When a round is published its messages are overwritten, in the same transaction.

A transaction is on disk before it ends (a write-ahead log, synchronous=FULL), so what was acknowledged survives a
kill -9 and a power failure. Any number of processes may use the file at a time.
"""

import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dpsieve.errors import DpsieveError, InvalidValue

Survivor = tuple[str | bytes, bool, int]  # a prefix that reached the threshold, whether it ended, its sampled count

_TABLES = """
CREATE TABLE collection (name TEXT, options TEXT, ledger TEXT, round INTEGER, state TEXT, question TEXT);
CREATE TABLE messages (nonce TEXT PRIMARY KEY, message BLOB) WITHOUT ROWID;
CREATE TABLE survivors (round INTEGER, prefix BLOB, ended INTEGER, token INTEGER);
"""

_PATIENCE = 60.0  # seconds to wait for other processes


class Collection(NamedTuple):
    """Where a collection is: its round, and whether that is 'open', 'closed' (to be published) or all is 'done'."""

    name: str
    options: str
    ledger: str
    round: int
    state: str
    question: str


class Store:
    """The file of one collection."""

    def __init__(self, folder: Path) -> None:
        file = folder / "collection.sqlite"
        if not file.exists():
            raise InvalidValue(f"folder: there is no collection in {folder}. Create one first.")
        self._db = sqlite3.connect(file, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        self._db.execute("PRAGMA temp_store = MEMORY")

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @classmethod
    def create(cls, folder: Path, name: str, options: dict[str, Any], ledger: Path, question: dict[str, Any]) -> None:
        """Make a new folder, with its first round open; it has its name once it is whole."""
        if os.path.lexists(folder) or not folder.absolute().parent.is_dir():
            raise InvalidValue(f"folder: {folder} must be new, in a folder that exists. Choose another name.")
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.absolute().parent) as around:
            working = Path(around) / "collection"
            working.mkdir(mode=0o700)
            os.close(os.open(working / "collection.sqlite", os.O_CREAT | os.O_EXCL, 0o600))
            with cls(working) as store:
                store._db.executescript(_TABLES)
                row = name, json.dumps(options), str(ledger), 1, "open", json.dumps(question)
                store._db.execute("INSERT INTO collection VALUES (?, ?, ?, ?, ?, ?)", row)
            working.rename(folder)

    def now(self) -> Collection:
        """Return where the collection is."""
        return Collection(*self._db.execute("SELECT * FROM collection").fetchone())

    def add(self, batch: Iterable[tuple[int, str, bytes]]) -> list[bool]:
        """Keep messages (round, nonce, message) and return whether the round of each is open; all are on disk then.

        A nonce that is there already is the same message again, and counts once.
        """
        with self.writing():
            now, taken = self.now(), []
            for number, nonce, message in batch:
                taken.append(now.state == "open" and number == now.round)
                if taken[-1]:
                    self._db.execute("INSERT OR IGNORE INTO messages VALUES (?, ?)", (nonce, message))
        return taken

    def freeze(self) -> None:
        """Take no more messages in the present round."""
        self._db.execute("UPDATE collection SET state = 'closed'")

    def messages(self) -> list[bytes]:
        """Return the messages of the present round."""
        return [message for (message,) in self._db.execute("SELECT message FROM messages")]

    def survivors(self, number: int) -> list[Survivor]:
        """Return what an earlier round has published."""
        query = "SELECT prefix, ended, token FROM survivors WHERE round = ? ORDER BY prefix, ended"
        return [(prefix, bool(ended), token) for prefix, ended, token in self._db.execute(query, (number,))]

    def publish(self, survivors: Iterable[Survivor], question: dict[str, Any] | None) -> None:
        """Forget the messages of the present round, and open the next one with this question; without one, end."""
        number, state = self.now().round, "done" if question is None else "open"
        self._db.executemany("INSERT INTO survivors VALUES (?, ?, ?, ?)", ((number, *row) for row in survivors))
        self._db.execute("DELETE FROM messages")
        change = "UPDATE collection SET round = ?, state = ?, question = ?"
        self._db.execute(change, (number + (question is not None), state, json.dumps(question)))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Do all or nothing, while no other process writes."""
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            yield

    def leave_nothing(self) -> None:
        """Move the write-ahead log into the file, which overwrites what was deleted there; then shorten the file."""
        until = time.monotonic() + _PATIENCE
        for step in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            while (busy := self._db.execute(step).fetchone()) is not None and busy[0]:
                if time.monotonic() > until:
                    fix = "End that process (a backup, a shell), and run this close again."
                    said = "published, but its log still holds messages, as a process reads it"
                    raise DpsieveError(f"folder: {said}. {fix}")
                time.sleep(0.05)  # SQLite waits for readers, but not for a checkpoint of a second close
