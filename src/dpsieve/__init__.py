"""dpsieve."""
