"""Which values a histogram counts: one kind, of bounded length, and of a public list if there is one."""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.values.columns import column_of, not_unicode, too_large
from dpsieve.values.items import sound

Kind = Literal["text", "integers"]

LONGEST = 256
_TYPES = {"text": pa.large_string(), "integers": pa.int64()}
_HINT = "Pass an Arrow or NumPy array, or a list."


class Buckets:
    """The values that are counted.

    Attributes:
        kind: 'text' or 'integers'.
        listed: the public list as an Arrow array, or None when any value of the kind counts.
        longest: texts of more bytes in UTF-8 are left out.
    """

    def __init__(self, values: Any, kind: Kind | None, longest: int) -> None:
        hint = "Pass the most bytes that a text may have, such as longest=256."
        self.longest = validate.whole("longest", longest, low=1, high=1 << 20, hint=hint)
        if kind is not None and (not isinstance(kind, str) or kind not in _TYPES):
            raise InvalidValue("kind is not known. Choose 'text' or 'integers'.")
        self.listed: pa.Array | None = None
        if values is None:
            self.kind: Kind = kind or "text"
            return
        listed = column_of("values", values, _HINT, from_pandas=True)
        self.kind = kind or ("integers" if types.is_integer(listed.type) else "text")
        listed = self.column("values", listed)
        if not len(listed) or listed.null_count or len(pc.unique(listed)) != len(listed):
            raise InvalidValue("values must be a public list of different values without nulls. Leave it out for any.")
        if self.kind == "text" and pc.max(pc.binary_length(listed)).as_py() > self.longest:
            raise InvalidValue("values holds a text that is longer than `longest` bytes. Pass a larger one.")
        self.listed = listed

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of the values."""
        return _TYPES[self.kind]

    def column(self, name: str, values: Any) -> pa.Array:
        """Return values as an Arrow array of this kind, or raise naming the argument."""
        array = column_of(name, values, _HINT, from_pandas=True)
        fits = types.is_integer(array.type) if self.kind == "integers" else _is_text(array.type)
        if not fits and not types.is_null(array.type):
            raise InvalidType(f"{name} holds no {self.kind}. Pass such values, or the other kind to Histogram.")
        if not sound(array):
            raise not_unicode(name)
        try:
            return array.cast(self.type)
        except pa.ArrowException:  # its message may quote values
            pass
        raise too_large(name)

    def counts(self, value: object) -> bool:
        """Return whether one value counts; one of another kind, or that cannot be sent, is refused."""
        if self.kind == "integers":
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not whole:
                raise InvalidType("value must be a whole number, as this histogram counts integers.")
        elif not isinstance(value, str):
            raise InvalidType("value must be text, as this histogram counts text. Pass kind='integers' for numbers.")
        return bool(self.among(self.column("value", [value]))[0].as_py())

    def among(self, values: pa.Array) -> pa.Array:
        """Return, for each value, whether it counts."""
        if self.listed is not None:
            return pc.is_in(values, value_set=self.listed)
        if self.kind == "text":
            return pc.less_equal(pc.binary_length(values), self.longest)
        return pc.is_valid(values)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view())
