"""`dpsieve plan`, floors, conditions and derived keys through the real command."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet
from helpers.command import run


def log(folder):
    path = folder / "log.parquet"
    rows = [(u, f"Word {u % 3}", "DE" if u % 2 else "FR") for u in range(3000)] + [(u, "rare", "DE") for u in range(30)]
    names = ("user", "word", "country")
    pa.parquet.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), path)
    return path


def test_plan_finds_the_least_epsilon():
    done = run("plan", "--appear", "50:0.95", "--delta", "1e-8")
    assert done.returncode == 0, done.stderr
    assert "epsilon 0.386, delta 1e-08" in done.stdout and "dpsieve release DATA --key KEY" in done.stdout
    found = json.loads(run("plan", "--count-within", "10:0.95", "--epsilon", "1", "--json").stdout)
    assert found["epsilon"] == 1.0 and found["delta"] < 1e-9


def test_plan_finds_the_epsilon_of_a_mean():
    done = run("plan", "--mean", "rating:1:5", "--mean-within", "200:0.1:0.95", "--delta", "1e-8")
    assert done.returncode == 0, done.stderr
    assert "epsilon 0.585, delta 1e-08" in done.stdout and "--mean rating:1:5" in done.stdout
    wrong = run("plan", "--mean", "rating:1:5", "--mean-within", "200:0.1", "--delta", "1e-8")
    assert wrong.returncode == 2 and wrong.stderr.strip().endswith("Pass --mean-within 200:0.1:0.95.")


def test_plan_says_how_goals_are_written():
    done = run("plan", "--appear", "fifty", "--delta", "1e-8")
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "--appear fifty is not a whole number and a probability. Pass --appear 50:0.95."
    )
    for goal, example in (("--appear", "50:0.95"), ("--count-within", "10:0.95")):
        percent = run("plan", goal, "100:95", "--delta", "1e-8").stderr
        assert f"probability of {goal} 95 is not between 0.01 and 0.9999" in percent
        assert f"such as {goal} {example}." in percent
    assert "Example: dpsieve plan --appear 50:0.95" in run("plan", "--help").stdout


def test_a_release_has_a_floor_a_condition_and_a_derived_key(tmp_path):
    base = ("release", str(log(tmp_path)), "--privacy-unit", "user", "--epsilon", "4", "--delta", "1e-3")
    words = ("--key-expression", "word=lower(word)", "--max-keys-per-unit", "2", "--where", "country = 'DE'")

    def rows(name, *more):
        done = run(*base, *words, *more, "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        return list(csv.DictReader((tmp_path / name).read_text().splitlines()))

    assert {row["word"] for row in rows("a.csv")} == {"word 0", "word 1", "word 2", "rare"}
    assert {row["word"] for row in rows("b.csv", "--min-units", "40")} == {"word 0", "word 1", "word 2"}
    assert {(row["country"], row["word"]) for row in rows("c.csv", "--key", "country", "--min-units", "40")} == {
        ("DE", f"word {i}") for i in range(3)
    }


def test_hostile_conditions_are_refused_in_one_line(tmp_path):
    base = (
        "release",
        str(log(tmp_path)),
        "--key",
        "word",
        "--privacy-unit",
        "user",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    )
    for text in ("1 = 1; DROP TABLE t", "random() < 1", "word = (SELECT 'x')"):
        done = run(*base, "--where", text)
        assert (
            done.returncode == 2 and done.stderr.startswith("error: --where has")
        ) or "--where is not" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert "key is missing" in run(*base[:2], *base[4:]).stderr
