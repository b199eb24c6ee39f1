"""Guarantees, certificates, composition and ledgers."""

from dpsieve.accounting.composition import Composition
from dpsieve.privacy.certificate import certify
from dpsieve.privacy.kernel import Block

from dpsieve.accounting.spends import (  # isort: skip
    Approximate, BoundedRange, DiscreteLaplace, Gaussian, Renyi, ZeroConcentrated,
)  # fmt: skip

__all__ = [
    "Approximate", "Block", "BoundedRange", "Composition", "DiscreteLaplace", "Gaussian", "Renyi",
    "ZeroConcentrated", "certify",
]  # fmt: skip
