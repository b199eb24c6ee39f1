"""Sparse vectors that are never the best choice: lists of large entries alone, and levels for a multiplicative error.

- 'cormode' (Algorithm 6 of the thesis; Cormode, Procopiuc, Srivastava and Tran 2012) and 'korolova' (Algorithm 9;
  Korolova, Kenthapadi, Mishra and Ntoulas 2009) list large entries by name and answer 0 for the others: `EntryList`.
- 'multiplicative' (Section 2.6) is ALP whose levels lie farther and farther apart: an error in proportion to the value,
  for far fewer columns. Levels are linear in between and begin at 0, so no logarithm of data is taken and small values
  stay distinct. The guarantee of `Alp` holds for any levels, by their least distance.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dpsieve.codec import register
from dpsieve.privacy.ledger import AnyLedger
from dpsieve.randomness.source import Source

from dpsieve.sparse.alp import (  # isort: skip
    FLIP_BITS, Alp, check_levels, check_shape, least_flips, level_edges, round_gap, search_gap,
)  # fmt: skip
from dpsieve.sparse.choice import Cells, Recipe, VectorPreview, VectorRequest
from dpsieve.sparse.choice import preview_vector as preview
from dpsieve.sparse.digests import Dimension
from dpsieve.sparse.embedding import Relation
from dpsieve.sparse.grid_noise import PrivateNorm, PrivateSparsity
from dpsieve.sparse.vector import SparseVector, release_vector
from dpsieve.types import Floats
from dpsieve.validate import is_between

_LEAST_ALPHA, _LARGEST_ALPHA = 2.5, 20.0  # Section 2.6: between them is the best multiplicative error

ThesisVariant = Literal["cormode", "korolova", "multiplicative"]


@register("alp_geometric")
@dataclass(frozen=True, repr=False)
class GeometricAlp(Alp):
    """ALP with levels `gap`, gap * ratio, gap * ratio^2, ... apart.

    Attributes:
        ratio: of a distance to the one before; distances are rounded to whole numbers, or to 20 bits below the gap.
    """

    ratio: Annotated[float, is_between(1.0, 2.0**20, "Pass the ratio of distances.")] = field(kw_only=True)

    @cached_property
    def edges(self) -> Floats:
        return level_edges(self.gap, _ends(self.ratio, self.levels), self.neighbours)


def _ends(ratio: float, levels: int) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(np.cumsum(np.cumprod(np.full(levels, ratio)) / ratio))


def geometric_alp(
    epsilon: float,
    sparsity: int,
    max_value: float,
    *,
    neighbours: Relation,
    alpha: float | None = None,
    bits: float = 300.0,
    signed: bool = False,
    unit: str = "",
) -> GeometricAlp:
    """Return ALP with geometric levels; the arguments are those of `sparse.alp.alp`.

    >>> made = geometric_alp(1.0, 1000, 1e6, neighbours="l1", alpha=5.0)
    >>> made.levels, round(made.ratio, 3)
    (60, 1.195)
    """
    near, top, bits, alpha = check_shape(epsilon, sparsity, neighbours, max_value, bits, alpha)

    def make(gap: float) -> GeometricAlp:
        flips = least_flips(epsilon, near, Fraction(gap))
        p = flips / 2**FLIP_BITS
        check_levels(flips, 1)
        ratio = (4 * p * (1 - p)) ** -0.25
        levels = max(math.ceil(math.log1p(top * (ratio - 1) / gap) / math.log(ratio)), 1)
        check_levels(flips, levels)
        while (edges := level_edges(gap, _ends(ratio, levels), near))[-1] < top:
            levels += 1
        flips = least_flips(epsilon, near, Fraction(float(np.diff(edges).min())))
        places = max(int(bits * sparsity / (2 * levels if signed else levels)), 1)
        return GeometricAlp(epsilon, near, sparsity, levels, places, flips, gap, signed=signed, unit=unit, ratio=ratio)

    if alpha is not None:
        return make(round_gap(alpha / epsilon, near))
    return search_gap(make, _LEAST_ALPHA / epsilon, _LARGEST_ALPHA / epsilon, top, near)


@dataclass(frozen=True)
class ThesisRequest(VectorRequest):
    """The validated arguments of `private_vector`."""

    variants: ClassVar[tuple[str, ...]] = ("multiplicative", "cormode", "korolova")
    with_cells: ClassVar[tuple[str, ...]] = ("multiplicative",)
    make_levels: ClassVar[Callable[..., Alp]] = staticmethod(geometric_alp)

    def check_variant(self) -> None:
        super().check_variant()
        if self.variant == "korolova" and self.delta == 0:
            self.refuse("delta", "above zero. Pass delta=1e-8")
        if self.variant == "korolova" and self.dimension == "any":
            self.refuse("dimension", "a kind of keys that can be listed by name")
        if self.variant == "cormode" and isinstance(self.dimension, str):
            self.refuse("dimension", "a number: noise goes to every index that there is, and keys have no last one")

    @cached_property
    def size(self) -> PrivateSparsity | PrivateNorm | None:
        return super().size if self.variant == "multiplicative" else None

    def recipe(self, size: int | None = None) -> Recipe:
        if self.variant == "multiplicative":
            return super().recipe(size)
        part = self.make_list(self.epsilon, self.delta if self.variant == "korolova" else 0.0)
        return Recipe(part, None, "large entries by name alone")

    def try_cells(self, variant: str) -> Iterator[Cells]:
        # Made for relative errors, not for small errors of large values: no list beside cells for all values.
        every = list(super().try_cells(variant))
        plain = [made for made in every if made.recipe.entry_list is None]
        return iter(plain or every)


def preview_vector(
    *,
    neighbours: Relation,
    dimension: Dimension,
    epsilon: float,
    variant: ThesisVariant,
    delta: float = 0.0,
    max_value: float | None = None,
    sparsity: int | None = None,
    total: float | None = None,
    signed: bool = False,
    threshold: bool | None = None,
    bits: float | None = None,
    alpha: float | None = None,
    unit: str | None = None,
) -> VectorPreview:
    """Return what `private_vector` would do with these arguments: its errors and its size. It spends nothing.

    >>> seen = preview_vector(neighbours="one_entry", dimension=10**6, epsilon=1.0, variant="cormode")
    >>> seen.listed_from, round(seen.expected_error(10.0), 1), seen.bits_per_entry
    (14.0, 9.9, 0.0)
    """
    return preview(ThesisRequest.of(locals()))


def private_vector(
    indices: Any,
    values: Any,
    *,
    neighbours: Relation,
    dimension: Dimension,
    epsilon: float,
    variant: ThesisVariant,
    delta: float = 0.0,
    max_value: float | None = None,
    sparsity: int | None = None,
    total: float | None = None,
    signed: bool = False,
    threshold: bool | None = None,
    bits: float | None = None,
    alpha: float | None = None,
    unit: str | None = None,
    ledger: AnyLedger = None,
    note: str = "",
    source: Source | None = None,
) -> SparseVector:
    """Return a private vector by 'cormode', 'korolova' or 'multiplicative'.

    The other arguments are those of `SparseVector.private`.

    >>> options = {"neighbours": "one_entry", "dimension": "text", "epsilon": 8.0, "delta": 1e-9}
    >>> vector = private_vector(["tea", "mate"], [500, 400], variant="korolova", **options)
    >>> vector.table["key"].to_pylist(), vector.get(["milk"]).tolist()
    (['mate', 'tea'], [0.0])
    """
    return release_vector(ThesisRequest.of(locals()), indices, values, ledger=ledger, note=note, source=source)
