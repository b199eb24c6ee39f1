"""Requests: the checked arguments of every job, one frozen dataclass per job.

The metadata of a field is the only description of an argument: the Args section of a function, the options and the help
of its command, and the names in error messages come from it. A request is validated once, when it is made; what follows
trusts it. This module imports neither NumPy nor Arrow at the top, so that `dpsieve --help` is fast.
"""

import difflib
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, cast, get_args

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.jobs.key_columns import key_columns, make_row_expressions, read_known_keys

if TYPE_CHECKING:
    from dpsieve.engines.engine import Columns
    from dpsieve.engines.sql.row_expressions import RowExpressions
    from dpsieve.privacy.guarantee import Contribution
    from dpsieve.sampling.schemes import Scheme

Goal = Literal["auto", "keys", "counts"]
Method = Literal[
    "auto", "optimal", "simple", "truncated_geometric", "stability", "gaussian", "report_then_count", "laplace"
]

KEYS_PER_UNIT = 100  # that a unit adds to a discovery by default
FEW_KEYS = 2  # typical keys per unit up to which keys are found with what units do not need for counts
MOST_COVERED = 1_000  # keys per unit up to which coverage is reported
_LEAST_EPSILON = 0.01  # a hundredth of which still pays for a histogram
ROWS = "row"
"""The privacy unit where each row is its own unit; a column of that name is passed as a list, ["row"]."""
_UNIT = "Name the column that identifies who is protected, such as privacy_unit='user_id'"

_F = TypeVar("_F", bound=Callable[..., Any])

AROUND = {
    "data": "a path, glob or list of Parquet, CSV or JSON-lines files; a pandas or Polars frame; an Arrow table; a "
    "DuckDB relation, or a connection and a table name; the URL of a PostgreSQL database, with `table`; a Spark "
    "DataFrame. Sums, means and quantiles also take an array or a list of numbers.",
    "engine": "where to count; chosen from the data by default.",
    "table": "the table or view of a database to read, such as 'shop.orders'.",
    "ledger": "the ledger to charge, or the path of its file; the entry is durable before anything is drawn.",
    "note": "what this is for; kept in the ledger.",
    "progress": "True shows a progress bar; a function is called with the fraction that is done.",
    "source": "randomness for tests; the result is then marked unsafe to publish.",
}
"""The arguments that jobs share beside their request."""


def argument(
    text: str, default: Any = MISSING, *, choices: Any = None, alias: str = "", form: str = "", option: bool = True,
    python: str = "",
) -> Any:  # fmt: skip
    """Return a field of a request with its description.

    Args:
        text: what the argument means, for docstrings and `--help`.
        default: its default.
        choices: a Literal type, or a tuple, of the values that it takes.
        alias: a short form of its option on the command line.
        form: how its value is typed there, such as 'LOW,HIGH'.
        option: whether the command line has it.
        python: what the docstring adds, such as how a dict is passed.
    """
    values = get_args(choices) or tuple(choices or ())
    metadata = {"help": text, "choices": values, "alias": alias, "form": form, "option": option, "python": python}
    return field(default=default, metadata=metadata)


_ALIASES = {"eps": "epsilon", "keys": "key", "columns": "column", "unit": "privacy_unit", "user": "privacy_unit",
            "quantiles": "quantile", "q": "quantile", "mechanism": "method", "values": "known_keys"}  # fmt: skip


def unknown_argument(function: str, name: str, arguments: list[str]) -> InvalidType:
    """Return the error about an argument that a function does not have."""
    meant = _ALIASES.get(name, name)
    meant = meant if meant in arguments else next(iter(difflib.get_close_matches(meant, arguments, n=1)), "")
    fix = f" Did you mean {meant}?" if meant else f" It has {', '.join(arguments)}."
    return InvalidType(f"{function}() has no argument {name}.{fix}", argument=name)


