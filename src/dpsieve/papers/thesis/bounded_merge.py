"""Releases of bounded merges of Misra-Gries sketches (Section 3.7 of the thesis), for comparison with their sum.

The merge of Agarwal et al. (2013) adds the counters of two sketches, subtracts the (k+1)-st largest sum and keeps what
is above zero. One item changes each of k counters by at most 1, all in one direction, and what was lost (Lemma 3.6).
Without a universe they get the Gaussian noise of `sketches.one_sided_noise`, which grows with sqrt(k). Over a universe
they get discrete Laplace noise of scale (k+1)/epsilon in whole counts, as in Chan, Li, Shi and Xu (2012); the sum has
2k/(k+1)/epsilon. The sum subtracts N/(k+1) from every key, where the bounded merge may have lost much less.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source
from dpsieve.sketches.misra_gries import MergedSketch
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.releasing import Universe, release_over, release_table
from dpsieve.sketches.summed_noise import SummedSketch


@register("misra_gries_bounded_merge")
@dataclass(frozen=True, repr=False)
class BoundedMerge(SummedSketch):
    """Discrete Laplace noise for the bounded merge of sketches over a known universe.

    >>> BoundedMerge(1.0, 0.0, 1024, universe=10**9).scale
    1025.0
    """

    _values: ClassVar[str] = "bounded merge"

    @property
    def parts(self) -> int:
        """Counters are whole numbers."""
        return 1

    @property
    def sensitivity(self) -> int:
        """The k counters and what they have lost change by 1 each."""
        return self.counters + 1

    @property
    def most_keys(self) -> int:
        """The most keys that a release may have."""
        return min(self.counters, self.noisy_keys)


def release_bounded_merge(
    sketch: MergedSketch,
    epsilon: float,
    delta: float = 0.0,
    *,
    universe: Any = None,
    false_keys: float = 1.0,
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> Release:
    """Release the bounded merge of sketches, private when one item of one stream is added or removed.

    The arguments are those of `MergedSketch.release`, which has less noise.

    >>> from dpsieve.sketches import MisraGries
    >>> one, other = MisraGries(8), MisraGries(8)
    >>> one.update(["tea"] * 600)
    >>> other.update(["tea"] * 600 + ["secret"])
    >>> release_bounded_merge(one.merge(other), 1.0, 1e-6).table.column("key").to_pylist()
    ['tea']
    """
    terms: dict[str, Any] = {"ledger": ledger, "note": note, "source": source}
    if universe is None:
        noise = OneSidedSketch(epsilon, delta, sketch.counters)
        reason = f"the bounded merge, with threshold {noise.threshold:.4g}, as requested"
        return release_table(noise, sketch.bounded, sketch.decrements, reason, **terms)
    if delta != 0:
        raise InvalidValue("with a universe the release is purely private. Leave out delta, or the universe.")
    keys = Universe(universe)
    mechanism = BoundedMerge(epsilon, 0.0, sketch.counters, max(1, sketch.sources), len(keys), false_keys)
    return release_over(keys, mechanism, sketch.bounded, sketch.decrements, **terms)
