"""Guarantees, divergence, certificates and composition."""

from dpsieve.privacy.certificate import Certificate, certify
from dpsieve.privacy.composition import Composition
from dpsieve.privacy.curves.gaussian import gaussian_delta, gaussian_epsilon, gaussian_sigma
from dpsieve.privacy.curves.repeated import Share, repeated_delta, repeated_epsilon, repeated_share

from dpsieve.privacy.curves.spends import (  # isort: skip
    Approximate, DiscreteLaplace, Gaussian, Renyi, Spend, ZeroConcentrated, basic, spend_from_json,
)  # fmt: skip
from dpsieve.privacy.curves.zcdp import zcdp_delta, zcdp_epsilon, zcdp_rho
from dpsieve.privacy.divergence import PrivacyCurve, divergence, hockey_stick, joint_divergence
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import Block

__all__ = [
    "Approximate", "Block", "Certificate", "Composition", "DiscreteLaplace", "Gaussian", "Guarantee", "PrivacyCurve",
    "Renyi", "Share", "Spend", "ZeroConcentrated", "basic", "certify", "divergence", "gaussian_delta",
    "gaussian_epsilon", "gaussian_sigma", "hockey_stick", "joint_divergence", "repeated_delta", "repeated_epsilon",
    "repeated_share", "spend_from_json", "zcdp_delta", "zcdp_epsilon", "zcdp_rho"
]  # fmt: skip
