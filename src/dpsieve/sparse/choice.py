"""The request for a private sparse vector, and its mechanisms, chosen from public numbers by their expected error."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn, Self, cast, get_args

import numpy as np

from dpsieve import validate
from dpsieve.errors import InvalidValue
from dpsieve.privacy.guarantee import Guarantee, unit_words
from dpsieve.privacy.mechanism import Composed, Mechanism, Use, remaining
from dpsieve.sparse.alp import Alp, alp
from dpsieve.sparse.digests import AnyDimension
from dpsieve.sparse.embedding import UNITS, Embedding, Errors, Flag, Relation, VectorRelation, check_flag
from dpsieve.sparse.entry_list import EntryList, entry_list
from dpsieve.sparse.grid_noise import PrivateNorm, PrivateSparsity
from dpsieve.sparse.noisy_tables import MOST_ENTRIES, DenseLaplace, max_projection
from dpsieve.sparse.retrieval import FEWEST_BITS, MOST_BITS, WINDOW, least_starts, retrieval
from dpsieve.validate import Check, Checked, Delta, is_between, is_whole, positive_epsilon

Variant = Literal["auto", "retrieval", "alp", "histogram", "max_projection", "dense"]
_OF_THESIS = ("multiplicative", "cormode", "korolova")
SHARE_FOR_SIZE = 0.05  # of epsilon, for the number of entries or their total, where none is promised
LIST_SHARES = (0.15, 0.25, 0.35, 0.5)  # of the rest, for large entries listed by name
BITS = 300.0  # an entry, of the variants with levels
LEAST_FOR_RETRIEVAL = 0.01  # epsilon, of 'auto': tables of noise get long below
MOST_FOR_RETRIEVAL = 2**28  # beyond that, rare answers far off weigh more than the noise
LARGEST_COUNT = 2**20  # of 'retrieval', if no bound is given
REFERENCE = 10**6  # entries, at which variants are compared: errors depend on bits per entry, not on entries
MOST_SIZE, _MOST_TOTAL = 10**9, 2**36  # caps of estimated sizes
MISS = 1e-6  # the probability that an estimated size is too small, where that costs only accuracy
_LONGEST = 1000
_DENSE = 4096  # so few indices get noise each
_DENSE_BITS = 64


def _optional(check: Check) -> Check:
    return lambda value, name: value if value is None else check(value, name)


def _positive(hint: str) -> Check:
    return _optional(is_between(1e-9, 2.0**53, hint))


_SIZE = "Pass a bound on the number of entries, such as sparsity=100_000."


class Recipe(NamedTuple):
    """The mechanisms of a vector: large entries listed by name, and cells for all entries; either may be None."""

    entry_list: EntryList | None
    embedding: Embedding | None
    reason: str = ""

    def errors(self, value: float) -> Errors:
        """Return the distribution of estimate - value for an entry of this value, 0 for an absent one."""
        value = validate.real("value", value, hint="Pass the value of an entry, 0 for one that is not there.")
        rest = Errors.of(np.array([-value]), np.ones(1)) if self.embedding is None else self.embedding.errors(value)
        if self.entry_list is None:
            return rest
        share, listed = self.entry_list.listed(value)
        return listed.mix(rest, share)

    def expected_error(self, values: Iterable[float]) -> float:
        """Return the mean error over entries of these values, 0 for an absent one."""
        return float(np.mean([self.errors(value).mean for value in values]))


class Cells(NamedTuple):
    """A choice of cells: variant, budget, largest value, distance of levels, and the recipe."""

    variant: str
    epsilon: float
    largest: float
    alpha: float | None
    recipe: Recipe


@dataclass(frozen=True)
class VectorRequest(Checked):
    """The validated arguments of `SparseVector.private`."""

    variants: ClassVar[tuple[str, ...]] = get_args(Variant)
    with_cells: ClassVar[tuple[str, ...]] = ("alp", "histogram", "max_projection")
    """Those with levels or maxima, beside which large entries may be listed by name."""

    neighbours: VectorRelation
    dimension: AnyDimension
    epsilon: Annotated[float, positive_epsilon]
    delta: Delta
    variant: str
    max_value: Annotated[float | None, _positive("Pass a bound on values, such as max_value=1000.")]
    sparsity: Annotated[int | None, _optional(is_whole(1, MOST_SIZE, _SIZE))]
    total: Annotated[float | None, _positive("Pass a bound on the sum of all absolute values.")]
    signed: Flag
    threshold: Annotated[bool | None, _optional(check_flag)]
    bits: Annotated[float | None, _positive("Pass how many bits to use per entry, such as bits=300.")]
    alpha: Annotated[float | None, _positive("Pass a number such as alpha=3.0.")]
    unit: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return a request from arguments by name."""
        return cls(**{field.name: given[field.name] for field in fields(cls)})

    def __post_init__(self) -> None:
        if self.variant in _OF_THESIS and self.variant not in self.variants:
            hint = "Use dpsieve.papers.thesis.private_vector."
            raise InvalidValue(f"variant={self.variant!r} is for comparison. {hint}", argument="variant")
        if not isinstance(self.variant, str) or self.variant not in self.variants:
            raise InvalidValue(f"variant is not known. Choose one of {', '.join(self.variants)}.", argument="variant")
        super().__post_init__()
        validate.store(self, unit=unit_words(self.unit or UNITS[self.neighbours]))
        if len(self.unit) > _LONGEST:
            hint = "Use a shorter unit description."
            raise InvalidValue(f"unit is longer than 1,000 characters. {hint}", argument="unit")
        self.check_variant()

    def check_variant(self) -> None:
        """Raise if the variant does not support the request."""
        variant = self.chosen
        if variant in ("retrieval", "histogram") and self.neighbours == "l1":
            why = "as one unit of l1 distance may change many entries"
            self.refuse("neighbours", f"'one_entry', {why}. Use variant='alp'")
        if variant == "retrieval" and self.delta == 0:
            self.refuse("delta", "a delta above zero. Pass delta=1e-8")
        if variant == "dense" and isinstance(self.dimension, str):
            self.refuse("dimension", "a number: noise goes to every index that there is, and keys have no last one")
        if variant not in self.with_cells and self.threshold is not None:
            self.refuse("threshold", "None. Leave it out")
        if (variant not in self.with_cells or variant == "max_projection") and self.alpha is not None:
            self.refuse("alpha", "None. Leave it out")
        if variant not in self.with_cells:
            return
        if not self._can_list and (self.threshold or self._largest_value is None):
            why = "needs a number as dimension, or keys of one kind and a delta above zero"
            hint = "Pass max_value and no threshold, or delta=1e-8."
            raise InvalidValue(f"a list of large entries {why}. {hint}", argument="threshold")
        if self._largest_value is None and self.threshold is False:
            raise InvalidValue("threshold=False needs a bound on values. Pass max_value.", argument="threshold")

    def refuse(self, argument: str, needed: str) -> NoReturn:
        """Raise for an argument that the variant does not support."""
        raise InvalidValue(f"{argument} of variant={self.variant!r} must be {needed}.", argument=argument)

    @cached_property
    def guarantee(self) -> Guarantee:
        """The promise."""
        return Guarantee(self.epsilon, self.delta, unit=self.unit)

    @property
    def counted(self) -> float:
        """The largest value that counts for the estimated size."""
        return self.cells.largest if self.neighbours == "l1" else math.inf

    @cached_property
    def chosen(self) -> str:
        """The requested variant, or the one with the least expected error."""
        if self.variant != "auto":
            return self.variant
        if not isinstance(self.dimension, str) and self.dimension <= MOST_ENTRIES:
            budget = (self.bits or BITS) * (self.sparsity or 0)
            if self.dimension <= _DENSE or _DENSE_BITS * self.dimension <= budget:
                return "dense"
        if self.neighbours == "l1":
            return "alp"
        fits = self.epsilon >= LEAST_FOR_RETRIEVAL and (self.max_value or 0) <= MOST_FOR_RETRIEVAL
        return "retrieval" if self.delta and fits else "histogram"

    @cached_property
    def size(self) -> PrivateSparsity | PrivateNorm | None:
        """The mechanism that estimates the size, where none is promised and one is needed."""
        if self.sparsity or self.total or self.chosen == "dense":
            return None
        share = self.epsilon * SHARE_FOR_SIZE
        if self.neighbours == "l1":
            return PrivateNorm(share, MISS, "l1", self.unit)
        if self.chosen == "retrieval":
            return PrivateSparsity(share, self.delta / 2, unit=self.unit, needed=True)
        return PrivateSparsity(share, MISS, unit=self.unit)

    def recipe(self, size: int | None = None) -> Recipe:
        """Return the mechanisms, given the estimated size, if any."""
        if self.chosen == "dense":
            dense = DenseLaplace(self.epsilon, self.neighbours, cast(int, self.dimension), self.signed, self.unit)
            return Recipe(None, dense, "few indices: noise on each of them")
        count, total = self.sparsity, self.total
        if size is not None:
            count, total = (None, min(size, _MOST_TOTAL)) if self.neighbours == "l1" else (min(size, MOST_SIZE), None)
        if self.chosen == "retrieval":
            return self._retrieval(count or math.ceil(total or 1))
        best = self.cells
        return best.recipe._replace(
            embedding=self.make_cells(best.variant, best.epsilon, best.largest, best.alpha, count, total)
        )

    def mechanism(self, recipe: Recipe) -> Mechanism:
        """Return the composed mechanism with the requested guarantee."""
        parts = [part for part in (self.size, recipe.entry_list, recipe.embedding) if part is not None]
        return parts[0] if len(parts) == 1 else Composed(self.epsilon, self.delta, tuple(Use(part) for part in parts))

    @property
    def cells(self) -> "Cells":
        """Levels or maxima, with or without a list of large entries: the least error for a million entries."""
        return _best_cells(self)

    def best_cells(self) -> "Cells":
        """Compute `cells`: the least mean error of absent entries, of small and of middling ones, and of the largest.

        Small is about twice the noise 1/epsilon, and middling 12 times: below where entries are listed by name.
        """
        other = self.variant == "auto" and self.alpha is None
        tried = [cells for variant in (self.chosen, *["max_projection"] * other) for cells in self.try_cells(variant)]
        largest = self._largest_value or 2 * max(cells.largest for cells in tried)
        step = 1 / self.epsilon if self.neighbours == "l1" else max(1.0, 1 // self.epsilon)
        values = [min(value, largest) for value in (0.0, 2 * step, 12 * step, largest)]
        return min(tried, key=lambda cells: cells.recipe.expected_error(values))

    def try_cells(self, variant: str) -> Iterator["Cells"]:
        """Yield cells for all values, and cells beside a list of large entries, where the request allows them."""
        epsilon, largest = self.remaining_epsilon, self._largest_value
        plain = largest is not None and self.threshold is not True
        if largest is not None and plain:
            yield self._with_cells(variant, epsilon, largest, None, f"{variant} for all values")
        if self._can_list and self.threshold is not False:
            for share in LIST_SHARES:
                part = self.make_list(epsilon * share, self.delta)
                if plain and part.threshold >= (largest or 0.0):  # nothing would be listed
                    continue
                why = f"large entries by name with {share:.0%} of the budget, {variant} for smaller values"
                yield self._with_cells(variant, remaining(epsilon, part.epsilon), part.threshold, part, why)

    def _with_cells(
        self, variant: str, epsilon: float, largest: float, entry_list: EntryList | None, reason: str
    ) -> "Cells":
        cells = self.make_cells(variant, epsilon, largest, self.alpha, REFERENCE, None)
        alpha = cells.gap * (1.0 if cells.neighbours == "one_entry" else epsilon) if isinstance(cells, Alp) else None
        return Cells(variant, epsilon, largest, alpha, Recipe(entry_list, cells, reason))

    def make_cells(
        self, variant: str, epsilon: float, largest: float, alpha: float | None, count: int | None, total: float | None
    ) -> Embedding:
        """Return the cells for values up to the largest, given a number of entries or their total."""
        bits = self.bits or BITS
        if variant == "max_projection":
            # Section 2.8: with a total n, the error by collisions is at most n / places, here about 1 / (4 epsilon).
            count = count or max(1, math.ceil((total or 1.0) * epsilon / 8))
            shape: dict[str, Any] = {"bits": bits, "signed": self.signed, "unit": self.unit}
            return max_projection(epsilon, count, largest, neighbours=self.neighbours, **shape)
        relation: Relation = "l1" if variant == "alp" else self.neighbours  # the loss of Algorithm 4 is that of l1
        if alpha is not None and relation == "one_entry":
            alpha *= epsilon
        # With a total n, entries at the first level or above are at most about n / gap.
        count = count or max(1, math.ceil((total or 1.0) * epsilon / (alpha or 1.0)))
        shape = {"alpha": alpha, "bits": bits, "signed": self.signed, "unit": self.unit}
        return self.make_levels(epsilon, count, largest, neighbours=relation, **shape)

    make_levels: ClassVar[Callable[..., Alp]] = staticmethod(alp)

    def _retrieval(self, count: int) -> Recipe:
        delta = remaining(self.delta, self.size.guarantee.delta) if self.size else self.delta
        most = math.floor(min(self.max_value or LARGEST_COUNT, self.total or math.inf)) or 1
        room, bits = least_starts(count + 1, delta) + WINDOW, None
        if self.bits is not None:
            bits = min(max(int(self.bits * count / room), FEWEST_BITS), MOST_BITS)
        try:
            table = retrieval(self.remaining_epsilon, delta, count, most, signed=self.signed, bits=bits, unit=self.unit)
        except InvalidValue:
            few = f", with bits={self.bits:g} per entry" if bits else ""
            why = f"values up to {most:,} cannot be distinguished at epsilon={self.epsilon:g}{few}"
            fix = "Pass a lower max_value, other bits, or variant='max_projection'."
            raise InvalidValue(f"variant='retrieval' does not fit: {why}. {fix}", argument="max_value") from None
        reason = "delta allows the values themselves, behind a random linear system"
        promise = "" if self.size else f"; private as long as there are at most {count:,} entries"
        return Recipe(None, table, reason + promise)

    def make_list(self, epsilon: float, delta: float) -> EntryList:
        """Return the list of large entries for a part of the budget."""
        near, signed, unit = self.neighbours, self.signed, self.unit
        return entry_list(epsilon, delta, neighbours=near, dimension=self.dimension, signed=signed, unit=unit)

    @property
    def remaining_epsilon(self) -> float:
        """The part of epsilon that the size does not use."""
        return self.epsilon if self.size is None else remaining(self.epsilon, self.size.guarantee.epsilon)

    @property
    def _largest_value(self) -> float | None:
        """The largest value that is represented, where a bound is known."""
        bounds = [bound for bound in (self.max_value, self.total) if bound is not None]
        return max(min(bounds), 1.0 if self.neighbours == "one_entry" else 0.0) if bounds else None

    @property
    def _can_list(self) -> bool:
        """Whether large entries can be listed by name."""
        return self.dimension != "any" and (bool(self.delta) or not isinstance(self.dimension, str))


@dataclass(frozen=True)
class VectorPreview:
    """What a private vector would be, from public numbers.

    Attributes:
        guarantee: what it would promise.
        variant: of the cells, or of the list where there are no cells.
        reason: why.
        recipe: the mechanisms of listed entries and of cells.
        entries: the number of entries that sizes and errors are for.
    """

    guarantee: Guarantee
    variant: str
    reason: str
    recipe: Recipe
    entries: int

    def errors(self, value: float = 0.0) -> Errors:
        """Return the distribution of estimate - value, as `SparseVector.errors`."""
        return self.recipe.errors(value)

    def expected_error(self, value: float = 0.0) -> float:
        """Return the mean of |estimate - value|."""
        return self.errors(value).mean

    def error_bound(self, level: float = 0.95, value: float = 0.0) -> float:
        """Return the least b with P[|estimate - value| <= b] >= level."""
        return self.errors(value).bound(level)

    @property
    def listed_from(self) -> float | None:
        """The value from which an entry is listed by name half of the time; None where none is."""
        return None if self.recipe.entry_list is None else self.recipe.entry_list.threshold

    @property
    def bits_per_entry(self) -> float:
        """The bits of the cells per entry; listed entries take 128 each beside them."""
        return 0.0 if self.recipe.embedding is None else 64 * self.recipe.embedding.words / self.entries

    def __str__(self) -> str:
        listed = (
            "" if self.listed_from is None else f"; entries from about {self.listed_from:,.4g} on are listed by name"
        )
        errors = f"mean error of an absent entry {self.expected_error():.3g}, 95 % within {self.error_bound():.3g}"
        size = f"{self.bits_per_entry:.0f} bits per entry"
        return f"{self.variant}: {self.reason}{listed}\n{self.guarantee}\n{errors}; {size}"


def preview_vector(request: VectorRequest) -> VectorPreview:
    """Return the preview of a request."""
    recipe = request.recipe(None if request.size is None else REFERENCE)
    variant = recipe.embedding.name if recipe.embedding is not None else request.variant
    cells: Any = recipe.embedding
    entries: Any = request.sparsity or getattr(cells, "sparsity", getattr(cells, "dimension", REFERENCE))
    guarantee = (request.mechanism(recipe) if request.size is None else request).guarantee
    return VectorPreview(guarantee, variant, recipe.reason, recipe, entries)


@lru_cache(maxsize=64)
def _best_cells(request: VectorRequest) -> Cells:
    return request.best_cells()
