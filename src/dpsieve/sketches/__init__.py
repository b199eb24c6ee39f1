"""Sketches: streams of any length summarised in little memory, and their private releases."""

from dpsieve.sketches.merged import MergedSketch
from dpsieve.sketches.misra_gries import MisraGries
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
    """Return the sketch of a stream, merged or not, whose `to_bytes` is given."""
    return MergedSketch.from_bytes(state) if saved_class(state) == "MergedSketch" else MisraGries.from_bytes(state)
