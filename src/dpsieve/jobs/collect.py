"""Sample-and-threshold on a table: what clients would have sent, drawn at once."""

from typing import Any

import numpy as np

from dpsieve import validate
from dpsieve.engines import Columns, Engine, Progress, choose
from dpsieve.errors import DpsieveError, InvalidValue, not_unicode, too_large
from dpsieve.federated.plans.histogram_plan import Plan
from dpsieve.federated.server.histogram import Histogram, contribution, reason
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.ledger import AnyLedger, charge, opened
from dpsieve.publication.publication import Notes
from dpsieve.publication.release import Release, draw_release
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.values.items import sound
from dpsieve.values.public_keys import known_table


def collect_table(
    data: Any,
    *,
    value: str,
    client: str | None = None,
    plan: Plan,
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
        client: the column that says whose row it is; without it, each row is a client of its own.
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
    column = validate.text("value", value, hint="Name the column of values, such as value='query'.")
    if client is not None and validate.text("client", client, hint="Name the column of clients.") == column:
        raise InvalidValue("client is also the value, so every client would be counted. Name another column.")
    buckets, source = Histogram(plan, values).buckets, resolve(source)
    book = opened(ledger, note)
    if book is not None:
        book.check(plan.channel)
    try:
        counted = choose(data, engine).aggregate(
            data,
            Columns((column,), () if client is None else (client,)),
            Contribution(),
            salt=uniform_bits(source, 63),
            allow_null_units=allow_null_clients,
            known=None if buckets.listed is None else known_table(buckets.listed, (column,)),
            progress=progress,
        )
    except DpsieveError as error:
        raise _in_these_words(error) from None
    held = np.flatnonzero(counted.frequencies)
    keys = counted.keys.take(held)
    if not all(map(sound, keys.columns)):
        raise not_unicode("data")
    charge(book, plan.channel, note)
    return draw_release(
        plan.channel,
        keys,
        counted.frequencies[held],
        notes=Notes(contribution(buckets), reason(plan)),
        source=source,
    )


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
        "key=": "value=",
    }
    for theirs, ours in words.items():
        message = message.replace(theirs, ours)
    return type(error)(message)
