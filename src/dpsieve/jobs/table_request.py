"""The request of a release of a table: keys with counts, and totals and means of other columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.request import ReleaseRequest, argument

if TYPE_CHECKING:
    from dpsieve.engines.engine import Columns
    from dpsieve.noise.totals import AnyTotal

SHARE_FOR_BOUNDS, SHARE_FOR_REST = 0.02, 0.02  # of epsilon: for each column with bounds 'auto', and for the rest


@dataclass(frozen=True, kw_only=True)
class TableRequest(ReleaseRequest):
    """Keys with their counts, totals and means."""

    sums: Any = argument(
        "columns to add up per key, with bounds of what one unit adds to one key: the sum of its rows of that key is "
        "clipped to them. 'auto' chooses the bounds with differential privacy, for 2 % of epsilon.",
        None, alias="sum", form="COLUMN:LOW:HIGH", python=" Pass a dict such as {'price': (0, 200)}.",
    )  # fmt: skip
    means: Any = argument(
        "columns to average per key, with bounds: the mean over units of each unit's own mean in that key, which is "
        "clipped to them; or 'auto'.",
        None, alias="mean", form="COLUMN:LOW:HIGH", python=" Pass a dict such as {'rating': (1, 5)}.",
    )  # fmt: skip
    rest: bool = argument(
        "also publish how many pairs of units and keys are not in the table, and their totals: 2 % of epsilon.", False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.totals:
            self._check_totals()
        if self.rest and (self.scheme is not None or self.sample_size is not None or self.max_rows_per_key > 1):
            raise InvalidValue("rest=True excludes scheme, sample_size and max_rows_per_key. Leave out one of them.")

    @cached_property
    def totals(self) -> "tuple[AnyTotal, ...]":
        """The totals that are asked for."""
        if self.sums is None and self.means is None:
            return ()
        from dpsieve.noise.totals import check_totals

        return check_totals(self.sums, self.means)

    @property
    def columns(self) -> "Columns":
        from dpsieve.engines.engine import Columns

        return Columns(self.key, self.privacy_unit, self.totals, self.rows)

    def _check_totals(self) -> None:
        from dpsieve.noise.totals import table_names

        table_names(self.totals, self.key)
        first = self.totals[0].argument
        usual = {"method": "auto", "scheme": None, "sample_size": None, "max_rows_per_key": 1}
        for name in [name for name, value in usual.items() if getattr(self, name) != value]:
            raise InvalidValue(f"{first} does not work with {name}. Leave out one of them.", argument=first)
        taken = {*self.privacy_unit, *self.key}
        for total in self.totals:
            if total.column in taken:
                why = f"{total.argument}={total.column!r} is also a key or the privacy unit"
                raise InvalidValue(f"{why}. Copy the column under another name.", argument=total.argument)


def parse_totals(name: str, texts: list[str] | None) -> dict[str, Any] | None:
    """Return the columns and bounds that are typed as COLUMN:LOW:HIGH or COLUMN:auto.

    >>> parse_totals("sum", ["price:0:200", "a:b:auto"])
    {'price': (0.0, 200.0), 'a:b': 'auto'}
    """
    if texts is None:
        return None
    found: dict[str, Any] = {}
    fix = f"Pass --{name} price:0:200, or --{name} price:auto."
    for text in texts:
        column, _, last = text.rpartition(":")
        bounds: Any = "auto"
        if last != "auto":
            column, _, first = column.rpartition(":")
            try:
                bounds = float(first), float(last)
            except ValueError:
                column = ""
        if not column:
            raise InvalidType(f"--{name} {text} is not a column with a lower and an upper bound. {fix}")
        if column in found:
            raise InvalidValue(f"--{name} names {column!r} twice. {fix}")
        found[column] = bounds
    return found
