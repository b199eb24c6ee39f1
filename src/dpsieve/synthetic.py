"""Made-up event logs with the skew of real ones, for the demo, for benchmarks and for first steps."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsieve import validate
from dpsieve.randomness.source import Source, resolve

_WHAT = """cheap best used free online local vintage organic portable wireless wooden electric digital folding heated
    waterproof handmade refurbished modern classic compact smart silent foldable adjustable rechargeable""".split()
_THING = """bicycle guitar camera laptop kettle tent piano sofa printer telescope drone blender jacket keyboard
    microphone backpack headphones lamp mattress monitor racket scooter speaker stroller tablet toaster watch heater
    mirror rug shelf desk chair mixer""".split()
_ASIDE = (
    "reviews near me|price|for kids|repair|rental|second hand|for beginners|size guide|parts|manual|gift ideas|"
    "comparison|discount|under 100|delivery|warranty|recall|accessories|history|replacement|workshop|test winner|"
    "how it works|subscription|pick up|set up|cleaning|storage|spare battery|weight|colours|for travel|for seniors|"
    "on sale|new model|deals|buying guide|return policy|open now|forum|tutorial|maker|case|cover|cable|kit|stand"
).split("|")


def query_log(
    rows: int = 1_000_000,
    users: int = 100_000,
    queries: int = 40_000,
    *,
    skew: float = 1.1,
    source: Source | None = None,
) -> pa.Table:
    """Return a table (user_id, query) of independent events.

    Each event has a user drawn evenly from `users` and a query drawn from a Zipf law: the r-th most common of `queries`
    has probability proportional to r^-skew. Queries read like searches ('used guitar repair'); which query has which
    rank is fixed, so two logs differ only in chance.

    >>> query_log(rows=5, users=2).schema.names
    ['user_id', 'query']
    """
    largest = len(_WHAT) * len(_THING) * len(_ASIDE)
    rows = validate.whole("rows", rows, high=10**9, hint="Pass how many events to make.")
    users = validate.whole("users", users, low=1, high=10**9, hint="Pass how many users there are.")
    queries = validate.whole("queries", queries, low=1, high=largest, hint="Pass how many different queries there are.")
    skew = validate.between("skew", skew, 0.0, 10.0, hint="Pass the exponent of the Zipf law, such as skew=1.1.")
    source = resolve(source)
    cumulative = np.cumsum(np.arange(1, queries + 1) ** -skew)
    ranks = np.searchsorted(cumulative, _unit(rows, source) * cumulative[-1], side="right")
    names = pa.array([_name(rank) for rank in range(queries)])
    query = pa.DictionaryArray.from_arrays(pa.array(np.minimum(ranks, queries - 1)), names).cast(pa.string())
    return pa.table({"user_id": (_unit(rows, source) * users).astype(np.int64), "query": query})


def _unit(count: int, source: Source) -> NDArray[np.float64]:
    """Return floats in [0, 1). They decide made-up data, never noise."""
    return (source.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _name(rank: int) -> str:
    scattered = rank * 7919 % (len(_WHAT) * len(_THING) * len(_ASIDE))
    what, rest = scattered % len(_WHAT), scattered // len(_WHAT)
    return f"{_WHAT[what]} {_THING[rest % len(_THING)]} {_ASIDE[rest // len(_THING)]}"
