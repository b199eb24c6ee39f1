"""One warning, from one threshold on: a delta that is too large to protect a unit."""

import sys
import warnings

from dpsieve.errors import PrivacyWarning

LARGE_DELTA = 1e-4


def warn_of_large_delta(delta: float | None) -> None:
    """Warn whoever called dpsieve, by a PrivacyWarning, of a delta above 1e-4."""
    if delta is None or not LARGE_DELTA < delta < 1:
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("dpsieve"):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"delta={delta:.3g} is large: what one unit alone holds may be published with that probability, for about "
        f"{10_000 * delta:,.0f} of 10,000 such units. Use 1e-6 or less.",
        PrivacyWarning,
        stacklevel=level,
    )
