"""Words, baskets and counts for experiments: real files of the folder DPSIEVE_DATA, or a stated stand-in.

Every function returns the name of the data beside it; the name of a stand-in says that it is synthetic.
"""

import gzip
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import real_data
import skewed_data
from discovery_data import load, made

from dpsieve.engines.true_data import Pairs

RNG = np.random.default_rng(7)
WORDS, BASKETS = 944_635, 88_162  # how many the real files have


def find_file(name: str) -> Path | None:
    """Return a file or folder of the data, if it is there."""
    folder = os.environ.get("DPSIEVE_DATA")
    path = Path(folder) / name if folder else None
    return path if path and path.exists() else None


def read_words(folder: Path) -> list[str]:
    """Return the words of all texts of a folder in their order."""
    texts = (text.read_text().lower() for text in sorted(folder.glob("*.txt")))
    return [word for text in texts for word in re.findall(r"[a-z]+(?:'[a-z]+)?", text)]


def draw_zipf(size: int, keys: int, skew: float, head: float) -> list[str]:
    """Return keys drawn with weights (rank + head)^-skew."""
    law = np.cumsum((np.arange(keys) + 1 + head) ** -skew)
    return [f"key {rank}" for rank in np.searchsorted(law, RNG.random(size) * law[-1]).tolist()]


def words(small: bool = False) -> tuple[str, list[str]]:
    """Return the words of Shakespeare, or as many of a Zipf law."""
    if small:
        return "synthetic words", draw_zipf(3_000, 300, 1.1, 2)
    folder = find_file("shakespeare")
    return ("Shakespeare", read_words(folder)) if folder else ("synthetic words", draw_zipf(WORDS, 26_000, 1.1, 2))


def baskets(small: bool = False) -> tuple[str, list[list[str]]]:
    """Return the baskets of a shop, or as many with items of a Zipf law."""
    file = find_file("retail.dat")
    if file and not small:
        return "retail", [line.split() for line in file.read_text().splitlines()]
    many = 300 if small else BASKETS
    sizes = RNG.geometric(0.097, many)
    items = draw_zipf(int(sizes.sum()), 100 if small else 16_470, 0.9, 5)
    return "synthetic baskets", [
        list(dict.fromkeys(basket.tolist())) for basket in np.split(np.array(items), np.cumsum(sizes)[:-1])
    ]


def streams(small: bool = False) -> dict[str, list[str]]:
    """Return streams of items by name, in the order of their files."""
    found = dict([words(small)])
    name, shop = baskets(small)
    found[name] = [item for basket in shop for item in basket]
    if small:
        return found
    magazines, places = find_file("amazon_Magazine_Subscriptions.csv"), find_file("gowalla_all.txt.gz")
    if magazines:
        found["Amazon Magazine"] = [line.split(",")[0] for line in magazines.read_text().splitlines()]
    if places:
        with gzip.open(places, "rt") as lines:
            found["Gowalla"] = [place for line in lines for place in line.split()]
    return found


def film_words(small: bool = False) -> tuple[str, Counter[str]]:
    """Return the counts of 50,000 words in film subtitles, or counts of a Zipf law."""
    file = find_file("en_50k.txt")
    if file and not small:
        pairs = (line.split() for line in file.read_text().splitlines())
        return "film words", Counter({word: int(count) for word, count in pairs})
    many = 300 if small else 50_000
    return "synthetic counts", Counter({f"word {i}": int(28_000_000 / (i + 1) ** 1.1) + 109 for i in range(many)})


# Users, items and entries of real sets, and the rest of the arguments of `discovery_data.made`.
SHAPES_OF_REAL = {
    "Amazon Magazine": (72_098, 2_428, 88_318, 1, 0.6, 1, 1.0, 10),
    "retail": (88_162, 16_470, 908_576, 1, 0.7, 1, 0.9, 5),
    "Gowalla": (29_858, 40_981, 1_027_370, 1, 0.9, 1, 0.7, 50),
    "Shakespeare lines": (107_833, 25_979, 914_828, 1, 0.4, 1, 1.1, 2),
}
FILES = {
    "Amazon Magazine": "amazon_Magazine_Subscriptions.csv",
    "retail": "retail.dat",
    "Gowalla": "gowalla_all.txt.gz",
    "Shakespeare lines": "shakespeare",
}


def pairs(name: str, small: bool = False) -> tuple[str, Pairs]:
    """Return a set of users by its name in discovery_data.py, or a synthetic one of its shape."""
    if small:
        return "synthetic users", made(400, 60, 1_200, 1, 1.0, 1, 1.0, 5)
    if name in FILES and not (real_data.find(name) or find_file(FILES[name])):
        return f"{name} (made up)", made(*SHAPES_OF_REAL[name])
    return name, load(name)


def baskets_of_columns(name: str, small: bool = False) -> tuple[str, Any]:
    """Return the rows of Kosarak or POS as a sparse matrix: the real ones, or synthetic rows of their size."""
    if small or not real_data.find(name):
        return f"synthetic {name}", skewed_data.baskets(RNG, name, 0.002 if small else 1.0)
    return name, real_data.as_matrix(real_data.read(name))
