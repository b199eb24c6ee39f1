"""The data of the figures on discovery, and trials of mechanisms on it.

Figures and table of Dick, Joseph and Raman, 'Missing Mass for Differentially Private Domain Discovery' (2026). Their
data sets are read where the user has them (`real_data` lists files and formats). In place of a missing one stands a
made-up set of its shape, which says so in its name: users, items and entries of table 1 (a tenth of each for Reddit and
Movie Reviews, so that a figure takes minutes), set sizes that are log-normal, and items that follow a Zipf-Mandelbrot
law. The spread of sizes and the law of items are our choice, since the text shows them as pictures only. Three more
real sets are shown beside them: retail, Gowalla and the lines of Shakespeare.

The folder DPSIEVE_DATA holds those of `real_data`, retail.dat, gowalla_all.txt.gz and shakespeare/*.txt.
"""

import gzip
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import real_data

from dpsieve.engines.true_data import Pairs
from dpsieve.types import Ints

Row = dict[str, str | float]

TRIALS, DELTA, MAX_KEYS = 5, 1e-5, 100
EPSILONS = (1.0, 0.1)
RNG = np.random.default_rng()

# Users, items and entries of table 1, the part that is made, the spread of log sizes, least size, skew, flat head.
SHAPES: dict[str, tuple[int, int, int, int, float, int, float, int]] = {
    "Reddit (made up, 1/10)": (245_103, 631_855, 18_272_211, 10, 1.1, 1, 1.15, 10),
    "Movie Reviews (made up, 1/10)": (162_541, 59_047, 25_000_095, 10, 1.2, 20, 3.3, 300),
    "Amazon Games (made up)": (1_540_618, 71_982, 2_489_395, 1, 0.8, 1, 1.0, 20),
    "Steam Games (made up)": (12_393, 5_155, 128_804, 1, 1.6, 1, 1.1, 10),
    "Amazon Pantry (made up)": (247_659, 10_814, 447_399, 1, 0.9, 1, 0.9, 20),
}


def named(shape: str) -> str:
    """Return the name of the real set where its file is at hand, else that of its stand-in."""
    real_name = shape.partition(" (made up")[0]
    return real_name if real_data.find(real_name) else shape


LARGE = [named(name) for name in ("Reddit (made up, 1/10)", "Amazon Games (made up)", "Movie Reviews (made up, 1/10)")]
SMALL = [named(name) for name in ("Steam Games (made up)", "Amazon Magazine", "Amazon Pantry (made up)")]
MORE = ["retail", "Gowalla", "Shakespeare lines"]


def load(name: str) -> Pairs:
    """Return a set by its name."""
    return made(*SHAPES[name]) if name in SHAPES else real(name)


def real(name: str) -> Pairs:
    """Return a real set; a unit is a user, a basket or a line with a word in it."""
    if name in real_data.SETS:
        return real_data.read(name)
    folder = Path(os.environ.get("DPSIEVE_DATA") or sys.exit("Set DPSIEVE_DATA to the folder with the data."))
    if name == "retail":
        return Pairs.of(line.split() for line in (folder / "retail.dat").read_text().splitlines() if line.strip())
    if name == "Gowalla":
        with gzip.open(folder / "gowalla_all.txt.gz", "rt") as lines:
            return Pairs.of(line.split() for line in lines if line.strip())
    texts = sorted((folder / "shakespeare").glob("*.txt"))
    words = (re.findall(r"[a-z]+(?:'[a-z]+)?", line.lower()) for text in texts for line in text.read_text().split("\n"))
    return Pairs.of(line for line in words if line)


def made(users: int, items: int, entries: int, part: int, spread: float, least: int, skew: float, head: int) -> Pairs:
    """Return a made-up set: each item is held by someone, the other pairs are drawn by the law of items."""
    users, items, entries = users // part, items // part, entries // part
    sizes = _sizes(users, items, entries, spread, least)
    weights = (np.arange(1, items + 1) + head) ** -skew
    cumulative = np.cumsum(weights)
    first = np.repeat(np.arange(users), sizes)[RNG.choice(entries, items, replace=False)]
    pairs = np.sort(first * items + np.arange(items))
    for _ in range(5):  # pairs drawn twice are few after some rounds, except in large sets
        units = np.repeat(np.arange(users), sizes - np.bincount(pairs // items, minlength=users))
        drawn = np.searchsorted(cumulative, RNG.random(len(units)) * cumulative[-1])
        pairs = np.union1d(pairs, units * items + np.minimum(drawn, items - 1))
    starts = np.searchsorted(pairs, np.arange(users + 1) * items)
    added = []
    for user in np.flatnonzero(np.diff(starts) < sizes):
        scores = np.log(weights) + RNG.gumbel(size=items)  # the largest are a draw without replacement
        scores[pairs[starts[user] : starts[user + 1]] % items] = -np.inf
        missing = sizes[user] - (starts[user + 1] - starts[user])
        added.append(user * items + np.argpartition(-scores, missing)[:missing])
    pairs = np.sort(np.concatenate([pairs, *added]))
    held = (pairs % items).astype(np.int32)
    return Pairs(pa.table({"key": np.arange(items)}), np.append(0, np.cumsum(sizes)), held)


def _sizes(users: int, items: int, entries: int, spread: float, least: int) -> Ints:
    """Return log-normal set sizes of at least `least` that sum to `entries`; no set holds over a third of the items."""
    shape = np.exp(spread * RNG.standard_normal(users))
    low, high = 0.0, float(entries)
    for _ in range(60):  # the factor for which the sum is right
        middle = (low + high) / 2
        sizes = np.clip(np.floor(shape * middle), least, items // 3).astype(np.int64)
        low, high = (middle, high) if sizes.sum() <= entries else (low, middle)
    sizes = np.clip(np.floor(shape * low), least, items // 3).astype(np.int64)
    sizes[RNG.choice(users, entries - sizes.sum(), replace=False)] += 1
    return sizes


def bounded(held: Pairs, max_keys: int | None = None) -> Pairs:
    """Return units in a random order, each with a random sample of at most `max_keys` of its keys, in random order."""
    place = RNG.permutation(len(held.sizes))
    units = np.repeat(place, held.sizes)
    order = np.lexsort((RNG.random(len(units)), units))
    units, keys = units[order], held.key_numbers[order]
    starts = np.append(0, np.cumsum(np.bincount(units, minlength=len(place))))
    if max_keys is None:
        return Pairs(held.keys, starts, keys)
    keep = np.arange(len(units)) - starts[units] < max_keys
    sizes = np.minimum(np.diff(starts), max_keys)
    return Pairs(held.keys, np.append(0, np.cumsum(sizes)), keys[keep])


def row_of(data: str, mechanism: str, value: str, at: float, drawn: Sequence[float]) -> Row:
    """Return a row of results: the mean of the trials, and its standard error."""
    error = float(np.std(drawn, ddof=1)) / math.sqrt(len(drawn))
    return {"data": data, "mechanism": mechanism, value: at, "mean": float(np.mean(drawn)), "error": error}


def chosen(names: Iterable[str]) -> list[str]:
    """Return the sets whose names contain one of the words on the command line; without words, all."""
    words, known = [word.lower() for word in sys.argv[1:]], (*LARGE, *SMALL, *MORE)
    if words and not any(word in name.lower() for word in words for name in known):
        sys.exit(f"no set has such a name. Choose from {', '.join(dict.fromkeys(known))}.")
    return [name for name in names if not words or any(word in name.lower() for word in words)]
