"""The requests of keys without counts, of the k most common keys, and of hitting sets."""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.jobs.request import FEW_KEYS, KEYS_PER_UNIT, KeyRequest, ReleaseRequest, argument
from dpsieve.validate import SelectorName


@dataclass(frozen=True, kw_only=True)
class DiscoverRequest(KeyRequest):
    """Keys without counts."""

    max_keys_per_unit: int = argument(
        f"the number of keys that a unit may add; default {KEYS_PER_UNIT}, or 1 where each row is a unit. By default a "
        "top-k chooses it as a release does; with a named method the order counts all keys of a unit.",
        None, alias="max-keys",
    )  # fmt: skip
    method: SelectorName = argument(
        "'auto', or the name of a selector: 'renyi', 'renyi_two_rounds', 'greedy', 'one_key', 'weighted_gaussian', "
        "'policy_gaussian', 'policy_greedy', 'repeated_rounds'.",
        "auto", choices=SelectorName,
    )  # fmt: skip
    typical_keys: int | None = argument(
        "the number of distinct keys that a unit typically holds, if that is public: 'auto' chooses by it, and "
        "'renyi' and 'renyi_two_rounds' are made for it. Without it, 1 % of epsilon pays for a private median. Above "
        "2, a top-k selects keys by 'renyi' and picks among them.", None,
    )  # fmt: skip

    def __post_init__(self) -> None:
        from dpsieve.validate import check_budget, check_max_keys

        super().__post_init__()
        if cast(object, self.max_keys_per_unit) is None:
            validate.store(self, max_keys_per_unit=KEYS_PER_UNIT if self.privacy_unit else 1)
        validate.store(self, max_keys_per_unit=check_max_keys(self.max_keys_per_unit, "max_keys_per_unit"))
        self._check_units(self.max_keys_per_unit > 1)
        check_budget(self.epsilon, self.delta)
        if self.typical_keys is not None:
            hint = "Pass the number of keys that a unit typically holds, from public knowledge."
            typical = validate.whole("typical_keys", self.typical_keys, low=1, high=10_000, hint=hint)
            validate.store(self, typical_keys=typical)


@dataclass(frozen=True, kw_only=True)
class HittingSetRequest(DiscoverRequest):
    """k keys that reach most units."""

    k: int = argument("the number of keys to find, up to 1,000.")

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "Pass the number of keys to find, such as k=10."
        validate.store(self, k=validate.whole("k", self.k, low=1, high=1_000, hint=hint))


@dataclass(frozen=True, kw_only=True)
class TopKRequest(HittingSetRequest):
    """The k keys that most units hold. `release` is the request for the release that they come from, if any."""

    release: ClassVar[ReleaseRequest | None] = None

    counts: bool = argument(
        "publish the noisy counts too: those of the release, or for a named method counts of all keys of a unit, for a "
        "fifth of the budget that selection leaves.", False,
    )  # fmt: skip

    def __post_init__(self) -> None:
        bound = cast("int | None", self.max_keys_per_unit)
        super().__post_init__()
        one_key = self.method == "one_key"
        if one_key or (self.method == "auto" and (self.typical_keys or 1) <= FEW_KEYS):
            validate.store(self, release=self._release(1 if one_key else "auto" if bound is None else bound))
        elif self.counts and self.method not in ("auto", "renyi", "renyi_two_rounds"):
            fix = "Use method='auto', 'renyi' or 'renyi_two_rounds', or leave counts out."
            raise InvalidValue(f"counts needs a method that shares its budget. {fix}")

    def _release(self, bound: int | Literal["auto"]) -> ReleaseRequest:
        names = ("privacy_unit", "epsilon", "delta", "allow_null_units", "key", "min_units")
        request = ReleaseRequest(**{name: getattr(self, name) for name in names}, max_keys_per_unit=bound)
        validate.store(request, where=self.where, rows=self.rows)
        return request
