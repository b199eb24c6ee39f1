"""The file of a ledger: one SQLite database whose rows are chained by hashes and durable before a write returns.

A ledger is created as a private temporary file and linked to its name, which fails if the name is taken. A write holds
SQLite's write lock from before it reads until after it commits (BEGIN IMMEDIATE), with synchronous=EXTRA. A connection
lives for one operation, so threads, forks and pickles share none; a fork waits for the connections of other threads. A
file with two names is refused, since its journal would not be found under the other one. Why:
docs/background/composition.md#the-file.
"""

import json
import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from dpsieve.errors import DpsieveError, LedgerError
from dpsieve.locks import flush
from dpsieve.privacy.guarantee import Guarantee

from dpsieve.privacy.ledger.chain import (  # isort: skip
    ORIGIN, Chain, Entry, canonical, checked_note, checked_time, link, linked, utc_now,
)  # fmt: skip
from dpsieve.privacy.ledger.rules import Rules

_APPLICATION = 0x64707376  # 'dpsv', in the header of the SQLite file
_FORMAT = 2
_SCHEMA = (
    "CREATE TABLE header (one INTEGER PRIMARY KEY CHECK (one = 1), time TEXT NOT NULL, rules TEXT NOT NULL, "
    "hash TEXT NOT NULL)",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, time TEXT NOT NULL, spend TEXT NOT NULL, note TEXT NOT NULL, "
    "hash TEXT NOT NULL)",
    *(
        f"CREATE TRIGGER {table}_{change} BEFORE {change} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END"
        for table in ("header", "entries")
        for change in ("UPDATE", "DELETE")
    ),
)
_RESTORE = "Restore the file from a trusted copy."
_OLD_FORMAT = (
    "Run 'dpsieve ledger show' of the version that wrote it, then create a new ledger at another path with the epsilon "
    "and delta that are left."
)
_LONGEST_TEXT = 10**6  # bytes of one row, so that a damaged length takes no memory
_JOURNALS = ("-journal", "-wal")
_MOUNTS = Path("/proc/self/mountinfo")
_UNREADABLE = (DpsieveError, ValueError, TypeError, RecursionError)

# Acquired while a connection is open, and by a fork while it copies the process.
_connected = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_connected.acquire, after_in_parent=_connected.release, after_in_child=_connected.release
    )


