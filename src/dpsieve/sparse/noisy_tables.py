"""Tables of noisy values with one cell per look-up: one cell per index, or maxima over hashed places."""

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from dpsieve import validate
from dpsieve.codec import NOT_SAVED_BY_DEFAULT, register
from dpsieve.errors import InvalidValue
from dpsieve.privacy.certificate import Certificate
from dpsieve.randomness.source import Source
from dpsieve.sparse.digests import KEY_WORDS, hash_words
from dpsieve.sparse.embedding import Embedding, Errors, Flag, Relation, VectorRelation
from dpsieve.sparse.grid_noise import MOST_VALUE, GridMechanism, NoiseEpsilon, clamp
from dpsieve.types import Floats, Ints, Words
from dpsieve.validate import is_between, is_positive, is_whole

MOST_ENTRIES = 2**24  # of a dense vector
MOST_PLACES = 2**36
_FINE = 8  # bits of the grid of real noise that cells leave out
_GROUPS = 512  # values of a distribution of which differences are taken
_CHUNK = 1 << 18  # cells at a time, a multiple of 64
_DIMENSION = "Pass at most 2^24; for more indices or for keys, choose another variant."
_PLACES = "Pass how many cells to store, such as places=1_000_000."
_SPARSITY = "Pass about how many entries there are."
_LARGEST = "Pass a bound on the values, at most 2^40, such as max_value=100."


@register("dense_laplace")
@dataclass(frozen=True)
class DenseLaplace(GridMechanism, Embedding):
    """The Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006) with the discrete noise of `grid_noise`.

    Every one of `dimension` entries gets noise, zeros too, and takes a word. Epsilon-private for both relations, as
    nothing but noisy entries is stored. Values are clamped to 2^40, and where `signed` is False, values and answers
    are clamped to 0 from below.
    """

    epsilon: NoiseEpsilon
    neighbours: VectorRelation
    dimension: Annotated[int, is_whole(1, MOST_ENTRIES, _DIMENSION)]
    signed: Flag = False
    unit: str = ""

    @property
    def words(self) -> int:
        return KEY_WORDS + self.dimension

    def certify(self) -> Certificate:
        return self.noise.certificate(self.guarantee, "noise on every entry")

    def draw(self, digests: Words, values: Any, source: Source, key: Words | None = None) -> Words:
        key = source.words(KEY_WORDS) if key is None else key  # not used
        real = clamp(values, self._low)
        dense = np.zeros(self.dimension, real.dtype)
        dense[digests[:, 0].astype(np.int64)] = real
        return np.concatenate([key, self.noise.add_noise(self.noise.steps(dense, source), source).view(np.uint64)])

    def get(self, cells: Words, digests: Words) -> Floats:
        steps = cells[KEY_WORDS:].view(np.int64)[digests[:, 0].astype(np.int64)]
        return np.maximum(self.noise.values(steps), -np.inf if self.signed else 0.0)

    def errors(self, value: float) -> Errors:
        stored = float(np.clip(value, self._low, MOST_VALUE))
        noisy = self.noise.errors(stored)
        answers = np.maximum(noisy.values + stored, -np.inf if self.signed else 0.0)
        return Errors.of(answers - float(value), noisy.masses)

    @property
    def _low(self) -> float:
        return -MOST_VALUE if self.signed else 0.0


