"""Private Misra-Gries on the words of Shakespeare: errors against Theorem 3.1, and what a lower threshold brings.

    DPSIEVE_DATA=folder .venv/bin/python experiments/misra_gries.py

The folder holds shakespeare/*.txt. Each word of the text is an item, and one item is protected. Each line is the mean
of 20 releases; 'paper' is Algorithm 13 of the thesis, with its threshold 1 + 2 ln(3/delta)/epsilon.
"""

import math
import os
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.sketches.noisy import NoisySketch

ROUNDS, BETA = 20, 0.05


def words() -> list[str]:
    """Return the words in the order of the text."""
    folder = os.environ.get("DPSIEVE_DATA")
    if not folder or not (Path(folder) / "shakespeare").is_dir():
        sys.exit("Set DPSIEVE_DATA to the folder that holds shakespeare/*.txt.")
    texts = sorted((Path(folder) / "shakespeare").glob("*.txt"))
    return [word for text in texts for word in re.findall(r"[a-z]+(?:'[a-z]+)?", text.read_text().lower())]


def main() -> None:
    """Print one line for each size of sketch and epsilon."""
    stream = words()
    truth = Counter(stream)
    table = Table(title=f"{len(stream):,} words of Shakespeare, {len(truth):,} different; delta = 1e-8")
    ours = ("threshold", "paper's", "keys", "paper's", "smallest", "paper's", "error", "bound")
    for name in ("counters", "epsilon", *ours):
        table.add_column(name, justify="right")
    for counters in (256, 1024, 4096):
        sketch = ds.MisraGries(counters)
        sketch.update(stream)
        for epsilon in (0.1, 1.0):
            paper = 1 + 2 * math.log(3 / 1e-8) / epsilon
            rows = []
            for _ in range(ROUNDS):
                release = sketch.release(epsilon, 1e-8)
                found = dict(zip(release.table["key"].to_pylist(), release.table["count"].to_pylist(), strict=True))
                high = [count for count in found.values() if count >= paper]
                error = max(abs(truth[key] - found.get(key, 0)) for key in truth)
                rows.append((len(found), len(high), min(found.values()), min(high), error))
            threshold = NoisySketch(epsilon, 1e-8, counters).threshold
            noise = 2 * math.log((counters + 1) / BETA) / epsilon
            bound = noise + threshold + len(stream) / (counters + 1)
            keys, keys_paper, least, least_paper, error = np.mean(rows, axis=0)
            table.add_row(
                f"{counters:,}", f"{epsilon:g}", f"{threshold:.0f}", f"{paper:.0f}", f"{keys:,.0f}",
                f"{keys_paper:,.0f}", f"{least:.0f}", f"{least_paper:.0f}", f"{error:,.0f}", f"{bound:,.0f}",
            )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
