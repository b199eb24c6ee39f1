"""Which mechanisms a private sparse vector is made of, chosen from public numbers by their expected error."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self, cast

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidType, InvalidValue
from dpsieve.privacy.composed import Composed, Use, remaining
from dpsieve.privacy.guarantee import Guarantee
from dpsieve.privacy.mechanism import Mechanism
from dpsieve.vectors.alp_makers import alp
from dpsieve.vectors.bought_sizes import PrivateNorm, PrivateSparsity
from dpsieve.vectors.dense_laplace import MOST_ENTRIES, DenseLaplace
from dpsieve.vectors.embedding import UNITS, Embedding, Errors, Relation, relation
from dpsieve.vectors.entry_list import EntryList, entry_list
from dpsieve.vectors.max_projection import max_projection
from dpsieve.vectors.places import Dimension, checked_dimension
from dpsieve.vectors.rank_bound import WINDOW, least_starts
from dpsieve.vectors.retrieval import FEWEST_BITS, MOST_BITS, retrieval

VARIANTS = (
    "auto", "retrieval", "alp", "histogram", "multiplicative", "max_projection", "dense", "cormode", "korolova",
)  # fmt: skip
SHARE_FOR_SIZE = 0.05  # of epsilon, for the number of entries or their total, where none is promised
LIST_SHARES = (0.15, 0.25, 0.35, 0.5)  # of the rest, for large entries listed by name
BITS = 300.0  # an entry, of the variants with levels
LARGEST_COUNT = 2**20  # of 'retrieval', where no bound is given
MISS = 1e-6  # the chance that a bought size is too small, where that costs accuracy alone
_DENSE = 4096  # so few indices are answered one by one
_DENSE_BITS = 64


class Recipe(NamedTuple):
    """What is drawn: large entries listed by name, and cells for all of them; either may be left out."""

    entry_list: EntryList | None
    embedding: Embedding | None
    reason: str = ""

    def errors(self, value: float) -> Errors:
        """Return the distribution of estimate - value for an entry of this value, 0 for one that is not there."""
        rest = Errors.of(np.array([-value]), np.ones(1)) if self.embedding is None else self.embedding.errors(value)
        if self.entry_list is None:
            return rest
        share, listed = self.entry_list.listed(value)
        return listed.mixed(rest, share)

    def expected_error(self, largest: float) -> float:
        """Return the mean error of an entry that is not there, one half way to the largest value, and the largest."""
        return float(np.mean([self.errors(value).mean for value in (0.0, largest // 2, largest)]))


@dataclass(frozen=True)
class Ask:
    """What a user wants of a private sparse vector, checked; see `SparseVector.private`."""

    neighbours: Relation
    dimension: Dimension
    epsilon: float
    delta: float
    variant: str
    max_value: float | None
    sparsity: int | None
    total: float | None
    signed: bool
    threshold: bool | None
    bits: float | None
    alpha: float | None
    unit: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Take the arguments by their names, and check them."""
        asked = {field.name: given[field.name] for field in fields(cls)}
        asked["unit"] = asked["unit"] or UNITS[relation(asked["neighbours"])]
        return cls(**asked)

    def __post_init__(self) -> None:
        if not isinstance(self.variant, str) or self.variant not in VARIANTS:
            raise InvalidValue(f"variant is not known. Choose one of {', '.join(VARIANTS)}.")
        if not isinstance(self.signed, bool) or not (self.threshold is None or isinstance(self.threshold, bool)):
            raise InvalidType("signed and threshold must be True or False.")
        positive = {
            "max_value": "Pass a bound on values, such as max_value=1000.",
            "total": "Pass a bound on the sum of all values.",
            "bits": "Pass how many bits to use for an entry, such as bits=300.",
            "alpha": "Pass a number such as alpha=3.0.",
        }
        checked = {
            name: validate.between(name, getattr(self, name), 1e-9, 2.0**53, hint=hint)
            for name, hint in positive.items()
            if getattr(self, name) is not None
        }
        if self.sparsity is not None:
            hint = "Pass a bound on the number of entries, such as sparsity=100_000."
            checked["sparsity"] = validate.whole("sparsity", self.sparsity, low=1, high=10**9, hint=hint)
        validate.store(
            self,
            neighbours=relation(self.neighbours),
            dimension=checked_dimension(self.dimension),
            epsilon=validate.positive_epsilon(self.epsilon),
            delta=validate.delta(self.delta),
            **checked,
        )
        validate.store(self, unit=self.guarantee.unit)
        self._refuse()

    def _refuse(self) -> None:
        """Raise where the variant cannot do what is asked."""
        variant = self.chosen
        if variant in ("retrieval", "histogram") and self.neighbours == "l1":
            why = "as one unit of l1 distance may change many entries"
            raise InvalidValue(f"variant={variant!r} is for neighbours='one_entry', {why}. Use variant='alp'.")
        if variant in ("retrieval", "korolova") and self.delta == 0:
            raise InvalidValue(f"variant={variant!r} needs a delta above zero. Pass delta=1e-8.")
        if variant in ("dense", "cormode") and isinstance(self.dimension, str):
            why = "noise goes to every index that there is, and keys have no last one"
            raise InvalidValue(f"variant={variant!r} needs a number as dimension: {why}.")
        if variant in ("dense", "cormode", "korolova", "retrieval") and self.threshold is not None:
            raise InvalidValue(f"threshold is not for variant={variant!r}. Leave it out.")
        if variant not in ("alp", "histogram", "multiplicative") and self.alpha is not None:
            raise InvalidValue(f"alpha is not for variant={variant!r}. Leave it out.")
        if variant == "max_projection" and self.signed:
            raise InvalidValue("signed is not for variant='max_projection', of largest values. Use variant='alp'.")
        levels = variant not in ("dense", "cormode", "korolova", "retrieval")
        if levels and not self._may_list and (self.threshold or self._top is None):
            why = "needs a number as dimension, or a delta above zero, since it could list any key falsely"
            raise InvalidValue(f"a list of large entries {why}. Pass max_value and no threshold, or delta=1e-8.")
        if levels and self._top is None and self.threshold is False:
            raise InvalidValue("threshold=False needs a bound on values. Pass max_value.")

    @cached_property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return Guarantee(self.epsilon, self.delta, unit=self.unit)

    @cached_property
    def chosen(self) -> str:
        """The variant: the one that was asked for, or the one with the least expected error of its kind."""
        if self.variant != "auto":
            return self.variant
        if not isinstance(self.dimension, str) and self.dimension <= MOST_ENTRIES:
            budget = (self.bits or BITS) * (self.sparsity or 0)
            if self.dimension <= _DENSE or _DENSE_BITS * self.dimension <= budget:
                return "dense"
        if self.neighbours == "l1":
            return "alp"
        return "retrieval" if self.delta else "histogram"

    @cached_property
    def bought(self) -> PrivateSparsity | PrivateNorm | None:
        """What tells the size, where none is promised and one is needed."""
        if self.sparsity or self.total or self.chosen in ("dense", "cormode", "korolova"):
            return None
        share = self.epsilon * SHARE_FOR_SIZE
        if self.neighbours == "l1":
            return PrivateNorm(share, MISS, "l1", self.unit)
        if self.chosen == "retrieval":
            return PrivateSparsity(share, self.delta / 2, unit=self.unit, needed=True)
        return PrivateSparsity(share, MISS, unit=self.unit)

    def recipe(self, size: int | None = None) -> Recipe:
        """Return what is drawn, given the size that was bought, if any was."""
        spent = 0.0 if self.bought is None else self.bought.guarantee.epsilon
        epsilon = remaining(self.epsilon, spent) if spent else self.epsilon
        if self.chosen == "dense":
            made = DenseLaplace(epsilon, self.neighbours, cast(int, self.dimension), self.signed, self.unit)
            return Recipe(None, made, "few indices: noise on each of them")
        if self.chosen in ("cormode", "korolova"):
            return Recipe(self._list(epsilon, self.delta if self.chosen == "korolova" else 0.0), None, "as asked for")
        sized = replace(self, variant=self.chosen)
        if size is not None:
            sized = replace(sized, total=size) if self.neighbours == "l1" else replace(sized, sparsity=size)
        if self.chosen == "retrieval":
            return sized._retrieval(epsilon, remaining(self.delta, self.bought.guarantee.delta if self.bought else 0.0))
        other = self.variant == "auto" and not self.signed and self.alpha is None
        variants = (self.chosen, "max_projection") if other else (self.chosen,)
        tried = [one for variant in variants for one in replace(sized, variant=variant)._cells_or_both(epsilon)]
        reach = [2 * made.entry_list.threshold for made in tried if made.entry_list is not None]
        largest = sized._top if sized._top is not None else max(reach)
        return min(tried, key=lambda made: made.expected_error(largest))

    def mechanism(self, recipe: Recipe) -> Mechanism:
        """Return all that is drawn as one mechanism with the guarantee that was asked for."""
        parts = [part for part in (self.bought, recipe.entry_list, recipe.embedding) if part is not None]
        return parts[0] if len(parts) == 1 else Composed(self.epsilon, self.delta, tuple(Use(part) for part in parts))

    def _retrieval(self, epsilon: float, delta: float) -> Recipe:
        count = self.sparsity or math.ceil(self.total or 1)
        most = math.floor(min(self.max_value or LARGEST_COUNT, self.total or math.inf)) or 1
        bits = self._cell_bits(count, delta)
        made = retrieval(epsilon, delta, count, most, signed=self.signed, bits=bits, unit=self.unit)
        return Recipe(None, made, "delta allows the values themselves, behind a random linear system")

    def _cells_or_both(self, epsilon: float) -> list[Recipe]:
        """Return cells for all values, and cells beside a list of large entries, as far as they are allowed."""
        made = []
        if self._top is not None and self.threshold is not True:
            made.append(Recipe(None, self._cells(epsilon, self._top), f"{self.variant} for all values"))
        proportional = self.variant == "multiplicative" and bool(made)  # its aim is no small error of large values
        if self._may_list and self.threshold is not False and not proportional:
            for share in LIST_SHARES:
                part = self._list(epsilon * share, self.delta)
                cells = self._cells(remaining(epsilon, part.epsilon), part.threshold)
                why = f"large entries by name with {share:.0%} of the budget, {self.variant} for smaller values"
                made.append(Recipe(part, cells, why))
        return made

    def _cells(self, epsilon: float, largest: float) -> Embedding:
        near: Relation = "l1" if self.variant == "alp" else self.neighbours  # the loss of Algorithm 4 is that of l1
        bits: dict[str, Any] = {} if self.bits is None else {"bits": self.bits}
        if self.variant == "max_projection":
            # Section 2.8: with a total n, the error by collisions is at most n / places, here about 1 / (4 epsilon).
            count = self.sparsity or max(1, math.ceil((self.total or 1.0) * epsilon / 8))
            return max_projection(epsilon, count, largest, neighbours=near, unit=self.unit, **bits)
        alpha = None if self.alpha is None else self.alpha * epsilon if near == "one_entry" else self.alpha
        shape = "geometric" if self.variant == "multiplicative" else "even"
        more = {"neighbours": near, "shape": shape, "signed": self.signed, "unit": self.unit, **bits}
        if self.sparsity:
            return alp(epsilon, self.sparsity, largest, alpha=alpha, **more)
        total = self.total or 1.0  # entries at the first level or above are at most about total / gap
        guess = alp(epsilon, max(1, math.ceil(total * epsilon / 3)), largest, alpha=alpha, **more)
        return alp(epsilon, max(1, math.ceil(total / guess.gap)), largest, alpha=guess.gap * epsilon, **more)

    def _list(self, epsilon: float, delta: float) -> EntryList:
        near, signed, unit = self.neighbours, self.signed, self.unit
        return entry_list(epsilon, delta, neighbours=near, dimension=self.dimension, signed=signed, unit=unit)

    @property
    def _top(self) -> float | None:
        """The largest value that is told apart, where a bound is known."""
        bounds = [bound for bound in (self.max_value, self.total) if bound is not None]
        return max(min(bounds), 1.0 if self.neighbours == "one_entry" else 0.0) if bounds else None

    @property
    def _may_list(self) -> bool:
        """Whether large entries can be listed by name."""
        return bool(self.delta) or not isinstance(self.dimension, str)

    def _cell_bits(self, count: int, delta: float) -> int | None:
        """Return the bits of a cell of a retrieval table that has `bits` bits an entry."""
        if self.bits is None:
            return None
        return min(max(int(self.bits * count / (least_starts(count, delta) + WINDOW)), FEWEST_BITS), MOST_BITS)
