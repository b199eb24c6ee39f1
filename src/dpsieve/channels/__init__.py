"""Channels, which turn a true frequency into 'nothing' or a token, and the mechanisms for counts of `noise`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpsieve.channels.channel import Channel, frequency_at
from dpsieve.channels.unknown_keys import optimal, rows_of_units, simple, stability, truncated_geometric

if TYPE_CHECKING:
    from dpsieve.noise.gaussian_threshold import gaussian
    from dpsieve.noise.known_keys import known_keys
    from dpsieve.noise.private_total import release_sample
    from dpsieve.noise.report_then_count import report_then_count
    from dpsieve.noise.sample_threshold import sample_threshold

__all__ = [
    "Channel", "frequency_at", "gaussian", "known_keys", "optimal", "release_sample", "report_then_count",
    "rows_of_units", "sample_threshold", "simple", "stability", "truncated_geometric",
]  # fmt: skip

_LATER = {  # below this package: loaded on first use
    "dpsieve.noise.gaussian_threshold": ("gaussian",),
    "dpsieve.noise.known_keys": ("known_keys",),
    "dpsieve.noise.private_total": ("release_sample",),
    "dpsieve.noise.report_then_count": ("report_then_count",),
    "dpsieve.noise.sample_threshold": ("sample_threshold",),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
