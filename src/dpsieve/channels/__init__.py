"""Channels: how a true frequency turns into 'nothing' or a token."""

from dpsieve.channels.binomial.rows import SampleThreshold, sample_threshold
from dpsieve.channels.channel import Channel, frequency_at
from dpsieve.channels.known_keys import KnownKeys, known_keys
from dpsieve.channels.makers import gaussian, optimal, rows_of_units, simple, stability, truncated_geometric
from dpsieve.channels.private_size import PrivateTotal, private_scheme, release_sample
from dpsieve.channels.reporting.report_then_count import ReportThenCount, report_then_count
from dpsieve.channels.rows import Row, Rows

__all__ = [
    "Channel", "KnownKeys", "PrivateTotal", "ReportThenCount", "Row", "Rows", "SampleThreshold", "frequency_at",
    "gaussian", "known_keys", "optimal", "private_scheme", "release_sample", "report_then_count", "rows_of_units",
    "sample_threshold", "simple", "stability", "truncated_geometric",
]  # fmt: skip
