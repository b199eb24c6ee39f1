"""Sample-and-threshold on a table: what clients would have sent, drawn at once.

Each row is a client with one value, or each combination of values in the columns `client` is: then it keeps one of its
values, by a hash with a fresh secret salt, and counts once. The order is always: check, read, charge the ledger, draw.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from dpsieve import validate
from dpsieve.engines import Columns, Engine, NumberColumns, Progress, choose
from dpsieve.errors import DpsieveError, InvalidType, InvalidValue, not_unicode, too_large
from dpsieve.federated.server.distribution import Distribution, Quantiles, check_confidence
from dpsieve.federated.server.histogram import Histogram, contribution, reason
from dpsieve.federated.server.simulated_clients import string_type
from dpsieve.federated.server.trie import TrieHeavyHitters, TrieRelease
from dpsieve.noise.sample_threshold import SampleThreshold
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.ledger import AnyLedger, charge, opened, report_charge
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, draw_release
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.types import Ints
from dpsieve.values.keys import known_table


def collect_table(
    data: Any,
    *,
    value: str,
    client: str | Sequence[str] | None = None,
    plan: SampleThreshold,
    values: Any = None,
    engine: Engine | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    allow_null_clients: bool = False,
    progress: Progress | bool | None = None,
    source: Source | None = None,
) -> Release:
    """Release the values in a table by sample-and-threshold, as if each client had tossed its own coin.

    Each client keeps one of its values, by a hash with a fresh salt, and counts once. The sampled count of a value that
    w clients have is drawn as Binomial(w, rate), exactly: the distribution of w coins. The guarantee is the plan's; its
    `unit` should say who a client is here.

    The order is fixed: check, count, charge the ledger, draw.

    Args:
        data: see `dpsieve.release`.
        value: the column of values. Rows that are null there are left out.
        client: the column that says whose row it is, or several; without it, each row is a client of its own.
        plan: from `dpsieve.federated.plan`.
        values: a public list of the values that count; rows of others are left out before a client's value is chosen.
        allow_null_clients: leave out rows whose client is null, instead of refusing them.
        engine, ledger, note, progress, source: see `dpsieve.release`.

    >>> import pyarrow as pa
    >>> from dpsieve.federated import plan
    >>> sales = pa.table({"drink": ["tea"] * 600 + ["secret"] * 5})
    >>> collect_table(sales, value="drink", plan=plan(1.0, 1e-8)).table.column("drink").to_pylist()
    ['tea']
    """
    columns = Columns(*_columns(value, client))
    buckets, source = Histogram(plan, values).buckets, resolve(source)
    book = opened(ledger, note)
    if book is not None:
        book.check(plan)
    known = None if buckets.listed is None else known_table(buckets.listed, columns.key)
    how: Any = {"known": known, "allow_null_units": allow_null_clients, "progress": progress}
    keys, frequencies = _counted(data, columns, engine, source, how)

    def rehearse() -> None:
        draw_release(plan, ["a key"], [1])

    with charge(book, plan, note, rehearse) as entry:
        notes = Notes(contribution(buckets), reason(plan), entry=entry)
        return draw_release(plan, keys, frequencies, notes=notes, source=source)


def collect_strings(
    data: Any,
    *,
    value: str,
    client: str | Sequence[str] | None = None,
    server: TrieHeavyHitters,
    engine: Engine | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    allow_null_clients: bool = False,
    progress: Progress | bool | None = None,
    source: Source | None = None,
) -> TrieRelease:
    """Find the heavy strings of a table, as if each client had answered the questions of the server.

    The guarantee is that of the server, whose `unit` should say who a client is here. Whole numbers are taken as their
    digits; a client whose value is no string of the server's alphabet and length stays silent.

    Args:
        server: a new `dpsieve.federated.TrieHeavyHitters`.
        data, value, client, engine, ledger, note, allow_null_clients, progress, source: see `collect_table`.

    >>> import pyarrow as pa
    >>> words = pa.table({"word": ["sieve"] * 900 + ["secret"] * 5})
    >>> server = TrieHeavyHitters(1.0, 1e-8, max_length=6, step=3)
    >>> collect_strings(words, value="word", server=server).table.column("key").to_pylist()
    ['sieve']
    """
    columns, source, book = Columns(*_columns(value, client)), resolve(source), opened(ledger, note)
    if book is not None:
        book.check(server.plan)
    how: Any = {"allow_null_units": allow_null_clients, "progress": progress}
    keys, frequencies = _counted(data, columns, engine, source, how)
    distinct = keys.column(0).combine_chunks()
    wide = string_type(server.strings)  # all clients together may be more than 2 GB
    short = pa.binary() if server.strings.of_bytes else pa.string()
    if distinct.type not in (wide, short) and (server.strings.of_bytes or not types.is_integer(distinct.type)):
        fix = "Name a column of text or of whole numbers, or convert it first."
        raise InvalidType(f"value={value!r} has the type {distinct.type}, which is no string. {fix}")
    distinct = distinct.cast(short).cast(wide)
    strings = distinct.take(pa.array(np.repeat(np.arange(len(distinct)), frequencies)))
    return server.run(strings, ledger=book, note=note, source=source)


def collect_numbers(
    data: Any,
    *,
    value: str,
    client: str | Sequence[str] | None = None,
    server: Quantiles,
    confidence: float = 0.95,
    engine: Engine | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    allow_null_clients: bool = False,
    progress: Progress | bool | None = None,
    source: Source | None = None,
) -> Distribution:
    """Find how the numbers of a table are distributed, as if each client had answered the questions of the server.

    The guarantee is that of the server, whose `unit` should say who a client is here. Rows without a number are left
    out (null or NaN; in a text file, a text that is no number).

    Args:
        server: a new `dpsieve.federated.Quantiles`.
        confidence: with which all intervals hold together.
        data, value, client, engine, ledger, note, allow_null_clients, progress, source: see `collect_table`.

    >>> import pyarrow as pa
    >>> ages = pa.table({"age": [i % 100 for i in range(50_000)]})
    >>> found = collect_numbers(ages, value="age", server=Quantiles(0.0, 100.0, epsilon=1.0, delta=1e-8, depth=3))
    >>> 40 < found.quantile(0.5).value < 60
    True
    """
    columns, source, book = NumberColumns(*_columns(value, client)), resolve(source), opened(ledger, note)
    check_confidence(confidence)
    if book is not None:
        book.check(server.plan)
    how: Any = {"allow_null_units": allow_null_clients, "progress": progress}
    try:
        rows = choose(data, engine).read_numbers(data, columns, 1, salt=uniform_bits(source, 63), **how)
    except DpsieveError as error:
        raise _in_these_words(error) from None
    server.run(np.ascontiguousarray(rows.values[:, 0]), ledger=book, note=note, source=source)
    with report_charge(server.entry):
        return server.release(confidence=confidence)


def _columns(value: object, client: str | Sequence[str] | None) -> tuple[tuple[str], tuple[str, ...]]:
    """Return the column of values, and those that say whose row it is."""
    column = validate.text("value", value, hint="Name the column of values, such as value='query'.")
    names = () if client is None else (client,) if isinstance(client, str) else tuple(client)
    if column in [validate.text("client", name, hint="Name the column of clients.") for name in names]:
        raise InvalidValue("client is also the value, so every client would be counted. Name another column.")
    return (column,), names


def _counted(
    data: Any, columns: Columns, engine: Engine | None, source: Source, how: dict[str, Any]
) -> tuple[pa.Table, Ints]:
    """Return the values that clients have, one each, and how many have them."""
    try:
        counted = choose(data, engine).aggregate(data, columns, Contribution(), salt=uniform_bits(source, 63), **how)
    except DpsieveError as error:
        raise _in_these_words(error) from None
    held = np.flatnonzero(counted.frequencies)
    keys = counted.keys.take(held)
    return keys, counted.frequencies[held]


def _in_these_words(error: DpsieveError) -> DpsieveError:
    """Return the error of an engine with the argument names of `collect_table`."""
    message = str(error)
    if "(UnicodeEncodeError)" in message:
        return not_unicode("data")
    if "(OverflowError)" in message:
        return too_large("data")
    words = {
        "privacy_unit": "client",
        "allow_null_units": "allow_null_clients",
        "known_keys": "values",
        "column=": "value=",
        "key=": "value=",
    }
    for theirs, ours in words.items():
        message = message.replace(theirs, ours)
    return type(error)(message)
