"""Channels: how a true frequency turns into 'nothing' or a token."""

from dpsieve.channels.binomial.rows import SampleThreshold, sample_threshold
from dpsieve.channels.channel import Channel
from dpsieve.channels.contributions import gaussian, rows_of_units
from dpsieve.channels.known_keys import KnownKeys, known_keys
from dpsieve.channels.makers import optimal, simple, stability, truncated_geometric
from dpsieve.channels.private_size import private_scheme, release_sample
from dpsieve.channels.row import Row
from dpsieve.channels.saved import from_json

__all__ = [
    "Channel",
    "KnownKeys",
    "Row",
    "SampleThreshold",
    "from_json",
    "gaussian",
    "known_keys",
    "optimal",
    "private_scheme",
    "release_sample",
    "rows_of_units",
    "sample_threshold",
    "simple",
    "stability",
    "truncated_geometric",
]