@register("max_projection")
@dataclass(frozen=True)
class MaxProjection(GridMechanism, Embedding):
    """Each entry is hashed to one of `places` cells; a cell is the maximum of its entries, with noise (`grid_noise`).

    Epsilon-private for both relations (Aumueller, Lebeda and Pagh 2022, Section 2.8): the hash key is drawn without the
    data, and given the key, a change of an entry by d changes one maximum by at most d, so that all cells together
    change by no more than the vector. Cells that hold no entry are 0. Values are clamped to [0, max_value], which
    brings no vectors further apart.

    Signed values have a cell for each sign, and the estimate is the cell of + less that of -. Proof:
    docs/background/vectors.md#lists-of-large-entries-maxima-dense-noise-bought-sizes.

    Cells hold [0, max_value] in whole numbers, or for real values in quarters of 1/epsilon, in as few bits as possible;
    they are rounded after the noise. So there are many cells for few bits, and few entries share one.

    The error is noise alone unless the entry shares its cell with a larger one, which has probability at most
    sparsity / places. More entries than `sparsity` affect only this probability.

    Attributes:
        places: the number of cells.
        sparsity: the number of entries that errors are computed for.
        max_value: the largest value that is stored.
        signed: whether negative values are kept, from -max_value on; else they count as 0.
    """

    epsilon: NoiseEpsilon
    neighbours: VectorRelation
    places: Annotated[int, is_whole(1, MOST_PLACES, _PLACES)]
    sparsity: Annotated[int, is_whole(1, 2**40, _SPARSITY)]
    max_value: Annotated[float, is_positive(_LARGEST), is_between(0.0, MOST_VALUE, _LARGEST)]
    unit: str = ""
    signed: Flag = field(default=False, kw_only=True, metadata=NOT_SAVED_BY_DEFAULT)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.signed and self.places < 2:
            raise InvalidValue("places is 1, and signed values need two. Pass more bits.", argument="places")

    @property
    def cell_bits(self) -> int:
        """The number of bits of a cell."""
        return math.ceil(math.ldexp(self.max_value, self._kept)).bit_length()

    @property
    def words(self) -> int:
        return KEY_WORDS + -(-self.places * self.cell_bits // 64)

    def certify(self) -> Certificate:
        return self.noise.certificate(self.guarantee, "noise on every cell of a table of maxima")

    def draw(self, digests: Words, values: Any, source: Source, key: Words | None = None) -> Words:
        from dpsieve.sparse.loops import pack

        key = source.words(KEY_WORDS) if key is None else key
        real, cells = clamp(values, -self.max_value if self.signed else 0.0, self.max_value), self._cells(key, digests)
        if self.signed:
            cells, real = np.where(real < 0, self._cells_below(key, digests, cells), cells), np.abs(real)
        order = np.argsort(cells, kind="stable")
        real, cells = real[order], cells[order]
        packed = np.zeros(self.words - KEY_WORDS, np.uint64)
        for start in range(0, self.places, _CHUNK):
            size = min(_CHUNK, self.places - start)
            first, last = np.searchsorted(cells, [start, start + size])
            largest = np.zeros(size, real.dtype)
            np.maximum.at(largest, cells[first:last] - start, real[first:last])
            noisy = self.noise.add_noise(self.noise.steps(largest, source), source)
            pack(self._stored(noisy).view(np.uint64), self.cell_bits, packed[start // 64 * self.cell_bits :])
        return np.concatenate([key, packed])

    def get(self, cells: Words, digests: Words) -> Floats:
        from dpsieve.sparse.loops import unpack

        key, packed = cells[:KEY_WORDS], cells[KEY_WORDS:]
        places = self._cells(key, digests)
        above = self._read(unpack(packed, self.cell_bits, places).astype(np.float64))
        if not self.signed:
            return above
        below = unpack(packed, self.cell_bits, self._cells_below(key, digests, places))
        return above - self._read(below.astype(np.float64))

    def errors(self, value: float) -> Errors:
        """Return the errors with `sparsity` entries, where all others have `max_value`, the worst case."""
        others = self.sparsity - (1 if value else 0)
        if self.signed:
            return self._signed_errors(value, others)
        clamped, alone = float(np.clip(value, 0.0, self.max_value)), self._missed(1, others)
        return self._answers(clamped, value).mix(self._answers(self.max_value, value), alone)

    def _signed_errors(self, value: float, others: int) -> Errors:
        """Return the errors where other entries are -max_value or max_value, whichever of both cells they share."""
        clamped, far = min(abs(value), self.max_value), self.max_value
        neither, one = self._missed(2, others), self._missed(1, others)
        shares = {(clamped, 0.0): neither, (far, 0.0): one - neither, (clamped, far): one - neither}
        cases = [(above, below, share) for (above, below), share in shares.items()]
        cases.append((far, far, max(0.0, 1 - 2 * one + neither)))
        parts = [(_differences(self._answers(above, 0.0), self._answers(below, 0.0)), share)
                 for above, below, share in cases]  # fmt: skip
        mixed = Errors.of(np.concatenate([part.values for part, _ in parts]) - abs(value),
                          np.concatenate([part.masses * share for part, share in parts]))  # fmt: skip
        return mixed if value >= 0 else Errors.of(-mixed.values, mixed.masses)

    def _missed(self, cells: int, others: int) -> float:
        """Return the probability that no other entry is in any of this many cells."""
        return float(others == 0) if self.places <= cells else math.exp(others * math.log1p(-cells / self.places))

    def _answers(self, stored: float, value: float) -> Errors:
        if self.neighbours == "one_entry":
            stored = math.floor(stored)
        noisy = self.noise.errors(stored)
        steps = np.rint(np.ldexp(noisy.values + stored, self.noise.digits)).astype(np.int64)
        return Errors.of(self._read(self._stored(steps).astype(np.float64)) - value, noisy.masses)

    @property
    def _kept(self) -> int:
        """The binary digits after the point that cells have."""
        return max(self.noise.digits - _FINE, 0)

    def _stored(self, steps: Ints) -> Ints:
        """Return noisy steps as whole numbers of cells."""
        left_out = self.noise.digits - self._kept
        if left_out:
            steps = (steps + (1 << (left_out - 1))) >> left_out
        return np.clip(steps, 0, math.ceil(math.ldexp(self.max_value, self._kept)))

    def _read(self, stored: Floats) -> Floats:
        return np.minimum(np.ldexp(stored, -self._kept), self.max_value)

    def _cells(self, key: Words, digests: Words) -> Ints:
        return (hash_words(key, digests, 1)[:, 0] % np.uint64(self.places)).view(np.int64)

    def _cells_below(self, key: Words, digests: Words, cells: Ints) -> Ints:
        """Return the cell of each entry for negative values: any but the one for positive values."""
        step = (hash_words(key, digests, 1)[:, 1] % np.uint64(self.places - 1)).view(np.int64)
        return (cells + 1 + step) % self.places


def _differences(first: Errors, second: Errors) -> Errors:
    """Return the distribution of the difference of two independent numbers, each grouped to at most 512 values."""
    a, b = _grouped(first), _grouped(second)
    return Errors.of(np.subtract.outer(a.values, b.values).ravel(), np.outer(a.masses, b.masses).ravel())


def _grouped(law: Errors) -> Errors:
    """Return a distribution with neighbouring values replaced by their mean, so that few are left."""
    if len(law.values) <= _GROUPS:
        return law
    low, high = law.values[0], law.values[-1]
    places = np.minimum(((law.values - low) / (high - low) * _GROUPS).astype(np.int64), _GROUPS - 1)
    masses, sums = (np.bincount(places, weights, _GROUPS).astype(np.float64)
                    for weights in (law.masses, law.masses * law.values))  # fmt: skip
    filled = masses > 0
    return Errors.of(sums[filled] / masses[filled], masses[filled])


def max_projection(
    epsilon: float, sparsity: int, max_value: float, *, neighbours: Relation, bits: float = 300.0, signed: bool = False,
    unit: str = "",
) -> MaxProjection:  # fmt: skip
    """Return the table of maxima with about `bits` bits for each of `sparsity` entries.

    >>> made = max_projection(1.0, 1000, 60, neighbours="one_entry")
    >>> made.places, made.cell_bits
    (50000, 6)
    """
    bits = validate.between("bits", bits, 1.0, 2.0**20, hint="Pass bits for each entry, such as bits=300.")
    single = MaxProjection(epsilon, neighbours, 1, sparsity, max_value, unit)
    return replace(single, places=max(1 + signed, int(bits * single.sparsity / single.cell_bits)), signed=signed)
