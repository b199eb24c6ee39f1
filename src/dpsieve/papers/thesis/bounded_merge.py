"""Releases of bounded merges of Misra-Gries sketches (Section 3.7 of the thesis), for comparison with their sum.

The merge of Agarwal et al. (2013) adds the counters of two sketches, subtracts the (k+1)-st largest sum and keeps what
is above zero. One item changes each of k counters by at most 1, all in one direction, and what was lost (Lemma 3.6).
Without a universe they get the Gaussian noise of `sketches.one_sided_noise`, which grows with sqrt(k). Over a universe
they get discrete Laplace noise of scale (k+1)/epsilon in whole counts, as in Chan, Li, Shi and Xu (2012); the sum has
2k/(k+1)/epsilon. The sum subtracts N/(k+1) from every key, where the bounded merge may have lost much less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dpsieve.codec import register
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.certificate import Certificate, formula
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source
from dpsieve.sketches.misra_gries import MisraGries, common_shape, positive
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.sketch import Table, Universe, release_over, release_table
from dpsieve.sketches.summed_noise import SummedSketch
from dpsieve.sketches.users import bounded_merge


@register("misra_gries_bounded_merge")
@dataclass(frozen=True, repr=False)
class BoundedMerge(SummedSketch):
    """Discrete Laplace noise for the bounded merge of sketches over a known universe.

    >>> BoundedMerge(1.0, 0.0, 1024, universe=10**9).scale
    1025.0
    """

    def __repr__(self) -> str:
        return f"<bounded merge of Misra-Gries sketches of {self.counters:,} counters, {self.guarantee}>"

    @property
    def parts(self) -> int:
        return 1  # counters are whole numbers

    @property
    def sensitivity(self) -> int:
        return self.counters + 1  # the k counters and what they have lost change by 1 each

    @property
    def most_keys(self) -> int:
        return min(self.counters, self.universe)

    def certify(self) -> Certificate:
        (part,) = super().certify().parts
        return formula(self.guarantee, part.worst, "balls", part.covers.replace("sum of", "bounded merge of"))


def merge_counters(sketches: Sequence[MisraGries]) -> tuple[Table, int]:
    """Return the bounded merge of sketches in this order, and how much its counters may be below the truth.

    >>> first, second = MisraGries(2), MisraGries(2)
    >>> first.update(["tea", "tea", "milk"])
    >>> second.update(["tea", "salt", "salt"])
    >>> (keys, counts), lost = merge_counters([first, second])
    >>> keys.to_pylist(), counts.tolist(), lost
    (['salt', 'tea'], [1, 2], 1)
    """
    counters, _ = common_shape(sketches)
    merged, lost = Table(pa.nulls(0), np.empty(0, np.int64)), 0
    for sketch in sketches:
        (keys, counts), decrements = sketch.keys_and_counts(), sketch.decrements
        merged, over = bounded_merge(merged, positive(keys, counts), counters)
        lost += decrements + over
    return merged, lost


def release_bounded_merge(
    *sketches: MisraGries,
    epsilon: float,
    delta: float = 0.0,
    universe: Any = None,
    false_keys: float = 1.0,
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> Release:
    """Release the bounded merge of sketches, private when one item of one stream is added or removed.

    The other arguments are those of `MergedSketch.release`, which has less noise.

    >>> first, second = MisraGries(8), MisraGries(8)
    >>> first.update(["tea"] * 600)
    >>> second.update(["tea"] * 600 + ["secret"])
    >>> release_bounded_merge(first, second, epsilon=1.0, delta=1e-6).table.column("key").to_pylist()
    ['tea']
    """
    if not sketches or not all(isinstance(sketch, MisraGries) for sketch in sketches):
        raise InvalidType("sketches to merge are MisraGries. Pass one or more.")
    terms: dict[str, Any] = {"ledger": ledger, "note": note, "source": source}
    size, (merged, lost) = sketches[0].counters, merge_counters(sketches)
    if universe is None:
        noise = OneSidedSketch(epsilon, delta, size)
        reason = f"the bounded merge, with threshold {noise.threshold:.4g}, as requested"
        return release_table(noise, merged, lost, reason, **terms)
    if delta != 0:
        hint = "Leave out delta, or the universe."
        raise InvalidValue(f"with a universe the release is purely private. {hint}", argument="delta")
    keys = Universe(universe)
    mechanism = BoundedMerge(epsilon, 0.0, size, len(sketches), universe=len(keys), false_keys=false_keys)
    return release_over(keys, mechanism, merged, lost, **terms)
