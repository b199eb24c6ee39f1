"""What executors run: batches of keys with true numbers go in, and what a mechanism reports comes out."""

from collections.abc import Iterator

import pyarrow as pa

import dpsieve
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.publication.release import drawn
from dpsieve.randomness.source import resolve
from dpsieve.values.keys import order_of

_MADE: dict[str, Mechanism] = {}


def check_version(version: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass batches on where this process can draw: dpsieve is there, and of the version of the driver."""
    if version != dpsieve.__version__:
        raise RuntimeError(f"executors have dpsieve {dpsieve.__version__}, and the driver {version}")
    return batches


def draw_batches(
    mechanism: Mechanism, name: str, version: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Draw for one partition: its last column, n, is replaced by tokens, and rows that are not reported are dropped.

    The mechanism has a name of its own in each draw, by which the tasks of one process share its tables.

    Randomness comes from a stream that the operating system of the executor has keyed, another one for each process,
    so a repeated task makes new draws. The result is sorted by key. An error of another library might quote data: only
    its kind is reported.
    """
    tables, failure = [], None
    batches = check_version(version, batches)
    try:
        for batch in batches:
            keys = pa.Table.from_batches([batch]).drop_columns(["n"])
            kept, tokens = drawn(_certified(mechanism, name), keys, batch.column("n").to_numpy(), resolve(None))
            tables.append(kept.append_column("token", pa.array(tokens)))
    except Exception as error:
        failure = type(error).__name__
    if failure is not None:
        raise RuntimeError(f"the draw failed with {failure}")
    if tables:
        whole = pa.concat_tables(tables)
        yield from whole.take(order_of(whole.drop_columns(["token"]))).to_batches()


def _certified(mechanism: Mechanism, name: str) -> Mechanism:
    """Return the mechanism with tables that were made and checked in this process, once for all of its tasks."""
    if name not in _MADE:
        mechanism.certify()
        _MADE.clear()
        _MADE[name] = mechanism
    return _MADE[name]
