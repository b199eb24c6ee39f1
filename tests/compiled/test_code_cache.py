"""Compiled code on disk: never stale, never of others, and never a reason to fail."""

import errno
import hashlib
import os
import pickle
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

import dpsieve
from dpsieve.compiled import jit as module
from dpsieve.compiled.jit import jit

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
FIRST = """
from dpsieve.compiled.jit import jit

@jit()
def limit():
    return 10
"""
SECOND = """
from dpsieve.exact.first import limit
from dpsieve.exact.plain import LIMIT
from dpsieve.compiled.jit import jit

@jit()
def bound():
    return LIMIT + limit()
"""
CALL = "from dpsieve.exact.second import bound; print(bound(), sum(bound.stats.cache_hits.values()))"
# Texts of another length: Python notices a change within one second by that alone.
UPDATED = """
import sys
from pathlib import Path
from dpsieve.exact import plain
path = Path(plain.__file__)
path.write_text(path.read_text().replace("LIMIT = 1", "LIMIT = 200"))
from dpsieve.exact.second import bound
print(bound(), sum(bound.stats.cache_hits.values()))
"""


def plain():
    return 7


@pytest.fixture
def package(tmp_path):
    """A copy of the package with three more modules: one compiles in what a compiled and a plain one have."""
    source = Path(dpsieve.__file__).parent
    copy = shutil.copytree(source, tmp_path / "src" / "dpsieve", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "exact" / "first.py").write_text(FIRST)
    (copy / "exact" / "second.py").write_text(SECOND)
    (copy / "exact" / "plain.py").write_text("LIMIT = 1\n")

    def run(code=CALL):
        time.sleep(0.1)  # code is not cached where a file is hardly older than the process
        environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout.split()

    return SimpleNamespace(folder=copy / "exact", run=run, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "old", "new", "answer"),
    [("plain", "LIMIT = 1", "LIMIT = 200", "210"), ("first", "return 10", "return 200", "201")],
)
def test_an_update_in_place_is_noticed(package, name, old, new, answer):
    assert package.run() == ["11", "0"]
    assert package.run() == ["11", "1"], "it was on disk"
    path = package.folder / f"{name}.py"
    path.write_text(path.read_text().replace(old, new))
    assert package.run()[0] == answer
    assert not list(package.folder.rglob("*.nb[ic]")), "nothing is left beside the modules"


def test_a_process_that_was_updated_while_it_ran_keeps_its_code_to_itself(package):
    """It has the old constant in memory, and the new one on disk."""
    assert package.run(UPDATED) == ["11", "0"]
    assert not package.cache.exists()
    assert package.run() == ["210", "0"]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A cache in a folder of this test, for functions of this file; returns its one file after a call."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    made = SimpleNamespace(version="v" * 32, stamps={Path(__file__).resolve(): ()}, check_unchanged=lambda: None)
    monkeypatch.setattr(module, "_sources", lambda: made)
    assert called() == (7, 0)
    (found,) = tmp_path.glob(f"dpsieve*/{'v' * 32}/*")
    return found


def called():
    """Return what a function returns, and how often it was found on disk."""
    compiled = jit()(plain)
    return compiled(), sum(compiled.stats.cache_hits.values())


def test_the_folder_of_the_user_is_private(store):
    assert called() == (7, 1)
    if os.name == "posix":
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (store, store.parent, store.parent.parent)]
        assert modes == [0o600, 0o700, 0o700] and store.parent.parent.name == f"dpsieve-{os.getuid()}"


class Planted:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def plant(file, mark):
    content = pickle.dumps(Planted(str(mark)))
    file.write_bytes(hashlib.sha256(file.name.encode() + b"\0" + content).digest() + content)


def open_file(file):
    file.chmod(0o666)


def open_folder(file):
    file.parent.chmod(0o770)


def open_home(file):
    file.parent.parent.chmod(0o777)


def linked(file):
    elsewhere = file.parents[2] / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)


def linked_folder(file):
    elsewhere = file.parents[2] / "elsewhere"
    file.parent.parent.rename(elsewhere)
    file.parent.parent.symlink_to(elsewhere)


def of_another(part):
    def change(file):
        if os.getuid() != 0:
            pytest.skip("only root can give files away")
        os.chown([file, file.parent, file.parent.parent][part], 12345, -1)

    return change


@posix
@pytest.mark.parametrize(
    "change",
    [open_file, open_folder, open_home, linked, linked_folder, of_another(0), of_another(1), of_another(2)],
    ids=["file", "folder", "home", "link", "linked folder", "file of another", "folder of another", "home of another"],
)
def test_what_others_can_write_is_not_loaded(store, tmp_path, change):
    plant(store, tmp_path / "loaded")
    change(store)
    assert called() == (7, 0) and not (tmp_path / "loaded").exists()


def test_what_only_the_user_can_write_is_loaded(store, tmp_path):
    """Otherwise the test above would show nothing."""
    plant(store, tmp_path / "loaded")
    assert called() == (7, 0) and (tmp_path / "loaded").exists()


@pytest.mark.parametrize("damage", [b"", b"\0" * 40_000, b"cut", None], ids=["empty", "zeros", "garbage", "cut"])
def test_a_damaged_file_is_replaced(store, damage):
    store.write_bytes(store.read_bytes()[:-1] if damage is None else damage)
    assert called() == (7, 0)
    assert called() == (7, 1)


def test_a_changed_byte_of_machine_code_is_noticed(store):
    content = bytearray(store.read_bytes())
    content[len(content) // 2] ^= 1
    store.write_bytes(content)
    assert called() == (7, 0)


def other():
    return 8


def test_two_files_whose_names_were_swapped_are_not_loaded(store):
    """Machine code of another function would otherwise be called: a wrong answer, or a raw error."""
    assert jit()(other)() == 8
    (second,) = set(store.parent.iterdir()) - {store}
    spare = store.with_name("spare")
    store.rename(spare), second.rename(store), spare.rename(second)
    for function, answer in ((plain, 7), (other, 8)):
        compiled = jit()(function)
        assert compiled() == answer and not compiled.stats.cache_hits


@pytest.mark.parametrize("place", ["file", "folder", "home", "cache"])
def test_where_nothing_can_be_written_it_is_compiled_in_memory(store, place, tmp_path, monkeypatch, caplog):
    found = {"file": store, "folder": store.parent, "home": store.parent.parent, "cache": tmp_path / "cache"}[place]
    if place == "cache":
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(found))
    elif found.is_dir():
        shutil.rmtree(found)
    else:
        found.unlink()
    (found.mkdir if place == "file" else found.touch)()
    assert called() == called() == (7, 0)


def test_a_full_disk(store, monkeypatch):
    store.unlink()

    class Full:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "open", Full, raising=False)
    assert called() == (7, 0)
    assert list(store.parent.iterdir()) == [], "nothing half written stays"


def test_old_versions_are_removed(store):
    home, others = store.parent.parent, [f"{number:032}" for number in range(12)]
    for age, name in enumerate(others):
        (home / name).mkdir()
        (home / name / "code").write_bytes(b"old")
        os.utime(home / name, (1_000_000_000 + age,) * 2)
    assert called() == (7, 1) and len(list(home.iterdir())) == 13
    shutil.rmtree(store.parent)
    assert called() == (7, 0)
    assert sorted(path.name for path in home.iterdir()) == sorted([*others[-7:], store.parent.name])
