"""Guarantees, certificates, composition and ledgers."""

from dpsieve.accounting.adaptive import Outcome, adaptive_delta
from dpsieve.accounting.composition import Composition
from dpsieve.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpsieve.accounting.loss_distributions import hockey_stick
from dpsieve.accounting.renyi import zcdp_delta, zcdp_epsilon, zcdp_rho
from dpsieve.accounting.repeated import Share, repeated_delta, repeated_share
from dpsieve.privacy.certificate import Certificate, certify
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import Block

from dpsieve.accounting.spends import (  # isort: skip
    Approximate, BoundedRange, DiscreteLaplace, Gaussian, Renyi, Spend, ZeroConcentrated, basic, spend_from_json,
)  # fmt: skip

__all__ = [
    "Approximate", "Block", "BoundedRange", "Certificate", "Composition", "DiscreteLaplace", "Gaussian", "Guarantee",
    "Outcome", "Renyi", "Share", "Spend", "ZeroConcentrated", "adaptive_delta", "basic", "certify", "gaussian_delta",
    "gaussian_epsilon", "gaussian_sigma", "hockey_stick", "repeated_delta", "repeated_share", "spend_from_json",
    "zcdp_delta", "zcdp_epsilon", "zcdp_rho",
]  # fmt: skip
