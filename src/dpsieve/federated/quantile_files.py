"""A distribution on disk: the ranges that survived, with their sampled counts, the grid, the plan and the promise."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.channels.channel import LARGEST_FREQUENCY
from dpsieve.federated.level_plans import LevelPlan
from dpsieve.federated.quantile_answers import Distribution, checked_confidence
from dpsieve.federated.quantile_bands import Tree
from dpsieve.federated.quantile_grid import Grid
from dpsieve.privacy.uses import ONCE
from dpsieve.publication.checks import is_sorted, possible
from dpsieve.publication.folders import MAIN, incomplete, read, read_tables, write
from dpsieve.publication.records import ODD_VALUES, Record, checked_record

_KIND = "distribution"
_SCHEMA = pa.schema([("level", pa.int64()), ("range", pa.int64()), ("token", pa.int64())])


def save(answers: Distribution, folder: str | os.PathLike[str]) -> Path:
    """Write a distribution to a new folder, whole or not at all, and return its path."""
    levels = answers.tree.levels
    depth = np.repeat(np.arange(1, len(levels) + 1), [len(numbers) for numbers, _ in levels])
    numbers, counts = (np.concatenate([level[part] for level in levels]) for part in (0, 1))
    table = pa.table([depth, numbers, counts], schema=_SCHEMA)
    notes = _notes(answers.grid, answers.confidence)
    unsafe = answers.unsafe_to_publish
    record = Record(_KIND, answers.guarantee, answers.certificate, answers.plan, notes, unsafe, table.num_rows)
    return write(folder, record.to_json(), {MAIN: table})


def load(folder: str | os.PathLike[str]) -> Distribution:
    """Read what `save` wrote; a changed or partial folder is refused."""
    source, data = read(folder)
    record, made = checked_record(source, data, _KIND), None
    table = read_tables(source, data)[MAIN]
    with suppress(*ODD_VALUES, pa.ArrowException):
        made = _answers(record, table)
    if made is None:
        raise incomplete(source)
    return made


def _answers(record: Record, table: pa.Table) -> Distribution | None:
    """Return the distribution, None where the table is not one that its plan leads to."""
    plan, grid = record.mechanism, Grid.from_json(record.notes["grid"])
    confidence = checked_confidence(record.notes["confidence"])
    if not isinstance(plan, LevelPlan) or (plan.levels, plan.guarantee) != (grid.depth, record.guarantee):
        return None
    if record.uses != ONCE or record.notes != _notes(grid, confidence):
        return None
    if table.schema != _SCHEMA or any(column.null_count for column in table.columns):
        return None
    if not is_sorted(table) or not possible(plan, table["token"].to_numpy().astype(np.float64)):
        return None
    rows = [table.filter(pc.equal(table["level"], level)) for level in range(1, plan.levels + 1)]
    tree = Tree(grid, [(part["range"].to_numpy(), part["token"].to_numpy()) for part in rows], plan.threshold)
    clients = max(pc.sum(part["token"]).as_py() or 0 for part in rows)
    if sum(part.num_rows for part in rows) != table.num_rows or clients > LARGEST_FREQUENCY or not tree.is_whole:
        return None
    return Distribution(grid, plan, tree, confidence, record.unsafe_to_publish)


def _notes(grid: Grid, confidence: float) -> dict[str, Any]:
    return {"grid": grid.to_json(), "confidence": confidence}
