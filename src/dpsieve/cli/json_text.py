"""JSON for scripts: valid for every value that a release can hold."""

import base64
import json
import math
from typing import Any


def json_text(value: Any) -> str:
    """Return valid JSON. What it has no form for is written as in the JSON of Protocol Buffers.

    NaN and infinities are the texts "NaN", "Infinity" and "-Infinity", bytes are base64; other values are their text.

    >>> json_text({"key": b"tea", "high": float("inf")})
    '{"key": "dGVh", "high": "Infinity"}'
    """
    return json.dumps(_plain(value), allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
