"""Releases of standard Misra-Gries sketches (Section 3.5.1 of the thesis), and thresholds for users with several items.

The standard algorithm drops keys at zero, so that up to k keys of counter 1 may be in one of two neighbouring sketches
alone. With the noise and the argument of `sketches.laplace_noise`, delta = P[1 + max(X_1, ..., X_k) + Y >= t]. The
number of decrements is not known, so intervals reach up to the counter and not to the true frequency.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.codec import register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.privacy.mechanism import Drawn, Outcome
from dpsieve.publication.release import Release
from dpsieve.randomness.source import Source
from dpsieve.sketches.laplace_noise import NoisySketch, SketchReader
from dpsieve.sketches.one_sided_noise import OneSidedSketch
from dpsieve.sketches.sketch import Table, release_table
from dpsieve.types import Floats, Ints
from dpsieve.values.columns import plain_items
from dpsieve.values.keys import refuse_equal, refuse_set


@register("misra_gries_standard")
@dataclass(frozen=True, repr=False)
class StandardSketch(NoisySketch):
    """The noise and the threshold of a private release of a standard Misra-Gries sketch.

    >>> StandardSketch(1.0, 1e-8, 1024).threshold
    29
    """

    @property
    def odd_keys(self) -> dict[int, int]:
        return {1: self.counters}

    def draw(self, counters: Ints, decrements: int, source: Source) -> Outcome:
        """Return a token for each counter, 0 for 'nothing'; `decrements` are ignored, as they are not known."""
        return replace(super().draw(counters, 0, source), drawn={})

    def reader(self, drawn: Drawn) -> SketchReader:
        if drawn:
            raise InvalidValue("drawn must be empty: nothing is drawn beside the tokens. Leave it out.")
        return SketchReader(self, 0)

    def bounds(self, noisy: Floats, lost: int) -> tuple[Ints, Ints]:
        """Return intervals that all contain the true counters with probability 0.95."""
        low, _ = super().bounds(noisy, 0)
        return low, noisy.astype(np.int64) + self._margins[0]


def release_counters(
    keys: Any,
    counters: ArrayLike,
    size: int,
    epsilon: float,
    delta: float,
    *,
    items_per_unit: int = 1,
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> Release:
    """Release a sketch that another program made with the standard Misra-Gries algorithm, which drops keys at zero.

    Neighbours and guarantee are those of `MisraGries.release`; the threshold is higher, because up to `size` keys may
    differ. The sketch must be Misra-Gries: each item raises one counter, starts a new one, or lowers all by one.
    Sketches that purge in other ways, such as DataSketches' frequent items, do not have this guarantee. `high` bounds
    the counter, not the true frequency, because the number of decrements is not known.

    Args:
        keys: the keys of the sketch, distinct.
        counters: their counters, 1 or more.
        size: the capacity of the sketch, not the number of counters in use.
        epsilon, delta, items_per_unit, ledger, note, source: as for `MisraGries.release`.

    >>> release = release_counters(["tea", "milk"], [500, 1], 1024, 1.0, 1e-8)
    >>> release.table["key"].to_pylist()
    ['tea']
    """
    names = plain_items(refuse_set(keys), "keys", "Pass the keys that the sketch holds: integers, text or bytes.")
    refuse_equal(pa.table({"key": names}))
    hint = "Pass the counter of each key, a whole number from 1 to 10^12."
    counts = validate.integers("counters", counters, hint=hint)
    if len(counts) and not 1 <= int(counts.min()) <= int(counts.max()) <= 10**12:
        raise InvalidValue(f"counters holds a number below 1 or above 10^12. {hint}", argument="counters")
    size = validate.whole("size", size, low=max(1, len(names)), hint="Pass how many counters the sketch has.")
    if len(names) != len(counts):
        raise InvalidValue("keys and counters differ in length. Pass one counter for each key.", argument="counters")
    mechanism = StandardSketch(epsilon, delta, size, items_per_unit=items_per_unit)
    reason = f"noise for a standard sketch of {size:,} counters, and a threshold of {mechanism.threshold:,}"
    return release_table(mechanism, Table(names, counts), 0, reason, ledger=ledger, note=note, source=source)


def thresholds_for_users(epsilon: float, delta: float, counters: int, items_per_unit: int) -> dict[str, float]:
    """Return the threshold of each sketch for users of up to this many items: the lower one reports rarer keys.

    'MisraGries' pays by group privacy, so its threshold grows with the items of a user; that of 'UserMisraGries' grows
    with the square root of the counters.

    >>> thresholds_for_users(1.0, 1e-8, 100, 20)
    {'MisraGries': 491, 'UserMisraGries': 181.0}
    """
    noisy = NoisySketch(epsilon, delta, counters, items_per_unit=items_per_unit)
    return {"MisraGries": noisy.threshold, "UserMisraGries": OneSidedSketch(epsilon, delta, counters).threshold}
