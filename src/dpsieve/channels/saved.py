"""Channels from their saved parameters."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dpsieve.channels.binomial.rows import sample_threshold
from dpsieve.channels.channel import Channel
from dpsieve.channels.contributions import gaussian, gaussian_again, rows_of_units
from dpsieve.channels.makers import optimal, simple, stability, truncated_geometric
from dpsieve.errors import InvalidValue
from dpsieve.sampling.schemes import scheme_from_json

_MAKERS: dict[str, Callable[..., Channel]] = {
    "optimal": optimal,
    "simple": simple,
    "stability": stability,
    "truncated_geometric": truncated_geometric,
    "gaussian": gaussian,
    "rows_of_units": rows_of_units,
    "sample_threshold": sample_threshold,
}


def from_json(data: Mapping[str, Any]) -> Channel:
    """Make the channel again whose `to_json` is given; anything else is refused.

    >>> from_json(simple(1.0, 1e-6).to_json())
    <simple channel, epsilon=1, delta=1e-06>
    """
    name = data.get("channel") if isinstance(data, Mapping) else None
    if not isinstance(name, str) or name not in _MAKERS:
        raise InvalidValue(f"data describes no known channel. Pass what to_json returned, for {', '.join(_MAKERS)}.")
    values = {key: value for key, value in data.items() if key not in ("channel", "derived") and value is not None}
    if "scheme" in values:
        values["scheme"] = scheme_from_json(values["scheme"])
    make = _MAKERS[name]
    if isinstance(derived := data.get("derived"), Mapping):
        make, values = gaussian_again, {**values, **derived}
    try:
        inspect.signature(make).bind(**values)
    except TypeError:
        raise InvalidValue("data has other fields than its channel needs. Pass what to_json returned.") from None
    return make(**values)
