"""Tables 2.1 and 2.2 of the thesis: space and error of private sparse vectors, at worst and on real counts.

At worst: the expected error that the library computes from public numbers, largest over values, by the dimension d and
by delta. On real counts: one unit changes one count by 1; keys are texts, their number and the largest count are
public. Counts of film words are divided by 109, and all counts are cut at 60. 'present' is the mean error of all keys
of the data, 'absent' that of as many other keys. Bits are those of cells, or of all of `to_bytes` where keys are
listed.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from data_sets import baskets, film_words
from experiment import Experiment, Plot, Row, Verdict, column, group, judge_claim, pick

import dpsieve as ds
from dpsieve.papers.thesis.alp_decoders import decode_vector
from dpsieve.papers.thesis.vector_variants import ThesisRequest, private_vector
from dpsieve.types import Ints

DELTA, MOST, DIVISOR = 1e-8, 60, 109
BUDGETS = (20, 50, 100, 300)
DECODERS = ("prefix", "likelihood", "posterior")
DIMENSIONS, DELTAS, VALUES, ENTRIES = (10, 20, 40), (1e-4, 1e-8, 1e-16), (0, 5, 10, 20, 30, 45, 100), 50
METHODS: dict[str, dict[str, Any]] = {
    "Cormode et al.": {"variant": "cormode"},
    "Theorem 2.3": {"variant": "alp", "threshold": True},
    "Korolova et al.": {"variant": "korolova"},
    "Theorem 2.4": {"variant": "alp", "threshold": True},
    "retrieval": {"variant": "retrieval"},
}
PURE = ("Cormode et al.", "Theorem 2.3")


def make_vector(keys: Any, values: Any, **options: Any) -> ds.SparseVector:
    """Return a private vector of any variant."""
    make: Callable[..., ds.SparseVector] = ds.SparseVector.private
    if options.get("variant") in ThesisRequest.variants:
        make = private_vector
    return make(keys, values, neighbours="one_entry", **options)


def bits_of(vector: ds.SparseVector, entries: int) -> float:
    """Return the bits per entry."""
    return (8 * len(vector.to_bytes()) if len(vector) else vector.bits) / entries


def at_worst(small: bool) -> list[Row]:
    """Return the expected error of each method by value, dimension and delta, at epsilon 1."""
    keys, rows = np.arange(ENTRIES), list[Row]()
    values = np.random.default_rng(1).integers(1, 1000, ENTRIES)
    for name, options in METHODS.items():
        places = [(d, 0.0) for d in DIMENSIONS] if name in PURE else [(20, delta) for delta in DELTAS]
        for log_d, delta in places[::2] if small else places:
            more = {"delta": delta, "max_value": 1000, "sparsity": ENTRIES, "epsilon": 1.0, "dimension": 2**log_d}
            vector = make_vector(keys, values, **more, **options)
            for value in VALUES[:1] if small else VALUES:
                rows.append({
                    "method": name, "log2_d": log_d, "delta": delta, "bits": bits_of(vector, ENTRIES), "value": value,
                    "error": vector.expected_error(float(value)),
                })  # fmt: skip
    return rows


def judge_at_worst(rows: list[Row]) -> list[Verdict]:
    """Judge which errors grow with log d and log(1/delta)."""
    worst = {key: column(part, "error").max() for key, part in group(rows, "method", "log2_d", "delta")}

    def line(method: str) -> list[float]:
        return [float(error) for (name, *_), error in worst.items() if name == method]

    def shown(method: str) -> str:
        return f"{method} {', '.join(f'{error:.2f}' for error in line(method))}"

    verdicts = []
    for old, new, what in (
        ("Cormode et al.", "Theorem 2.3", "log d"),
        ("Korolova et al.", "Theorem 2.4", "log(1/delta)"),
    ):
        grows = [line(method)[-1] / max(line(method)[0], 1e-9) for method in (old, new)]
        verdicts.append(
            judge_claim(
                f"Table 2.2: the worst expected error of {old} grows with {what}, and that of {new} hardly",
                f"{shown(old)}; {shown(new)}", grows[1] < 0.75 * grows[0] and line(new)[-1] < line(old)[-1],
                "the error of both grows alike, as the printed method needs a threshold",
            )
        )  # fmt: skip
    bits = {method: column(pick(rows, method=method), "bits").max() for method in ("Theorem 2.4", "retrieval")}
    verdicts.append(
        judge_claim(
            "Table 2.2: error O(1/epsilon) for every value, in O(log(d + u) + log(1/delta)) bits per entry",
            f"retrieval, which the thesis does not have: {max(line('retrieval')):.2f} at most in "
            f"{bits['retrieval']:.0f} bits, where Theorem 2.4 has {max(line('Theorem 2.4')):.2f} in "
            f"{bits['Theorem 2.4']:.0f}",
            max(line("retrieval")) <= max(line("Theorem 2.4")),
            "retrieval is worse",
            better=True,
        )
    )
    return verdicts


@dataclass(frozen=True, eq=False)
class Counts:
    """Keys with counts, and as many keys that are not there."""

    name: str
    keys: list[str]
    counts: Ints

    @classmethod
    def of(cls, name: str, counter: Counter[str], divisor: int = 1) -> "Counts":
        """Return divided counts up to 60, where they are above 0."""
        counts = np.minimum(np.array(list(counter.values()), np.int64) // divisor, MOST)
        kept = np.flatnonzero(counts)
        keys = list(counter)
        return cls(name, [keys[i] for i in kept], counts[kept])

    def measure(self, line: str, decoders: tuple[Any, ...] = ("",), **options: Any) -> list[Row]:
        """Return bits and errors of a private vector at epsilon 1, read by each decoder."""
        more = {"max_value": MOST, "sparsity": len(self.keys), "epsilon": 1.0, "dimension": "text", **options}
        vector = make_vector(self.keys, self.counts, **more)
        others = [f"no {i}" for i in range(len(self.keys))]
        rows: list[Row] = []
        for decoder in decoders:
            own = decoder in ("", "likelihood")
            read = vector.get if own else partial(decode_vector, vector, decoder=decoder)
            rows.append({
                "data": self.name, "line": line + (decoder and f", {decoder}"),
                "bits": bits_of(vector, len(self.keys)),
                "present": float(np.abs(read(self.keys) - self.counts).mean()),
                "absent": float(np.abs(read(others)).mean()),
            })  # fmt: skip
        return rows


def on_counts(small: bool) -> list[Row]:
    """Return bits and errors of all variants on real counts, epsilon 1."""
    name, words = film_words(small)
    shop, basket = baskets(small)
    sets = [
        Counts.of(name, words, DIVISOR),
        Counts.of(f"{shop} items", Counter(item for one in basket for item in one)),
    ]
    rows: list[Row] = []
    for data in sets[:1] if small else sets:
        rows += data.measure("Korolova et al.", variant="korolova", delta=DELTA)
        for bits in (100,) if small else BUDGETS:
            rows += data.measure("retrieval", variant="retrieval", delta=DELTA, bits=bits)
            rows += data.measure("Algorithm 11", variant="max_projection", bits=bits)
            rows += data.measure("Algorithm 4", DECODERS[:1] if small else DECODERS, variant="alp", bits=bits)
            rows += data.measure("Algorithm 10", DECODERS[:1] if small else DECODERS, variant="histogram", bits=bits)
    return rows


def judge_on_counts(rows: list[Row]) -> list[Verdict]:
    """Judge the decoders and the variants of this library beside the printed ones, at most bits."""
    verdicts = []
    for (data,), part in group(rows, "data"):
        most = {str(line): max(some, key=lambda row: row["bits"]) for (line,), some in group(part, "line")}
        printed = min((most[name] for name in most if name.endswith("prefix")), key=lambda row: row["present"])
        listed, ours = most["Korolova et al."], most["retrieval"]
        geometric = 1 / math.sinh(1)
        verdicts += [
            judge_claim(
                f"{data}: ALP has a lower error than a list above a threshold where counts are small",
                f"{printed['present']:.2f} (printed decoder, {printed['bits']:.0f} bits) against "
                f"{listed['present']:.2f}", printed["present"] < listed["present"], "the list has less error",
            ),
            judge_claim(
                f"{data}: retrieval has the error of noise alone, {geometric:.2f}, at fewer bits than ALP",
                f"{ours['present']:.2f} for keys that are there and {ours['absent']:.2f} for others",
                ours["present"] < printed["present"] and ours["present"] < 1.1 * geometric, "it has more", better=True,
            ),
        ]  # fmt: skip
    return verdicts


EXPERIMENTS = (
    Experiment(
        "sparse_vectors_worst", "thesis", "Table 2.2", "largest expected error by dimension and delta, epsilon 1", 20,
        at_worst, judge_at_worst,
        (
            Plot("Table 2.2: expected error by value", "value", "error", ("method",), ("log2_d", "delta")),
        ),
    ),
    Experiment(
        "sparse_vectors", "thesis", "Tables 2.1 and 2.2", "bits and errors on real counts, epsilon 1, delta 0 or 1e-8",
        120, on_counts, judge_on_counts,
        (
            Plot("Mean error of keys that are there, by bits per entry", "bits", "present", ("line",), ("data",), "xy"),
            Plot("Mean error of other keys, by bits per entry", "bits", "absent", ("line",), ("data",), "xy",
                 name="absent"),
        ),
    ),
)  # fmt: skip
