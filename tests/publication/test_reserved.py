"""The place of a release is held before anything is read or spent, and given up by whoever ends."""

import os
import signal
import subprocess
import sys

import pytest

import dpsieve as ds
from dpsieve.errors import InvalidValue
from dpsieve.publication.files import Reserved


def made():
    return ds.channels.optimal(1.0, 1e-8).release(["tea"], [500])


def test_a_reserved_place_takes_one_release(tmp_path):
    with Reserved(tmp_path / "x") as place:
        with pytest.raises(InvalidValue, match="being written by another process"):
            made().save(tmp_path / "x")
        assert made().save(place) == tmp_path / "x"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert len(ds.Release.load(tmp_path / "x")) == 1
    with pytest.raises(InvalidValue, match="exists already"), Reserved(tmp_path / "x"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_place_that_is_not_used_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), Reserved(tmp_path / "x"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_places_that_cannot_be_written_to(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for place, why in {"missing/x": "does not exist", "file/x": "cannot be written", "dangling": "exists"}.items():
        with pytest.raises(InvalidValue, match=why), Reserved(tmp_path / place):
            pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file"]

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(InvalidValue, match=r"cannot be written \(Permission denied\)"), Reserved(tmp_path / "x"):
        pass


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_the_place_of_a_killed_process_is_taken_over(tmp_path):
    script = "import sys, dpsieve.publication.files as f\nwith f.Reserved(sys.argv[1]): print(1, flush=True); input()"
    command = [sys.executable, "-c", script, tmp_path / "x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(InvalidValue, match="being written by another process"), Reserved(tmp_path / "x"):
            pass
        (tmp_path / ".x.partial" / "release.parquet").write_text("half")
        process.send_signal(signal.SIGKILL)
        process.wait()
    made().save(tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_folder_has_the_rights_that_the_user_wants(tmp_path):
    before = os.umask(0o077)
    try:
        folder = made().save(tmp_path / "x")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("what", ["a file", "a folder"])
def test_a_hidden_folder_of_someone_else_is_left_alone(tmp_path, what):
    """The place is refused before anything is spent, and nothing in it is touched."""
    hidden = tmp_path / ".out.partial"
    hidden.mkdir()
    mine = hidden / "precious"
    mine.write_text("mine") if what == "a file" else mine.mkdir()
    with pytest.raises(InvalidValue, match="in use for something else"), Reserved(tmp_path / "out"):
        pass
    assert mine.exists()


def test_what_a_killed_process_left_is_taken_over(tmp_path):
    hidden = tmp_path / ".out.partial"
    hidden.mkdir()
    (hidden / "release.parquet").write_text("half")
    with Reserved(tmp_path / "out"):
        pass
    assert not hidden.exists()


TERMINATED = """
import os, signal, sys
import pyarrow as pa
import dpsieve as ds
from dpsieve.publication import files

def terminate(*_):
    os.kill(os.getpid(), signal.SIGTERM)

made = ds.channels.optimal(1.0, 1e-8).release(["tea"], [500])
files.flush = files.os.fsync = terminate

def early():
    # A signal as soon as the hidden folder is made, before its lock.
    real = files.Path.mkdir
    files.Path.mkdir = lambda *given, **options: (real(*given, **options), terminate())
    made.save("x")

batch = pa.table({"key": ["tea"], "count": [900]})
{
    "folder": lambda: made.save("x"),
    "file": lambda: made.to_csv("x.csv"),
    "early": early,
    "stream": lambda: ds.release_counts([batch], key="key", epsilon=1.0, delta=1e-6, out="x"),
}[sys.argv[1]]()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("what", ["folder", "file", "early", "stream"])
def test_a_terminated_process_leaves_nothing(tmp_path, what):
    command = [sys.executable, "-c", TERMINATED, what]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert list(tmp_path.iterdir()) == []


AT_EACH_STEP = """
import contextlib, os, shutil, signal, sys
from dpsieve import locks
from dpsieve.publication import files

FILES, NUMBER = {contextlib.__file__, files.__file__, locks.__file__}, getattr(signal, sys.argv[1])

def child(step):
    steps, place = 0, files.Reserved("x")

    def trace(frame, event, argument):
        nonlocal steps
        # An interpreter that is not traced looks for signals before it returns, not as it does.
        returns = event == "return" and frame.f_code is files.Reserved.__enter__.__code__
        if frame.f_code.co_filename in FILES and not returns:
            steps += 1
            if steps == step:
                os.kill(os.getpid(), NUMBER)
        return trace

    sys.settrace(trace)
    with place:
        sys.settrace(None)
        os._exit(3 if steps < step else 4)  # no further step; the signal was lost

ended = set()
for step in range(1, 1000, int(sys.argv[2])):
    process = os.fork()
    if not process:
        try:
            child(step)
        except KeyboardInterrupt:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code == 3:
        break
    assert code != 4, f"step {step}: the signal was lost"
    assert not os.listdir(), f"step {step}: {os.listdir()} remains"
    ended.add(code)
assert step > 50 and ended <= {-NUMBER, 1}, (step, ended)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("name", "stride"), [("SIGTERM", 1), ("SIGHUP", 17), ("SIGINT", 7)])
def test_a_signal_at_any_step_of_taking_a_place_leaves_nothing(tmp_path, name, stride):
    """Each step is a forked process, which ends there."""
    command = [sys.executable, "-c", AT_EACH_STEP, name, str(stride)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
