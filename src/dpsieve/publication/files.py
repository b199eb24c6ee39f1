"""A release on disk: a folder with release.parquet and release.json; see `dpsieve.publication.folders`."""

import os
from importlib import import_module
from pathlib import Path

import pyarrow as pa

from dpsieve.errors import CorruptRelease, InvalidValue
from dpsieve.publication.folders import MAIN, read, read_tables, write
from dpsieve.publication.records import ODD_VALUES, Record, checked_record
from dpsieve.publication.release import Release

# Which class a release of each kind is of.
_CLASSES = {"release": "dpsieve.publication.release.Release", "heavy_hitters": "dpsieve.federated.trie.TrieRelease"}


def save(release: Release, folder: str | os.PathLike[str]) -> Path:
    """Write a release to a new folder and return its path."""
    if isinstance(release.mechanism.to_json().get("scheme"), str):
        raise InvalidValue(
            "this release has a scheme made from a function, which cannot be saved. Make the scheme from its values, "
            "such as custom(scheme.inclusion_range(1, 10_000))."
        )
    release.check()
    record = Record(
        release.kind, release.guarantee, release.certificate, release.mechanism, release.notes,
        release.unsafe_to_publish, len(release), release.uses,
    )  # fmt: skip
    more = {name: getattr(release, name) for name in release.more_tables}
    return write(folder, record.to_json(), {MAIN: _with_tokens(release), **more})


def load(folder: str | os.PathLike[str]) -> Release:
    """Read a release; make its mechanism again, certify that anew, and check all that can be computed from it."""
    source, data = read(folder)
    record = checked_record(source, data, *_CLASSES)
    room, name = _CLASSES[record.kind].rsplit(".", 1)
    kind: type[Release] = getattr(import_module(room), name)
    tables = read_tables(source, data, kind.more_tables)
    table = tables.pop(MAIN)
    try:
        tokens = None
        if "token" in table.column_names:
            tokens, table = table.column("token").to_numpy(), table.drop_columns(["token"])
        made = kind(
            table, record.guarantee, record.certificate, record.mechanism, tokens, record.unsafe_to_publish,
            record.notes, record.uses, **tables,
        )  # fmt: skip
        made.check()
    except (*ODD_VALUES, pa.ArrowException):
        raise CorruptRelease(f"{source} holds what its mechanism cannot have made. Get a fresh copy.") from None
    return made


def _with_tokens(release: Release) -> pa.Table:
    return release.table if release.tokens is None else release.table.append_column("token", pa.array(release.tokens))
