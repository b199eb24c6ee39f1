"""Where a ledger may lie: in a regular file with one name, so that a crash never undoes a spend made elsewhere."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dpsieve.errors import DpsieveError, InvalidValue, LedgerError
from dpsieve.privacy import Approximate
from dpsieve.privacy.ledger import Ledger, store

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, mounts and signals of POSIX")
DAY = Approximate(0.1, 1e-8)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}

# With a tiny cache SQLite writes to the file before it commits: the journal has to undo that.
DIES_HALF_WRITTEN = """
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
DIES_CREATING = """
from pathlib import Path
Path.unlink = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
Ledger(sys.argv[1], epsilon=1.0, delta=1e-6)
"""


@pytest.fixture
def path(tmp_path):
    Ledger(tmp_path / "budget.ledger", **BUDGET)
    return tmp_path / "budget.ledger"


def killed(code, path):
    start = (
        "import os, signal, sys\nfrom dpsieve.privacy import *\nfrom dpsieve.privacy.ledger import Ledger\n"
        "from dpsieve.privacy.ledger.chain import Cost\n"
    )
    done = subprocess.run([sys.executable, "-c", start + code, path], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, b"")


def journal(path):
    return path.with_name(path.name + "-journal")


def test_a_second_name_is_refused_and_the_first_recovers_alone(path):
    first = Ledger(path).spend(DAY)
    killed(DIES_HALF_WRITTEN, path)
    assert journal(path).exists()
    other = path.with_name("other.ledger")
    other.hardlink_to(path)
    for name in (other, path):
        for attempt in (lambda name=name: Ledger(name), lambda name=name: Ledger(name, **BUDGET)):
            with pytest.raises(LedgerError, match=r"has a second name \(a hard link\)\. Remove the other name"):
                attempt()
    other.unlink()
    assert Ledger(path).history() == [first]
    assert Ledger(path).spend(DAY).number == 2


def test_a_name_that_comes_later_stops_an_open_ledger(path):
    ledger = Ledger(path)
    path.with_name("other").hardlink_to(path)
    for attempt in (lambda: ledger.spend(DAY), lambda: ledger.check(DAY), ledger.history, ledger.verify):
        with pytest.raises(LedgerError, match="has a second name"):
            attempt()
    path.with_name("other").unlink()
    assert ledger.spend(DAY).number == 1


def test_symbolic_links_share_the_journal_of_the_file(path, tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "far" / "link"
    link.symlink_to(path)
    first = Ledger(link).spend(DAY)
    killed(DIES_HALF_WRITTEN, link)
    assert journal(path).exists() and not journal(link).exists()
    assert Ledger(link).path == path
    assert Ledger(link).history() == Ledger(path).history() == [first]


def test_a_death_while_creating_leaves_a_ledger_with_one_name(tmp_path):
    path = tmp_path / "budget.ledger"
    killed(DIES_CREATING, path)
    assert path.stat().st_nlink == 2
    assert Ledger(path, **BUDGET).spend(DAY).number == 1
    assert path.stat().st_nlink == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_journal_that_was_left_behind_does_not_reach_a_new_ledger(path):
    killed(DIES_HALF_WRITTEN, path)
    path.unlink()
    with pytest.raises(LedgerError, match=r"budget\.ledger-journal is left from a deleted ledger"):
        Ledger(path, **BUDGET)
    assert not path.exists()
    journal(path).unlink()
    assert Ledger(path, **BUDGET).spend(DAY).number == 1


def test_a_ledger_is_not_named_as_a_journal(path):
    """SQLite deletes such a file when it opens the ledger beside it."""
    for suffix in ("-journal", "-wal"):
        with pytest.raises(LedgerError, match="is the name of a journal"):
            Ledger(f"{path}{suffix}", **BUDGET)


@pytest.mark.parametrize("name", ["budget.ledger", "a b\\c"])
def test_a_file_that_is_mounted_by_itself_is_refused(tmp_path, monkeypatch, name):
    path, table = tmp_path / name, tmp_path / "mountinfo"
    ledger = Ledger(path, **BUDGET)
    written = str(path).replace("\\", r"\134").replace(" ", r"\040")
    table.write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        f"63 43 254:0 /home/a/budget.ledger {written} rw,relatime shared:1 - ext4 /dev/vda rw\n"
    )
    monkeypatch.setattr(store, "_MOUNTS", table)
    for attempt in (lambda: Ledger(path), lambda: ledger.spend(DAY)):
        with pytest.raises(LedgerError, match=r"is mounted by itself\. Mount its folder"):
            attempt()
    table.write_text(f"63 43 254:0 /home/a {tmp_path!s} rw,relatime shared:1 - ext4 /dev/vda rw\n")
    assert ledger.spend(DAY).number == 1


