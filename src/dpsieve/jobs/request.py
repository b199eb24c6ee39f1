"""A request: what a user wants. Library, command line and preview share this one value, so they cannot drift apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from dpsieve import validate
from dpsieve.accounting.exponential_picks import checked_picks
from dpsieve.channels.budget import check_budget, check_max_keys, check_max_rows
from dpsieve.engines import Columns
from dpsieve.engines.engine import unit_columns
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.noise.keys_per_unit import MOST
from dpsieve.privacy.contribution import Contribution
from dpsieve.privacy.guarantee import unit_words
from dpsieve.sampling.schemes import Scheme
from dpsieve.values.keys import check_names, known_table

MANY = 100  # keys that a unit may add to a discovery by default
GOALS = ("keys", "counts")
_LEAST = 0.01  # of epsilon, such that a hundredth of it still buys something
_KEY = "Name the column to publish, such as key='query', or several."


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every job on a table is told: columns, budget, and how many keys a unit may add, checked."""

    key: tuple[str, ...]
    epsilon: float
    delta: float
    privacy_unit: tuple[str, ...] = None  # type: ignore[assignment]  # one name, or None, may be given
    max_keys_per_unit: int = 1
    allow_null_units: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", _columns(self.key))
        self._check_bound()
        self._check_flags("allow_null_units")
        object.__setattr__(self, "privacy_unit", unit_columns(self.privacy_unit))
        if not self.privacy_unit:
            if self.contribution != Contribution():
                raise InvalidValue(
                    "more than one key or row of a unit needs a privacy_unit: without one each row is its own unit. "
                    "Name the column that says who is protected, such as privacy_unit='user_id'."
                )
        elif set(self.privacy_unit) <= set(self.key):
            raise InvalidValue("privacy_unit is among the keys, so every unit would be published. Name another column.")

    def _check_bound(self) -> None:
        check_max_keys(self.max_keys_per_unit, "max_keys_per_unit")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the request among the arguments of a function."""
        return cls(**{field.name: arguments[field.name] for field in fields(cls)})

    @property
    def contribution(self) -> Contribution:
        """How much one unit may add."""
        return Contribution(self.max_keys_per_unit)

    @property
    def columns(self) -> Columns:
        """What is read."""
        return Columns(self.key, self.privacy_unit)

    @property
    def unit(self) -> str:
        """Who is protected, in words."""
        return unit_words(self.privacy_unit)

    def _check_flags(self, *names: str) -> None:
        for name in names:
            if not isinstance(getattr(self, name), bool):
                given = type(getattr(self, name)).__name__
                raise InvalidType(f"{name} must be True or False, not {given}. Pass {name}=True, or leave it out.")


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest(Request):
    """The arguments of `dpsieve.release` that say what is wanted; see there for their meaning.

    What is left out is filled in: where units are named, and nothing else says how they are counted, their bound is
    chosen privately, and what it keeps is told.
    """

    max_keys_per_unit: int | Literal["auto"] | None = None  # type: ignore[assignment]
    max_rows_per_key: int = 1
    goal: str = "keys"
    scheme: Scheme | None = None
    sample_size: int | None = None
    mechanism: str = "auto"
    known_keys: Any = None
    keys_only: bool = False
    tell_kept: bool | None = None

    def __post_init__(self) -> None:
        validate.store(self, epsilon=validate.epsilon(self.epsilon))
        check_max_rows(self.max_rows_per_key, "max_rows_per_key")
        self._check_flags("keys_only", *(() if self.tell_kept is None else ("tell_kept",)))
        if not isinstance(self.goal, str) or self.goal not in GOALS:
            raise InvalidValue("goal is not known. Choose 'keys', to find most keys, or 'counts', for the best counts.")
        if self.max_keys_per_unit is None:
            free = not self._fixed("mechanism") and self.epsilon >= _LEAST
            object.__setattr__(self, "max_keys_per_unit", "auto" if free else 1)
        super().__post_init__()
        if self.tell_kept is None:
            tells = not self._fixed() and not self.keys_only and self.epsilon >= 2 * _LEAST
            object.__setattr__(self, "tell_kept", tells and self.contribution.keys <= MOST)
        self._check_together()
        if self.sample_size is not None:
            validate.whole("sample_size", self.sample_size, low=1, hint="Pass about how many keys to sample.")
            if self.scheme is not None or self.contribution.rows > 1:
                raise InvalidValue(
                    "sample_size sets the scheme itself and counts units. Leave out scheme and max_rows_per_key."
                )
        if self.known_keys is not None:
            if self.scheme is not None or self.sample_size is not None or self.keys_only:
                raise InvalidValue("known_keys are all answered. Leave out scheme, sample_size and keys_only.")
            object.__setattr__(self, "known_keys", known_table(self.known_keys, self.key))

    def _fixed(self, *more: str) -> list[str]:
        """Return the arguments that say how units are counted, so that nothing is chosen and told by default."""
        given = {"privacy_unit": not self.privacy_unit, "max_rows_per_key": self.max_rows_per_key != 1}
        given |= {"known_keys": self.known_keys is not None, "scheme": self.scheme is not None}
        given |= {"sample_size": self.sample_size is not None, "mechanism": self.mechanism != "auto"}
        return [name for name, fixes in given.items() if fixes and (name != "mechanism" or name in more)]

    def _check_together(self) -> None:
        """Refuse what does not go with a private choice, with telling what was kept, and with two steps."""
        asked: dict[str, tuple[bool, tuple[str, ...], float]] = {}
        asked["max_keys_per_unit='auto'"] = (self.chooses_bound, ("mechanism",), _LEAST)
        asked["tell_kept=True"] = (bool(self.tell_kept), (), 2 * _LEAST)
        asked["goal='counts'"] = (self.goal == "counts" and bool(self.privacy_unit), ("mechanism",), 2 * _LEAST)
        for words, (wanted, more, least) in asked.items():
            if not wanted:
                continue
            if (fixed := self._fixed(*more)) and fixed[0] == "privacy_unit":
                hint = "Name the column that says who is protected, such as privacy_unit='user_id'."
                raise InvalidValue(f"{words} needs a privacy_unit: without one each row is its own unit. {hint}")
            if fixed:
                raise InvalidValue(f"{words} does not work with {fixed[0]}. Leave out one of them.")
            if self.epsilon < least:
                raise InvalidValue(f"epsilon={self.epsilon:g} is too small for {words}. Pass {least} or more.")
            if self.contribution.keys > MOST:
                fix = "Leave it out, or bound units to fewer."
                raise InvalidValue(f"{words} works up to max_keys_per_unit={MOST}. {fix}")
        if self.goal == "counts" and self.keys_only:
            raise InvalidValue("goal='counts' and keys_only exclude each other. Leave out one of them.")

    def _check_bound(self) -> None:
        if isinstance(self.max_keys_per_unit, str) and not self.chooses_bound:
            raise InvalidValue("max_keys_per_unit is a text other than 'auto'. Pass 'auto', or a number such as 10.")
        if not self.chooses_bound:
            super()._check_bound()

    @property
    def chooses_bound(self) -> bool:
        """Whether the bound on keys per unit is chosen privately."""
        return self.max_keys_per_unit == "auto"

    @property
    def two_steps(self) -> bool:
        """Whether keys are found first and then counted; with one key a unit, one step does both best."""
        return self.goal == "counts" and bool(self.privacy_unit) and self.max_keys_per_unit != 1

    @property
    def discovers(self) -> bool:
        """Whether only keys are wanted, however that is done best."""
        return self.chooses_bound and self.keys_only

    @property
    def contribution(self) -> Contribution:
        """How much one unit may add; one key, where that is not chosen yet."""
        chosen = isinstance(self.max_keys_per_unit, int)
        return Contribution(self.max_keys_per_unit if chosen else 1, self.max_rows_per_key)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class DiscoverRequest(Request):
    """The arguments of `dpsieve.discover` that say what is wanted; see there for their meaning."""

    max_keys_per_unit: int | None = None  # type: ignore[assignment]
    mechanism: str = "auto"
    typical_keys: int | None = None

    def __post_init__(self) -> None:
        if self.max_keys_per_unit is None:
            validate.store(self, privacy_unit=unit_columns(self.privacy_unit))
            validate.store(self, max_keys_per_unit=MANY if self.privacy_unit else 1)
        super().__post_init__()
        check_budget(self.epsilon, self.delta)
        if self.typical_keys is not None:
            hint = "Pass how many keys a unit typically holds, from public knowledge."
            validate.whole("typical_keys", self.typical_keys, low=1, high=10_000, hint=hint)


@dataclass(frozen=True, kw_only=True)
class HitRequest(DiscoverRequest):
    """The arguments of `dpsieve.hitting_set` that say what is wanted; see there for their meaning."""

    k: int

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_picks(self.k)


@dataclass(frozen=True, kw_only=True)
class TopRequest(HitRequest):
    """The arguments of `dpsieve.top_k` that say what is wanted; see there for their meaning."""

    counts: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_flags("counts")
        if self.counts and self.mechanism not in ("auto", "renyi", "renyi_two_rounds"):
            fix = "Use mechanism='auto', 'renyi' or 'renyi_two_rounds', or leave counts out."
            raise InvalidValue(f"counts needs a mechanism that shares its budget. {fix}")


def _columns(key: str | Sequence[str]) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else key
    if not isinstance(names, Sequence) or not names:
        raise InvalidType(f"key must be a column name or a list of them. {_KEY}")
    columns = [validate.text("key", name, hint=_KEY) for name in names]
    check_names(columns)
    return tuple(columns)
