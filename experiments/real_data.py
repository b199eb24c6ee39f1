"""Readers of the published data sets of the papers, for those who have them in the folder DPSIEVE_DATA.

| set | file, also with .gz | format | from |
|---|---|---|---|
| Reddit | clean_askreddit.csv | columns author and clean_text; keys are the words of all texts | r/askreddit |
| Movie Reviews | ratings.csv | columns userId and movieId | MovieLens 25M |
| Amazon Games | Video_Games.csv, amazon_Video_Games.csv | item, user, rating, time; no header | Amazon reviews, 2018 |
| Amazon Pantry | Prime_Pantry.csv, amazon_Prime_Pantry.csv | as Amazon Games | Amazon reviews, 2018 |
| Amazon Magazine | Magazine_Subscriptions.csv, amazon_Magazine_Subscriptions.csv | as Amazon Games | Amazon reviews |
| Steam Games | steam-200k.csv | user, game, behaviour, hours; no header | Steam, 200k interactions |
| Kosarak | kosarak.dat | a line per user: items; users of 20 items and more | FIMI repository |
| POS | BMS-POS.dat | a line per purchase: items; or lines of a purchase and an item | KDD Cup 2000, SPMF |

The first six are those of table 1 of Dick, Joseph and Raman (2026), the last two those of chapter 5 of Lebeda's thesis.
Where a file is missing, the experiments use stand-ins of the same shape and say so (`discovery_data`, `skewed_data`).
"""

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from dpsieve.engines.true_data import Pairs

Columns = tuple[pa.ChunkedArray, pa.ChunkedArray]  # the unit and the key of each entry, possibly repeated
_FEWEST_ITEMS = 20  # of a user of Kosarak: 75,462 users have as many


class Published(NamedTuple):
    """A published set: its files, how to read them, and its size as the paper states it."""

    files: tuple[str, ...]
    read: Callable[[Path], Columns]
    users: int
    items: int
    entries: int


def find(name: str) -> Path | None:
    """Return the file of a set in the folder DPSIEVE_DATA; None where there is none."""
    folder = os.environ.get("DPSIEVE_DATA")
    if not folder or name not in SETS:
        return None
    named = (Path(folder) / f"{file}{end}" for file in SETS[name].files for end in ("", ".gz"))
    return next((path for path in named if path.exists()), None)


def read(name: str) -> Pairs:
    """Return a set from its file; print what differs from the size that the paper states."""
    path = find(name)
    if path is None:
        raise FileNotFoundError(f"DPSIEVE_DATA has none of {', '.join(SETS[name].files)}. Put {name} there.")
    pairs = as_pairs(*SETS[name].read(path), least=_FEWEST_ITEMS if name == "Kosarak" else 1)
    found, stated = (len(pairs.sizes), pairs.keys.num_rows, len(pairs.key_numbers)), SETS[name][2:]
    if found != stated:
        print(f"{name} ({path.name}) has {found} users, items and entries; the paper states {stated}.")
    return pairs


def as_pairs(units: pa.ChunkedArray, keys: pa.ChunkedArray, least: int = 1) -> Pairs:
    """Return the distinct pairs of units and keys, without units of fewer than `least` keys."""
    unit, key = (pc.dictionary_encode(each).combine_chunks() for each in (units, keys))
    coded = [np.asarray(each.indices).astype(np.int64) for each in (unit, key)]
    pairs = np.unique(coded[0] * len(key.dictionary) + coded[1])
    of_unit, held = np.divmod(pairs, max(1, len(key.dictionary)))
    sizes = np.bincount(of_unit, minlength=len(unit.dictionary))
    kept = sizes[of_unit] >= least
    used, held = np.unique(held[kept], return_inverse=True)
    starts = np.append(0, np.cumsum(sizes[sizes >= least]))
    return Pairs(pa.table({"key": key.dictionary.take(pa.array(used))}), starts, held.astype(np.int32))


def as_matrix(pairs: Pairs) -> Any:
    """Return pairs as a sparse matrix of zeros and ones: a row per unit, a column per key."""
    from scipy.sparse import csr_matrix

    shape = (len(pairs.sizes), pairs.keys.num_rows)
    return csr_matrix((np.ones(len(pairs.key_numbers)), pairs.key_numbers, pairs.starts), shape)


def _csv(path: Path, names: list[str] | None, unit: str, key: str) -> Columns:
    options = pyarrow.csv.ReadOptions(column_names=names, autogenerate_column_names=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    texts = dict.fromkeys((unit, key), pa.string())
    convert = pyarrow.csv.ConvertOptions(include_columns=[unit, key], column_types=texts)
    table = pyarrow.csv.read_csv(path, options, parse, convert)
    return table[unit], table[key]


def _amazon(path: Path) -> Columns:
    return _csv(path, ["item", "user", "rating", "time"], "user", "item")


def _movies(path: Path) -> Columns:
    return _csv(path, None, "userId", "movieId")


def _steam(path: Path) -> Columns:
    return _csv(path, ["user", "game", "behaviour", "hours", "zero"], "user", "game")


def _reddit(path: Path) -> Columns:
    authors, texts = _csv(path, None, "author", "clean_text")
    words = pc.utf8_split_whitespace(pc.fill_null(texts, "")).combine_chunks()
    held = pc.list_flatten(words)
    of_word = authors.combine_chunks().take(pc.list_parent_indices(words))
    named = pc.not_equal(held, "")
    return pa.chunked_array([of_word.filter(named)]), pa.chunked_array([held.filter(named)])


def _lines(path: Path) -> Columns:
    """Return the entries of a file of transactions; two numbers in each line are a transaction and an item."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = [row for line in lines if (row := line.split())]
    if rows and all(len(row) == 2 for row in rows):
        units, items = zip(*rows, strict=True)
        return pa.chunked_array([list(units)]), pa.chunked_array([list(items)])
    places = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return pa.chunked_array([pa.array(places)]), pa.chunked_array([[item for row in rows for item in row]])


SETS = {
    "Reddit": Published(("clean_askreddit.csv",), _reddit, 245_103, 631_855, 18_272_211),
    "Movie Reviews": Published(("ratings.csv", "ml-25m/ratings.csv"), _movies, 162_541, 59_047, 25_000_095),
    "Amazon Games": Published(("Video_Games.csv", "amazon_Video_Games.csv"), _amazon, 1_540_618, 71_982, 2_489_395),
    "Amazon Pantry": Published(("Prime_Pantry.csv", "amazon_Prime_Pantry.csv"), _amazon, 247_659, 10_814, 447_399),
    "Amazon Magazine": Published(
        ("Magazine_Subscriptions.csv", "amazon_Magazine_Subscriptions.csv"), _amazon, 72_098, 2_428, 88_318
    ),
    "Steam Games": Published(("steam-200k.csv",), _steam, 12_393, 5_155, 128_804),
    "Kosarak": Published(("kosarak.dat",), _lines, 75_462, 27_983, 4_194_414),
    "POS": Published(("BMS-POS.dat", "pos.dat"), _lines, 515_596, 1_657, 3_367_019),
}