def test_without_a_list_of_mounts_the_device_tells(path, tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_MOUNTS", tmp_path / "missing")
    assert Ledger(path).spend(DAY).number == 1
    assert store._mounted(Path("/proc"))


def test_a_real_mount_is_refused_where_this_user_may_mount(path, tmp_path):
    target = tmp_path / "mounted here"
    target.touch()
    code = "import sys\nfrom dpsieve.privacy.ledger import Ledger\nLedger(sys.argv[1])"
    steps = 'mount --bind "$1" "$2" || exit 77; exec "$3" -c "$4" "$2"'
    command = ["unshare", "-m", "sh", "-c", steps, "sh", path, target, sys.executable, code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return
    assert "is mounted by itself" in done.stderr or done.returncode == 77 or "unshare failed" in done.stderr


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        place = tempfile.mkdtemp()  # the name of a socket must be short
        server.bind(f"{place}/socket")
        for name in (tmp_path / "pipe", "/dev/null", "/dev/zero", f"{place}/socket"):
            for arguments in ({}, BUDGET):
                with pytest.raises(LedgerError, match=r"is a pipe or a device\. Pass the path of a file"):
                    Ledger(name, **arguments)
    Path(place, "socket").unlink()
    Path(place).rmdir()


def test_a_ledger_that_turns_into_a_pipe_is_refused_at_once(path):
    ledger = Ledger(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(LedgerError, match="is a pipe or a device"):
        ledger.spend(DAY)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 300, r"cannot be reached \(File name too long\)\. Check the path"),
        ("x" * 250, r"cannot be reached \(File name too long\)|no ledger"),  # its journal would have 258
        ("/".join(["x" * 200] * 30), r"cannot be reached|does not exist|no ledger"),
        ("loop", r"cannot be reached \(Too many levels of symbolic links\)"),
        ("file/budget", "does not exist|no ledger"),
        ("~/budget", "does not exist|no ledger"),
        ("~nobody-here/budget", "does not exist|no ledger"),
    ],
)
def test_paths_that_lead_nowhere(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    for arguments in ({}, BUDGET):
        with pytest.raises(LedgerError, match=message):
            Ledger(name, **arguments)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["a\0b", "\udcff", "a\nb", b"bytes", Path("a\0b")])
def test_names_that_are_no_text(name):
    with pytest.raises(DpsieveError):
        Ledger(name, **BUDGET)


def test_a_working_folder_that_is_gone(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(LedgerError, match=r"cannot be resolved .* Pass an absolute path"):
        Ledger("budget", **BUDGET)
    with pytest.raises(InvalidValue):
        Ledger("")


def test_a_ledger_or_folder_without_permissions():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "budget")
        Ledger(path, **BUDGET)
        if os.geteuid() == 0:  # root has every permission
            os.chown(folder, 65534, 65534)
            os.chown(path, 65534, 65534)
            os.seteuid(65534)
        try:
            path.chmod(0o000)
            with pytest.raises(LedgerError, match=r"cannot be written or opened\. Ask for permission"):
                Ledger(path)
            path.chmod(0o600)
            Path(folder).chmod(0o300)  # names can be made, not listed
            assert Ledger(Path(folder, "another"), **BUDGET).spend(DAY).number == 1
            Path(folder).chmod(0o700)
        finally:
            if os.getuid() == 0:
                os.seteuid(0)
