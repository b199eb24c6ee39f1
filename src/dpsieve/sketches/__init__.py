"""Sketches: summaries of streams in bounded memory, and their private releases."""

from dpsieve.sketches.misra_gries import MergedSketch, MisraGries
from dpsieve.sketches.releasing import release_counters
from dpsieve.sketches.sketch import saved_class
from dpsieve.sketches.users import UserMisraGries, thresholds_for_users

__all__ = [
    "MergedSketch",
    "MisraGries",
    "UserMisraGries",
    "release_counters",
    "sketch_from_bytes",
    "thresholds_for_users",
]


def sketch_from_bytes(state: bytes) -> MisraGries | MergedSketch:
    """Return the sketch that `to_bytes` saved: a `MisraGries` or a `MergedSketch`."""
    return MergedSketch.from_bytes(state) if saved_class(state) == "MergedSketch" else MisraGries.from_bytes(state)
