"""Sketches: summaries of streams in bounded memory, and their private releases."""

from dpsieve.sketches.misra_gries import MergedSketch, MisraGries
from dpsieve.sketches.sketch import saved_class
from dpsieve.sketches.users import UserMisraGries

__all__ = ["MergedSketch", "MisraGries", "UserMisraGries", "sketch_from_bytes"]


def sketch_from_bytes(state: bytes) -> MisraGries | MergedSketch:
    """Return the sketch that `to_bytes` saved: a `MisraGries` or a `MergedSketch`."""
    return MergedSketch.from_bytes(state) if saved_class(state) == "MergedSketch" else MisraGries.from_bytes(state)
