"""Digests of publications: what was drawn, the numbers of the mechanism, and the saved record."""

import hashlib
import json
import tempfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from golden.cases import CASES, MECHANISMS, source_for

STORED = Path(__file__).with_name("digests.json")
# Digests of the files, the seal over the record, and the version: they follow from the rest, or change by themselves.
DERIVED = ("seal", "table_sha256", "more_sha256", "library")
# Significant digits of floats: the last ones can depend on the number of BLAS threads.
DIGITS = 12


def describe(name: str) -> dict[str, Any]:
    """Draw one case and return what is stored of it.

    `table` is the digest of the columns, types and values of all tables; `numbers` are the distinct numbers of the
    guarantee, the mechanism and what was drawn beside the table, whatever their fields are called; `record` is the
    digest of the saved record. `mechanisms` are the registered names in the record. A case that is no publication has
    a `table` alone.
    """
    made = CASES[name](source=source_for(name))
    if not hasattr(made, "save"):
        return {"table": _digest(_plain(made))}
    with tempfile.TemporaryDirectory() as folder:
        place = made.save(Path(folder) / "saved")
        record = json.loads((place / "release.json").read_text())
        tables = {path.stem: _plain(pq.read_table(path)) for path in sorted(place.glob("*.parquet"))}
    content = {field: value for field, value in record.items() if field not in DERIVED}
    content["notes"] = {field: value for field, value in content["notes"].items() if field != "date"}
    numbers = _leaves([record["certificate"]["guarantee"], record["mechanism"], record.get("drawn", {})], int | float)
    return {
        "table": _digest(tables),
        "rows": made.table.num_rows,
        "numbers": sorted({_rounded(float(number)) for number in numbers}),
        "record": _digest(_plain(content)),
        "mechanisms": sorted(set(_named(record["mechanism"]))),
    }


def stored() -> dict[str, dict[str, Any]]:
    """Return the stored descriptions by the names of cases."""
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def store(found: dict[str, dict[str, Any]]) -> None:
    """Write descriptions, one case per line."""
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def changes(before: dict[str, Any] | None, after: dict[str, Any] | None) -> list[str]:
    """Return the differences of two descriptions of one case, a sentence each; none if they are equal."""
    if before is None or after is None:
        return [] if before == after else ["the case is new" if before is None else "the case no longer exists"]
    parts = ("table", "rows", "mechanisms", "record")
    pairs = [(part, before.get(part), after.get(part)) for part in parts]
    found = [f"{part} changed from {old} to {new}" for part, old, new in pairs if old != new]
    old, new = set(before.get("numbers", ())), set(after.get("numbers", ()))
    if old != new:
        found.append(f"numbers changed: {sorted(old - new)} became {sorted(new - old)}")
    return found


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Return tables, arrays and samples as JSON values; floats are rounded, and types are named."""
    if isinstance(value, pa.Table):
        columns = zip(value.schema.names, value.schema.types, value.columns, strict=True)
        return [[name, str(kind), _plain(column.to_pylist())] for name, kind, column in columns]
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return [str(value.type), _plain(value.to_pylist())]
    if isinstance(value, np.ndarray):
        return [str(value.dtype), _plain(value.tolist())]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, float):
        return _rounded(value)
    return value if isinstance(value, str | int | None) else repr(value)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _leaves(value: Any, kind: Any) -> list[Any]:
    if isinstance(value, dict | list):
        return [leaf for part in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(part, kind)]
    return [value] if isinstance(value, kind) and not isinstance(value, bool) else []


def _named(value: Any) -> list[str]:
    """Return the names of all mechanisms in a saved mechanism."""
    if isinstance(value, list):
        return [name for part in value for name in _named(part)]
    if not isinstance(value, dict):
        return []
    own = [value["kind"]] if value.get("kind") in MECHANISMS else []
    return own + _named(list(value.values()))
