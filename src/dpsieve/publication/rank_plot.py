"""Counts by rank, with the band of their intervals: a few hundred points, however many keys there are."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dpsieve.display import printable
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.publication.publication import Publication, plain_rows
from dpsieve.types import Ints
from dpsieve.values.keys import key_names

if TYPE_CHECKING:
    import altair as alt

_POINTS = 400
_NAMES = ("count", "low", "high")
_LONGEST = 80  # characters of a key beside its point


def by_count(table: pa.Table) -> Ints:
    """Return the rows of a table, the largest counts first, and after all counts those with an upper end only."""
    counts = table.column("count").fill_null(-1).to_numpy()
    return np.lexsort((-table.column("high").to_numpy(), -counts))


def shown_ranks(keys: int) -> Ints:
    """Return ranks from 1 to the number of keys: all of the first ones, then fewer and fewer.

    >>> shown_ranks(5).tolist(), len(shown_ranks(100_000)) <= 400
    ([1, 2, 3, 4, 5], True)
    """
    if keys <= _POINTS:
        return np.arange(1, keys + 1)
    return np.unique(np.geomspace(1, keys, _POINTS).round().astype(np.int64))


def rank_chart(made: Publication) -> "alt.LayerChart":
    """Return an Altair chart of count against rank, both on logarithmic scales, with the band of the 95 % intervals.

    A notebook shows it as a picture, where Altair's default would load scripts from the network.
    """
    if not set(_NAMES) <= set(made.table.column_names):
        raise InvalidType("there are no counts to plot. Make the release without keys_only.")
    try:
        import altair as alt
        import vl_convert  # noqa: F401 - Altair draws pictures with it
    except ImportError:
        raise InvalidValue("plot needs Altair and vl-convert. Run: pip install '.[plot]' in the clone") from None
    ranks = shown_ranks(len(made))
    rows = made.table.take(pa.array(by_count(made.table)[ranks - 1]))
    names = key_names(rows.column_names)
    points: list[dict[str, Any]] = [
        {"rank": rank, "key": _label([row[name] for name in names])} | {name: row[name] for name in _NAMES}
        for rank, row in zip(ranks.tolist(), plain_rows(rows), strict=True)
    ]
    counts = alt.Scale(type="symlog", domainMin=0)
    data: Any = {"values": points}
    base = alt.Chart(data).encode(alt.X("rank:Q", scale=alt.Scale(type="log"), title="rank"))
    band = base.mark_area(opacity=0.25).encode(alt.Y("low:Q", scale=counts, title="count"), alt.Y2("high:Q"))
    tooltip = ["rank:Q", "key:N", *(f"{name}:Q" for name in _NAMES)]
    line = base.mark_line(point=len(points) <= 60).encode(alt.Y("count:Q", scale=counts), tooltip=tooltip)

    class Picture(alt.LayerChart):
        def _repr_mimebundle_(self, *given: Any, **named: Any) -> Any:
            with alt.renderers.enable("svg" if alt.renderers.active == "default" else alt.renderers.active):
                return super()._repr_mimebundle_(*given, **named)

    title = alt.Title("Counts by rank", subtitle="with the 95 % intervals of the bounded counts")
    return Picture(layer=[band, line], title=title)


def _label(parts: list[object]) -> str:
    text = printable(", ".join(map(str, parts)))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
