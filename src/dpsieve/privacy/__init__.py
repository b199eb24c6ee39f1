"""Guarantees, divergence, certificates and composition."""

from dpsieve.accounting.adaptive import adaptive_delta, fixed_delta
from dpsieve.accounting.composition import Composition
from dpsieve.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpsieve.accounting.repeated import Share, repeated_delta, repeated_epsilon, repeated_share
from dpsieve.privacy.certificate import Certificate, certify

from dpsieve.accounting.spends import (  # isort: skip
    Approximate, BoundedRange, DiscreteLaplace, Gaussian, Renyi, Spend, ZeroConcentrated, basic, spend_from_json,
)  # fmt: skip
from dpsieve.accounting.adaptive import Outcome, shifted_report
from dpsieve.accounting.divergence import PrivacyCurve, divergence, hockey_stick, joint_divergence
from dpsieve.accounting.renyi import zcdp_delta, zcdp_epsilon, zcdp_rho
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import Block

__all__ = [
    "Approximate", "Block", "BoundedRange", "Certificate", "Composition", "DiscreteLaplace", "Gaussian", "Guarantee",
    "Outcome", "PrivacyCurve", "Renyi", "Share", "Spend", "ZeroConcentrated", "adaptive_delta", "basic", "certify",
    "divergence", "fixed_delta", "gaussian_delta", "gaussian_epsilon", "gaussian_sigma", "hockey_stick",
    "joint_divergence", "repeated_delta", "repeated_epsilon", "repeated_share", "shifted_report", "spend_from_json",
    "zcdp_delta", "zcdp_epsilon", "zcdp_rho",
]  # fmt: skip
