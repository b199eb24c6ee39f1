"""How the command behaves in a shell: help, completion, one-line errors, JSON, warnings, the log and interrupts."""

import json
import os
import re
import subprocess
import sys
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.command import run

import dpsieve as ds
from dpsieve.display import json_text

COMMANDS = (
    ["release"], ["preview"], ["report"], ["discover"], ["top-k"], ["hitting-set"], ["sum"], ["mean"], ["quantile"],
    ["stream"], ["demo"], ["ledger"], ["ledger", "create"], ["ledger", "show"], ["ledger", "history"],
    ["ledger", "verify"], ["collect"], ["collect", "histogram"], ["collect", "heavy-hitters"],
    ["collect", "quantiles"], [],
)  # fmt: skip
ASKED = ["--key", "word", "--epsilon", 2, "--unit", "user"]


@pytest.fixture
def folder(tmp_path):
    words = ["tea"] * 900 + ["coffee"] * 600 + ["SECRET"]
    pq.write_table(pa.table({"user": range(1501), "word": words}), tmp_path / "log.parquet")
    return tmp_path


def strict(text):
    def refuse(name):
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_no_type_of_python(command):
    for flag in ("-h", "--help"):
        done = run(*command, flag)
        assert done.returncode == 0 and "Usage: " in done.stdout
        assert not re.search(r"<\w*[a-z]|--no-|\{'", done.stdout)


ADDRESSES = ("postgresql:/me:S3cret@h/db", "postgresql:me:S3cret@h", "host=h password=S3cret", "mysql://me:S3cret@h/db")


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_message_has_the_password_of_an_address(folder, address):
    asked = [*ASKED, "--delta", "1e-8"]
    for arguments in (
        ["release", address, *asked],
        ["release", "log.parquet", address, *asked, "--format", "csv"],
        ["release", "log.parquet", *asked, "--out", address],
        ["release", "log.parquet", *asked, "--ledger", address],
        ["release", "log.parquet", *asked, "--known-keys", address],
        ["collect", "histogram", address, "--column", "word", "--unit", "user", "--epsilon", 1, "--delta", "1e-8"],
        ["stream", address, "--epsilon", 1, "--delta", "1e-8"],
        ["stream", "log.parquet", "--column", "word", "--state", address],
        ["report", address],
        ["demo", address],
        [address],
    ):
        done = run(*arguments, cwd=folder)
        assert done.returncode == 2 and " address" in done.stderr, (arguments, done.stderr)
        assert "S3cret" not in re.sub(r"\s", "", done.stdout + done.stderr)
    assert [path.name for path in folder.iterdir()] == ["log.parquet"]


def test_an_option_with_one_value_is_given_once():
    for command in (["collect", "histogram"], ["stream"]):
        done = run(*command, "x", "--column", "query", "--column=n", "--epsilon", 1, "--delta", "1e-8")
        assert done.returncode == 2 and "error: --column is given more than once. Give it once." in done.stderr