def document(request: "type[Request]") -> Callable[[_F], _F]:
    """Return a decorator that replaces the line '[arguments]' of a docstring by the Args section of a request.

    The function then refuses an unknown argument with the name that was probably meant.
    """

    def add(function: _F) -> _F:
        known = AROUND | {each.name: each.metadata["help"] + each.metadata["python"] for each in fields(request)}
        names = [name for name in inspect.signature(function).parameters if name in known]
        lines = ["    Args:"]
        for name in names:
            text = f"{name}: {known[name]}"
            lines += textwrap.wrap(text, 118, initial_indent=" " * 8, subsequent_indent=" " * 12)
        function.__doc__ = (function.__doc__ or "").replace("    [arguments]", "\n".join(lines))
        arguments = dict.fromkeys(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            if unknown := named.keys() - arguments.keys():
                raise unknown_argument(function.__name__, min(unknown), [*arguments])
            return function(*given, **named)

        return cast(_F, call)

    return add


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every job is asked: who is protected, and with which budget."""

    privacy_unit: tuple[str, ...] = argument(
        "the column that identifies who is protected, or several: a unit is one combination of their values. 'row' "
        "states that each row is its own unit, which does not protect people with many rows. Tables require it.", None,
        alias="unit", form="COLUMN",
    )  # fmt: skip
    epsilon: float = argument("epsilon of the budget; smaller is more private.")
    delta: float = argument("delta of the budget: a key of one unit is reported at most this often; far below 1/units.")
    allow_null_units: bool = argument("leave out rows whose unit is null, instead of refusing them.", False)

    def __post_init__(self) -> None:
        from dpsieve.engines.engine import unit_columns

        unit = cast(object, self.privacy_unit)
        if unit is None and self._needs_unit(vars(self)):
            from dpsieve.jobs.table import missing_unit

            raise missing_unit({})
        validate.store(self, privacy_unit=unit_columns(None if isinstance(unit, str) and unit == ROWS else unit))
        for each in fields(self):
            value, choices = getattr(self, each.name), each.metadata["choices"]
            if choices and (not isinstance(value, str) or value not in choices):
                raise InvalidValue(f"{each.name} is not known. Choose one of {', '.join(map(repr, choices))}.")
            if isinstance(each.default, bool) and not isinstance(value, bool):
                fix = f"Pass {each.name}=True, or leave it out."
                raise InvalidType(f"{each.name} must be True or False, not {type(value).__name__}. {fix}")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the request among the arguments of a function; fields that it does not take have their defaults."""
        unit = arguments.get("privacy_unit")
        if (unit is None or (isinstance(unit, tuple) and not unit)) and cls._needs_unit(arguments):
            from dpsieve.jobs.table import missing_unit

            raise missing_unit(arguments)
        request = cls(**{field.name: arguments[field.name] for field in fields(cls) if field.name in arguments})
        request.warn()
        return request

    @classmethod
    def _needs_unit(cls, arguments: Mapping[str, Any]) -> bool:
        """Return whether rows of a table are read, so that the unit has to be stated."""
        return True

    def warn(self) -> None:
        """Issue a PrivacyWarning for names that suggest a mistake."""

    @cached_property
    def unit(self) -> str:
        """The words for who is protected."""
        from dpsieve.privacy.guarantee import unit_words

        return unit_words(self.privacy_unit)


@dataclass(frozen=True, kw_only=True)
class KeyRequest(Request):
    """A job on the keys of a table. `rows` is what is computed of each row first; None if nothing is."""

    rows: ClassVar["RowExpressions | None"] = None

    key: tuple[str, ...] = argument(
        "the column to publish, or several. Rows with a null key are left out.", form="COLUMN",
        python=" A dict such as {'day': \"date_trunc('day', ts)\", 'country': 'country'} derives columns by SQL "
        "expressions of one row.",
    )  # fmt: skip
    where: str | None = argument(
        "count only rows that satisfy this SQL condition, such as \"country = 'DE'\". The condition is published too.",
        None,
        form="SQL",
    )
    max_keys_per_unit: Any = argument("the number of keys that a unit may add.", 1, alias="max-keys")
    min_units: int = argument(
        "never publish a key that fewer units hold, as counted under the bound on keys per unit: a hard floor on top "
        "of differential privacy.",
        1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, rows=make_row_expressions(self.where, self.key, self.privacy_unit))
        validate.store(self, key=key_columns(tuple(self.key) if isinstance(self.key, Mapping) else self.key))
        hint = "Pass the least number of units of a published key, such as min_units=10."
        validate.store(self, min_units=validate.whole("min_units", self.min_units, low=1, high=10**6, hint=hint))
        if self.privacy_unit and set(self.privacy_unit) <= set(self.key):
            raise InvalidValue("privacy_unit is among the keys, so every unit would be published. Name another column.")

    def warn(self) -> None:
        """Issue a PrivacyWarning where the key has the name of an identifier rather than the unit."""
        from dpsieve.jobs.table import warn_if_exchanged

        if self._needs_unit(vars(self)):
            warn_if_exchanged(self.key, self.privacy_unit)

    def _check_units(self, several: bool) -> None:
        if several and not self.privacy_unit:
            why = "more than one key or row per unit needs a privacy_unit other than 'row', where each row is a unit"
            raise InvalidValue(f"{why}. {_UNIT}.")

    @property
    def contribution(self) -> "Contribution":
        """What one unit may add."""
        from dpsieve.privacy.guarantee import Contribution

        return Contribution(self.max_keys_per_unit)

    @property
    def columns(self) -> "Columns":
        """The columns that are read."""
        from dpsieve.engines.engine import Columns

        return Columns(self.key, self.privacy_unit, rows=self.rows)


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(KeyRequest):
    """Keys with their counts.

    Where `max_keys_per_unit` is 'auto' and units are named, the bound is chosen privately; where another argument rules
    that out, it has to be given. `way` is that of an earlier release whose bound is reused.
    """

    way: ClassVar[str] = ""

    max_keys_per_unit: int | Literal["auto"] = argument(
        "the number of keys that a unit may add. 'auto' chooses it with differential privacy, for 3 % of epsilon; a "
        "number is required with known keys, several rows per key, a scheme or a sample size. An earlier release, or "
        "on the command line its folder, reuses its bound and way of counting: counts of a series are then comparable.",
        "auto", alias="max-keys", form="NUMBER|auto|FOLDER",
    )  # fmt: skip
    max_rows_per_key: int = argument("the number of rows of a unit that count in one key.", 1)
    goal: Goal = argument(
        "'keys' finds the most keys; 'counts' gives the best counts; 'auto' gives nearly as many keys with counts "
        "close to the number of units that hold them.",
        "auto", choices=Goal,
    )  # fmt: skip
    scheme: "Scheme | None" = argument("a sampling scheme such as `dpsieve.ppswor(0.01)`.", None, option=False)
    sample_size: int | None = argument(
        "sample about this many keys; 5 % of epsilon pays for the private total that sets the rate.", None
    )
    method: Method = argument(
        "'auto', or the mechanism: 'optimal', 'simple', 'truncated_geometric', 'stability'; for several keys per unit "
        "'report_then_count' or 'gaussian'; with known keys 'laplace' or 'gaussian'.",
        "auto", choices=Method,
    )  # fmt: skip
    known_keys: Any = argument(
        "a public list of keys, or the path of a file with one per line: all of them are published, with noise and no "
        "threshold, and no others. Rows of other keys are left out before bounding. With known keys delta may be 0.",
        None, form="PATH",
    )  # fmt: skip
    report_coverage: bool | None = argument(
        "report the share of (unit, key) pairs that the bound keeps. It is free where the bound is chosen, and "
        "reported there by default; with a fixed bound it costs 1 % of epsilon.",
        None,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.known_keys is None:
            validate.check_budget(self.epsilon, self.delta)
        validate.store(self, epsilon=validate.epsilon(self.epsilon))
        self._check_bounds()
        coverage = self.report_coverage
        if coverage is None:
            coverage = self.chooses_bound and not self._rules_out_choice()
        if not isinstance(coverage, bool):
            raise InvalidType("report_coverage must be True, False or None. Pass True, or leave it out.")
        validate.store(self, report_coverage=coverage)
        self._check_conflicts()
        if self.chooses_bound:
            self._check_choice()
        if self.known_keys is not None:
            validate.store(self, known_keys=read_known_keys(self.known_keys, self.key))

    def _check_bounds(self) -> None:
        from dpsieve.validate import check_max_keys, check_max_rows

        validate.store(self, max_rows_per_key=check_max_rows(self.max_rows_per_key, "max_rows_per_key"))
        earlier: Any = getattr(self.max_keys_per_unit, "contribution", self.max_keys_per_unit)  # of a release
        if hasattr(earlier, "keys"):
            validate.store(self, max_keys_per_unit=earlier.keys, way=earlier.after)
        if isinstance(cast(object, self.max_keys_per_unit), str) and self.max_keys_per_unit == "auto":
            validate.store(self, max_keys_per_unit="auto" if self.privacy_unit else 1)
        elif isinstance(cast(object, self.max_keys_per_unit), str):
            raise InvalidValue("max_keys_per_unit is a text other than 'auto'. Pass 'auto', or a number such as 10.")
        else:
            keys = check_max_keys(cast(int, self.max_keys_per_unit), "max_keys_per_unit")
            validate.store(self, max_keys_per_unit=keys)
        self._check_units(self.max_rows_per_key > 1 or self.max_keys_per_unit not in (1, "auto"))
        if self.sample_size is not None:
            size = validate.whole("sample_size", self.sample_size, low=1, hint="Pass about how many keys to sample.")
            validate.store(self, sample_size=size)

    def _rules_out_choice(self) -> list[str]:
        """Return what rules out that the bound is chosen privately."""
        return [*self._fixed(), *(["a small epsilon"] if self.epsilon < _LEAST_EPSILON else [])]

    def _check_choice(self) -> None:
        """Refuse 'auto' where the bound cannot be chosen privately."""
        reasons = self._rules_out_choice()
        if reasons:
            raise InvalidValue(
                f"max_keys_per_unit is missing: with {reasons[0]} it is not chosen from the data. Pass about as many "
                "keys as most units have, such as max_keys_per_unit=5: the rest is left out, and noise grows with it.",
                argument="max_keys_per_unit",
            )

    def _fixed(self) -> list[str]:
        """Return the arguments that fix how units are counted, so that no bound is chosen and no coverage known."""
        fixing = {
            "privacy_unit": not self.privacy_unit,
            "max_rows_per_key": self.max_rows_per_key != 1,
            "known_keys": self.known_keys is not None,
            "scheme": self.scheme is not None,
            "sample_size": self.sample_size is not None,
        }
        return [name for name, fixes in fixing.items() if fixes]

    def _check_conflicts(self) -> None:
        fixed = self._fixed()
        two_steps = self.goal == "counts" and bool(self.privacy_unit)
        wishes = {"report_coverage=True": bool(self.report_coverage), "goal='counts'": two_steps}
        for words in [words for words, wanted in wishes.items() if wanted]:
            if fixed and fixed[0] == "privacy_unit":
                raise InvalidValue(f"{words} needs a privacy_unit other than 'row', where each row is a unit. {_UNIT}.")
            if fixed or (words == "goal='counts'" and self.method != "auto"):
                raise InvalidValue(f"{words} does not work with {(fixed or ['method'])[0]}. Leave out one of them.")
            if self.epsilon < 2 * _LEAST_EPSILON:
                fix = f"Pass {2 * _LEAST_EPSILON} or more."
                raise InvalidValue(f"epsilon={self.epsilon:g} is too small for {words}. {fix}")
            if not self.chooses_bound and self.max_keys_per_unit > MOST_COVERED:  # type: ignore[operator]
                fix = "Leave it out, or bound units to fewer."
                raise InvalidValue(f"{words} works up to max_keys_per_unit={MOST_COVERED}. {fix}")
        if self.way and (fixed or self.method != "auto"):
            fix = (
                f"Pass its number, max_keys_per_unit={self.max_keys_per_unit}, or leave {(fixed or ['method'])[0]} out."
            )
            raise InvalidValue(
                f"max_keys_per_unit is an earlier release that found keys before it counted them, which does not work "
                f"with {(fixed or ['method'])[0]}. {fix}",
                argument="max_keys_per_unit",
            )
        conflicts = ("known_keys", "scheme", "sample_size") if self.min_units > 1 else ()
        if given := [name for name in conflicts if getattr(self, name) is not None]:
            fix = "Leave out one of them."
            why = "answers every key of the list" if given[0] == "known_keys" else "samples keys by their true count"
            raise InvalidValue(f"min_units does not work with {given[0]}, which {why}. {fix}", argument="min_units")
        if self.known_keys is not None and (self.scheme is not None or self.sample_size is not None):
            raise InvalidValue("known_keys are all answered. Leave out scheme and sample_size.")
        if self.sample_size is not None and (self.scheme is not None or self.max_rows_per_key > 1):
            raise InvalidValue(
                "sample_size sets the scheme itself and counts units. Leave out scheme and max_rows_per_key."
            )

    @property
    def chooses_bound(self) -> bool:
        """Whether the bound on keys per unit is chosen privately."""
        return self.max_keys_per_unit == "auto"

    @property
    def two_steps(self) -> bool:
        """Whether keys are found first and then counted; with one key per unit, one step does both best."""
        counts = self.goal == "counts" and self.max_keys_per_unit != 1
        return bool(self.privacy_unit) and (counts or self.way == "two_steps")

    @property
    def contribution(self) -> "Contribution":
        """What one unit may add; one key where the bound is still to be chosen."""
        from dpsieve.privacy.guarantee import Contribution

        keys = self.max_keys_per_unit
        return Contribution(1 if keys == "auto" else keys, self.max_rows_per_key)


@dataclass(frozen=True, kw_only=True)
class CountsRequest(ReleaseRequest):
    """Counts that were made elsewhere."""

    max_keys_per_unit: int = argument("the number of counts that one unit may change.", 1)
    max_rows_per_key: int = argument("the amount by which one unit may change a count.", 1)
    keys_only: bool = argument("publish the keys without counts.", False)

    @classmethod
    def _needs_unit(cls, arguments: Mapping[str, Any]) -> bool:
        return False  # the counts are taken at the caller's word, and so is the unit

    def __post_init__(self) -> None:
        if cast(object, self.max_keys_per_unit) == "auto":
            raise InvalidValue("max_keys_per_unit='auto' needs the rows of units. Pass the bound of the counts.")
        super().__post_init__()
        if self.rows is not None:
            raise InvalidValue("key derives columns, and the rows are counted already. Name columns.", argument="key")