class Rows:
    """The rows of a ledger inside one transaction."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection

    def verified(self, known: Chain | None = None) -> Chain:
        """Return the chain, or raise LedgerError where it is broken.

        The entries of a chain `known` earlier are not hashed again: the file must have as many, and the last of them
        unchanged.
        """
        self._check_format()
        chain = self._header()
        if known is None:
            known = chain
        elif known.start != chain.start:
            raise LedgerError(f"the ledger {self._path} is not the one that was opened. {_RESTORE}")
        fresh = list(self._fresh(known))
        (count,) = self._connection.execute("SELECT COUNT(*) FROM entries").fetchone()
        if count != len(known.entries) + len(fresh):
            raise _broken(self._path, "an entry that was verified before")
        return known.plus(fresh)

    def write_header(self, budget: Guarantee) -> None:
        """Create the tables, with the rules of a new ledger."""
        time, text = utc_now(), canonical(Rules.of(budget).to_json())
        for statement in (f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {_FORMAT}", *_SCHEMA):
            self._connection.execute(statement)
        header = (time, text, link(ORIGIN, _FORMAT, time, text, ""))
        self._connection.execute("INSERT INTO header VALUES (1, ?, ?, ?)", header)

    def append(self, entry: Entry) -> None:
        """Insert the entry that follows the chain; it counts once the transaction is committed."""
        row = (entry.number, entry.time, entry.text, entry.note, entry.hash)
        self._connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)

    def _check_format(self) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise _foreign(self._path)
        if version != _FORMAT:
            fix = "Install a newer dpsieve." if version > _FORMAT else _OLD_FORMAT
            raise LedgerError(f"the ledger {self._path} has format {version}, this dpsieve reads {_FORMAT}. {fix}")
        # A foreign trigger or view could discard writes.
        if {sql for (sql,) in self._connection.execute("SELECT sql FROM sqlite_master")} != set(_SCHEMA):
            raise LedgerError(f"the tables of the ledger {self._path} were changed. {_RESTORE}")

    def _header(self) -> Chain:
        rows = self._connection.execute("SELECT time, rules, hash FROM header LIMIT 2").fetchall()
        if len(rows) != 1 or not linked(rows[0][2], ORIGIN, _FORMAT, *rows[0][:2], ""):
            raise _broken(self._path, "its header")
        _, text, start = rows[0]
        try:
            rules = Rules.from_json(json.loads(text))
        except _UNREADABLE:
            raise _broken(self._path, "its header") from None
        if canonical(rules.to_json()) != text:
            raise _broken(self._path, "its header")
        return Chain(rules, start)

    def _fresh(self, known: Chain) -> Iterator[Entry]:
        """Yield the verified entries after those of `known`."""
        query = "SELECT number, time, spend, note, hash FROM entries WHERE number >= ? ORDER BY number"
        rows = iter(self._connection.execute(query, (len(known.entries),)))
        if known.entries:
            last = known.entries[-1]
            if next(rows, None) != (last.number, last.time, last.text, last.note, last.hash):
                raise _broken(self._path, f"entry {last.number}")
        before = known.head
        for expected, (number, time, spend, note, stored) in enumerate(rows, start=len(known.entries) + 1):
            if number != expected or not linked(stored, before, number, time, spend, note):
                raise _broken(self._path, f"entry {expected}")
            try:
                entry = Entry(number, checked_time(time), checked_note(note), stored, *known.parsed(number, spend))
            except _UNREADABLE:
                raise _broken(self._path, f"entry {expected}") from None
            yield entry
            before = stored


class LedgerFile:
    """The place of a ledger on disk, and the transactions on it."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path, self.timeout = path, timeout

    def exists(self) -> bool:
        """Return whether the file exists; folders, devices and unreachable paths are refused."""
        try:
            mode = self.path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise self._unreachable(error) from None
        if stat.S_ISDIR(mode):
            raise LedgerError(f"{self.path} is a folder. Pass a file in it, such as {self.path / 'budget.ledger'}.")
        if not stat.S_ISREG(mode):
            raise LedgerError(f"{self.path} is a pipe or a device. Pass the path of a file.")
        return True

    def create(self, budget: Guarantee) -> None:
        """Create the file with this budget atomically; where another process was faster, leave its file."""
        folder = self.path.parent
        try:
            exists = folder.is_dir()
        except OSError as error:
            raise self._unreachable(error) from None
        if not exists:
            raise LedgerError(f"the folder {folder} does not exist. Create it before the ledger {self.path.name}.")
        self._check_neighbours()
        try:
            # mkstemp sets permissions 0600, and SQLite copies them to its journal.
            handle, name = tempfile.mkstemp(prefix=".ledger-", suffix=".new", dir=folder)
            os.close(handle)
            try:
                with LedgerFile(Path(name), self.timeout).writing() as rows:
                    rows.write_header(budget)
                with suppress(FileExistsError):
                    os.link(name, self.path)
            finally:
                with suppress(OSError):
                    Path(name).unlink()
        except LedgerError:
            raise
        except OSError as error:
            fix = "Ask for permission to the folder, or choose a local disk that supports hard links."
            raise LedgerError(f"the ledger {self.path} cannot be created ({error.strerror}). {fix}") from None
        with suppress(OSError):  # not every system can
            flush(folder)

    def _check_neighbours(self) -> None:
        """Refuse a new file that SQLite would treat as a journal, or modify by a stale journal."""
        if self.path.name.endswith(_JOURNALS):
            fix = "Pass a name such as 'budget.ledger'."
            raise LedgerError(f"{self.path} is the name of a journal, which SQLite deletes. {fix}")
        for suffix in _JOURNALS:
            left = LedgerFile(self.path.with_name(self.path.name + suffix), self.timeout)
            # Another process that was faster may be writing its journal.
            if left.exists() and not self.exists():
                fix = "Restore that ledger beside it, or delete it."
                raise LedgerError(f"{left.path} is left from a deleted ledger, and would change a new one. {fix}")

    def reading(self) -> AbstractContextManager[Rows]:
        """Return a transaction with the rows at one moment."""
        return self._transaction("DEFERRED", "COMMIT")

    def writing(self, *, keep: bool = True) -> AbstractContextManager[Rows]:
        """Return a transaction with the write lock; appended rows are then durable, or rolled back without `keep`."""
        return self._transaction("IMMEDIATE", "COMMIT" if keep else "ROLLBACK")

    @contextmanager
    def _transaction(self, kind: str, end: str) -> Iterator[Rows]:
        if not _connected.acquire(timeout=self.timeout):
            raise self._in_use()
        try:
            self._check_names()
            # Read and write, but never create; a file without write permission is opened for reading.
            uri = f"{self.path.as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, timeout=self.timeout, isolation_level=None, uri=True)) as connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
                for pragma in ("journal_mode = DELETE", "synchronous = EXTRA", "fullfsync = ON"):
                    connection.execute(f"PRAGMA {pragma}").close()
                connection.execute(f"BEGIN {kind}")
                try:
                    yield Rows(self.path, connection)
                    connection.execute(end)
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except (sqlite3.Error, UnicodeError) as error:  # SQLite errors may quote text that is not UTF-8
            raise self._explained(error) from error
        finally:
            _connected.release()

    def _check_names(self) -> None:
        """Refuse a file with a second name, under which a journal would not be found; see the head of this module."""
        if not self.exists():  # SQLite reports it
            return
        try:
            if self.path.stat().st_nlink > 1:
                self._finish_create()
            several, mounted = self.path.stat().st_nlink > 1, _mounted(self.path)
        except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile
            return
        except OSError as error:
            raise self._unreachable(error) from None
        if several:
            fix = "Remove the other name; use a symbolic link in its place."
            raise LedgerError(f"the ledger {self.path} has a second name (a hard link). {fix}")
        if mounted:
            raise LedgerError(f"the ledger {self.path} is mounted by itself. Mount its folder in its place.")

    def _unreachable(self, error: OSError) -> LedgerError:
        fix = "Check the path, its disk and the permissions of its folder."
        return LedgerError(f"the ledger {self.path} cannot be reached ({error.strerror}). {fix}")

    def _finish_create(self) -> None:
        """Remove the temporary name that an interrupted `create` left, or a running one is about to remove."""
        for name in self.path.parent.glob(".ledger-*.new"):
            with suppress(OSError):
                if name.samefile(self.path):
                    name.unlink()

    def _in_use(self) -> LedgerError:
        fix = "Try again, or pass a longer timeout."
        return LedgerError(f"the ledger {self.path} was in use by others for {self.timeout:g} s. {fix}")

    def _explained(self, error: Exception) -> LedgerError:
        """Return the LedgerError for an error of SQLite, with the fix."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return _foreign(self.path)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._in_use()
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            fix = "Ask for permission to write the file and its folder."
            return LedgerError(f"the ledger {self.path} cannot be written or opened. {fix}")
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return LedgerError(f"the disk of the ledger {self.path} is full or fails. Free some space, then try again.")
        return LedgerError(f"the ledger {self.path} is damaged. {_RESTORE}")


def _mounted(path: Path) -> bool:
    """Return whether a file is a mount point.

    Linux lists mount points; a file mounted from the same disk has the device of its folder, and with overlays an
    ordinary file may have another one. On other systems the devices are compared.
    """
    try:
        table = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return path.stat().st_dev != path.parent.stat().st_dev
    escaped = str(path).translate({ord(letter): f"\\{ord(letter):03o}" for letter in " \t\n\\"})
    return os.fsencode(escaped) in {line.split(b" ")[4] for line in table}


def _broken(path: Path, what: str) -> LedgerError:
    return LedgerError(f"the ledger {path} cannot be trusted: {what} was changed, removed or moved. {_RESTORE}")


def _foreign(path: Path) -> LedgerError:
    return LedgerError(f"{path} is not a ledger. Pass a file that Ledger created, or a path that is not in use yet.")
