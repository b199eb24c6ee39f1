"""Guarantees, divergence, certificates and composition."""

from dpsieve.privacy.certificate import Certificate, certify
from dpsieve.privacy.divergence import PrivacyCurve, divergence, hockey_stick
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.kernel import Rows

__all__ = ["Certificate", "Guarantee", "PrivacyCurve", "Rows", "certify", "divergence", "hockey_stick"]
