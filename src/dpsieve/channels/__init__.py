"""Channels: how a true frequency turns into 'nothing' or a token."""

from dpsieve.channels.channel import Channel
from dpsieve.channels.make import optimal, simple, stability, truncated_geometric
from dpsieve.channels.row import Row

__all__ = ["Channel", "Row", "optimal", "simple", "stability", "truncated_geometric"]
