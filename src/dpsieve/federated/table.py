"""Sample-and-threshold on a table: what clients would have sent, drawn in one go."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsieve import validate
from dpsieve.errors import DpsieveError, InvalidValue
from dpsieve.federated.histogram import Histogram
from dpsieve.federated.plan import Plan
from dpsieve.federated.tally import charged, notes
from dpsieve.privacy.ledger import Ledger
from dpsieve.publication import Release
from dpsieve.randomness.source import Source, resolve, uniform_bits
from dpsieve.values.columns import not_unicode, too_large
from dpsieve.values.items import sound

if TYPE_CHECKING:
    from dpsieve.engines import Engine
    from dpsieve.engines.base import Progress


def collect_table(
    data: Any,
    *,
    value: str,
    client: str | None = None,
    plan: Plan,
    values: Any = None,
    engine: "Engine | None" = None,
    ledger: Ledger | None = None,
    note: str = "",
    allow_null_clients: bool = False,
    progress: "Progress | None" = None,
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
        engine: where to count; DuckDB in this process unless told.
        ledger: the budget to charge; the spend is durable before anything is drawn.
        note: what this release is for, kept in the ledger.
        allow_null_clients: leave out rows whose client is null, instead of refusing them.
        progress: called with the fraction of the scan that is done.
        source: randomness for tests; the release then says that it is unsafe to publish.

    >>> import pyarrow as pa
    >>> from dpsieve.federated import plan
    >>> sales = pa.table({"drink": ["tea"] * 600 + ["secret"] * 5})
    >>> collect_table(sales, value="drink", plan=plan(1.0, 1e-8)).table.column("key").to_pylist()
    ['tea']
    """
    from dpsieve.engines import DuckDB  # clients have no use for it
    from dpsieve.values.public_keys import known_table

    column = validate.text("value", value, hint="Name the column of values, such as value='query'.")
    if client is not None and validate.text("client", client, hint="Name the column of clients.") == column:
        raise InvalidValue("client is also the value, so every client would be counted. Name another column.")
    buckets, source = Histogram(plan, values).buckets, resolve(source)
    plan.channel.certify()
    if ledger is not None:
        charged(ledger)
    try:
        counted = (engine or DuckDB()).count(
            data,
            key=(column,),
            unit=client,
            max_keys=1,
            max_rows=1,
            salt=uniform_bits(source, 63),
            allow_null_units=allow_null_clients,
            known=None if buckets.listed is None else known_table(buckets.listed, (column,)),
            progress=progress,
        )
    except DpsieveError as error:
        raise _in_these_words(error) from None
    held = np.flatnonzero(counted.frequencies)
    keys = counted.keys.column(0).take(held)
    if not sound(keys):
        raise not_unicode("data")
    if ledger is not None:
        ledger.spend(plan.guarantee, note)
    made = plan.channel.release(keys, counted.frequencies[held], source=source)
    whose = client or "each row is its own client"
    return replace(made, notes={**notes(plan, buckets), "value": column, "client": whose})


def _in_these_words(error: DpsieveError) -> DpsieveError:
    """Return what an engine says in the words of `collect_table`."""
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
