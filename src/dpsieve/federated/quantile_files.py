"""A distribution on disk: the ranges that survived, with their sampled counts, the grid, the plan and the promise."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsieve.errors import DpsieveError
from dpsieve.federated.level_plans import LevelPlan
from dpsieve.federated.quantile_answers import Distribution, checked_confidence
from dpsieve.federated.quantile_bands import Tree
from dpsieve.federated.quantile_grid import Grid
from dpsieve.output.folders import MAIN, incomplete, read, write
from dpsieve.output.records import Record, checked_record

_KIND = "distribution"
_SCHEMA = pa.schema([("level", pa.int64()), ("range", pa.int64()), ("token", pa.int64())])


def save(answers: Distribution, folder: str | os.PathLike[str]) -> Path:
    """Write a distribution to a new folder, whole or not at all, and return its path."""
    levels = answers.tree.levels
    depth = np.repeat(np.arange(1, len(levels) + 1), [len(numbers) for numbers, _ in levels])
    numbers, counts = (np.concatenate([level[part] for level in levels]) for part in (0, 1))
    table = pa.table([depth, numbers, counts], schema=_SCHEMA)
    notes = {"grid": answers.grid.to_json(), "confidence": answers.confidence}
    unsafe = answers.unsafe_to_publish
    record = Record(_KIND, answers.guarantee, answers.certificate, answers.plan, notes, unsafe, table.num_rows)
    return write(folder, record.to_json(), {MAIN: table})


def load(folder: str | os.PathLike[str]) -> Distribution:
    """Read what `save` wrote; a changed or partial folder is refused."""
    source, data, tables = read(folder)
    record, table = checked_record(source, data, _KIND), tables[MAIN]
    grid = confidence = None
    try:
        grid = Grid.from_json(record.notes["grid"])
        confidence = checked_confidence(record.notes["confidence"])
    except (KeyError, TypeError, DpsieveError):
        pass
    plan = record.mechanism
    if grid is None or confidence is None or not isinstance(plan, LevelPlan) or plan.levels != grid.depth:
        raise incomplete(source)
    if table.schema != _SCHEMA:
        raise incomplete(source)
    rows = [table.filter(pc.equal(table["level"], level)) for level in range(1, plan.levels + 1)]
    tree = Tree(grid, [(part["range"].to_numpy(), part["token"].to_numpy()) for part in rows], plan.threshold)
    if sum(part.num_rows for part in rows) != table.num_rows or not tree.is_whole:
        raise incomplete(source)
    return Distribution(grid, plan, tree, confidence, record.unsafe_to_publish)
