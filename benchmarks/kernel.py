"""How fast is the certificate kernel? A million rows, beside reading their masses once.

    make bench-kernel        or        .venv/bin/python benchmarks/kernel.py

The floor is a sum over all masses as floats: what it costs to look at every number once.
"""

import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from dpsieve.privacy import Block, certify
from dpsieve.privacy.guarantee import Guarantee

ROWS, STACK = 1_000_000, 256


def stacks(tokens: int) -> Iterator[Block]:
    """Yield rows that repeat, with masses that fill both words, in stacks."""
    draw = np.random.default_rng(0).integers
    row = draw(0, 2**63 // tokens, (1, tokens), dtype=np.uint64)
    high = np.repeat(row, STACK, axis=0)
    low = draw(0, 2**63, (STACK, tokens), dtype=np.uint64)
    for _ in range(ROWS // STACK):
        yield Block(np.arange(tokens + 1), high, low)


def main() -> None:
    """Print seconds and ratios for rows of 100 and of 300 tokens."""
    table = Table(title=f"{ROWS:,} rows")
    for name in ("tokens a row", "kernel, seconds", "one sum, seconds", "ratio"):
        table.add_column(name, justify="right")
    for tokens in (100, 300):
        start = time.perf_counter()
        certify(stacks(tokens), Guarantee(1.0, 0.999), shift=0)
        kernel = time.perf_counter() - start
        start = time.perf_counter()
        for rows in stacks(tokens):
            (rows.high * 2.0**-64 + rows.low * 2.0**-128).sum(axis=1)
        floor = time.perf_counter() - start
        table.add_row(f"{tokens}", f"{kernel:.1f}", f"{floor:.1f}", f"{kernel / floor:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
