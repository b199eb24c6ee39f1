"""From a sketch to a Release: check, pay, draw, in this order."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dpsieve import validate
from dpsieve.channels.channel import checked_frequencies
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.ledger import Ledger
from dpsieve.privacy.mechanism import Floats, Mechanism
from dpsieve.publication.draw import refuse_equal, release_of
from dpsieve.publication.release import Release, refuse_set
from dpsieve.randomness.source import Source, resolve
from dpsieve.sketches.noisy import noisy_sketch
from dpsieve.values.items import plain_items

if TYPE_CHECKING:
    from dpsieve.sketches.misra_gries import MisraGries


@dataclass(frozen=True)
class Terms:
    """On what terms a release is made: what is charged with which note, and the randomness."""

    ledger: "Ledger | None"
    note: str
    source: Source | None


class SketchMechanism(Protocol):
    """A mechanism that draws a token for each counter, and a noisy number that tells what the sketch has lost."""

    guarantee: Guarantee

    @property
    def threshold(self) -> float:
        """What a noisy counter must reach."""

    def certify(self) -> Certificate:
        """Check the promise."""

    def draw(self, counters: NDArray[np.int64], lost: Any, source: Source, /) -> tuple[Mechanism, Floats]:
        """Return the mechanism with the noisy loss, and a token for each counter, 0 for 'nothing'."""


def paid(mechanism: SketchMechanism, terms: Terms) -> Certificate:
    """Certify a mechanism and write its spend down, before anything is drawn."""
    if terms.ledger is not None and not isinstance(terms.ledger, Ledger):
        raise InvalidType(f"ledger must be a dpsieve.Ledger, not {type(terms.ledger).__name__}. Pass Ledger(path).")
    certificate = mechanism.certify()
    if terms.ledger is not None:
        terms.ledger.spend(mechanism.guarantee, terms.note)
    return certificate


def released(
    mechanism: SketchMechanism,
    keys: pa.Array,
    counters: NDArray[np.int64],
    lost: int | None,
    why: str,
    terms: Terms,
) -> Release:
    """Return the keys whose noisy counters reach the threshold."""
    source = resolve(terms.source)
    certificate = paid(mechanism, terms)
    made, tokens = mechanism.draw(counters, lost, source)
    shown = np.flatnonzero(tokens)
    release = release_of(made, certificate, keys.take(pa.array(shown)), tokens[shown], source=source)
    release.notes.update(notes_of(mechanism, made, why))
    return release


def notes_of(mechanism: SketchMechanism, made: Mechanism, why: str) -> dict[str, Any]:
    """Return how the release was made, in public numbers."""
    return {"mechanism": made.name, "reason": why, "threshold": float(mechanism.threshold)}


def released_sketch(
    sketch: "MisraGries",
    epsilon: float,
    delta: float,
    *,
    universe: Any,
    false_keys: float,
    items_per_unit: int,
    terms: Terms,
) -> Release:
    """Release one sketch; see `MisraGries.release`."""
    if universe is not None:
        from dpsieve.sketches.merged import MergedSketch
        from dpsieve.sketches.universe import released_over

        return released_over(
            universe, MergedSketch.of(sketch), epsilon, delta,
            false_keys=false_keys, items_per_unit=items_per_unit, terms=terms,
        )  # fmt: skip
    mechanism = noisy_sketch(epsilon, delta, sketch.counters, items_per_unit)
    state = sketch.snapshot()
    why = f"noise for a sketch of {sketch.counters:,} counters, and a threshold of {mechanism.threshold:,}"
    if items_per_unit > 1:
        why += f"; a unit of {items_per_unit:,} items is paid for by group privacy"
    return released(mechanism, state.keys, state.counts, state.decrements, why, terms)


def release_counters(
    keys: Any,
    counters: ArrayLike,
    size: int,
    epsilon: float,
    delta: float,
    *,
    items_per_unit: int = 1,
    ledger: Ledger | None = None,
    note: str = "",
    source: Source | None = None,
) -> Release:
    """Release a sketch that another program made with the standard Misra-Gries algorithm, which drops keys at zero.

    Neighbours and guarantee are those of `MisraGries.release`; the threshold is higher, as up to `size` keys may differ
    (Section 3.5.1 of the thesis, with the exact probability). It must really be Misra-Gries: one counter goes up for
    each item, or a new one starts, or all go down by one. Sketches that purge in other ways, such as DataSketches'
    frequent items, do not have this guarantee. `high` bounds the counter, not the true frequency, as nobody told how
    often all counters were lowered.

    Args:
        keys: the keys that the sketch holds, distinct.
        counters: their counters, 1 or more.
        size: how many counters the sketch has; not how many are in use.
    """
    names = plain_items(refuse_set(keys), "keys", "Pass the keys that the sketch holds: integers, text or bytes.")
    refuse_equal(names)
    counts = checked_frequencies(counters)
    size = validate.whole("size", size, low=max(1, len(names)), hint="Pass how many counters the sketch has.")
    if len(names) != len(counts):
        raise InvalidValue("keys and counters differ in length. Pass one counter for each key.")
    mechanism = noisy_sketch(epsilon, delta, size, items_per_unit, standard=True)
    why = f"noise for a standard sketch of {size:,} counters, and a threshold of {mechanism.threshold:,}"
    return released(mechanism, names, counts, None, why, Terms(ledger, note, source))