@pytest.mark.parametrize(("arguments", "said"), [
    (["discover", "x", "--max-keys", "auto"], "--max-keys-per-unit is not a whole number."),
    (["release", "x", "--max-keys", "many"],
     "--max-keys-per-unit: Pass a whole number, auto, or the folder of an earlier release."),
    (["release", "x", "--epsilon", "one"], "--epsilon is not a number."),
    (["release", "x", "--key", "word"], "--epsilon is missing."),
    (["release"], "DATA is missing."),
    (["release", "x", "--epsilno", "1"], "--epsilno"),
    (["relase"], "No such command 'relase'."),
    (["ledger", "create"], "PATH is missing."),
    (["ledger", "create", "x", "--epsilon", -1, "--delta", 0, "--unit", "user"], "--epsilon -1 is not between"),
    (["stream", "-", "--epsilon", -1, "--delta", "1e-8"], "--epsilon -1 is not between"),
    (["stream", "-", "--epsilon", 1], "--delta 0 needs a known universe. Pass --delta 1e-8, or --universe ..."),
    (["stream", "-", "--epsilon", 1, "--items-per-unit", 0], "--items-per-unit 0 is not between"),
    (["demo", "--epsilon", 0], "--epsilon 0 is not between"),
    (["preview", *ASKED, "--delta", 0], "--delta 0 is below"),
    (["preview", *ASKED, "--delta", "1e-8", "--memory", "much"], "--memory is not a size."),
    (["preview", *ASKED, "--delta", "1e-8", "--out", "/nowhere/x"],
     "--out /nowhere/x is in a folder that does not exist"),
    (["preview", *ASKED, "--delta", "1e-8", "--note", "weekly"], "--note is kept in a ledger."),
    (["preview", *ASKED, "--delta", "1e-8", "--max-keys", 1, "--method", "laplace"], "laplace needs --known"),
])  # fmt: skip
def test_what_is_wrong_is_one_line_in_the_words_of_the_command_line(tmp_path, arguments, said):
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and said in done.stderr and done.stderr.count("\n") == 1
    assert not any(word in done.stderr for word in ("Input should", "max_keys_per_unit", "known_keys", "epsilon="))


def test_a_preview_takes_every_option_of_a_release():
    shown = [run(command, "-h").stdout.split("Options")[1].split() for command in ("release", "preview")]
    options = [{word for word in words if word.startswith("--")} for words in shown]
    assert options[0] == options[1] | {"--dry-run"} and "--memory" in options[0]


def test_a_preview_takes_data_by_place_and_checks_its_columns(folder):
    asked = ["--unit", "row", "--epsilon", 1, "--delta", "1e-8", "--top", 3, "--memory", "500MB"]
    assert run("preview", "log.parquet", "--key", "word", *asked, cwd=folder).returncode == 0
    assert "Did you mean 'word'" in run("preview", "log.parquet", "--key", "wrod", *asked, cwd=folder).stderr


# Completion

