"""What the figures on private weighted sampling share: the data, the channels, tables.

Cohen, Geri, Sarlos and Stemmer, 'Differentially Private Weighted Sampling', in two versions: the first (arXiv, 2020)
and the published one (AISTATS 2021). Their figures 1 to 6 show the same; where text or captions differ, a verdict says
which version it is about. Everything here is an exact sum over the rows of a channel: nothing is drawn.

PWS of the papers is `simple` (Algorithm 4) and `optimal` (Algorithm 5, in the published version alone); both report a
key equally often. SbH is `stability`, with the papers' threshold and with the fair one, which uses all of delta.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from experiment import Row

import dpsieve as ds
from dpsieve.channels.channel import ReportedCounts
from dpsieve.papers.weighted_sampling import sampled_stability
from dpsieve.sampling.schemes import Scheme
from dpsieve.types import Floats, Ints

PAPER = "weighted sampling"
EPSILONS, DELTA = (1.0, 0.5, 0.25, 0.1), 2.0**-20  # of figures 3, 5 and 6
PRIVATE = ("optimal", "simple", "sbh", "sbh_fair")
BASELINES = ("sbh", "sbh_fair")
LINES = ("not_private", *PRIVATE)


def zipf(n: int, alpha: float) -> tuple[Ints, Ints]:
    """Return the frequencies floor((n/i)^alpha), i = 1, ..., n, and how many keys have each."""
    frequencies = np.floor((n / np.arange(1, n + 1)) ** alpha).astype(np.int64)
    distinct, counts = np.unique(frequencies, return_counts=True)
    return distinct, counts.astype(np.int64)


def channels(epsilon: float, delta: float, scheme: Scheme | None = None) -> dict[str, ReportedCounts]:
    """Return the channels that figures compare."""
    return {
        "optimal": ds.channels.optimal(epsilon, delta, scheme),
        "simple": ds.channels.simple(epsilon, delta, scheme),
        "sbh": _stability(epsilon, delta, scheme, threshold="paper"),
        "sbh_fair": _stability(epsilon, delta, scheme),
    }


def _stability(epsilon: float, delta: float, scheme: Scheme | None, **options: Any) -> ReportedCounts:
    if scheme is None:
        return ds.channels.stability(epsilon, delta, **options)
    return sampled_stability(epsilon, delta, scheme, **options)


def threshold(epsilon: float, delta: float) -> float:
    """Return the papers' threshold of SbH."""
    return 1 + math.log(1 / delta) / epsilon


def short(number: float) -> str:
    """Return a number in few letters: 0.01, 1.8e-4, 1e-6."""
    return f"{number:.2g}" if number >= 0.001 else f"{number:.1e}".replace("e-0", "e-").replace(".0e", "e")


def spaced(last: float, points: int) -> Ints:
    """Return whole numbers from 1 to the last, equally far apart on a logarithmic axis."""
    return np.unique(np.rint(np.geomspace(1, last, points)).astype(np.int64))


def table(fixed: Row, i: Ints, found: Mapping[str, Floats]) -> list[Row]:
    """Return a row for each frequency: what is fixed, the frequency, and what was found for each channel."""
    return [
        {**fixed, "frequency": float(w), **{name: float(values[k]) for name, values in found.items()}}
        for k, w in enumerate(i)
    ]


def settles(values: Floats, level: float) -> int:
    """Return the first frequency from which on values of the frequencies 1, 2, ... stay within the level."""
    above = np.flatnonzero(np.abs(values) > level)
    return int(above[-1]) + 2 if len(above) else 1
