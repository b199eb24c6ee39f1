"""Channels from their saved parameters."""

from collections.abc import Callable, Mapping
from typing import Any

from dpsieve.channels.channel import Channel
from dpsieve.channels.contributions import gaussian, rows_of_units
from dpsieve.channels.make import optimal, simple, stability, truncated_geometric
from dpsieve.errors import InvalidValue
from dpsieve.sampling.schemes import scheme_from_json

_MAKERS: dict[str, Callable[..., Channel]] = {
    "optimal": optimal,
    "simple": simple,
    "stability": stability,
    "truncated_geometric": truncated_geometric,
    "gaussian": gaussian,
    "rows_of_units": rows_of_units,
}


def from_json(data: Mapping[str, Any]) -> Channel:
    """Make the channel again whose `to_json` is given; anything else is refused.

    >>> from_json(simple(1.0, 1e-6).to_json())
    <simple channel, epsilon=1, delta=1e-06>
    """
    if not isinstance(data, Mapping) or data.get("channel") not in _MAKERS:
        raise InvalidValue(f"data describes no known channel. Pass what to_json returned, for {', '.join(_MAKERS)}.")
    values = {name: value for name, value in data.items() if name not in ("channel", "derived") and value is not None}
    if "scheme" in values:
        values["scheme"] = scheme_from_json(values["scheme"])
    try:
        return _MAKERS[data["channel"]](**values)
    except TypeError:
        raise InvalidValue("data has fields that its channel does not know. Pass what to_json returned.") from None
