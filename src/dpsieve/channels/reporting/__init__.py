"""Channels that report a key by a private coin first, and count it only then."""
