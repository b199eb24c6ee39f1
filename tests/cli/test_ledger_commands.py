"""`dpsieve ledger`, run in this process: what it prints, and how it exits."""

import json
import os
import sys

import pytest

from dpsieve.cli import main
from dpsieve.privacy import Approximate
from dpsieve.privacy.ledger import Ledger


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dpsieve", "ledger", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return end.value.code or 0, out, err

    return run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


@pytest.fixture
def heads(path):
    """The heads of a ledger from its creation on."""
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    return [ledger.head, *(ledger.spend(Approximate(0.1, 1e-8)).hash for _ in range(3))]


def test_verify_tells_where_a_noted_head_lies(run, path, heads):
    for head, place in [
        (heads[3], "matches the present head"),
        (heads[2], "matches the head 1 entry ago"),
        (heads[0], "matches the head 3 entries ago"),
    ]:
        code, out, _ = run("verify", path, "--head", head)
        assert code == 0 and place in out and heads[3] in out
    code, out, _ = run("verify", path)
    assert code == 0 and "3 entries" in out and "noted" not in out


def test_verify_as_json(run, path, heads):
    for arguments, since in [
        ((), None),
        (("--head", heads[3]), 0),
        (("--head", heads[1]), 2),
        (("--head", heads[0]), 3),
    ]:
        code, out, _ = run("verify", path, *arguments, "--json")
        assert (code, json.loads(out)) == (0, {"entries": 3, "head": heads[3], "entries_since": since})


def test_a_ledger_that_was_rolled_back_is_noticed(run, path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    old = path.read_bytes()
    noted = ledger.spend(Approximate(0.1, 1e-8)).hash
    path.write_bytes(old)
    assert run("verify", path)[0] == 0
    for arguments in ((), ("--json",)):
        code, out, err = run("verify", path, "--head", noted, *arguments)
        assert (code, out) == (2, "") and "does not hold the head that was noted. Entries were cut off" in err


@pytest.mark.parametrize("head", ["", "abc", "0" * 64])
def test_another_head_is_refused(run, path, heads, head):
    code, out, err = run("verify", path, "--head", head)
    assert (code, out) == (2, "") and "does not hold the head" in err


def test_a_broken_chain_exits_with_2(run, path, heads):
    path.write_bytes(path.read_bytes().replace(heads[1].encode(), b"0" * 64))
    code, out, err = run("verify", path)
    assert (code, out) == (2, "") and "entry 1 was changed, removed or moved" in err


def test_help_has_an_example(run):
    assert "Example: dpsieve ledger verify budget.ledger --head" in run("verify", "--help")[1]


def test_paths_that_hold_no_ledger_exit_with_2(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    budget = ("--epsilon", 1, "--delta", 1e-6, "--unit", "user")
    for name in (tmp_path, tmp_path / "pipe", tmp_path / ("x" * 300), tmp_path / "missing" / "budget"):
        for arguments in (("create", name, *budget), ("verify", name), ("show", name), ("history", name)):
            code, out, err = run(*arguments)
            assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1


def test_show_names_the_rule_and_lists_batches(run, path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    ledger.spend(Approximate(0.1, 1e-8))
    ledger.batch([Approximate(0.01)] * 12, "a year of counts")
    code, out, _ = run("show", path)
    assert code == 0 and "in 2 entries" in out
    assert "left    one release of epsilon 0.78" in out and ", by sums of epsilon and delta" in out
    assert "entry   2: batch of 12: approximate: epsilon 0.12, delta 0  a year of counts\n" in out
    shown = json.loads(run("show", path, "--json")[1])
    assert shown["left"]["rule"] == "sums of epsilon and delta"
    assert shown["batches"] == [{"number": 2, "members": 12}]
    assert "batch of 12: approximate: epsilon 0.12" in run("history", path)[1]
    assert json.loads(run("history", path, "--json")[1].splitlines()[1])["members"] == 12


def test_show_of_an_empty_ledger(run, path):
    Ledger(path, epsilon=1.0, delta=1e-6)
    assert "left    one release of epsilon 1, delta 1e-06, by sums of epsilon and delta" in run("show", path)[1]
