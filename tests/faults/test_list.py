"""Every planted fault fits the present source, wherever the code has moved; `make faults` runs the tests they name."""

import fault
import pytest
import run
from fault import Fault, Misfit, all_faults, check, plant


def test_every_fault_fits_the_source_and_names_tests_that_exist():
    misfits = [f"{fault.name}: {problem}" for fault in all_faults() if (problem := check(fault))]
    assert not misfits, "\n".join(misfits)


def test_names_are_distinct_and_there_are_many():
    assert len({fault.name for fault in all_faults()}) == len(all_faults()) >= 380


BAG = """
LIMIT = 2**10


class Bag:
    def add(self, key, count):  # a comment
        if (
            key  in self.held
        ) :
            raise ValueError(f"twice; WHERE place <= {count}")
        elif count:
            self.held [ key ]=count * ( self.weight+1 )
            self.charge( )
        return count
"""


@pytest.fixture
def bag(tmp_path, monkeypatch):
    """A project with one module `bag`; returns a function that adds another module."""
    monkeypatch.setattr(fault, "ROOT", tmp_path)
    (tmp_path / "src" / "dpsieve").mkdir(parents=True)

    def write(name, text):
        (tmp_path / "src" / "dpsieve" / f"{name}.py").write_text(text)

    write("bag", BAG)
    return write


@pytest.mark.parametrize(
    ("function", "old", "new", "was", "becomes"),
    [
        ("Bag.add", "self.weight + 1", "self.weight", "self.weight+1", "(self.weight)"),
        ("Bag.add", "if key in self.held:", "if False:", "key  in self.held", "False"),
        ("Bag.add", "if count:", "if count or key:", "elif count:", "elif count or key:"),
        ("Bag.add", "self.charge()", "", "self.charge( )", "pass"),
        (
            "Bag.add",
            "self.held[key] = count * (self.weight + 1)\nself.charge()",
            "self.charge()\nself.held[key] = 1",
            "self.held [ key ]=count * ( self.weight+1 )\n            self.charge( )",
            "self.charge()\n            self.held[key] = 1",
        ),
        ("LIMIT", "2**10", "2**20", "2**10", "(2**20)"),
    ],
)
def test_snippets_are_compared_as_syntax_trees(bag, function, old, new, was, becomes):
    _, text = plant(Fault("any", function, old, new, ()))
    assert text.decode() == BAG.replace(was, becomes)


def test_text_of_strings_and_one_of_several(bag):
    _, text = plant(Fault("any", "Bag.add", "<= {count}", "<= {count + 1}", (), in_text=True))
    assert text.decode() == BAG.replace("<= {count}", "<= {count + 1}")
    _, text = plant(Fault("any", "Bag.add", "count", "0", (), nth=3))
    assert text.decode() == BAG.replace("return count", "return (0)")


def test_a_hint_decides_between_equal_names_and_is_ignored_where_it_is_wrong(bag):
    add = Fault("any", "Bag.add", "self.weight + 1", "1", ())
    bag("sack", BAG)
    with pytest.raises(Misfit, match=r"1 times in src/dpsieve/bag.py, 1 times in src/dpsieve/sack.py"):
        plant(add)
    assert plant(Fault(**{**vars(add), "where": "sack"}))[0].name == "sack.py"


def test_a_wrong_hint_is_ignored_where_one_place_fits(bag):
    bag("sack", "class Bag:\n    def add(self):\n        pass\n")
    assert plant(Fault("any", "Bag.add", "self.weight + 1", "1", (), where="sack"))[0].name == "bag.py"


@pytest.mark.parametrize(
    ("function", "old", "new", "message"),
    [
        ("Bag.put", "self.charge()", "pass", r"no function or constant Bag.put\n.* Bag.add \(src/dpsieve/bag.py\)"),
        ("Bag.add", "count", "key", "3 times"),
        ("Bag.add", "self.charge()", "self.charge(cost)", "uses cost, unknown in bag.py"),
        ("Bag.add", "self.charge()", "self.charge( )", "other than `new`"),
        ("Bag.add", "self.charge(", "pass", "no Python"),
    ],
)
def test_misfits_are_explained(bag, function, old, new, message):
    with pytest.raises(Misfit, match=message):
        plant(Fault("any", function, old, new, ()))


def test_rename_adapts_only_the_faults_that_do_not_fit(bag, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "FOLDER", tmp_path)
    entry = '[[fault]]\nname = "put {0}"\nfunction = "{0}"\nold = "self.charge()"\nnew = "self.{1}()"\ntests = []\n'
    (tmp_path / "area.toml").write_text("# put\n" + entry.format("Bag.put", "put") + entry.format("Bag.add", "put"))
    assert run.rename({"put": "add"}, only="") == 0
    assert (tmp_path / "area.toml").read_text() == (
        "# put\n"
        + entry.format("Bag.add", "add").replace("put Bag.add", "put Bag.put")
        + entry.format("Bag.add", "put")
    )
    assert capsys.readouterr().out == "1 faults were changed; 0 do not fit the source\n"
