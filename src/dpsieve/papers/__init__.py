"""What exists to reproduce the papers or to compare with them: one package per paper, imported by no other package."""

from importlib import import_module
from typing import Any

__all__ = ["missing_mass", "sample_threshold", "thesis", "weighted_sampling"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpsieve.papers' has no attribute {name!r}")
    return import_module(f"dpsieve.papers.{name}")
