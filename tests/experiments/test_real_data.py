"""Readers of published data sets: small files in each format, and stand-ins that say so."""

import gzip
from itertools import repeat

import pytest
import real_data

AMAZON = "B1,anna,5.0,1\nB2,anna,4.0,2\nB1,bob,1.0,3\nB1,anna,2.0,4\n"
MOVIES = "userId,movieId,rating,timestamp\n1,10,3.5,9\n2,10,4,9\n2,7,1,9\n"
STEAM = '5,"Dota 2, beta",play,0.5,0\n5,Portal,purchase,1.0,0\n'
REDDIT = 'author,clean_text\nzoe,"who, me"\nzoe,me too\nyan,\nyan,me\n'
FILES = {  # per set: a file, its text, and the keys of its users
    "Amazon Games": ("Video_Games.csv", AMAZON, [{"B1", "B2"}, {"B1"}]),
    "Amazon Pantry": ("amazon_Prime_Pantry.csv", AMAZON, [{"B1", "B2"}, {"B1"}]),
    "Amazon Magazine": ("amazon_Magazine_Subscriptions.csv", AMAZON, [{"B1", "B2"}, {"B1"}]),
    "Movie Reviews": ("ratings.csv", MOVIES, [{"10"}, {"10", "7"}]),
    "Steam Games": ("steam-200k.csv", STEAM, [{"Dota 2, beta", "Portal"}]),
    "Reddit": ("clean_askreddit.csv", REDDIT, [{"who,", "me", "too"}, {"me"}]),
    "POS": ("BMS-POS.dat", "1 5 9\n5\n9 9 2\n", [{"1", "5", "9"}, {"5"}, {"9", "2"}]),
}


def held(pairs):
    names = pairs.keys["key"].to_pylist()
    return [{names[k] for k in pairs.key_numbers[a:b]} for a, b in zip(pairs.starts, pairs.starts[1:], strict=False)]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_each_format_is_read(name, zipped, tmp_path, monkeypatch, capsys):
    file, text, users = FILES[name]
    monkeypatch.setenv("DPSIEVE_DATA", str(tmp_path))
    assert real_data.find(name) is None
    with pytest.raises(FileNotFoundError, match=name):
        real_data.read(name)
    path = tmp_path / f"{file}{'.gz' * zipped}"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    assert held(real_data.read(name)) == users
    assert "the paper states" in capsys.readouterr().out


def test_transactions_as_pairs_and_users_of_few_items(tmp_path, monkeypatch):
    monkeypatch.setenv("DPSIEVE_DATA", str(tmp_path))
    (tmp_path / "pos.dat").write_text("100 7\n100 8\n101 7\n")
    assert held(real_data.read("POS")) == [{"7", "8"}, {"7"}]
    many, few = " ".join(map(str, range(20))), " ".join([*map(str, range(18)), "5", "30"])
    (tmp_path / "kosarak.dat").write_text(f"{few}\n{many}\n")
    pairs = real_data.read("Kosarak")
    assert held(pairs) == [set(map(str, range(20)))] and pairs.keys.num_rows == 20
    matrix = real_data.as_matrix(pairs)
    assert matrix.shape == (1, 20) and matrix.sum() == 20


def test_a_stand_in_says_so(tmp_path, monkeypatch):
    discovery_data = pytest.importorskip("discovery_data")
    skewed_data = pytest.importorskip("skewed_data")
    monkeypatch.setenv("DPSIEVE_DATA", str(tmp_path))
    assert discovery_data.named("Steam Games (made up)") == "Steam Games (made up)"
    (tmp_path / "steam-200k.csv").write_text(FILES["Steam Games"][1])
    assert discovery_data.named("Steam Games (made up)") == "Steam Games"
    assert held(discovery_data.load("Steam Games")) == FILES["Steam Games"][2]
    (tmp_path / "BMS-POS.dat").write_text("\n".join(repeat("1 2 3", 4)))
    assert skewed_data.baskets(None, "POS").shape == (4, 3)
