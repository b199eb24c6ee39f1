"""What may be published."""

from dpsieve.publication.release import Release

__all__ = ["Release"]
