"""What may be published."""

from dpsieve.output.release import Release

__all__ = ["Release"]
