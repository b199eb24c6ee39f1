"""The Release: keys, counts, intervals, guarantee and certificate, and nothing that was not made private."""

import datetime
import os
from collections.abc import Callable, KeysView, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy import Certificate, Guarantee
from dpsieve.privacy.mechanism import Floats, Mechanism
from dpsieve.privacy.uses import ONCE, Uses
from dpsieve.values.columns import column_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass(frozen=True, eq=False)
class Release:
    """A private release: post-process it freely, the guarantee stays.

    Attributes:
        table: one row for each reported key, sorted by key: `key`, `count` (the likeliest true frequency), `low` and
            `high` (its 95 % confidence interval), `weight` (what the key adds to an estimate of the sum of all
            frequencies: the count divided by its probability of being reported). With keys only, just `key`.
        guarantee: what is promised, and to whom.
        certificate: the check of what was drawn from.
        mechanism: how the tokens were made, a channel for most releases; it holds no data.
        tokens: what the mechanism gave out for each row of the table, in units of frequency; None with keys only.
        unsafe_to_publish: True when the randomness came from a seeded test source.
        notes: how the release was made, in public numbers: bounds on contributions, the mechanism and why.
        uses: how often one unit used the mechanism, and what was spent beside; `guarantee` is what that costs, or more.
        kind, more_tables: what a folder with such a release is called, and further fields that are saved as tables.
    """

    kind: ClassVar[str] = "release"
    more_tables: ClassVar[tuple[str, ...]] = ()

    table: pa.Table
    guarantee: Guarantee
    certificate: Certificate
    mechanism: Mechanism
    tokens: Floats | None
    unsafe_to_publish: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    uses: Uses = ONCE

    def __post_init__(self) -> None:
        if not self.uses.keep(self.mechanism.guarantee, self.guarantee):
            fix = "Promise what the mechanism keeps, for the times that one unit uses it."
            raise InvalidValue(f"guarantee promises more than the mechanism keeps with {self.uses}. {fix}")

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        warning = " UNSAFE TO PUBLISH: drawn from a test source." if self.unsafe_to_publish else ""
        return f"<Release of {len(self):,} keys: {self.guarantee}{warning}>"

    def top(self, k: int = 10) -> pa.Table:
        """Return the k rows with the largest tokens, largest first: the best guess at the k most frequent keys."""
        k = validate.whole("k", k, low=1, hint="Pass how many rows to show.")
        return self.table.take(pa.array(np.argsort(-self._tokens(), kind="stable")[:k]))

    def estimate(
        self,
        where: ArrayLike | Callable[[pa.Array], ArrayLike] | None = None,
        g: Callable[[Floats], Floats] | None = None,
    ) -> float:
        """Estimate the sum of g(true frequency) over all keys that satisfy `where`, reported or not.

        From a channel, it is the sum over reported keys of the maximum-likelihood estimate g(i) / pi_i (Cohen et al.
        2021, Section 7). Keys too rare to be reported are missed, so the estimate leans low; `estimation` tells by how
        much. Other mechanisms say in `addends` what their tokens add.

        Args:
            where: one boolean for each row of the table, or a function from the Arrow column of keys to booleans.
            g: a non-decreasing function with g(0) = 0; without it, g(w) = w and the estimate is of a total frequency.
        """
        values = self.mechanism.addends(self._tokens(), g)
        if where is None:
            return float(values.sum())
        column = self.table.column("key").combine_chunks()
        chosen = np.asarray(where(column) if callable(where) else where)
        if chosen.dtype != np.bool_ or chosen.shape != values.shape:
            hint = "Pass one boolean for each row of the table, or a function of the keys that returns them."
            raise InvalidValue(f"where does not select rows of the table. {hint}")
        return float(values[chosen].sum())

    def to_pandas(self) -> "pd.DataFrame":
        """Return the table as a pandas frame."""
        return self.table.to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Return the table as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self.table)

    def save(self, folder: "str | os.PathLike[str]") -> Path:
        """Write release.parquet and release.json to a new folder, whole or not at all."""
        from dpsieve.publication.files import save

        return save(self, folder)

    @staticmethod
    def load(folder: "str | os.PathLike[str]") -> "Release":
        """Read what `save` wrote; a changed or partial folder is refused."""
        from dpsieve.publication.files import load

        return load(folder)

    def check(self) -> None:
        """Raise unless all agrees that can be computed again: keys, tokens and what the mechanism reads from them.

        `save` and `load` do this.
        """
        from dpsieve.publication.checks import check_table

        check_table(self.mechanism, self.table, self.tokens)

    def _tokens(self) -> Floats:
        if self.tokens is None:
            raise InvalidType("this release holds keys only. Release again without keys_only to order or count them.")
        return self.tokens


def table_of(mechanism: Mechanism, keys: pa.Array, tokens: Floats) -> pa.Table:
    """Return the table of a release: the keys, and what their tokens tell."""
    return pa.table({"key": keys, **vars(mechanism.read(tokens))})


_NOT_SORTED = (pa.types.is_nested, pa.types.is_dictionary, pa.types.is_float16, pa.types.is_interval)
_TYPES = (str, bytes, bool, int, float, datetime.datetime, datetime.date, datetime.time, np.generic)


def _kind(value: object) -> object:
    """Return what decides the type of a column with this value; None where all of its values would."""
    base: object = next((kind for kind in _TYPES if isinstance(value, kind)), None)
    if base is np.generic:
        return type(value)
    if base is datetime.datetime:
        return None if hasattr(value, "nanosecond") else (base, value.tzinfo is None)  # type: ignore[attr-defined]
    return base


def refuse_set(keys: Any) -> Any:
    """Return keys that have an order, so that each has its number."""
    if isinstance(keys, Set) and not isinstance(keys, KeysView):
        raise InvalidType("keys is a set, which has no order to pair it with frequencies by. Pass a list.")
    return keys


def checked_keys(keys: Any) -> pa.Array:
    """Return keys as one Arrow array without nulls.

    The type of a list is that of all its keys, which is told by any one of them: keys that are not released must not
    change it. So a list of mixed types is refused, and one of decimals, whose digits would decide.
    """
    hint = "Pass the distinct keys, without nulls, as an Arrow array or a list."
    keys = validate.listed(refuse_set(keys))
    keys = list(keys) if str(getattr(keys, "dtype", "")) == "object" else keys
    kinds = {_kind(value) for value in keys if value is not None} if isinstance(keys, list | tuple) else set()
    if len(kinds) > 1 or None in kinds:
        raise InvalidType(
            f"keys holds values of several types, or of one that its digits decide. Turn them into text. {hint}"
        )
    # A dictionary would carry every category, reported or not, and a zone is that of the first key.
    array = column_of("keys", keys, hint, pa.int64() if kinds == {int} else None)
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    fields = [field.type for field in array.type] if pa.types.is_struct(array.type) else [array.type]
    if any(isinstance(kind, pa.BaseExtensionType) or any(test(kind) for test in _NOT_SORTED) for kind in fields):
        raise InvalidType(f"keys has a type that cannot be sorted. Turn them into text or numbers. {hint}")
    if array.null_count:
        raise InvalidValue(f"keys holds nulls. {hint}")
    return array
