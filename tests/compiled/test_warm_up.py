"""What compiles beside a call: the command, and the process in the background."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import pytest
from helpers.command import run

from dpsieve.compiled import background, jit
from dpsieve.jobs import warm_up


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


class Processes(list):
    """The processes that would be started, each a command with its options, and those that were waited for."""

    def __init__(self):
        self.waited = []

    def start(self, command, **options):
        self.append((command, options))
        return self

    def wait(self):
        self.waited.append("waited")


@pytest.fixture
def processes(cache, monkeypatch):
    """Where starting is wanted, in a process that has started none."""
    started = Processes()
    monkeypatch.setenv(jit.SWITCH, "auto")
    monkeypatch.setattr(subprocess, "Popen", started.start)
    importlib.reload(background)
    return started


def test_a_process_is_started_once_an_hour(processes, cache):
    background.start()
    importlib.reload(background)  # as in another process
    background.start()
    assert len(processes) == 1
    (attempt,) = cache.rglob("attempt")
    hour_ago = time.time() - 3601
    os.utime(attempt, (hour_ago, hour_ago))
    importlib.reload(background)
    background.start()
    assert len(processes) == 2


def test_a_process_starts_one_at_most(processes, cache):
    background.start()
    for attempt in cache.rglob("attempt"):
        attempt.unlink()
    background.start()
    assert len(processes) == 1


@pytest.mark.parametrize("setting", ["off", "0", "No", "false", "cached", "wait"])
def test_the_switch_starts_nothing(setting, processes, monkeypatch):
    monkeypatch.setenv(jit.SWITCH, setting)
    background.start()
    assert processes == []


def test_nothing_is_started_where_the_cache_cannot_be_written(processes, cache, monkeypatch, caplog):
    """Otherwise the slower ways would be taken for ever, and nobody would know."""
    (cache / "a file").write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache / "a file"))
    for _ in range(2):
        background.start()
    assert processes == []
    (said,) = caplog.messages
    assert "cannot be kept" in said and "Set NUMBA_CACHE_DIR" in said


def test_nothing_is_started_by_a_program_that_is_not_python(processes, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/usr/sbin/a-server")
    background.start()
    assert processes == []


def test_the_process_is_apart_from_this_one(processes):
    background.start()
    ((command, how),) = processes
    assert command == [sys.executable, "-P", "-m", "dpsieve", "warm-up", "--background"]
    assert how["start_new_session"] and how["env"][jit.SWITCH] == "wait" and how["cwd"] == Path.cwd().anchor
    assert {how["stdin"], how["stdout"], how["stderr"]} == {subprocess.DEVNULL}
    for _ in range(600):
        if processes.waited:
            break
        time.sleep(0.05)
    assert processes.waited == ["waited"], "no zombie remains"


def test_a_missing_function_starts_it_and_is_not_waited_for(processes):
    with pytest.raises(jit.NotCompiled, match="needed"):
        jit.jit(waits=False)(needed)(1)
    assert len(processes) == 1
    assert jit.jit()(needed)(1) == 2, "it has no other way"


def needed(number):
    return number + 1


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_one_process_compiles_at_a_time(cache, monkeypatch):
    lowered = []
    monkeypatch.setattr(os, "nice", lowered.append)
    monkeypatch.setattr(Path, "write_text", lambda path, text: lowered.append((str(path), text)))
    monkeypatch.setattr(os, "getsid", lambda _: os.getpid())
    monkeypatch.setattr("signal.alarm", lambda seconds: seconds)
    with background.low_priority() as first, background.low_priority() as second:
        assert first and not second
        assert [path.name for path in cache.rglob("*")] == [f"dpsieve-{os.getuid()}"], "one for all versions"
        assert lowered == [19, ("/proc/self/autogroup", "19")] * 2, "Linux shares processors among sessions first"
    monkeypatch.setattr(os, "getsid", lambda _: os.getppid())
    lowered.clear()
    with background.low_priority() as again:
        assert again and lowered == [19], "the session of a shell keeps its share"


def test_the_command_says_what_was_compiled(monkeypatch):
    monkeypatch.setattr(warm_up, "PARTS", {"large tables": (lambda: None,)})
    done = run("warm-up")
    assert done.returncode == 0, done.stderr
    assert "large tables:" in done.stdout and "was compiled before" in done.stdout
    assert run("warm-up", "--background").stdout == ""


def test_the_command_refuses_a_cache_that_cannot_be_written(cache, monkeypatch):
    (cache / "a file").write_text("")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(cache / "a file"))
    done = run("warm-up")
    assert done.returncode == 2 and "Set NUMBA_CACHE_DIR" in done.stderr


@pytest.mark.parametrize("part", warm_up.PARTS)
def test_each_part_runs(part):
    for job in warm_up.PARTS[part]:
        job()