COMPLETE = """
import os, sys
sys.argv = ["dpsieve"]
try:
    from dpsieve.__main__ import main
    main()
finally:
    heavy = {"numpy", "pyarrow", "duckdb", "scipy", "numba", "sqlglot", "cryptography"} & set(sys.modules)
    print("heavy:", sorted(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize(("typed", "offered"), [
    ("dpsieve to", {"top-k"}),
    ("dpsieve ledger ", {"create", "show", "history", "verify"}),
    ("dpsieve release --max", {"--max-keys", "--max-keys-per-unit", "--max-rows-per-key"}),
])  # fmt: skip
def test_completion_is_right_and_loads_nothing_heavy(typed, offered):
    words = typed.split(" ")
    asked = {"_DPSIEVE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE], capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert set(done.stdout.split()) == offered and "heavy: []" in done.stderr


# JSON


@pytest.mark.parametrize(("value", "text"), [
    (float("nan"), '"NaN"'), (float("inf"), '"Infinity"'), (-float("inf"), '"-Infinity"'), (b"\xff\x00", '"/wA="'),
    ({"a": [float("nan"), (1.5, None)]}, '{"a": ["NaN", [1.5, null]]}'),
])  # fmt: skip
def test_every_value_has_a_form_in_valid_json(value, text):
    assert json_text(value) == text
    strict(json_text(value))


@pytest.mark.parametrize(("keys", "shown"), [
    (pa.array([b"\xff\x00"] * 500, pa.binary()), "/wA="),
    (pa.array([float("nan")] * 500), "NaN"),
    (pa.array([float("-inf")] * 500), "-Infinity"),
])  # fmt: skip
def test_json_of_a_release_is_valid_whatever_its_keys(tmp_path, keys, shown):
    pq.write_table(pa.table({"key": keys}), tmp_path / "log.parquet")
    done = run(
        "release",
        "log.parquet",
        "--key",
        "key",
        "--unit",
        "row",
        "--epsilon",
        2,
        "--delta",
        "1e-8",
        "--json",
        cwd=tmp_path,
    )
    assert [row["key"] for row in strict(done.stdout)["keys"]] == [shown]


# Warnings


@pytest.mark.parametrize(("delta", "warned"), [(1e-4, 0), (1.1e-4, 1), (0.02, 1)])
def test_a_large_delta_is_warned_of_once_in_python_and_on_the_command_line(folder, delta, warned):
    log, options = str(folder / "log.parquet"), {"epsilon": 2.0, "delta": delta}
    channel = ds.channels.optimal(**options)
    sketch = ds.MisraGries(16)
    for call in (
        lambda: ds.release(log, key="word", privacy_unit="row", **options),
        lambda: ds.preview(key="word", privacy_unit="row", **options),
        lambda: ds.discover(log, key="word", privacy_unit="row", **options),
        lambda: channel.release(["tea"], [100]),
        lambda: sketch.release(**options),
    ):
        with pytest.warns() as caught:
            call()
            warnings.warn("end", stacklevel=1)  # so that there is one
        large = [one for one in caught if one.category is ds.errors.PrivacyWarning]
        assert len(large) == warned and all(one.filename == __file__ for one in large)
    for command in ("release", "preview"):
        done = run(command, "log.parquet", *ASKED, "--delta", delta, "--json", cwd=folder)
        assert done.returncode == 0 and done.stderr.count("warning: --delta ") == warned
        assert done.stderr.count("\n") == warned


# The log


def test_the_log_is_silent_by_default_and_never_holds_a_value(folder, caplog):
    asked = ["release", "log.parquet", *ASKED, "--delta", "1e-8", "--ledger", "budget"]
    run("ledger", "create", "budget", "--epsilon", 9, "--delta", "1e-6", "--unit", "user", cwd=folder)
    saved = "Saved to dpsieve-release-{}. Pass --out to choose the place.\n"
    assert run(*asked, cwd=folder).stderr == saved.format(1)
    caplog.set_level("DEBUG", "dpsieve")
    told = run(*asked, "--verbose", "--out", "published", cwd=folder).stderr
    assert [line.split(":")[0] for line in told.splitlines()] == [
        "DuckDB", "rehearse", "ledger", "certify", "draw", "mechanism", "save",
    ]  # fmt: skip
    assert "mechanism: " in told and "ledger: charged as entry 2" in told
    secrets = ("tea", "coffee", "SECRET", "900", "600", "1501", "1,501")
    assert not any(secret in told + caplog.text for secret in secrets)
    assert run(*asked, cwd=folder).stderr == saved.format(2)  # the next command is silent again


# Interrupts


@pytest.mark.parametrize("book", [[], ["--ledger", "budget"]])
def test_an_interrupt_is_answered_in_one_line(folder, monkeypatch, book):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    run("ledger", "create", "budget", "--epsilon", 9, "--delta", "1e-6", "--unit", "user", cwd=folder)
    monkeypatch.setattr("dpsieve.engines.DuckDB.answer", interrupted)
    done = run("release", "log.parquet", *ASKED, "--delta", "1e-8", *book, cwd=folder)
    ask = " The ledger was not charged." if book else ""
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"interrupted.{ask}\n")


@pytest.mark.parametrize(("shell", "said"), [("bash", "complete -o default"), ("zsh", "compdef"), ("fish", "complete")])
def test_the_script_of_each_shell(shell, said, monkeypatch):
    monkeypatch.setenv("_DPSIEVE_COMPLETE", f"source_{shell}")
    done = run()
    assert done.returncode == 0 and said in done.stdout and "_DPSIEVE_COMPLETE=complete" in done.stdout


def test_python_m_dpsieve():
    done = subprocess.run([sys.executable, "-m", "dpsieve", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"dpsieve {ds.__version__}\n")
