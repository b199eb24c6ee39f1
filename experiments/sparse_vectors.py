"""Private sparse vectors of real counts: errors and bits of all variants, decoders, and OpenDP's ALP.

    DPSIEVE_DATA=folder .venv/bin/python experiments/sparse_vectors.py

The folder holds en_50k.txt (50,000 words and their counts in film subtitles), retail.dat (baskets of items) and
shakespeare/*.txt. One unit changes one count by 1; keys are texts, their number and the largest count are public.
Counts of film words are divided by 109, and all counts are cut at 60 unless said. 'present' is the mean error of all
keys of the data, 'absent' that of as many other keys. In brackets stands the expected error that the library computes
from public numbers: exact for 'retrieval', and else for the worst case, in which all other counts are as large as can
be. Bits are those of cells, or of all of `to_bytes` where keys are listed. Nothing was fitted to retail
and Shakespeare.

OpenDP runs in the environment that `make bench-peers` builds, if it is there; it is told the true total.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa
from discovery_data import COLOURS, save
from rich.console import Console
from rich.table import Table

import dpsieve as ds
from dpsieve.papers.thesis.alp_decoders import decode_vector, prefix_errors
from dpsieve.papers.thesis.vector_variants import ThesisRequest, private_vector
from dpsieve.sparse.alp import Alp
from dpsieve.types import Ints

DELTA, MOST, DIVISOR, HIGH = 1e-8, 60, 109, 2**18
EPSILONS = (0.5, 1.0, 2.0)
BUDGETS = (20, 50, 100, 200, 300, 600)
LEVELS = ("alp", "histogram", "multiplicative")
DECODERS = ("prefix", "likelihood", "posterior")
PEER = ((4, 50), (3, 100))  # alpha and size_factor; the first are its defaults
ROOT = Path(__file__).resolve().parent.parent
CONSOLE = Console(width=170)


@dataclass(frozen=True, eq=False)
class Found:
    """What was measured of one vector."""

    name: str
    bits: float
    present: float
    absent: float
    expected: tuple[float, float] | None = None

    def cells(self) -> tuple[str, str, str]:
        """Return bits and errors as texts."""
        expected = ["" if self.expected is None else f" ({one:.2f})" for one in self.expected or (0, 0)]
        return f"{self.bits:.1f}", f"{self.present:.2f}{expected[0]}", f"{self.absent:.2f}{expected[1]}"


@dataclass(frozen=True, eq=False)
class Data:
    """Keys with counts, and keys that are not there."""

    name: str
    keys: list[str]
    counts: Ints

    @property
    def others(self) -> list[str]:
        """As many keys of no entry."""
        return [f"no {i}" for i in range(len(self.keys))]

    def cut(self, most: int, divisor: int = 1) -> "Data":
        """Return divided counts up to a bound, where they are above 0."""
        counts = np.minimum(self.counts // divisor, most)
        kept = np.flatnonzero(counts)
        return Data(self.name, [self.keys[i] for i in kept], counts[kept])

    def tried(self, epsilon: float, decoders: tuple[Any, ...] = (None,), **how: Any) -> list[Found]:
        """Return what is measured of a private vector, read by each decoder."""
        more = {"max_value": int(self.counts.max()), "sparsity": len(self.keys), **how}
        shape: dict[str, Any] = {"neighbours": "one_entry", "dimension": "text", "epsilon": epsilon}
        of_thesis = more.get("variant") in ThesisRequest.variants
        make = private_vector if of_thesis else ds.SparseVector.private
        vector = make(self.keys, self.counts, **shape, **more)
        bits = (8 * len(vector.to_bytes()) if len(vector) else vector.bits) / len(self.keys)
        found = []
        for decoder in decoders:
            own = decoder in (None, "likelihood")
            read = vector.get if own else partial(decode_vector, vector, decoder=decoder)
            present = float(np.abs(read(self.keys) - self.counts).mean())
            absent = float(np.abs(read(self.others)).mean())
            name = str(how.get("variant", "auto")) + ("" if decoder is None else f", {decoder}")
            found.append(Found(name, bits, present, absent, self._expected(vector, decoder)))
        return found

    def _expected(self, vector: ds.SparseVector, decoder: str | None) -> tuple[float, float] | None:
        if decoder == "posterior":
            return None

        def mean(value: float) -> float:
            part = vector.mechanism
            if isinstance(part, Alp) and decoder == "prefix":
                return prefix_errors(part, value).mean
            return vector.expected_error(value)

        values, times = np.unique(self.counts, return_counts=True)
        if len(values) > MOST:  # 50 of them, in equal parts of all entries
            points = np.quantile(self.counts, np.arange(1, 100, 2) / 100, method="nearest")
            values, times = np.unique(points, return_counts=True)
        return float(np.average([mean(float(value)) for value in values], weights=times)), mean(0.0)

    def peers(self, epsilon: float, settings: Sequence[tuple[int, int]]) -> list[Found]:
        """Return what is measured of OpenDP for each alpha and size_factor."""
        home = ROOT / ".venv-peer-opendp"
        if not (home / ".done").exists():
            return []
        found = []
        with tempfile.TemporaryDirectory() as folder:
            indices = np.random.default_rng(1).choice(2**40, 2 * len(self.keys), replace=False, shuffle=True)
            arrays = {"indices": indices[: len(self.keys)], "absent": indices[len(self.keys) :], "values": self.counts}
            for name, array in arrays.items():
                np.save(f"{folder}/{name}.npy", array)
            for alpha, factor in settings:
                numbers = [str(number) for number in (epsilon, alpha, factor, 1, 0.0)]
                script = ROOT / "benchmarks" / "peers" / "vectors_opendp_job.py"
                command = [f"{home}/bin/python", str(script), folder, *numbers]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                _, _, bits, _, present, absent = json.loads(done.stdout.splitlines()[-1])
                found.append(Found(f"OpenDP, {alpha}, {factor}", bits / len(self.keys), present, absent))
        return found

    def everything(self, epsilon: float) -> list[Found]:
        """Return what is measured of all variants."""
        return [
            *self.tried(epsilon, variant="retrieval", delta=DELTA, bits=20),
            *self.tried(epsilon, variant="korolova", delta=DELTA),
            *self.tried(epsilon, variant="max_projection", bits=300),
            *(one for variant in LEVELS for one in self.tried(epsilon, DECODERS, variant=variant, bits=300)),
            *self.peers(epsilon, PEER[:1]),
        ]


def load(name: str) -> Data:
    """Return a set by its name, with all of its counts."""
    folder = Path(os.environ.get("DPSIEVE_DATA") or sys.exit("Set DPSIEVE_DATA to the folder with the data."))
    if name == "film words":
        lines = [line.split() for line in (folder / "en_50k.txt").read_text().splitlines()]
        counter = Counter({word: int(count) for word, count in lines})
    elif name == "retail items":
        counter = Counter((folder / "retail.dat").read_text().split())
    else:
        texts = sorted((folder / "shakespeare").glob("*.txt"))
        words = (re.findall(r"[a-z]+(?:'[a-z]+)?", text.read_text().lower()) for text in texts)
        counter = Counter(word for text in words for word in text)
    return Data(name, list(counter), np.array(list(counter.values()), np.int64))


def all_variants(data: Data, epsilons: tuple[float, ...]) -> None:
    """Print all variants for each epsilon."""
    what = f"{len(data.keys):,} {data.name}, counts to {data.counts.max():,}"
    table = Table(title=f"{what}: bits an entry, and mean errors (expected)")
    table.add_column("variant", no_wrap=True)
    for epsilon in epsilons:
        for name in (f"eps {epsilon:g}: bits", "present", "absent"):
            table.add_column(name, justify="right", no_wrap=True)
    for rows in zip(*(data.everything(epsilon) for epsilon in epsilons), strict=True):
        table.add_row(rows[0].name, *(cell for row in rows for cell in row.cells()))
    CONSOLE.print(table)


def claims(few: Data, divided: Data, high: Data) -> None:
    """Print what was asked for beside what was found, at epsilon 1."""
    table = Table(title=f"{len(few.keys):,} film words, epsilon 1: found (expected), and asked")
    for name in ("what", "bits", "asked", "present", "asked", "absent", "asked", "verdict"):
        table.add_column(name, justify="left" if name == "what" else "right")
    close: dict[str, Any] = {"variant": "retrieval", "delta": DELTA}
    bought: dict[str, Any] = {"sparsity": None, "max_value": MOST}
    rows: list[tuple[str, tuple[float, ...], Found]] = [
        ("retrieval, counts to 60", (20, 0.85, 0.5), few.tried(1.0, bits=20, **close)[0]),
        ("the same, number of keys bought", (), few.tried(1.0, bits=20, **close, **bought)[0]),
        ("retrieval, to 2^18", (50, 0.85, 0.5), divided.tried(1.0, bits=50, max_value=HIGH, **close)[0]),
        ("the same, not divided", (50, 0.85, 0.5), high.tried(1.0, bits=50, max_value=HIGH, **close)[0]),
        ("pure, auto", (300, 2.2), few.tried(1.0, bits=300)[0]),
        ("the same, number of keys bought", (), few.tried(1.0, bits=300, **bought)[0]),
        ("pure, histogram", (300, 2.2), few.tried(1.0, variant="histogram", bits=300)[0]),
    ]
    for what, asked, one in rows:
        found = (round(one.bits, 1), round(one.present, 2), round(one.absent, 2))
        kept = all(number <= most for number, most in zip(found, asked, strict=False))
        wanted = [f"{number:g}" for number in asked] + [""] * (3 - len(asked))
        cells = [cell for pair in zip(one.cells(), wanted, strict=True) for cell in pair]
        table.add_row(what, *cells, "" if not asked else "kept" if kept else "missed")
    CONSOLE.print(table)
    print(f"The error of geometric noise alone, for counts far from 0, is 1/sinh(epsilon) = {1 / math.sinh(1):.3f}.\n")


def by_bits(data: Data, peers: list[Found]) -> None:
    """Print and plot errors by bits at epsilon 1."""
    lines: dict[str, dict[str, Any]] = {
        "retrieval, delta 1e-8": {"variant": "retrieval", "delta": DELTA},
        "max_projection": {"variant": "max_projection"},
        **{variant: {"variant": variant} for variant in LEVELS},
        "histogram, posterior": {"variant": "histogram", "decoders": ("posterior",)},
        "auto, pure": {},
    }
    table = Table(title=f"{len(data.keys):,} {data.name}, epsilon 1: mean error, present / absent, by bits an entry")
    for name in ("variant", *map(str, BUDGETS)):
        table.add_column(name, justify="left" if name == "variant" else "right")
    found = {name: [data.tried(1.0, bits=bits, **how)[0] for bits in BUDGETS] for name, how in lines.items()}
    for name, rows in found.items():
        table.add_row(name, *(f"{row.present:.2f} / {row.absent:.2f}" for row in rows))
    CONSOLE.print(table)
    found["listed by name, delta 1e-8"] = data.tried(1.0, variant="korolova", delta=DELTA)
    found["OpenDP"] = sorted(peers, key=lambda row: row.bits)
    points = [
        {"what": name, "bits": row.bits, "error": error, "entries": kind}
        for name, rows in found.items()
        for row in rows
        for kind, error in (("present", row.present), ("absent", row.absent))
        if error  # a list has none for absent keys, which a logarithmic axis cannot show
    ]
    panels = [
        alt.Chart(pa.Table.from_pylist([one for one in points if one["entries"] == kind]), width=360, height=300)
        .mark_line(point=True)
        .encode(
            alt.X("bits:Q", title="bits an entry", scale=alt.Scale(type="log", nice=False, padding=10)),
            alt.Y("error:Q", title=f"mean error, {kind}", scale=alt.Scale(type="log", nice=False, padding=10)),
            alt.Color("what:N", sort=list(found), scale=alt.Scale(range=COLOURS), title=None),
            alt.StrokeDash("what:N", sort=list(found), legend=None),
        )
        for kind in ("present", "absent")
    ]
    title = f"{len(data.keys):,} {data.name}, counts to {MOST}: error by bits, epsilon 1"
    save("sparse_vectors_bits", alt.hconcat(*panels, title=title))


def main() -> None:
    """Print all tables and the plot."""
    words = load("film words")
    few = words.cut(MOST, DIVISOR)
    claims(few, words.cut(HIGH, DIVISOR), words.cut(HIGH))
    all_variants(few, EPSILONS)
    by_bits(few, few.peers(1.0, PEER))
    for name in ("retail items", "Shakespeare words"):
        all_variants(load(name).cut(MOST), (1.0,))


if __name__ == "__main__":
    main()
