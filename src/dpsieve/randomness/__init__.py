"""The one door to randomness, and exact draws from it."""

from dpsieve.randomness.coins import binomial, coins, gaussian_test
from dpsieve.randomness.noise import discrete_gaussian, discrete_laplace, rounded_gaussian
from dpsieve.randomness.picks import noisy_top
from dpsieve.randomness.source import Source, SystemSource
from dpsieve.randomness.tables import ExactTable

__all__ = [
    "ExactTable", "Source", "SystemSource", "binomial", "coins", "discrete_gaussian", "discrete_laplace",
    "gaussian_test", "noisy_top", "rounded_gaussian",
]  # fmt: skip
