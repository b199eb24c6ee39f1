"""Mechanisms from their saved parameters."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dpsieve.errors import InvalidValue
from dpsieve.privacy.mechanism import Mechanism

# Where each mechanism that is not a channel has its `from_json`.
_HOME = {
    "known_keys": "dpsieve.channels.known_keys",
    "levels": "dpsieve.federated.level_plans",
    "misra_gries": "dpsieve.sketches.noisy",
    "misra_gries_sum": "dpsieve.sketches.summed",
    "one_sided_sketch": "dpsieve.sketches.one_sided",
}


def from_json(data: Mapping[str, Any]) -> Mechanism:
    """Make the mechanism again whose `to_json` is given; anything else is refused.

    >>> from_json({"mechanism": "known_keys", "epsilon": 1.0, "delta": 0.0, "noise": "laplace"}).name
    'known_keys'
    """
    if not isinstance(data, Mapping):
        raise InvalidValue("data describes no mechanism. Pass what to_json returned.")
    name = data.get("mechanism")
    if name is None:
        from dpsieve.channels import from_json as channel_from_json

        return channel_from_json(data)
    if not isinstance(name, str) or name not in _HOME:
        raise InvalidValue(f"data describes no known mechanism. Pass what to_json returned, for {', '.join(_HOME)}.")
    made: Mechanism = import_module(_HOME[name]).from_json(data)
    return made
